//! Layouts: how the parts of one axis store a global value.
//!
//! Every node of the joint graph denotes a global value. A [`Layout`] says, for one axis, how its parts hold it: all of
//! it, a piece of one dimension, or a summand. Soundness is local to each rule of the table: inputs held as stated, the
//! operator run on the parts, and the result is held as stated. Micro-batches of one rank are such an axis; their
//! collectives are accumulations over time.

mod partition;
mod rules;
mod view;

pub use partition::partition;

use slapo_model::{Def, Graph, Node, ValueId};
use std::collections::BTreeMap;
use std::fmt;

/// How the `n` parts of an axis hold a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    /// Each part has all of it.
    Replicated,
    /// Dimension `dim` of size N seen as `groups × n × N/(groups·n)`; a part owns one index of the middle factor.
    Split { dim: usize, groups: i64 },
    /// The value is the sum over the parts.
    Partial,
}

pub use Layout::{Partial, Replicated, Split};

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Replicated => f.write_str("R"),
            Split { dim, groups: 1 } => write!(f, "S({dim})"),
            Split { dim, groups } => write!(f, "S({dim}, groups {groups})"),
            Partial => f.write_str("P"),
        }
    }
}

/// Layouts of one graph on one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Typing {
    /// The axis' size.
    pub parts: i64,
    /// By value number. Values behind a refused node count as replicated.
    pub values: Vec<Layout>,
    /// Operands that a node reads as a piece of a replicated value: free slices.
    pub slices: BTreeMap<(usize, ValueId), Layout>,
}

impl Typing {
    pub fn of(&self, value: ValueId) -> Layout {
        self.values[value.0 as usize]
    }
}

/// A node that no rule accepts.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// Number of the node in the graph.
    pub node: usize,
    pub reason: String,
    /// Layouts of the tensor operands, by argument name.
    pub operands: Vec<(String, Layout)>,
    /// Axis sizes that would be legal, where the rule knows.
    pub legal: Vec<i64>,
}

/// Types every value of `graph` on an axis of `parts`; `leaf` gives the layout of parameters, buffers and inputs.
///
/// One mistake gives one refusal: what reads a refused node's results is not reported again.
pub fn infer(graph: &Graph, parts: i64, leaf: impl Fn(Def) -> Layout) -> Result<Typing, Vec<Refusal>> {
    let mut typing = Typing { parts, values: vec![Replicated; graph.values.len()], slices: BTreeMap::new() };
    let mut broken = vec![false; graph.values.len()];
    let mut refusals = Vec::new();
    let sliceable = rules::sliceable(graph);
    for (i, value) in graph.values.iter().enumerate() {
        if !matches!(value.def, Def::Node(..)) {
            typing.values[i] = leaf(value.def);
        }
    }
    for (i, node) in graph.nodes.iter().enumerate() {
        if node.reads().any(|v| broken[v.0 as usize]) {
            node.outs.iter().flatten().for_each(|v| broken[v.0 as usize] = true);
            continue;
        }
        match rules::apply(graph, node, &typing, &sliceable) {
            Ok(outcome) => {
                for (v, layout) in outcome.slices {
                    typing.slices.insert((i, v), layout);
                }
                for (out, layout) in node.outs.iter().zip(outcome.results) {
                    if let Some(out) = out {
                        typing.values[out.0 as usize] = layout;
                    }
                }
            }
            Err(mut refusal) => {
                refusal.node = i;
                refusal.operands = operands(node, &typing);
                refusals.push(refusal);
                node.outs.iter().flatten().for_each(|v| broken[v.0 as usize] = true);
            }
        }
    }
    if refusals.is_empty() { Ok(typing) } else { Err(refusals) }
}

fn operands(node: &Node, typing: &Typing) -> Vec<(String, Layout)> {
    let named = node.args.iter().filter_map(|(name, _)| node.tensor(name).map(|v| (name.clone(), typing.of(v))));
    named.collect()
}
