//! `slapoc inspect`: what a model is made of.

use crate::args::Inspect;
use crate::failure::{Context, Exit, Failure, Result};
use crate::load;
use crate::output::Output;
use crate::report::matches;
use slapo_core::schedule::search;
use slapo_model::Model;
use slapo_model::inspect::{inspect, render, render_ports};
use slapo_syntax::{Code, SourceMap};

pub fn run(args: &Inspect, out: &Output) -> Result<Exit> {
    let shown = args.model.display().to_string();
    let archive = match load::archive(&args.model, &shown) {
        Ok(archive) => archive,
        Err(diagnostics) => {
            out.diagnostics(&Default::default(), &diagnostics)?;
            return Ok(Exit::NotDone);
        }
    };
    if let Some(wanted) = &args.find {
        return find(&archive.model, wanted, out);
    }
    let info = inspect(&archive.model);
    if out.is_json() {
        out.record("model", &info)?;
    } else if args.json {
        let json = serde_json::to_string(&info).unexpected("write the model as JSON")?;
        out.result(&format!("{json}\n"))?;
    } else if let Some(path) = &args.module {
        let none = || {
            Failure::not_done(Code::NoSuchName, format!("`{shown}` has no module `{path}`"))
                .help(format!("`slapoc inspect {shown}` lists them"))
        };
        out.result(&render_ports(&info, path).ok_or_else(none)?)?;
    } else {
        out.result(&render(&info))?;
    }
    Ok(Exit::Done)
}

/// Where a pattern occurs. One that occurs nowhere is a finding, as in a schedule.
fn find(model: &Model, wanted: &str, out: &Output) -> Result<Exit> {
    let mut files = SourceMap::new();
    match search(&mut files, model, wanted) {
        Ok(found) => {
            let found = matches::Matches::of(model, &found);
            match out.is_json() {
                true => out.record("matches", &found)?,
                false => out.result(&found.to_string())?,
            }
            Ok(Exit::Done)
        }
        Err(diagnostics) => {
            out.diagnostics(&files, &diagnostics)?;
            Ok(Exit::Findings)
        }
    }
}
