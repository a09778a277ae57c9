//! Diagnostics on their way to the user: one mistake is said once, in the order of the schedule's lines.

use slapo_syntax::{Code, Diagnostic, FileId, Span};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Report {
    diagnostics: Vec<Diagnostic>,
    /// Code and places of each → its index, and how often it came again.
    seen: BTreeMap<(Code, Vec<Span>), (usize, usize)>,
}

impl Report {
    /// Adds a diagnostic. The same code at the same places, as in every turn of a loop, is one mistake.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let labels = diagnostic.primary.iter().chain(&diagnostic.secondary);
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
