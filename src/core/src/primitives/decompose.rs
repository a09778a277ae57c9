//! `module.decompose()`: a linear layer as a product and the addition of its bias.

use super::{Class, Primitive, Problem, Receiver, Refusal, State};
use crate::passes::rewrite::{Rewrite, bias};
use crate::schedule::{Place, Step};
use slapo_model::ValueId;
use slapo_model::regions::{Regions, calls};
use slapo_syntax::Code;

pub static DECOMPOSE: Primitive = Primitive {
    name: "decompose",
    receiver: Receiver::Module,
    params: &[],
    class: Class::Reassociating,
    docs: "\
Takes a linear layer apart into a product and the addition of its bias, so that a pattern can hold the addition together
with what follows. Paths, parameters and points of the layer stay as they are. A product that begins with the bias rounds
otherwise than one to which it is added, hence the class. A layer that is split by its input features keeps its bias: there
the bias is added once to a partial sum, which a separate addition cannot do in front of the layer's output.

```slapo
pattern biased(x, b) = x + b

schedule main(m: GPT2LMHeadModel) {
    for b in m.transformer.h {
        b.mlp.c_fc.decompose()
        b.mlp.c_fc.find(biased).checkpoint()
    }
}
```",
    check,
    apply,
};

fn check(state: &State, step: &Step) -> Result<(), Refusal> {
    if !layers(state, step).is_empty() {
        return Ok(());
    }
    let Place::Module(module) = step.target.place else { return Ok(()) };
    let path = &step.target.path;
    let shown = if path.is_empty() { "the model".to_string() } else { format!("`{path}`") };
    if let Some(earlier) = state.earlier_on(step.target.place, &DECOMPOSE, |_| true) {
        let problem = Problem::new(Code::Repeated, format!("{shown} is decomposed already"), "for the second time");
        return Err(Refusal::not_applicable(problem.earlier(earlier.id, "decomposed here")));
    }
    if calls(state.model, module).is_empty() {
        let problem = Problem::new(Code::NeverRuns, format!("{shown} is never called"), "nothing of it is computed");
        return Err(Refusal::illegal(problem));
    }
    let message = format!("{shown} computes no product with a bias of its own");
    let problem = Problem::new(Code::NothingToDecompose, message, "nothing to take apart")
        .help("`decompose` is for a linear layer with a bias");
    Err(Refusal::not_applicable(problem))
}

fn apply(state: &mut State, step: &Step) {
    for result in layers(state, step) {
        state.rewrite(vec![result], step.id, Rewrite::Decompose { result, step: step.id });
    }
}

/// What the module's own linear layers compute, in all of its calls; those of modules below it are theirs.
fn layers(state: &State, step: &Step) -> Vec<ValueId> {
    let Place::Module(module) = step.target.place else { return Vec::new() };
    let graph = state.graph();
    let regions = Regions::new(graph, state.model);
    let nodes = regions.module(module).nodes.into_iter().map(|id| graph.node(id));
    let own = nodes.filter(|node| state.model.scopes[node.origin.scope.0 as usize].module == module);
    own.filter(|node| bias(node).is_some()).filter_map(|node| *node.outs.first()?).collect()
}
