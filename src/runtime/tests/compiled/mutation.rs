//! Every way to get one statement of a schedule wrong.

use slapo_core::compile::{DataParallel, Effects, End, Fault, LayoutFault, LayoutProblem, PointSync, SyncPoint};
use slapo_core::layout::Sync;
use slapo_model::{Model, ModuleId};

/// A schedule with one thing wrong.
pub struct Mutant {
    pub what: String,
    pub effects: Effects,
    /// The reduction of `data_parallel` that is left out.
    pub without: Option<End>,
    /// The statement that is wrong, or that was there, and the module that it is about.
    pub step: u32,
    pub module: ModuleId,
}

/// All mutants of a right schedule.
pub fn mutants(model: &Model, right: &Effects) -> Vec<Mutant> {
    let mut all = Mutants { model, right, found: Vec::new() };
    for at in 0..right.syncs.len() {
        all.sync(at);
    }
    for at in 0..right.shards.len() {
        all.shard(at);
    }
    for at in 0..right.data_parallel.len() {
        all.data_parallel(at);
    }
    if right.axes.len() == 1 {
        all.more_syncs();
    }
    all.found
}

struct Mutants<'a> {
    model: &'a Model,
    right: &'a Effects,
    found: Vec<Mutant>,
}

impl Mutants<'_> {
    fn push(&mut self, what: String, step: u32, module: ModuleId, change: impl FnOnce(&mut Effects)) {
        let mut effects = self.right.clone();
        change(&mut effects);
        self.found.push(Mutant { what, effects, without: None, step, module });
    }

    fn other_axes(&self, axis: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.right.axes.len()).filter(move |other| *other != axis)
    }

    fn sync(&mut self, at: usize) {
        let right = self.right.syncs[at].clone();
        let module = module_of(self.model, right.at);
        let name = format!("{} of {}", right.sync, point(self.model, right.at));
        self.push(format!("without {name}"), right.step, module, |e| {
            e.syncs.remove(at);
        });
        self.push(format!("twice {name}"), right.step, module, |e| e.syncs.push(right.clone()));
        if let Some(turned) = turned(right.at) {
            let what = format!("{name} at {}", point(self.model, turned));
            self.push(what, right.step, module, |e| e.syncs[at].at = turned);
        }
        let kinds = [
            Sync::AllReduce,
            Sync::AllGather { dim: None },
            Sync::ReduceScatter { dim: 0, groups: 1 },
            Sync::ReduceScatter { dim: 1, groups: 1 },
            Sync::Slice { dim: 0, groups: 1 },
            Sync::AllToAll { from: 0, to: 1, groups: 1 },
        ];
        let rank = match right.at {
            SyncPoint::ParameterGradient(p) => self.model.parameter(p).shape.len(),
            _ => 2,
        };
        for sync in kinds.into_iter().filter(|kind| *kind != right.sync).take(if rank < 2 { 2 } else { 5 }) {
            self.push(format!("{sync} for {name}"), right.step, module, |e| e.syncs[at].sync = sync);
        }
        for axis in self.other_axes(right.axis) {
            self.push(format!("{name} over axis {axis}"), right.step, module, |e| e.syncs[at].axis = axis);
        }
    }

    fn shard(&mut self, at: usize) {
        let right = self.right.shards[at].clone();
        let parameter = self.model.parameter(right.parameter);
        let module = parameter.module;
        let name = format!("shard {} of {}", right.dim, parameter.names[0]);
        self.push(format!("without {name}"), right.step, module, |e| {
            e.shards.remove(at);
        });
        for dim in (0..parameter.shape.len()).filter(|dim| *dim != right.dim) {
            self.push(format!("{name}: dimension {dim}"), right.step, module, |e| e.shards[at].dim = dim);
        }
        for groups in [1, 2, 3, 6].into_iter().filter(|groups| *groups != right.groups) {
            self.push(format!("{name}: {groups} groups"), right.step, module, |e| e.shards[at].groups = groups);
        }
        for axis in self.other_axes(right.axis) {
            self.push(format!("{name} over axis {axis}"), right.step, module, |e| e.shards[at].axis = axis);
        }
    }

    /// All-reduces where none was asked for, of every module's values and gradients.
    fn more_syncs(&mut self) {
        let step = u32::MAX;
        for (i, module) in self.model.modules.iter().enumerate() {
            let (module, path) = (ModuleId(i as u32), &module.path);
            let port = 0;
            let points = [
                SyncPoint::Input { module, port },
                SyncPoint::Output { module, port },
                SyncPoint::InputGradient { module, port },
                SyncPoint::OutputGradient { module, port },
            ];
            for at in points {
                for axis in 0..self.right.axes.len() {
                    let more = PointSync { at, sync: Sync::AllReduce, axis, step };
                    if self.right.syncs.iter().any(|sync| (sync.at, sync.axis) == (at, axis)) || path.is_empty() {
                        continue;
                    }
                    let what = format!("one more all_reduce of {} over axis {axis}", point(self.model, at));
                    self.push(what, step, module, |e| e.syncs.push(more));
                }
            }
        }
    }

    fn data_parallel(&mut self, at: usize) {
        let DataParallel { axis, step } = self.right.data_parallel[at];
        let whole = ModuleId(0);
        self.push("without data_parallel".to_owned(), step, whole, |e| {
            e.data_parallel.remove(at);
        });
        for axis in self.other_axes(axis) {
            self.push(format!("data_parallel over axis {axis}"), step, whole, |e| e.data_parallel[at].axis = axis);
        }
        let gradients = (0..self.model.parameters.len() as u32).map(slapo_model::ParameterId);
        for end in gradients.map(End::Gradient).chain([End::Loss]) {
            let what = match end {
                End::Loss => "without the reduction of the loss".to_owned(),
                End::Gradient(p) => format!("without the reduction of {}'s gradient", self.model.parameter(p).names[0]),
            };
            self.push(what, step, whole, |_| ());
            self.found.iter_mut().last().expect("just pushed").without = Some(end);
        }
    }
}

