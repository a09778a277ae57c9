//! `module.deny(reshard)`: a limit on what one conversion of layouts may move.

use super::{Class, Parameter, Primitive, Problem, Receiver, Refusal, State};
use crate::compile::Denial;
use crate::schedule::{Argument, Kind, Step, Want};
use slapo_syntax::Code;

pub static DENY: Primitive = Primitive {
    name: "deny",
    receiver: Receiver::Module,
    params: &[Parameter {
        name: "reshard",
        want: Want::one(Kind::Int),
        default: None,
        docs: "the most bytes that one conversion may move: `0`, `64KiB`, `10MiB`",
    }],
    class: Class::Exact,
    docs: "\
Makes an error of every collective at a point of the module, or below it, that moves more than a number of bytes: forward and
backward, syncs and layouts alike. What counts is one call on one rank, the larger of the tensor that it gives and the one that
it gets; a slice moves nothing. Reductions that `data_parallel` brings are no conversions and are not counted.

```slapo
mesh { tp = 2 }

schedule main(m: GPT2LMHeadModel) {
    let mlp = m.transformer.h[0].mlp
    mlp.c_fc.{weight, bias}.shard(out, over: tp)
    mlp.c_proj.weight.shard(in, over: tp)
    mlp.c_fc.input().grad().sync(all_reduce, over: tp)
    mlp.c_proj.output().sync(all_reduce, over: tp)
    m.transformer.h.*.deny(reshard: 10MiB)
}
```",
    check,
    apply,
};

fn bytes(step: &Step) -> i64 {
    match step.arg("reshard") {
        Some(Argument::Int(bytes)) => *bytes,
        _ => 0,
    }
}

fn check(state: &State, step: &Step) -> Result<(), Refusal> {
    let limit = bytes(step);
    if limit < 0 {
        let problem = Problem::new(Code::BadValue, format!("a limit cannot be {limit} bytes"), "less than nothing");
        return Err(Refusal::illegal(problem.help("0 denies every collective")));
    }
    let Some(before) = state.earlier_on(step.target.place, &DENY, |_| true) else { return Ok(()) };
    let code = if bytes(before) == limit { Code::Repeated } else { Code::Contradiction };
    let path = &step.target.path;
    let of = if path.is_empty() { "the model".to_string() } else { format!("`{path}`") };
    let problem = Problem::new(code, format!("{of} has a limit already"), "for the second time");
    Err(Refusal::illegal(problem.earlier(before.id, format!("{} bytes here", bytes(before)))))
}

fn apply(state: &mut State, step: &Step) {
    if let Some(module) = step.target.place.module() {
        state.effects.denials.push(Denial { module, bytes: bytes(step), step: step.id });
    }
}
