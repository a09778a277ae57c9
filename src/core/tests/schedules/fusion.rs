//! The patterns of the library: how often each occurs in every model of the tests and examples.

use crate::support::{Run, refused, run};

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

const EAGER: &str = "gpt2-eager.pt2";

#[test]
fn attention_stands_in_for_its_operators() {
    for (model, pattern, with, count) in [
        (EAGER, "sdpa", "attention(scale: c)", 2),
        (EAGER, "sdpa", "attention(q: q, k: k, v: v, mask: mask, scale: c)", 2),
        (EAGER, "sdpa", "attention(scale: 1 / (1 / c) + 0)", 2),
        ("patterns.pt2", "sdpa", "attention(scale: c)", 1),
        ("patterns.pt2", "sdpa_divided", "attention(scale: 1 / c)", 1),
    ] {
        let run = on(model, pattern, &format!("m.find({pattern}).replace({with})"));
        assert_eq!((run.rendered().as_str(), run.checked.steps.len()), ("", count), "{with}");
    }
}

/// Swapped operands have the right shapes, and other values.
#[test]
fn f27_attention_with_permuted_operands_is_refused() {
    for with in
        ["attention(q: k, k: q, scale: c)", "attention(k: v, v: k, scale: c)", "attention(q: v, v: q, scale: c)"]
    {
        let run = on(EAGER, "sdpa", &format!("m.find(sdpa)[0].replace({with})"));
        refused(&run, "S0420", &["`attention` does not compute what `sdpa` does", "on small tensors"]);
    }
}

/// Scale, mask and causality are part of what is computed.
#[test]
fn f30_attention_keeps_scale_mask_and_causality() {
    let eager = |with: &str| on(EAGER, "sdpa", &format!("m.find(sdpa)[0].replace({with})"));
    refused(&eager("attention"), "S0420", &["`attention` does not take `c`"]);
    refused(&eager("attention(scale: 1 / c)"), "S0420", &["does not compute what `sdpa` does"]);
    refused(&eager("attention(scale: 2 * c)"), "S0420", &["does not compute what `sdpa` does"]);
    refused(&eager("attention(scale: c, causal: true)"), "S0420", &["does not compute what `sdpa` does"]);
    refused(&eager("attention(scale: c, p: 0.1)"), "S0420", &["draws random numbers", "dropout 0"]);
    refused(&eager("attention(scale: d)"), "S0420", &["has no parameter `d`"]);
    refused(&eager("attention(scale: q * 2)"), "S0420", &["`q` is a tensor"]);
    refused(&eager("attention(q: 1 / c, scale: c)"), "S0420", &["`q` of `attention` is of another kind"]);
    refused(&eager("attention(scale: sqrt(c))"), "S0301", &["a parameter of the pattern or a literal"]);
    refused(&eager("matmul(a: q, b: k)"), "S0420", &["does not take `v`"]);
    refused(&eager("cat(a: q, b: k)"), "S0420", &["`cat` cannot stand in for a match"]);
    // Without the mask, the pattern is not what the model has.
    let bare = "pattern bare(q, k, v, c: float) = matmul(softmax(matmul(q, transpose(k, -2, -1)) * c, dim: -1), v)";
    let text = |items: &str, model: &str, body: &str| {
        run(
            "fusion",
            &format!(
                "model \"{model}\"\ninput {{ batch = 4, seq = 8 }}\n{items}\nschedule main(m: Module) {{\n{body}\n}}\n"
            ),
        )
        .compiled()
    };
    refused(
        &text(bare, EAGER, "m.find(bare).replace(attention(scale: c))"),
        "S0210",
        &["goes on with mul, the model with add"],
    );
    // The scale that attention takes by itself is that of the model's heads, not of another width.
    let usual = |scale: &str| bare.replace(", c: float", "").replace("* c", &format!("* {scale}"));
    let body = "m.attention.find(bare).replace(attention)";
    assert_eq!(text(&usual("0.408248290463863"), "patterns.pt2", body).rendered(), "");
    refused(&text(bare, "patterns.pt2", body), "S0420", &["does not take `c`"]);
    let scaled = "m.attention.find(bare).replace(attention(scale: 0.5))";
    refused(&text(&usual("0.408248290463863"), "patterns.pt2", scaled), "S0420", &["does not compute"]);
}

/// Products and what is made of them are compared on small tensors.
#[test]
fn f27_products_keep_their_operands() {
    let text = |pattern: &str, with: &str| {
        let body = format!("m.attention.find(p)[0].replace({with})");
        let text = format!(
            "model \"patterns.pt2\"\ninput {{ batch = 4, seq = 8 }}\npattern {pattern}\nschedule main(m: Module) {{\n{body}\n}}\n"
        );
        run("fusion", &text).compiled()
    };
    assert_eq!(text("p(a, b) = matmul(a, b)", "matmul").rendered(), "");
    refused(&text("p(a, b) = matmul(a, b)", "matmul(a: b, b: a)"), "S0420", &["shapes do not fit"]);
    refused(&text("p(a, b) = matmul(a, transpose(b, -2, -1))", "matmul"), "S0420", &["shapes do not fit"]);
    assert_eq!(text("p(x) = softmax(x, dim: -1)", "softmax(dim: -1)").rendered(), "");
    refused(&text("p(x) = softmax(x, dim: -1)", "softmax(dim: 2)"), "S0420", &["does not compute what `p` does"]);
    assert_eq!(text("p(x, w, b) = linear(x, w, b)", "linear").rendered(), "");
}
