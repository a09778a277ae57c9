//! `module.data_parallel(over, dim)`: the ranks of an axis share the batch.

use super::numbers::{divisors, joined};
use super::{Class, Parameter, Primitive, Problem, Receiver, Refusal, State};
use crate::compile::DataParallel;
use crate::schedule::{Argument, Kind, Place, Step, Want};
use slapo_model::ModuleId;
use slapo_syntax::Code;

pub static DATA_PARALLEL: Primitive = Primitive {
    name: "data_parallel",
    receiver: Receiver::Module,
    params: &[
        Parameter {
            name: "over",
            want: Want::one(Kind::Axis),
            default: None,
            docs: "the axis, or axes, whose ranks share the batch; its size must divide it",
        },
        Parameter {
            name: "dim",
            want: Want::one(Kind::Int),
            default: Some(Argument::Int(0)),
            docs: "the batch dimension of the inputs; always 0",
        },
    ],
    class: Class::Reassociating,
    docs: "\
Splits every input along the batch. What the ranks must agree on is reduced: the number of valid tokens before the loss is
divided by it, the loss, and the gradient of every parameter, which is the gradient of the whole batch. Asked of the whole
model, at most once per axis.

```slapo
input { batch = 8, seq = 64 }
mesh { dp = 2 }

schedule main(m: GPT2LMHeadModel) {
    m.data_parallel(over: dp)
}
```",
    check,
    apply,
};

fn check(state: &State, step: &Step) -> Result<(), Refusal> {
    if step.target.place != Place::Module(ModuleId(0)) {
        let message = format!("only the whole model can be data-parallel, not `{}`", step.target.path);
        let problem = Problem::new(Code::NotTheModel, message, "a part of the model")
            .help("ask it of the parameter of `main`, once per axis");
        return Err(Refusal::illegal(problem));
    }
    if let Some(dim) = step.arg("dim").filter(|dim| **dim != Argument::Int(0)) {
        let message = format!("the inputs cannot be split along dimension {dim}");
        let problem = Problem::new(Code::BadValue, message, "not the batch").help("dimension 0 is the batch");
        return Err(Refusal::illegal(problem));
    }
    let axes = state.axes(step)?;
    if let Some(before) = state.effects.data_parallel.iter().find(|data| axes.contains(&data.axis)) {
        let message = format!("the batch is split over `{}` already", state.effects.axes[before.axis].name);
        let problem = Problem::new(Code::Repeated, message, "for the second time");
        return Err(Refusal::illegal(problem.earlier(before.step, "split here")));
    }
    let shared = state.data_parts().saturating_mul(i64::from(state.effects.micro_batches));
    let size = axes.iter().map(|axis| state.size(*axis)).fold(1, i64::saturating_mul);
    match state.sizes {
        Some(sizes) if sizes.batch % shared.saturating_mul(size) != 0 => {
            let over = step.arg("over").map(ToString::to_string).unwrap_or_default();
            Err(Refusal::illegal(indivisible(state, sizes.batch, shared, &over, size)))
        }
        _ => Ok(()),
    }
}

fn indivisible(state: &State, batch: i64, shared: i64, axis: &str, size: i64) -> Problem {
    let message = match shared {
        1 => format!("a batch of {batch} does not divide over `{axis}` of size {size}"),
        _ => format!("a batch of {batch} in {shared} parts does not divide over `{axis}` of size {size}"),
    };
    let here = match shared {
        1 => format!("{batch} / {size} is not a whole number"),
        _ => format!("{batch} / ({shared} * {size}) is not a whole number"),
    };
    let problem = Problem::new(Code::NotDivisible, message, here);
    let asked = state.earlier(&super::accumulate::ACCUMULATE, |_| true);
    let asked = asked.or_else(|| state.earlier(&DATA_PARALLEL, |_| true));
    let problem = match asked {
        Some(step) => problem.earlier(step.id, "splits the batch too"),
        None => problem,
    };
    match batch % shared {
        0 => problem.help(format!("legal sizes of `{axis}` here: {}", joined(&divisors(batch / shared)))),
        _ => problem.help(format!("the batch must be a multiple of {}", shared.saturating_mul(size))),
    }
}

fn apply(state: &mut State, step: &Step) {
    for axis in state.axes(step).into_iter().flatten() {
        state.effects.data_parallel.push(DataParallel { axis, step: step.id });
    }
}
