//! Layouts that do not fit, as diagnostics: at the statements that made them so, with the line of the model that shows it.
//!
//! A partial sum is told by where it arose: that is where a sync is missing, wherever it was noticed. Read
//! [`layout_diagnostic`].

use super::mend;
use super::misfits::Misfit;
use super::report::{located, written};
use super::select::selector;
use super::{Checked, Step};
use crate::compile::{Heads, LayoutFault, LayoutProblem, Place, SyncPoint};
use crate::layout::{Layout, Sync};
use crate::primitives::{divisors, joined};
use crate::schedule::Place as Target;
use slapo_model::{Model, ParameterId};
use slapo_syntax::{Code, Diagnostic, FileId};

/// A fault of the layout check.
pub fn layout_diagnostic(fault: &LayoutFault, model: &Model, checked: &Checked) -> Diagnostic {
    let told = Teller::new(fault, model, checked);
    let diagnostic = told.placed(told.problem());
    match fault.legal.is_empty() {
        true => diagnostic,
        false => diagnostic.help(format!("legal sizes of `{}` here: {}", told.axis, joined(&fault.legal))),
    }
}

/// The fault as a dimension that its axis does not divide, if it is one and another size would do.
pub fn misfit(fault: &LayoutFault, model: &Model, checked: &Checked) -> Option<Misfit> {
    let told = Teller::new(fault, model, checked);
    let diagnostic = told.placed(told.problem());
    let is_misfit = diagnostic.code == Code::Uneven && !fault.legal.is_empty();
    is_misfit.then(|| Misfit { axis: told.axis.to_owned(), legal: fault.legal.clone(), diagnostic })
}

struct Teller<'a> {
    fault: &'a LayoutFault,
    model: &'a Model,
    checked: &'a Checked,
    axis: &'a str,
    size: i64,
}

/// The steps that a fault is about, the one to blame first.
pub fn blamed<'a>(fault: &'a LayoutFault, model: &'a Model, checked: &'a Checked) -> Vec<&'a Step> {
    Teller::new(fault, model, checked).steps()
}

