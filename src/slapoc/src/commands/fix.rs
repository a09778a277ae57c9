//! `slapoc check --fix`: the fixes that are surely right, made in the text and checked again, until there are none left.

use crate::args::Source;
use crate::failure::{Context, Result};
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
    if is_stdin(&source.path) || is_model(&source.path) {
        let examined = examine(load::load(source, None)?, &levels, None, options);
        return Ok(Fixed { was_wrong: examined.is_wrong(), examined });
    }
    let (shown, before) = load::text(&source.path, None)?;
    let name = shown.display().to_string();
    let mut text = before.clone();
    let check = |text: &str| examine(load::load_text(source, None, &shown, text.to_owned()), &levels, None, &options);
    let mut examined = check(&text);
    let was_wrong = examined.is_wrong();
    let mut made = 0;
    // What its fix did not settle; another attempt would do no better.
    let mut hopeless: BTreeSet<(Code, String)> = BTreeSet::new();
    for _ in 0..MOST_TURNS {
        let file = examined.loaded().file;
        let key = |diagnostic: &Diagnostic| (diagnostic.code, diagnostic.message.clone());
        let open: Vec<Diagnostic> =
            examined.diagnostics.iter().filter(|one| !hopeless.contains(&key(one))).cloned().collect();
        let fixes = safe_fixes(&open, file);
        if fixes.is_empty() {
            break;
        }
        let tried = apply_fixes(fixes.iter().map(|(_, fix)| *fix), file, &text);
        let after = check(&tried);
        let count = |all: &[Diagnostic], one| all.iter().filter(|other| key(other) == one).count();
        let fixed = fixes.iter().map(|(diagnostic, _)| key(diagnostic));
        let unsettled: Vec<(Code, String)> = fixed
            .filter(|one| count(&after.diagnostics, one.clone()) >= count(&examined.diagnostics, one.clone()))
            .collect();
        if unsettled.is_empty() {
            made += fixes.len();
            (text, examined) = (tried, after);
        }
        hopeless.extend(unsettled);
    }
    if formatted(&before).is_some_and(|formatted| formatted == before)
        && let Some(tidy) = formatted(&text).filter(|tidy| *tidy != text)
    {
        text = tidy;
        examined = check(&text);
    }
    let changed = text != before;
    let written = changed && !is_dry;
    if written {
        replace(&source.path, &text)
            .map_err(|e| reason(&e))
            .context(Code::UnwritableFile, format!("write `{name}`"))?;
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

/// The text in the one style, if it can be read.
fn formatted(text: &str) -> Option<String> {
    format(&parse(FileId(0), text))
}
