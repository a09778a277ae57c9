//! Primitives: the built-in steps of a schedule, one file each, one row in [`ALL`].
//!
//! A primitive declares its signature, says apart from its effect whether a step is legal on the model as it is, and has
//! its effect on the [`State`]. It knows nothing of source text: what it finds wrong is a [`Problem`], and the schedule's
//! lines are added where they are known. To add one: write its file, add its row.

mod accumulate;
mod annotate;
mod checkpoint;
mod data_parallel;
mod decompose;
mod deny;
mod freeze;
mod layout;
mod numbers;
mod replace;
mod shard;
mod sync;
mod zero;

pub(crate) use accumulate::indivisible;
pub(crate) use numbers::{divisors, joined};

use crate::compile::{Effects, MeshAxis};
use crate::passes::rewrite::{self, Rewrite};
use crate::patterns::Match;
use crate::schedule::{Archives, Argument, Place, Ports, Step, Want};
use slapo_model::sym::Size;
use slapo_model::{Graph, InputSizes, Model, ModuleId, ParameterId, ValueId};
use slapo_syntax::Code;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

/// In alphabetical order.
pub static ALL: &[&Primitive] = &[
    &accumulate::ACCUMULATE,
    &annotate::ANNOTATE,
    &checkpoint::CHECKPOINT,
    &data_parallel::DATA_PARALLEL,
    &decompose::DECOMPOSE,
    &deny::DENY,
    &freeze::FREEZE,
    &layout::LAYOUT,
    &replace::REPLACE,
    &shard::SHARD,
    &sync::SYNC,
    &zero::ZERO,
];

/// A built-in kind of step.
pub struct Primitive {
    pub name: &'static str,
    pub receiver: Receiver,
    pub params: &'static [Parameter],
    pub class: Class,
    /// Shown by `slapoc explain`; Markdown, with an example.
    pub docs: &'static str,
    /// Whether the step is legal now. The step has its id already; the state does not hold it yet.
    pub check: fn(&State, &Step) -> Result<(), Refusal>,
    /// The effect of a legal step.
    pub apply: fn(&mut State, &Step),
}

/// What a primitive is asked of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    Module,
    /// A module, or a pattern found in one.
    ModuleOrMatch,
    /// A pattern found in a module.
    Match,
    /// A parameter.
    Parameter,
    /// A parameter, or a module for what is below it.
    ModuleOrParameter,
    /// Anything that a path leads to, buffers too.
    Any,
    /// A value on the border of a module, or a gradient.
    Point,
    /// Such a value, or a parameter as it is stored.
    PointOrParameter,
}

/// A declared argument.
pub struct Parameter {
    pub name: &'static str,
    pub want: Want,
    /// Without one the argument must be given.
    pub default: Option<Argument>,
    pub docs: &'static str,
}

/// What a step does to the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Bit-equal to the unscheduled program.
    Exact,
    /// Sums in another order: parity in float64.
    Reassociating,
    Lossy,
    ChangesTraining,
}

/// Why a step is not applied.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// Nothing would change: an error, except under `try`.
    NotApplicable(Box<Problem>),
    /// An error always.
    Illegal(Box<Problem>),
}

/// A refusal in words.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    pub code: Code,
    pub message: String,
    /// What is wrong at the step.
    pub here: String,
    /// An earlier step that is part of the problem, with what it did.
    pub earlier: Option<(u32, String)>,
    pub note: Option<String>,
    pub help: Option<String>,
    /// Where the size of an axis is to blame: the axis as the step names it, and sizes of it that would do.
    pub sizes: Option<(String, Vec<i64>)>,
}

/// The model as the steps so far have left it.
#[derive(Clone)]
pub struct State<'m> {
    pub model: &'m Model,
    pub ports: Rc<Ports<'m>>,
    pub sizes: Option<InputSizes>,
    /// What replacements come from.
    pub archives: Archives,
    pub effects: Effects,
    pub steps: Vec<Step>,
    /// The imported graph as the steps have rewritten it; `None` as long as none has.
    rewritten: Option<Rc<Graph<Size>>>,
    /// What rewritten nodes computed when they were found, with the step.
    replaced: Vec<(Vec<ValueId>, u32)>,
    /// Modules that are computed by an archive, with the step.
    modules: Vec<(ModuleId, u32)>,
    /// Parameters that a step changed or described.
    pub touched: BTreeSet<ParameterId>,
    /// By place and key of a note: the position in `steps` of the step that made it.
    notes: BTreeMap<(Place, String), usize>,
    /// Positions in `steps`, by target.
    on: BTreeMap<Place, Vec<usize>>,
}

