//! From global values to the parts of one axis: sizes in views and expansions, pieces of inputs and constants, collectives.

mod vocabulary;

use super::{Layout, Partial, Split, Sync, Typing, rules};
use crate::ir::ops::wrap;
use crate::ir::{Builder, arg};
use slapo_model::{Arg, Def, Graph, Node, Op, Type, ValueId};
use slapo_program::{Collective, piece};
use std::collections::BTreeMap;

/// Which part of the axis the graph is made for.
#[derive(Clone, Copy, Debug)]
pub enum Here<'s> {
    /// Whatever micro-batch is running.
    MicroBatch,
    /// The rank of that coordinate on a mesh axis, whose syncs are over `axis`.
    Rank { axis: usize, coordinate: i64, syncs: &'s [(usize, Sync)] },
}

/// The graph that one part of the axis runs, and the place in it of node `forward` of the whole one.
///
/// Inputs keep their whole types; what reads a piece of an input or a constant goes through [`Op::Part`]. Parameters are
/// held as they are split. Over micro-batches the loss and outputs keep their layouts: the caller adds them up.
pub fn partition(graph: &Graph, typing: &Typing, forward: usize, here: Here) -> (Graph, usize) {
    let mut local = Local { graph, typing, here, b: Builder::new(), map: BTreeMap::new(), pieces: BTreeMap::new() };
    for (i, value) in graph.values.iter().enumerate() {
        let id = ValueId(i as u32);
        let ty = match value.def {
            Def::Node(..) => continue,
            Def::Input(_) => value.ty.clone(),
            Def::Parameter(_) | Def::Buffer(_) => local.local_type(id),
        };
        let leaf = local.b.leaf(&value.name, ty, value.def);
        local.map.insert(id, leaf);
    }
    let mut border = 0;
    for (i, node) in graph.nodes.iter().enumerate() {
        if i == forward {
            border = local.b.graph.nodes.len();
        }
        local.node(i, node);
    }
    let mut out = local.b.graph;
    out.outputs = graph.outputs.iter().map(|v| local.map[v]).collect();
    out.loss = local.map[&graph.loss];
    (out, border)
}

struct Local<'a> {
    graph: &'a Graph,
    typing: &'a Typing,
    here: Here<'a>,
    b: Builder,
    map: BTreeMap<ValueId, ValueId>,
    /// Pieces already taken of a replicated value or an input.
    pieces: BTreeMap<(ValueId, Layout), ValueId>,
}

