//! From a schedule's text to steps: names, types, expansion.
//!
//! [`check`] is the whole way: names become [`hir`], `hir` is expanded on a model into [`Step`]s, and every step was
//! found legal by its primitive. It needs no file system: the caller reads the schedule, the files that
//! [`Modules::gather`] asks for and the model that [`head`] names. Layouts, graphs and Programs are not known here;
//! [`crate::compile`] takes the [`Effects`] from here on.

mod archives;
mod builtins;
mod expand;
mod faults;
mod hir;
mod input;
mod layouts;
mod lints;
mod mend;
mod mesh;
mod misfits;
mod modules;
mod nearest;
mod number;
mod points;
mod recorded;
mod redundant;
mod replay;
mod report;
mod resolve;
mod roles;
mod search;
mod select;
mod steps;
mod types;
mod value;
mod wrong_axis;

pub use archives::{Archives, Imported};
pub use builtins::{Function, Query, WORDS, Word};
pub use faults::{bind_diagnostic, fault_diagnostic, fault_diagnostics, import_diagnostic};
pub use mesh::{Axis, Mesh};
pub use modules::{Found, LIBRARY, Modules, parts as import_parts};
pub use number::{ArithmeticError, Number};
pub use points::{Point, Port, Ports};
pub use replay::{Recorded, ReplayError, replay, replay_with};
pub use roles::ROLES;
pub(crate) use roles::roles;
pub use search::search;
pub use select::Place;
pub(crate) use select::{dimension, dimensions};
pub use steps::{Argument, Chain, Frame, FrameKind, Site, Step, Target, to_json};
pub use types::{Kind, Want, WordKind};

use crate::compile::Effects;
use expand::Expander;
use slapo_model::{InputSizes, Model, ParameterId};
use slapo_syntax::ast::Item;
use slapo_syntax::{Diagnostic, FileId, Parse, SourceMap, Span};
use std::sync::{Arc, Mutex};

/// What must be known of a schedule before its model can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The first `model` item.
    pub model: Option<ModelPath>,
}

/// `model "gpt2.pt2"`: the path as written, relative to the schedule's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelPath {
    pub path: String,
    /// The string, quotes included.
    pub span: Span,
}

/// What the command line decides instead of the schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Global batch of one step.
    pub batch: Option<i64>,
    pub seq: Option<i64>,
    /// Number of ranks; `auto` axes take what the others leave.
    pub world: Option<i64>,
    /// Replaces what `accumulate` asks for.
    pub micro_batches: Option<u32>,
    /// Leaves out the statements of the entry that begin behind this line (from 1).
    pub until: Option<u32>,
    /// Values of knobs by name, `blocks.tp.ratio` for one of a module, as a schedule writes them; strings need no quotes.
    pub knobs: Vec<(String, String)>,
    /// The schedule to start with in place of `main`.
    pub entry: Option<String>,
}

/// A schedule after checking.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Everything there is to say, the parser's part included, in the order of the schedule's lines. The schedule may be
    /// used only if none [is an error](Diagnostic::is_error).
    pub diagnostics: Vec<Diagnostic>,
    /// What is allowed and probably not meant: warnings, those that are off by default included. Empty where there are
    /// errors.
    pub lints: Vec<Diagnostic>,
    /// What the schedule does, one primitive on one target each, in order. Empty without a model.
    pub steps: Vec<Step>,
    /// What was tried and is not applicable.
    pub skipped: Vec<Skipped>,
    /// Without a `mesh` item: no axes, one rank.
    pub mesh: Mesh,
    /// The knobs of the modules and of the file, in their order, with the values that were used.
    pub knobs: Vec<KnobValue>,
    /// `None` without a model, or where an error says what is missing.
    pub sizes: Option<InputSizes>,
    pub effects: Effects,
    /// Parameters that no step touched, in the model's order.
    pub untouched: Vec<ParameterId>,
    /// The name of the schedule that it starts with.
    pub entry: Option<Span>,
    /// What `main` calls the model.
    pub root: Option<String>,
    /// The `input` item.
    pub input: Option<Span>,
    /// The schedule itself: fixes take whole lines of it.
    pub text: Arc<str>,
}

