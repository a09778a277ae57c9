//! A graph as text: one line a node, for snapshots and for reading.
//!
//! `%add: f32[8, 64, 256] = add.Tensor(self: %a, other: %b)  # transformer.h.0`. Inputs come first, then nodes in order,
//! then what is returned. A module called more than once is marked `path@call`.

use crate::graph::{Arg, Graph, Node, Op, Type, Value, ValueId};
use crate::model::{Model, ScopeId};
use crate::sym::Size;
use std::fmt::{self, Display};

/// Displays a graph of `model`.
pub struct Listing<'a, I> {
    model: &'a Model,
    graph: &'a Graph<I>,
}

impl<'a> Listing<'a, Size> {
    /// The graph as imported.
    pub fn of(model: &'a Model) -> Listing<'a, Size> {
        Listing::new(model, &model.graph)
    }
}

impl<'a, I: Display> Listing<'a, I> {
    /// A graph made from `model`'s.
    pub fn new(model: &'a Model, graph: &'a Graph<I>) -> Listing<'a, I> {
        Listing { model, graph }
    }

    fn name(&self, id: ValueId) -> &str {
        self.graph.values.get(id.0 as usize).map_or("?", |value| &value.name)
    }

    fn names(&self, ids: &[ValueId]) -> String {
        let names: Vec<String> = ids.iter().map(|id| format!("%{}", self.name(*id))).collect();
        names.join(", ")
    }

    fn node(&self, f: &mut fmt::Formatter<'_>, node: &Node<I>) -> fmt::Result {
        for (i, out) in node.outs.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            match out.and_then(|id| self.graph.values.get(id.0 as usize)) {
                Some(value) => f.write_str(&typed(value))?,
                None => f.write_str("_")?,
            }
        }
        write!(f, " = {}(", operator(&node.op))?;
        for (i, (name, arg)) in node.args.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{name}: ")?;
            self.arg(f, arg)?;
        }
        f.write_str(")")?;
        match self.scope(node.origin.scope) {
            scope if scope.is_empty() => writeln!(f),
            scope => writeln!(f, "  # {scope}"),
        }
    }

    fn arg(&self, f: &mut fmt::Formatter<'_>, arg: &Arg<I>) -> fmt::Result {
        match arg {
            Arg::None => f.write_str("None"),
            Arg::Value(id) => write!(f, "%{}", self.name(*id)),
            Arg::Values(ids) => list(f, ids, |id| match id {
                Some(id) => format!("%{}", self.name(*id)),
                None => "None".to_string(),
            }),
            Arg::Int(value) => write!(f, "{value}"),
            Arg::Ints(values) => list(f, values, I::to_string),
            Arg::Float(value) => write!(f, "{value:?}"),
            Arg::Floats(values) => list(f, values, |value| format!("{value:?}")),
            Arg::Bool(value) => write!(f, "{value}"),
            Arg::Bools(values) => list(f, values, bool::to_string),
            Arg::DType(dtype) => write!(f, "{dtype}"),
            Arg::Str(text) => write!(f, "{text:?}"),
        }
    }

    fn scope(&self, id: ScopeId) -> String {
        let Some(scope) = self.model.scopes.get(id.0 as usize) else {
            return String::new();
        };
        let path = &self.model.module(scope.module).path;
        match scope.call {
            0 => path.clone(),
            call => format!("{path}@{call}"),
        }
    }
}

impl<I: Display> Display for Listing<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for input in &self.graph.inputs {
            if let Some(value) = self.graph.values.get(input.0 as usize) {
                writeln!(f, "input {}", typed(value))?;
            }
        }
        for node in &self.graph.nodes {
            self.node(f, node)?;
        }
        writeln!(f, "return {}", self.names(&self.graph.outputs))?;
        writeln!(f, "loss %{}", self.name(self.graph.loss))
    }
}

/// `%x: f32[8, 64]`
pub fn typed<I: Display>(value: &Value<I>) -> String {
    format!("%{}: {}", value.name, value.ty)
}

fn operator(op: &Op) -> String {
    match op {
        Op::Aten(name) => name.clone(),
        Op::Dropout { site, p } => format!("dropout#{site}[p={p:?}]"),
        Op::Vjp { op, results } => format!("vjp[{op}, {results}]"),
        Op::Border { gradient } if gradient.is_empty() => "border".to_string(),
        Op::Border { gradient } => format!("border[gradient: {gradient:?}]"),
        Op::Sync { sync } => format!("sync#{sync}"),
        Op::StepSum => "step_sum".to_string(),
        Op::Part { dim, groups, parts, part: None } => format!("part[dim {dim}, groups {groups}, of {parts}]"),
        Op::Part { dim, groups, parts, part: Some(part) } => {
            format!("part[dim {dim}, groups {groups}, {part} of {parts}]")
        }
        Op::Collective { axis, kind } => format!("{kind:?}[axis {axis}]"),
    }
}

fn list<T>(f: &mut fmt::Formatter<'_>, items: &[T], show: impl Fn(&T) -> String) -> fmt::Result {
    let items: Vec<String> = items.iter().map(show).collect();
    write!(f, "[{}]", items.join(", "))
}

/// `f32[8, 64, s70]`
impl<I: Display> Display for Type<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dtype)?;
        list(f, &self.shape, I::to_string)
    }
}
