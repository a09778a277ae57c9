//! Writes a graph node by node, with result types from the operator table.

use crate::ir::ops::{self, Call};
use slapo_model::{Arg, Def, Graph, Node, NodeId, Op, Origin, Type, Value, ValueId};
use slapo_program::DType;

/// A graph under construction. Values keep their ids; names of new values are made unique by their number.
pub struct Builder {
    pub graph: Graph,
    /// What new nodes are attributed to.
    pub origin: Origin,
}

/// A named argument.
pub fn arg(name: &str, value: impl Into<Operand>) -> (String, Arg) {
    (name.to_owned(), value.into().0)
}

/// Anything that converts to an argument.
pub struct Operand(Arg);

macro_rules! operand {
    ($($from:ty => $variant:expr;)*) => {
        $(impl From<$from> for Operand {
            fn from(value: $from) -> Operand {
                Operand($variant(value))
            }
        })*
    };
}

operand! {
    ValueId => Arg::Value;
    i64 => Arg::Int;
    Vec<i64> => Arg::Ints;
    f64 => Arg::Float;
    bool => Arg::Bool;
    Vec<bool> => Arg::Bools;
    DType => Arg::DType;
    String => Arg::Str;
    Arg => std::convert::identity;
}

impl From<Option<ValueId>> for Operand {
    fn from(value: Option<ValueId>) -> Operand {
        Operand(value.map_or(Arg::None, Arg::Value))
    }
}

impl Builder {
    /// An empty graph.
    pub fn new() -> Builder {
        Builder { graph: Graph::default(), origin: Origin::default() }
    }

    /// Goes on writing `graph` behind its last node.
    pub fn resume(graph: Graph) -> Builder {
        Builder { graph, origin: Origin::default() }
    }

    /// A parameter, buffer or input.
    pub fn leaf(&mut self, name: &str, ty: Type, def: Def) -> ValueId {
        let id = ValueId(self.graph.values.len() as u32);
        self.graph.values.push(Value { name: name.to_owned(), ty, def });
        if matches!(def, Def::Input(_)) {
            self.graph.inputs.push(id);
        }
        id
    }

    /// Adds a node whose result types are known; a name of `None` is made from the operator.
    pub fn push(&mut self, node: Node, results: Vec<Option<(Option<String>, Type)>>) -> Vec<Option<ValueId>> {
        let at = NodeId(self.graph.nodes.len() as u32);
        let mut node = node;
        node.outs = results
            .into_iter()
            .enumerate()
            .map(|(i, result)| {
                result.map(|(name, ty)| {
                    let id = ValueId(self.graph.values.len() as u32);
                    let name = name.unwrap_or_else(|| fresh_name(&node, id));
                    self.graph.values.push(Value { name, ty, def: Def::Node(at, i as u32) });
                    id
                })
            })
            .collect();
        let outs = node.outs.clone();
        self.graph.nodes.push(node);
        outs
    }

    /// Adds an ATen operator of the table; its results, all of them typed by the table's row.
    pub fn op(&mut self, name: &'static str, args: Vec<(String, Arg)>) -> Vec<ValueId> {
        let node = Node { op: Op::Aten(name.to_owned()), args, outs: Vec::new(), origin: self.origin };
        let row = ops::row(name).unwrap_or_else(|| panic!("`{name}` has no row in the operator table"));
        let types = (row.infer)(&Call { graph: &self.graph, node: &node })
            .unwrap_or_else(|| panic!("`{name}` does not accept {:?}", node.args));
        let results = types.into_iter().map(|ty| Some((None, ty))).collect();
        self.push(node, results).into_iter().flatten().collect()
    }

    /// Like [`Builder::op`] for operators with one result.
    pub fn one(&mut self, name: &'static str, args: Vec<(String, Arg)>) -> ValueId {
        self.op(name, args)[0]
    }

    pub fn ty(&self, value: ValueId) -> &Type {
        self.graph.ty(value)
    }

    pub fn shape(&self, value: ValueId) -> Vec<i64> {
        self.graph.ty(value).shape.clone()
    }

    pub fn unary(&mut self, name: &'static str, x: ValueId) -> ValueId {
        self.one(name, vec![arg("self", x)])
    }

    pub fn binary(&mut self, name: &'static str, a: ValueId, b: ValueId) -> ValueId {
        self.one(name, vec![arg("self", a), arg("other", b)])
    }

    pub fn scale(&mut self, x: ValueId, factor: f64) -> ValueId {
        self.one("mul.Scalar", vec![arg("self", x), arg("other", factor)])
    }

    pub fn mm(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.one("mm", vec![arg("self", a), arg("mat2", b)])
    }

    pub fn transpose(&mut self, x: ValueId, a: i64, b: i64) -> ValueId {
        self.one("transpose.int", vec![arg("self", x), arg("dim0", a), arg("dim1", b)])
    }

    /// The same elements in another shape; no node where the shape is the same.
    pub fn reshape(&mut self, x: ValueId, shape: Vec<i64>) -> ValueId {
        if self.ty(x).shape == shape {
            return x;
        }
        self.one("reshape", vec![arg("self", x), arg("shape", shape)])
    }

    pub fn cast(&mut self, x: ValueId, dtype: DType) -> ValueId {
        if self.ty(x).dtype == dtype {
            return x;
        }
        self.one("to.dtype", vec![arg("self", x), arg("dtype", dtype)])
    }

    /// The same value behind a sync.
    pub fn sync(&mut self, x: ValueId, sync: u32) -> ValueId {
        let ty = self.ty(x).clone();
        let node = Node { op: Op::Sync { sync }, args: vec![arg("self", x)], outs: Vec::new(), origin: self.origin };
        self.push(node, vec![Some((None, ty))])[0].unwrap_or(x)
    }

    pub fn sum_dims(&mut self, x: ValueId, dims: Vec<i64>, keepdim: bool) -> ValueId {
        self.one("sum.dim_IntList", vec![arg("self", x), arg("dim", dims), arg("keepdim", keepdim)])
    }

    /// Undoes broadcasting: sums `x` down to `shape`.
    pub fn sum_to(&mut self, x: ValueId, shape: &[i64]) -> ValueId {
        let from = self.shape(x);
        let lead = from.len() - shape.len();
        let dims: Vec<i64> = (0..from.len())
            .filter(|i| *i < lead || (shape[*i - lead] == 1 && from[*i] != 1))
            .map(|i| i as i64)
            .collect();
        let summed = if dims.is_empty() { x } else { self.sum_dims(x, dims, true) };
        self.reshape(summed, shape.to_vec())
    }
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

fn fresh_name(node: &Node, id: ValueId) -> String {
    let base = node.name().split('.').next().unwrap_or("value").trim_start_matches('_');
    format!("{base}.{}", id.0)
}
