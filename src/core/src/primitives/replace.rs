//! `match.replace(with)`: one operator in place of what a pattern found; `module.replace(with)`: another archive's module in
//! place of one of the model's, which is [`crate::replacement`]'s to check.
//!
//! The contract: every tensor and every number that the pattern binds is taken by the replacement, under its own name;
//! every operand of the replacement comes from the pattern; shapes fit and the result has the shape it had. Weights
//! travel as the values that they are. Both are compared at a few points, or on small tensors of the shapes at hand: operands in
//! the wrong order, another activation, a lost scale compute something else.

use super::{Class, Parameter, Primitive, Problem, Receiver, Refusal, State};
use crate::passes::rewrite::Rewrite;
use crate::patterns::operators::{self, Given, Operator, Slot, SlotKind, see};
use crate::patterns::sample::{self, Difference};
use crate::patterns::shapes;
use crate::patterns::{Match, Term, Variant};
use crate::replacement;
use crate::schedule::{Argument, Kind, Place, Step, Want};
use slapo_model::sym::Size;
use slapo_model::{Arg, Type, ValueId};
use slapo_program::DType;
use slapo_syntax::Code;
use std::sync::Arc;

pub static REPLACE: Primitive = Primitive {
    name: "replace",
    receiver: Receiver::ModuleOrMatch,
    params: &[
        Parameter {
            name: "with",
            want: Want::one(Kind::Replacement),
            default: None,
            docs: "of a match, an operator, whose operands are the pattern's parameters of the same name; of a module, the \
                   path of an archive, from the schedule's folder",
        },
        Parameter {
            name: "weights",
            want: Want::one(Kind::Weights),
            default: Some(Argument::List(Vec::new())),
            docs: "of a module: which parameter every weight of the archive is",
        },
        Parameter {
            name: "ports",
            want: Want::one(Kind::Ports),
            default: Some(Argument::List(Vec::new())),
            docs: "of a module: which value every input or output of the archive is, where there are several and names differ",
        },
    ],
    class: Class::Reassociating,
    docs: "\
Computes by one operator what a pattern found. Operands and attributes of the operator are the parameters of the pattern that
have their names; `x: hidden` takes another one, `scale: 1 / c` computes with a number. Whatever the pattern binds, the operator
must take: a bias, a mask or a scale is never lost. Shapes must fit, and the operator must have the pattern's values at a few
points. Nothing that draws random numbers is replaced: attention must be without dropout. Parameters keep their paths and their
layouts. A match is used once.

```slapo
pattern gelu_tanh(x) = 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ^ 3)))

schedule main(m: GPT2LMHeadModel) {
    m.transformer.h.find(gelu_tanh).replace(gelu(approximate: \"tanh\"))
}
```

Attention that a model spells out becomes the operator that needs no memory for its scores:

```slapo
use std.fusion.sdpa

schedule main(m: GPT2LMHeadModel) {
    try m.find(sdpa).replace(attention(scale: c))
}
```

Of a module: computes by the module of another archive, which `torch.export.save` wrote, what this one computes. The path is
relative to the schedule's folder. Weights are the model's own and keep their paths; `weights` says which is which, by
`by_name` or as pairs of a name in the archive and a parameter, and it must be total on both sides. Layers that the archive has
as one have a list of parameters, `[[\"qkv.weight\", [a.q.weight, a.k.weight, a.v.weight]]]`, which are joined in that order. A single input needs no
name; of several, those of other names are given in `ports`, such as `[[\"mask\", b.attn.input(1)]]`. Types must be the same, and
nothing may be lost: masks, scales, activations, norms, residual additions and dropouts are compared now, values by
`slapoc verify`. Dropouts draw the numbers of those that they replace. What lies in the module is no longer there for later
steps; its parameters and its own points are.

```slapo
schedule main(m: GPT2LMHeadModel) {
    for b in m.transformer.h {
        b.mlp.replace(\"mlp.pt2\", weights: by_name)
    }
}
```",
    check,
    apply,
};

