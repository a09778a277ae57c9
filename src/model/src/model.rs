//! What an archive says of a model: the module tree, parameters with their ties, buffers, inputs, source lines, and the
//! graph with symbolic sizes.

use crate::graph::{Graph, ValueId};
use crate::sym::{Range, Size, Symbol};
use slapo_program::DType;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParameterId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u32);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

/// An imported model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Hexadecimal fingerprint of the graph and of the parameters' names, shapes and dtypes; weights' values do not enter.
    pub fingerprint: String,
    /// Module 0 is the root. Children stand in the model's order.
    pub modules: Vec<Module>,
    /// Calls of modules; scope 0 is the root's only call. A module called twice has two scopes.
    pub scopes: Vec<Scope>,
    pub parameters: Vec<Parameter>,
    pub buffers: Vec<Buffer>,
    pub inputs: Vec<Input>,
    pub sources: Vec<SourceLine>,
    /// Legal ranges of the graph's symbols.
    pub symbols: Vec<(Symbol, Range)>,
    /// Buffers that a step changes, with their new values, such as running statistics. Values of [`Model::graph`].
    pub mutations: Vec<(BufferId, ValueId)>,
    pub graph: Graph<Size>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Last component of the path; empty for the root.
    pub name: String,
    /// Dotted path; empty for the root.
    pub path: String,
    /// Qualified class (`torch.nn.modules.linear.Linear`); empty for containers, which an archive does not name.
    pub class: String,
    pub parent: Option<ModuleId>,
    pub children: Vec<ModuleId>,
    /// Own parameters by local name (`weight`), ties followed.
    pub parameters: Vec<(String, ParameterId)>,
    pub buffers: Vec<(String, BufferId)>,
}

/// One call of a module: the region of nodes that ran inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub module: ModuleId,
    pub parent: Option<ScopeId>,
    /// 0 for a module's first call.
    pub call: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Every path that names it, in the model's order; the first is canonical.
    pub names: Vec<String>,
    pub dtype: DType,
    pub shape: Vec<i64>,
    pub trainable: bool,
    /// The module of the canonical name.
    pub module: ModuleId,
    pub stored: Option<Stored>,
}

/// A buffer, persistent or not, or a constant tensor that the graph captured.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<i64>,
    pub persistent: bool,
    pub module: Option<ModuleId>,
    pub stored: Option<Stored>,
}

/// Where the archive keeps a tensor's values: byte offset of element 0 in the file, strides in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub offset: u64,
    pub strides: Vec<i64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    pub name: String,
    pub dtype: DType,
    /// Dimension 0 is the batch, 1 the sequence.
    pub shape: Vec<Size>,
}

/// A line of the model's own Python source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    pub file: String,
    pub line: u32,
    pub text: String,
}

impl Model {
    /// Whether a call is `outer`, or happens inside of it.
    pub fn is_inside(&self, scope: ScopeId, outer: ScopeId) -> bool {
        std::iter::successors(Some(scope), |scope| self.scopes[scope.0 as usize].parent).any(|scope| scope == outer)
    }

    pub fn module(&self, id: ModuleId) -> &Module {
        &self.modules[id.0 as usize]
    }

    pub fn parameter(&self, id: ParameterId) -> &Parameter {
        &self.parameters[id.0 as usize]
    }

    /// The module of that dotted path.
    pub fn find(&self, path: &str) -> Option<ModuleId> {
        self.modules.iter().position(|m| m.path == path).map(|i| ModuleId(i as u32))
    }

    /// Inputs that nothing reads: export drops an input without a word when one tensor was given for two.
    pub fn unused_inputs(&self) -> Vec<&Input> {
        let used = self.used_values();
        let inputs = self.inputs.iter().zip(&self.graph.inputs);
        inputs.filter(|(_, id)| !used[id.0 as usize]).map(|(input, _)| input).collect()
    }

    /// By value: whether a node reads it or the model returns it.
    pub(crate) fn used_values(&self) -> Vec<bool> {
        let mut used = vec![false; self.graph.values.len()];
        let reads = self.graph.nodes.iter().flat_map(|node| node.reads());
        for id in reads.chain(self.graph.outputs.iter().copied()) {
            used[id.0 as usize] = true;
        }
        used
    }

    /// Path of the module that a scope calls.
    pub fn scope_path(&self, scope: ScopeId) -> &str {
        &self.module(self.scopes[scope.0 as usize].module).path
    }
}

impl Module {
    /// The class without its package: `Linear`.
    pub fn short_class(&self) -> &str {
        self.class.rsplit('.').next().unwrap_or("")
    }
}