fn module_of(model: &Model, at: SyncPoint) -> ModuleId {
    match at {
        SyncPoint::Input { module, .. }
        | SyncPoint::Output { module, .. }
        | SyncPoint::InputGradient { module, .. }
        | SyncPoint::OutputGradient { module, .. } => module,
        SyncPoint::ParameterGradient(p) => model.parameter(p).module,
    }
}

/// The other direction: a value for its gradient.
fn turned(at: SyncPoint) -> Option<SyncPoint> {
    match at {
        SyncPoint::Input { module, port } => Some(SyncPoint::InputGradient { module, port }),
        SyncPoint::InputGradient { module, port } => Some(SyncPoint::Input { module, port }),
        SyncPoint::Output { module, port } => Some(SyncPoint::OutputGradient { module, port }),
        SyncPoint::OutputGradient { module, port } => Some(SyncPoint::Output { module, port }),
        SyncPoint::ParameterGradient(_) => None,
    }
}

fn point(model: &Model, at: SyncPoint) -> String {
    let path = &model.module(module_of(model, at)).path;
    match at {
        SyncPoint::Input { port, .. } => format!("{path}.input({port})"),
        SyncPoint::Output { port, .. } => format!("{path}.output({port})"),
        SyncPoint::InputGradient { port, .. } => format!("{path}.input({port}).grad()"),
        SyncPoint::OutputGradient { port, .. } => format!("{path}.output({port}).grad()"),
        SyncPoint::ParameterGradient(p) => format!("{}.grad()", model.parameter(p).names[0]),
    }
}

/// Whether a fault leads to the statement: names its step, or a place in its module.
pub fn leads_to(fault: &Fault, mutant: &Mutant, model: &Model) -> bool {
    let Fault::Layout(fault) = fault else { return false };
    let LayoutFault { problem, origin, steps, .. } = &**fault;
    let (place, step) = match problem {
        LayoutProblem::Operator { at, .. } | LayoutProblem::Nesting { at, .. } | LayoutProblem::Cut { at, .. } => {
            (Some(at), None)
        }
        LayoutProblem::Sync { at, step, .. } | LayoutProblem::SyncUneven { at, step, .. } => (Some(at), Some(*step)),
        LayoutProblem::NoValue { step, .. } => (None, Some(*step)),
        LayoutProblem::Uneven { .. } | LayoutProblem::Loss { .. } | LayoutProblem::Gradient { .. } => (None, None),
    };
    let own = match problem {
        LayoutProblem::Gradient { parameter, .. } | LayoutProblem::Uneven { parameter, .. } => {
            Some(model.parameter(*parameter).module)
        }
        _ => None,
    };
    let path = model.module(mutant.module).path.as_str();
    // What is missing shows where its value meets another: in the module, or elsewhere in the block.
    let there = |module: &str| module == path || (!block(path).is_empty() && block(module) == block(path));
    // A sync of the module that finds nothing to do is a lead as well.
    let syncs = mutant.effects.syncs.iter().filter(|sync| module_of(model, sync.at) == mutant.module);
    let leads: Vec<u32> = syncs.map(|sync| sync.step).chain([mutant.step]).collect();
    steps.iter().copied().chain(step).any(|s| leads.contains(&s))
        || place.into_iter().chain(origin).any(|place| there(&place.module))
        || own == Some(mutant.module)
}

/// The repeated part of the model that a module lies in: `transformer.h.0` of `transformer.h.0.mlp.c_fc`.
fn block(path: &str) -> &str {
    let mut end = 0;
    for name in path.split('.') {
        end += name.len() + 1;
        if name.parse::<u32>().is_ok() {
            return &path[..end - 1];
        }
    }
    ""
}
