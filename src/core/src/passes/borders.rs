//! Points of a schedule as nodes on module borders.
//!
//! A point is a use: `M.input()` is the value as M's own nodes read it, `M.output()` as nodes outside of M do. So a border is
//! an identity node between a value and those uses. Nested modules nest their borders, in whatever order they are
//! inserted; gradients are added up at borders, since derivatives follow the same edges.

use crate::compile::{LayoutFault, LayoutProblem, PointSync, SyncPoint};
use crate::passes::autodiff::Joint;
use slapo_model::{Arg, Def, Graph, Model, ModuleId, Node, NodeId, Op, Origin, ScopeId, Value, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Inserts what `syncs` ask for; sync `i` gets the number `i`. Syncs of parameter gradients are left to the caller.
pub fn insert(model: &Model, graph: Graph, syncs: &[PointSync]) -> Result<Graph, Vec<LayoutFault>> {
    // Per border: syncs of the value, syncs of its gradient.
    let mut borders: BTreeMap<Border, (Vec<u32>, Vec<u32>)> = BTreeMap::new();
    for (i, sync) in syncs.iter().enumerate() {
        let (border, is_gradient) = match sync.at {
            SyncPoint::Input { module, port } => (Border { module, port, enters: true }, false),
            SyncPoint::Output { module, port } => (Border { module, port, enters: false }, false),
            SyncPoint::InputGradient { module, port } => (Border { module, port, enters: true }, true),
            SyncPoint::OutputGradient { module, port } => (Border { module, port, enters: false }, true),
            SyncPoint::ParameterGradient(_) => continue,
        };
        let (forward, backward) = borders.entry(border).or_default();
        if is_gradient { backward.push(i as u32) } else { forward.push(i as u32) }
    }
    if borders.is_empty() {
        return Ok(graph);
    }
    let differentiable = differentiable(&graph);
    let mut edit = Edit { model, graph, differentiable };
    let mut faults = Vec::new();
    // Ports are those of the graph as it is now: borders that are inserted stand between a value and its uses.
    let places: Vec<(Border, Vec<(ScopeId, ValueId)>)> =
        borders.keys().map(|border| (*border, edit.places(*border))).collect();
    for (border, places) in places {
        let (forward, backward) = &borders[&border];
        if places.is_empty() {
            let first = forward.iter().chain(backward).min().map_or(0, |i| *i as usize);
            let PointSync { at, axis, step, .. } = syncs[first];
            let problem = LayoutProblem::NoValue { at, step };
            faults.push(LayoutFault { axis, problem, origin: None, steps: vec![step], legal: Vec::new() });
        }
        for (scope, value) in places {
            edit.insert(scope, value, border.enters, forward, backward);
        }
    }
    if faults.is_empty() { Ok(edit.finish()) } else { Err(faults) }
}

/// The values at `points`, in every call, of the forward part of a graph that has its syncs already: what stands behind the
/// syncs of a point. With each goes the position of its point, and the call. A point may have none: what the model has there,
/// such as a dropout that drops nothing, may be gone from the canonical form.
pub fn values(model: &Model, joint: &Joint, points: &[SyncPoint]) -> Vec<(usize, ScopeId, ValueId)> {
    if points.is_empty() {
        return Vec::new();
    }
    let mut graph = joint.graph.clone();
    graph.nodes.truncate(joint.forward);
    let is_forward = |value: &ValueId| match graph.value(*value).def {
        Def::Node(node, _) => (node.0 as usize) < joint.forward,
        _ => true,
    };
    let outputs = graph.outputs.iter().copied().filter(is_forward).collect();
    let graph = Graph { outputs, ..graph };
    let edit = Edit { model, differentiable: differentiable(&graph), graph };
    let mut values = Vec::new();
    for (position, point) in points.iter().enumerate() {
        let border = match *point {
            SyncPoint::Input { module, port } => Border { module, port, enters: true },
            SyncPoint::Output { module, port } => Border { module, port, enters: false },
            _ => continue,
        };
        let places = edit.places(border).into_iter();
        values.extend(places.map(|(scope, value)| (position, scope, edit.behind_syncs(value))));
    }
    values
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Border {
    module: ModuleId,
    port: u32,
    enters: bool,
}

/// By value: floating-point and dependent on a parameter.
pub fn differentiable(graph: &Graph) -> Vec<bool> {
    let mut of: Vec<bool> = graph.values.iter().map(|v| matches!(v.def, Def::Parameter(_))).collect();
    for node in &graph.nodes {
        if node.reads().any(|v| of[v.0 as usize]) {
            for out in node.outs.iter().flatten() {
                of[out.0 as usize] = graph.ty(*out).dtype.is_float();
            }
        }
    }
    of
}

struct Edit<'m> {
    model: &'m Model,
    graph: Graph,
    differentiable: Vec<bool>,
}

impl Edit<'_> {
    /// The border's value in every call of its module.
    fn places(&self, border: Border) -> Vec<(ScopeId, ValueId)> {
        let calls = self.model.scopes.iter().enumerate().filter(|(_, scope)| scope.module == border.module);
        let calls = calls.map(|(i, _)| ScopeId(i as u32));
        calls.filter_map(|scope| Some((scope, self.port(scope, border)?))).collect()
    }

    /// Port number `port` among the differentiable values that cross the border, parameters apart: in order of first use
    /// where they enter, of definition where they leave.
    fn port(&self, scope: ScopeId, border: Border) -> Option<ValueId> {
        let mut crossing: Vec<ValueId> = Vec::new();
        let made_inside = |v: ValueId| match self.graph.value(v).def {
            Def::Node(node, _) => self.model.is_inside(self.graph.node(node).origin.scope, scope),
            _ => false,
        };
        for node in &self.graph.nodes {
            let inside = self.model.is_inside(node.origin.scope, scope);
            for v in node.reads() {
                let crosses = if border.enters { inside && !made_inside(v) } else { !inside && made_inside(v) };
                let parameter = matches!(self.graph.value(v).def, Def::Parameter(_));
                if crosses && !parameter && self.differentiable[v.0 as usize] && !crossing.contains(&v) {
                    crossing.push(v);
                }
            }
        }
        if !border.enters {
            crossing.extend(
                self.graph.outputs.iter().copied().filter(|v| made_inside(*v) && self.differentiable[v.0 as usize]),
            );
            crossing.sort_unstable();
            crossing.dedup();
        }
        crossing.get(border.port as usize).copied()
    }

    /// What a value has become where it is only synced on its way to its uses.
    fn behind_syncs(&self, mut value: ValueId) -> ValueId {
        loop {
            let mut readers = self.graph.nodes.iter().filter(|node| node.reads().any(|v| v == value));
            let (Some(only), None) = (readers.next(), readers.next()) else { return value };
            match (&only.op, only.outs.as_slice()) {
                (Op::Border { .. } | Op::Sync { .. }, [Some(out)]) => value = *out,
                _ => return value,
            }
        }
    }

    /// Puts a border, and the syncs of the value behind it, between `value` and its uses on the far side.
    fn insert(&mut self, scope: ScopeId, value: ValueId, enters: bool, forward: &[u32], backward: &[u32]) {
        // The far uses may read it through borders that are there already; these stand nearer to the definition or nearer to
        // the use, and the new one goes where its module's border is.
        let nodes = &self.graph.nodes;
        let far: Vec<bool> = nodes.iter().map(|n| self.model.is_inside(n.origin.scope, scope) == enters).collect();
        let aliases = self.aliases(value);
        let reads = |node: &Node| node.reads().find(|v| aliases.contains(v));
        let users: Vec<usize> = (0..nodes.len()).filter(|i| far[*i] && reads(&nodes[*i]).is_some()).collect();
        let from: BTreeSet<ValueId> = users.iter().filter_map(|i| reads(&nodes[*i])).collect();
        // Of the aliases that the far side reads, those made on the far side are behind this border already.
        let source = from.iter().copied().find(|v| !self.made_on(*v, &far)).unwrap_or(value);
        let at = match users.iter().find(|i| nodes[**i].reads().any(|v| v == source)) {
            Some(first) => *first,
            None => nodes.len(),
        };
        let origin = Origin {
            scope: self.model.scopes[scope.0 as usize].parent.unwrap_or_default(),
            group: None,
            ..nodes.get(at).map(|n| n.origin).unwrap_or_default()
        };
        let mut chain = vec![Op::Border { gradient: backward.to_vec() }];
        chain.extend(forward.iter().map(|sync| Op::Sync { sync: *sync }));
        let mut last = source;
        let mut inserted = Vec::new();
        for op in chain {
            let id = ValueId(self.graph.values.len() as u32);
            let ty = self.graph.ty(source).clone();
            let name = format!("{}.{}", if matches!(op, Op::Sync { .. }) { "sync" } else { "border" }, id.0);
            self.graph.values.push(Value { name, ty, def: Def::Node(NodeId(0), 0) });
            self.differentiable.push(true);
            inserted.push(Node { op, args: vec![("self".to_owned(), Arg::Value(last))], outs: vec![Some(id)], origin });
            last = id;
        }
        for i in users {
            replace(&mut self.graph.nodes[i], source, last);
        }
        if !enters {
            let outputs = self.graph.outputs.iter_mut().chain([&mut self.graph.loss]);
            outputs.filter(|v| **v == source).for_each(|v| *v = last);
        }
        self.graph.nodes.splice(at..at, inserted);
        self.renumber();
    }

    /// `value` and what borders and syncs have made of it.
    fn aliases(&self, value: ValueId) -> BTreeSet<ValueId> {
        let mut aliases = BTreeSet::from([value]);
        for node in &self.graph.nodes {
            if matches!(node.op, Op::Border { .. } | Op::Sync { .. }) && node.reads().any(|v| aliases.contains(&v)) {
                aliases.extend(node.outs.iter().flatten());
            }
        }
        aliases
    }

    fn made_on(&self, value: ValueId, side: &[bool]) -> bool {
        match self.graph.value(value).def {
            Def::Node(node, _) => side[node.0 as usize],
            _ => false,
        }
    }

    fn renumber(&mut self) {
        let Graph { nodes, values, .. } = &mut self.graph;
        for (i, node) in nodes.iter().enumerate() {
            for (result, out) in node.outs.iter().enumerate() {
                if let Some(out) = out {
                    values[out.0 as usize].def = Def::Node(NodeId(i as u32), result as u32);
                }
            }
        }
    }

    fn finish(self) -> Graph {
        self.graph
    }
}

fn replace(node: &mut Node, from: ValueId, to: ValueId) {
    for (_, arg) in &mut node.args {
        match arg {
            Arg::Value(v) if *v == from => *v = to,
            Arg::Values(list) => list.iter_mut().flatten().filter(|v| **v == from).for_each(|v| *v = to),
            _ => {}
        }
    }
}
