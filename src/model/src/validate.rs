//! The graph's validator.
//!
//! Checked, of a graph and the model it was made from:
//!
//! * ids are in range: values, parameters, buffers, scopes, source lines;
//! * every value has the one definition it names, and its name is not empty and unique;
//! * there is at most one value per parameter and per buffer, and exactly one per input, in order;
//! * a node reads only what inputs or earlier nodes define; no argument is given twice;
//! * sizes are not negative;
//! * the loss is a floating scalar;
//! * dropout probabilities lie in [0, 1); a `Vjp` has as many results as it says.
//!
//! Not checked: whether an operator's arguments fit its schema, and whether types follow from it. All faults are
//! reported, not only the first.

use crate::graph::{Def, Graph, Node, NodeId, Op, ValueId};
use crate::model::Model;
use crate::sym::Size;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

/// One fault of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The node it was found at; `None` for faults of the graph's values and borders.
    pub node: Option<NodeId>,
    pub message: String,
}

/// What a size of a graph may be: concrete or symbolic.
pub trait Extent {
    /// Whether this can be a dimension's size.
    fn is_size(&self) -> bool;
}

impl Extent for i64 {
    fn is_size(&self) -> bool {
        *self >= 0
    }
}

impl Extent for Size {
    fn is_size(&self) -> bool {
        self.constant().is_none_or(|size| size >= 0)
    }
}

/// All faults of `graph`; empty means that passes may index without checking.
pub fn validate<I: Extent>(model: &Model, graph: &Graph<I>) -> Vec<Fault> {
    let mut faults = validate_module(model, graph);
    match graph.values.get(graph.loss.0 as usize) {
        Some(loss) if loss.ty.dtype.is_float() && loss.ty.shape.is_empty() => {}
        Some(loss) => {
            let message = format!("the loss `{}` is no floating scalar", loss.name);
            faults.push(Fault { node: None, message });
        }
        // Reported with the outputs.
        None => {}
    }
    faults
}

/// The same of the graph of a module alone, which has no loss.
pub(crate) fn validate_module<I: Extent>(model: &Model, graph: &Graph<I>) -> Vec<Fault> {
    let mut check = Check { model, graph, faults: Vec::new(), defined: vec![false; graph.values.len()] };
    check.values();
    check.borders();
    for index in 0..graph.nodes.len() {
        check.node(NodeId(index as u32));
    }
    check.results();
    check.faults
}

struct Check<'a, I> {
    model: &'a Model,
    graph: &'a Graph<I>,
    faults: Vec<Fault>,
    /// By value.
    defined: Vec<bool>,
}

impl<I: Extent> Check<'_, I> {
    fn fault(&mut self, node: Option<NodeId>, message: impl Into<String>) {
        let message = message.into();
        self.faults.push(Fault { node, message });
    }

    fn values(&mut self) {
        let mut names = HashSet::new();
        let mut owners: HashMap<Def, &str> = HashMap::new();
        for (index, value) in self.graph.values.iter().enumerate() {
            let name = value.name.as_str();
            if name.is_empty() {
                self.fault(None, format!("value {index} has no name"));
            } else if !names.insert(name) {
                self.fault(None, format!("two values are called `{name}`"));
            }
            if !value.ty.shape.iter().all(I::is_size) {
                self.fault(None, format!("`{name}` has a negative size"));
            }
            if !self.is_defined(index) {
                self.fault(None, format!("`{name}` names a definition that is not there"));
            }
            if !matches!(value.def, Def::Node(..)) {
                self.defined[index] = true;
                if let Some(other) = owners.insert(value.def, name) {
                    self.fault(None, format!("`{other}` and `{name}` have the same definition"));
                }
            }
        }
    }

    /// Whether the definition that a value names is there and names it back.
    fn is_defined(&self, index: usize) -> bool {
        let id = ValueId(index as u32);
        match self.graph.values[index].def {
            Def::Parameter(parameter) => (parameter.0 as usize) < self.model.parameters.len(),
            Def::Buffer(buffer) => (buffer.0 as usize) < self.model.buffers.len(),
            Def::Input(input) => self.graph.inputs.get(input as usize) == Some(&id),
            Def::Node(node, out) => {
                let node = self.graph.nodes.get(node.0 as usize);
                node.and_then(|node| node.outs.get(out as usize)) == Some(&Some(id))
            }
        }
    }

    fn borders(&mut self) {
        for (index, id) in self.graph.inputs.iter().enumerate() {
            match self.graph.values.get(id.0 as usize) {
                Some(value) if value.def == Def::Input(index as u32) => {}
                _ => self.fault(None, format!("input {index} is no value that says so")),
            }
        }
    }

    fn node(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        for read in node.reads() {
            self.read(Some(id), read);
        }
        let mut names = BTreeSet::new();
        for (name, _) in &node.args {
            if !names.insert(name) {
                self.fault(Some(id), format!("argument `{name}` is given twice"));
            }
        }
        self.origin(id, node);
        match node.op {
            Op::Dropout { p, .. } if !(0.0..1.0).contains(&p) => {
                self.fault(Some(id), format!("dropout probability {p} is not in [0, 1)"));
            }
            Op::Vjp { results, .. } if results as usize != node.outs.len() => {
                let message = format!("{} results, but says {results}", node.outs.len());
                self.fault(Some(id), message);
            }
            _ => {}
        }
        for (number, out) in node.outs.iter().enumerate() {
            let Some(out) = out else { continue };
            match self.graph.values.get(out.0 as usize) {
                Some(value) if value.def == Def::Node(id, number as u32) => {
                    self.defined[out.0 as usize] = true;
                }
                Some(value) => {
                    let message = format!("`{}` is defined elsewhere", value.name);
                    self.fault(Some(id), message);
                }
                None => self.fault(Some(id), format!("result {number} is no value")),
            }
        }
    }

    fn origin(&mut self, id: NodeId, node: &Node<I>) {
        if node.origin.scope.0 as usize >= self.model.scopes.len() {
            self.fault(Some(id), "scope out of range");
        }
        let sources = self.model.sources.len();
        if node.origin.source.is_some_and(|source| source.0 as usize >= sources) {
            self.fault(Some(id), "source line out of range");
        }
    }

    fn results(&mut self) {
        for id in self.graph.outputs.iter().chain([&self.graph.loss]) {
            self.read(None, *id);
        }
    }

    fn read(&mut self, node: Option<NodeId>, id: ValueId) {
        match self.defined.get(id.0 as usize) {
            Some(true) => {}
            Some(false) => {
                let name = &self.graph.value(id).name;
                self.fault(node, format!("reads `{name}` before it is defined"));
            }
            None => self.fault(node, format!("reads value {}, which is not there", id.0)),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(NodeId(node)) => write!(f, "node {node}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}
