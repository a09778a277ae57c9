//! Fenced blocks of schedules in Markdown, and what the compiler makes of them.
//!
//! The words behind `slapo` in a fence say what must come of the block:
//!
//! * `slapo`: it parses;
//! * `slapo,ok`: nothing is wrong with it on its model, up to the layouts of forward and backward;
//! * `slapo,S0602`: it gives this error, in one place or several, and no other.
//!
//! A further word names the archive it is put on, else [`ARCHIVE`]. A block that does not begin with an item is the body of
//! a `main`. What a block leaves out of model, input and mesh is added, and so are imports for a body's calls of the library.

use slapo_core::compile::{Options, compile};
use slapo_core::schedule::{Modules, Overrides, check, fault_diagnostics};
use slapo_model::Model;
use slapo_syntax::ast::Item;
use slapo_syntax::{Code, Diagnostic, FileId, ITEM_WORDS, Lint, Severity, SourceMap, format, parse};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const ARCHIVE: &str = "gpt2-tiny.pt2";
const SIZES: &str = "batch = 8, seq = 16";
const MESH: &str = "dp = 2, tp = 2";

/// What a fence says must come of its block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expected {
    Parses,
    Right,
    Fails(Code),
}

#[derive(Debug)]
pub struct Block {
    /// Of the fence, from 1.
    pub line: usize,
    pub expected: Expected,
    archive: String,
    text: String,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every block of schedules in a page; a fence that cannot be understood is a fault.
pub fn blocks(page: &str) -> Result<Vec<Block>, String> {
    let mut found = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let body: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        let mut words = info.split(',');
        if words.next() != Some("slapo") {
            continue;
        }
        let mut block =
            Block { line: at + 1, expected: Expected::Parses, archive: ARCHIVE.into(), text: body.join("\n") + "\n" };
        for word in words {
            match (word, Code::parse(word)) {
                ("ok", _) => block.expected = Expected::Right,
                (_, Some(code)) => block.expected = Expected::Fails(code),
                (archive, _) if archive.ends_with(".pt2") => block.archive = archive.into(),
                _ => return Err(std::format!("line {}: `{word}` says nothing about a block", block.line)),
            }
        }
        found.push(block);
    }
    Ok(found)
}

impl Block {
    /// What is wrong: with the block, or with what its fence says of it.
    pub fn fault(&self) -> Option<String> {
        let whole = if self.is_file() { self.text.clone() } else { body(&self.text) };
        let parsed = parse(FileId(0), &whole);
        if let Expected::Fails(code) = self.expected {
            let codes = self.codes(&whole);
            return (codes.is_empty() || codes.iter().any(|found| *found != code))
                .then(|| std::format!("gives {codes:?}, not {code}"));
        }
        if !parsed.is_ok() {
            return Some(listed(&parsed.diagnostics));
        }
        if format(&parsed).as_ref() != Some(&whole) {
            return Some(std::format!("is not as `slapoc fmt` writes it:\n{}", format(&parsed).unwrap_or_default()));
        }
        let wrong = if self.expected == Expected::Right { self.diagnostics(&whole) } else { Vec::new() };
        (!wrong.is_empty()).then(|| listed(&wrong))
    }

    fn codes(&self, whole: &str) -> Vec<Code> {
        self.diagnostics(whole).iter().map(|diagnostic| diagnostic.code).collect()
    }

    /// Errors and warnings of `slapoc check`: lints only of a whole schedule, since what is added here is not for use.
    fn diagnostics(&self, whole: &str) -> Vec<Diagnostic> {
        let (text, is_whole) = completed(whole, &self.archive);
        let mut files = SourceMap::new();
        let file = files.add("block.slapo", text.as_str());
        let parsed = parse(file, &text);
        let named = parsed.file().items().find_map(|item| match item {
            Item::Model(model) => model.path().map(|path| path.value()),
            _ => None,
        });
        let model = model(named.as_deref().unwrap_or(&self.archive));
        let checked = check(&mut files, file, &parsed, &Modules::default(), Some(&model), &Overrides::default());
        let mut found = checked.diagnostics.clone();
        found.retain(|diagnostic| diagnostic.severity != Severity::Note);
        if let (Some(sizes), true) = (checked.sizes, checked.is_ok())
            && let Err(faults) = compile(&model, &sizes, &checked.effects, &Options::default())
        {
            found.extend(fault_diagnostics(&faults, &model, &checked));
        }
        let is_on = |lint: &&Diagnostic| is_whole && Lint::of(lint.code).is_some_and(|lint| lint.is_on);
        found.extend(checked.lints.iter().filter(is_on).cloned());
        found
    }

