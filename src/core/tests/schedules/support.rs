//! What these tests share: models by name, a run of the checker as the command line would do it, rendering.

use slapo_core::compile::{Options, compile};
use slapo_core::schedule::{
    Checked, Found, Imported, Modules, Overrides, check, fault_diagnostics, head, import_diagnostic,
};
use slapo_model::Model;
use slapo_syntax::{Code, Diagnostic, FileId, Lint, Parse, Severity, SourceMap, parse};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The schedules of a folder with their stems, sorted.
pub fn schedules(folder: &str) -> Vec<(String, String)> {
    let folder = root().join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|ending| ending == "slapo"));
    found.sort();
    assert!(!found.is_empty(), "no schedules in {}", folder.display());
    let stem = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    found.iter().map(|path| (stem(path), std::fs::read_to_string(path).unwrap())).collect()
}

/// An archive of the test data or of the examples, imported once.
pub fn imported(name: &str) -> Imported {
    static KNOWN: Mutex<BTreeMap<String, Imported>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(|poison| poison.into_inner());
    let model = known.entry(name.to_string()).or_insert_with(|| {
        let folders = ["examples/gpt2", "examples/llama", "tests/data", "tests/data/bad"];
        let path = folders.iter().map(|folder| root().join(folder).join(name)).find(|path| path.exists());
        let bytes = std::fs::read(path.unwrap_or_else(|| panic!("no archive {name}"))).unwrap();
        let imported = slapo_model::import(&bytes).map(Arc::new);
        imported.map_err(|errors| errors.iter().map(import_diagnostic).collect())
    });
    model.clone()
}

pub fn gpt2() -> Arc<Model> {
    imported("gpt2-tiny.pt2").unwrap()
}

pub struct Run {
    pub files: SourceMap,
    pub file: FileId,
    pub parsed: Parse,
    pub model: Option<Arc<Model>>,
    pub checked: Checked,
    /// Of the checker; of the importer where the model cannot be read.
    pub diagnostics: Vec<Diagnostic>,
}

/// Checks a text on the model that it names.
pub fn run(name: &str, text: &str) -> Run {
    run_with(name, text, &options(text))
}

pub fn run_with(name: &str, text: &str, overrides: &Overrides) -> Run {
    let mut files = SourceMap::new();
    let file = files.add(format!("{name}.slapo"), text);
    let parsed = parse(file, text);
    let model = head(&parsed).model.map(|model| imported(&model.path));
    let (model, import_errors) = match model {
        Some(Err(errors)) => (None, Some(errors)),
        Some(Ok(model)) => (Some(model), None),
        None => (None, None),
    };
    let checked = check(&mut files, file, &parsed, &modules(name, &parsed), model.as_deref(), overrides);
    let diagnostics = import_errors.unwrap_or_else(|| checked.diagnostics.clone());
    Run { files, file, parsed, model, checked, diagnostics }
}

/// What a schedule uses beside those of `tests/ui`.
fn modules(name: &str, parsed: &Parse) -> Modules {
    let modules = Modules::gather(Some(name), parsed, |path| {
        let name = format!("{path}.slapo");
        let file = root().join("tests/ui").join(&name);
        let entries = || std::fs::read_dir(file.parent()?).ok();
        match std::fs::read_to_string(&file) {
            Ok(text) => Found::Text { name, text: text.into() },
            Err(_) => {
                let files = entries().into_iter().flatten().map(|entry| entry.unwrap().path());
                let stems = files.filter_map(|file| Some(file.file_stem()?.to_str()?.to_string()));
                let mut beside: Vec<String> = stems.filter(|stem| !stem.starts_with('S')).collect();
                beside.sort();
                Found::Nothing { reason: None, beside }
            }
        }
    });
    modules.with_archives(parsed, std::iter::empty(), replacement)
}

/// The archive of a module, of `tests/data/replacements` or, by its path, of `tests/data`.
pub fn replacement(name: &str) -> Imported {
    let data = root().join("tests/data");
    let path = [data.join("replacements").join(name), data.join(name)].into_iter().find(|path| path.exists());
    match path.map(std::fs::read) {
        Some(Ok(bytes)) => match slapo_model::import_module(&bytes) {
            Ok(model) => Ok(Arc::new(model)),
            Err(errors) => Err(errors.iter().map(import_diagnostic).collect()),
        },
        _ => {
            let message = format!("cannot read the archive `{name}`: no such file or directory");
            Err(vec![Diagnostic::error(Code::UnreadableModel, message)])
        }
    }
}

