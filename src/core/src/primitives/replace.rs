//! `match.replace(with)`: one operator in place of what a pattern found; `module.replace(with)`: another archive's module in
//! place of one of the model's, which is [`crate::replacement`]'s to check.
//!
//! The contract: every tensor and every number that the pattern binds is taken by the replacement, under its own name;
//! every operand of the replacement comes from the pattern; shapes fit and the result has the shape it had. Weights
//! travel as the values that they are. Element-wise replacements are compared with the pattern at a few points.

use super::{Class, Parameter, Primitive, Problem, Receiver, Refusal, State};
use crate::passes::rewrite::Rewrite;
use crate::patterns::operators::{self, Given, Operator, Slot, SlotKind, see};
use crate::patterns::sample::{self, Difference};
use crate::patterns::{Match, Term, Variant};
use crate::replacement;
use crate::schedule::{Argument, Kind, Place, Step, Want};
use slapo_model::sym::Size;
use slapo_model::{Arg, ValueId};
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
have their names; `x: hidden` takes another one. Whatever the pattern binds, the operator must take: a bias or a scale is
never lost. Shapes must fit, and an element-wise operator must have the pattern's values. Parameters keep their paths and
their layouts. A match is used once.

```slapo
pattern gelu_tanh(x) = 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ^ 3)))

schedule main(m: GPT2LMHeadModel) {
    m.transformer.h.find(gelu_tanh).replace(gelu(approximate: \"tanh\"))
}
```

