//! Layouts: how the parts of one axis store a global value.
//!
//! Every node of the joint graph denotes a global value. A [`Layout`] says, for one axis, how its parts hold it: all of
//! it, a piece of one dimension, or a summand. Soundness is local to each rule of the table: inputs held as stated, the
//! operator run on the parts, and the result is held as stated. Micro-batches of one rank are such an axis; their
//! collectives are accumulations over time.

mod guess;
mod held;
mod listing;
mod nesting;
mod partition;
mod rules;
mod sections;
mod syncs;
mod view;

pub use held::{Held, Holdings, first_piece, forward};
pub use listing::listing;
pub use nesting::{Crossing, nesting};
pub use partition::{Here, partition};
pub use view::cut;

use slapo_model::{Def, Graph, Node, Op, ValueId};
use slapo_program::Sections;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How the `n` parts of an axis hold a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    /// Each part has all of it.
    Replicated,
    /// Dimension `dim` of size N seen as `groups × n × N/(groups·n)`; a part owns one index of the middle factor.
    Split { dim: usize, groups: i64 },
    /// Dimension `dim` as sections that are not of one size, of each of which a part owns its piece.
    Sections { dim: usize, sections: Sections },
    /// The value is the sum over the parts.
    Partial,
}

pub use Layout::{Partial, Replicated, Split};

impl Layout {
    /// The dimension of which a part has a piece.
    pub fn split_dim(self) -> Option<usize> {
        match self {
            Split { dim, .. } | Layout::Sections { dim, .. } => Some(dim),
            Replicated | Partial => None,
        }
    }
}

/// A collective over one axis: the identity on global values, a change of layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sync {
    /// P → R
    AllReduce,
    /// S(any) → R; a stated dimension must be the split one.
    AllGather { dim: Option<usize> },
    /// P → S(dim, groups)
    ReduceScatter { dim: usize, groups: i64 },
    /// S(from, g) → S(to, groups)
    AllToAll { from: usize, to: usize, groups: i64 },
    /// R → S(dim, groups), without communication.
    Slice { dim: usize, groups: i64 },
    /// Any → this layout, by the collective that leads there ([`Sync::chosen`]).
    Become(Layout),
}

impl fmt::Display for Sync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sync::AllReduce => f.write_str("all_reduce"),
            Sync::AllGather { dim: None } => f.write_str("all_gather"),
            Sync::AllGather { dim: Some(dim) } => write!(f, "all_gather({dim})"),
            Sync::ReduceScatter { dim, groups: 1 } => write!(f, "reduce_scatter({dim})"),
            Sync::ReduceScatter { dim, groups } => write!(f, "reduce_scatter({dim}, groups: {groups})"),
            Sync::AllToAll { from, to, groups: 1 } => write!(f, "all_to_all({from}, {to})"),
            Sync::AllToAll { from, to, groups } => write!(f, "all_to_all({from}, {to}, groups: {groups})"),
            Sync::Slice { dim, groups: 1 } => write!(f, "slice({dim})"),
            Sync::Slice { dim, groups } => write!(f, "slice({dim}, groups: {groups})"),
            Sync::Become(Split { dim, groups: 1 }) => write!(f, "layout(shard({dim}))"),
            Sync::Become(Split { dim, groups }) => write!(f, "layout(shard({dim}, groups: {groups}))"),
            Sync::Become(_) => f.write_str("layout(replicate)"),
        }
    }
}

impl Sync {
    /// What becomes of a value held as `from`; `None` where the sync does not fit.
    pub fn apply(self, from: Layout) -> Option<Layout> {
        match (self, from) {
            (Sync::AllReduce, Partial) => Some(Replicated),
            (Sync::AllGather { dim }, Split { dim: d, .. }) if dim.is_none_or(|dim| dim == d) => Some(Replicated),
            (Sync::ReduceScatter { dim, groups }, Partial) => Some(Split { dim, groups }),
            (Sync::AllToAll { from, to, groups }, Split { dim, .. }) if dim == from => Some(Split { dim: to, groups }),
            (Sync::Slice { dim, groups }, Replicated) => Some(Split { dim, groups }),
            (Sync::Become(to), _) if to == from || self.chosen(from).is_some() => Some(to),
            _ => None,
        }
    }

