//! `slapoc apply`: compile, and show what the schedule changes.

use crate::args::{Apply, Stage};
use crate::failure::{Context, Exit, Result};
use crate::load::{Ready, reason};
use crate::output::Output;
use crate::prepare::{Prepared, compile_with, no_model, options, prepare};
use crate::report::{draw, report};
use clap::ValueEnum;
use serde::Serialize;
use slapo_core::compile::{Compiled, Effects};
use slapo_core::schedule;
use slapo_model::Listing;
use slapo_syntax::Code;
use std::fs;
use std::path::Path;

pub fn run(args: &Apply, out: &Output) -> Result<Exit> {
    let (ready, compiled) = match prepare(&args.source, args.until, |loaded| options(&args.compile, loaded), out)? {
        Prepared::Stopped(exit) => return Ok(exit),
        Prepared::WithoutModel(loaded) => return Err(no_model(&loaded)),
        Prepared::Compiled(ready, compiled) => (ready, compiled),
    };
    out.close(None);
    ready.tell_defaults(out);
    if let Some(folder) = &args.output {
        make_folder(folder)?;
    }
    if let Some(stage) = args.emit {
        if out.is_json() {
            out.record("stage", &Emitted::new(stage, &ready, &compiled)?)?;
        } else {
            out.result(&text(stage, &ready, &compiled))?;
        }
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
        let json = serde_json::to_string_pretty(&report).unexpected("write the report as JSON")?;
        write(folder, "report.json", &json)?;
        write(folder, "steps.json", &steps_json(&ready)?)?;
        write(folder, "program.json", &compiled.program.to_json())?;
        out.note(&format!("wrote program.json, steps.json and report.json to {}", folder.display()));
    }
    Ok(Exit::Done)
}

fn text(stage: Stage, ready: &Ready, compiled: &Compiled) -> String {
    let model = &ready.archive.model;
    match stage {
        Stage::Steps => ready.loaded.checked.steps.iter().map(|step| format!("{step}\n")).collect(),
        Stage::Graph => Listing::new(model, &compiled.bound).to_string(),
        Stage::Joint => Listing::new(model, &compiled.joint.graph).to_string(),
        Stage::Program => compiled.program.to_string(),
        Stage::ProgramJson => format!("{}\n", compiled.program.to_json()),
    }
}

/// A stage as a record: as data where it has such a form.
#[derive(Serialize)]
struct Emitted {
    stage: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

impl Emitted {
    fn new(stage: Stage, ready: &Ready, compiled: &Compiled) -> Result<Emitted> {
        let json = match stage {
            Stage::Steps => Some(steps_json(ready)?),
            Stage::Program | Stage::ProgramJson => Some(compiled.program.to_json()),
            Stage::Graph | Stage::Joint => None,
        };
        let content = json.map(|json| serde_json::from_str(&json)).transpose().unexpected("write a stage as JSON")?;
        let text = content.is_none().then(|| text(stage, ready, compiled));
        let name = stage.to_possible_value().map(|value| value.get_name().to_owned());
        Ok(Emitted { stage: name.unwrap_or_default(), content, text })
    }
}

fn steps_json(ready: &Ready) -> Result<String> {
    schedule::to_json(&ready.loaded.checked.steps).unexpected("write the steps as JSON")
}

fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)
        .map_err(|e| reason(&e))
        .context(Code::UnwritableFile, format!("make the folder `{}`", folder.display()))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, format!("{}\n", text.trim_end()))
        .map_err(|e| reason(&e))
        .context(Code::UnwritableFile, format!("write `{}`", path.display()))
}
