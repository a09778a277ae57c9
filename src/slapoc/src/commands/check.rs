//! `slapoc check`: are these schedules right? Nothing is written without `--fix`, no worker is needed, no weights are read.

use super::fix::{Fixed, fixed};
use crate::args::{Check, Source};
use crate::failure::{Context, Exit, Failure, Result};
use crate::load::{Loaded, is_stdin, reason};
use crate::output::Output;
use crate::prepare::{Prepared, prepare};
use crate::render::counted;
use slapo_core::compile::Options;
use slapo_syntax::Code;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Checks every path, whatever is wrong with others; the worst of them decides how slapoc exits.
pub fn run(args: &Check, out: &Output) -> Result<Exit> {
    let mut worst = Exit::Done;
    let mut tell = |failure: Box<Failure>| {
        worst = worst.max(failure.exit);
        out.failure(&failure);
    };
    let schedules = schedules(&args.paths, &mut tell);
    let is_alone = schedules.len() == 1;
    let mut with_findings = 0;
    for path in &schedules {
        let source = Source { path: path.clone(), binding: args.binding.clone(), levels: args.levels.clone() };
        match one(&source, args, is_alone, out) {
            // Nobody listens.
            Err(failure) if failure.message.is_empty() => return Err(failure),
            Err(failure) => {
                out.failure(&failure);
                (worst, with_findings) = (worst.max(failure.exit), with_findings + 1);
            }
            Ok(Exit::Done) => {}
            Ok(exit) => (worst, with_findings) = (worst.max(exit), with_findings + 1),
        }
    }
    if !is_alone && worst == Exit::Done {
        out.note(&format!("{}: no errors", counted(schedules.len(), "schedule")));
    }
    out.close((!is_alone && with_findings > 0).then_some((with_findings, schedules.len())));
    Ok(worst)
}

/// Says that all is well only where the schedule `is_alone`.
fn one(source: &Source, args: &Check, is_alone: bool, out: &Output) -> Result<Exit> {
    let options = |loaded: &Loaded| Options { schedule: loaded.fingerprint.clone(), ..Options::default() };
    let prepared = match args.fix {
        true => match fixed(source, args.diff, options, out)? {
            // The file is as wrong as it was.
            Fixed { examined, was_wrong: true } if args.diff => {
                examined.show(out)?;
                return Ok(Exit::Findings);
            }
            Fixed { examined, .. } => examined.show(out)?,
        },
        false => prepare(source, None, options, out)?,
    };
    match prepared {
        Prepared::Stopped(exit) => return Ok(exit),
        Prepared::WithoutModel(loaded) if is_alone => {
            out.note(&format!("{}: names and types are right; no model is named to check the rest on", loaded.name));
        }
        Prepared::Compiled(ready, _) if is_alone => {
            let steps = counted(ready.loaded.checked.steps.len(), "step");
            let (name, class) = (&ready.loaded.name, ready.archive.model.modules[0].short_class());
            let sizes = ready.shown_sizes();
            out.note(&match *name == ready.archive.name {
                true => format!("{name}: no errors, {class} by the empty schedule, {sizes}"),
                false => format!("{name}: no errors, {steps} on {class} ({}), {sizes}", ready.archive.name),
            });
        }
        Prepared::WithoutModel(_) | Prepared::Compiled(..) => {}
    }
    Ok(Exit::Done)
}

/// What paths stand for, each once; what is wrong with a path is told.
pub fn schedules(paths: &[PathBuf], tell: &mut dyn FnMut(Box<Failure>)) -> Vec<PathBuf> {
    let mut schedules: Vec<PathBuf> = Vec::new();
    let mut known = BTreeSet::new();
    for path in paths {
        match schedules_at(path) {
            Ok(found) => schedules.extend(found.into_iter().filter(|path| known.insert(path.clone()))),
            Err(failure) => tell(failure),
        }
    }
    schedules
}

/// What a path stands for: itself, or every schedule in a folder and the folders in it.
fn schedules_at(path: &Path) -> Result<Vec<PathBuf>> {
    if is_stdin(path) || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    descend(path, &mut found)?;
    if found.is_empty() {
        let message = format!("there is no schedule in `{}`", path.display());
        return Err(
            Failure::not_done(Code::UnreadableSchedule, message).help("the name of a schedule ends in `.slapo`")
        );
    }
    Ok(found)
}

/// In the order of names. Left out are hidden folders, caches that are tagged as such, and folders behind links, which
/// may lead back.
fn descend(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<fs::DirEntry>>>);
    let doing = || format!("read the folder `{}`", folder.display());
    let mut entries = entries.map_err(|e| reason(&e)).context(Code::UnreadableSchedule, doing())?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        // Without the `./` of the default.
        let path = entry.path();
        let path = path.strip_prefix(".").unwrap_or(&path).to_owned();
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && !is_hidden && !path.join("CACHEDIR.TAG").exists() {
            descend(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "slapo") && path.is_file() {
            found.push(path);
        }
    }
    Ok(())
}