Of a module: computes by the module of another archive, which `torch.export.save` wrote, what this one computes. The path is
relative to the schedule's folder. Weights are the model's own and keep their paths; `weights` says which is which, by
`by_name` or as pairs of a name in the archive and a parameter, and it must be total on both sides. A single input needs no
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
    plan.shapes_fit(&given, result)?;
    plan.values_agree(&given, &used)?;
    let (aten, names) = operator.written();
    let mut written = Vec::new();
    for ((slot, name), given) in operator.slots.iter().zip(names).zip(&given) {
        if *given != slot.usual() {
            written.push(((*name).to_string(), argument(slot, given)));
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
    /// The one value that leaves the match, whose operators draw no random numbers.
    fn result(&self) -> Result<ValueId, Refusal> {
        let pattern = &self.found.pattern.name;
        let graph = self.state.graph();
        let operators = self.found.values.iter().filter_map(|value| see(graph, graph.definition(*value)?));
        let is_random = |operator: &Operator| operator.name == "dropout";
        if is_random(self.operator) || operators.into_iter().any(|seen| is_random(seen.operator)) {
            let message = format!("`{}` draws random numbers, which a replacement would draw otherwise", self.path);
            return Err(contract(message, "holds a dropout"));
        }
        match self.found.results.as_slice() {
            [one] => Ok(*one),
            several => Err(contract(
                format!("`{}` gives one value, `{pattern}` has {} results", self.operator.name, several.len()),
                "one operator for several results",
            )),
        }
    }

    /// What stands in each slot, with the pattern's parameter that it is.
    fn operands(&self, args: &[(String, Argument)]) -> Result<(Vec<Given>, Vec<Option<usize>>), Refusal> {
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
                Some(literal) => {
                    given.push(self.literal(slot, literal)?);
                    used.push(None);
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
            used.push(param);
        }
        Ok((given, used))
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
    fn nothing_is_lost(&self, used: &[Option<usize>]) -> Result<(), Refusal> {
        let params = self.found.pattern.params.iter().enumerate();
        let mut bound = params.filter(|(at, _)| self.found.bound[*at] != Given::Absent);
        match bound.find(|(at, _)| !used.contains(&Some(*at))) {
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
        let types: Vec<_> = given
            .iter()
            .map(|given| if let Given::Value(value) = given { Some(graph.ty(*value)) } else { None })
            .collect();
        let of = |at: usize| types.get(at).copied().flatten().map(|ty| ty.shape.as_slice());
        let wanted = &graph.ty(result).shape;
        let gives = match (self.operator.name, of(0), of(1)) {
            ("linear", Some([batch @ .., width]), Some([out, inner])) => {
                let bias_fits = of(2).is_none_or(|bias| bias == std::slice::from_ref(out));
                (width == inner && bias_fits).then(|| [batch, std::slice::from_ref(out)].concat())
            }
            ("layer_norm", Some(x), weight) => {
                let last = x.last().map(std::slice::from_ref);
                [weight, of(2)].into_iter().flatten().all(|w| Some(w) == last).then(|| x.to_vec())
            }
            ("add" | "mul" | "sub" | "div" | "pow", Some(a), Some(b)) => broadcast(a, b),
            ("add" | "mul" | "sub" | "div" | "pow", a, b) => a.or(b).map(<[Size]>::to_vec),
            ("addmm" | "embedding" | "layer_norm" | "linear" | "matmul" | "mean" | "sum" | "transpose", ..) => None,
            (_, Some(x), _) => Some(x.to_vec()),
            _ => None,
        };
        let is_same_type = types.iter().flatten().all(|ty| ty.dtype == graph.ty(result).dtype);
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

    /// Element-wise, the replacement has the pattern's values.
    fn values_agree(&self, given: &[Given], used: &[Option<usize>]) -> Result<(), Refusal> {
        let pattern = &self.found.pattern;
        let Some(variant) = pattern.variants.get(self.found.variant) else { return Ok(()) };
        let mut replacement = Variant::default();
        let mut args = Vec::new();
        for (given, used) in given.iter().zip(used) {
            args.push(match (given, used) {
                (Given::Absent, _) => None,
                (_, Some(param)) => Some(replacement.term(Term::Param(*param))),
                (literal, None) => Some(replacement.term(Term::Given(literal.clone()))),
            });
        }
        let root = replacement.term(Term::Apply(self.operator, args));
        replacement.results.push(root);
        let Some(Difference { at, values }) = sample::difference(&self.found.bound, variant, &replacement) else {
            return Ok(());
        };
        let message = format!("`{}` does not compute what `{}` does", self.operator.name, pattern.name);
        let problem = Problem::new(Code::Contract, message, "another function");
        Err(Refusal::illegal(problem.note(format!("at {at} it is {:.6}, the pattern {:.6}", values[1], values[0]))))
    }

    /// Size of the dimension that a norm goes over.
    fn width(&self, given: &[Given]) -> Result<i64, Refusal> {
        let graph = self.state.graph();
        let x = if let Some(Given::Value(x)) = given.first() { graph.ty(*x).shape.last() } else { None };
        x.and_then(Size::constant)
            .ok_or_else(|| contract("a norm goes over a dimension of fixed size", "its size varies"))
    }
}

fn argument(slot: &Slot, given: &Given) -> Arg {
    match (slot.kind, given) {
        (_, Given::Absent) => Arg::None,
        (_, Given::Value(value)) => Arg::Value(*value),
        (_, Given::Number(number)) => Arg::Float(*number),
        (_, Given::Bool(value)) => Arg::Bool(*value),
        (_, Given::Text(text)) => Arg::Str(text.clone()),
        (SlotKind::Dims, Given::Dims(dims)) if dims.len() == 1 => Arg::Int(dims[0]),
        (_, Given::Dims(dims)) => Arg::Ints(dims.clone()),
    }
}

/// The shape of two operands together, as far as their sizes are known to be equal or 1.
fn broadcast(a: &[Size], b: &[Size]) -> Option<Vec<Size>> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let lead = long.len() - short.len();
    let mut shape = long.to_vec();
    for (at, size) in short.iter().enumerate() {
        let one = Size::Const(1);
        match &shape[lead + at] {
            known if known == size || *size == one => {}
            known if *known == one => shape[lead + at] = size.clone(),
            _ => return None,
        }
    }
    Some(shape)
}

fn contract(message: impl Into<String>, here: &str) -> Refusal {
    Refusal::illegal(Problem::new(Code::Contract, message, here))
}
