//! One text of a schedule, checked as `slapoc check` does.

use slapo_core::compile::{Compiled, Options, compile};
use slapo_core::schedule::{self, Checked, ModelPath, Modules, Overrides};
use slapo_model::Model;
use slapo_syntax::{Diagnostic, FileId, Parse, SourceMap, format, parse};
use std::sync::Arc;

/// A schedule as it is at one moment.
pub struct Snapshot {
    /// The schedule and the library modules that it uses.
    pub files: SourceMap,
    /// The schedule.
    pub file: FileId,
    pub parse: Parse,
    /// The model that answers are about: the schedule's own, or an earlier one while that cannot be read.
    pub model: Option<Arc<Model>>,
    pub checked: Checked,
    /// The other files that it uses.
    pub modules: Modules,
    /// What is in its folder, as far as its owner says.
    pub beside: Beside,
    /// All there is to say, as `slapoc check` says it, once layouts [are checked](Snapshot::check_layouts).
    pub diagnostics: Vec<Diagnostic>,
    /// The model to check layouts on, until that is done.
    unchecked: Option<Arc<Model>>,
    /// What the steps compile to, once that is done and nothing is wrong.
    pub compiled: Option<Compiled>,
}

/// Files that a schedule can name.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// Of other schedules, without their ending.
    pub modules: Vec<String>,
    /// Of models, relative to the schedule's folder.
    pub archives: Vec<String>,
}

/// What was found of a schedule's model.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The model, if it can be read.
    pub current: Option<Arc<Model>>,
    /// The last one that could be.
    pub last: Option<Arc<Model>>,
    /// Why it cannot be read.
    pub broken: Vec<Diagnostic>,
}

impl Snapshot {
    /// Checks a text that messages call `name` up to its steps. `find` looks for the model that the schedule names, if it names one, and
    /// `modules` reads the files beside it that it uses; `overrides` and `leveled` are what the flags of `slapoc check` say:
    /// the latter leaves out lints that are not wanted, and makes errors of others.
    pub fn new(
        name: &str,
        text: &str,
        find: impl FnOnce(Option<&ModelPath>) -> Found,
        modules: impl FnOnce(&Parse) -> Modules,
        overrides: impl FnOnce(&Parse) -> Overrides,
        leveled: impl FnOnce(Vec<Diagnostic>) -> Vec<Diagnostic>,
    ) -> Snapshot {
        let mut files = SourceMap::new();
        let file = files.add(name, text);
        let parse = parse(file, text);
        let (found, modules) = (find(schedule::head(&parse).model.as_ref()), modules(&parse));
        let model = found.current.as_deref();
        let checked = schedule::check(&mut files, file, &parse, &modules, model, &overrides(&parse));
        let mut diagnostics = checked.diagnostics.clone();
        if found.broken.is_empty() {
            diagnostics.extend(checked.lints.iter().cloned());
        }
        let mut diagnostics = leveled(diagnostics);
        diagnostics.extend(found.broken);
        let (unchecked, model) = (found.current.clone(), found.current.or(found.last));
        let (beside, compiled) = (Beside::default(), None);
        Snapshot { files, file, parse, model, checked, modules, beside, diagnostics, unchecked, compiled }
    }

    /// Compiles the steps, if nothing is wrong with them, for what is only known then. This takes the longest, and answers
    /// do not need it.
    pub fn check_layouts(&mut self) {
        let has_errors = self.diagnostics.iter().any(Diagnostic::is_error);
        if let (Some(model), Some(sizes), false) = (self.unchecked.take(), &self.checked.sizes, has_errors) {
            match compile(&model, sizes, &self.checked.effects, &Options::default()) {
                Ok(compiled) => self.compiled = Some(compiled),
                Err(faults) => {
                    self.diagnostics.extend(schedule::fault_diagnostics(&faults, &model, &self.checked));
                }
            }
        }
    }

    pub fn text(&self) -> &str {
        self.files.text(self.file)
    }

    /// The text in its one form; `None` where it has errors of syntax.
    pub fn formatted(&self) -> Option<String> {
        format(&self.parse)
    }
}
