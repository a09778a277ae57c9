//! What the tests of this crate share: files of the test folder, rendering, checks that hold for every input.

#![allow(dead_code, clippy::allow_attributes, reason = "each test target uses a part")]

use std::path::{Path, PathBuf};

use codespan_reporting::diagnostic as shown;
use codespan_reporting::term;
use slapo_syntax::{Diagnostic, FileId, Parse, Severity, SourceMap, parse};

/// The folder `tests/syntax` of the repository.
pub fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/syntax")
}

/// The schedules of a folder with their names, sorted.
pub fn schedules(folder: &str) -> Vec<(String, String)> {
    let folder = data().join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|ending| ending == "slapo"));
    found.sort();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let found: Vec<_> = found.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect();
    assert!(!found.is_empty(), "no schedules in {}", folder.display());
    found
}

/// Parses a text and checks what must hold for every text: no byte lost, spans on character boundaries, nodes without
/// trivia at their ends, fixes that keep to the text.
pub fn checked(text: &str) -> Parse {
    let parsed = parse(FileId(0), text);
    let mut at = 0;
    for leaf in parsed.root().leaves() {
        assert_eq!(leaf.start(), at, "a gap before {leaf:?} in {text:?}");
        assert!(leaf.end() > leaf.start(), "an empty leaf {leaf:?} in {text:?}");
        at = leaf.end();
    }
    assert_eq!(at as usize, text.len(), "the leaves end early in {text:?}");
    for node in parsed.root().descendants().skip(1) {
        let mut ends = node.elements().next().into_iter().chain(node.elements().last());
        assert!(ends.all(|end| !end.kind().is_trivia()), "{node:?} has trivia at its ends in {text:?}");
    }
    for diagnostic in &parsed.diagnostics {
        assert_eq!(diagnostic.code.family(), "S00");
        let labels = diagnostic.primary.iter().chain(&diagnostic.secondary).map(|label| label.span);
        let edits = diagnostic.fixes.iter().flat_map(|fix| &fix.edits).map(|edit| edit.span);
        for span in labels.chain(edits) {
            assert!(text.get(span.range()).is_some(), "{span:?} does not lie in {text:?}");
        }
        assert!(diagnostic.primary.is_some(), "no place given in {text:?}");
        for fix in &diagnostic.fixes {
            assert!(fix.edits.is_sorted_by(|a, b| a.span.end <= b.span.start), "edits overlap in {fix:?}");
        }
    }
    parsed
}

/// The diagnostics of a text, one line each, as a terminal shows them in short form; helps and fixes below.
pub fn rendered(name: &str, text: &str) -> String {
    let mut sources = SourceMap::new();
    let file = sources.add(name, text);
    let parsed = parse(file, text);
    let mut out = String::new();
    for diagnostic in &parsed.diagnostics {
        out.push_str(&short(&sources, diagnostic));
    }
    out
}

fn short(sources: &SourceMap, diagnostic: &Diagnostic) -> String {
    let severity = match diagnostic.severity {
        Severity::Error => shown::Severity::Error,
        Severity::Warning => shown::Severity::Warning,
        Severity::Note => shown::Severity::Note,
    };
    let primary = diagnostic.primary.iter();
    let primary =
        primary.map(|label| shown::Label::primary(label.span.file, label.span.range()).with_message(&label.text));
    let labels = primary.collect();
    let message = shown::Diagnostic::new(severity).with_code(diagnostic.code.id()).with_message(&diagnostic.message);
    let config = term::Config { display_style: term::DisplayStyle::Short, ..Default::default() };
    let mut out = Vec::new();
    let mut writer = term::termcolor::NoColor::new(&mut out);
    term::emit_to_write_style(&mut writer, &config, sources, &message.with_labels(labels)).unwrap();
    let mut out = String::from_utf8(out).unwrap();
    let primary = diagnostic.primary.as_ref().map_or("", |label| &label.text);
    out.push_str(&format!("    here: {primary}\n"));
    for label in &diagnostic.secondary {
        out.push_str(&format!("    {}: {}\n", sources.place(label.span), label.text));
    }
    diagnostic.helps.iter().for_each(|help| out.push_str(&format!("    help: {help}\n")));
    diagnostic.notes.iter().for_each(|note| out.push_str(&format!("    note: {note}\n")));
    for fix in &diagnostic.fixes {
        let edits = fix.edits.iter().map(|edit| format!("{:?} -> {:?}", sources.slice(edit.span), edit.replacement));
        out.push_str(&format!(
            "    fix ({:?}): {}: {}\n",
            fix.applicability,
            fix.title,
            edits.collect::<Vec<_>>().join(", ")
        ));
    }
    out
}

/// A generator of numbers that are the same in every run (splitmix64).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
