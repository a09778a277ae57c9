//! Removal of what no output depends on.

use crate::ir::Builder;
use slapo_model::{Def, Graph, Node, ValueId};
use std::collections::BTreeMap;

/// `graph` with only the nodes that its outputs and loss need. Parameters, buffers and inputs stay.
pub fn prune(graph: &Graph) -> Graph {
    let live = live_nodes(graph);
    let mut copy = Copy::new(graph);
    for (node, _) in graph.nodes.iter().zip(&live).filter(|(_, live)| **live) {
        copy.node(node);
    }
    copy.finish()
}

fn live_nodes(graph: &Graph) -> Vec<bool> {
    let mut live = vec![false; graph.nodes.len()];
    let mark = |v: ValueId, live: &mut Vec<bool>| {
        if let Def::Node(node, _) = graph.value(v).def {
            live[node.0 as usize] = true;
        }
    };
    graph.outputs.iter().chain([&graph.loss]).for_each(|v| mark(*v, &mut live));
    for i in (0..graph.nodes.len()).rev() {
        if live[i] {
            graph.nodes[i].reads().for_each(|v| mark(v, &mut live));
        }
    }
    live
}

/// Copies nodes of one graph into a new one, renumbering values.
pub struct Copy<'g> {
    old: &'g Graph,
    pub b: Builder,
    pub map: BTreeMap<ValueId, ValueId>,
}

impl<'g> Copy<'g> {
    /// Begins with the parameters, buffers and inputs of `old`.
    pub fn new(old: &'g Graph) -> Copy<'g> {
        let (mut b, mut map) = (Builder::new(), BTreeMap::new());
        for (i, value) in old.values.iter().enumerate() {
            if !matches!(value.def, Def::Node(..)) {
                map.insert(ValueId(i as u32), b.leaf(&value.name, value.ty.clone(), value.def));
            }
        }
        Copy { old, b, map }
    }

    /// Copies `node`, reading values through `map` and recording its results there.
    pub fn node(&mut self, node: &Node) {
        let inputs = node.reads().map(|v| (v, self.map[&v])).collect();
        self.named(node, &inputs);
    }

    /// As [`Copy::node`], reading values through `inputs`; results keep their names.
    pub fn named(&mut self, node: &Node, inputs: &BTreeMap<ValueId, ValueId>) {
        let names = node.outs.iter().map(|v| v.map(|v| self.old.value(v).name.clone())).collect();
        let outs = self.again(node, inputs, names);
        for (old, new) in node.outs.iter().zip(outs) {
            if let (Some(old), Some(new)) = (old, new) {
                self.map.insert(*old, new);
            }
        }
    }

    /// Copies `node` reading values through `inputs`; fresh names where `names` has none.
    pub fn again(
        &mut self,
        node: &Node,
        inputs: &BTreeMap<ValueId, ValueId>,
        names: Vec<Option<String>>,
    ) -> Vec<Option<ValueId>> {
        let args = node.args.iter().map(|(name, arg)| (name.clone(), arg.reading(|v| inputs[&v]))).collect();
        let results = node.outs.iter().zip(names).map(|(v, name)| v.map(|v| (name, self.old.ty(v).clone()))).collect();
        let copied = Node { op: node.op.clone(), args, outs: Vec::new(), origin: node.origin };
        self.b.push(copied, results)
    }

    /// The new graph, with outputs and loss carried over.
    pub fn finish(self) -> Graph {
        let mut graph = self.b.graph;
        graph.outputs = self.old.outputs.iter().map(|v| self.map[v]).collect();
        graph.loss = self.map[&self.old.loss];
        graph
    }
}
