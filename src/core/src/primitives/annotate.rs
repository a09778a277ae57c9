//! `path.annotate(key, value)`: metadata that travels with the steps.

use super::{Class, Parameter, Primitive, Problem, Receiver, Refusal, State};
use crate::schedule::{Kind, Place, Step, Want};
use slapo_syntax::Code;

pub static ANNOTATE: Primitive = Primitive {
    name: "annotate",
    receiver: Receiver::Any,
    params: &[
        Parameter { name: "key", want: Want::one(Kind::Text), default: None, docs: "name of the note" },
        Parameter {
            name: "value",
            want: Want::one(Kind::Scalar),
            default: None,
            docs: "a number, a string, `true` or `false`",
        },
    ],
    class: Class::Exact,
    docs: "\
Attaches a value to a module, a parameter or a buffer. Nothing is computed differently; the note is listed with the steps
and written with them. A key has one value at a place.

```slapo
schedule main(m: GPT2LMHeadModel) {
    m.transformer.wte.annotate(\"lr_scale\", 0.1)
}
```",
    check,
    apply,
};

fn check(state: &State, step: &Step) -> Result<(), Refusal> {
    let key = key(step);
    let earlier = state.notes.get(&(step.target.place, key.clone())).and_then(|at| state.steps.get(*at));
    let Some(earlier) = earlier else { return Ok(()) };
    let path = if step.target.path.is_empty() { "the model".to_string() } else { format!("`{}`", step.target.path) };
    let value = earlier.arg("value").map(ToString::to_string).unwrap_or_default();
    let problem =
        |code, message| Problem::new(code, message, "for the second time").earlier(earlier.id, format!("{value} here"));
    Err(match earlier.arg("value") == step.arg("value") {
        true => Refusal::not_applicable(problem(Code::Repeated, format!("{path} has this value of {key} already"))),
        false => Refusal::illegal(problem(Code::Contradiction, format!("{path} has another value of {key} already"))),
    })
}

fn key(step: &Step) -> String {
    step.arg("key").map(ToString::to_string).unwrap_or_default()
}

fn apply(state: &mut State, step: &Step) {
    state.notes.insert((step.target.place, key(step)), state.steps.len());
    if let Place::Parameter { id, .. } = step.target.place {
        state.touched.insert(id);
    }
}
