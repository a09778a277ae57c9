//! `point.layout(to, over)`: a layout is asked for; how it is reached is the compiler's choice. `param.layout(replicate, over)`
//! says that a parameter is whole on purpose.

use super::numbers::groups;
use super::{Class, Parameter, Primitive, Problem, Receiver, Refusal, State, sync};
use crate::compile::{PointSync, Whole};
use crate::layout::{Layout, Sync};
use crate::schedule::{Argument, Kind, Place, Point, Step, Want};
use slapo_model::ParameterId;
use slapo_syntax::Code;

pub static LAYOUT: Primitive = Primitive {
    name: "layout",
    receiver: Receiver::PointOrParameter,
    params: &[
        Parameter {
            name: "to",
            want: Want::one(Kind::Layout),
            default: None,
            docs: "`replicate` or `shard(dim, groups)`; dimensions as `sync` names them",
        },
        Parameter {
            name: "over",
            want: Want::one(Kind::Axis),
            default: None,
            docs: "the axis whose ranks hold it so, a factor of it, or a list of axes",
        },
    ],
    class: Class::Exact,
    docs: "\
Asks for a layout at a point, of a value or a gradient. The compiler finds how the ranks hold it there and picks the collective
that leads from that to what is asked for: a partial sum becomes whole by `all_reduce`, pieces by `reduce_scatter`; pieces
become whole by `all_gather`, pieces along another dimension by `all_to_all`; a piece of what is whole is a `slice`. What is
held so already stays as it is: then the line is an assertion. `slapoc apply` says which it was. Nothing is forced on the
other direction: the gradient has its own layout.

Of a parameter, `layout(replicate)` states that every rank of the axis has the whole of it. That is how parameters are held
which no step splits; with the statement it is on purpose: `slapoc apply` lists the parameter apart, the lint
`whole-parameters` says nothing of it, and a `shard` over the same axis is an error.

```slapo
mesh { tp = 2 }

schedule main(m: GPT2LMHeadModel) {
    let mlp = m.transformer.h[0].mlp
    mlp.c_fc.{weight, bias}.shard(out, over: tp)
    mlp.c_proj.weight.shard(in, over: tp)
    mlp.c_fc.input().grad().layout(replicate, over: tp)
    mlp.c_proj.output().layout(replicate, over: tp)
    mlp.c_proj.bias.layout(replicate, over: tp)
}
```",
    check,
    apply,
};

fn check(state: &State, step: &Step) -> Result<(), Refusal> {
    let axes = state.axes(step)?;
    if let Some(parameter) = stored(step) {
        return is_whole(state, step, parameter, &axes);
    }
    let Some((point, at)) = sync::synced(state, step)? else { return Ok(()) };
    let wanted = wanted(state, step, &point)?;
    for (axis, wanted) in sync::over(state, axes, Sync::Become(wanted))? {
        let asked = |known: &&PointSync| known.at == at && known.axis == axis && matches!(known.sync, Sync::Become(_));
        if let Some(before) = state.effects.syncs.iter().find(asked) {
            let code = if before.sync == wanted { Code::Repeated } else { Code::Contradiction };
            let name = &state.effects.axes[axis].name;
            let message = format!("a layout over `{name}` is asked for at `{}` already", step.target.path);
            let problem = Problem::new(code, message, "for the second time");
            return Err(Refusal::illegal(problem.earlier(before.step, format!("`{}` here", before.sync))));
        }
    }
    Ok(())
}

/// The parameter that a step is about, unless that is a point.
fn stored(step: &Step) -> Option<ParameterId> {
    match (step.target.point, step.target.place) {
        (None, Place::Parameter { id, .. }) => Some(id),
        _ => None,
    }
}

fn is_whole(state: &State, step: &Step, parameter: ParameterId, axes: &[usize]) -> Result<(), Refusal> {
    let path = &step.target.path;
    let name = |axis: usize| &state.effects.axes[axis].name;
    if step.arg("to") != Some(&Argument::Word("replicate".to_owned())) {
        let message = format!("`layout` does not split `{path}`: it is a parameter");
        let problem = Problem::new(Code::BadValue, message, "not `replicate`");
        return Err(Refusal::illegal(problem.help("a parameter is split by `shard(dim, over: …)`")));
    }
    if let Some(shard) = state.effects.shards.iter().find(|s| s.parameter == parameter && axes.contains(&s.axis)) {
        let message = format!("`{path}` is split over `{}` already", name(shard.axis));
        let problem = Problem::new(Code::Contradiction, message, "is to be whole").earlier(shard.step, "split here");
        return Err(Refusal::illegal(problem));
    }
    match state.effects.whole.iter().find(|whole| whole.parameter == parameter && axes.contains(&whole.axis)) {
        Some(before) => {
            let message = format!("`{path}` is stated to be whole over `{}` already", name(before.axis));
            let problem = Problem::new(Code::Repeated, message, "for the second time");
            Err(Refusal::not_applicable(problem.earlier(before.step, "stated here")))
        }
        None => Ok(()),
    }
}

/// The layout that a step asks for, its dimension as a number.
fn wanted(state: &State, step: &Step, point: &Point) -> Result<Layout, Refusal> {
    match step.arg("to") {
        Some(Argument::Call(_, args)) => {
            let arg = |name: &str| args.iter().find(|(known, _)| known == name).map(|(_, value)| value);
            let Some(dim) = arg("dim") else { return Err(unfinished()) };
            let (dim, outer) = sync::dim_at(state, step, point, dim)?;
            Ok(Layout::Split { dim, groups: groups(arg("groups"))?.saturating_mul(outer) })
        }
        Some(Argument::Word(word)) if word == "replicate" => Ok(Layout::Replicated),
        _ => Err(unfinished()),
    }
}

fn unfinished() -> Refusal {
    let problem = Problem::new(Code::MissingArgument, "`shard` needs a dimension", "a dimension is missing");
    Refusal::illegal(problem.help("say along which dimension: `shard(seq)`"))
}

fn apply(state: &mut State, step: &Step) {
    if let Some(parameter) = stored(step) {
        let axes = state.axes(step).unwrap_or_default().into_iter();
        state.effects.whole.extend(axes.map(|axis| Whole { parameter, axis, step: step.id }));
        state.touched.insert(parameter);
        return;
    }
    if let Some(Ok(wanted)) = step.target.point.map(|point| wanted(state, step, &point)) {
        sync::push(state, step, Sync::Become(wanted));
    }
}
