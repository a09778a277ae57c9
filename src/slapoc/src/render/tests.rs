//! Whatever is wrong with a schedule, every format can say it.

#[path = "../../../../tests/fuzz/edits.rs"]
mod edits;

use super::{Style, github, human, json, short};
use edits::{edited, schedules, try_all, words};
use serde_json::Value;
use slapo_core::compile::{Options, compile};
use slapo_core::schedule::{Modules, Overrides, check, fault_diagnostics};
use slapo_model::{Model, import};
use slapo_syntax::{Diagnostic, SourceMap, parse};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All that is found in a text, by the layout check and the lints too.
fn found(model: &Model, text: &str) -> (SourceMap, Vec<Diagnostic>) {
    let mut files = SourceMap::new();
    let file = files.add("folder/a schedule.slapo", text);
    let parsed = parse(file, text);
    let checked = check(&mut files, file, &parsed, &Modules::default(), Some(model), &Overrides::default());
    let mut all = [checked.diagnostics.as_slice(), &checked.lints].concat();
    if let (Some(sizes), true) = (checked.sizes, checked.is_ok())
        && let Err(faults) = compile(model, &sizes, &checked.effects, &Options::default())
    {
        all.extend(fault_diagnostics(&faults, model, &checked));
    }
    (files, all)
}

fn rendered(files: &SourceMap, diagnostic: &Diagnostic) {
    let code = diagnostic.code.id();
    let drawn = human::diagnostic(files, diagnostic, Style { color: false });
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    assert!(drawn.contains(code) && !drawn.contains(steers), "{drawn:?}");
    assert!(human::diagnostic(files, diagnostic, Style { color: true }).contains(code));
    let line = short::diagnostic(files, diagnostic);
    assert!(line.contains(code) && line.ends_with('\n') && line.trim_end().lines().count() == 1, "{line:?}");
    let annotation = github::diagnostic(files, diagnostic);
    assert!(annotation.starts_with("::") && annotation.contains(code), "{annotation:?}");
    assert!(annotation.ends_with('\n') && annotation.matches(['\n', '\r']).count() == 1, "{annotation:?}");
    let record = serde_json::to_string(&json::diagnostic(files, diagnostic)).expect("is JSON");
    let record: Value = serde_json::from_str(&record).expect("is JSON");
    assert_eq!(record["code"], code);
    assert_eq!(record["message"], diagnostic.message.as_str());
    assert_eq!(record["rendered"], drawn.as_str());
}

#[test]
fn every_diagnostic_in_every_format() {
    let bytes = std::fs::read(root().join("examples/gpt2/gpt2-tiny.pt2")).expect("the example's archive");
    let model = import(&bytes).expect("imports");
    let texts: Vec<String> = schedules(&root()).into_iter().map(|(_, text)| text).collect();
    let codes = RefCell::new(BTreeSet::new());
    let all = |text: String| {
        let (files, diagnostics) = found(&model, &text);
        for diagnostic in &diagnostics {
            rendered(&files, diagnostic);
            codes.borrow_mut().insert(diagnostic.code.id());
        }
    };
    try_all(200, words(), all);
    try_all(500, edited(texts, 3), all);
    assert!(codes.borrow().len() > 60, "only {} codes: {:?}", codes.borrow().len(), codes.borrow());
}
