//! What the ranks of a mesh send each other: every collective of a step with its bytes.

use super::autodiff::Joint;
use crate::compile::{Effects, Place};
use crate::layout::{self, Layout, Sync, Typing};
use slapo_model::{Def, Model, Op, ValueId};

/// One collective of the joint graph, or a slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversion {
    /// Index into [`Effects::axes`].
    pub axis: usize,
    pub collective: Sync,
    /// Position in [`Effects::syncs`] of what asked for it, `None` for a reduction that `data_parallel` brings.
    pub asked: Option<usize>,
    pub at: Place,
    /// Bytes of the tensor that a rank gives or gets in one call, the larger of the two; 0 for a slice, which is local.
    pub bytes: i64,
}

/// The conversions over axes of more than one rank, in the order of the graph. `typings` has one entry per axis; with
/// micro-batches a call carries the rows of one of them.
pub fn conversions(
    model: &Model,
    joint: &Joint,
    effects: &Effects,
    (syncs, asked): (&[(usize, Sync)], &[Option<usize>]),
    typings: &[Typing],
) -> Vec<Conversion> {
    let batched = micro_batches(joint, effects);
    let mut found = Vec::new();
    for (i, node) in joint.graph.nodes.iter().enumerate() {
        let (Op::Sync { sync }, Some(read)) = (&node.op, node.tensor("self")) else { continue };
        let (axis, collective) = syncs[*sync as usize];
        if effects.axes[axis].size == 1 {
            continue;
        }
        let others = typings.iter().enumerate().filter(|(other, _)| *other != axis).map(|(_, typing)| typing);
        let whole = held(joint, read, others.chain(&batched));
        let bytes = match collective {
            Sync::Slice { .. } => 0,
            Sync::AllToAll { .. } => whole / effects.axes[axis].size,
            _ => whole,
        };
        let at = Place {
            module: model.scope_path(node.origin.scope).to_owned(),
            source: node.origin.source,
            operator: collective.to_string(),
            is_backward: i >= joint.forward,
        };
        found.push(Conversion { axis, collective, asked: asked[*sync as usize], at, bytes });
    }
    found
}

/// Bytes of what a rank holds of a value.
fn held<'t>(joint: &Joint, v: ValueId, typings: impl Iterator<Item = &'t Typing>) -> i64 {
    let ty = joint.graph.ty(v);
    let elements: i64 = ty.shape.iter().product();
    let parts = typings.filter(|typing| typing.of(v).split_dim().is_some()).map(|typing| typing.parts);
    elements / parts.product::<i64>() * ty.dtype.bytes() as i64
}

/// How micro-batches hold the values, if there are several.
fn micro_batches(joint: &Joint, effects: &Effects) -> Option<Typing> {
    let parts = i64::from(effects.micro_batches);
    let leaf = |def| match def {
        Def::Input(_) => Layout::Split { dim: 0, groups: 1 },
        _ => Layout::Replicated,
    };
    (parts > 1).then(|| layout::infer(&joint.graph, parts, leaf).ok()).flatten()
}
