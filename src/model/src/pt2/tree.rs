//! The module tree and the calls of its modules.
//!
//! An archive has no tree. It has the paths of modules (`module_call_graph`), of parameters and buffers, and for each
//! node the stack of calls it ran in, with classes. Containers are never called: they are inferred from paths and have
//! no class.

use super::ImportError;
use crate::model::{Module, ModuleId, Scope, ScopeId};
use std::collections::{BTreeMap, HashMap};

/// Deeper paths are refused: walking the tree recurses.
const MAX_DEPTH: usize = 64;

/// What PyTorch writes for nodes that its own passes inserted.
const NO_STACK: &str = "_empty_nn_module_stack_from_metadata_hook";

#[derive(Default)]
pub struct TreeBuilder<'a> {
    modules: Vec<Module>,
    by_path: HashMap<String, ModuleId>,
    scopes: Vec<Scope>,
    /// By caller, module and the archive's own number of the call.
    calls: BTreeMap<(ScopeId, ModuleId, u32), ScopeId>,
    /// Calls so far, by module.
    counts: BTreeMap<ModuleId, u32>,
    stacks: HashMap<&'a str, Option<ScopeId>>,
}

impl<'a> TreeBuilder<'a> {
    pub fn new() -> TreeBuilder<'a> {
        let mut tree = TreeBuilder::default();
        tree.push("", "", None);
        tree.scopes.push(Scope { module: ModuleId(0), parent: None, call: 0 });
        tree
    }

    /// The module of `path`, with everything above it.
    pub fn module(&mut self, path: &str) -> Result<ModuleId, ImportError> {
        let path = without_call(path);
        if let Some(id) = self.by_path.get(path) {
            return Ok(*id);
        }
        if path.split('.').count() > MAX_DEPTH {
            return Err(ImportError::unsupported(format!(
                "a module nested more than {MAX_DEPTH} deep is not supported"
            )));
        }
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
        let parent = self.module(parent)?;
        Ok(self.push(path, name, Some(parent)))
    }

    fn push(&mut self, path: &str, name: &str, parent: Option<ModuleId>) -> ModuleId {
        let id = ModuleId(self.modules.len() as u32);
        self.modules.push(Module {
            name: name.to_string(),
            path: path.to_string(),
            class: String::new(),
            parent,
            children: Vec::new(),
            parameters: Vec::new(),
            buffers: Vec::new(),
        });
        self.by_path.insert(path.to_string(), id);
        if let Some(parent) = parent {
            self.modules[parent.0 as usize].children.push(id);
        }
        id
    }

    /// The innermost call of an `nn_module_stack`: `key,path,class;key,path,class`. The key of a second call ends with
    /// `@1`. `None` for nodes without a stack.
    pub fn scope(&mut self, stack: &'a str) -> Result<Option<ScopeId>, ImportError> {
        if let Some(known) = self.stacks.get(stack) {
            return Ok(*known);
        }
        let mut scope = None;
        for entry in stack.split(';').filter(|entry| !entry.is_empty()) {
            let Some((key, path, class)) = entry_of(entry) else {
                return Err(ImportError::malformed(format!("`{entry}` is no entry of a module stack")));
            };
            if path == NO_STACK {
                continue;
            }
            let module = self.module(path)?;
            let known = &mut self.modules[module.0 as usize].class;
            if known.is_empty() {
                *known = class.to_string();
            }
            scope = Some(match module {
                ModuleId(0) => ScopeId(0),
                _ => self.call(scope.unwrap_or(ScopeId(0)), module, call_number(key)),
            });
        }
        self.stacks.insert(stack, scope);
        Ok(scope)
    }

    fn call(&mut self, parent: ScopeId, module: ModuleId, number: u32) -> ScopeId {
        *self.calls.entry((parent, module, number)).or_insert_with(|| {
            let call = self.counts.entry(module).or_default();
            self.scopes.push(Scope { module, parent: Some(parent), call: *call });
            *call += 1;
            ScopeId((self.scopes.len() - 1) as u32)
        })
    }

    /// Brings modules into the model's order, depth first.
    pub fn finish(mut self) -> Tree {
        for index in 0..self.modules.len() {
            let mut children = std::mem::take(&mut self.modules[index].children);
            let number = |id: &ModuleId| self.modules[id.0 as usize].name.parse::<u64>().ok();
            if children.iter().all(|id| number(id).is_some()) {
                children.sort_by_key(number);
            }
            self.modules[index].children = children;
        }
        let mut order = Vec::with_capacity(self.modules.len());
        depth_first(&self.modules, ModuleId(0), &mut order);
        let mut new = vec![ModuleId(0); order.len()];
        for (position, old) in order.iter().enumerate() {
            new[old.0 as usize] = ModuleId(position as u32);
        }
        let renamed = |id: &ModuleId| new[id.0 as usize];
        let modules = order
            .iter()
            .map(|old| {
                let module = &self.modules[old.0 as usize];
                Module {
                    parent: module.parent.as_ref().map(renamed),
                    children: module.children.iter().map(renamed).collect(),
                    ..module.clone()
                }
            })
            .collect();
        for scope in &mut self.scopes {
            scope.module = renamed(&scope.module);
        }
        for id in self.by_path.values_mut() {
            *id = renamed(id);
        }
        Tree { modules, scopes: self.scopes, by_path: self.by_path }
    }
}