fn check(state: &State, step: &Step) -> Result<(), Refusal> {
    match step.target.found {
        Some(_) => planned(state, step).map(drop),
        None => replacement::plan(state, step).map(drop),
    }
}

fn apply(state: &mut State, step: &Step) {
    if step.target.found.is_none() {
        if let (Ok(Some(plan)), Place::Module(module)) = (replacement::plan(state, step), step.target.place) {
            state.rewrite(plan.values, step.id, Rewrite::Splice(Arc::new(plan.splice)));
            state.modules.push((module, step.id));
        }
        return;
    }
    if let (Ok(rewrite), Some(found)) = (planned(state, step), &step.target.found) {
        state.rewrite(found.values.clone(), step.id, rewrite);
    }
}

/// A replacement that is being checked.
struct Plan<'a, 'm> {
    state: &'a State<'m>,
    found: &'a Match,
    operator: &'static Operator,
    path: &'a str,
}

fn planned(state: &State, step: &Step) -> Result<Rewrite, Refusal> {
    let (Some(found), Some(Argument::Call(name, args))) = (&step.target.found, step.arg("with")) else {
        return Err(contract("a match is replaced by an operator", "no operator"));
    };
    if ["weights", "ports"].iter().any(|name| !matches!(step.arg(name), Some(Argument::List(all)) if all.is_empty())) {
        let message = "`weights` and `ports` are for archives: the operands of an operator go by name";
        return Err(contract(message, "an operator has none"));
    }
    state.unchanged(found, &step.target.path)?;
    let Some(operator) = operators::find(name) else {
        return Err(contract(format!("there is no operator `{name}`"), "unknown operator"));
    };
    let plan = Plan { state, found, operator, path: &step.target.path };
    let result = plan.result()?;
    let (given, used) = plan.operands(args)?;
    plan.nothing_is_lost(&used)?;
    if Plan::is_random(operator, &given) {
        return Err(plan.random("draws them"));
    }
    plan.shapes_fit(&given, result)?;
    plan.values_agree(&given, &used)?;
    let (aten, names) = operator.written();
    let mut written = Vec::new();
    for ((slot, name), given) in operator.slots.iter().zip(names).zip(&given) {
        if *given != slot.usual() {
            written.push(((*name).to_string(), argument(operator, slot, given)));
        }
    }
    if operator.name == "layer_norm" {
        written.insert(1, ("normalized_shape".to_string(), Arg::Ints(vec![plan.width(&given)?])));
    }
    Ok(Rewrite::Replace {
        values: found.values.clone(),
        result,
        operator: aten.to_string(),
        args: written,
        step: step.id,
    })
}

impl Plan<'_, '_> {
    /// The one value that leaves the match.
    fn result(&self) -> Result<ValueId, Refusal> {
        let (pattern, operator) = (&self.found.pattern.name, self.operator.name);
        if !self.operator.replaces() && operator != "dropout" {
            return Err(contract(format!("`{operator}` cannot stand in for a match"), "no replacement"));
        }
        let graph = self.state.graph();
        let seen = self.found.values.iter().filter_map(|value| see(graph, graph.definition(*value)?));
        if seen.into_iter().any(|seen| Plan::is_random(seen.operator, &seen.given)) {
            return Err(self.random("holds a dropout"));
        }
        match self.found.results.as_slice() {
            [one] => Ok(*one),
            several => Err(contract(
                format!("`{operator}` gives one value, `{pattern}` has {} results", several.len()),
                "one operator for several results",
            )),
        }
    }

    /// Whether an operator with these attributes draws random numbers.
    fn is_random(operator: &Operator, given: &[Given]) -> bool {
        let p = operator.slots.iter().position(|slot| slot.name == "p");
        p.is_some_and(|p| given[p] != Given::Number(0.0))
    }

