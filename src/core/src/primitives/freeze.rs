//! `param.freeze()`: train without some parameters.

use super::{Class, Primitive, Problem, Receiver, Refusal, State};
use crate::schedule::{Place, Step};
use slapo_model::ParameterId;
use slapo_syntax::Code;

pub static FREEZE: Primitive = Primitive {
    name: "freeze",
    receiver: Receiver::ModuleOrParameter,
    params: &[],
    class: Class::ChangesTraining,
    docs: "\
No gradient and no update for a parameter, or for all parameters below a module. What is backward of it alone is not
computed. A tied parameter is frozen under each of its names. Something must be left to train.

```slapo
schedule main(m: GPT2LMHeadModel) {
    m.transformer.wpe.weight.freeze()
    m.transformer.h[0].freeze()
}
```",
    check,
    apply,
};

fn check(state: &State, step: &Step) -> Result<(), Refusal> {
    let path = &step.target.path;
    let shown = if path.is_empty() { "the model".to_string() } else { format!("`{path}`") };
    let below = state.parameters(step.target.place);
    let trained: Vec<ParameterId> = below.into_iter().filter(|id| state.model.parameter(*id).trainable).collect();
    let Some(first) = trained.first() else {
        let message = format!("freezing {shown} changes nothing: it holds no trained parameter");
        return Err(Refusal::not_applicable(Problem::new(Code::NothingToFreeze, message, "nothing here is trained")));
    };
    if trained.iter().all(|id| state.effects.frozen.contains(id)) {
        return Err(Refusal::not_applicable(frozen_before(state, step, *first, &shown)));
    }
    let all = (0..state.model.parameters.len()).map(|i| ParameterId(i as u32));
    let mut left = all.filter(|id| state.model.parameter(*id).trainable && !state.effects.frozen.contains(id));
    if left.all(|id| trained.contains(&id)) {
        let message = format!("with {shown} frozen, no parameter is left to train");
        let problem = Problem::new(Code::NothingToTrain, message, "freezes the last trained parameter")
            .help("leave at least one parameter out");
        return Err(Refusal::illegal(problem));
    }
    Ok(())
}

fn frozen_before(state: &State, step: &Step, parameter: ParameterId, shown: &str) -> Problem {
    let earlier = state.earlier(&FREEZE, |step| state.parameters(step.target.place).contains(&parameter));
    let problem = Problem::new(Code::Repeated, format!("{shown} is frozen already"), "for the second time");
    let Some(earlier) = earlier else { return problem };
    let what = match earlier.target.path.as_str() {
        "" => "frozen here, with the whole model".to_string(),
        path if path == step.target.path => "frozen here".to_string(),
        path => format!("frozen here as `{path}`"),
    };
    let names = &state.model.parameter(parameter).names;
    let tied = names.len() > 1 && matches!(step.target.place, Place::Parameter { .. });
    let problem = problem.earlier(earlier.id, what);
    match tied {
        true => problem.note(format!("one parameter has these names: {}", names.join(", "))),
        false => problem,
    }
}

fn apply(state: &mut State, step: &Step) {
    let trained = state.parameters(step.target.place);
    let trained = trained.into_iter().filter(|id| state.model.parameter(*id).trainable);
    for id in trained.collect::<Vec<_>>() {
        state.effects.frozen.insert(id);
        state.touched.insert(id);
    }
}
