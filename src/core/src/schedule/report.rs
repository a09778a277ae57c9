//! Diagnostics on their way to the user: one mistake is said once, in the order of the schedule's lines.

use super::steps::{Chain, FrameKind, Step};
use slapo_syntax::{Code, Diagnostic, FileId, Label, Span};
use std::collections::BTreeMap;

/// Calls and loops that a message mentions.
const MOST_FRAMES: usize = 3;

#[derive(Debug, Default)]
pub struct Report {
    diagnostics: Vec<Diagnostic>,
    /// Code and places of each → its index, and how often it came again.
    seen: BTreeMap<(Code, Vec<Span>), (usize, usize)>,
}

impl Report {
    /// Adds a diagnostic. The same code at the same places, as in every turn of a loop, is one mistake; so is a statement
    /// that repeats another one, however many steps it is.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let causes = if diagnostic.code == Code::Repeated { &[][..] } else { &diagnostic.secondary };
        let labels = diagnostic.primary.iter().chain(causes);
        let key = (diagnostic.code, labels.map(|label| label.span).collect());
        match self.seen.get_mut(&key) {
            Some((_, again)) => *again += 1,
            None => {
                self.seen.insert(key, (self.diagnostics.len(), 0));
                self.diagnostics.push(diagnostic);
            }
        }
    }

    /// All of them with the parser's, in the order of the lines of `file`.
    pub fn finish(mut self, file: FileId, parsed: &[Diagnostic]) -> Vec<Diagnostic> {
        for (index, again) in self.seen.values() {
            if *again > 0 {
                let text = match again {
                    1 => "the same happens once more here".to_string(),
                    _ => format!("the same happens {again} times more here"),
                };
                self.diagnostics[*index].notes.push(text);
            }
        }
        let mut all = parsed.to_vec();
        all.append(&mut self.diagnostics);
        all.sort_by_key(|diagnostic| position(diagnostic, file));
        all
    }
}

/// Where in `file` a diagnostic belongs; what has no place there goes last.
fn position(diagnostic: &Diagnostic, file: FileId) -> u32 {
    let labels = diagnostic.primary.iter().chain(&diagnostic.secondary);
    labels.map(|label| label.span).find(|span| span.file == file).map_or(u32::MAX, |span| span.start)
}

/// Moves the primary label to the user's file, and adds the calls and iterations around it.
pub fn located(mut diagnostic: Diagnostic, chain: &Chain, user: FileId) -> Diagnostic {
    let Some(primary) = diagnostic.primary.clone() else { return diagnostic };
    let mut calls = Vec::new();
    let mut turns = Vec::new();
    for frame in chain.frames() {
        match &frame.kind {
            FrameKind::Call { schedule } if frame.site.span != primary.span => {
                calls.push((frame.site.span, format!("in this call of `{schedule}`")));
            }
            FrameKind::Call { .. } => {}
            FrameKind::Iteration { variable, value } => turns.push(format!("`{variable}` is {value} here")),
        }
    }
    if primary.span.file != user {
        let at = calls.iter().position(|(span, _)| span.file == user);
        if let Some(at) = at {
            let (span, text) = calls.remove(at);
            diagnostic.primary = Some(Label { span, text });
            diagnostic.secondary.insert(0, primary);
        }
    }
    for (span, text) in calls.into_iter().take(MOST_FRAMES) {
        diagnostic = diagnostic.secondary(span, text);
    }
    diagnostic.notes.extend(turns.into_iter().take(MOST_FRAMES));
    diagnostic
}

/// Where the user wrote what became a step.
pub fn written(step: &Step, user: FileId) -> Span {
    if step.site.span.file == user {
        return step.site.span;
    }
    let call = step.chain.frames().find(|frame| frame.site.span.file == user);
    call.map_or(step.site.span, |frame| frame.site.span)
}
