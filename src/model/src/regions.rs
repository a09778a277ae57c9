//! Regions: the nodes that ran inside a call of a module, and what crosses the border.
//!
//! Ports are counted in order of first use: `m.input(1)` of a schedule is `live_in[1]`. Parameters and buffers are no
//! ports: they belong to modules, not to calls.

use crate::graph::{Def, Graph, NodeId, ValueId};
use crate::model::{Model, ModuleId, ScopeId};

/// A set of nodes with its border.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// In the graph's order.
    pub nodes: Vec<NodeId>,
    /// Inputs of the model and results of other nodes that the region reads, in order of first use.
    pub live_in: Vec<ValueId>,
    /// Results that are read outside or returned, in order of definition.
    pub live_out: Vec<ValueId>,
}

/// The region of one call, with the calls inside it. For many calls, ask [`Regions`].
pub fn region<I>(graph: &Graph<I>, model: &Model, scope: ScopeId) -> Region {
    Regions::new(graph, model).call(scope)
}

/// The calls of a module, in order of first use.
pub fn calls(model: &Model, module: ModuleId) -> Vec<ScopeId> {
    let scopes = model.scopes.iter().enumerate();
    scopes.filter(|(_, scope)| scope.module == module).map(|(index, _)| ScopeId(index as u32)).collect()
}

/// All regions of a graph, each found in time of its own size.
pub struct Regions<'a, I> {
    graph: &'a Graph<I>,
    model: &'a Model,
    /// By value: the nodes that read it.
    readers: Vec<Vec<NodeId>>,
    /// By value: whether the model returns it.
    returned: Vec<bool>,
    /// By scope: its own nodes, and the calls inside.
    nodes: Vec<Vec<NodeId>>,
    inner: Vec<Vec<ScopeId>>,
    /// By module.
    calls: Vec<Vec<ScopeId>>,
}

impl<'a, I> Regions<'a, I> {
    pub fn new(graph: &'a Graph<I>, model: &'a Model) -> Regions<'a, I> {
        let mut regions = Regions {
            graph,
            model,
            readers: vec![Vec::new(); graph.values.len()],
            returned: vec![false; graph.values.len()],
            nodes: vec![Vec::new(); model.scopes.len()],
            inner: vec![Vec::new(); model.scopes.len()],
            calls: vec![Vec::new(); model.modules.len()],
        };
        for (index, node) in graph.nodes.iter().enumerate() {
            let id = NodeId(index as u32);
            regions.nodes[node.origin.scope.0 as usize].push(id);
            node.reads().for_each(|value| regions.readers[value.0 as usize].push(id));
        }
        for value in graph.outputs.iter().chain([&graph.loss]) {
            regions.returned[value.0 as usize] = true;
        }
        for (index, scope) in model.scopes.iter().enumerate() {
            let id = ScopeId(index as u32);
            regions.calls[scope.module.0 as usize].push(id);
            if let Some(parent) = scope.parent {
                regions.inner[parent.0 as usize].push(id);
            }
        }
        regions
    }

    /// The region of one call, with the calls inside it.
    pub fn call(&self, scope: ScopeId) -> Region {
        let mut nodes = Vec::new();
        self.collect(scope, &mut nodes);
        self.border(nodes)
    }

    /// The region of all calls of a module and of the modules below it: for containers, which are never called.
    pub fn module(&self, module: ModuleId) -> Region {
        let mut nodes = Vec::new();
        let mut below = vec![module];
        while let Some(module) = below.pop() {
            self.calls[module.0 as usize].iter().for_each(|scope| self.collect(*scope, &mut nodes));
            below.extend(&self.model.module(module).children);
        }
        self.border(nodes)
    }

    /// The border of any set of nodes.
    pub fn border(&self, mut nodes: Vec<NodeId>) -> Region {
        nodes.sort_unstable();
        nodes.dedup();
        let mut inside = vec![false; self.graph.nodes.len()];
        nodes.iter().for_each(|id| inside[id.0 as usize] = true);
        let mut seen = vec![false; self.graph.values.len()];
        let mut live_in = Vec::new();
        let mut live_out = Vec::new();
        for id in &nodes {
            let node = self.graph.node(*id);
            for read in node.reads() {
                let outside = match self.graph.value(read).def {
                    Def::Parameter(_) | Def::Buffer(_) => false,
                    Def::Input(_) => true,
                    Def::Node(node, _) => !inside[node.0 as usize],
                };
                if outside && !std::mem::replace(&mut seen[read.0 as usize], true) {
                    live_in.push(read);
                }
            }
            live_out.extend(node.outs.iter().flatten().filter(|out| {
                let index = out.0 as usize;
                self.returned[index] || self.readers[index].iter().any(|reader| !inside[reader.0 as usize])
            }));
        }
        Region { nodes, live_in, live_out }
    }

    fn collect(&self, scope: ScopeId, nodes: &mut Vec<NodeId>) {
        let mut open = vec![scope];
        while let Some(scope) = open.pop() {
            nodes.extend(&self.nodes[scope.0 as usize]);
            open.extend(&self.inner[scope.0 as usize]);
        }
    }
}
