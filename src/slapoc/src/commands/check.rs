//! `slapoc check`: is this schedule right? Nothing is written, no worker is needed, no weights are read.

use crate::args::Check;
use crate::failure::{Exit, Result};
use crate::load::Loaded;
use crate::output::Output;
use crate::prepare::{Prepared, prepare};
use crate::render::counted;
use slapo_core::compile::Options;

pub fn run(args: &Check, out: &Output) -> Result<Exit> {
    let options = |loaded: &Loaded| Options { schedule: loaded.fingerprint.clone(), ..Options::default() };
    match prepare(&args.source, None, options, out)? {
        Prepared::Stopped(exit) => return Ok(exit),
        Prepared::WithoutModel(loaded) => {
            out.note(&format!("{}: names and types are right; no model is named to check the rest on", loaded.name));
        }
        Prepared::Compiled(ready, _) => {
            let steps = counted(ready.loaded.checked.steps.len(), "step");
            let class = ready.archive.model.modules[0].short_class();
            let sizes = ready.shown_sizes();
            out.note(&format!(
                "{}: no errors, {steps} on {class} ({}), {sizes}",
                ready.loaded.name, ready.archive.name
            ));
        }
    }
    Ok(Exit::Done)
}
