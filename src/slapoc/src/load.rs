//! Files on their way in: the schedule's text, the files that it uses, and the model that it names.
//!
//! Models are mapped, so that their weights are never read here. Read [`load`] first.

use crate::args::{Binding, Source};
use crate::failure::{Context, Failure, Result};
use crate::output::Output;
use memmap2::Mmap;
use sha2::{Digest, Sha256};
use slapo_core::schedule::{self, Checked, Found, Imported, Modules, Overrides};
use slapo_model::{ImportError, InputSizes, Legal, Model, legal_sizes};
use slapo_syntax::{Code, Diagnostic, FileId, Parse, SourceMap, Span};
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longer schedules are some other file.
const LONGEST_SCHEDULE: u64 = 16 << 20;

/// How a zip archive begins.
const ARCHIVE_START: &[u8; 4] = b"PK\x03\x04";

/// What a model alone stands for.
const EMPTY_SCHEDULE: &str = "schedule main(m: Module) {}\n";
const DEFAULT_BATCH: i64 = 8;
const DEFAULT_SEQ: i64 = 64;

/// A schedule, checked as far as its files allow.
pub struct Loaded {
    pub files: SourceMap,
    pub file: FileId,
    /// The path as given.
    pub name: String,
    /// Hexadecimal; of the text.
    pub fingerprint: String,
    /// Absent where none is named, or where [`Loaded::broken`] says why.
    pub archive: Option<Archive>,
    /// What is wrong with the model's file.
    pub broken: Vec<Diagnostic>,
    pub checked: Checked,
    /// A model was given in place of a schedule, and not all of its sizes.
    pub has_default_sizes: bool,
}

pub struct Archive {
    pub path: PathBuf,
    /// The path as given, or as the schedule has it.
    pub name: String,
    pub model: Model,
}

/// A schedule that may be compiled.
pub struct Ready {
    pub loaded: Loaded,
    pub archive: Archive,
    pub sizes: InputSizes,
}

impl Ready {
    /// Gives what was loaded back where no model is named. Errors must have been dealt with.
    pub fn new(mut loaded: Loaded) -> std::result::Result<Ready, Box<Loaded>> {
        match (loaded.archive.take(), loaded.checked.sizes) {
            (Some(archive), Some(sizes)) => Ok(Ready { loaded, archive, sizes }),
            _ => Err(Box::new(loaded)),
        }
    }

    /// `batch 8, seq 64`
    pub fn shown_sizes(&self) -> String {
        match self.sizes.seq {
            Some(seq) => format!("batch {}, seq {seq}", self.sizes.batch),
            None => format!("batch {}", self.sizes.batch),
        }
    }

    /// Says which sizes were chosen for a model alone.
    pub fn tell_defaults(&self, out: &Output) {
        if self.loaded.has_default_sizes {
            let legal = legal_sizes(&self.archive.model);
            let (sizes, name) = (self.shown_sizes(), &self.archive.name);
            out.note(&format!(
                "{sizes}, by default: {name} takes batch {} and seq {}; --batch and --seq choose",
                legal.batch, legal.seq
            ));
        }
    }
}

/// Reads and checks what `source` names. `until` leaves out statements behind that line.
pub fn load(source: &Source, until: Option<u32>) -> Result<Loaded> {
    let Source { path, binding, .. } = source;
    if is_model(path) {
        return load_model_alone(source, path.display().to_string());
    }
    let (shown, text) = text(path, binding.stdin_filename.as_deref())?;
    Ok(load_text(source, until, &shown, text))
}

/// Checks a text in the place of what `source` names; messages call it `shown`.
pub fn load_text(source: &Source, until: Option<u32>, shown: &Path, text: String) -> Loaded {
    let binding = &source.binding;
    let name = shown.display().to_string();
    let mut files = SourceMap::new();
    let file = files.add(name.clone(), text);
    let parse = slapo_syntax::parse(file, files.text(file));
    let knobs = binding.set.iter().map(|(_, value)| value.as_str());
    let modules = modules(shown, &parse).with_archives(&parse, knobs, |name| replacement(shown, name, 0));
    let fingerprint = fingerprint(files.text(file), &modules, binding);
    let named = schedule::head(&parse).model;
    let (archive, broken) = match (&binding.model, named) {
        (Some(path), _) => split(self::archive(path, &path.display().to_string())),
        (None, Some(named)) => split(archive_of_schedule(shown, &named.path, named.span)),
        (None, None) => (None, Vec::new()),
    };
    let model = archive.as_ref().map(|archive| &archive.model);
    let checked = schedule::check(&mut files, file, &parse, &modules, model, &overrides(binding, until));
    Loaded { files, file, name, fingerprint, archive, broken, checked, has_default_sizes: false }
}

