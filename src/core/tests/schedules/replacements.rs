//! Modules replaced by archives: what is right is taken, and what loses something is refused, where and why. That values
//! agree is with `tests/cli/replacements.rs`.
//!
//! Archives are those of `tests/data/replacements.py`, models `gpt2-odd` and `gated`.

use crate::support::{Run, refused, replacement, run};
use slapo_core::compile::Effects;
use slapo_core::primitives;
use slapo_core::schedule::{Archives, ReplayError, replay, replay_with, to_json};

/// A schedule of `gpt2-odd` with `b`, its first block, on two ranks.
fn check(body: &str) -> Run {
    on("gpt2-odd", &format!("let b = m.transformer.h[0]\n{body}"))
}

fn on(model: &str, body: &str) -> Run {
    let text = format!(
        "use std.parallel.{{column, row}}\nmodel \"{model}.pt2\"\ninput {{ batch = 4, seq = 7 }}\nmesh {{ tp = 2 }}\n\
         schedule main(m: Module) {{\n{body}\n}}\n"
    );
    run("replaced", &text).compiled()
}

fn right(run: &Run) {
    assert_eq!(run.rendered(), "");
}

fn mlp(archive: &str) -> Run {
    check(&format!("b.mlp.replace(\"{archive}.pt2\", weights: by_name)"))
}

fn attention(archive: &str) -> Run {
    check(&format!("b.attn.replace(\"{archive}.pt2\", weights: by_name)"))
}

#[test]
fn other_writings_of_modules_are_taken() {
    right(&mlp("mlp"));
    right(&attention("attention"));
    right(&attention("attention-eager"));
    right(&check("b.replace(\"block.pt2\", weights: by_name)"));
    // A module that is called twice, and one whose weight is another's too.
    right(&on("misc", "m.mix.replace(\"mix.pt2\", weights: by_name)"));
    right(&on("gpt2-odd", "m.lm_head.replace(\"head.pt2\", weights: [[\"weight\", m.transformer.wte.weight]])"));
    // A selection, element by element; a path that has a name.
    right(&check("let file = \"mlp.pt2\"\nm.transformer.h.*.mlp.replace(file, weights: by_name)"));
}

/// Whatever must be known of an input stands in its name, not in its place.
#[test]
fn f25_nothing_goes_by_its_position() {
    let run = check("b.attn.replace(\"attention-masked.pt2\", weights: by_name)");
    refused(&run, "S0420", &["takes 2 inputs, `hidden` and `mask`", ".input(1)`", "say which is which"]);
    right(&check("b.attn.replace(\"attention-masked.pt2\", weights: by_name, ports: [[\"mask\", b.attn.input(1)]])"));
    let twice = "ports: [[\"mask\", b.attn.input(1)], [\"hidden\", b.attn.input(1)]]";
    let run = check(&format!("b.attn.replace(\"attention-masked.pt2\", weights: by_name, {twice})"));
    refused(&run, "S0420", &["twice"]);
    let run = check("b.attn.replace(\"attention-masked.pt2\", weights: by_name, ports: [[\"maks\", b.attn.input(1)]])");
    refused(&run, "S0420", &["has no input `maks`", "its inputs are `hidden` and `mask`"]);
    let run = check("b.attn.replace(\"attention-masked.pt2\", weights: by_name, ports: [[\"mask\", b.mlp.input()]])");
    refused(&run, "S0420", &["no value that enters or leaves `transformer.h.0.attn`"]);
}

/// Types of inputs, outputs and weights, with both sides in the message.
#[test]
fn f26_an_archive_of_other_shapes_is_refused() {
    refused(
        &mlp("mlp-wide"),
        "S0420",
        &["`c_fc.weight` of `mlp-wide.pt2` is f32[20, 82]", "c_fc.weight` is f32[20, 80]"],
    );
    refused(&mlp("mlp-linear"), "S0420", &["is f32[80, 20]", "is f32[20, 80]", "transpose it"]);
    let mask = "ports: [[\"hidden\", b.attn.input(1)], [\"mask\", b.attn.input(0)]]";
    let run = check(&format!("b.attn.replace(\"attention-masked.pt2\", weights: by_name, {mask})"));
    refused(&run, "S0420", &["`hidden` of `attention-masked.pt2` is f32[", "is bool[4, 1, 7, 7]"]);
}