/// The primitive of that name.
pub fn find(name: &str) -> Option<&'static Primitive> {
    ALL.iter().find(|primitive| primitive.name == name).copied()
}

impl Receiver {
    pub fn takes(self, place: Place, is_point: bool, is_match: bool) -> bool {
        if is_match {
            return matches!(self, Receiver::ModuleOrMatch | Receiver::Match);
        }
        if is_point {
            return self.takes_points();
        }
        match place {
            Place::Module(_) => {
                matches!(self, Receiver::Module | Receiver::ModuleOrMatch | Receiver::ModuleOrParameter | Receiver::Any)
            }
            Place::Parameter { .. } => matches!(
                self,
                Receiver::Parameter | Receiver::ModuleOrParameter | Receiver::PointOrParameter | Receiver::Any
            ),
            Place::Buffer { .. } => self == Receiver::Any,
        }
    }

    pub fn takes_points(self) -> bool {
        matches!(self, Receiver::Point | Receiver::PointOrParameter)
    }
}

/// With an article: `a module`.
impl fmt::Display for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Receiver::Module => "a module",
            Receiver::ModuleOrMatch => "a module or a match",
            Receiver::Match => "a match",
            Receiver::Parameter => "a parameter",
            Receiver::ModuleOrParameter => "a parameter or a module",
            Receiver::Any => "a module, a parameter or a buffer",
            Receiver::Point => "a point",
            Receiver::PointOrParameter => "a point or a parameter",
        })
    }
}

impl Class {
    pub fn name(self) -> &'static str {
        match self {
            Class::Exact => "exact",
            Class::Reassociating => "reassociating",
            Class::Lossy => "lossy",
            Class::ChangesTraining => "changes training",
        }
    }
}

impl Primitive {
    /// `module.accumulate(steps: a whole number)`
    pub fn signature(&self) -> String {
        let receiver = match self.receiver {
            Receiver::Module => "module",
            Receiver::ModuleOrMatch => "module|match",
            Receiver::Match => "match",
            Receiver::Parameter => "param",
            Receiver::ModuleOrParameter => "param|module",
            Receiver::Any => "path",
            Receiver::Point => "point",
            Receiver::PointOrParameter => "point|param",
        };
        let params = self.params.iter().map(|parameter| match &parameter.default {
            Some(default) => format!("{}: {} = {default}", parameter.name, parameter.want),
            None => format!("{}: {}", parameter.name, parameter.want),
        });
        format!("{receiver}.{}({})", self.name, params.collect::<Vec<_>>().join(", "))
    }
}

impl PartialEq for Primitive {
    fn eq(&self, other: &Primitive) -> bool {
        self.name == other.name
    }
}

impl Eq for Primitive {}

impl fmt::Debug for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A recorded step may name an axis that the mesh does not have.
fn no_axis(step: &Step) -> Refusal {
    let name = step.arg("over").map(ToString::to_string).unwrap_or_default();
    Refusal::illegal(Problem::new(Code::BadValue, format!("the mesh has no axis `{name}`"), "no such axis"))
}

impl Refusal {
    fn not_applicable(problem: Problem) -> Refusal {
        Refusal::NotApplicable(Box::new(problem))
    }

    fn illegal(problem: Problem) -> Refusal {
        Refusal::Illegal(Box::new(problem))
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        Refusal::illegal(problem)
    }
}

impl Problem {
    pub fn new(code: Code, message: impl Into<String>, here: impl Into<String>) -> Problem {
        Problem { code, message: message.into(), here: here.into(), earlier: None, note: None, help: None, sizes: None }
    }

    pub fn earlier(self, step: u32, what: impl Into<String>) -> Problem {
        Problem { earlier: Some((step, what.into())), ..self }
    }

    pub fn note(self, text: impl Into<String>) -> Problem {
        Problem { note: Some(text.into()), ..self }
    }

    pub fn help(self, text: impl Into<String>) -> Problem {
        Problem { help: Some(text.into()), ..self }
    }

    pub fn sizes(self, axis: &str, legal: Vec<i64>) -> Problem {
        Problem { sizes: Some((axis.to_owned(), legal)), ..self }
    }
}

impl<'m> State<'m> {
    /// Nothing done yet, on a mesh of `axes`.
    pub fn new(ports: Rc<Ports<'m>>, sizes: Option<InputSizes>, axes: Vec<MeshAxis>) -> State<'m> {
        State {
            model: ports.model,
            ports,
            sizes,
            archives: Archives::default(),
            effects: Effects { axes, ..Effects::default() },
            steps: Vec::new(),
            rewritten: None,
            replaced: Vec::new(),
            modules: Vec::new(),
            touched: BTreeSet::new(),
            notes: BTreeMap::new(),
            on: BTreeMap::new(),
        }
    }

    /// With the archives that replacements come from.
    pub fn with(self, archives: Archives) -> State<'m> {
        State { archives, ..self }
    }