    fn random(&self, here: &str) -> Refusal {
        let message = format!("`{}` draws random numbers, which a replacement would draw otherwise", self.path);
        let problem = Problem::new(Code::Contract, message, here);
        Refusal::illegal(problem.help("export the model with dropout 0, or leave the match as it is"))
    }

    /// What stands in each slot, with the pattern's parameter that it is, or those that it is computed of.
    fn operands(&self, args: &[(String, Argument)]) -> Result<(Vec<Given>, Vec<Vec<usize>>), Refusal> {
        let params = &self.found.pattern.params;
        let tensors = |slot: &&Slot| slot.is_tensor();
        // One tensor on either side needs no names.
        let only = match (params.as_slice(), self.operator.slots.iter().filter(tensors).count()) {
            ([param], 1) if !param.is_number => Some(0),
            _ => None,
        };
        let (mut given, mut used) = (Vec::new(), Vec::new());
        for slot in self.operator.slots {
            let named = |name: &str| params.iter().position(|param| param.name == name);
            let param = match args.iter().find(|(name, _)| name == slot.name).map(|(_, arg)| arg) {
                Some(Argument::Word(name)) => Some(named(name).ok_or_else(|| self.no_param(name))?),
                Some(Argument::Call(..)) if !matches!(slot.kind, SlotKind::Number | SlotKind::Operand) => {
                    return Err(self.unfit(slot));
                }
                Some(other) => {
                    let mut of = Vec::new();
                    given.push(match other {
                        Argument::Call(..) => Given::Number(self.number(other, &mut of)?),
                        literal => self.literal(slot, literal)?,
                    });
                    used.push(of);
                    continue;
                }
                None => named(slot.name).or(only.filter(|_| slot.is_tensor())),
            };
            let bound = param.map(|at| self.found.bound[at].clone()).filter(|bound| *bound != Given::Absent);
            let value = match (bound, slot.default) {
                (Some(bound), _) => slot.fit(bound, 0).ok_or_else(|| self.unfit(slot))?,
                (None, Some(_)) => slot.usual(),
                (None, None) => return Err(self.missing(slot)),
            };
            given.push(value);
            used.push(param.into_iter().collect());
        }
        Ok((given, used))
    }

    /// A number that is computed of the pattern's numbers, which are added to `of`.
    fn number(&self, argument: &Argument, of: &mut Vec<usize>) -> Result<f64, Refusal> {
        let (name, args) = match argument {
            Argument::Call(name, args) => (name.as_str(), args),
            Argument::Int(n) => return Ok(*n as f64),
            Argument::Number(number) => return Ok(number.to_f64()),
            Argument::Word(name) => {
                let params = &self.found.pattern.params;
                let at = params.iter().position(|param| param.name == *name).ok_or_else(|| self.no_param(name))?;
                of.push(at);
                let Given::Number(number) = self.found.bound[at] else {
                    let message =
                        format!("`{name}` is a tensor: a replacement computes with the pattern's numbers alone");
                    return Err(contract(message, "no number"));
                };
                return Ok(number);
            }
            other => return Err(contract(format!("`{other}` is no number"), "computes with it")),
        };
        let numbers: Result<Vec<f64>, Refusal> = args.iter().map(|(_, arg)| self.number(arg, of)).collect();
        Ok(match (name, numbers?.as_slice()) {
            ("add", [a, b]) => a + b,
            ("sub", [a, b]) => a - b,
            ("mul", [a, b]) => a * b,
            ("div", [a, b]) => a / b,
            ("pow", [a, b]) => a.powf(*b),
            ("neg", [x]) => -x,
            _ => return Err(contract(format!("`{argument}` is no number"), "cannot be computed")),
        })
    }