/// Reads the files that a schedule uses, from its folder.
pub fn modules(schedule: &Path, parse: &Parse) -> Modules {
    let folder = schedule.parent().unwrap_or(Path::new(""));
    let own = schedule.file_stem().and_then(|stem| stem.to_str());
    Modules::gather(own, parse, |path| {
        let path = folder.join(format!("{path}.slapo"));
        match text_of(&path) {
            Ok(text) => Found::Text { name: path.display().to_string(), text: text.into() },
            Err(failure) => Found::Nothing {
                reason: path.exists().then(|| failure.message.clone()),
                beside: path.parent().map(modules_in).unwrap_or_default(),
            },
        }
    })
}

/// The names of the modules that a schedule can use, itself left out.
pub fn modules_beside(schedule: &Path) -> Vec<String> {
    let own = schedule.file_stem().and_then(|stem| stem.to_str());
    let names = schedule.parent().map(modules_in).unwrap_or_default();
    names.into_iter().filter(|name| Some(name.as_str()) != own).collect()
}

/// The models in the folder of a schedule and in the folders in it, by their paths from there, sorted.
pub fn archives_beside(schedule: &Path) -> Vec<String> {
    let Some(folder) = schedule.parent() else { return Vec::new() };
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let below = entries(folder).filter(|path| path.is_dir()).flat_map(|path| entries(&path).collect::<Vec<_>>());
    let archives = entries(folder).chain(below).filter(|path| path.extension().is_some_and(|ending| ending == "pt2"));
    let shown = |path: PathBuf| path.strip_prefix(folder).ok()?.to_str().map(str::to_owned);
    let mut names: Vec<String> = archives.filter_map(shown).collect();
    names.sort();
    names
}

/// Opens the archive of a module, which a schedule calls `name`.
pub fn replacement(schedule: &Path, name: &str, most_copied: u64) -> Imported {
    let file = bytes(&model_path(schedule, name), most_copied).map_err(|e| {
        let message = format!("cannot read the archive `{name}`: {}", reason(&e));
        let help = "an archive is looked for in the schedule's folder";
        vec![Diagnostic::error(Code::UnreadableModel, message).help(help)]
    })?;
    let imported = slapo_model::import_module(&file);
    let named = |error: &ImportError| with_file(schedule::import_diagnostic(error), name);
    imported.map(Arc::new).map_err(|errors| errors.iter().map(named).collect())
}

/// The names of the modules in a folder, sorted.
fn modules_in(folder: &Path) -> Vec<String> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let paths = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let modules = paths.filter(|path| path.extension().is_some_and(|ending| ending == "slapo"));
    let mut names: Vec<String> =
        modules.filter_map(|path| path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned)).collect();
    names.sort();
    names
}

pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn load_model_alone(source: &Source, name: String) -> Result<Loaded> {
    if source.binding.model.is_some() {
        return Err(Failure::usage(format!("`{name}` is a model: `--model` goes with a schedule")));
    }
    let mut files = SourceMap::new();
    let file = files.add(format!("{name} (the empty schedule)"), EMPTY_SCHEDULE);
    let parse = slapo_syntax::parse(file, EMPTY_SCHEDULE);
    let (archive, broken) = split(self::archive(&source.path, &name));
    let mut overrides = overrides(&source.binding, None);
    let has_default_sizes = overrides.batch.is_none() || overrides.seq.is_none();
    if let Some(archive) = &archive {
        let legal = legal_sizes(&archive.model);
        let sizes = InputSizes {
            batch: overrides.batch.unwrap_or_else(|| near(legal.batch, DEFAULT_BATCH).unwrap_or(DEFAULT_BATCH)),
            seq: overrides.seq.or_else(|| near(legal.seq, DEFAULT_SEQ)),
        };
        (overrides.batch, overrides.seq) = (Some(sizes.batch), sizes.seq);
    }
    let model = archive.as_ref().map(|archive| &archive.model);
    let checked = match model {
        Some(_) => schedule::check(&mut files, file, &parse, &Modules::default(), model, &overrides),
        None => Checked::default(),
    };
    let fingerprint = fingerprint(EMPTY_SCHEDULE, &Modules::default(), &source.binding);
    Ok(Loaded { files, file, name, fingerprint, archive, broken, checked, has_default_sizes })
}