    /// What is wrong with a module inside of one that was replaced: it is no longer there. Parameters are.
    pub fn gone(&self, place: Place) -> Option<Problem> {
        let Place::Module(module) = place else { return None };
        let mut around = self.around(module).skip(1);
        let (of, step) = around.find_map(|outer| self.modules.iter().find(|(replaced, _)| *replaced == outer))?;
        let path = |id: ModuleId| &self.model.module(id).path;
        let message = format!("`{}` is no longer there: `{}` was replaced", path(module), path(*of));
        let problem = Problem::new(Code::Contradiction, message, "is no longer there").earlier(*step, "replaced here");
        Some(problem.help(format!("`{}` has points of its own, and its parameters keep their paths", path(*of))))
    }

    /// The model's graph as the steps so far have left it.
    pub fn graph(&self) -> &Graph<Size> {
        self.rewritten.as_deref().unwrap_or(&self.model.graph)
    }

    /// Refuses a match that an earlier step has changed: what was found is no longer there.
    fn unchanged(&self, found: &Match, path: &str) -> Result<(), Refusal> {
        let mut later = self.replaced.iter().skip(found.age);
        let Some((_, step)) = later.find(|(values, _)| found.overlaps(values)) else { return Ok(()) };
        let problem = Problem::new(
            Code::Contradiction,
            format!("`{path}` is no longer there: an earlier step replaced operators of it"),
            "was found before",
        )
        .help("a match is used once; look for the pattern again behind the step that changes the model");
        Err(Refusal::illegal(problem.earlier(*step, "replaced here")))
    }

    /// How many rewrites the graph has seen.
    pub fn rewrites(&self) -> usize {
        self.replaced.len()
    }

    /// Rewrites the graph; `values` are what the nodes computed that are there no more.
    fn rewrite(&mut self, values: Vec<ValueId>, step: u32, rewrite: Rewrite) {
        self.rewritten = Some(Rc::new(rewrite::rewrite(self.model, self.graph(), &rewrite)));
        self.replaced.push((values, step));
        self.effects.rewrites.push(rewrite);
    }

    /// Carries out a step that was found legal.
    pub fn apply(&mut self, step: Step) {
        (step.primitive.apply)(self, &step);
        self.on.entry(step.target.place).or_default().push(self.steps.len());
        self.steps.push(step);
    }

    /// The latest step of `primitive` that fits.
    fn earlier(&self, primitive: &Primitive, fits: impl Fn(&Step) -> bool) -> Option<&Step> {
        self.steps.iter().rev().find(|step| step.primitive == primitive && fits(step))
    }

    /// The same, of the steps on one target.
    fn earlier_on(&self, place: Place, primitive: &Primitive, fits: impl Fn(&Step) -> bool) -> Option<&Step> {
        let steps = self.on.get(&place)?.iter().rev().filter_map(|at| self.steps.get(*at));
        steps.filter(|step| step.primitive == primitive).find(|step| fits(step))
    }

    /// The axes that a step names, by number, the outermost first; the factors of one that is given as factors.
    fn axes(&self, step: &Step) -> Result<Vec<usize>, Refusal> {
        let over = step.arg("over");
        let axes = self.effects.axes.iter().enumerate();
        let named = axes.filter(|(_, axis)| over.is_some_and(|over| over.takes_axis(&axis.name)));
        let named: Vec<usize> = named.map(|(at, _)| at).collect();
        match named.is_empty() {
            true => Err(no_axis(step)),
            false => Ok(named),
        }
    }

    fn size(&self, axis: usize) -> i64 {
        self.effects.axes[axis].size
    }

    /// The number of ranks that the batch is split over.
    pub fn data_parts(&self) -> i64 {
        let axes = self.effects.data_parallel.iter().map(|data| self.effects.axes[data.axis].size);
        axes.fold(1, i64::saturating_mul)
    }

    /// A module and the modules around it, innermost first.
    fn around(&self, module: ModuleId) -> impl Iterator<Item = ModuleId> {
        std::iter::successors(Some(module), |id| self.model.module(*id).parent)
    }

    /// Parameters at or below a place, each once, in the model's order.
    fn parameters(&self, place: Place) -> Vec<ParameterId> {
        place.parameters(self.model)
    }
}
