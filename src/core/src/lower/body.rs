//! A function's instructions under construction: slots, aliases and last uses.

use super::{Lower, plain, tensor_type};
use crate::ir::TABLE;
use crate::ir::ops::{self, Storage};
use slapo_model::{Arg as GraphArg, Node, Op as GraphOp, ValueId};
use slapo_program::{Arg, Function, FunctionKind, GlobalId, Instr, LocalId, Op, Part, Placement, Slot, Split, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Where the values of one micro-batch's frame lie.
#[derive(Default)]
pub struct Frame {
    values: BTreeMap<ValueId, Value>,
}

pub struct Body {
    pub frame: Frame,
    pub instrs: Vec<Instr>,
}

impl Frame {
    /// The slot of a graph value that has been computed or is a leaf.
    pub fn value(&self, lower: &Lower, id: ValueId) -> Value {
        match self.values.get(&id) {
            Some(value) => *value,
            None => Value::Global(lower.globals[&id]),
        }
    }
}

impl Body {
    pub fn new(frame: Frame) -> Body {
        Body { frame, instrs: Vec::new() }
    }

    /// Appends a graph node. Casts to the same type, borders and the syncs of a single rank are only marks: they get no
    /// instruction.
    pub fn node(&mut self, lower: &mut Lower, node: &Node) {
        if (node.is_aten("to.dtype") || matches!(node.op, GraphOp::Border { .. } | GraphOp::Sync { .. }))
            && let (Some(from), Some(Some(to))) = (node.tensor("self"), node.outs.first())
            && lower.graph().ty(from).dtype == lower.graph().ty(*to).dtype
        {
            let value = self.frame.value(lower, from);
            self.frame.values.insert(*to, value);
            return;
        }
        let mut args = Vec::new();
        let mut named = Vec::new();
        // Of a rerun operator, the gradients of its results stand behind its own arguments.
        let own = match node.op {
            GraphOp::Aten(_) => node.args.len(),
            GraphOp::Vjp { results, .. } => node.args.len() - results as usize,
            _ => 0,
        };
        for (i, (name, arg)) in node.args.iter().enumerate().filter(|(_, (name, _))| name != TABLE) {
            let arg = self.arg(lower, arg);
            if i >= own {
                args.push(arg);
            } else {
                named.push((name.clone(), arg));
            }
        }
        let op = match &node.op {
            GraphOp::Aten(name) => Op::Aten(format!("aten::{name}")),
            GraphOp::Dropout { site, p } => {
                let own = node.outs[0].map_or_else(Vec::new, |v| lower.graph().ty(v).shape.clone());
                let whole = Placement { global_shape: own, splits: Vec::new() };
                let placement = lower.target.placements.get(site).cloned().unwrap_or(whole);
                Op::Dropout { site: *site, p: *p, placement }
            }
            GraphOp::Vjp { op, results } => Op::Vjp { op: format!("aten::{op}"), results: *results },
            GraphOp::Part { dim, groups, parts, part } => {
                let part = part.map_or(Part::MicroBatch, Part::Rank);
                Op::Part(Split::even(*dim, *groups, *parts, part))
            }
            GraphOp::Collective { axis, kind } => Op::Collective { axis: *axis, kind: *kind },
            GraphOp::StepSum | GraphOp::Border { .. } | GraphOp::Sync { .. } => return,
        };
        let storage = match &node.op {
            GraphOp::Aten(name) => ops::row(name).map_or(Storage::Fresh, |row| row.storage),
            GraphOp::Part { dim: 0, groups: 1, .. } => Storage::View("self"),
            _ => Storage::Fresh,
        };
        let alias = match storage {
            Storage::View(from) | Storage::MaybeView(from) => node.tensor(from).map(|v| self.frame.value(lower, v)),
            Storage::Fresh => None,
        };
        let outs = node.outs.iter().map(|out| out.map(|v| self.define(lower, v, alias))).collect();
        let origin = lower.origin(node);
        self.instrs.push(Instr { op, args, named, outs, free: Vec::new(), origin });
    }

    fn arg(&self, lower: &Lower, arg: &GraphArg) -> Arg {
        match arg {
            GraphArg::None => Arg::None,
            GraphArg::Value(v) => Arg::Value(self.frame.value(lower, *v)),
            GraphArg::Values(vs) => Arg::Values(vs.iter().map(|v| v.map(|v| self.frame.value(lower, v))).collect()),
            GraphArg::Int(i) => Arg::Int(*i),
            GraphArg::Ints(v) => Arg::Ints(v.clone()),
            GraphArg::Float(x) => Arg::Float(*x),
            GraphArg::Floats(v) => Arg::Floats(v.clone()),
            GraphArg::Bool(b) => Arg::Bool(*b),
            GraphArg::Bools(v) => Arg::Bools(v.clone()),
            GraphArg::DType(d) => Arg::DType(*d),
            GraphArg::Str(s) => Arg::Str(s.clone()),
        }
    }

    fn define(&mut self, lower: &mut Lower, id: ValueId, alias: Option<Value>) -> Value {
        let (name, ty) = (lower.graph().value(id).name.clone(), tensor_type(lower.graph().ty(id)));
        lower.program.locals.push(Slot { name, ty, alias });
        let value = Value::Local(lower.program.locals.len() as LocalId - 1);
        self.frame.values.insert(id, value);
        value
    }

    /// `global += value`, over micro-batches.
    pub fn accumulate(&mut self, lower: &mut Lower, value: Value, global: GlobalId, node: &Node) {
        let origin = lower.origin(node);
        let instr = plain(Op::Accumulate, vec![Arg::Value(value)], vec![Some(Value::Global(global))]);
        self.instrs.push(Instr { origin, ..instr });
    }

    /// `global = value`.
    pub fn store(&mut self, value: Value, global: GlobalId) {
        self.instrs.push(plain(Op::Store, vec![Arg::Value(value)], vec![Some(Value::Global(global))]));
    }

    pub fn finish(self, name: &str, kind: FunctionKind) -> Function {
        let (body, _) = free_at_last_use(self.instrs, 0);
        Function { name: name.to_owned(), kind, body }
    }

    /// Splits the instructions of one frame into forward and backward; last uses are those of both together.
    pub fn finish_at(self, forward: usize) -> (Function, Function) {
        let (mut body, forward) = free_at_last_use(self.instrs, forward);
        let backward = body.split_off(forward);
        (
            Function { name: "forward".to_owned(), kind: FunctionKind::Forward, body },
            Function { name: "backward".to_owned(), kind: FunctionKind::Backward, body: backward },
        )
    }
}

/// Marks every local's last use and drops results, and whole instructions, that nothing reads. Also returns where the
/// instruction at `border` has moved to.
fn free_at_last_use(instrs: Vec<Instr>, border: usize) -> (Vec<Instr>, usize) {
    let mut later: BTreeSet<LocalId> = BTreeSet::new();
    let mut moved = border;
    let mut kept = Vec::with_capacity(instrs.len());
    for (i, mut instr) in instrs.into_iter().enumerate().rev() {
        for out in &mut instr.outs {
            if let Some(Value::Local(l)) = out
                && !later.contains(l)
            {
                *out = None;
            }
        }
        // Function bodies have no side effects but their results; the optimizer's in-place calls do not come through here.
        if !instr.outs.is_empty() && instr.outs.iter().all(Option::is_none) {
            moved -= usize::from(i < border);
            continue;
        }
        let mut free: Vec<LocalId> = instr
            .reads()
            .filter_map(|v| match v {
                Value::Local(l) if !later.contains(&l) => Some(l),
                _ => None,
            })
            .collect();
        free.sort_unstable();
        free.dedup();
        later.extend(&free);
        instr.free = free;
        kept.push(instr);
    }
    kept.reverse();
    (kept, moved)
}