/// The legal size that is nearest.
fn near(legal: Legal, wanted: i64) -> Option<i64> {
    match legal {
        Legal::Absent => None,
        Legal::Static(size) => Some(size),
        Legal::Range(range) => {
            let least = range.min.unwrap_or(1);
            Some(wanted.min(range.max.unwrap_or(wanted)).max(least))
        }
    }
}

fn overrides(binding: &Binding, until: Option<u32>) -> Overrides {
    Overrides {
        batch: binding.batch,
        seq: binding.seq,
        world: binding.world,
        micro_batches: None,
        until,
        knobs: binding.set.clone(),
        entry: binding.schedule.clone(),
    }
}

fn split(archive: std::result::Result<Archive, Vec<Diagnostic>>) -> (Option<Archive>, Vec<Diagnostic>) {
    match archive {
        Ok(archive) => (Some(archive), Vec::new()),
        Err(diagnostics) => (None, diagnostics),
    }
}

/// By its name, or by its first bytes where the name says nothing.
pub fn is_model(path: &Path) -> bool {
    if let Some(extension) = path.extension() {
        return extension.eq_ignore_ascii_case("pt2");
    }
    let mut start = [0; ARCHIVE_START.len()];
    path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && start == *ARCHIVE_START
}

/// What messages call a schedule, and its text.
pub fn text(path: &Path, stdin_filename: Option<&Path>) -> Result<(PathBuf, String)> {
    if is_stdin(path) {
        let shown = stdin_filename.unwrap_or(Path::new("<stdin>"));
        return Ok((shown.to_owned(), text_from(io::stdin().lock(), "standard input")?));
    }
    Ok((path.to_owned(), text_of(path)?))
}

fn text_of(path: &Path) -> Result<String> {
    let shown = format!("`{}`", path.display());
    let file = File::open(path).and_then(|file| Ok((file.metadata()?.is_dir(), file)));
    let (is_folder, file) = file.map_err(|e| reason(&e)).context(Code::UnreadableSchedule, format!("read {shown}"))?;
    if is_folder {
        return Err(Failure::not_done(Code::UnreadableSchedule, format!("{shown} is a folder"))
            .help("name a schedule (`.slapo`) in it"));
    }
    text_from(file, &shown)
}

/// `shown` is how messages call it.
fn text_from(from: impl Read, shown: &str) -> Result<String> {
    let unfit = |message: String| Failure::not_done(Code::UnreadableSchedule, message);
    let mut bytes = Vec::new();
    let read = from.take(LONGEST_SCHEDULE + 1).read_to_end(&mut bytes);
    read.map_err(|e| reason(&e)).context(Code::UnreadableSchedule, format!("read {shown}"))?;
    if bytes.starts_with(ARCHIVE_START) {
        return Err(unfit(format!("{shown} is a zip archive, not a schedule"))
            .help("the name of a model ends in `.pt2`: a schedule names it, or it stands for the empty schedule"));
    }
    if bytes.len() as u64 > LONGEST_SCHEDULE {
        return Err(unfit(format!("{shown} is no schedule: it has more than 16 MiB")));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let line = e.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        let byte = e.as_bytes()[at];
        unfit(format!("{shown} is not UTF-8: byte {byte:#04x} on line {line}, at offset {at}"))
            .help("schedules are UTF-8 text: save it as that")
    })
}

/// Opens a model: its file, then what is in it. `name` is how messages call it.
pub fn archive(path: &Path, name: &str) -> std::result::Result<Archive, Vec<Diagnostic>> {
    let named = |diagnostic: Diagnostic| match diagnostic.code {
        Code::UnreadableModel => diagnostic,
        _ => with_file(diagnostic, name),
    };
    open(path, name, 0).map_err(|diagnostics| diagnostics.into_iter().map(named).collect())
}

