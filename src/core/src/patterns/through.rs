//! What may stand between two operators of a pattern without being one: nodes that change nothing, casts, reshapes.
//!
//! * A node that gives back its operand as it is, such as `contiguous` or a view of the same shape, and two transposes that
//!   cancel, may stand anywhere.
//! * A cast between floating types may stand in front of an operator. To a wider type it changes no value. To a narrower one
//!   it rounds, which the pattern does not say: it is passed only where it undoes a wider one of the same match, as in a
//!   norm that is computed in float32 and goes back to bfloat16. Casts from or to anything else are operators.
//! * A reshape that keeps the last dimension may stand in front of an operator that computes every row by itself: it
//!   changes how rows are counted, and none of them.

use super::operators::{Given, Seen};
use slapo_model::sym::Size;
use slapo_model::{Arg, Def, Graph, Node, NodeId, ValueId};
use slapo_program::DType;

/// What was looked through.
#[derive(Default)]
pub struct Passed {
    pub nodes: Vec<NodeId>,
    /// Casts to a narrower type among them.
    pub narrowed: Vec<NodeId>,
}

/// A cast between two floating types.
pub struct Cast {
    pub from: ValueId,
    pub to: DType,
    pub is_wider: bool,
}

/// Operators that compute every element, or every row of the last dimension, by itself.
const BY_ROW: [&str; 20] = [
    "abs", "add", "cos", "div", "dropout", "erf", "exp", "gelu", "log", "mul", "neg", "pow", "relu", "rsqrt",
    "sigmoid", "silu", "sin", "sqrt", "sub", "tanh",
];
/// Those that do so along the last dimension, if that is the one they are asked for.
const ALONG: [&str; 3] = ["mean", "softmax", "sum"];

/// Whether an operator computes its operand `at` row by row.
pub fn is_by_row(seen: &Seen, at: usize) -> bool {
    let name = seen.operator.name;
    let is_last = || {
        let dims = seen.given.iter().find_map(|given| if let Given::Dims(dims) = given { Some(dims) } else { None });
        dims.is_some_and(|dims| dims.as_slice() == [seen.rank as i64 - 1])
    };
    match name {
        "layer_norm" | "linear" => at == 0,
        "addmm" => at == 1,
        _ if BY_ROW.contains(&name) => at < 2,
        _ => ALONG.contains(&name) && at == 0 && is_last(),
    }
}

/// The operand of a node that gives it back as it is, with a node between the two that it undoes.
pub fn unchanged(graph: &Graph<Size>, node: &Node<Size>) -> Option<(ValueId, Option<NodeId>)> {
    const NAMES: [&str; 13] = [
        "_to_copy",
        "_unsafe_view",
        "alias",
        "clone",
        "contiguous",
        "expand",
        "flatten.using_ints",
        "reshape",
        "slice.Tensor",
        "to.device",
        "to.dtype",
        "to.dtype_layout",
        "view",
    ];
    let (from, to) = (node.tensor("self")?, (*node.outs.first()?)?);
    if NAMES.contains(&node.name()) && graph.ty(from) == graph.ty(to) {
        return Some((from, None));
    }
    let Def::Node(id, 0) = graph.value(from).def else { return None };
    let (inner, swaps) = (graph.node(id), swapped(graph, node)?);
    (swapped(graph, inner)? == swaps).then_some((inner.tensor("self")?, Some(id)))
}

/// The two dimensions that a transpose swaps, from the front, the smaller first.
fn swapped(graph: &Graph<Size>, node: &Node<Size>) -> Option<[i64; 2]> {
    if !node.is_aten("transpose.int") {
        return None;
    }
    let rank = graph.ty(node.tensor("self")?).shape.len() as i64;
    let dim = |name: &str| match node.arg(name) {
        Some(Arg::Int(dim)) => dim.constant().map(|dim| if dim < 0 { dim + rank } else { dim }),
        _ => None,
    };
    let (a, b) = (dim("dim0")?, dim("dim1")?);
    Some([a.min(b), a.max(b)])
}

/// A cast between two floating types of different width.
pub fn cast(graph: &Graph<Size>, node: &Node<Size>) -> Option<Cast> {
    const NAMES: [&str; 4] = ["_to_copy", "to.device", "to.dtype", "to.dtype_layout"];
    let from = NAMES.contains(&node.name()).then(|| node.tensor("self")).flatten()?;
    let (narrow, to) = (graph.ty(from).dtype, graph.ty((*node.outs.first()?)?).dtype);
    let is_cast = narrow.is_float() && to.is_float() && narrow.bytes() != to.bytes();
    is_cast.then(|| Cast { from, to, is_wider: to.bytes() > narrow.bytes() })
}

/// The operand of a reshape that keeps the last dimension, so that rows are only counted otherwise.
pub fn reshaped(graph: &Graph<Size>, node: &Node<Size>) -> Option<ValueId> {
    const NAMES: [&str; 4] = ["_unsafe_view", "flatten.using_ints", "reshape", "view"];
    let from = NAMES.contains(&node.name()).then(|| node.tensor("self")).flatten()?;
    let (old, new) = (&graph.ty(from).shape, &graph.ty((*node.outs.first()?)?).shape);
    (old.last().is_some() && old.last() == new.last()).then_some(from)
}