impl<'a> Teller<'a> {
    fn new(fault: &'a LayoutFault, model: &'a Model, checked: &'a Checked) -> Teller<'a> {
        let (axis, size) = match checked.effects.axes.get(fault.axis) {
            Some(axis) => (axis.name.as_str(), axis.size),
            None => ("", 1),
        };
        Teller { fault, model, checked, axis, size }
    }

    fn problem(&self) -> Diagnostic {
        match &self.fault.problem {
            LayoutProblem::Uneven { parameter, dim, size, groups, .. } => self.uneven(*parameter, *dim, *size, *groups),
            LayoutProblem::Operator { at, operator, reason, operands } => self.operator(at, operator, reason, operands),
            LayoutProblem::Cut { at, whole, size, heads } => self.cut(at, *whole, *size, *heads),
            LayoutProblem::Sync { at, sync, found, step } => self.sync(at, *sync, *found, *step),
            LayoutProblem::SyncUneven { dim, size, groups, step, .. } => self.sync_uneven(*dim, *size, *groups, *step),
            LayoutProblem::NoValue { step, .. } => self.no_value(*step),
            LayoutProblem::Loss { found } => self.loss(*found),
            LayoutProblem::Gradient { parameter, found, wanted } => self.gradient(*parameter, *found, *wanted),
            LayoutProblem::Nesting { at, dim, other } => self.nesting(at, *dim, *other),
        }
    }

    // ---- one per kind

    fn uneven(&self, parameter: ParameterId, dim: usize, size: i64, groups: i64) -> Diagnostic {
        let path = &self.model.parameter(parameter).names[0];
        let sections = if groups == 1 { String::new() } else { format!(" in {groups} groups") };
        let message = format!(
            "cannot split dimension `{}` ({size}) of `{path}` over `{}` of size {}{sections}",
            self.role(parameter, dim),
            self.axis,
            self.size
        );
        Diagnostic::error(Code::Uneven, message)
    }

    fn operator(&self, at: &Place, operator: &str, reason: &str, operands: &[(String, Layout)]) -> Diagnostic {
        let place = inside(at);
        let (reason, operands) = in_words(reason, operands);
        let diagnostic = match &self.fault.origin {
            Some(origin) => {
                let message = format!("{} is a partial sum over `{}`", arising(origin), self.axis);
                let note = format!("`{operator}`{place} reads it: {reason}");
                let diagnostic = Diagnostic::error(Code::PartialSum, message).note(note);
                let diagnostic = match self.decomposed(at, origin) {
                    Some(step) => self.whole(diagnostic, step),
                    None => self.reduced(diagnostic, origin),
                };
                self.excerpt(diagnostic, origin, "the partial sum arises here")
            }
            None => {
                let message = format!("the operands of `{operator}`{place} do not fit each other on `{}`", self.axis);
                Diagnostic::error(Code::LayoutsDiffer, message).note(reason)
            }
        };
        let held: Vec<String> =
            operands.iter().map(|(name, layout)| format!("{name} is {}", self.held(*layout))).collect();
        let diagnostic = match held.is_empty() {
            true => diagnostic,
            false => diagnostic.note(held.join(", ")),
        };
        let is_origin = self.fault.origin.as_ref().is_some_and(|origin| origin.source == at.source);
        let label = if at.is_backward { "in the backward of this line" } else { "computed here" };
        if is_origin { diagnostic } else { self.excerpt(diagnostic, at, label) }
    }

    fn cut(&self, at: &Place, whole: i64, size: i64, heads: Option<Heads>) -> Diagnostic {
        if whole < size && whole % self.size != 0 {
            return self.flattened(at, whole, size);
        }
        let one = match heads {
            Some(Heads::All) => "head",
            Some(Heads::KeyValue | Heads::Repeated) => "key and value head",
            None => "piece",
        };
        let pieces = format!("{size} {one}{}", if size == 1 { "" } else { "s" });
        let label = match heads {
            Some(Heads::Repeated) => format!("{whole} heads are {pieces}, repeated, in the backward of this line"),
            _ => format!("{whole} features are {pieces} of {} here", whole / size),
        };
        let of = if at.module.is_empty() { String::new() } else { format!(" of `{}`", at.module) };
        let message = format!("cannot split the {pieces}{of} over `{}` of size {}", self.axis, self.size);
        let diagnostic = self.excerpt(Diagnostic::error(Code::Uneven, message), at, &label);
        let diagnostic = match size % self.size {
            0 => diagnostic.note(format!("the split runs inside of every {one}, and a rank needs whole ones")),
            _ => diagnostic.note(format!("{size} / {} is not a whole number, and a rank needs whole ones", self.size)),
        };
        match self.fault.legal.is_empty() {
            true => diagnostic.help("split between heads, or leave these whole on every rank"),
            false => diagnostic,
        }
    }

    /// A dimension that a view puts together with what is outside of it, as tokens of all sequences: its pieces must be of one
    /// size.
    fn flattened(&self, at: &Place, whole: i64, size: i64) -> Diagnostic {
        let of = if at.module.is_empty() { String::new() } else { format!(" in `{}`", at.module) };
        let message = format!("cannot split a dimension of {whole}{of} over `{}` of size {}", self.axis, self.size);
        let label = format!("{} times {whole} become {size} here", size / whole.max(1));
        let diagnostic = self.excerpt(Diagnostic::error(Code::Uneven, message), at, &label);
        diagnostic.note(format!("{whole} / {} is not a whole number, and all pieces must be of one size", self.size))
    }

    fn sync(&self, at: &Place, sync: Sync, found: Layout, step: u32) -> Diagnostic {
        let path = self.checked.step(step).map_or("", |step| step.target.path.as_str());
        let takes = match (sync, found) {
            (Sync::AllGather { dim: Some(dim) }, Layout::Split { .. })
            | (Sync::AllToAll { from: dim, .. }, Layout::Split { .. }) => format!("a value that is split along {dim}"),
            (Sync::AllGather { .. } | Sync::AllToAll { .. }, Layout::Sections { .. }) => {
                "a value that is split in groups of one size".to_string()
            }
            _ => sync.takes().to_string(),
        };
        let message = match sync {
            Sync::Become(_) => format!("no collective gives `{sync}` at `{path}`: the value is {}", self.held(found)),
            _ => format!("`{sync}` takes {takes}, but the value at `{path}` is {}", self.held(found)),
        };
        let diagnostic = Diagnostic::error(Code::WrongSync, message);
        let diagnostic = match (sync, found) {
            (Sync::Become(Layout::Split { groups, .. }), _) if groups > 1 => {
                diagnostic.help("ask for it in two steps: first `layout(replicate)`, then the pieces")
            }
            (Sync::Become(_), _) => diagnostic.help("ask for another dimension, or first for `layout(replicate)`"),
            (_, Layout::Sections { .. }) => {
                diagnostic.help("no collective puts sections of different sizes together: sync what is made of them")
            }
            (_, Layout::Replicated) => diagnostic.help("every rank has all of it: leave the sync out"),
            (Sync::AllGather { .. } | Sync::AllToAll { .. }, Layout::Split { dim, .. }) => {
                diagnostic.help(format!("it is dimension {dim} that is split"))
            }
            (_, Layout::Split { .. }) => diagnostic.help("pieces are put together by `all_gather`"),
            (_, Layout::Partial) => {
                diagnostic.help("partial sums are added up by `all_reduce`, or by `reduce_scatter(…)` into pieces")
            }
        };
        if at.is_backward { diagnostic } else { self.excerpt(diagnostic, at, "its value is read here") }
    }

    fn sync_uneven(&self, dim: usize, size: i64, groups: i64, step: u32) -> Diagnostic {
        let path = self.checked.step(step).map_or("", |step| step.target.path.as_str());
        let sections = if groups == 1 { String::new() } else { format!(" in {groups} groups") };
        let message = format!(
            "cannot split dimension {dim} ({size}) of the value at `{path}` over `{}` of size {}{sections}",
            self.axis, self.size
        );
        let diagnostic = Diagnostic::error(Code::Uneven, message);
        match size % groups {
            0 => diagnostic,
            _ => diagnostic.help(format!("numbers of groups that divide {size}: {}", joined(&divisors(size)))),
        }
    }

    fn no_value(&self, step: u32) -> Diagnostic {
        let path = self.checked.step(step).map_or("", |step| step.target.path.as_str());
        if matches!(self.fault.problem, LayoutProblem::NoValue { at: SyncPoint::ParameterGradient(_), .. }) {
            let message = format!("there is no `{path}`: the parameter is not trained");
            return Diagnostic::error(Code::NoGradient, message)
                .help("leave the sync out, or do not freeze the parameter");
        }
        let message = format!("no value with a gradient is left at `{path}`");
        Diagnostic::error(Code::NoGradient, message)
            .note("what runs there changes nothing, such as dropout with p = 0, or nothing before it is trained")
            .help("sync the value where it is made or used: at the module in front of this one, or behind it")
    }

    fn loss(&self, found: Layout) -> Diagnostic {
        let message = match found {
            Layout::Partial => format!("the loss is a partial sum over `{}`", self.axis),
            found => format!("the loss is {} at the end", self.held(found)),
        };
        let diagnostic = Diagnostic::error(Code::PartialLoss, message).note("every rank must have the whole loss");
        match &self.fault.origin {
            Some(origin) if !origin.module.is_empty() => {
                self.excerpt(self.reduced(diagnostic, origin), origin, "the partial sum arises here")
            }
            _ => {
                let loss = &self.model.graph.value(self.model.graph.loss).name;
                let tail = format!(".output({loss:?}).sync(all_reduce, over: {})", self.axis);
                let is_synced = self.steps().iter().any(|step| step.primitive.name == "sync");
                let other = match is_synced {
                    true => "or put the pieces together in front of the head, by `sync(all_gather, over: {})`",
                    false => "where the batch is split, `m.data_parallel(over: {})` does so",
                };
                self.mended(diagnostic, "reduce it", "", &tail).help(other.replace("{}", self.axis))
            }
        }
    }

    fn gradient(&self, parameter: ParameterId, found: Layout, wanted: Layout) -> Diagnostic {
        let path = &self.model.parameter(parameter).names[0];
        let message =
            format!("the gradient of `{path}` is {}, but the parameter is {}", self.held(found), self.held(wanted));
        let diagnostic = Diagnostic::error(Code::GradientLayout, message);
        let owner = path.rsplit_once('.').map_or("", |(owner, _)| owner);
        match (found, wanted, &self.fault.origin) {
            (Layout::Partial, _, Some(origin)) if !origin.encloses(owner) => {
                self.excerpt(self.reduced(diagnostic, origin), origin, "the partial sum arises here")
            }
            (Layout::Partial, Layout::Split { dim, groups }, _) => {
                let sync = Sync::ReduceScatter { dim, groups };
                self.mended(diagnostic, "reduce it", path, &format!(".grad().sync({sync}, over: {})", self.axis))
            }
            (Layout::Partial, ..) => {
                self.mended(diagnostic, "reduce it", path, &format!(".grad().sync(all_reduce, over: {})", self.axis))
            }
            (Layout::Split { dim, groups }, Layout::Replicated, _) => {
                let groups = if groups == 1 { String::new() } else { format!(", groups: {groups}") };
                let dim = self.role(parameter, dim);
                let shard = format!(".shard({dim}, over: {}{groups})", self.axis);
                self.mended(diagnostic, "split it alike", path, &shard)
            }
            (Layout::Sections { dim, sections }, Layout::Replicated, _) => {
                let dim = self.role(parameter, dim);
                let shard = format!(".shard({dim}, over: {}, groups: {sections:?})", self.axis);
                self.mended(diagnostic, "split it alike", path, &shard)
            }
            _ => diagnostic.help("hold the parameter as what it is computed with"),
        }
    }

    fn nesting(&self, at: &Place, dim: usize, other: usize) -> Diagnostic {
        let other = self.checked.effects.axes.get(other).map_or("", |axis| axis.name.as_str());
        let message = format!(
            "`{}` and `{other}` split dimension {dim} of `{}`{} across each other",
            self.axis,
            at.operator,
            inside(at)
        );
        let diagnostic = Diagnostic::error(Code::SplitsCross, message)
            .help("split along different dimensions, or let the pieces of one axis lie inside those of the other");
        self.excerpt(diagnostic, at, "computed here")
    }

    // ---- places

    /// The steps that have to do with it, the one to blame first: the step that is wrong itself, or the one that splits what
    /// a partial sum is made of.
    fn steps(&self) -> Vec<&'a Step> {
        let own = match &self.fault.problem {
            LayoutProblem::Sync { step, .. }
            | LayoutProblem::SyncUneven { step, .. }
            | LayoutProblem::NoValue { step, .. } => self.checked.step(*step),
            _ => None,
        };
        let splits = |step: &&Step| {
            let Some(origin) = &self.fault.origin else { return false };
            let owner = step.target.path.rsplit_once('.').map(|(owner, _)| owner);
            step.primitive.name == "shard" && owner == Some(origin.module.as_str()) && self.is_over(step)
        };
        let splitting = self.checked.steps.iter().find(splits);
        let mut steps: Vec<&'a Step> = Vec::new();
        for step in own.or(splitting).into_iter().chain(self.fault.steps.iter().filter_map(|id| self.checked.step(*id)))
        {
            if steps.iter().all(|known| known.id != step.id) {
                steps.push(step);
            }
        }
        if splitting.is_some() {
            steps.truncate(1);
        }
        steps
    }