/// Says which file a diagnostic is about, where no place does.
pub fn with_file(mut diagnostic: Diagnostic, name: &str) -> Diagnostic {
    if diagnostic.primary.is_none() {
        diagnostic.message.insert_str(0, &format!("{name}: "));
    }
    diagnostic
}

/// The model that a schedule names at `span`, relative to the schedule's folder.
fn archive_of_schedule(schedule: &Path, name: &str, span: Span) -> std::result::Result<Archive, Vec<Diagnostic>> {
    let path = model_path(schedule, name);
    open(&path, name, 0).map_err(|diagnostics| labelled(diagnostics, &path, name, span))
}

/// Where the model is that a schedule names.
pub fn model_path(schedule: &Path, name: &str) -> PathBuf {
    schedule.parent().unwrap_or(Path::new("")).join(name)
}

/// What is wrong with the model at `path`, at the place that names it.
pub fn labelled(diagnostics: Vec<Diagnostic>, path: &Path, name: &str, span: Span) -> Vec<Diagnostic> {
    let here = match path == Path::new(name) {
        true => "named here".to_owned(),
        false => format!("this is {}", path.display()),
    };
    diagnostics.into_iter().map(|diagnostic| diagnostic.primary(span, here.clone())).collect()
}

/// Opens a model that messages call `name`; what is wrong with it has no place yet. A file of at most `most_copied` bytes is
/// read, a larger one mapped.
pub fn open(path: &Path, name: &str, most_copied: u64) -> std::result::Result<Archive, Vec<Diagnostic>> {
    let file = bytes(path, most_copied).map_err(|e| {
        let message = format!("cannot read the model `{name}`: {}", reason(&e));
        let diagnostic = Diagnostic::error(Code::UnreadableModel, message);
        vec![match e.kind() {
            io::ErrorKind::NotFound => diagnostic
                .help("a schedule's model is looked for in the schedule's folder; `--model PATH` takes another"),
            _ => diagnostic,
        }]
    })?;
    match slapo_model::import(&file) {
        Ok(model) => Ok(Archive { path: path.to_owned(), name: name.to_owned(), model }),
        Err(errors) => Err(errors.iter().map(schedule::import_diagnostic).collect()),
    }
}

/// The contents of a file.
enum Bytes {
    Copied(Vec<u8>),
    Mapped(Mmap),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Copied(bytes) => bytes,
            Bytes::Mapped(map) => map,
        }
    }
}

fn bytes(path: &Path, most_copied: u64) -> io::Result<Bytes> {
    let mut file = File::open(path)?;
    let found = file.metadata()?;
    if found.is_dir() {
        return Err(io::Error::other("it is a folder"));
    }
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    // An empty file cannot be mapped.
    if found.len() <= most_copied || found.len() == 0 {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        return Ok(Bytes::Copied(bytes));
    }
    // SAFETY: a file that is cut short while it is read ends the process, as for every mapped file.
    Ok(Bytes::Mapped(unsafe { Mmap::map(&file) }?))
}

/// Of the text, of what it uses and of what the command line chooses in it.
fn fingerprint(text: &str, modules: &Modules, binding: &Binding) -> String {
    let mut digest = Sha256::new_with_prefix(text);
    for (path, text) in modules.texts() {
        digest.update(format!("\0module {path} {}\0{text}", text.len()));
    }
    for (path, archive) in modules.archives().models() {
        digest.update(format!("\0archive {path} {}", archive.fingerprint));
    }
    for (name, size) in [("batch", binding.batch), ("seq", binding.seq), ("world", binding.world)] {
        if let Some(size) = size {
            digest.update(format!("\0{name} {size}"));
        }
    }
    for (name, value) in &binding.set {
        digest.update(format!("\0set {name}={value}"));
    }
    if let Some(entry) = &binding.schedule {
        digest.update(format!("\0schedule {entry}"));
    }
    let digest = digest.finalize();
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the system says, without its number.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((reason, _)) => reason.to_lowercase(),
        None => text,
    }
}
