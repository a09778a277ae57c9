//! Python frames of an archive's `stack_trace` strings.
//!
//! A trace ends with the frame inside PyTorch; the model's own line is the innermost frame outside of it.

use crate::model::{SourceId, SourceLine};
use std::collections::HashMap;

/// Where PyTorch lies in archives whose paths were not made relative.
const TORCH: [&str; 3] = ["/site-packages/torch/", "/dist-packages/torch/", "/pytorch/torch/"];

/// Source lines without repetition, in order of first appearance.
#[derive(Default)]
pub struct Sources<'a> {
    pub lines: Vec<SourceLine>,
    /// Traces repeat: several operators stand on one line.
    known: HashMap<&'a str, Option<SourceId>>,
    ids: HashMap<SourceLine, SourceId>,
}

impl<'a> Sources<'a> {
    pub fn intern(&mut self, trace: &'a str) -> Option<SourceId> {
        if let Some(known) = self.known.get(trace) {
            return *known;
        }
        let id = model_frame(trace).map(|line| {
            *self.ids.entry(line).or_insert_with_key(|line| {
                self.lines.push(line.clone());
                SourceId((self.lines.len() - 1) as u32)
            })
        });
        self.known.insert(trace, id);
        id
    }
}

/// The last frame whose file is not PyTorch's.
fn model_frame(trace: &str) -> Option<SourceLine> {
    let mut found = None;
    let mut lines = trace.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let Some((file, number)) = frame(line) else {
            continue;
        };
        if file.starts_with("torch/") || TORCH.iter().any(|folder| file.contains(folder)) {
            continue;
        }
        let text = lines.next_if(|next| frame(next).is_none()).unwrap_or_default();
        found = Some(SourceLine { file: file.to_string(), line: number, text: text.to_string() });
    }
    found
}

/// `File "make.py", line 67, in forward`
fn frame(line: &str) -> Option<(&str, u32)> {
    let (file, rest) = line.strip_prefix("File \"")?.split_once('"')?;
    let digits = rest.strip_prefix(", line ")?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    Some((file, digits[..end].parse().ok()?))
}
