//! Lints: what a schedule may say and probably does not mean. Read [`lints`]; one function for each that needs the model.

use super::Checked;
use super::nearest::some_of;
use super::points::Ports;
use super::report::{Report, located};
use super::steps::Step;
use crate::compile::PointSync;
use crate::layout::Sync;
use crate::primitives::{divisors, joined};
use slapo_model::{Def, Model, ModuleId};
use slapo_syntax::{Code, Diagnostic, FileId};
use std::collections::BTreeSet;

/// All lints of a schedule without errors, in the order of its lines. `unused` are those of its names.
pub fn lints(unused: Vec<Diagnostic>, checked: &Checked, model: Option<&Model>, file: FileId) -> Vec<Diagnostic> {
    let mut report = Report::default();
    unused.into_iter().for_each(|diagnostic| report.push(diagnostic));
    if let Some(model) = model {
        let linter = Linter { checked, model, file };
        let found = linter
            .idle_axes()
            .chain(linter.idle_checkpoints())
            .chain(linter.separate_syncs())
            .chain(linter.whole())
            .chain(linter.uneven_pieces());
        found.for_each(|diagnostic| report.push(diagnostic));
    }
    report.finish(file, &[])
}

struct Linter<'a> {
    checked: &'a Checked,
    model: &'a Model,
    file: FileId,
}

impl<'a> Linter<'a> {
    /// Axes with several ranks that no step is about: each rank does what the others do.
    fn idle_axes(&self) -> impl Iterator<Item = Diagnostic> {
        let effects = &self.checked.effects;
        let shards = effects.shards.iter().map(|shard| shard.axis);
        let syncs = effects.syncs.iter().map(|sync| sync.axis);
        let used: Vec<usize> = shards.chain(syncs).chain(effects.data_parallel.iter().map(|dp| dp.axis)).collect();
        let idle = effects.axes.iter().enumerate().filter(move |(at, axis)| axis.size > 1 && !used.contains(at));
        idle.filter_map(|(_, axis)| {
            let declared = self.checked.mesh.axis(&axis.name)?;
            let message = format!("the {} ranks of `{}` all do the same", axis.size, axis.name);
            let help = format!("split something over it, such as the batch: `m.data_parallel(over: {})`", axis.name);
            Some(
                Diagnostic::warning(Code::IdleAxis, message)
                    .primary(declared.span, "nothing is split over it")
                    .help(help),
            )
        })
    }

    /// Checkpoints of modules through which no gradient flows: nothing of them is kept for backward anyhow.
    fn idle_checkpoints(&self) -> impl Iterator<Item = Diagnostic> {
        let checkpoints = &self.checked.effects.checkpoints;
        let flows = if checkpoints.is_empty() { Vec::new() } else { self.trained_values() };
        let idle = checkpoints.iter().filter(move |(module, _)| !self.has_backward(*module, &flows));
        idle.filter_map(|(_, step)| {
            let step = self.checked.step(*step)?;
            let message = format!("`{}` has no backward to recompute anything for", step.target.path);
            let diagnostic = Diagnostic::warning(Code::IdleCheckpoint, message)
                .help("leave the checkpoint out: neither it nor what comes before it is trained");
            Some(self.at(diagnostic, step, "changes nothing"))
        })
    }

    /// By value: whether it depends on a parameter that is trained.
    fn trained_values(&self) -> Vec<bool> {
        let graph = &self.model.graph;
        let is_trained = |def: &Def| match def {
            Def::Parameter(id) => self.model.parameter(*id).trainable && !self.checked.effects.frozen.contains(id),
            _ => false,
        };
        let mut flows: Vec<bool> = graph.values.iter().map(|value| is_trained(&value.def)).collect();
        for node in &graph.nodes {
            if node.reads().any(|id| flows[id.0 as usize]) {
                for out in node.outs.iter().flatten() {
                    flows[out.0 as usize] = graph.ty(*out).dtype.is_float();
                }
            }
        }
        flows
    }

    fn has_backward(&self, module: ModuleId, flows: &[bool]) -> bool {
        let root = &self.model.module(module).path;
        let is_inside = |path: &str| match path.strip_prefix(root.as_str()) {
            Some(rest) => root.is_empty() || rest.is_empty() || rest.starts_with('.'),
            None => false,
        };
        let mut inside =
            self.model.graph.nodes.iter().filter(|node| is_inside(self.model.scope_path(node.origin.scope)));
        inside.any(|node| node.outs.iter().flatten().any(|out| flows[out.0 as usize]))
    }