    fn is_file(&self) -> bool {
        let first = self.text.lines().find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default();
        ITEM_WORDS.iter().any(|(word, _)| first.split_whitespace().next() == Some(word))
    }
}

/// A body as a schedule of its own.
fn body(text: &str) -> String {
    let indented = text.lines().map(|line| if line.is_empty() { "\n".into() } else { std::format!("    {line}\n") });
    std::format!("schedule main(m: Module) {{\n{}}}\n", indented.collect::<String>())
}

/// A text with the items that it leaves out, and whether it is a schedule that names its own model.
fn completed(text: &str, archive: &str) -> (String, bool) {
    let parsed = parse(FileId(0), text);
    let items: Vec<Item> = parsed.file().items().collect();
    let has = |wanted: fn(&Item) -> bool| items.iter().any(wanted);
    let mut out = String::new();
    if !has(|item| matches!(item, Item::Use(_))) {
        out += &imports(text);
    }
    let is_whole = has(|item| matches!(item, Item::Model(_)));
    if !is_whole {
        out += &std::format!("model \"{archive}\"\n");
    }
    if !has(|item| matches!(item, Item::Input(_))) {
        out += &std::format!("input {{ {SIZES} }}\n");
    }
    if !is_whole && !has(|item| matches!(item, Item::Mesh(_))) {
        out += &std::format!("mesh {{ {MESH} }}\n");
    }
    out += text;
    let is_main = |schedule: slapo_syntax::ast::Schedule| schedule.name().is_some_and(|name| name.text() == "main");
    if parsed.is_ok() && !parsed.file().schedules().any(is_main) {
        out += "schedule main(m: Module) {}\n";
    }
    (out, is_whole)
}

/// Imports of the library's schedules that a text calls and does not have itself.
fn imports(text: &str) -> String {
    let calls = |name: &str| {
        let own = std::format!("schedule {name}(");
        !text.contains(&own) && text.match_indices(&std::format!("{name}(")).any(|(at, _)| starts_word(text, at))
    };
    let mut out = String::new();
    for module in slapo_stdlib::names() {
        let parsed = parse(FileId(0), slapo_stdlib::module(module).expect("it is there"));
        let names = parsed.file().schedules().filter_map(|schedule| schedule.name().map(|name| name.text().to_owned()));
        for name in names.filter(|name| calls(name)) {
            out += &std::format!("use std.{module}.{name}\n");
        }
    }
    out
}

fn starts_word(text: &str, at: usize) -> bool {
    !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.')
}

/// An archive of the examples or of the test data, imported once.
fn model(name: &str) -> Arc<Model> {
    static KNOWN: Mutex<BTreeMap<String, Arc<Model>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(name.to_owned()).or_insert_with(|| Arc::new(import(name))).clone()
}

fn import(name: &str) -> Model {
    let folders = ["examples/gpt2", "examples/llama", "tests/data"];
    let path = folders.iter().map(|folder| root().join(folder).join(name)).find(|path| path.exists());
    let bytes = std::fs::read(path.unwrap_or_else(|| panic!("no archive {name}"))).expect("it is readable");
    slapo_model::import(&bytes).unwrap_or_else(|errors| panic!("{name}: {errors:?}"))
}

fn listed(diagnostics: &[Diagnostic]) -> String {
    let lines = diagnostics.iter().map(|one| {
        let here = one.primary.as_ref().map_or("", |label| label.text.as_str());
        std::format!("{}: {} ({here}; {})", one.code, one.message, one.helps.join("; "))
    });
    lines.collect::<Vec<_>>().join("\n")
}
