//! Another archive's module in place of one of the model's: what it must be, and the operators that are put in.
//!
//! Ports and weights are bound by name, types must be the same, and nothing may be lost on the way: no weight, no input,
//! nothing of the [`inventory`]. It is all checked on graphs, before anything runs; values are for `slapoc verify` to
//! compare. It knows steps and the state of a schedule, and nothing of source text. Read [`plan`] first.

mod functions;
mod inventory;
mod ports;
mod types;
mod weights;

use crate::passes::rewrite::{self, Rewrite};
use crate::passes::splice::{Splice, SplicedCall};
use crate::primitives::{Problem, Refusal, State};
use crate::schedule::{Argument, Place, Step};
use inventory::Inventory;
use ports::Bound;
use slapo_model::regions::{Region, Regions, calls};
use slapo_model::sym::Size;
use slapo_model::{
    Arg, Def, Graph, InputSizes, Model, ModuleId, Node, NodeId, Op, Origin, ScopeId, Type, Value, ValueId, bind_graph,
};
use slapo_syntax::Code;
use std::collections::BTreeMap;
use std::sync::Arc;
use weights::Weight;

/// A replacement that was found right.
pub struct Plan {
    pub splice: Splice,
    /// What the replaced operators computed.
    pub values: Vec<ValueId>,
}

/// What a step puts in place of its module. `None` where the model has no sizes, which was reported.
pub fn plan(state: &State, step: &Step) -> Result<Option<Plan>, Refusal> {
    let (Place::Module(module), Some(Argument::Archive { path: name, fingerprint })) =
        (step.target.place, step.arg("with"))
    else {
        let help = "an operator takes the place of a match: `m.find(pattern).replace(…)`";
        return refuse(contract("a module is replaced by an archive", "no archive").help(help));
    };
    let Some(Ok(archive)) = state.archives.get(name) else {
        return refuse(contract(format!("the archive `{name}` was not read"), "no archive"));
    };
    if archive.fingerprint != *fingerprint {
        return refuse(contract(format!("`{name}` is another archive than the one of this step"), "another archive"));
    }
    let Some(sizes) = state.sizes else { return Ok(None) };
    let Ok(bound) = bind_graph(state.model, state.graph(), &sizes) else { return Ok(None) };
    let path = state.model.module(module).path.clone();
    let replacing = Replacing { state, step, module, path, archive, name, sizes, bound };
    replacing.plan().map(Some)
}

/// A replacement that is being checked.
struct Replacing<'a, 'm> {
    state: &'a State<'m>,
    step: &'a Step,
    module: ModuleId,
    /// Of the module, dotted.
    path: String,
    archive: &'a Model,
    /// What messages call the archive.
    name: &'a str,
    sizes: InputSizes,
    /// The model's graph as the steps so far have left it, with the step's sizes.
    bound: Graph,
}

/// A call of the replaced module.
struct Call {
    scope: ScopeId,
    region: Region,
}

impl Replacing<'_, '_> {
    fn plan(&self) -> Result<Plan, Refusal> {
        let calls = self.calls()?;
        self.nothing_was_done_inside(&calls)?;
        let mut ports = Vec::new();
        for call in &calls {
            ports.push(match ports.first() {
                None => self.ports(&call.region)?,
                // Every call has the same ports in the same order.
                Some(first) => self.ports_like(first, &call.region)?,
            });
        }
        let weights = self.weights(&calls)?;
        let mut splice = Splice { calls: Vec::new(), values: Vec::new() };
        for (call, bound) in calls.iter().zip(&ports) {
            let symbols = self.symbols(bound)?;
            let nodes = self.nodes(call, bound, &weights, &symbols, &mut splice.values)?;
            splice.calls.push(SplicedCall { scope: call.scope, nodes });
        }
        self.nothing_is_lost(&calls, &splice)?;
        let outs = calls.iter().flat_map(|call| &call.region.nodes);
        let values = outs.flat_map(|id| self.graph().node(*id).outs.iter().flatten().copied()).collect();
        Ok(Plan { splice, values })
    }

    fn graph(&self) -> &Graph<Size> {
        self.state.graph()
    }

