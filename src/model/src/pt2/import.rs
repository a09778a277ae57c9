//! From the bytes of an archive to a [`Model`].
//!
//! The order: directory, JSON, module tree, parameters and buffers, then the nodes that the outputs need. Integers
//! computed from sizes become size expressions, and their nodes vanish, as do checks of sizes and dead nodes. Faults
//! that do not depend on each other are reported together.

use super::archive::Archive;
use super::argument::Argument;
use super::builder::Builder;
use super::json::Json;
use super::nodes::{self, Operator};
use super::schema::{ExportedProgram, InputSpec, Node as Raw, OutputSpec, TensorMeta, dtype, dtype_name};
use super::sizes::Sizes;
use super::sources::Sources;
use super::tensors::{Tables, Tensors};
use super::tree::{Tree, TreeBuilder};
use super::{ImportError, Site};
use crate::fingerprint::fingerprint;
use crate::graph::{Def, Graph, Node, NodeId, Op, Origin, Type, ValueId};
use crate::model::{BufferId, Input, Model, ScopeId, SourceId};
use crate::sym::{Range, Size, Symbol};
use crate::validate::{validate, validate_module};
use std::collections::HashSet;

/// Reads an archive. `bytes` is the whole file, best mapped: weights are not touched.
pub fn import(bytes: &[u8]) -> Result<Model, Vec<ImportError>> {
    read(bytes, Wanted::Model)
}

/// Reads the archive of a module that stands alone: the same, but no output must be a loss. Where none is, the loss is the
/// first output, which means nothing.
pub fn import_module(bytes: &[u8]) -> Result<Model, Vec<ImportError>> {
    read(bytes, Wanted::Module)
}

/// What an archive is to hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Model,
    Module,
}

fn read(bytes: &[u8], wanted: Wanted) -> Result<Model, Vec<ImportError>> {
    let one = |error| vec![error];
    let archive = Archive::open(bytes).map_err(one)?;
    let json = Json::read(&archive).map_err(one)?;
    let tables = Tables {
        archive: &archive,
        weights: &json.weights,
        constants: &json.constants,
        metas: &json.program.graph_module.graph.tensor_values,
    };
    Importer::new(&json.program, tables, wanted).map_err(one)?.run()
}

struct Importer<'a> {
    program: &'a ExportedProgram<'a>,
    tables: Tables<'a>,
    wanted: Wanted,
    tree: Tree,
    sizes: Sizes<'a>,
    sources: Sources<'a>,
    /// Per raw node.
    scopes: Vec<ScopeId>,
    errors: Vec<ImportError>,
}

impl<'a> Importer<'a> {
    fn new(program: &'a ExportedProgram<'a>, tables: Tables<'a>, wanted: Wanted) -> Result<Importer<'a>, ImportError> {
        let (tree, scopes) = read_tree(program, &tables)?;
        Ok(Importer {
            program,
            tables,
            wanted,
            tree,
            sizes: Sizes::new(&program.graph_module.graph.sym_int_values),
            sources: Sources::default(),
            scopes,
            errors: Vec::new(),
        })
    }

    fn run(mut self) -> Result<Model, Vec<ImportError>> {
        let tensors = Tensors::read(
            &self.program.graph_module.signature.input_specs,
            &self.tables,
            &mut self.tree,
            &mut self.errors,
        );
        let live = self.live();
        self.refuse(&live);
        self.stop()?;
        let mut builder = Builder::default();
        let one = |error| vec![error];
        builder.tensors(&tensors).map_err(one)?;
        let inputs = self.inputs(&mut builder).map_err(one)?;
        self.nodes(&mut builder, &live);
        self.stop()?;
        self.finish(builder, tensors, inputs).map_err(one)
    }

    /// Ends here if there were faults: what follows would only repeat them.
    fn stop(&mut self) -> Result<(), Vec<ImportError>> {
        match self.errors.is_empty() {
            true => Ok(()),
            false => Err(std::mem::take(&mut self.errors)),
        }
    }

    fn raw_nodes(&self) -> &'a [Raw<'a>] {
        &self.program.graph_module.graph.nodes
    }

