//! One text of a schedule, checked as `slapoc check` does.

use slapo_core::compile::{Options, compile};
use slapo_core::schedule::{self, Checked, ModelPath, Modules, Overrides};
use slapo_model::Model;
use slapo_syntax::{Diagnostic, FileId, Lint, Parse, SourceMap, format, parse};
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
    /// All there is to say, as `slapoc check` says it, once layouts [are checked](Snapshot::check_layouts).
    pub diagnostics: Vec<Diagnostic>,
    /// The model to check layouts on, until that is done.
    unchecked: Option<Arc<Model>>,
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
    /// `modules` reads the files beside it that it uses.
    pub fn new(
        name: &str,
        text: &str,
        find: impl FnOnce(Option<&ModelPath>) -> Found,
        modules: impl FnOnce(&Parse) -> Modules,
    ) -> Snapshot {
        let mut files = SourceMap::new();
        let file = files.add(name, text);
        let parse = parse(file, text);
        let found = find(schedule::head(&parse).model.as_ref());
        let model = found.current.as_deref();
        let checked = schedule::check(&mut files, file, &parse, &modules(&parse), model, &Overrides::default());
        let mut diagnostics = checked.diagnostics.clone();
        if found.broken.is_empty() {
            let is_on = |lint: &&Diagnostic| Lint::of(lint.code).is_none_or(|lint| lint.is_on);
            diagnostics.extend(checked.lints.iter().filter(is_on).cloned());
        }
        diagnostics.extend(found.broken);
        let unchecked = found.current.clone();
        Snapshot { files, file, parse, model: found.current.or(found.last), checked, diagnostics, unchecked }
    }

    /// Compiles the steps, if nothing is wrong with them, for what is only known then. This takes the longest, and answers
    /// do not need it.
    pub fn check_layouts(&mut self) {
        let has_errors = self.diagnostics.iter().any(Diagnostic::is_error);
        if let (Some(model), Some(sizes), false) = (self.unchecked.take(), &self.checked.sizes, has_errors)
            && let Err(faults) = compile(&model, sizes, &self.checked.effects, &Options::default())
        {
            self.diagnostics.extend(schedule::fault_diagnostics(&faults, &model, &self.checked));
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