    fn is_over(&self, step: &Step) -> bool {
        step.arg("over").is_some_and(|over| over.takes_axis(self.axis))
    }

    /// Labels: the step to blame, the others, else the axis.
    fn placed(&self, diagnostic: Diagnostic) -> Diagnostic {
        let steps = self.steps();
        let user = self.checked.entry.map_or(FileId(0), |span| span.file);
        let Some((first, others)) = steps.split_first() else {
            return match self.checked.mesh.axis(self.axis) {
                Some(axis) => diagnostic.primary(axis.span, "on this axis"),
                None => diagnostic,
            };
        };
        let mut diagnostic = located(diagnostic.primary(first.site.span, self.did(first)), &first.chain, user);
        for step in others {
            let span = written(step, user);
            let known = diagnostic.primary.iter().chain(&diagnostic.secondary);
            if known.into_iter().all(|label| label.span != span) {
                diagnostic = diagnostic.secondary(span, self.did(step));
            }
        }
        diagnostic
    }

    /// What a step did, in words.
    fn did(&self, step: &Step) -> String {
        let arg = |name: &str| step.arg(name).map(ToString::to_string).unwrap_or_default();
        match step.primitive.name {
            "shard" => {
                let groups = match arg("groups").as_str() {
                    "1" => String::new(),
                    sizes if sizes.starts_with('[') => format!(" in sections {sizes}"),
                    groups => format!(" in {groups} groups"),
                };
                format!("splits `{}` of `{}`{groups}", arg("dim"), step.target.path)
            }
            "sync" => match &self.fault.problem {
                LayoutProblem::Sync { sync, step: own, .. } if *own == step.id => format!("takes {}", sync.takes()),
                _ => format!("`{}` of `{}`", arg("kind"), step.target.path),
            },
            "layout" => format!("asks for `{}` of `{}`", arg("to"), step.target.path),
            "data_parallel" => format!("splits the batch over `{}`", arg("over")),
            name => format!("`{name}` of `{}`", step.target.path),
        }
    }