    /// Names of the tensors that the outputs need.
    fn live(&self) -> HashSet<&'a str> {
        let mut live: HashSet<&str> = HashSet::new();
        for output in &self.program.graph_module.signature.output_specs {
            match output {
                OutputSpec::UserOutput { arg: Argument::Tensor(name) } => live.insert(name),
                OutputSpec::LossOutput { arg } | OutputSpec::BufferMutation { arg, .. } => live.insert(&arg.name),
                _ => false,
            };
        }
        for node in self.raw_nodes().iter().rev() {
            if is_live(node, &live) {
                live.extend(nodes::reads(node));
            }
        }
        live
    }

    /// Notes every node that has no place in a graph without side effects, control flow and foreign code.
    fn refuse(&mut self, live: &HashSet<&str>) {
        for (index, node) in self.raw_nodes().iter().enumerate() {
            let error = match nodes::operator(&node.target) {
                Operator::Aten(name) if nodes::is_in_place(name, node) => {
                    ImportError::InPlace { operator: name.to_string(), site: self.site(index) }
                }
                Operator::HigherOrder(name) => {
                    ImportError::HigherOrder { operator: name.to_string(), site: self.site(index) }
                }
                Operator::Foreign(name) if is_live(node, live) => {
                    ImportError::Foreign { operator: name.to_string(), site: self.site(index) }
                }
                _ => continue,
            };
            self.errors.push(error);
            if self.errors.len() >= MANY {
                return;
            }
        }
    }

    fn site(&mut self, node: usize) -> Site {
        let source = self.sources.intern(&self.raw_nodes()[node].metadata.stack_trace);
        Site {
            module: self.tree.scope_path(self.scopes[node]).to_string(),
            source: source.map(|id| self.sources.lines[id.0 as usize].clone()),
        }
    }

    fn inputs(&mut self, builder: &mut Builder<'a>) -> Result<Vec<Input>, ImportError> {
        let mut inputs = Vec::new();
        for spec in &self.program.graph_module.signature.input_specs {
            match spec {
                InputSpec::UserInput { arg: Argument::Tensor(name) } => {
                    let ty = self.ty(name)?;
                    inputs.push(Input { name: name.to_string(), dtype: ty.dtype, shape: ty.shape.clone() });
                    builder.input(name, ty)?;
                }
                InputSpec::UserInput { arg: Argument::SymInt(_) } => {
                    return Err(ImportError::unsupported(
                        "an input that is a number of varying value is not supported",
                    ));
                }
                InputSpec::CustomObj { custom_obj_name } => {
                    return Err(ImportError::unsupported(format!(
                        "the custom object `{}` is not supported",
                        &**custom_obj_name
                    )));
                }
                InputSpec::Token(_) => {
                    return Err(ImportError::unsupported("operators with ordered side effects are not supported"));
                }
                // Constants have no use in the graph.
                _ => {}
            }
        }
        Ok(inputs)
    }

    /// Appends the live nodes; faults of single nodes are noted.
    fn nodes(&mut self, builder: &mut Builder<'a>, live: &HashSet<&'a str>) {
        for (index, raw) in self.raw_nodes().iter().enumerate() {
            if !is_live(raw, live) {
                continue;
            }
            if let Err(error) = self.node(builder, index, raw, live) {
                self.errors.push(error);
                // What reads it is not at fault.
                for name in nodes::results(raw).into_iter().flatten() {
                    let _ = builder.names.define(name, ValueId(0));
                }
            }
            if self.errors.len() >= MANY {
                return;
            }
        }
    }

    fn node(
        &mut self,
        builder: &mut Builder<'a>,
        index: usize,
        raw: &'a Raw<'a>,
        live: &HashSet<&'a str>,
    ) -> Result<(), ImportError> {
        let name = match nodes::operator(&raw.target) {
            Operator::Aten(name) => name,
            Operator::GetItem => {
                let value = nodes::picked(raw, &builder.names)?;
                for name in nodes::results(raw).into_iter().flatten() {
                    builder.names.define(name, value)?;
                }
                return Ok(());
            }
            Operator::HigherOrder(name) | Operator::Foreign(name) => {
                return Err(ImportError::unsupported(format!("operator `{name}` is not supported")));
            }
        };
        let source = self.sources.intern(&raw.metadata.stack_trace);
        let scope = self.scopes[index];
        let site = || Site {
            module: self.tree.scope_path(scope).to_string(),
            source: source.map(|SourceId(id)| self.sources.lines[id as usize].clone()),
        };
        let args = nodes::arguments(raw, &builder.names, &mut self.sizes, site)?;
        let id = NodeId(builder.nodes.len() as u32);
        let mut outs = Vec::new();
        for (number, result) in nodes::results(raw).into_iter().enumerate() {
            outs.push(match result.filter(|name| live.contains(name)) {
                None => None,
                Some(name) => {
                    let ty = self.ty(name)?;
                    Some(builder.value(name, ty, Def::Node(id, number as u32))?)
                }
            });
        }
        builder.nodes.push(Node {
            op: Op::Aten(name.to_string()),
            args,
            outs,
            origin: Origin { scope, source, step: None, group: None },
        });
        Ok(())
    }

    fn ty(&mut self, name: &str) -> Result<Type<Size>, ImportError> {
        let meta: &'a TensorMeta<'a> = self
            .tables
            .metas
            .get(name)
            .ok_or_else(|| ImportError::malformed(format!("nothing says what `{name}` is")))?;
        Ok(Type {
            dtype: dtype(meta.dtype)
                .ok_or_else(|| ImportError::DType { tensor: name.to_string(), dtype: dtype_name(meta.dtype) })?,
            shape: self.sizes.shape(&meta.sizes)?,
        })
    }

    fn outputs(&self, builder: &Builder) -> Result<Vec<ValueId>, ImportError> {
        let mut outputs = Vec::new();
        for spec in &self.program.graph_module.signature.output_specs {
            match spec {
                OutputSpec::UserOutput { arg: Argument::Tensor(name) } => outputs.push(builder.names.get(name)?),
                OutputSpec::LossOutput { arg } => outputs.push(builder.names.get(&arg.name)?),
                OutputSpec::ParameterMutation { parameter_name: name }
                | OutputSpec::UserInputMutation { user_input_name: name } => {
                    return Err(ImportError::unsupported(format!(
                        "the model changes `{}`, which is not supported",
                        &**name
                    )));
                }
                OutputSpec::GradientToParameter(_) | OutputSpec::GradientToUserInput(_) => {
                    return Err(ImportError::unsupported(
                        "a graph that holds its own backward is not supported: export the forward alone",
                    ));
                }
                // Constants, and integers computed from sizes.
                _ => {}
            }
        }
        Ok(outputs)
    }

    fn mutations(&self, builder: &Builder, tensors: &Tensors) -> Result<Vec<(BufferId, ValueId)>, ImportError> {
        let mut mutations = Vec::new();
        for spec in &self.program.graph_module.signature.output_specs {
            if let OutputSpec::BufferMutation { arg, buffer_name } = spec {
                let name: &str = buffer_name;
                let buffer = tensors.buffers.iter().position(|b| b.name == name);
                let buffer =
                    buffer.ok_or_else(|| ImportError::malformed(format!("`{name}` is changed, but is no buffer")))?;
                mutations.push((BufferId(buffer as u32), builder.names.get(&arg.name)?));
            }
        }
        Ok(mutations)
    }

    /// The output that the archive calls the loss, or the first scalar floating one.
    fn loss(&self, builder: &Builder, outputs: &[ValueId]) -> Result<ValueId, ImportError> {
        let specs = &self.program.graph_module.signature.output_specs;
        for spec in specs {
            if let OutputSpec::LossOutput { arg } = spec {
                return builder.names.get(&arg.name);
            }
        }
        let value = |id: &ValueId| &builder.values[id.0 as usize];
        let is_loss = |id: &&ValueId| value(id).ty.shape.is_empty() && value(id).ty.dtype.is_float();
        let first = outputs.first().filter(|_| self.wanted == Wanted::Module);
        outputs.iter().find(is_loss).or(first).copied().ok_or_else(|| {
            let outputs = outputs.iter().map(value).map(|v| format!("`{}` {}", v.name, v.ty));
            ImportError::NoLoss { outputs: outputs.collect() }
        })
    }

    fn symbols(&self) -> Vec<(Symbol, Range)> {
        let ranges = self.program.range_constraints.iter();
        ranges
            .map(|(name, range)| {
                let range = Range { min: range.min_val, max: range.max_val };
                (Symbol(name.to_string()), range)
            })
            .collect()
    }

    fn finish(mut self, builder: Builder<'a>, tensors: Tensors<'a>, inputs: Vec<Input>) -> Result<Model, ImportError> {
        let outputs = self.outputs(&builder)?;
        let mutations = self.mutations(&builder, &tensors)?;
        let loss = self.loss(&builder, &outputs)?;
        let mut model = Model {
            fingerprint: String::new(),
            symbols: self.symbols(),
            modules: self.tree.modules,
            scopes: self.tree.scopes,
            parameters: tensors.parameters,
            buffers: tensors.buffers,
            inputs,
            sources: std::mem::take(&mut self.sources.lines),
            mutations,
            graph: Graph { values: builder.values, nodes: builder.nodes, inputs: builder.inputs, outputs, loss },
        };
        // Passes index without checking: an archive that was edited must not get that far.
        let validate = if self.wanted == Wanted::Module { validate_module } else { validate };
        if let Some(fault) = validate(&model, &model.graph).first() {
            return Err(ImportError::malformed(fault.to_string()));
        }
        model.fingerprint = fingerprint(&model);
        Ok(model)
    }
}