    /// The same reduction at one point in two statements, over an axis each.
    fn separate_syncs(&self) -> impl Iterator<Item = Diagnostic> {
        let syncs = &self.checked.effects.syncs;
        let own = |sync: &PointSync| self.checked.step(sync.step).filter(|step| step.site.span.file == self.file);
        syncs.iter().enumerate().filter_map(move |(at, sync)| {
            let is_before = |other: &&PointSync| {
                other.at == sync.at && other.sync == sync.sync && other.axis != sync.axis && other.step != sync.step
            };
            let earlier = syncs[..at].iter().find(is_before).filter(|_| sync.sync == Sync::AllReduce)?;
            let (first, second) = (own(earlier)?, own(sync)?);
            let name = |sync: &PointSync| Some(self.checked.effects.axes.get(sync.axis)?.name.as_str());
            let mut axes = [earlier, sync];
            axes.sort_by_key(|sync| sync.axis);
            let over = format!("over: [{}, {}]", name(axes[0])?, name(axes[1])?);
            let message = format!("`{}` is reduced in two statements that could be one", second.target.path);
            let diagnostic = Diagnostic::warning(Code::SeparateSyncs, message)
                .secondary(first.site.span, "the first")
                .help(format!("one statement reduces over both axes: `{over}`"));
            Some(self.at(diagnostic, second, "the second"))
        })
    }

    /// Parameters that every rank of an axis holds whole, where others are split over it and nothing says that they are not.
    fn whole(&self) -> impl Iterator<Item = Diagnostic> {
        let effects = &self.checked.effects;
        let splits = |at: usize| effects.shards.iter().any(|shard| shard.axis == at);
        let axes = effects.axes.iter().enumerate().filter(move |(at, axis)| axis.size > 1 && splits(*at));
        axes.filter_map(move |(at, axis)| {
            let split = effects.shards.iter().filter(|shard| shard.axis == at).map(|shard| shard.parameter);
            let stated = effects.whole.iter().filter(|whole| whole.axis == at).map(|whole| whole.parameter);
            let settled: BTreeSet<usize> = split.chain(stated).map(|id| id.0 as usize).collect();
            let whole = self.model.parameters.iter().enumerate().filter(|(id, _)| !settled.contains(id));
            let names: Vec<&str> = whole.map(|(_, parameter)| parameter.names[0].as_str()).collect();
            let declared = self.checked.mesh.axis(&axis.name)?;
            let message = format!(
                "{} of {} parameters are whole on each rank of `{}`",
                names.len(),
                self.model.parameters.len(),
                axis.name
            );
            let diagnostic = Diagnostic::warning(Code::WholeParameters, message)
                .primary(declared.span, "not split over it")
                .help(format!("where that is meant, say so: `path.layout(replicate, over: {})`", axis.name))
                .note(some_of(&names));
            (!names.is_empty()).then_some(diagnostic)
        })
    }

    /// Values that a sync cuts into pieces of different sizes: the ranks with the larger ones are waited for.
    fn uneven_pieces(&self) -> impl Iterator<Item = Diagnostic> {
        let ports = Ports::new(self.model);
        let effects = &self.checked.effects;
        effects.syncs.iter().filter_map(move |sync| {
            let (Sync::Slice { dim, groups } | Sync::ReduceScatter { dim, groups }) = sync.sync else { return None };
            let step = self.checked.step(sync.step)?;
            let axis = effects.axes.get(sync.axis)?;
            let value = ports.value(step.target.point.as_ref()?)?;
            let size = *ports.bound_type(value, self.checked.sizes?)?.shape.get(dim)?;
            // Groups that do not divide are an error; a parameter there that is split unevenly was asked for.
            let is_meant = effects.shards.iter().any(|shard| {
                let owner = self.model.parameter(shard.parameter).module;
                shard.uneven && shard.axis == sync.axis && owner == sync.at.module(self.model)
            });
            if is_meant || size % groups != 0 || size % (groups * axis.size) == 0 {
                return None;
            }
            let message = format!(
                "dimension {dim} ({size}) of the value at `{}` does not divide evenly over `{}` of size {}",
                step.target.path, axis.name, axis.size
            );
            let sizes = divisors(size / groups);
            let diagnostic = Diagnostic::warning(Code::UnevenPieces, message)
                .note("ranks with smaller pieces wait for the others")
                .help(format!("sizes of `{}` that divide it: {}", axis.name, joined(&sizes)));
            Some(self.at(diagnostic, step, "leaves pieces of different sizes"))
        })
    }

    fn at(&self, diagnostic: Diagnostic, step: &Step, here: &str) -> Diagnostic {
        located(diagnostic.primary(step.site.span, here), &step.chain, self.file)
    }
}
