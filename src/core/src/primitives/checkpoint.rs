//! `module.checkpoint()`: recompute a module's activations in backward.

use super::{Class, Primitive, Problem, Receiver, Refusal, State};
use crate::schedule::{Place, Step};
use slapo_model::{Module, ModuleId};
use slapo_syntax::Code;

pub static CHECKPOINT: Primitive = Primitive {
    name: "checkpoint",
    receiver: Receiver::Module,
    params: &[],
    class: Class::Exact,
    docs: "\
Recomputes in backward what the module computes in forward, instead of keeping it: memory for time. What enters the
module is kept. The recomputed operators are copies of the forward's, random numbers included, so gradients are
bit-equal. Paths do not change. A module that is called several times is recomputed in every call.

```slapo
schedule main(m: GPT2LMHeadModel) {
    m.transformer.h[..2].checkpoint()
}
```",
    check,
    apply,
};

fn check(state: &State, step: &Step) -> Result<(), Refusal> {
    let Place::Module(id) = step.target.place else { return Ok(()) };
    let path = &step.target.path;
    if slapo_model::regions::calls(state.model, id).is_empty() {
        return Err(Refusal::illegal(never_runs(state.model.module(id))));
    }
    let covering = state.around(id).find(|module| is_checkpointed(state, *module));
    let Some(covering) = covering else { return Ok(()) };
    let earlier = state.earlier_on(Place::Module(covering), &CHECKPOINT, |_| true);
    let problem = match covering == id {
        true => Problem::new(Code::Repeated, format!("`{path}` is checkpointed twice"), "for the second time"),
        false => {
            let around = state.model.module(covering).path.as_str();
            let around = if around.is_empty() { "the whole model".to_string() } else { format!("`{around}`") };
            let message = format!("checkpointing `{path}` changes nothing: {around} is recomputed as a whole");
            Problem::new(Code::Covered, message, "recomputed already")
        }
    };
    let problem = match earlier {
        Some(step) => problem.earlier(step.id, "checkpointed here"),
        None => problem,
    };
    Err(Refusal::not_applicable(problem))
}

fn is_checkpointed(state: &State, module: ModuleId) -> bool {
    state.effects.checkpoints.iter().any(|(known, _)| *known == module)
}

fn never_runs(module: &Module) -> Problem {
    let message = format!("`{}` is never called, so there is nothing to recompute", module.path);
    match module.children.is_empty() {
        true => Problem::new(Code::NeverRuns, message, "the model does not use this module"),
        false => Problem::new(Code::NeverRuns, message, "a container: only its children are called")
            .help("checkpoint its children: `.*.checkpoint()`"),
    }
}

fn apply(state: &mut State, step: &Step) {
    if let Place::Module(module) = step.target.place {
        state.effects.checkpoints.push((module, step.id));
    }
}
