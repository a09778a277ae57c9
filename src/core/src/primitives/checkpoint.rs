//! `module.checkpoint()`, `match.checkpoint()`: recompute activations in backward.

use super::sync::border_of;
use super::{Class, Parameter, Primitive, Problem, Receiver, Refusal, State};
use crate::compile::SyncPoint;
use crate::patterns::Match;
use crate::schedule::{Argument, Kind, Place, Point, Step, Want};
use slapo_model::{Module, ModuleId};
use slapo_syntax::Code;

pub static CHECKPOINT: Primitive = Primitive {
    name: "checkpoint",
    receiver: Receiver::ModuleOrMatch,
    params: &[Parameter {
        name: "keep",
        want: Want { kind: Kind::Point, list: true },
        default: Some(Argument::List(Vec::new())),
        docs: "points inside the module whose values stay in memory instead: backward begins there",
    }],
    class: Class::Exact,
    docs: "\
Recomputes in backward what a module, or a pattern found in it, computes in forward, instead of keeping it: memory for
time. What enters it is kept. The recomputed operators are copies of the forward's, random numbers included, so gradients are
bit-equal. Paths do not change. A module that is called several times is recomputed in every call. What is costly to
compute and small to store may be kept: `keep` lists points inside the module, such as the output of attention.

```slapo
schedule main(m: GPT2LMHeadModel) {
    m.transformer.h[..2].checkpoint()
    let last = m.transformer.h[-1]
    last.checkpoint(keep: [last.attn.output()])
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
    for (path, point) in kept(state, step) {
        keepable(state, step, id, path, point)?;
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

/// The points that a step keeps, with their paths.
fn kept<'s>(state: &State, step: &'s Step) -> Vec<(&'s str, Option<Point>)> {
    let Some(Argument::List(points)) = step.arg("keep") else { return Vec::new() };
    let paths = points.iter().filter_map(|point| if let Argument::Path(path) = point { Some(path) } else { None });
    paths.map(|path| (path.as_str(), state.ports.at(path))).collect()
}

/// Whether a point's value is one that the checkpointed module computes, or that enters it.
fn keepable(state: &State, step: &Step, module: ModuleId, path: &str, point: Option<Point>) -> Result<(), Refusal> {
    let of = point.and_then(|point| point.of.module());
    let (Some(point), Some(of)) = (point, of) else {
        let message = format!("`{path}` is no value that can be kept");
        return Err(Refusal::illegal(Problem::new(Code::BadValue, message, "keeps it")));
    };
    let illegal = |message: String, help: &str| {
        Err(Refusal::illegal(Problem::new(Code::BadValue, message, "keeps it").help(help)))
    };
    if point.is_gradient {
        let help = "values of forward are kept: leave `.grad()` away";
        return illegal(format!("`{path}` is a gradient: it is not there to be kept"), help);
    }
    if !state.around(of).any(|around| around == module) {
        let own = if step.target.path.is_empty() { "the model" } else { &step.target.path };
        let help = "each module keeps points of its own: in a loop, `b.checkpoint(keep: [b.attn.output()])`";
        return illegal(format!("`{path}` does not lie inside of `{own}`"), help);
    }
    if slapo_model::regions::calls(state.model, of).is_empty() {
        let message = format!("`{}` is never called: nothing enters or leaves it", state.model.module(of).path);
        return illegal(message, "a container: keep points of its children");
    }
    match border_of(state, &point) {
        Some(_) => Ok(()),
        None => illegal(
            format!("no gradient flows through `{path}`: it cannot be kept"),
            "leave it away: backward does not come by there",
        ),
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
        let points = kept(state, step).into_iter().filter_map(|(_, point)| border_of(state, &point?));
        let points: Vec<(SyncPoint, u32)> = points.map(|at| (at, step.id)).collect();
        state.effects.kept.extend(points);
    }
}
