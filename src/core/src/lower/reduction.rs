//! The reduction function: gradients that ranks hold as partial sums, reduced once a step.
//!
//! An all-reduce at the end of backward commutes with the sum over micro-batches. So what is added up is the partial
//! gradient, and the ranks send it once, in buckets, after the last micro-batch. Read [`ends`] first.

use super::body::Body;
use super::{Gradient, Lower, Scattered, buckets, plain};
use crate::passes::autodiff::Joint;
use slapo_model::{Def, Node, NodeId, Op as GraphOp, ValueId};
use slapo_program::{Arg, Collective, Function, FunctionKind, Instr, Op, Value};
use std::collections::BTreeMap;

/// What backward adds up for a gradient, and the axes to reduce the total over, in order.
pub struct End {
    pub value: ValueId,
    pub axes: Vec<u32>,
}

/// For every gradient of `joint`, in order: itself, or what the all-reduces at its end take in, if nothing else reads what
/// they give.
pub fn ends(joint: &Joint) -> Vec<End> {
    let graph = &joint.graph;
    let mut uses: BTreeMap<ValueId, u32> = BTreeMap::new();
    let outputs = joint.gradients.iter().map(|(_, v)| *v).chain(joint.mutations.iter().copied()).chain([graph.loss]);
    for v in graph.nodes.iter().flat_map(|node| node.reads()).chain(outputs) {
        *uses.entry(v).or_default() += 1;
    }
    let all_reduce = |v: ValueId| {
        let Def::Node(NodeId(node), _) = graph.value(v).def else { return None };
        let node = &graph.nodes[node as usize];
        match node.op {
            GraphOp::Collective { axis, kind: Collective::AllReduce } if uses[&v] == 1 => {
                Some((axis, node.tensor("self")?))
            }
            _ => None,
        }
    };
    let end = |(_, gradient): &(_, ValueId)| {
        let (mut value, mut axes) = (*gradient, Vec::new());
        while let Some((axis, before)) = all_reduce(value) {
            axes.insert(0, axis);
            value = before;
        }
        End { value, axes }
    };
    joint.gradients.iter().map(end).collect()
}

/// Adds gradient number `at`, of one micro-batch, to the step's: `value` itself, or this rank's piece where gradients are in
/// pieces from here on.
pub fn add_up(lower: &mut Lower, body: &mut Body, value: Value, at: usize, node: &Node) {
    let Gradient { sum, gradient, scattered, .. } = lower.gradients[at];
    let value = match scattered {
        Some(scattered) if scattered.early => {
            let ty = lower.program.ty(Value::Global(gradient)).clone();
            let piece = Value::Local(lower.local(ty, None));
            let instr = scatter(&mut lower.gradients[at], scattered, value, piece);
            let origin = lower.origin(node);
            body.instrs.push(Instr { origin, ..instr });
            piece
        }
        _ => value,
    };
    body.accumulate(lower, value, sum, node);
}

/// This rank's piece of what all have: of the sum, where there is one to take over the axis.
fn scatter(gradient: &mut Gradient, scattered: Scattered, whole: Value, piece: Value) -> Instr {
    let Scattered { axis, piece: split, .. } = scattered;
    let op = match gradient.reduced_over.iter().position(|over| *over == axis) {
        Some(at) => {
            gradient.reduced_over.remove(at);
            Op::Collective { axis, kind: Collective::ReduceScatter { dim: split.dim, groups: split.groups } }
        }
        None => Op::Part(split),
    };
    plain(op, vec![Arg::Value(whole)], vec![Some(piece)])
}

/// Reduces the gradients that need it, the last parameter's first: about as backward completes them.
pub fn lower(lower: &mut Lower) -> Function {
    let mut body = Vec::new();
    scatter_once(lower, &mut body);
    let mut groups: Vec<(&[u32], Vec<Value>)> = Vec::new();
    for gradient in lower.gradients.iter().rev() {
        let own = Value::Global(gradient.gradient);
        match groups.iter_mut().find(|(axes, _)| *axes == gradient.reduced_over) {
            Some((_, group)) => group.push(own),
            None => groups.push((&gradient.reduced_over, vec![own])),
        }
    }
    for (axes, group) in groups {
        for axis in axes {
            let op = Op::Collective { axis: *axis, kind: Collective::AllReduce };
            body.extend(group.iter().map(|own| plain(op.clone(), vec![Arg::Value(*own)], vec![Some(*own)])));
        }
    }
    let body = buckets::joined(&lower.program, body);
    Function { name: "reduction".to_owned(), kind: FunctionKind::Reduction, body }
}

/// This rank's pieces of the gradients that were added up whole.
fn scatter_once(lower: &mut Lower, body: &mut Vec<Instr>) {
    let (mut wholes, mut cut) = (Vec::new(), Vec::new());
    for at in (0..lower.gradients.len()).rev() {
        let Gradient { sum, gradient, scattered, .. } = lower.gradients[at];
        let Some(scattered) = scattered.filter(|_| sum != gradient) else { continue };
        let (sum, gradient) = (Value::Global(sum), Value::Global(gradient));
        wholes.push(Arg::Value(sum));
        let instr = scatter(&mut lower.gradients[at], scattered, sum, gradient);
        if matches!(instr.op, Op::Collective { .. }) {
            body.push(instr);
            continue;
        }
        // A view would keep the whole.
        let view = lower.local(lower.program.ty(gradient).clone(), Some(sum));
        cut.push(Instr { outs: vec![Some(Value::Local(view))], ..instr });
        let store = plain(Op::Store, vec![Arg::Value(Value::Local(view))], vec![Some(gradient)]);
        cut.push(Instr { free: vec![view], ..store });
    }
    body.extend(cut);
    if !wholes.is_empty() {
        body.push(plain(Op::Release, wholes, Vec::new()));
    }
}