/// Two inputs of one type: without names refused, with names right in whatever order the archive has them.
#[test]
fn f27_inputs_in_another_order_are_told_apart() {
    let run = on("gated", "m.gate.replace(\"gate-swapped.pt2\", weights: by_name)");
    refused(&run, "S0420", &["`gate` and `x`", "`embedding = .input(0)` and `embedding_1 = .input(1)`"]);
    let named = "ports: [[\"x\", m.gate.input(0)], [\"gate\", m.gate.input(1)]]";
    for archive in ["gate", "gate-swapped"] {
        let run = on("gated", &format!("m.gate.replace(\"{archive}.pt2\", weights: by_name, {named})"));
        right(&run);
        // Points are those of the model's module, in whatever order the archive reads them.
        let points = "m.gate.input(0).grad().sync(all_reduce, over: tp)";
        let run = on("gated", &format!("m.gate.replace(\"{archive}.pt2\", weights: by_name, {named})\n{points}"));
        let plain = on("gated", points);
        assert_eq!(run.codes(), plain.codes(), "{}", run.rendered());
        assert!(run.rendered().contains("gate.input(0)") == plain.rendered().contains("gate.input(0)"));
    }
}

/// What has a default in Python is a number in the archive.
#[test]
fn f28_defaults_of_an_archive_hold() {
    let run = mlp("mlp");
    right(&run);
    let archive = replacement("mlp.pt2").unwrap();
    assert_eq!(archive.inputs.len(), 1, "`scale` of its forward has a default");
}

#[test]
fn f29_other_inputs_are_named() {
    let run = on("gated", "m.gate.replace(\"gate-alone.pt2\", weights: by_name)");
    refused(&run, "S0420", &["takes 1 input, `x`; `gate` has 2"]);
    let run = check("b.mlp.replace(\"gate.pt2\", weights: by_name)");
    refused(&run, "S0420", &["takes 2 inputs, `x` and `gate`; `transformer.h.0.mlp` has 1"]);
}

#[test]
fn f30_nothing_is_lost_in_an_archive() {
    refused(&attention("attention-everywhere"), "S0420", &["under a causal mask would be lost", "without a mask"]);
    refused(&attention("attention-unscaled"), "S0420", &["a scale of 0.447214 would be lost", "a scale of 1"]);
    let block = |archive: &str| check(&format!("b.replace(\"{archive}.pt2\", weights: by_name)"));
    refused(&block("block-straight"), "S0420", &["an addition of two streams would be lost"]);
    refused(&block("block-steady"), "S0420", &["a norm with epsilon 1e-5 would be lost", "epsilon 1e-3"]);
    refused(&mlp("mlp-sure"), "S0420", &["drops 0.1 of f32[4, 7, 20]; the archive nothing"]);
}

#[test]
fn f31_an_archive_has_the_same_activations() {
    refused(&mlp("mlp-relu"), "S0420", &["`gelu(approximate: \"tanh\")` would be lost", "`relu`"]);
    refused(&mlp("mlp-erf"), "S0420", &["`gelu(approximate: \"tanh\")` would be lost", "the archive has `gelu`"]);
    refused(&mlp("mlp-leaky"), "S0420", &["computes more than `transformer.h.0.mlp`: `leaky_relu`"]);
    right(&mlp("mlp-plain"));
}

/// Nothing is initialised afresh.
#[test]
fn f32_every_weight_of_a_replacement_has_a_source() {
    let run = check("b.mlp.replace(\"mlp.pt2\")");
    refused(
        &run,
        "S0420",
        &["`c_fc.weight`, `c_fc.bias`, `c_proj.weight` and `c_proj.bias`", "have no source", "by_name"],
    );
    refused(&mlp("mlp-renamed"), "S0420", &["`up.weight`", "have no source"]);
    refused(&mlp("mlp-fresh"), "S0420", &["`gain` of `mlp-fresh.pt2` has no source"]);
    let pairs = |rest: &str| {
        let pairs = "[\"up.weight\", b.mlp.c_fc.weight], [\"up.bias\", b.mlp.c_fc.bias], [\"down.weight\", b.mlp.c_proj.weight]";
        check(&format!("b.mlp.replace(\"mlp-renamed.pt2\", weights: [{pairs}{rest}])"))
    };
    right(&pairs(", [\"down.bias\", b.mlp.c_proj.bias]"));
    refused(&pairs(""), "S0420", &["`down.bias` of `mlp-renamed.pt2` has no source"]);
    let other = "m.transformer.h[1].mlp.c_proj.bias";
    refused(
        &pairs(&format!(", [\"down.bias\", {other}]")),
        "S0420",
        &["does not use `transformer.h.1.mlp.c_proj.bias`"],
    );
    refused(&pairs(", [\"down.bais\", b.mlp.c_proj.bias]"), "S0420", &["has no weight `down.bais`", "`down.bias`"]);
    refused(&pairs(", [\"up.bias\", b.mlp.c_proj.bias]"), "S0420", &["would be both"]);
}