    /// The collective that a sync is on a value held as `from`; for a layout that was asked for the one that leads there,
    /// `None` where nothing is to be done, or nothing leads there.
    pub fn chosen(self, from: Layout) -> Option<Sync> {
        match (self, from) {
            (Sync::Become(to), _) if to == from => None,
            (Sync::Become(Replicated), Partial) => Some(Sync::AllReduce),
            (Sync::Become(Replicated), Split { .. }) => Some(Sync::AllGather { dim: None }),
            (Sync::Become(Split { dim, groups }), Partial) => Some(Sync::ReduceScatter { dim, groups }),
            (Sync::Become(Split { dim, groups }), Replicated) => Some(Sync::Slice { dim, groups }),
            (Sync::Become(Split { dim: to, groups }), Split { dim: from, .. }) if from != to => {
                Some(Sync::AllToAll { from, to, groups })
            }
            (Sync::Become(_), _) => None,
            (sync, _) => Some(sync),
        }
    }

    /// What it takes, in words.
    pub fn takes(self) -> &'static str {
        match self {
            Sync::AllReduce | Sync::ReduceScatter { .. } => "a partial sum",
            Sync::AllGather { .. } | Sync::AllToAll { .. } => "a split value",
            Sync::Slice { .. } => "a replicated value",
            Sync::Become(_) => "a value from which a collective leads there",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Replicated => f.write_str("R"),
            Split { dim, groups: 1 } => write!(f, "S({dim})"),
            Split { dim, groups } => write!(f, "S({dim}, groups {groups})"),
            Layout::Sections { dim, sections } => write!(f, "S({dim}, sections {sections:?})"),
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
    /// Nodes whose product is a partial sum, to which the first part alone adds the bias.
    pub biased_once: BTreeSet<usize>,
    /// By value number: the node at which a partial sum arose.
    pub origins: Vec<Option<usize>>,
    /// By value number: what made its layout other than replicated.
    pub causes: Vec<Option<Cause>>,
}

/// What decided a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A parameter, buffer or input that is held so.
    Leaf(Def),
    /// A sync, by number.
    Sync(u32),
}

impl Typing {
    pub fn of(&self, value: ValueId) -> Layout {
        self.values[value.0 as usize]
    }
}

/// One axis, with the syncs of the graph's [`slapo_model::Op::Sync`] nodes: the axis each is over, and what it does.
#[derive(Clone, Copy, Debug)]
pub struct OnAxis<'s> {
    pub parts: i64,
    /// The mesh axis' number, `None` for micro-batches; of other axes' syncs this one sees nothing.
    pub axis: Option<usize>,
    pub syncs: &'s [(usize, Sync)],
}

impl OnAxis<'_> {
    /// Whether the sync of that number is one of this axis.
    fn is_over(&self, sync: u32) -> bool {
        self.syncs.get(sync as usize).is_some_and(|(axis, _)| Some(*axis) == self.axis)
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
    /// Where the partial sum among the operands arose.
    pub origin: Option<usize>,
    /// What made the operands' layouts.
    pub causes: Vec<Cause>,
}

/// Types every value of `graph` over `parts` micro-batches; `leaf` gives the layout of parameters,
/// buffers and inputs.
pub fn infer(graph: &Graph, parts: i64, leaf: impl Fn(Def) -> Layout) -> Result<Typing, Vec<Refusal>> {
    infer_on(graph, OnAxis { parts, axis: None, syncs: &[] }, leaf)
}

/// Types every value of `graph` on one axis.
///
/// One mistake gives one refusal: what reads a refused node's results is not reported again, and of several nodes that
/// meet the same partial sum only the first is.
pub fn infer_on(graph: &Graph, on: OnAxis, leaf: impl Fn(Def) -> Layout) -> Result<Typing, Vec<Refusal>> {
    infer_or(graph, on, leaf, |_, _, _| None)
}

