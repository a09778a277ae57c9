//! Fixes of whole statements: one that is missing, written behind the one that makes it necessary in the same words; one too
//! many; one over another axis.

use super::select::selector;
use super::steps::{FrameKind, Step};
use super::{Checked, Site};
use slapo_model::Model;
use slapo_syntax::{FileId, Fix, Span};

/// Adds `path` with `tail`, such as `.output().sync(all_reduce, over: tp)`, behind the statement that `step` is of.
///
/// In a loop the path begins with the loop's variable; for what is asked of a selection it is one again. There is no fix
/// inside of schedules other than `main`.
pub fn behind(step: &Step, path: &str, tail: &str, model: &Model, checked: &Checked, user: FileId) -> Option<Fix> {
    let site = statement(step, user)?;
    let full = match twins(step, checked).as_slice() {
        [] => selector(model, path),
        twins => spread(step, twins, path, tail, model, checked)?,
    };
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

/// Leaves a statement of `main` out, if it is one by itself.
pub fn without(step: &Step, checked: &Checked, user: FileId) -> Option<Fix> {
    let span = step.site.span;
    let is_called = step.chain.frames().any(|frame| matches!(frame.kind, FrameKind::Call { .. }));
    let before = checked.text.get(..span.range().start)?;
    let before = before[before.rfind('\n').map_or(0, |at| at + 1)..].trim();
    let stands_alone = span.file == user && !is_called && (before.is_empty() || before.ends_with('{'));
    stands_alone.then(|| Fix::safe("leave the statement out").delete(whole_lines(span, &checked.text)))
}

/// Writes another axis where a statement says `over: from`, if it says so once.
pub fn over(statement: Span, from: &str, to: &str, checked: &Checked) -> Option<Fix> {
    let text = checked.text.get(statement.range())?;
    let given = format!("over: {from}");
    let ends =
        |at: &usize| !text[at + given.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '[');
    let found: Vec<usize> = text.match_indices(&given).map(|(at, _)| at).filter(ends).collect();
    let [at] = found[..] else { return None };
    let start = statement.start + (at + given.len() - from.len()) as u32;
    let name = Span::new(statement.file, start, start + from.len() as u32);
    Some(Fix::safe(format!("write `over: {to}`")).replace(name, to))
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

/// The other steps of one statement that was asked of several parts at once.
fn twins<'a>(step: &Step, checked: &'a Checked) -> Vec<&'a Step> {
    let leaf = |step: &Step| step.target.path.rsplit('.').next().unwrap_or("").to_owned();
    let is_twin = |other: &&Step| {
        other.id != step.id && other.site == step.site && other.chain == step.chain && leaf(other) == leaf(step)
    };
    checked.steps.iter().filter(is_twin).collect()
}

/// `path` with the one number in which the targets of a step and its twins differ as a selection: `m.h.*.mlp` for
/// `h.0.mlp`, `m.h[2..4].mlp` where they are not all. `None` where they differ otherwise, or a twin has that point's sync.
fn spread(step: &Step, twins: &[&Step], path: &str, tail: &str, model: &Model, checked: &Checked) -> Option<String> {
    let names = |path: &str| path.split('.').map(str::to_owned).collect::<Vec<String>>();
    let (own, mut path) = (names(&step.target.path), names(path));
    let mut at = None;
    let mut positions = vec![&step.target.path];
    for twin in twins {
        let other = names(&twin.target.path);
        let differing: Vec<usize> = (0..own.len().max(other.len())).filter(|i| own.get(*i) != other.get(*i)).collect();
        let [one] = differing[..] else { return None };
        if *at.get_or_insert(one) != one {
            return None;
        }
        positions.push(&twin.target.path);
    }
    let at = at.filter(|at| path.len() > *at && path[..=*at] == own[..=*at])?;
    let list = model.module(model.find(&own[..at].join("."))?);
    let mut chosen = Vec::new();
    for target in positions {
        path[at] = names(target)[at].clone();
        let point = format!("{}{}", path.join("."), tail.split(".sync(").next().unwrap_or(tail));
        if checked.steps.iter().any(|other| other.target.path == point) {
            return None;
        }
        let child = [&own[..at], &path[at..=at]].concat().join(".");
        chosen.push(list.children.iter().position(|id| model.module(*id).path == child)?);
    }
    chosen.sort_unstable();
    let is_run = chosen.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    let picked = match (chosen.first()?, chosen.len()) {
        (_, count) if count == list.children.len() => ".*".to_owned(),
        (first, count) if is_run => format!("[{first}..{}]", first + count),
        _ => return None,
    };
    let (base, one) = (selector(model, &own[..at].join(".")), selector(model, &path[..=at].join(".")));
    let rest = selector(model, &path.join("."));
    one.starts_with(&base).then(|| format!("{base}{picked}{}", &rest[one.len()..]))
}

/// The lines that a construct stands on if nothing else does, the line end included; else the construct and the blanks
/// behind it.
pub fn whole_lines(span: Span, text: &str) -> Span {
    let before = &text[..span.range().start];
    let after = &text[span.range().end..];
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let end = after.find('\n').map_or(text.len(), |at| span.range().end + at + 1);
    let is_alone = before[start..].trim().is_empty() && text[span.range().end..end].trim().is_empty();
    let blanks = after.len() - after.trim_start_matches([' ', '\t']).len();
    match is_alone {
        true => Span::new(span.file, start as u32, end as u32),
        false => Span::new(span.file, span.start, span.end + blanks as u32),
    }
}
