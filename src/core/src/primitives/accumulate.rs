//! `module.accumulate(steps)`: one optimizer step over several micro-batches.

use super::numbers::{divisors_near, joined};
use super::{Class, Parameter, Primitive, Problem, Receiver, Refusal, State};
use crate::schedule::{Argument, Kind, Place, Step, Want};
use slapo_model::ModuleId;
use slapo_syntax::Code;

pub static ACCUMULATE: Primitive = Primitive {
    name: "accumulate",
    receiver: Receiver::Module,
    params: &[Parameter {
        name: "steps",
        want: Want::one(Kind::Int),
        default: None,
        docs: "number of micro-batches; must divide the batch",
    }],
    class: Class::Reassociating,
    docs: "\
Splits the batch of a step into `steps` micro-batches, runs forward and backward on each and adds up the gradients
before the one update. The activations of one micro-batch are in memory at a time. Loss and gradients are those of the
whole batch: token counts are taken over all micro-batches. Asked of the whole model, at most once.

```slapo
input { batch = 8, seq = 64 }

schedule main(m: GPT2LMHeadModel) {
    m.accumulate(steps: 2)
}
```",
    check,
    apply,
};

fn steps(step: &Step) -> i64 {
    match step.arg("steps") {
        Some(Argument::Int(steps)) => *steps,
        _ => 1,
    }
}

fn check(state: &State, step: &Step) -> Result<(), Refusal> {
    let steps = steps(step);
    if step.target.place != Place::Module(ModuleId(0)) {
        let message = format!("only the whole model can accumulate gradients, not `{}`", step.target.path);
        let problem = Problem::new(Code::NotTheModel, message, "a part of the model")
            .help("ask it of the parameter of `main`, once");
        return Err(Refusal::illegal(problem));
    }
    if let Some(earlier) = state.earlier(&ACCUMULATE, |_| true) {
        let before = self::steps(earlier);
        let (code, message) = match before == steps {
            true => (Code::Repeated, "gradients are accumulated already".to_string()),
            false => {
                (Code::Contradiction, format!("gradients cannot be accumulated over {steps} steps and over {before}"))
            }
        };
        let problem = Problem::new(code, message, "for the second time");
        return Err(Refusal::illegal(problem.earlier(earlier.id, format!("over {before} steps here"))));
    }
    if i32::try_from(steps).is_err() || steps < 1 {
        let problem =
            Problem::new(Code::BadValue, format!("cannot accumulate over {steps} steps"), "must be at least 1");
        return Err(Refusal::illegal(problem));
    }
    match state.sizes {
        Some(sizes) if sizes.batch % steps.saturating_mul(state.data_parts()) != 0 => {
            Err(Refusal::illegal(indivisible(sizes.batch, steps, state.data_parts())))
        }
        _ => Ok(()),
    }
}

/// A batch that does not divide into micro-batches on the ranks that share it.
pub(crate) fn indivisible(batch: i64, steps: i64, ranks: i64) -> Problem {
    if ranks == 1 {
        let message = format!("a batch of {batch} does not divide into {steps} micro-batches");
        return Problem::new(Code::NotDivisible, message, format!("{batch} / {steps} is not a whole number")).help(
            format!("micro-batches that divide {batch}, nearest first: {}", joined(&divisors_near(batch, steps))),
        );
    }
    let message = format!("a batch of {batch} does not divide into {steps} micro-batches on each of {ranks} ranks");
    let problem =
        Problem::new(Code::NotDivisible, message, format!("{batch} / ({ranks} * {steps}) is not a whole number"));
    match batch % ranks {
        0 => {
            let legal = joined(&divisors_near(batch / ranks, steps));
            problem.help(format!(
                "micro-batches that divide the {} samples of a rank, nearest first: {legal}",
                batch / ranks
            ))
        }
        _ => problem.help(format!("the batch must be a multiple of {}", ranks.saturating_mul(steps))),
    }
}

fn apply(state: &mut State, step: &Step) {
    state.effects.micro_batches = steps(step) as u32;
}
