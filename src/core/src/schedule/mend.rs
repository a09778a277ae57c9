//! A statement that is missing, as a fix: written behind the one that makes it necessary, in the same words.

use super::select::selector;
use super::steps::{FrameKind, Step};
use super::{Checked, Site};
use slapo_model::Model;
use slapo_syntax::{FileId, Fix};

/// Adds `path` with `tail`, such as `.output().sync(all_reduce, over: tp)`, behind the statement that `step` is of.
///
/// In a loop the path begins with the loop's variable. There is no fix where one statement would need several: for what
/// is asked of a selection, and inside of schedules other than `main`.
pub fn behind(step: &Step, path: &str, tail: &str, model: &Model, checked: &Checked, user: FileId) -> Option<Fix> {
    let site = statement(step, user)?;
    if is_spread(step, checked) {
        return None;
    }
    let full = selector(model, path);
    let mut base = None;
    for frame in step.chain.frames().filter(|frame| frame.site.span.file == user) {
        let FrameKind::Iteration { variable, value } = &frame.kind else { continue };
        if frame.site.span == site.span {
            return None;
        }
        let rest =
            full.strip_prefix(&selector(model, value)).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        // Of the innermost loop whose variable leads there; one that does not would repeat the statement.
        base = base.or(rest.map(|rest| format!("{variable}{rest}")));
        base.as_ref()?;
    }
    let base = match base {
        Some(base) => base,
        None => format!("{}{}", checked.root.as_ref()?, full.strip_prefix('m')?),
    };
    let line = format!("{base}{tail}");
    let indent = " ".repeat(site.column.saturating_sub(1) as usize);
    Some(Fix::safe(format!("add `{line}`")).replace(site.span.at_end(), format!("\n{indent}{line}")))
}

/// The statement of `main` that a step is of.
fn statement(step: &Step, user: FileId) -> Option<&Site> {
    let mut calls = step.chain.frames().filter(|frame| matches!(frame.kind, FrameKind::Call { .. }));
    let mut own = calls.by_ref().filter(|frame| frame.site.span.file == user);
    match (own.next(), own.next(), step.site.span.file == user) {
        (None, None, true) => Some(&step.site),
        (Some(call), None, false) => Some(&call.site),
        _ => None,
    }
}

/// Whether a primitive was asked of several parts at once.
fn is_spread(step: &Step, checked: &Checked) -> bool {
    let leaf = |step: &Step| step.target.path.rsplit('.').next().unwrap_or("").to_owned();
    let is_twin = |other: &&Step| {
        other.id != step.id && other.site == step.site && other.chain == step.chain && leaf(other) == leaf(step)
    };
    checked.steps.iter().any(|other| is_twin(&other))
}
