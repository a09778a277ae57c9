//! The calls of a module computed by other operators, which come from another archive.
//!
//! A [`Splice`] is written for one graph: its nodes read that graph's values, and what leaves a call keeps its number, its
//! name and its type. Whether it is right to put it in is not asked here.

use slapo_model::sym::Size;
use slapo_model::{Graph, Model, Node, ScopeId, Value};

/// What stands in place of the calls of a module.
#[derive(Clone, Debug, PartialEq)]
pub struct Splice {
    pub calls: Vec<SplicedCall>,
    /// Values that are added to those of the graph, in the order of their numbers.
    pub values: Vec<Value<Size>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SplicedCall {
    /// The call; calls inside of it are gone.
    pub scope: ScopeId,
    /// In topological order.
    pub nodes: Vec<Node<Size>>,
}

/// Puts the nodes where those of the calls were. Values do not know their nodes yet.
pub fn splice(model: &Model, graph: &mut Graph<Size>, splice: &Splice) {
    graph.values.extend(splice.values.iter().cloned());
    for call in &splice.calls {
        let is_inside = |node: &Node<Size>| model.is_inside(node.origin.scope, call.scope);
        let at = graph.nodes.iter().position(is_inside).unwrap_or(graph.nodes.len());
        graph.nodes.retain(|node| !is_inside(node));
        graph.nodes.splice(at..at, call.nodes.iter().cloned());
    }
}
