//! From global values to the parts of one axis: sizes in views and expansions, pieces of inputs and constants.

use super::{Layout, Split, Typing};
use crate::ir::{Builder, arg};
use slapo_model::{Arg, Def, Graph, Node, Op, Type, ValueId};
use std::collections::BTreeMap;

/// The graph that one part of the axis runs, and the place in it of node `forward` of the whole one.
///
/// Parameters, buffers and inputs keep their global types; what reads a piece of an input or a constant goes through
/// [`Op::Part`]. The loss and outputs keep their layouts: the caller reduces them.
pub fn partition(graph: &Graph, typing: &Typing, forward: usize) -> (Graph, usize) {
    let mut local = Local { graph, typing, b: Builder::new(), map: BTreeMap::new(), pieces: BTreeMap::new() };
    for (i, value) in graph.values.iter().enumerate() {
        if !matches!(value.def, Def::Node(..)) {
            let leaf = local.b.leaf(&value.name, value.ty.clone(), value.def);
            local.map.insert(ValueId(i as u32), leaf);
        }
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
    b: Builder,
    map: BTreeMap<ValueId, ValueId>,
    /// Pieces already taken of a replicated value or an input.
    pieces: BTreeMap<(ValueId, Layout), ValueId>,
}

impl Local<'_> {
    fn node(&mut self, i: usize, node: &Node) {
        self.b.origin = node.origin;
        let mut args: Vec<(String, Arg)> =
            node.args.iter().map(|(name, arg)| (name.clone(), self.arg(i, arg))).collect();
        if let (Op::Aten(op), Some(Some(out))) = (&node.op, node.outs.first()) {
            let sized = match op.as_str() {
                "reshape" => Some("shape"),
                "expand" => Some("size"),
                "slice_backward" => Some("input_sizes"),
                _ => None,
            };
            let shape = self.local_type(*out).shape;
            for (name, value) in &mut args {
                if Some(name.as_str()) == sized {
                    *value = Arg::Ints(shape.clone());
                }
            }
            if matches!(op.as_str(), "slice.Tensor" | "slice_backward") {
                self.shift(node, &mut args);
            }
        }
        let results =
            node.outs.iter().map(|v| v.map(|v| (Some(self.graph.value(v).name.clone()), self.local_type(v)))).collect();
        let local = Node { op: node.op.clone(), args, outs: Vec::new(), origin: node.origin };
        for (old, new) in node.outs.iter().zip(self.b.push(local, results)) {
            if let (Some(old), Some(new)) = (old, new) {
                self.map.insert(*old, new);
            }
        }
    }

    /// A slice along the split dimension begins and ends on borders of the parts: divide.
    fn shift(&self, node: &Node, args: &mut [(String, Arg)]) {
        let source = node.tensor("self").or_else(|| node.tensor("grad_output"));
        let Some(Layout::Split { dim, .. }) = source.map(|v| self.typing.of(v)) else { return };
        let rank = source.map_or(0, |v| self.graph.ty(v).shape.len());
        let along = args.iter().find(|(n, _)| n == "dim").and_then(|(_, a)| match a {
            Arg::Int(d) => Some(crate::ir::ops::wrap(*d, rank)),
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

    fn arg(&mut self, i: usize, arg: &Arg) -> Arg {
        match arg {
            Arg::Value(v) => Arg::Value(self.operand(i, *v)),
            Arg::Values(vs) => Arg::Values(vs.iter().map(|v| v.map(|v| self.operand(i, v))).collect()),
            other => other.clone(),
        }
    }

    fn operand(&mut self, i: usize, v: ValueId) -> ValueId {
        let stored_whole = matches!(self.graph.value(v).def, Def::Input(_));
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
        ty.shape[dim] /= self.typing.parts;
        let part = Node {
            op: Op::Part { dim, groups, parts: self.typing.parts },
            args: vec![arg("self", whole)],
            outs: Vec::new(),
            origin: self.b.origin,
        };
        let piece = self.b.push(part, vec![Some((None, ty))])[0].unwrap_or(whole);
        self.pieces.insert((v, wanted), piece);
        piece
    }

    fn local_type(&self, v: ValueId) -> Type {
        let mut ty = self.graph.ty(v).clone();
        if let Split { dim, .. } = self.typing.of(v) {
            ty.shape[dim] /= self.typing.parts;
        }
        ty
    }
}
