//! `slapoc apply`: compile, and show what the schedule changes.

use crate::args::{Apply, Stage};
use crate::failure::{Context, Exit, Failure, Result};
use crate::load::{Ready, reason};
use crate::output::Output;
use crate::prepare::{Prepared, compile_with, no_model, options, prepare};
use crate::render::counted;
use crate::report::{Ranks, draw, report};
use clap::ValueEnum;
use serde::Serialize;
use slapo_core::compile::{Compiled, Effects, program_of};
use slapo_core::layout::listing;
use slapo_core::schedule;
use slapo_model::Listing;
use slapo_program::{Program, torch};
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
    let ranks = ranks(args, &ready, &compiled)?;
    if let Some(folder) = &args.output {
        make_folder(folder)?;
    }
    if let Some(stage) = args.emit {
        if out.is_json() {
            out.record("stage", &Emitted::new(stage, &ready, &compiled, &ranks.chosen)?)?;
        } else {
            out.result(&text(stage, &ready, &compiled, &ranks.chosen))?;
        }
        if args.output.is_none() {
            return Ok(Exit::Done);
        }
    }
    let before = compile_with(&ready, &Effects::default(), &options(&args.compile, &ready.loaded)).ok();
    let report = report(&ready, before.as_ref(), &compiled, &ranks);
    if args.emit.is_none() {
        if out.is_json() { out.record("report", &report)? } else { out.result(&draw(&report))? }
    }
    if let Some(folder) = &args.output {
        let json = serde_json::to_string_pretty(&report).unexpected("write the report as JSON")?;
        write(folder, "report.json", &json)?;
        write(folder, "steps.json", &steps_json(&ready)?)?;
        write(folder, "program.json", &ranks.chosen.to_json())?;
        out.note(&format!("wrote program.json, steps.json and report.json to {}", folder.display()));
    }
    Ok(Exit::Done)
}

/// The programs that are spoken of.
fn ranks(args: &Apply, ready: &Ready, compiled: &Compiled) -> Result<Ranks> {
    let world = ready.loaded.checked.mesh.world();
    if args.rank >= world {
        let message = format!("there is no rank {}: the mesh has {}", args.rank, counted(world as usize, "rank"));
        return Err(Failure::usage(message).help(format!("ranks are 0 to {}", world - 1)));
    }
    let (model, effects) = (&ready.archive.model, &ready.loaded.checked.effects);
    let options = options(&args.compile, &ready.loaded);
    let of = |rank: i64| match rank {
        0 => Ok(compiled.program.clone()),
        _ => program_of(model, compiled, effects, &options, rank)
            .map_err(|faults| Failure::usage(format!("the schedule does not compile for rank {rank}: {faults:?}"))),
    };
    Ok(Ranks { rank: args.rank, chosen: of(args.rank)?, first: of(0)?, last: of(world - 1)? })
}

fn text(stage: Stage, ready: &Ready, compiled: &Compiled, program: &Program) -> String {
    let model = &ready.archive.model;
    match stage {
        Stage::Steps => ready.loaded.checked.steps.iter().map(|step| format!("{step}\n")).collect(),
        Stage::Graph => Listing::new(model, &compiled.bound).to_string(),
        Stage::Joint => Listing::new(model, &compiled.joint.graph).to_string(),
        Stage::Layouts => {
            let axes: Vec<String> = ready.loaded.checked.effects.axes.iter().map(|axis| axis.name.clone()).collect();
            listing(model, compiled, &axes)
        }
        Stage::Program => program.to_string(),
        Stage::ProgramJson => format!("{}\n", program.to_json()),
        Stage::Torch => torch(program),
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
    fn new(stage: Stage, ready: &Ready, compiled: &Compiled, program: &Program) -> Result<Emitted> {
        let json = match stage {
            Stage::Steps => Some(steps_json(ready)?),
            Stage::Program | Stage::ProgramJson => Some(program.to_json()),
            Stage::Graph | Stage::Joint | Stage::Layouts | Stage::Torch => None,
        };
        let content = json.map(|json| serde_json::from_str(&json)).transpose().unexpected("write a stage as JSON")?;
        let text = content.is_none().then(|| text(stage, ready, compiled, program));
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
