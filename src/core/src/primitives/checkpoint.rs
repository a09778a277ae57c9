//! `module.checkpoint()`, `match.checkpoint()`: recompute activations in backward.

use super::{Class, Primitive, Problem, Receiver, Refusal, State};
use crate::patterns::Match;
use crate::schedule::{Place, Step};
use slapo_model::{Module, ModuleId};
use slapo_syntax::Code;

pub static CHECKPOINT: Primitive = Primitive {
    name: "checkpoint",
    receiver: Receiver::ModuleOrMatch,
    params: &[],
    class: Class::Exact,
    docs: "\
Recomputes in backward what a module, or a pattern found in it, computes in forward, instead of keeping it: memory for
time. What enters it is kept. The recomputed operators are copies of the forward's, random numbers included, so gradients are
bit-equal. Paths do not change. A module that is called several times is recomputed in every call.

```slapo
schedule main(m: GPT2LMHeadModel) {
    m.transformer.h[..2].checkpoint()
}
```

A pattern in place of a whole module keeps what is dear to compute, and recomputes what is cheap:

```slapo
pattern gelu_tanh(x) = 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ^ 3)))

schedule main(m: GPT2LMHeadModel) {
    m.transformer.h.find(gelu_tanh).checkpoint()
}
```",
    check,
    apply,
};

fn check(state: &State, step: &Step) -> Result<(), Refusal> {
    let Place::Module(id) = step.target.place else { return Ok(()) };
    let path = &step.target.path;
    if let Some(found) = &step.target.found {
        return check_match(state, found, path);
    }
    if slapo_model::regions::calls(state.model, id).is_empty() {
        return Err(Refusal::illegal(never_runs(state.model.module(id))));
    }
    let covering = state.around(id).find(|module| is_checkpointed(state, *module));
    let Some(covering) = covering else { return Ok(()) };
    Err(Refusal::not_applicable(covered(state, covering, path, covering == id)))
}

/// A match may share nodes with a checkpointed module, which then recomputes them, but not with another match: whose
/// inputs to keep would depend on the order of steps.
fn check_match(state: &State, found: &Match, path: &str) -> Result<(), Refusal> {
    state.unchanged(found, path)?;
    if let Some(covering) = state.around(found.within).find(|module| is_checkpointed(state, *module)) {
        return Err(Refusal::not_applicable(covered(state, covering, path, false)));
    }
    let Some((values, step)) = state.effects.recomputed.iter().find(|(values, _)| found.overlaps(values)) else {
        return Ok(());
    };
    Err(match *values == found.values {
        true => Refusal::not_applicable(
            Problem::new(Code::Repeated, format!("`{path}` is checkpointed twice"), "for the second time")
                .earlier(*step, "checkpointed here"),
        ),
        false => Refusal::illegal(
            Problem::new(
                Code::Contradiction,
                format!("`{path}` has operators in common with another checkpointed match"),
                "recomputed already in part",
            )
            .earlier(*step, "checkpointed here")
            .help("checkpoint one of the two, or a pattern that holds both"),
        ),
    })
}

/// What to say of a place inside the checkpointed module `covering`.
fn covered(state: &State, covering: ModuleId, path: &str, is_same: bool) -> Problem {
    let is_module = |step: &Step| step.target.found.is_none();
    let earlier = state.earlier_on(Place::Module(covering), &CHECKPOINT, is_module);
    let problem = match is_same {
        true => Problem::new(Code::Repeated, format!("`{path}` is checkpointed twice"), "for the second time"),
        false => {
            let around = state.model.module(covering).path.as_str();
            let around = if around.is_empty() { "the whole model".to_string() } else { format!("`{around}`") };
            let message = format!("checkpointing `{path}` changes nothing: {around} is recomputed as a whole");
            Problem::new(Code::Covered, message, "recomputed already")
        }
    };
    match earlier {
        Some(step) => problem.earlier(step.id, "checkpointed here"),
        None => problem,
    }
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
    if let Some(found) = &step.target.found {
        state.effects.recomputed.push((found.values.clone(), step.id));
    } else if let Place::Module(module) = step.target.place {
        state.effects.checkpoints.push((module, step.id));
    }
}
