//! `slapoc check --fix`: the fixes that are surely right, made in the text and checked again, until there are none left.

use crate::args::Source;
use crate::failure::{Context, Failure, Result};
use crate::levels::Levels;
use crate::load::{self, Loaded, is_model, is_stdin, reason};
use crate::output::Output;
use crate::prepare::{Examined, examine};
use crate::rewrite::{diff, replace};
use serde::Serialize;
use slapo_core::compile::Options;
use slapo_syntax::{Code, Diagnostic, FileId, Severity, apply_fixes, format, parse, safe_fixes};
use std::collections::BTreeSet;

/// A fix may uncover what the next one repairs. More than so many turns are fixes that undo each other.
const MOST_TURNS: usize = 16;

/// What was done about one schedule, as JSON.
#[derive(Serialize)]
struct Record<'a> {
    file: &'a str,
    /// Fixes that were made.
    fixed: usize,
    /// Errors and warnings that are left; they follow as diagnostics.
    left: usize,
    /// Whether the file was replaced.
    written: bool,
    /// With `--diff`, where something changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

/// A schedule after its fixes.
pub struct Fixed {
    /// What is left to say.
    pub examined: Examined,
    /// Whether there were errors before.
    pub was_wrong: bool,
}

/// Makes the fixes of a schedule.
///
/// Nothing is written with `is_dry`: the text on disk is as it was.
pub fn fixed(source: &Source, is_dry: bool, options: impl Fn(&Loaded) -> Options, out: &Output) -> Result<Fixed> {
    let levels = Levels::new(&source.levels)?;
    if is_stdin(&source.path) {
        return Err(Failure::usage("`--fix` writes into files: it does not go with standard input"));
    }
    if is_model(&source.path) {
        let examined = examine(load::load(source, None)?, &levels, None, options);
        return Ok(Fixed { was_wrong: examined.is_wrong(), examined });
    }
    let (shown, before) = load::text(&source.path, None)?;
    let check = |text: &str| examine(load::load_text(source, None, &shown, text.to_owned()), &levels, None, &options);
    let examined = check(&before);
    let was_wrong = examined.is_wrong();
    let Turns { text, examined, made } = turns(before.clone(), examined, check);
    let name = shown.display().to_string();
    let changed = text != before;
    let written = changed && !is_dry;
    if written {
        let replaced = replace(&source.path, &text).map_err(|e| reason(&e));
        replaced.context(Code::UnwritableFile, format!("write `{name}`"))?;
    }
    let left = examined.diagnostics.iter().filter(|diagnostic| diagnostic.severity != Severity::Note).count();
    let diff = (is_dry && changed).then(|| diff(&name, &before, &text));
    if out.is_json() {
        out.record("fix", &Record { file: &name, fixed: made, left, written, diff })?;
    } else if let Some(diff) = diff {
        out.result(&diff)?;
    }
    if made + left > 0 {
        let verb = if is_dry { "would fix" } else { "fixed" };
        out.note(&format!("{name}: {verb} {made} of {}", made + left));
    }
    Ok(Fixed { examined, was_wrong })
}

/// What came of fixing a text again and again.
struct Turns {
    text: String,
    examined: Examined,
    /// Fixes.
    made: usize,
}

/// Makes fixes until there are none left. A text that was in the one style stays in it.
fn turns(before: String, examined: Examined, check: impl Fn(&str) -> Examined) -> Turns {
    let key = |diagnostic: &Diagnostic| (diagnostic.code, diagnostic.message.clone());
    let count = |of: &Examined, one| of.diagnostics.iter().filter(|other| key(other) == one).count();
    let was_formatted = formatted(&before).is_some_and(|formatted| formatted == before);
    let mut now = Turns { text: before, examined, made: 0 };
    // What its fix did not settle; another attempt would do no better.
    let mut hopeless: BTreeSet<(Code, String)> = BTreeSet::new();
    for _ in 0..MOST_TURNS {
        let file = now.examined.loaded().file;
        let open = now.examined.diagnostics.iter().filter(|one| !hopeless.contains(&key(one))).cloned();
        let open: Vec<Diagnostic> = open.collect();
        let fixes = safe_fixes(&open, file);
        if fixes.is_empty() {
            break;
        }
        let text = apply_fixes(fixes.iter().map(|(_, fix)| *fix), file, &now.text);
        let examined = check(&text);
        let fixed = fixes.iter().map(|(diagnostic, _)| key(diagnostic));
        let is_unsettled = |one: &(Code, String)| count(&examined, one.clone()) >= count(&now.examined, one.clone());
        let unsettled: Vec<(Code, String)> = fixed.filter(is_unsettled).collect();
        if unsettled.is_empty() {
            now = Turns { text, examined, made: now.made + fixes.len() };
        }
        hopeless.extend(unsettled);
    }
    match formatted(&now.text).filter(|tidy| was_formatted && *tidy != now.text) {
        Some(text) => Turns { examined: check(&text), text, ..now },
        None => now,
    }
}

/// The text in the one style, if it can be read.
fn formatted(text: &str) -> Option<String> {
    format(&parse(FileId(0), text))
}