/// The finished tree; modules are numbered in the model's order.
pub struct Tree {
    pub modules: Vec<Module>,
    pub scopes: Vec<Scope>,
    by_path: HashMap<String, ModuleId>,
}

impl Tree {
    pub fn find(&self, path: &str) -> Option<ModuleId> {
        self.by_path.get(path).copied()
    }

    pub fn scope_path(&self, scope: ScopeId) -> &str {
        let module = self.scopes[scope.0 as usize].module;
        &self.modules[module.0 as usize].path
    }

    /// Gives nodes without a call the innermost one that holds both neighbours: a node that a pass inserted in the
    /// middle of a module's run belongs to that run.
    pub fn fill(&self, scopes: &[Option<ScopeId>]) -> Vec<ScopeId> {
        let mut after = vec![None; scopes.len()];
        let mut next = None;
        for (index, scope) in scopes.iter().enumerate().rev() {
            next = scope.or(next);
            after[index] = next;
        }
        let mut before = None;
        let mut filled = Vec::with_capacity(scopes.len());
        for (scope, after) in scopes.iter().zip(after) {
            before = scope.or(before);
            filled.push(match (scope, before, after) {
                (Some(scope), ..) => *scope,
                (None, Some(a), Some(b)) => self.common(a, b),
                _ => ScopeId(0),
            });
        }
        filled
    }

    /// The innermost call around both.
    fn common(&self, a: ScopeId, b: ScopeId) -> ScopeId {
        let above: Vec<ScopeId> = self.chain(a).collect();
        self.chain(b).find(|scope| above.contains(scope)).unwrap_or(ScopeId(0))
    }

    fn chain(&self, scope: ScopeId) -> impl Iterator<Item = ScopeId> {
        std::iter::successors(Some(scope), |scope| self.scopes[scope.0 as usize].parent)
    }
}

fn depth_first(modules: &[Module], id: ModuleId, order: &mut Vec<ModuleId>) {
    order.push(id);
    for child in &modules[id.0 as usize].children {
        depth_first(modules, *child, order);
    }
}

fn entry_of(entry: &str) -> Option<(&str, &str, &str)> {
    let (key, rest) = entry.split_once(',')?;
    let (path, class) = rest.rsplit_once(',')?;
    Some((key, path, class))
}

/// `mix@1` is the second call of `mix`.
fn call_number(key: &str) -> u32 {
    key.rsplit_once('@').and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

fn without_call(path: &str) -> &str {
    match path.rsplit_once('@') {
        Some((path, number)) if number.parse::<u32>().is_ok() => path,
        _ => path,
    }
}