/// Two layers behind one input, computed as one: its weight is theirs, joined.
#[test]
fn weights_are_joined_where_the_archive_has_one_for_several() {
    let joined = |parts: &str| {
        let weights = format!("[[\"gate_up.weight\", {parts}], [\"down.weight\", l.mlp.down_proj.weight]]");
        on("llama-tiny", &format!("let l = m.model.layers[0]\nl.mlp.replace(\"gate-up.pt2\", weights: {weights})"))
    };
    right(&joined("[l.mlp.gate_proj.weight, l.mlp.up_proj.weight]"));
    refused(&joined("l.mlp.{up_proj, gate_proj}.weight"), "S0301", &["a parameter, or a list of them"]);
    let half = joined("l.mlp.gate_proj.weight");
    refused(
        &half,
        "S0420",
        &["`gate_up.weight` of `gate-up.pt2` is f32[72, 24]", "`model.layers.0.mlp.gate_proj.weight` is f32[36, 24]"],
    );
    let wide = joined("[l.mlp.gate_proj.weight, l.mlp.up_proj.weight, l.self_attn.q_proj.weight]");
    refused(&wide, "S0420", &["does not use `model.layers.0.self_attn.q_proj.weight`"]);
    // As they are written, not as the model has them.
    let turned = joined("[l.mlp.up_proj.weight, l.mlp.gate_proj.weight]");
    right(&turned);
    let steps = to_json(&turned.checked.steps).expect("JSON");
    assert!(steps.find("up_proj.weight") < steps.find("gate_proj.weight"), "{steps}");
}

/// No trained weight is dropped, or used in another's place.
#[test]
fn f33_every_weight_of_a_module_stays_in_use() {
    refused(&mlp("mlp-nobias"), "S0420", &["has no weight for `transformer.h.0.mlp.c_proj.bias`"]);
    refused(&mlp("mlp-unread"), "S0420", &["never reads its `c_proj.bias`", "would be lost"]);
    // Buffers are weights too.
    let named = "ports: [[\"x\", m.gate.input(0)], [\"gate\", m.gate.input(1)]]";
    let run = on(
        "gated",
        &format!("m.gate.replace(\"gate.pt2\", weights: [[\"proj.weight\", m.gate.proj.weight]], {named})"),
    );
    refused(&run, "S0420", &["`shift` of `gate.pt2` has no source"]);
}

/// Splits of parameters hold, whichever comes first; what was done to parts that go away is refused with both places.
#[test]
fn f50_splits_outlive_a_replacement() {
    let replace = "b.attn.replace(\"attention.pt2\", weights: by_name)";
    let split = "b.attn.c_proj.weight.shard(in, over: tp)\nb.attn.output().sync(all_reduce, over: tp)";
    let effects = |body: String| -> Effects {
        let run = check(&body);
        run.checked.effects
    };
    let (before, after) = (effects(format!("{split}\n{replace}")), effects(format!("{replace}\n{split}")));
    assert_eq!((before.shards.len(), after.shards.len()), (1, 1));
    assert_eq!(before.shards[0].parameter, after.shards[0].parameter);
    let split = "column(b.mlp.c_fc, over: tp)\nrow(b.mlp.c_proj, over: tp)";
    let run = check(&format!("{split}\nb.mlp.replace(\"mlp.pt2\", weights: by_name)"));
    refused(&run, "S0502", &["an earlier step is about `transformer.h.0.mlp.c_fc.input().grad()`", "sync here"]);
    // On parameters and on the module's own points, before and behind.
    let own = "b.mlp.c_fc.{weight, bias}.shard(out, over: tp)\nb.mlp.c_proj.weight.shard(in, over: tp)\n\
               b.mlp.input().grad().sync(all_reduce, over: tp)\nb.mlp.output().sync(all_reduce, over: tp)";
    let pairs = "[\"up.weight\", b.mlp.c_fc.weight], [\"up.bias\", b.mlp.c_fc.bias], \
                 [\"down.weight\", b.mlp.c_proj.weight], [\"down.bias\", b.mlp.c_proj.bias]";
    let replace = format!("b.mlp.replace(\"mlp-renamed.pt2\", weights: [{pairs}])");
    for body in [format!("{own}\n{replace}"), format!("{replace}\n{own}")] {
        right(&check(&body));
    }
    // Layouts are checked on the archive's operators: this one adds the bias to what is still a partial sum.
    let apart = "b.mlp.replace(\"mlp.pt2\", weights: by_name)";
    refused(&check(&format!("{apart}\n{own}")), "S0602", &["`add.Tensor` in `transformer.h.0.mlp`"]);
}