/// A knob as it was used.
#[derive(Clone, Debug, PartialEq)]
pub struct KnobValue {
    pub name: String,
    pub value: Argument,
    /// By the command line.
    pub is_set: bool,
}

/// A tried statement that changed nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Skipped {
    /// What was tried, such as `checkpoint transformer.h.0`.
    pub what: String,
    pub reason: String,
    pub site: Site,
    pub chain: Chain,
}

impl Checked {
    pub fn is_ok(&self) -> bool {
        !self.diagnostics.iter().any(Diagnostic::is_error)
    }

    pub fn step(&self, id: u32) -> Option<&Step> {
        self.steps.iter().find(|step| step.id == id)
    }
}

/// Reads of a schedule what is needed to find its model.
pub fn head(parse: &Parse) -> Head {
    let mut head = Head::default();
    for item in parse.file().items() {
        if let (Item::Model(model), None) = (item, &head.model) {
            head.model = model.path().map(|path| ModelPath { path: path.value(), span: path.span() });
        }
    }
    head
}

/// Checks the schedule in `file`, whose parse is `parse`, and expands it on `model`.
///
/// What it uses of `modules` and of the library is added to `files`. Without a model, names and types are checked and
/// nothing is expanded.
pub fn check(
    files: &mut SourceMap,
    file: FileId,
    parse: &Parse,
    modules: &Modules,
    model: Option<&Model>,
    overrides: &Overrides,
) -> Checked {
    on_large_stack(move || checked(files, file, parse, modules, model, overrides))
}

fn checked(
    files: &mut SourceMap,
    file: FileId,
    parse: &Parse,
    modules: &Modules,
    model: Option<&Model>,
    overrides: &Overrides,
) -> Checked {
    let resolve::Resolved { hir, report, unused } = resolve::resolve(files, parse, modules, model.is_some(), overrides);
    let mut expander = Expander::new(files, file, &hir, model, overrides, report);
    expander.archives = modules.archives().clone();
    expander.is_broken = !parse.is_ok();
    mesh::mesh(&mut expander);
    expander.all_globals();
    let knobs = expander.knobs();
    let sizes = input::sizes(&mut expander);
    input::ignored(&mut expander, head(parse).model);
    expander.entry(sizes);
    expander.micro_batches();
    let Expander { mut report, mesh, state, skipped, misfits, .. } = expander;
    misfits::told(misfits, &mesh).into_iter().for_each(|diagnostic| report.push(diagnostic));
    let mut checked = Checked {
        diagnostics: report.finish(file, &parse.diagnostics),
        skipped,
        mesh,
        knobs,
        sizes,
        entry: hir.entry.map(|id| hir.schedule(id).name_span),
        root: hir.entry.and_then(|id| hir.schedule(id).params.first()).map(|model| model.name.clone()),
        input: hir.input,
        text: files.shared_text(file),
        ..Checked::default()
    };
    if let Some(state) = state {
        let all = (0..state.model.parameters.len()).map(|i| ParameterId(i as u32));
        checked.untouched = all.filter(|id| !state.touched.contains(id)).collect();
        checked.steps = state.steps;
        checked.effects = state.effects;
        if let Some(model) = model {
            checked.effects.settle(model);
        }
    }
    if checked.is_ok() {
        checked.lints = lints::lints(unused, &checked, model, file);
    }
    checked
}

/// Expressions, blocks and calls are walked recursively. The parser bounds how deeply text nests, expansion how deeply
/// schedules call each other: this stack is large enough for both at once.
fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    const STACK: usize = 256 << 20;
    let work = Mutex::new(Some(work));
    let run = || work.lock().ok().and_then(|mut work| work.take()).map(|work| work());
    let done = std::thread::scope(|scope| {
        match std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // Without a thread, usual schedules still fit the stack at hand.
            Err(_) => run(),
        }
    });
    done.unwrap_or_else(|| unreachable!("the work is taken once"))
}
