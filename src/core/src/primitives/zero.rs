//! `module.zero(stage, over)`: optimizer state, and gradients, in pieces.

use super::{Class, Parameter, Primitive, Problem, Receiver, Refusal, State};
use crate::compile::Zero;
use crate::schedule::{Argument, Kind, Step, Want};
use slapo_model::{ModuleId, ParameterId};
use slapo_syntax::Code;

pub static ZERO: Primitive = Primitive {
    name: "zero",
    receiver: Receiver::Module,
    params: &[
        Parameter {
            name: "stage",
            want: Want::one(Kind::Int),
            default: None,
            docs: "1: optimizer state in pieces; 2: gradients too, from the moment they are computed; 3: parameters too, between \
                   their uses",
        },
        Parameter {
            name: "over",
            want: Want::one(Kind::Axis),
            default: None,
            docs: "the axis whose ranks hold a piece each: that of `data_parallel`, or any other over which the parameters are whole",
        },
    ],
    class: Class::Reassociating,
    docs: "\
Each rank of an axis updates a piece of every trained parameter below a module, keeps the optimizer state of that piece only,
and gathers the others' updated pieces (ZeRO, arXiv 1910.02054). The pieces are along dimension 0. A gradient that the ranks
would all-reduce is reduce-scattered instead: in stage 1 once a step, in stage 2 at the end of every micro-batch's backward, so
that no rank ever adds up whole gradients. In stage 3 parameters rest in pieces: they are gathered for every
call of the module, in one bucket, and again for its backward, and the whole is gone when the last operator has read it. Asked of
the whole model, that is done module by module. What is smaller than the axis, and what is split over it already, stays as it is.

```slapo
input { batch = 8, seq = 64 }
mesh { dp = 2 }

schedule main(m: GPT2LMHeadModel) {
    m.data_parallel(over: dp)
    m.zero(stage: 1, over: dp)
}
```",
    check,
    apply,
};

fn stage(step: &Step) -> Option<u8> {
    match step.arg("stage") {
        Some(Argument::Int(stage @ 1..=3)) => u8::try_from(*stage).ok(),
        _ => None,
    }
}

fn check(state: &State, step: &Step) -> Result<(), Refusal> {
    let path = &step.target.path;
    let of = if path.is_empty() { "the model".to_string() } else { format!("`{path}`") };
    let Some(stage) = stage(step) else {
        let given = step.arg("stage").map(ToString::to_string).unwrap_or_default();
        let problem = Problem::new(Code::BadValue, format!("there is no stage {given} of ZeRO"), "no such stage")
            .help("1: optimizer state in pieces; 2: gradients too; 3: parameters too");
        return Err(Refusal::illegal(problem));
    };
    let over = step.arg("over").map(ToString::to_string).unwrap_or_default();
    let [axis] = state.axes(step)?[..] else {
        let message = format!("optimizer state is split over one axis, not over `{over}`");
        return Err(Refusal::illegal(Problem::new(Code::BadValue, message, "several axes").help("name one of them")));
    };
    let below = state.parameters(step.target.place);
    if let Some(before) = state.effects.zero.iter().find(|zero| below.contains(&zero.parameter)) {
        let known = &state.effects.axes[before.axis].name;
        let is_same = (before.stage, before.axis) == (stage, axis);
        let code = if is_same { Code::Repeated } else { Code::Contradiction };
        let message = format!("optimizer state of {of} is in pieces over `{known}` already");
        let problem = Problem::new(code, message, "for the second time");
        return Err(Refusal::illegal(problem.earlier(before.step, format!("stage {} here", before.stage))));
    }
    if held(state, step, axis).is_empty() {
        let message = format!("no optimizer state of {of} can be split over `{over}`");
        let problem = Problem::new(Code::NoState, message, "nothing to split")
            .help("it holds no trained parameter, or all of them are split over the axis or smaller than it");
        return Err(Refusal::not_applicable(problem));
    }
    Ok(())
}

/// The parameters that the step splits the state of.
fn held(state: &State, step: &Step, axis: usize) -> Vec<ParameterId> {
    let effects = &state.effects;
    let is_whole = |id: &ParameterId| {
        let parameter = state.model.parameter(*id);
        let is_split = effects.shards.iter().any(|shard| shard.parameter == *id && shard.axis == axis);
        let is_large = parameter.shape.iter().any(|rows| *rows >= effects.axes[axis].size);
        parameter.trainable && !effects.frozen.contains(id) && !is_split && is_large
    };
    state.parameters(step.target.place).into_iter().filter(is_whole).collect()
}

fn apply(state: &mut State, step: &Step) {
    for axis in state.axes(step).into_iter().flatten() {
        for parameter in held(state, step, axis) {
            let stage = stage(step).unwrap_or(1);
            state.touched.insert(parameter);
            let module = step.target.place.module().unwrap_or(ModuleId(0));
            state.effects.zero.push(Zero { parameter, stage, module, axis, step: step.id });
        }
    }
}
