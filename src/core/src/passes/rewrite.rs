//! What a schedule puts in place of operators of the imported graph.
//!
//! A rewrite names values. The value that leaves what is rewritten keeps its number, its name and its type, so whatever
//! reads it goes on doing so; values that are computed no more stay in the list without a node. The same rewrites in the
//! same order give the same numbers. Sizes are bound afterwards.

use crate::passes::splice::{self, Splice};
use crate::patterns::innermost;
use slapo_model::sym::Size;
use slapo_model::{Arg, Def, Graph, Model, Node, NodeId, Op, Origin, Value, ValueId};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub enum Rewrite {
    /// One operator computes `result` instead of the nodes that compute `values`.
    Replace {
        values: Vec<ValueId>,
        result: ValueId,
        /// An ATen operator with its overload.
        operator: String,
        args: Vec<(String, Arg)>,
        step: u32,
    },
    /// The linear layer that computes `result` becomes a product and the addition of its bias.
    Decompose { result: ValueId, step: u32 },
    /// Other operators compute what leaves the calls of a module.
    Splice(Arc<Splice>),
}

/// The graph after `rewrite`.
pub fn rewrite(model: &Model, graph: &Graph<Size>, rewrite: &Rewrite) -> Graph<Size> {
    let mut graph = graph.clone();
    match rewrite {
        Rewrite::Replace { values, result, operator, args, step } => {
            let is_replaced = |node: &Node<Size>| node.outs.iter().flatten().any(|out| values.contains(out));
            let scopes = graph.nodes.iter().filter(|node| is_replaced(node)).map(|node| node.origin.scope);
            let scope = innermost(model, scopes);
            let mut nodes = Vec::with_capacity(graph.nodes.len());
            for node in std::mem::take(&mut graph.nodes) {
                if node.outs.contains(&Some(*result)) {
                    let origin = Origin { scope, step: Some(*step), ..node.origin };
                    let args = args.iter().map(|(name, arg)| (name.clone(), sized(arg))).collect();
                    nodes.push(Node { op: Op::Aten(operator.clone()), args, outs: vec![Some(*result)], origin });
                } else if !is_replaced(&node) {
                    nodes.push(node);
                }
            }
            graph.nodes = nodes;
        }
        Rewrite::Decompose { result, step } => {
            let at = graph.nodes.iter().position(|node| node.outs.contains(&Some(*result)));
            if let Some(at) = at
                && let Some(bias) = bias(&graph.nodes[at])
            {
                let product = ValueId(graph.values.len() as u32);
                let name = format!("{}.product", graph.value(*result).name);
                let ty = graph.ty(*result).clone();
                graph.values.push(Value { name, ty, def: Def::Node(NodeId(at as u32), 0) });
                let origin = Origin { step: Some(*step), ..graph.nodes[at].origin };
                let add = Node {
                    op: Op::Aten("add.Tensor".to_owned()),
                    args: vec![("self".to_owned(), Arg::Value(product)), ("other".to_owned(), Arg::Value(bias))],
                    outs: vec![Some(*result)],
                    origin,
                };
                let linear = &graph.nodes[at];
                let product = Node { outs: vec![Some(product)], origin, ..without_bias(linear) };
                graph.nodes.splice(at..=at, [product, add]);
            }
        }
        Rewrite::Splice(splice) => splice::splice(model, &mut graph, splice),
    }
    renumber(&mut graph);
    graph
}

/// The bias that a node adds to a product of matrices, if it does nothing else.
pub fn bias<I>(node: &Node<I>) -> Option<ValueId> {
    match node.name() {
        "linear" => node.tensor("bias"),
        "addmm" if node.arg("alpha").is_none() && node.arg("beta").is_none() => node.tensor("self"),
        _ => None,
    }
}

fn without_bias<I: Clone>(node: &Node<I>) -> Node<I> {
    let renamed = |name: &str| if name == "mat1" { "self".to_owned() } else { name.to_owned() };
    let is_addmm = node.is_aten("addmm");
    let kept = node.args.iter().filter(|(name, _)| name != if is_addmm { "self" } else { "bias" });
    Node {
        op: Op::Aten(if is_addmm { "mm" } else { "linear" }.to_owned()),
        args: kept.map(|(name, arg)| (if is_addmm { renamed(name) } else { name.clone() }, arg.clone())).collect(),
        outs: node.outs.clone(),
        origin: node.origin,
    }
}

fn sized(arg: &Arg) -> Arg<Size> {
    match arg {
        Arg::None => Arg::None,
        Arg::Value(value) => Arg::Value(*value),
        Arg::Values(values) => Arg::Values(values.clone()),
        Arg::Int(n) => Arg::Int(Size::Const(*n)),
        Arg::Ints(all) => Arg::Ints(all.iter().map(|n| Size::Const(*n)).collect()),
        Arg::Float(x) => Arg::Float(*x),
        Arg::Floats(all) => Arg::Floats(all.clone()),
        Arg::Bool(b) => Arg::Bool(*b),
        Arg::Bools(all) => Arg::Bools(all.clone()),
        Arg::DType(dtype) => Arg::DType(*dtype),
        Arg::Str(text) => Arg::Str(text.clone()),
    }
}

/// Gives every value the place of the node that computes it.
fn renumber<I>(graph: &mut Graph<I>) {
    let Graph { nodes, values, .. } = graph;
    for (at, node) in nodes.iter().enumerate() {
        for (result, out) in node.outs.iter().enumerate() {
            if let Some(out) = out {
                values[out.0 as usize].def = Def::Node(NodeId(at as u32), result as u32);
            }
        }
    }
}
