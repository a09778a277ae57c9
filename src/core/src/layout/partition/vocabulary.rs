//! Operators over a vocabulary that the ranks of an axis share, written as operators of one rank's entries.
//!
//! A rank has the entries `offset .. offset + size`. Ids are counted from its first one; those outside are masked. All
//! ranks run the same operators, those without any entries too.

use super::Local;
use crate::ir::ops::{Call, wrap};
use crate::ir::{TABLE, arg};
use crate::layout::{Here, Split};
use slapo_model::{Arg, Node, Op, ValueId};
use slapo_program::{Collective, DType, piece};

/// One rank's entries, of a vocabulary of `whole`.
#[derive(Clone, Copy)]
struct Entries {
    whole: i64,
    offset: i64,
    size: i64,
}

impl Local<'_> {
    /// The results of a node that runs over a vocabulary split on this axis; `None` for any other node.
    pub(super) fn over_vocabulary(&mut self, i: usize, node: &Node) -> Option<Vec<Option<ValueId>>> {
        let result = match node.name() {
            "embedding" => self.embedding(i, node, self.entries(node, "weight", Some(0))?)?,
            "embedding_dense_backward" => self.embedding_backward(i, node, self.entries(node, TABLE, Some(0))?)?,
            "_log_softmax" => self.log_softmax(i, node, self.entries(node, "self", self.softmax_dim(node, "self"))?)?,
            "_log_softmax_backward_data" => {
                self.entries(node, "output", self.softmax_dim(node, "output"))?;
                self.log_softmax_backward(i, node)?
            }
            "nll_loss_forward" => {
                let own = self.entries(node, "self", Some(1))?;
                return self.nll_loss(i, node, own);
            }
            "nll_loss_backward" => {
                let local = self.with_own_targets(i, node, self.entries(node, "self", Some(1))?)?;
                return Some(self.push_as(node, local));
            }
            _ => return None,
        };
        Some(vec![Some(result)])
    }

    /// This rank's entries, if the operand `name` is split along `dim`.
    fn entries(&self, node: &Node, name: &str, dim: Option<usize>) -> Option<Entries> {
        let Here::Rank { coordinate, .. } = self.here else { return None };
        let v = node.tensor(name)?;
        match self.typing.of(v) {
            Split { dim: split, .. } if Some(split) == dim && self.typing.parts > 1 => {
                let whole = self.graph.ty(v).shape[split];
                let (offset, size) = piece(whole, self.typing.parts, coordinate);
                Some(Entries { whole, offset, size })
            }
            _ => None,
        }
    }

    /// Rows of ids that are not this rank's are zero.
    fn embedding(&mut self, i: usize, node: &Node, own: Entries) -> Option<ValueId> {
        let table = self.operand(i, node.tensor("weight")?);
        let table = self.never_empty(table, 0, 0.0, own);
        let ids = self.operand(i, node.tensor("indices")?);
        let (ids, outside) = self.own_ids(ids, own, 0);
        let rows = self.b.one("embedding", vec![arg("weight", table), arg("indices", ids)]);
        let outside = self.b.one("unsqueeze", vec![arg("self", outside), arg("dim", -1i64)]);
        Some(self.b.one("masked_fill.Scalar", vec![arg("self", rows), arg("mask", outside), arg("value", 0.0)]))
    }

    /// Ids that are not this rank's count as padding, whose gradient is zero.
    fn embedding_backward(&mut self, i: usize, node: &Node, own: Entries) -> Option<ValueId> {
        let padding = self.call(node).int("padding_idx").unwrap_or(-1) - own.offset;
        let gradient = self.operand(i, node.tensor("grad_output")?);
        let ids = self.operand(i, node.tensor("indices")?);
        let (ids, _) = self.own_ids(ids, own, padding);
        let args = vec![
            arg("grad_output", gradient),
            arg("indices", ids),
            arg("num_weights", own.size),
            arg("padding_idx", padding),
            arg("scale_grad_by_freq", false),
        ];
        Some(self.b.one("embedding_dense_backward", args))
    }

    /// `x − max − log Σ exp(x − max)`, in this order, with half types computed in fp32.
    fn log_softmax(&mut self, i: usize, node: &Node, own: Entries) -> Option<ValueId> {
        let (x, dim) = (node.tensor("self")?, self.softmax_dim(node, "self")?);
        let x = self.operand(i, x);
        let dtype = self.b.ty(x).dtype;
        let x = self.b.cast(x, dtype.max(DType::F32));
        let some = self.never_empty(x, dim, f64::NEG_INFINITY, own);
        let largest = self.b.one("amax", along(some, dim));
        let largest = self.collective_of(Collective::AllReduceMax, largest);
        let shifted = self.b.binary("sub.Tensor", x, largest);
        let powers = self.b.unary("exp", shifted);
        let sum = self.b.one("sum.dim_IntList", along(powers, dim));
        let sum = self.collective_of(Collective::AllReduce, sum);
        let log = self.b.unary("log", sum);
        let result = self.b.binary("sub.Tensor", shifted, log);
        Some(self.b.cast(result, dtype))
    }

    /// `g − exp(y) · Σ g`
    fn log_softmax_backward(&mut self, i: usize, node: &Node) -> Option<ValueId> {
        let (gradient, dim) = (node.tensor("grad_output")?, self.softmax_dim(node, "output")?);
        let dtype = self.graph.ty((*node.outs.first()?)?).dtype;
        let wide = dtype.max(DType::F32);
        let y = self.operand(i, node.tensor("output")?);
        let (g, y) = (self.operand(i, gradient), self.b.cast(y, wide));
        let g = self.b.cast(g, wide);
        let sum = match self.sum_of_targets(gradient) {
            Some(sum) => self.b.cast(sum, wide),
            None => {
                let sum = self.b.one("sum.dim_IntList", along(g, dim));
                self.collective_of(Collective::AllReduce, sum)
            }
        };
        let powers = self.b.unary("exp", y);
        let share = self.b.binary("mul.Tensor", powers, sum);
        let result = self.b.binary("sub.Tensor", g, share);
        Some(self.b.cast(result, dtype))
    }

    /// The sum over the classes of the loss' own gradient, which is one number per token and known without the other
    /// ranks: minus the gradient of the loss at valid targets.
    fn sum_of_targets(&mut self, gradient: ValueId) -> Option<ValueId> {
        let loss = self.graph.definition(gradient).filter(|node| node.is_aten("nll_loss_backward"))?;
        let ignored = self.call(loss).int("ignore_index")?;
        let (seed, target) = (self.map[&loss.tensor("grad_output")?], self.map[&loss.tensor("target")?]);
        let valid = self.b.one("ne.Scalar", vec![arg("self", target), arg("other", ignored)]);
        let dtype = self.b.ty(seed).dtype;
        let valid = self.b.cast(valid, dtype);
        let sum = self.b.binary("mul.Tensor", valid, seed);
        let sum = self.b.unary("neg", sum);
        Some(self.b.one("unsqueeze", vec![arg("self", sum), arg("dim", 1i64)]))
    }

    /// Every rank adds up the targets that are its own.
    fn nll_loss(&mut self, i: usize, node: &Node, own: Entries) -> Option<Vec<Option<ValueId>>> {
        let local = self.with_own_targets(i, node, own)?;
        let sums = self.push_as(node, local);
        Some(sums.into_iter().map(|v| v.map(|v| self.collective_of(Collective::AllReduce, v))).collect())
    }

    /// The arguments of a loss or its backward, in which targets that are not this rank's are ignored.
    fn with_own_targets(&mut self, i: usize, node: &Node, own: Entries) -> Option<Vec<(String, Arg)>> {
        let ignored = self.call(node).int("ignore_index")? - own.offset;
        let target = self.operand(i, node.tensor("target")?);
        let (target, _) = self.own_ids(target, own, ignored);
        let local = node.args.iter().map(|(name, value)| match name.as_str() {
            "target" => arg(name, target),
            "ignore_index" => arg(name, ignored),
            _ => (name.clone(), value.reading(|v| self.operand(i, v))),
        });
        Some(local.collect())
    }

    /// Ids counted from this rank's first entry, `instead` where they are another's, and where that is.
    fn own_ids(&mut self, ids: ValueId, own: Entries, instead: i64) -> (ValueId, ValueId) {
        let ids = self.b.one("sub.Scalar", vec![arg("self", ids), arg("other", own.offset)]);
        let below = self.b.one("lt.Scalar", vec![arg("self", ids), arg("other", 0i64)]);
        let above = self.b.one("ge.Scalar", vec![arg("self", ids), arg("other", own.size)]);
        let outside = self.b.binary("logical_or", below, above);
        let args = vec![arg("self", ids), arg("mask", outside), arg("value", instead)];
        (self.b.one("masked_fill.Scalar", args), outside)
    }

    /// Some rank of a vocabulary smaller than the axis has no entries, which not every operator takes: all append one.
    fn never_empty(&mut self, x: ValueId, dim: usize, value: f64, own: Entries) -> ValueId {
        if own.whole >= self.typing.parts {
            return x;
        }
        let mut ty = self.b.ty(x).clone();
        ty.shape[dim] = 1;
        let entry = vec![arg("size", ty.shape), arg("fill_value", value), arg("dtype", ty.dtype)];
        let entry = self.b.one("full", entry);
        let tensors = Arg::Values(vec![Some(x), Some(entry)]);
        self.b.one("cat", vec![arg("tensors", tensors), arg("dim", dim as i64)])
    }

    fn call<'n>(&'n self, node: &'n Node) -> Call<'n> {
        Call { graph: self.graph, node }
    }

    fn softmax_dim(&self, node: &Node, of: &str) -> Option<usize> {
        let rank = self.graph.ty(node.tensor(of)?).shape.len();
        self.call(node).int("dim").map(|dim| wrap(dim, rank))
    }

    fn collective_of(&mut self, kind: Collective, x: ValueId) -> ValueId {
        let Here::Rank { axis, .. } = self.here else { return x };
        let (op, ty) = (Op::Collective { axis: axis as u32, kind }, self.b.ty(x).clone());
        let node = Node { op, args: vec![arg("self", x)], outs: Vec::new(), origin: self.b.origin };
        self.b.push(node, vec![Some((None, ty))])[0].unwrap_or(x)
    }

    /// The node with other arguments; results of this rank's types.
    fn push_as(&mut self, node: &Node, args: Vec<(String, Arg)>) -> Vec<Option<ValueId>> {
        let results = node.outs.iter().map(|v| v.map(|v| (None, self.local_type(v)))).collect();
        self.b.push(Node { op: node.op.clone(), args, outs: Vec::new(), origin: node.origin }, results)
    }
}

/// Arguments of a reduction along one dimension, which stays with size 1.
fn along(x: ValueId, dim: usize) -> Vec<(String, Arg)> {
    vec![arg("self", x), arg("dim", vec![dim as i64]), arg("keepdim", true)]
}