    /// The line of the model's own source.
    fn excerpt(&self, diagnostic: Diagnostic, at: &Place, label: &str) -> Diagnostic {
        match at.source.and_then(|id| self.model.sources.get(id.0 as usize)) {
            Some(line) => diagnostic.excerpt(&line.file, line.line, line.text.trim(), label),
            None => diagnostic,
        }
    }

    // ---- words

    /// Says which sync is missing where a partial sum arose.
    fn reduced(&self, diagnostic: Diagnostic, origin: &Place) -> Diagnostic {
        let point = if origin.is_backward { "input().grad()" } else { "output()" };
        let tail = format!(".{point}.sync(all_reduce, over: {})", self.axis);
        self.mended(diagnostic, "reduce it where it arises", &origin.module, &tail)
    }

    /// The step that took the bias of a layer away from its product, if it is this bias that meets the partial sum.
    fn decomposed(&self, at: &Place, origin: &Place) -> Option<&'a Step> {
        let is_bias = at.operator == "add.Tensor" && at.module == origin.module && !at.is_backward;
        let decomposes = |step: &&Step| step.primitive.name == "decompose" && step.target.path == at.module;
        self.checked.steps.iter().find(decomposes).filter(|_| is_bias)
    }

    /// No sync fits between a product and its bias: the layer must stay whole.
    fn whole(&self, diagnostic: Diagnostic, decompose: &Step) -> Diagnostic {
        let user = self.checked.entry.map_or(FileId(0), |span| span.file);
        let path = &decompose.target.path;
        diagnostic.secondary(written(decompose, user), format!("takes `{path}` apart")).help(format!(
            "do not decompose `{path}`: of a layer that is split by its input features, the bias is added once, behind \
             the reduction"
        ))
    }

    /// Says which statement is missing, and writes it behind the one to blame.
    fn mended(&self, diagnostic: Diagnostic, what: &str, path: &str, tail: &str) -> Diagnostic {
        let diagnostic = diagnostic.help(format!("{what}: `{}{tail}`", selector(self.model, path)));
        let user = self.checked.entry.map_or(FileId(0), |span| span.file);
        let blamed = self.steps().first().copied();
        match blamed.and_then(|step| mend::behind(step, path, tail, self.model, self.checked, user)) {
            Some(fix) => diagnostic.fix(fix),
            None => diagnostic,
        }
    }

    fn held(&self, layout: Layout) -> String {
        match layout {
            Layout::Replicated => format!("whole on every rank of `{}`", self.axis),
            Layout::Split { dim, groups: 1 } => format!("split over `{}` along dimension {dim}", self.axis),
            Layout::Split { dim, groups } => {
                format!("split over `{}` along dimension {dim} in {groups} groups", self.axis)
            }
            Layout::Sections { dim, sections } => {
                format!("split over `{}` along dimension {dim} in sections {sections:?}", self.axis)
            }
            Layout::Partial => format!("a partial sum over `{}`", self.axis),
        }
    }

    /// The role of a parameter's dimension, by its canonical name; else its number.
    fn role(&self, parameter: ParameterId, dim: usize) -> String {
        let path = &self.model.parameter(parameter).names[0];
        let roles = Target::at(self.model, path).map_or(&[][..], |place| place.roles(self.model));
        roles.get(dim).map_or(dim.to_string(), ToString::to_string)
    }
}

