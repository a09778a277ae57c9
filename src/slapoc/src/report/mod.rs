//! What a schedule changes, as data. `draw` turns it into text and reads nothing else; `--message-format json` and
//! `report.json` are this, serialised.
//!
//! Steps are gathered by what they say of which modules: twelve equal layers are one line with a count. Read [`Report`]
//! first.

mod chosen;
mod draw;
mod layouts;
pub mod matches;
mod patterns;
mod traffic;

pub use draw::{collectives, draw};

use crate::load::{Loaded, Ready};
use chosen::Merged;
use layouts::{ModuleLayouts, layouts};
use patterns::{cover, patterns};
use serde::Serialize;
use slapo_core::compile::{Compiled, Effects};
use slapo_core::memory::{Largest, Memory, largest, predict};
use slapo_core::primitives::Class;
use slapo_core::schedule::{Argument, Checked, FrameKind, KnobValue, Place, Skipped, Step, Target};
use slapo_model::{Model, ParameterId};
use slapo_program::Program;
use std::collections::{BTreeMap, BTreeSet};
use traffic::{Total, Traffic, totals, traffic};

#[derive(Debug, Serialize)]
pub struct Report {
    pub schedule: String,
    pub model: ModelInfo,
    pub batch: i64,
    pub seq: Option<i64>,
    pub ranks: i64,
    /// Names of the mesh's axes, outermost first.
    pub axes: Vec<String>,
    /// Values that knobs had.
    pub knobs: Vec<KnobUsed>,
    /// The worst class of all steps: how far numbers may move.
    pub class: &'static str,
    pub steps: usize,
    pub blocks: Vec<Block>,
    /// Of the modules that steps put on the mesh.
    pub layouts: Vec<ModuleLayouts>,
    /// What a rank communicates in one step, and the same by axis and direction.
    pub collectives: Vec<Traffic>,
    pub collective_totals: Vec<Total>,
    pub micro_batches: u32,
    pub forward_operators: usize,
    pub recomputed_operators: usize,
    pub memory: MemoryChange,
    pub parameters: Parameters,
    /// Operators without a derivative of their own.
    pub rerun: Vec<Rerun>,
    /// Reductions of gradients that became one.
    pub merged: Vec<Merged>,
    pub not_applied: Vec<NotApplied>,
}

