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
use slapo_syntax::{Applicability, Code, Diagnostic, FileId, Fix, Severity, format, parse};

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

/// What is left to say of a schedule after its fixes; before them where there are none to make.
///
/// Nothing is written with `is_dry`: the text on disk is as it was.
pub fn fixed(
    source: &Source,
    is_dry: bool,
    options: impl Fn(&Loaded) -> Options,
    out: &Output,
) -> Result<Examined> {
    let levels = Levels::new(&source.levels)?;
    if is_stdin(&source.path) || is_model(&source.path) {
        return Ok(examine(load::load(source, None)?, &levels, None, options));
    }
    let (shown, before) = load::text(&source.path, None)?;
    let name = shown.display().to_string();
    let mut text = before.clone();
    let mut made = 0;
    let mut examined = examine(load::load_text(source, None, &shown, text.clone()), &levels, None, &options);
    for _ in 0..MOST_TURNS {
        let file = examined.loaded().file;
        let fixes = together(&examined.diagnostics, file);
        if fixes.is_empty() {
            break;
        }
        made += fixes.len();
        let all = fixes.into_iter().flat_map(|fix| fix.edits.iter());
        let all = all.fold(Fix::safe(""), |all, edit| all.replace(edit.span, edit.replacement.clone()));
        text = all.apply(file, &text);
        examined = examine(load::load_text(source, None, &shown, text.clone()), &levels, None, &options);
    }
    if formatted(&before).is_some_and(|formatted| formatted == before)
        && let Some(tidy) = formatted(&text).filter(|tidy| *tidy != text)
    {
        text = tidy;
        examined = examine(load::load_text(source, None, &shown, text.clone()), &levels, None, &options);
    }
    let changed = text != before;
    let written = changed && !is_dry;
    if written {
        replace(&source.path, &text).map_err(|e| reason(&e)).context(Code::UnwritableFile, format!("write `{name}`"))?;
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
    Ok(examined)
}

/// The safe fixes in the file that do not touch each other, in the order of the text.
fn together(diagnostics: &[Diagnostic], file: FileId) -> Vec<&Fix> {
    let is_safe = |fix: &&Fix| {
        fix.applicability == Applicability::MachineApplicable
            && !fix.edits.is_empty()
            && fix.edits.iter().all(|edit| edit.span.file == file)
    };
    let mut chosen: Vec<&Fix> = Vec::new();
    for fix in diagnostics.iter().filter_map(|diagnostic| diagnostic.fixes.iter().find(is_safe)) {
        let touches = |other: &Fix| {
            let pairs = other.edits.iter().flat_map(|a| fix.edits.iter().map(move |b| (a.span, b.span)));
            pairs.into_iter().any(|(a, b)| a.start <= b.end && b.start <= a.end)
        };
        if !chosen.iter().any(|other| touches(other)) {
            chosen.push(fix);
        }
    }
    chosen.sort_by_key(|fix| fix.edits.first().map(|edit| edit.span));
    chosen
}

/// The text in the one style, if it can be read.
fn formatted(text: &str) -> Option<String> {
    format(&parse(FileId(0), text))
}