/// As [`infer_on`], but a refused node goes on as what its parts would literally compute, where that has a layout: for
/// tests that run what the rules refuse.
#[doc(hidden)]
pub fn guess_on(graph: &Graph, on: OnAxis, leaf: impl Fn(Def) -> Layout) -> Result<Typing, Vec<Refusal>> {
    infer_or(graph, on, leaf, |node, typing, sliceable| guess::outcome(graph, node, typing, sliceable, on))
}

/// `otherwise` may decide about a node that the rules refuse.
fn infer_or(
    graph: &Graph,
    on: OnAxis,
    leaf: impl Fn(Def) -> Layout,
    otherwise: impl Fn(&Node, &Typing, &[bool]) -> Option<rules::Outcome>,
) -> Result<Typing, Vec<Refusal>> {
    let n = graph.values.len();
    let mut typing = Typing {
        parts: on.parts,
        values: vec![Replicated; n],
        slices: BTreeMap::new(),
        biased_once: BTreeSet::new(),
        origins: vec![None; n],
        causes: vec![None; n],
    };
    let mut broken = vec![false; n];
    let mut refusals: Vec<Refusal> = Vec::new();
    let sliceable = rules::sliceable(graph);
    for (i, value) in graph.values.iter().enumerate() {
        if !matches!(value.def, Def::Node(..)) {
            typing.values[i] = leaf(value.def);
            typing.causes[i] = (typing.values[i] != Replicated).then_some(Cause::Leaf(value.def));
        }
    }
    for (i, node) in graph.nodes.iter().enumerate() {
        if node.reads().any(|v| broken[v.0 as usize]) {
            node.outs.iter().flatten().for_each(|v| broken[v.0 as usize] = true);
            continue;
        }
        let verdict = rules::apply(graph, node, &typing, &sliceable, on);
        match verdict.or_else(|refusal| otherwise(node, &typing, &sliceable).ok_or(refusal)) {
            Ok(outcome) => typing.keep(i, node, outcome, on),
            Err(mut refusal) => {
                refusal.node = i;
                refusal.operands = operands(node, &typing);
                refusal.origin = node.reads().find_map(|v| typing.origins[v.0 as usize]);
                refusal.causes = causes(node, &typing);
                let known = refusals.iter().any(|r| r.origin.is_some() && r.origin == refusal.origin);
                if !known {
                    refusals.push(refusal);
                }
                node.outs.iter().flatten().for_each(|v| broken[v.0 as usize] = true);
            }
        }
    }
    if refusals.is_empty() { Ok(typing) } else { Err(refusals) }
}

impl Typing {
    fn keep(&mut self, i: usize, node: &Node, outcome: rules::Outcome, on: OnAxis) {
        for (v, layout) in outcome.slices {
            self.slices.insert((i, v), layout);
        }
        if outcome.biased_once {
            self.biased_once.insert(i);
        }
        let inherited = node.reads().find_map(|v| self.origins[v.0 as usize]);
        let cause = match node.op {
            Op::Sync { sync } if on.is_over(sync) => Some(Cause::Sync(sync)),
            _ => node.reads().find_map(|v| self.causes[v.0 as usize]),
        };
        for (out, layout) in node.outs.iter().zip(outcome.results) {
            if let Some(out) = out.map(|v| v.0 as usize) {
                self.values[out] = layout;
                self.origins[out] = (layout == Partial).then_some(inherited.unwrap_or(i));
                self.causes[out] = cause.filter(|_| layout != Replicated);
            }
        }
    }
}

fn operands(node: &Node, typing: &Typing) -> Vec<(String, Layout)> {
    let named = node.args.iter().filter_map(|(name, _)| node.tensor(name).map(|v| (name.clone(), typing.of(v))));
    named.collect()
}

fn causes(node: &Node, typing: &Typing) -> Vec<Cause> {
    let mut causes: Vec<Cause> = node.reads().filter_map(|v| typing.causes[v.0 as usize]).collect();
    causes.sort_unstable();
    causes.dedup();
    causes
}