    fn literal(&self, slot: &Slot, literal: &Argument) -> Result<Given, Refusal> {
        let rank = self.rank();
        let given = match literal {
            Argument::Int(n) => Some(Given::Number(*n as f64)),
            Argument::Number(number) => Some(Given::Number(number.to_f64())),
            Argument::Bool(value) => Some(Given::Bool(*value)),
            Argument::Text(text) => Some(Given::Text(text.clone())),
            _ => None,
        };
        given.and_then(|given| slot.fit(given, rank)).ok_or_else(|| self.unfit(slot))
    }

    /// Dimensions of the value that is replaced.
    fn rank(&self) -> usize {
        let graph = self.state.graph();
        self.found.results.first().map_or(0, |result| graph.ty(*result).shape.len())
    }

    fn no_param(&self, name: &str) -> Refusal {
        let names = self.found.pattern.params.iter().map(|param| format!("`{}`", param.name)).collect::<Vec<_>>();
        let problem = format!("the pattern `{}` has no parameter `{name}`", self.found.pattern.name);
        Refusal::illegal(
            Problem::new(Code::Contract, problem, "names no parameter").help(format!("it has {}", names.join(", "))),
        )
    }

    fn unfit(&self, slot: &Slot) -> Refusal {
        contract(
            format!("what is given for `{}` of `{}` is of another kind", slot.name, self.operator.name),
            "does not fit",
        )
    }

    fn missing(&self, slot: &Slot) -> Refusal {
        let (name, pattern) = (slot.name, &self.found.pattern.name);
        let message = format!("`{}` needs `{name}`, which `{pattern}` does not bind", self.operator.name);
        let help = match slot.is_tensor() {
            true => format!("name a parameter of the pattern: `{name}: …`"),
            false => format!("give it: `{name}: …`"),
        };
        Refusal::illegal(Problem::new(Code::Contract, message, format!("no `{name}`")).help(help))
    }

    /// A tensor or number that the replacement does not take would silently drop out of the model.
    fn nothing_is_lost(&self, used: &[Vec<usize>]) -> Result<(), Refusal> {
        let params = self.found.pattern.params.iter().enumerate();
        let mut bound = params.filter(|(at, _)| self.found.bound[*at] != Given::Absent);
        match bound.find(|(at, _)| !used.iter().flatten().any(|known| known == at)) {
            None => Ok(()),
            Some((_, lost)) => {
                let message =
                    format!("`{}` does not take `{}`, which the model has here", self.operator.name, lost.name);
                let problem = Problem::new(Code::Contract, message, format!("`{}` would be lost", lost.name));
                let names: Vec<&str> = self.operator.slots.iter().map(|slot| slot.name).collect();
                Err(Refusal::illegal(problem.help(format!(
                    "operands and attributes go by name: `{}` has {}",
                    self.operator.name,
                    names.join(", ")
                ))))
            }
        }
    }

    fn shapes_fit(&self, given: &[Given], result: ValueId) -> Result<(), Refusal> {
        let graph = self.state.graph();
        let shape = |given: &Given| self.typed(given).map(|ty| ty.shape.as_slice());
        let gives = shapes::result(self.operator, given, shape);
        let wanted = &graph.ty(result).shape;
        let mut types =
            self.operator.slots.iter().zip(given).filter_map(|(slot, given)| Some((slot, self.typed(given)?)));
        // A mask of attention may say which scores count.
        let is_same_type = types
            .all(|(slot, ty)| ty.dtype == graph.ty(result).dtype || (slot.name == "mask" && ty.dtype == DType::Bool));
        if gives.as_ref() == Some(wanted) && is_same_type {
            return Ok(());
        }
        let operands = self.operator.slots.iter().zip(given).filter_map(|(slot, given)| match given {
            Given::Value(value) => Some(format!("`{}` is {}", slot.name, self.shape(*value))),
            _ => None,
        });
        let note = operands.collect::<Vec<_>>().join(", ");
        let problem = format!("`{}` of these operands does not give {}", self.operator.name, self.shape(result));
        Err(Refusal::illegal(Problem::new(Code::Contract, problem, "shapes do not fit").note(note)))
    }

