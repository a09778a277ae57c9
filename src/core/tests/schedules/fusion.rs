//! The patterns of the library: how often each occurs in every model of the tests and examples.

use crate::support::{Run, run};

fn on(model: &str, imports: &str, body: &str) -> Run {
    let text = format!(
        "use std.fusion.{{{imports}}}\nmodel \"{model}\"\ninput {{ batch = 4, seq = 8 }}\nschedule main(m: Module) {{\n{body}\n}}\n"
    );
    run("fusion", &text).compiled()
}

/// Matches of a library pattern in the whole model.
fn count(model: &str, pattern: &str) -> usize {
    let run = on(model, pattern, &format!("for found in m.find({pattern}) {{ found.checkpoint() }}"));
    match run.codes().as_slice() {
        [] => run.checked.steps.len(),
        ["S0210"] => 0,
        _ => panic!("{pattern} in {model}: {}", run.rendered()),
    }
}

/// Of 3, 2, 2, 2 and 2 layers; the last one has each expression once.
const MODELS: [&str; 6] =
    ["gpt2-tiny.pt2", "gpt2-eager.pt2", "bert-tiny.pt2", "opt-tiny.pt2", "llama-tiny.pt2", "patterns.pt2"];
/// By pattern, in the order of the models. A sum of embeddings in front of a norm counts too.
#[rustfmt::skip]
const COUNTS: &[(&str, [usize; 6])] = &[
    ("gelu_tanh", [3, 2, 0, 0, 0, 0]),
    ("gelu_erf", [0, 0, 0, 0, 0, 1]),
    ("bias_gelu", [0, 0, 0, 0, 0, 1]),
    ("bias_gelu_tanh", [0, 0, 0, 0, 0, 0]),
    ("swiglu", [0, 0, 0, 0, 2, 0]),
    ("swiglu_sigmoid", [0, 0, 0, 0, 0, 1]),
    ("rms_norm", [0, 0, 0, 0, 5, 1]),
    ("add_norm", [6, 5, 5, 5, 0, 0]),
    ("add_rms_norm", [0, 0, 0, 0, 4, 1]),
    ("dropout_add_norm", [1, 1, 5, 1, 0, 0]),
    ("sdpa", [0, 2, 0, 0, 0, 1]),
    ("sdpa_divided", [0, 0, 0, 0, 0, 1]),
    ("qkv", [0, 0, 2, 2, 2, 2]),
    ("rotary", [0, 0, 0, 0, 4, 0]),
];

#[test]
fn library_patterns_are_found_where_models_have_them() {
    for (pattern, counts) in COUNTS {
        assert_eq!(MODELS.map(|model| count(model, pattern)), *counts, "{pattern}");
    }
}

/// The table has a row for every pattern of the library.
#[test]
fn every_library_pattern_is_counted() {
    let text = slapo_stdlib::module("fusion").unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("pattern "));
    let names: Vec<&str> = lines.filter_map(|line| line.split('(').next()).collect();
    assert_eq!(names, COUNTS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
}

/// A bias that was taken apart from its layer, in front of an activation that is spelled out.
#[test]
fn a_decomposed_bias_joins_the_activation_behind_a_view() {
    let body = "m.transformer.h.*.mlp.c_fc.decompose()\nm.find(bias_gelu_tanh).expect(3).checkpoint()";
    let run = on("gpt2-tiny.pt2", "bias_gelu_tanh", body);
    assert_eq!((run.rendered().as_str(), run.checked.steps.len()), ("", 6));
}

#[test]
fn what_is_cheap_is_recomputed_by_one_call() {
    for (model, steps) in [("gpt2-tiny.pt2", 3), ("llama-tiny.pt2", 7), ("patterns.pt2", 3), ("bert-tiny.pt2", 0)] {
        let run = on(model, "recompute_elementwise", "recompute_elementwise(m)");
        assert_eq!((run.rendered().as_str(), run.checked.steps.len()), ("", steps), "{model}");
    }
}
