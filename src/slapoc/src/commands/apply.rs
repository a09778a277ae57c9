//! `slapoc apply`: compile, and show what the schedule changes.

use crate::args::{Apply, Stage};
use crate::failure::{Context, Exit, Result};
use crate::load::{Ready, reason};
use crate::output::Output;
use crate::prepare::{Prepared, compile_with, no_model, options, prepare};
use crate::report::{draw, report};
use slapo_core::compile::{Compiled, Effects};
use slapo_core::schedule;
use slapo_model::Listing;
use std::fs;
use std::path::Path;

pub fn run(args: &Apply, out: &Output) -> Result<Exit> {
    let (ready, compiled) = match prepare(&args.source, args.until, |loaded| options(&args.compile, loaded), out)? {
        Prepared::Stopped(exit) => return Ok(exit),
        Prepared::WithoutModel(loaded) => return Err(no_model(&loaded)),
        Prepared::Compiled(ready, compiled) => (ready, compiled),
    };
    ready.tell_defaults(out);
    if let Some(folder) = &args.output {
        make_folder(folder)?;
    }
    if let Some(stage) = args.emit {
        out.result(&emit(stage, &ready, &compiled, out.is_json())?)?;
        if args.output.is_none() {
            return Ok(Exit::Done);
        }
    }
    let before = compile_with(&ready, &Effects::default(), &options(&args.compile, &ready.loaded)).ok();
    let report = report(&ready, before.as_ref(), &compiled);
    if args.emit.is_none() {
        if out.is_json() { out.record("report", &report)? } else { out.result(&draw(&report))? }
    }
    if let Some(folder) = &args.output {
        let json = serde_json::to_string_pretty(&report).context("write the report as JSON")?;
        write(folder, "report.json", &json)?;
        write(folder, "steps.json", &steps_json(&ready)?)?;
        write(folder, "program.json", &compiled.program.to_json())?;
        out.note(&format!("wrote program.json, steps.json and report.json to {}", folder.display()));
    }
    Ok(Exit::Done)
}

fn emit(stage: Stage, ready: &Ready, compiled: &Compiled, json: bool) -> Result<String> {
    let model = &ready.archive.model;
    Ok(match stage {
        Stage::Steps if json => format!("{}\n", steps_json(ready)?),
        Stage::Steps => ready.loaded.checked.steps.iter().map(|step| format!("{step}\n")).collect(),
        Stage::Graph => Listing::new(model, &compiled.bound).to_string(),
        Stage::Joint => Listing::new(model, &compiled.joint.graph).to_string(),
        Stage::Program if !json => compiled.program.to_string(),
        Stage::Program | Stage::ProgramJson => format!("{}\n", compiled.program.to_json()),
    })
}

fn steps_json(ready: &Ready) -> Result<String> {
    schedule::to_json(&ready.loaded.checked.steps).context("write the steps as JSON")
}

fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| reason(&e)).context(format!("make the folder `{}`", folder.display()))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, format!("{}\n", text.trim_end()))
        .map_err(|e| reason(&e))
        .context(format!("write `{}`", path.display()))
}