#[test]
fn f51_notes_of_a_module_outlive_its_replacement() {
    let run = check("b.mlp.annotate(\"lr\", 0.1)\nb.mlp.replace(\"mlp.pt2\", weights: by_name)");
    right(&run);
    assert!(run.steps()[0].starts_with("#1 annotate transformer.h.0.mlp key: \"lr\""));
    let run = check("b.mlp.c_fc.annotate(\"lr\", 0.1)\nb.mlp.replace(\"mlp.pt2\", weights: by_name)");
    refused(&run, "S0502", &["about `transformer.h.0.mlp.c_fc`, which would be gone", "annotate here"]);
}

/// What is below a replaced module is no longer there, but for its parameters.
#[test]
fn parts_of_a_replaced_module_are_gone() {
    let behind = |rest: &str| check(&format!("b.mlp.replace(\"mlp.pt2\", weights: by_name)\n{rest}"));
    for rest in [
        "b.mlp.c_fc.checkpoint()",
        "b.mlp.c_fc.output().sync(all_reduce, over: tp)",
        "b.checkpoint(keep: [b.mlp.c_fc.output()])",
        "b.mlp.c_fc.decompose()",
        "b.replace(\"block.pt2\", weights: by_name)",
        "b.mlp.replace(\"mlp.pt2\", weights: by_name)",
    ] {
        refused(&behind(rest), "S0502", &["replace"]);
    }
    let find = "pattern act(x) = gelu(x, approximate: \"tanh\")";
    let text = |place: &str| {
        format!(
            "model \"gpt2-odd.pt2\"\ninput {{ batch = 4, seq = 7 }}\n{find}\nschedule main(m: Module) {{\nlet b = \
             m.transformer.h[0]\nb.mlp.replace(\"mlp.pt2\", weights: by_name)\n{place}.find(act).checkpoint()\n}}\n"
        )
    };
    refused(&run("found", &text("b.mlp.act")), "S0502", &["`transformer.h.0.mlp.act` is no longer there"]);
    right(&run("found", &text("b.mlp")));
    for rest in ["b.mlp.checkpoint()", "b.checkpoint(keep: [b.mlp.output()])", "b.mlp.c_fc.weight.freeze()"] {
        right(&behind(rest));
    }
}

#[test]
fn an_archive_that_cannot_be_read_is_one_error_at_its_name() {
    let run = check("m.transformer.h.*.mlp.replace(\"nowhere.pt2\", weights: by_name)");
    refused(&run, "S1010", &["`\"nowhere.pt2\"`: named here"]);
    let run = check("b.mlp.replace(\"bad/truncated.pt2\", weights: by_name)");
    assert!(run.codes()[0].starts_with("S10"), "{}", run.rendered());
    refused(&check("b.mlp.replace(\"mlp\", weights: by_name)"), "S0307", &["does not end in `.pt2`"]);
    refused(&check("m.transformer.h.replace(\"mlp.pt2\", weights: by_name)"), "S0404", &["a container"]);
    refused(&check("m.replace(\"mlp.pt2\", weights: by_name)"), "S0420", &["the whole model"]);
    // A whole model is an archive as well.
    refused(&check("b.mlp.replace(\"gpt2-short.pt2\", weights: by_name)"), "S0420", &["takes 2 inputs"]);
}

#[test]
fn steps_with_archives_are_replayed() {
    let run = check(
        "m.transformer.h.*.attn.replace(\"attention.pt2\", weights: by_name)\nb.mlp.replace(\"mlp.pt2\", weights: by_name)",
    );
    right(&run);
    let model = run.model.clone().unwrap();
    let json = to_json(&run.checked.steps).unwrap();
    let (sizes, axes) = (run.checked.sizes, &run.checked.effects.axes);
    let mut archives = Archives::default();
    for name in ["attention.pt2", "mlp.pt2"] {
        archives.insert(name, replacement(name));
    }
    assert_eq!(replay_with(&json, &model, sizes, axes, &archives).as_ref(), Ok(&run.checked.effects));
    assert!(matches!(replay(&json, &model, sizes, axes), Err(ReplayError::Refused { step: 1, .. })));
    archives.insert("mlp.pt2", replacement("mlp-relu.pt2"));
    let other = replay_with(&json, &model, sizes, axes, &archives).unwrap_err().to_string();
    assert!(other.contains("step 3") && other.contains("another archive"), "{other}");
}

/// The example of archives in the documentation.
#[test]
fn the_documented_example_is_right() {
    let docs = primitives::find("replace").unwrap().docs;
    let example = docs.rsplit("```slapo\n").next().and_then(|rest| rest.split("```").next()).unwrap();
    assert!(example.contains(".pt2"), "{docs}");
    right(&run("documented", &format!("model \"gpt2-odd.pt2\"\ninput {{ batch = 4, seq = 7 }}\n{example}")).compiled());
}