    fn typed(&self, given: &Given) -> Option<&Type<Size>> {
        if let Given::Value(value) = given { Some(self.state.graph().ty(*value)) } else { None }
    }

    /// `f32[8, 64, 256]`, with the sizes of a step where they are known.
    fn shape(&self, value: ValueId) -> String {
        let state = self.state;
        let is_imported = (value.0 as usize) < state.model.graph.values.len();
        let bound = state.sizes.filter(|_| is_imported).and_then(|sizes| state.ports.bound_type(value, sizes));
        let ty = state.graph().ty(value);
        let sizes: Vec<String> = match &bound {
            Some(ty) => ty.shape.iter().map(ToString::to_string).collect(),
            None => ty.shape.iter().map(ToString::to_string).collect(),
        };
        format!("{}[{}]", ty.dtype.name(), sizes.join(", "))
    }

    /// The replacement has the pattern's values.
    fn values_agree(&self, given: &[Given], used: &[Vec<usize>]) -> Result<(), Refusal> {
        let pattern = &self.found.pattern;
        let Some(variant) = pattern.variants.get(self.found.variant) else { return Ok(()) };
        let mut replacement = Variant::default();
        let mut args = Vec::new();
        for (given, used) in given.iter().zip(used) {
            args.push(match (given, used.as_slice()) {
                (Given::Absent, _) => None,
                (given, [param]) if *given == self.found.bound[*param] => Some(replacement.term(Term::Param(*param))),
                (literal, _) => Some(replacement.term(Term::Given(literal.clone()))),
            });
        }
        let root = replacement.term(Term::Apply(self.operator, args));
        replacement.results.push(root);
        let shape = |given: &Given| {
            let ty = self.typed(given).filter(|ty| ty.dtype.is_float());
            ty.map(|ty| ty.shape.as_slice())
        };
        let head = given.first().and_then(shape).and_then(|shape| shape.last()?.constant()).map(|width| width as f64);
        let found = sample::difference(&self.found.bound, shape, head, variant, &replacement);
        let Some(Difference { at, values }) = found else { return Ok(()) };
        let message = format!("`{}` does not compute what `{}` does", self.operator.name, pattern.name);
        let problem = Problem::new(Code::Contract, message, "another function");
        let place = at.map_or("on small tensors an element".to_string(), |at| format!("at {at} it"));
        Err(Refusal::illegal(problem.note(format!("{place} is {:.6}, the pattern's {:.6}", values[1], values[0]))))
    }

    /// Size of the dimension that a norm goes over.
    fn width(&self, given: &[Given]) -> Result<i64, Refusal> {
        let graph = self.state.graph();
        let x = if let Some(Given::Value(x)) = given.first() { graph.ty(*x).shape.last() } else { None };
        x.and_then(Size::constant)
            .ok_or_else(|| contract("a norm goes over a dimension of fixed size", "its size varies"))
    }
}

fn argument(operator: &Operator, slot: &Slot, given: &Given) -> Arg {
    let is_reduction = matches!(operator.name, "mean" | "sum");
    match (slot.kind, given) {
        (_, Given::Absent) => Arg::None,
        (_, Given::Value(value)) => Arg::Value(*value),
        (_, Given::Number(number)) => Arg::Float(*number),
        (_, Given::Bool(value)) => Arg::Bool(*value),
        (_, Given::Text(text)) => Arg::Str(text.clone()),
        (SlotKind::Dims, Given::Dims(dims)) if dims.len() == 1 && !is_reduction => Arg::Int(dims[0]),
        (_, Given::Dims(dims)) => Arg::Ints(dims.clone()),
    }
}

fn contract(message: impl Into<String>, here: &str) -> Refusal {
    Refusal::illegal(Problem::new(Code::Contract, message, here))
}
