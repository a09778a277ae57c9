//! The reduction function: gradients that ranks hold as partial sums, reduced once a step.
//!
//! An all-reduce at the end of backward commutes with the sum over micro-batches. So what is added up is the partial
//! gradient, and the ranks send it once, in buckets, after the last micro-batch. Read [`ends`] first.

use super::body::Body;
use super::{Gradient, Lower, Scattered, plain};
use crate::passes::autodiff::Joint;
use slapo_model::{Def, Node, NodeId, Op as GraphOp, ValueId};
use slapo_program::{Arg, Collective, Function, FunctionKind, Instr, Op, Value};
use std::collections::BTreeMap;

/// A bucket is full when it has so many bytes: few enough calls to hide their latency, small enough to be no burden to
/// memory. That of PyTorch's `DistributedDataParallel`.
const BUCKET: u64 = 25 << 20;

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
    for at in (0..lower.gradients.len()).rev() {
        scatter_once(lower, at, &mut body);
    }
    let mut buckets: Vec<Bucket> = Vec::new();
    for gradient in lower.gradients.iter().rev() {
        if gradient.reduced_over.is_empty() {
            continue;
        }
        let ty = lower.program.ty(Value::Global(gradient.gradient));
        let takes = |bucket: &&mut Bucket| {
            bucket.bytes < BUCKET
                && bucket.axes == gradient.reduced_over
                && lower.program.ty(bucket.gradients[0]).dtype == ty.dtype
        };
        let own = Value::Global(gradient.gradient);
        match buckets.iter_mut().rev().find(takes) {
            Some(bucket) => {
                bucket.gradients.push(own);
                bucket.bytes += ty.bytes();
            }
            None => buckets.push(Bucket { axes: &gradient.reduced_over, gradients: vec![own], bytes: ty.bytes() }),
        }
    }
    body.extend(buckets.iter().flat_map(Bucket::instructions));
    Function { name: "reduction".to_owned(), kind: FunctionKind::Reduction, body }
}

/// This rank's piece of a gradient that was added up whole.
fn scatter_once(lower: &mut Lower, at: usize, body: &mut Vec<Instr>) {
    let Gradient { sum, gradient, scattered, .. } = lower.gradients[at];
    let Some(scattered) = scattered.filter(|_| sum != gradient) else { return };
    let (sum, gradient) = (Value::Global(sum), Value::Global(gradient));
    let ty = lower.program.ty(gradient).clone();
    let piece = lower.local(ty, None);
    body.push(scatter(&mut lower.gradients[at], scattered, sum, Value::Local(piece)));
    body.push(plain(Op::Release, vec![Arg::Value(sum)], Vec::new()));
    let store = plain(Op::Store, vec![Arg::Value(Value::Local(piece))], vec![Some(gradient)]);
    body.push(Instr { free: vec![piece], ..store });
}

/// Gradients that travel together.
struct Bucket<'g> {
    axes: &'g [u32],
    gradients: Vec<Value>,
    bytes: u64,
}

impl Bucket<'_> {
    fn instructions(&self) -> impl Iterator<Item = Instr> + '_ {
        self.axes.iter().map(|axis| {
            let op = Op::Collective { axis: *axis, kind: Collective::AllReduce };
            let args = self.gradients.iter().map(|gradient| Arg::Value(*gradient)).collect();
            plain(op, args, self.gradients.iter().map(|gradient| Some(*gradient)).collect())
        })
    }
}