    fn calls(&self) -> Result<Vec<Call>, Refusal> {
        let (model, path) = (self.state.model, &self.path);
        if self.module == ModuleId(0) {
            return refuse(
                contract("the whole model has no replacement", "the model itself")
                    .help("another model is another archive behind `model`"),
            );
        }
        let scopes = calls(model, self.module);
        let regions = Regions::new(self.graph(), model);
        let of = |scope: &ScopeId| Call { scope: *scope, region: regions.call(*scope) };
        let calls: Vec<Call> = scopes.iter().map(of).filter(|call| !call.region.nodes.is_empty()).collect();
        if calls.is_empty() {
            let message = format!("`{path}` computes nothing, so there is nothing to replace");
            let is_container = !model.module(self.module).children.is_empty();
            let here = if is_container { "a container: only its children are called" } else { "is never called" };
            return refuse(Problem::new(Code::NeverRuns, message, here));
        }
        // The archive's operators stand where the call's first one does.
        let comes_later = |call: &Call, value: &ValueId| match self.graph().value(*value).def {
            Def::Node(node, _) => call.region.nodes.first().is_some_and(|first| node > *first),
            _ => false,
        };
        if calls.iter().any(|call| call.region.live_in.iter().any(|value| comes_later(call, value))) {
            let message = format!("`{path}` reads values that are computed while it runs");
            return refuse(contract(message, "no call of one piece"));
        }
        let nodes = calls.iter().flat_map(|call| &call.region.nodes);
        let computes = |value: &ValueId| match self.graph().value(*value).def {
            Def::Node(node, _) => nodes.clone().any(|id| *id == node),
            _ => false,
        };
        let changed = model.mutations.iter().find(|(_, value)| computes(value));
        if let Some((buffer, _)) = changed {
            let message = format!(
                "`{path}` changes its buffer `{}`, which no replacement can do",
                model.buffers[buffer.0 as usize].name
            );
            return refuse(contract(message, "changes a buffer"));
        }
        if let Some((buffer, _)) = self.archive.mutations.first() {
            let buffer = &self.archive.buffers[buffer.0 as usize].name;
            let message = format!("`{}` changes its buffer `{buffer}`, which no replacement can do", self.name);
            return refuse(contract(message, "changes a buffer"));
        }
        Ok(calls)
    }

    /// What an earlier step did to parts of the module would be gone without a word. What it did to parameters stays.
    fn nothing_was_done_inside(&self, calls: &[Call]) -> Result<(), Refusal> {
        let (model, path) = (self.state.model, &self.path);
        let is_below = |module: ModuleId| {
            let mut around = std::iter::successors(Some(module), |id| model.module(*id).parent);
            around.any(|outer| outer == self.module)
        };
        let outs = calls.iter().flat_map(|call| &call.region.nodes).flat_map(|id| &self.graph().node(*id).outs);
        let values: Vec<ValueId> = outs.flatten().copied().collect();
        for earlier in &self.state.steps {
            let kept = self.state.effects.kept.iter().filter(|(_, by)| *by == earlier.id);
            let mut inside = kept.map(|(point, _)| point.module(model)).filter(|module| *module != self.module);
            let is_inside = match (&earlier.target.found, earlier.target.place) {
                (Some(found), _) => found.overlaps(&values),
                (None, Place::Module(module)) => {
                    let is_again = module == self.module && earlier.primitive == self.step.primitive;
                    is_again || (module != self.module && is_below(module)) || inside.any(is_below)
                }
                (None, _) => false,
            };
            if is_inside {
                let (what, help) = match earlier.target.path.as_str() {
                    own if own == path => (
                        format!("`{path}` is replaced already"),
                        "a module has one replacement: leave one of the two away",
                    ),
                    inner => (
                        format!("`{path}` cannot be replaced: an earlier step is about `{inner}`, which would be gone"),
                        "say it of the module's own points, or of parameters: these stay",
                    ),
                };
                let problem = Problem::new(Code::Contradiction, what, "replaced here");
                return refuse(problem.earlier(earlier.id, format!("{} here", earlier.primitive.name)).help(help));
            }
        }
        Ok(())
    }