/// Checks a text on a model that it does not name.
pub fn run_on(model: &Arc<Model>, text: &str) -> Run {
    let mut files = SourceMap::new();
    let file = files.add("test.slapo", text);
    let parsed = parse(file, text);
    let checked = check(&mut files, file, &parsed, &Modules::default(), Some(model), &Overrides::default());
    let diagnostics = checked.diagnostics.clone();
    Run { files, file, parsed, model: Some(Arc::clone(model)), checked, diagnostics }
}

impl Run {
    /// Compiles what was checked without errors, and adds what the compiler finds.
    pub fn compiled(mut self) -> Run {
        let (Some(model), Some(sizes), true) = (&self.model, self.checked.sizes, self.checked.is_ok()) else {
            return self;
        };
        if let Err(faults) = compile(model, &sizes, &self.checked.effects, &Options::default()) {
            self.diagnostics.extend(fault_diagnostics(&faults, model, &self.checked));
        }
        self
    }

    /// Adds the lints that are on, and the one that is asked for.
    pub fn linted(mut self, asked: Option<Code>) -> Run {
        let is_on = |code: Code| Lint::of(code).is_some_and(|lint| lint.is_on) || asked == Some(code);
        self.diagnostics.extend(self.checked.lints.iter().filter(|lint| is_on(lint.code)).cloned());
        self
    }

    pub fn codes(&self) -> Vec<&'static str> {
        self.diagnostics.iter().map(|diagnostic| diagnostic.code.id()).collect()
    }

    pub fn steps(&self) -> Vec<String> {
        self.checked.steps.iter().map(ToString::to_string).collect()
    }

    /// Lines of the checked file that its diagnostics point at, in order.
    pub fn lines(&self) -> Vec<u32> {
        let spans = self.diagnostics.iter().filter_map(Diagnostic::span).filter(|span| span.file == self.file);
        spans.map(|span| self.files.line_column(span.file, span.start).line).collect()
    }

    /// One line per diagnostic, as a terminal shows it in short form; everything else below, indented.
    pub fn rendered(&self) -> String {
        self.diagnostics.iter().map(|diagnostic| short(&self.files, diagnostic)).collect()
    }
}

/// Options of the command line, from a comment `# slapoc check --world 6`.
fn options(text: &str) -> Overrides {
    let mut overrides = Overrides::default();
    let Some(line) = text.lines().find_map(|line| line.strip_prefix("# slapoc check ")) else { return overrides };
    let words: Vec<&str> = line.split_whitespace().collect();
    for pair in words.chunks(2) {
        let number = || pair[1].parse::<i64>().unwrap();
        match pair[0] {
            "--world" => overrides.world = Some(number()),
            "--batch" => overrides.batch = Some(number()),
            "--seq" => overrides.seq = Some(number()),
            "--micro-batches" => overrides.micro_batches = Some(number() as u32),
            "--until" => overrides.until = Some(number() as u32),
            "--set" => overrides.knobs.push(pair[1].split_once('=').map(|(a, b)| (a.into(), b.into())).unwrap()),
            "--schedule" => overrides.entry = Some(pair[1].to_string()),
            other => panic!("unknown option {other}"),
        }
    }
    overrides
}

fn short(files: &SourceMap, diagnostic: &Diagnostic) -> String {
    let severity = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    let place = diagnostic.span().map(|span| format!("{}: ", files.place(span))).unwrap_or_default();
    let mut out = format!("{place}{severity}[{}]: {}\n", diagnostic.code, diagnostic.message);
    if let Some(primary) = &diagnostic.primary {
        out += &format!("    here `{}`: {}\n", one_line(files.slice(primary.span)), primary.text);
    }
    for label in &diagnostic.secondary {
        out += &format!("    {} `{}`: {}\n", files.place(label.span), one_line(files.slice(label.span)), label.text);
    }
    for line in &diagnostic.excerpt {
        out += &format!("    {}:{}: {} <- {}\n", line.file, line.line, line.source, line.label);
    }
    diagnostic.helps.iter().for_each(|help| out += &format!("    help: {help}\n"));
    diagnostic.notes.iter().for_each(|note| out += &format!("    note: {note}\n"));
    out
}

fn one_line(text: &str) -> String {
    let first = text.lines().next().unwrap_or("");
    if first.len() < text.len() { format!("{first}…") } else { first.to_string() }
}

/// One error of that code, which says everything in `said`.
pub fn refused(run: &Run, code: &str, said: &[&str]) {
    let shown = run.rendered();
    assert_eq!(run.codes(), [code], "{shown}");
    for words in said {
        assert!(shown.contains(words), "nothing of `{words}` in {shown}");
    }
}
