//! `slapoc fmt`: schedules in the one style. A schedule with syntax errors stays as it is.
//!
//! Files are replaced by complete ones, and only where something changes.

use super::check::schedules;
use crate::args::Fmt;
use crate::failure::{Context, Exit, Failure, Result};
use crate::load::{is_stdin, reason, text};
use crate::output::Output;
use crate::render::counted;
use crate::rewrite::{diff, replace};
use serde::Serialize;
use slapo_syntax::{Code, SourceMap, format, parse};
use std::path::Path;

/// What was done about one schedule, as JSON.
#[derive(Serialize)]
struct Record<'a> {
    file: &'a str,
    /// Whether it was not formatted.
    changed: bool,
    /// Whether the file was replaced.
    written: bool,
    /// Of standard input: what it is when formatted.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    /// With `--diff`, where something changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

/// What a schedule was found to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Broken,
    Formatted,
    Otherwise,
}

/// Formats every path, whatever is wrong with others; the worst of them decides how slapoc exits.
pub fn run(args: &Fmt, out: &Output) -> Result<Exit> {
    let mut worst = Exit::Done;
    let mut tell = |failure: Box<Failure>| {
        worst = worst.max(failure.exit);
        out.failure(&failure);
    };
    let schedules = schedules(&args.paths, &mut tell);
    let (mut otherwise, mut broken) = (0, 0);
    for path in &schedules {
        match one(path, args, out) {
            // Nobody listens.
            Err(failure) if failure.message.is_empty() => return Err(failure),
            Err(failure) => {
                tell(failure);
                broken += 1;
            }
            Ok(Found::Broken) => broken += 1,
            Ok(Found::Formatted) => {}
            Ok(Found::Otherwise) => otherwise += 1,
        }
    }
    let has_findings = args.check && otherwise > 0 || broken > 0;
    let is_filter = schedules.iter().all(|path| is_stdin(path));
    if let Some(note) = note(args, schedules.len(), otherwise, broken).filter(|_| !is_filter) {
        out.note(&note);
    }
    out.close((schedules.len() > 1 && broken > 0).then_some((broken, schedules.len())));
    Ok(worst.max(if has_findings { Exit::Findings } else { Exit::Done }))
}

/// Sums up for people what was done.
fn note(args: &Fmt, all: usize, otherwise: usize, broken: usize) -> Option<String> {
    let of = match all {
        1 => "1 schedule".to_owned(),
        _ => format!("{otherwise} of {}", counted(all, "schedule")),
    };
    match (otherwise, args.check, args.diff) {
        (0, ..) if broken > 0 || all == 0 => None,
        (0, ..) => Some(format!("{}: formatted already", counted(all, "schedule"))),
        (_, false, false) => Some(format!("{of} formatted")),
        (_, false, true) => Some(format!("{of} would change")),
        (_, true, _) => Some(format!("{of} not formatted; `slapoc fmt` does it")),
    }
}

fn one(path: &Path, args: &Fmt, out: &Output) -> Result<Found> {
    let (shown, text) = text(path, args.stdin_filename.as_deref())?;
    let name = shown.display().to_string();
    let mut files = SourceMap::new();
    let file = files.add(name.clone(), text);
    let text = files.text(file);
    let parse = parse(file, text);
    let Some(formatted) = format(&parse) else {
        out.diagnostics(&files, &parse.diagnostics)?;
        return Ok(Found::Broken);
    };
    let changed = formatted != text;
    let is_dry = args.check || args.diff;
    let written = changed && !is_dry && !is_stdin(path);
    if written {
        replace(path, &formatted).map_err(|e| reason(&e)).context(Code::UnwritableFile, format!("write `{name}`"))?;
        out.detail(&format!("{name}: formatted"));
    }
    let diff = (args.diff && changed).then(|| diff(&name, text, &formatted));
    let filtered = (is_stdin(path) && !is_dry).then_some(formatted.as_str());
    if out.is_json() {
        out.record("format", &Record { file: &name, changed, written, text: filtered, diff })?;
    } else if let Some(diff) = diff {
        out.result(&diff)?;
    } else if let Some(text) = filtered {
        out.result(text)?;
    } else if args.check && changed {
        out.unformatted(&name)?;
    }
    Ok(if changed { Found::Otherwise } else { Found::Formatted })
}