    /// The archive's operators as those of a call. Values that are new are added to `values`.
    fn nodes(
        &self,
        call: &Call,
        bound: &Bound,
        weights: &BTreeMap<ValueId, Weight>,
        symbols: &types::Symbols,
        values: &mut Vec<Value<Size>>,
    ) -> Result<Vec<Node<Size>>, Refusal> {
        let archive = &self.archive.graph;
        let origin = Origin { scope: call.scope, step: Some(self.step.id), ..Origin::default() };
        let mut taken: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        let mut nodes = Vec::new();
        let alias = |from: ValueId, to: ValueId| Node {
            op: Op::Aten("alias".to_owned()),
            args: vec![("self".to_owned(), Arg::Value(from))],
            outs: vec![Some(to)],
            origin,
        };
        let mut fresh = |name: &str, ty: Type<Size>| {
            let id = ValueId((self.graph().values.len() + values.len()) as u32);
            values.push(Value { name: format!("{name}.{}", id.0), ty, def: Def::Node(NodeId(0), 0) });
            id
        };
        for (own, Weight { values: parts, dim }) in weights {
            let [one] = parts.as_slice() else {
                let joined = fresh("joined", self.typed(archive.ty(*own), symbols)?);
                let tensors = Arg::Values(parts.iter().copied().map(Some).collect());
                let args =
                    vec![("tensors".to_owned(), tensors), ("dim".to_owned(), Arg::Int(Size::Const(*dim as i64)))];
                nodes.push(Node { op: Op::Aten("cat".to_owned()), args, outs: vec![Some(joined)], origin });
                taken.insert(*own, joined);
                continue;
            };
            taken.insert(*own, *one);
        }
        // Points are counted by first use: where the archive reads its inputs in another order, they are read before.
        let is_reordered = self.is_reordered(bound);
        for (input, given) in archive.inputs.iter().zip(&bound.inputs) {
            taken.insert(*input, *given);
        }
        if is_reordered {
            for value in &bound.in_order {
                let read = fresh(&self.graph().value(*value).name, self.graph().ty(*value).clone());
                nodes.push(alias(*value, read));
                taken.values_mut().filter(|known| *known == value).for_each(|known| *known = read);
            }
        }
        let mut leaving: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        let mut copies = Vec::new();
        for (output, out) in &bound.outputs {
            let is_computed = matches!(archive.value(*output).def, Def::Node(..)) && !leaving.contains_key(output);
            match is_computed {
                true => drop(leaving.insert(*output, *out)),
                // An input, a weight, or one value that leaves twice.
                false => copies.push((*output, *out)),
            }
        }
        for node in &archive.nodes {
            let mut args = Vec::with_capacity(node.args.len());
            for (name, arg) in &node.args {
                let arg = arg.reading(|value| taken.get(&value).copied().unwrap_or(value));
                args.push((name.clone(), self.sized(&arg, symbols)?));
            }
            let mut outs = Vec::with_capacity(node.outs.len());
            for out in &node.outs {
                let Some(out) = out else {
                    outs.push(None);
                    continue;
                };
                let id = match leaving.get(out) {
                    Some(known) => *known,
                    None => {
                        let Value { name, ty, .. } = archive.value(*out);
                        fresh(name, self.typed(ty, symbols)?)
                    }
                };
                taken.insert(*out, id);
                outs.push(Some(id));
            }
            nodes.push(Node { op: node.op.clone(), args, outs, origin });
        }
        nodes.extend(copies.iter().map(|(output, out)| alias(taken[output], *out)));
        Ok(nodes)
    }

    /// Compares both regions on the same sizes.
    fn nothing_is_lost(&self, calls: &[Call], splice: &Splice) -> Result<(), Refusal> {
        let state = self.state;
        let splice = Rewrite::Splice(Arc::new(splice.clone()));
        let replaced = rewrite::rewrite(state.model, self.graph(), &splice);
        let bound = bind_graph(state.model, &replaced, &self.sizes)
            .map_err(|error| contract(format!("`{}` does not take these sizes: {error}", self.name), "does not fit"))?;
        let Some(call) = calls.first() else { return Ok(()) };
        let before = Inventory::of(self.graph(), &self.bound, &call.region);
        let after = Inventory::of(&replaced, &bound, &Regions::new(&replaced, state.model).call(call.scope));
        before.compare(&after, self.name, &self.path)
    }
}

fn refuse<T>(problem: Problem) -> Result<T, Refusal> {
    Err(problem.into())
}

fn contract(message: impl Into<String>, here: impl Into<String>) -> Problem {
    Problem::new(Code::Contract, message, here)
}

/// `` `a`, `b` and `c` ``
fn listed(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{}`", name.as_ref())).collect();
    match names.as_slice() {
        [] => "nothing".to_string(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