#[derive(Debug, Serialize)]
pub struct ModelInfo {
    pub file: String,
    pub class: String,
    pub fingerprint: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct KnobUsed {
    pub name: String,
    pub value: serde_json::Value,
    /// By the command line.
    pub is_set: bool,
}

/// What happens to modules, or to tensors, that are alike.
#[derive(Debug, Serialize)]
pub struct Block {
    /// Such as `transformer.h[0..6]`; empty for the model itself.
    pub pattern: String,
    pub class: String,
    pub count: usize,
    pub changes: Vec<Change>,
}

#[derive(Debug, Serialize)]
pub struct Change {
    /// `~` changed in place, `#` said about it.
    pub symbol: char,
    pub what: &'static str,
    pub detail: String,
    /// The statement, as `file:line`.
    pub cause: String,
    /// Where in the library the statement led to.
    pub via: Option<String>,
    pub steps: Vec<u32>,
}

/// Predicted bytes of one rank at the peak of a step, with the empty schedule and with this one.
#[derive(Debug, Serialize)]
pub struct MemoryChange {
    pub rank: i64,
    /// Of the first and of the last rank, together; they differ where something is split unevenly.
    pub peaks: [u64; 2],
    /// Absent where the model does not compile without the schedule.
    pub before: Option<Memory>,
    pub after: Memory,
    /// The largest activation at the peak.
    pub largest: Option<Largest>,
}

#[derive(Debug, Serialize)]
pub struct Parameters {
    pub trained: Count,
    /// By the schedule, or by the model itself.
    pub frozen: Listed,
    /// What no step named.
    pub untouched: Listed,
    /// What every rank of an axis holds whole, on purpose or not; axes that split the batch only are left out.
    pub replicated: Vec<Replicated>,
}

#[derive(Debug, Serialize)]
pub struct Replicated {
    pub axis: String,
    /// What no step speaks of.
    #[serde(flatten)]
    pub parameters: Listed,
    /// What is to be whole as a step says.
    pub stated: Listed,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Count {
    pub tensors: usize,
    pub elements: u64,
}

#[derive(Debug, Serialize)]
pub struct Listed {
    #[serde(flatten)]
    pub count: Count,
    /// Modules of which everything belongs here, and single tensors.
    pub patterns: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Rerun {
    pub operator: String,
    pub nodes: usize,
}

#[derive(Debug, Serialize)]
pub struct NotApplied {
    pub what: String,
    pub reason: String,
    pub cause: String,
}

/// Compares `after` with what the empty schedule gives. `ranks` are the programs of the chosen rank, of the first and of
/// the last.
pub fn report(ready: &Ready, before: Option<&Compiled>, after: &Compiled, ranks: &Ranks) -> Report {
    let Ready { loaded, archive, sizes } = ready;
    let model = &archive.model;
    let checked = &loaded.checked;
    let all = (0..model.parameters.len()).map(|i| ParameterId(i as u32));
    let is_trained = |id: &ParameterId| model.parameter(*id).trainable && !checked.effects.frozen.contains(id);
    let (trained, frozen): (Vec<ParameterId>, Vec<ParameterId>) = all.partition(is_trained);
    let recomputed = recomputed(loaded, after);
    let collectives = traffic(&ranks.chosen);
    Report {
        schedule: loaded.name.clone(),
        model: ModelInfo {
            file: archive.name.clone(),
            class: model.modules[0].short_class().to_owned(),
            fingerprint: model.fingerprint.clone(),
        },
        batch: sizes.batch,
        seq: sizes.seq,
        ranks: checked.mesh.world(),
        axes: checked.effects.axes.iter().map(|axis| axis.name.clone()).collect(),
        knobs: knobs(checked),
        class: class(loaded).name(),
        steps: checked.steps.len(),
        blocks: blocks(loaded, model, &recomputed, &chosen::layouts(&checked.effects, after), sizes.batch),
        layouts: layouts(model, after, &checked.effects),
        collective_totals: totals(&collectives),
        collectives,
        micro_batches: checked.effects.micro_batches,
        forward_operators: after.joint.forward,
        recomputed_operators: recomputed.values().sum(),
        memory: MemoryChange {
            rank: ranks.rank,
            peaks: [&ranks.first, &ranks.last].map(|program| predict(program).peak()),
            before: before.map(|c| predict(&c.program)),
            after: predict(&ranks.chosen),
            largest: largest(&ranks.chosen),
        },
        parameters: Parameters {
            trained: count(model, &trained),
            frozen: listed(model, &frozen),
            untouched: listed(model, &checked.untouched),
            replicated: replicated(model, &checked.effects),
        },
        rerun: after.joint.rerun.iter().map(|(op, n)| Rerun { operator: op.clone(), nodes: *n }).collect(),
        merged: chosen::merged(model, &checked.effects, after),
        not_applied: {
            let skipped = checked.skipped.iter().map(|skipped| not_applied(loaded, skipped));
            skipped.chain(after.not_kept.iter().filter_map(|at| not_kept(checked, *at))).collect()
        },
    }
}

/// Programs of single ranks that the report speaks of.
pub struct Ranks {
    pub rank: i64,
    pub chosen: Program,
    pub first: Program,
    pub last: Program,
}

/// The worst class of all steps.
pub fn class(loaded: &Loaded) -> Class {
    loaded.checked.steps.iter().map(|step| step.primitive.class).max().unwrap_or(Class::Exact)
}

/// Operators that backward computes again, by the step that asked for it.
fn recomputed(loaded: &Loaded, compiled: &Compiled) -> BTreeMap<u32, usize> {
    let joint = &compiled.joint;
    let mut counts = BTreeMap::new();
    let effects = &loaded.checked.effects;
    let of_checkpoints: BTreeSet<u32> = effects
        .checkpoints
        .iter()
        .map(|(_, step)| *step)
        .chain(effects.recomputed.iter().map(|(_, step)| *step))
        .collect();
    // Derivatives of what a step put in bear its number too.
    let steps = joint.graph.nodes[joint.forward..].iter().filter_map(|node| node.origin.step);
    for step in steps.filter(|step| of_checkpoints.contains(step)) {
        *counts.entry(step).or_default() += 1;
    }
    counts
}

/// Steps of one statement on modules of one pattern.
struct Gathered<'a> {
    steps: Vec<&'a Step>,
    paths: Vec<String>,
}

fn blocks(
    loaded: &Loaded,
    model: &Model,
    recomputed: &BTreeMap<u32, usize>,
    layouts: &BTreeMap<u32, Vec<String>>,
    batch: i64,
) -> Vec<Block> {
    let mut gathered: Vec<(Key, Gathered)> = Vec::new();
    for step in &loaded.checked.steps {
        let path = step.target.path.clone();
        let key = key(loaded, step, &path);
        match gathered.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => {
                group.steps.push(step);
                group.paths.push(path);
            }
            None => gathered.push((key, Gathered { steps: vec![step], paths: vec![path] })),
        }
    }
    let mut blocks: Vec<Block> = Vec::new();
    for (key, group) in gathered {
        let change = change(&key, &group, model, recomputed, layouts, batch);
        let pattern = patterns(&group.paths).join(", ");
        match blocks.iter_mut().find(|block| block.pattern == pattern) {
            Some(block) => block.changes.push(change),
            None => {
                let distinct: BTreeSet<&String> = group.paths.iter().collect();
                let class = class_of(model, &group.steps[0].target);
                blocks.push(Block { pattern, class, count: distinct.len(), changes: vec![change] });
            }
        }
    }
    blocks
}

#[derive(PartialEq)]
struct Key {
    primitive: &'static str,
    args: String,
    cause: String,
    via: Option<String>,
    shape: String,
}

fn key(loaded: &Loaded, step: &Step, path: &str) -> Key {
    let (cause, via) = cause(loaded, step);
    Key { primitive: step.primitive.name, args: step.shown_args(), cause, via, shape: patterns::shape(path) }
}

/// The statement of the user's file that led to the step, and where in a library it then stands.
fn cause(loaded: &Loaded, step: &Step) -> (String, Option<String>) {
    let own = loaded.files.name(loaded.file);
    if &*step.site.file == own {
        return (step.site.to_string(), None);
    }
    let calls = step.chain.frames().filter(|frame| matches!(frame.kind, FrameKind::Call { .. }));
    let call = calls.map(|frame| &frame.site).find(|site| &*site.file == own);
    match call {
        Some(site) => (site.to_string(), Some(step.site.to_string())),
        None => (step.site.to_string(), None),
    }
}

fn class_of(model: &Model, target: &Target) -> String {
    match target.place {
        _ if target.found.is_some() => "match".to_owned(),
        Place::Module(id) => model.module(id).short_class().to_owned(),
        Place::Parameter { .. } => "parameter".to_owned(),
        Place::Buffer { .. } => "buffer".to_owned(),
    }
}

fn change(
    key: &Key,
    group: &Gathered,
    model: &Model,
    recomputed: &BTreeMap<u32, usize>,
    layouts: &BTreeMap<u32, Vec<String>>,
    batch: i64,
) -> Change {
    let steps: Vec<u32> = group.steps.iter().map(|step| step.id).collect();
    let first = group.steps[0];
    let detail = match key.primitive {
        "checkpoint" => {
            let operators: usize = steps.iter().filter_map(|id| recomputed.get(id)).sum();
            format!("recomputed in backward: {}", crate::render::counted(operators, "operator"))
        }
        "freeze" => {
            let all = group.steps.iter().flat_map(|step| step.target.place.parameters(model));
            let distinct: BTreeSet<ParameterId> = all.filter(|id| model.parameter(*id).trainable).collect();
            let count = count(model, &distinct.into_iter().collect::<Vec<_>>());
            format!("no gradient, no update: {}", draw::counted(count))
        }
        "accumulate" => match first.arg("steps") {
            Some(slapo_core::schedule::Argument::Int(n)) if *n > 0 => {
                format!("{n} micro-batches of {}", crate::render::counted((batch / n) as usize, "row"))
            }
            _ => key.args.clone(),
        },
        "layout" => {
            let ways: BTreeSet<&String> = steps.iter().filter_map(|id| layouts.get(id)).flatten().collect();
            let ways: Vec<&str> = ways.into_iter().map(String::as_str).collect();
            match ways.is_empty() {
                true => format!("{}: stored so", key.args),
                false => format!("{}: {}", key.args, ways.join("; ")),
            }
        }
        _ => key.args.clone(),
    };
    let symbol = if matches!(key.primitive, "annotate" | "deny") { '#' } else { '~' };
    Change { symbol, what: key.primitive, detail, cause: key.cause.clone(), via: key.via.clone(), steps }
}

fn not_applied(loaded: &Loaded, skipped: &Skipped) -> NotApplied {
    let own = loaded.files.name(loaded.file);
    let site = skipped.chain.frames().map(|frame| &frame.site).find(|site| &*site.file == own);
    let site = if &*skipped.site.file == own { &skipped.site } else { site.unwrap_or(&skipped.site) };
    NotApplied { what: skipped.what.clone(), reason: skipped.reason.clone(), cause: site.to_string() }
}

/// A point of `checkpoint(keep: […])`, by its position among all that are kept.
fn not_kept(checked: &Checked, at: usize) -> Option<NotApplied> {
    let (before, id) = (&checked.effects.kept[..at], checked.effects.kept[at].1);
    let step = checked.step(id)?;
    let Some(Argument::List(points)) = step.arg("keep") else { return None };
    let point = points.get(before.iter().filter(|(_, step)| *step == id).count())?;
    Some(NotApplied {
        what: format!("keep {point}"),
        reason: "nothing is computed there any more: the value is that of another point, which is recomputed"
            .to_owned(),
        cause: step.site.to_string(),
    })
}

fn count(model: &Model, parameters: &[ParameterId]) -> Count {
    let elements = parameters.iter().map(|id| model.parameter(*id).shape.iter().product::<i64>() as u64).sum();
    Count { tensors: parameters.len(), elements }
}

/// By axis, the parameters that no step splits over it.
fn replicated(model: &Model, effects: &Effects) -> Vec<Replicated> {
    let splits_batch = |axis: usize| effects.data_parallel.iter().any(|dp| dp.axis == axis);
    let is_split = |id: &ParameterId, axis: usize| effects.shards.iter().any(|s| s.parameter == *id && s.axis == axis);
    let axes = effects.axes.iter().enumerate();
    let replicated = axes.filter_map(|(i, axis)| {
        let all = (0..model.parameters.len()).map(|id| ParameterId(id as u32));
        let whole: Vec<ParameterId> = all.filter(|id| !is_split(id, i)).collect();
        let is_unused = whole.len() == model.parameters.len();
        let is_stated = |id: &ParameterId| effects.whole.iter().any(|w| w.parameter == *id && w.axis == i);
        let (stated, unstated): (Vec<ParameterId>, Vec<ParameterId>) = whole.into_iter().partition(is_stated);
        let counts = axis.size > 1 && !(is_unused && stated.is_empty() && splits_batch(i));
        counts.then(|| Replicated {
            axis: axis.name.clone(),
            parameters: listed(model, &unstated),
            stated: listed(model, &stated),
        })
    });
    replicated.collect()
}

fn listed(model: &Model, parameters: &[ParameterId]) -> Listed {
    let set: BTreeSet<ParameterId> = parameters.iter().copied().collect();
    Listed { count: count(model, parameters), patterns: patterns(&cover(model, &set)) }
}

/// The knobs of a schedule with the values they had.
pub fn knobs(checked: &Checked) -> Vec<KnobUsed> {
    let used = checked.knobs.iter().map(|KnobValue { name, value, is_set }| {
        let value = match value {
            Argument::Int(number) => (*number).into(),
            Argument::Number(number) => {
                let text = number.to_string();
                text.parse::<f64>().map_or_else(|_| text.into(), Into::into)
            }
            Argument::Bool(value) => (*value).into(),
            Argument::Text(text) => text.as_str().into(),
            other => other.to_string().into(),
        };
        KnobUsed { name: name.clone(), value, is_set: *is_set }
    });
    used.collect()
}