impl Local<'_> {
    fn node(&mut self, i: usize, node: &Node) {
        self.b.origin = node.origin;
        if let Some(results) = self.over_vocabulary(i, node) {
            return self.define(node, results);
        }
        // A rank's rows of an input are divided further where they are used.
        let stays_whole = self.is_whole_input(node);
        let mut args: Vec<(String, Arg)> = match stays_whole {
            true => node.reads().map(|v| arg("self", self.map[&v])).collect(),
            false => node.args.iter().map(|(name, arg)| (name.clone(), arg.reading(|v| self.operand(i, v)))).collect(),
        };
        let mut op = node.op.clone();
        match (&node.op, self.here) {
            // Of a part there may be one element where the whole has more: it would be squeezed.
            (Op::Aten(name), _) if name == "squeeze.dim" => self.reshape(node, &mut op, &mut args),
            (Op::Aten(name), _) => self.resize(name, node, &mut args),
            (Op::Sync { sync }, Here::Rank { axis, syncs, .. }) => op = self.collective(*sync, axis, syncs, node),
            (Op::StepSum, Here::Rank { axis, .. }) => self.reduce_count(axis, node, &mut args),
            (Op::Part { .. } | Op::Collective { .. }, _) if !stays_whole => self.keep_inside(&mut op, node),
            _ => {}
        }
        if self.typing.biased_once.contains(&i) {
            self.bias_once(&mut args);
        }
        if let Some(results) = self.exchange_groups(&op, node) {
            return self.define(node, results);
        }
        let results = node.outs.iter().map(|v| {
            v.map(|v| {
                let ty = if stays_whole { self.graph.ty(v).clone() } else { self.local_type(v) };
                (Some(self.graph.value(v).name.clone()), ty)
            })
        });
        let results = results.collect();
        let local = Node { op, args, outs: Vec::new(), origin: node.origin };
        let results = self.b.push(local, results);
        self.define(node, results);
    }

    fn define(&mut self, node: &Node, results: Vec<Option<ValueId>>) {
        for (old, new) in node.outs.iter().zip(results) {
            if let (Some(old), Some(new)) = (old, new) {
                self.map.insert(*old, new);
            }
        }
    }

    fn reshape(&self, node: &Node, op: &mut Op, args: &mut Vec<(String, Arg)>) {
        let Some(Some(out)) = node.outs.first() else { return };
        *op = Op::Aten("reshape".to_owned());
        args.retain(|(name, _)| name == "self");
        args.push(arg("shape", self.local_type(*out).shape));
    }

    /// Sizes in arguments, and borders of slices along the split dimension, which lie on borders of the parts.
    fn resize(&self, op: &str, node: &Node, args: &mut [(String, Arg)]) {
        let sized = match op {
            "reshape" => Some("shape"),
            "expand" => Some("size"),
            "slice_backward" => Some("input_sizes"),
            _ => None,
        };
        if let (Some(sized), Some(Some(out))) = (sized, node.outs.first()) {
            let shape = self.local_type(*out).shape;
            args.iter_mut().filter(|(name, _)| name == sized).for_each(|(_, arg)| *arg = Arg::Ints(shape.clone()));
        }
        if !matches!(op, "slice.Tensor" | "slice_backward") {
            return;
        }
        let source = node.tensor("self").or_else(|| node.tensor("grad_output"));
        let Some(dim) = source.and_then(|v| self.typing.of(v).split_dim()) else { return };
        let rank = source.map_or(0, |v| self.graph.ty(v).shape.len());
        let along = node.arg("dim").and_then(|arg| match arg {
            Arg::Int(d) => Some(wrap(*d, rank)),
            _ => None,
        });
        if along != Some(dim) {
            return;
        }
        for (name, value) in args {
            if let (true, Arg::Int(at)) = (name == "start" || name == "end", value) {
                *at /= self.typing.parts;
            }
        }
    }

    /// A sync of this axis as what ranks do; those of other axes stay for their own partition.
    fn collective(&self, number: u32, axis: usize, syncs: &[(usize, Sync)], node: &Node) -> Op {
        let from = node.tensor("self").map(|v| self.typing.of(v));
        let Some((_, sync)) = syncs.get(number as usize).filter(|(a, _)| *a == axis) else {
            return node.op.clone();
        };
        let Some(sync) = sync.chosen(from.unwrap_or(Layout::Replicated)) else {
            return Op::Border { gradient: Vec::new() };
        };
        let kind = match (sync, from) {
            (Sync::AllReduce, _) => Collective::AllReduce,
            (Sync::AllGather { .. }, Some(Split { dim, groups })) => Collective::AllGather { dim, groups },
            (Sync::ReduceScatter { dim, groups }, _) => Collective::ReduceScatter { dim, groups },
            (Sync::AllToAll { to, .. }, Some(Split { dim, groups })) => Collective::AllToAll { from: dim, groups, to },
            (Sync::Slice { dim, groups }, _) => return self.part(dim, groups),
            _ => return node.op.clone(),
        };
        Op::Collective { axis: axis as u32, kind }
    }

    /// An all-to-all sends stretches of a dimension. Where a rank's piece is one of each of several groups, these are a
    /// dimension of their own meanwhile.
    fn exchange_groups(&mut self, op: &Op, node: &Node) -> Option<Vec<Option<ValueId>>> {
        let Op::Collective { axis, kind: Collective::AllToAll { from, groups: sent, to } } = *op else { return None };
        let (read, out) = (node.tensor("self")?, (*node.outs.first()?)?);
        let Split { groups, .. } = self.typing.of(out) else { return None };
        if !matches!(node.op, Op::Sync { .. }) || groups == 1 {
            return None;
        }
        let apart = |shape: &[i64]| {
            let mut apart = shape.to_vec();
            apart.splice(to..=to, [groups, shape[to] / groups]);
            apart
        };
        let shifted = |dim: usize| if dim > to { dim + 1 } else { dim };
        let (before, after) = (self.local_type(read), self.local_type(out));
        let viewed = self.b.reshape(self.map[&read], apart(&before.shape));
        let kind = Collective::AllToAll { from: shifted(from), groups: sent, to: to + 1 };
        let ty = Type { shape: apart(&after.shape), ..after.clone() };
        let exchange = Node {
            op: Op::Collective { axis, kind },
            args: vec![arg("self", viewed)],
            outs: Vec::new(),
            origin: node.origin,
        };
        let moved = self.b.push(exchange, vec![Some((None, ty))])[0]?;
        Some(vec![Some(self.b.reshape(moved, after.shape))])
    }

    /// Pieces that an inner axis has of a dimension split here lie within this part's: in fewer groups.
    fn keep_inside(&self, op: &mut Op, node: &Node) {
        let Some(Split { dim, .. }) = node.tensor("self").map(|v| self.typing.of(v)) else { return };
        match op {
            Op::Part { dim: cut, groups, .. }
            | Op::Collective { kind: Collective::AllGather { dim: cut, groups }, .. }
            | Op::Collective { kind: Collective::ReduceScatter { dim: cut, groups }, .. }
            | Op::Collective { kind: Collective::AllToAll { from: cut, groups, .. }, .. }
                if *cut == dim =>
            {
                *groups /= self.typing.parts;
            }
            _ => {}
        }
    }

    /// A count over the step is one over all ranks that split the inputs.
    fn reduce_count(&mut self, axis: usize, node: &Node, args: &mut [(String, Arg)]) {
        let Some(count) = node.tensor("self").filter(|v| self.typing.of(*v) == Partial) else { return };
        if self.typing.parts == 1 {
            return;
        }
        let own = self.map[&count];
        let ty = self.b.ty(own).clone();
        let op = Op::Collective { axis: axis as u32, kind: Collective::AllReduce };
        let reduce = Node { op, args: vec![arg("self", own)], outs: Vec::new(), origin: node.origin };
        if let Some(sum) = self.b.push(reduce, vec![Some((None, ty))])[0] {
            args.iter_mut().for_each(|(_, arg)| *arg = Arg::Value(sum));
        }
    }

    /// The bias of a product that is summed over the ranks is added by the first of them; all run the same operators.
    fn bias_once(&mut self, args: &mut [(String, Arg)]) {
        let Here::Rank { coordinate, .. } = self.here else { return };
        let factor = if coordinate == 0 { 1.0 } else { 0.0 };
        let is_addmm = args.iter().any(|(name, _)| name == "mat1");
        for (_, value) in args.iter_mut().filter(|(name, _)| name == if is_addmm { "self" } else { "bias" }) {
            if let Arg::Value(bias) = value {
                *value = Arg::Value(self.b.scale(*bias, factor));
            }
        }
    }

    fn operand(&mut self, i: usize, v: ValueId) -> ValueId {
        let stored_whole = match self.graph.value(v).def {
            Def::Input(_) => true,
            Def::Node(node, _) => self.is_whole_input(self.graph.node(node)),
            _ => false,
        };
        let wanted = match self.typing.slices.get(&(i, v)) {
            Some(slice) => *slice,
            None if stored_whole => self.typing.of(v),
            None => return self.map[&v],
        };
        let Split { dim, groups } = wanted else { return self.map[&v] };
        if let Some(piece) = self.pieces.get(&(v, wanted)) {
            return *piece;
        }
        let whole = self.map[&v];
        let mut ty = self.graph.ty(v).clone();
        ty.shape[dim] = self.share(ty.shape[dim], groups);
        let args = vec![arg("self", whole)];
        let part = Node { op: self.part(dim, groups), args, outs: Vec::new(), origin: self.b.origin };
        let piece = self.b.push(part, vec![Some((None, ty))])[0].unwrap_or(whole);
        self.pieces.insert((v, wanted), piece);
        piece
    }

    /// Whether, over micro-batches, the node is a rank's piece of an input.
    fn is_whole_input(&self, node: &Node) -> bool {
        matches!(self.here, Here::MicroBatch) && rules::is_rows_of_input(self.graph, node)
    }

    fn part(&self, dim: usize, groups: i64) -> Op {
        let part = match self.here {
            Here::MicroBatch => None,
            Here::Rank { coordinate, .. } => Some(coordinate),
        };
        Op::Part { dim, groups, parts: self.typing.parts, part }
    }

    fn local_type(&self, v: ValueId) -> Type {
        let mut ty = self.graph.ty(v).clone();
        match self.typing.of(v) {
            Split { dim, groups } => ty.shape[dim] = self.share(ty.shape[dim], groups),
            Layout::Sections { dim, .. } => ty.shape[dim] /= self.typing.parts,
            Layout::Replicated | Partial => {}
        }
        ty
    }

    /// How many of a dimension's `size` elements are here.
    fn share(&self, size: i64, groups: i64) -> i64 {
        match self.here {
            Here::MicroBatch => size / self.typing.parts,
            Here::Rank { coordinate, .. } => piece(size / groups, self.typing.parts, coordinate).1 * groups,
        }
    }
}
