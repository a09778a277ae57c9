//! The operator graph in SSA form.
//!
//! A [`Graph`] is generic in what a size is: [`crate::sym::Size`] as imported, `i64` once the input's sizes are bound.
//! Nodes stand in topological order; passes do not edit a graph, they write a new one. Every value has one
//! definition; a node's arguments are kept by the operator schema's names, what is absent takes the schema's default.

use crate::model::{BufferId, ParameterId, ScopeId, SourceId};
use slapo_program::{Collective, DType};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Operators in SSA form over values of sizes `I`.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph<I = i64> {
    pub values: Vec<Value<I>>,
    /// In topological order.
    pub nodes: Vec<Node<I>>,
    /// Values of the model's inputs, in the order of [`crate::Model::inputs`].
    pub inputs: Vec<ValueId>,
    /// What the model returns, in order; after import the loss is a separate field.
    pub outputs: Vec<ValueId>,
    /// The first scalar floating output.
    pub loss: ValueId,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Value<I = i64> {
    /// Unique in the graph; the archive's own name where it has one.
    pub name: String,
    pub ty: Type<I>,
    pub def: Def,
}

/// Element type and shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Type<I = i64> {
    pub dtype: DType,
    pub shape: Vec<I>,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Def {
    Parameter(ParameterId),
    /// A buffer or a constant tensor of the archive.
    Buffer(BufferId),
    /// Index into [`Graph::inputs`].
    Input(u32),
    /// A node's result of that number.
    Node(NodeId, u32),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node<I = i64> {
    pub op: Op,
    /// By the schema's argument names, in the schema's order.
    pub args: Vec<(String, Arg<I>)>,
    /// One per result, lists flattened; `None` where nothing uses it.
    pub outs: Vec<Option<ValueId>>,
    pub origin: Origin,
}

/// Where in the model and the schedule a node comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    pub scope: ScopeId,
    pub source: Option<SourceId>,
    /// The schedule's step that made the node, if one did.
    pub step: Option<u32>,
    /// The set of nodes that a pattern found and the compiler treats as one, by a number of the compiler's own.
    pub group: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// An ATen operator with its overload, without name space: `add.Tensor`, `linear` (default overload).
    Aten(String),
    /// `self · mask / (1 − p)`; the mask depends on the seed, the step, the site and the global element index only.
    /// Sites number the random nodes of the imported graph.
    Dropout { site: u32, p: f64 },
    /// The sum of the scalar `self`, which depends on inputs only, over all micro-batches of the step: a count of valid
    /// tokens. Known before the first forward.
    StepSum,
    /// One part's piece of the whole value `self`: dimension `dim` seen as `groups × parts × rest`. `part` is a rank's
    /// coordinate; `None` the running micro-batch.
    Part { dim: usize, groups: i64, parts: i64, part: Option<i64> },
    /// What the ranks of a mesh axis do together with their own `self`s.
    Collective { axis: u32, kind: Collective },
    /// The border of a module's call: the identity. The gradient that passes it goes through the syncs of these numbers.
    Border { gradient: Vec<u32> },
    /// The identity on global values; changes how one axis of the mesh holds them. Numbers a list of the compiler's own.
    Sync { sync: u32 },
    /// Gradients of `op` by running it again under autograd; results follow the operator's tensor arguments.
    /// Arguments are the operator's own and `grad_0`, `grad_1`, … per result (absent: zero).
    Vjp { op: String, results: u32 },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Arg<I = i64> {
    None,
    Value(ValueId),
    Values(Vec<Option<ValueId>>),
    Int(I),
    Ints(Vec<I>),
    Float(f64),
    Floats(Vec<f64>),
    Bool(bool),
    Bools(Vec<bool>),
    DType(DType),
    Str(String),
}

impl<I> Default for Graph<I> {
    /// No node and no value: not even a loss.
    fn default() -> Graph<I> {
        Graph { values: Vec::new(), nodes: Vec::new(), inputs: Vec::new(), outputs: Vec::new(), loss: ValueId(0) }
    }
}

impl<I> Graph<I> {
    pub fn value(&self, id: ValueId) -> &Value<I> {
        &self.values[id.0 as usize]
    }

    pub fn ty(&self, id: ValueId) -> &Type<I> {
        &self.value(id).ty
    }

    pub fn node(&self, id: NodeId) -> &Node<I> {
        &self.nodes[id.0 as usize]
    }

    /// The node that defines `id`, unless it is a parameter, a buffer or an input.
    pub fn definition(&self, id: ValueId) -> Option<&Node<I>> {
        match self.value(id).def {
            Def::Node(node, _) => Some(self.node(node)),
            _ => None,
        }
    }
}

impl<I: Clone> Arg<I> {
    /// The same argument, reading other values.
    pub fn reading(&self, mut instead: impl FnMut(ValueId) -> ValueId) -> Arg<I> {
        match self {
            Arg::Value(v) => Arg::Value(instead(*v)),
            Arg::Values(vs) => Arg::Values(vs.iter().map(|v| v.map(&mut instead)).collect()),
            other => other.clone(),
        }
    }
}

impl<I> Node<I> {
    pub fn arg(&self, name: &str) -> Option<&Arg<I>> {
        self.args.iter().find(|(n, _)| n == name).map(|(_, arg)| arg)
    }

    /// The tensor argument of that name, if it is given and not `None`.
    pub fn tensor(&self, name: &str) -> Option<ValueId> {
        match self.arg(name) {
            Some(Arg::Value(v)) => Some(*v),
            _ => None,
        }
    }

    /// Every value the node reads, in argument order.
    pub fn reads(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.args.iter().flat_map(|(_, arg)| {
            let (one, many): (Option<ValueId>, &[Option<ValueId>]) = match arg {
                Arg::Value(v) => (Some(*v), &[]),
                Arg::Values(vs) => (None, vs),
                _ => (None, &[]),
            };
            one.into_iter().chain(many.iter().copied().flatten())
        })
    }

    /// The operator's name without name space, for messages and tables.
    pub fn name(&self) -> &str {
        match &self.op {
            Op::Aten(name) => name,
            Op::Dropout { .. } => "dropout",
            Op::StepSum => "step_sum",
            Op::Part { .. } => "part",
            Op::Collective { .. } => "collective",
            Op::Border { .. } => "border",
            Op::Sync { .. } => "sync",
            Op::Vjp { op, .. } => op,
        }
    }

    pub fn is_aten(&self, name: &str) -> bool {
        matches!(&self.op, Op::Aten(n) if n == name)
    }
}