/// More faults than this say nothing new.
const MANY: usize = 20;

fn is_live(node: &Raw, live: &HashSet<&str>) -> bool {
    nodes::results(node).into_iter().flatten().any(|name| live.contains(name))
}

/// The tree from every path in the archive, and the call of each node.
fn read_tree<'a>(program: &'a ExportedProgram<'a>, tables: &Tables<'a>) -> Result<(Tree, Vec<ScopeId>), ImportError> {
    let module = &program.graph_module;
    let mut tree = TreeBuilder::new();
    for call in &module.module_call_graph {
        tree.module(&call.fqn)?;
    }
    let specs = module.signature.input_specs.iter();
    let named = specs.filter_map(|spec| match spec {
        InputSpec::Parameter { parameter_name, .. } => Some(&**parameter_name),
        InputSpec::Buffer { buffer_name, .. } => Some(&**buffer_name),
        _ => None,
    });
    let tied = tables.weights.config.iter();
    let tied = tied.filter_map(|(name, payload)| payload.is_param.then_some(&**name));
    for name in named.chain(tied) {
        tree.module(name.rsplit_once('.').map_or("", |(module, _)| module))?;
    }
    let mut scopes = Vec::with_capacity(module.graph.nodes.len());
    for node in &module.graph.nodes {
        scopes.push(tree.scope(&node.metadata.nn_module_stack)?);
    }
    let tree = tree.finish();
    let scopes = tree.fill(&scopes);
    Ok((tree, scopes))
}
