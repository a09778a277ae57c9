//! `point.layout(to, over)`: a layout is asked for; how it is reached is the compiler's choice.

use super::numbers::groups;
use super::{Class, Parameter, Primitive, Problem, Receiver, Refusal, State, sync};
use crate::compile::PointSync;
use crate::layout::{Layout, Sync};
use crate::schedule::{Argument, Kind, Point, Step, Want};
use slapo_syntax::Code;

pub static LAYOUT: Primitive = Primitive {
    name: "layout",
    receiver: Receiver::Point,
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

```slapo
mesh { tp = 2 }

schedule main(m: GPT2LMHeadModel) {
    let mlp = m.transformer.h[0].mlp
    mlp.c_fc.{weight, bias}.shard(out, over: tp)
    mlp.c_proj.weight.shard(in, over: tp)
    mlp.c_fc.input().grad().layout(replicate, over: tp)
    mlp.c_proj.output().layout(replicate, over: tp)
}
```",
    check,
    apply,
};

fn check(state: &State, step: &Step) -> Result<(), Refusal> {
    let axes = state.axes(step)?;
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
    if let Some(Ok(wanted)) = step.target.point.map(|point| wanted(state, step, &point)) {
        sync::push(state, step, Sync::Become(wanted));
    }
}