/// What a partial sum is, by the node that made it.
fn arising(origin: &Place) -> String {
    let module = if origin.module.is_empty() { "the model".to_string() } else { format!("`{}`", origin.module) };
    match origin.is_backward {
        false => format!("the output of {module}"),
        true => format!("the gradient of the input of {module}"),
    }
}

/// A reason and its operands by what they are in the model, where that tells them apart: the value from `transformer.wte`
/// instead of `` `self` (from `transformer.wte`) ``.
pub fn in_words(reason: &str, operands: &[(String, Layout)]) -> (String, Vec<(String, Layout)>) {
    let words = |operand: &str| {
        let (_, source) = operand.strip_suffix(')')?.split_once(" (")?;
        Some(match source.strip_prefix("from ") {
            Some(source) => match source.strip_prefix("the backward of ") {
                Some(module) => format!("the gradient from {module}"),
                None => format!("the value from {source}"),
            },
            None => source.to_owned(),
        })
    };
    let all: Vec<Option<String>> = operands.iter().map(|(operand, _)| words(operand)).collect();
    let mut reason = reason.to_owned();
    let mut named = Vec::new();
    for ((operand, layout), words) in operands.iter().zip(&all) {
        let is_only = all.iter().filter(|other| *other == words).count() == 1;
        match words.as_ref().filter(|_| is_only) {
            Some(words) => {
                let argument = operand.split_once(" (").map_or("", |(argument, _)| argument);
                reason = reason.replace(argument, words);
                named.push((words.clone(), *layout));
            }
            None => named.push((operand.clone(), *layout)),
        }
    }
    (reason, named)
}

/// `` in `transformer.h.0` ``, or nothing for the model itself.
fn inside(at: &Place) -> String {
    let direction = if at.is_backward { "the backward of " } else { "" };
    match at.module.as_str() {
        "" => String::new(),
        path => format!(" in {direction}`{path}`"),
    }
}
