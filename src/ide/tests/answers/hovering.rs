//! What the word under the cursor is.

use super::{at, main_of};
use slapo_ide::hover;

fn text(schedule: &str) -> String {
    let (mut snapshot, offset) = at(schedule);
    snapshot.check_layouts();
    hover(&snapshot, offset).unwrap_or_else(|| panic!("nothing at the cursor: {schedule}")).text
}

fn assert_says(schedule: &str, wanted: &[&str]) {
    let text = text(schedule);
    for part in wanted {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
}

#[test]
fn modules_have_classes_parameters_and_children() {
    assert_says(
        &main_of("m.transformer.h[0].mlp.c_|fc.freeze()"),
        &[
            "`transformer.h.0.mlp.c_fc` **Conv1D**",
            "`weight` [64, 256] f32",
            "`bias` [256] f32",
            "freeze transformer.h.0.mlp.c_fc",
        ],
    );
    assert_says(&main_of("m.trans|former.freeze()"), &["**GPT2Model**", "* `wte` Embedding", "parameters in all"]);
    assert_says(&main_of("m.transformer.|h.*.checkpoint()"), &["**3 × GPT2Block**"]);
}

#[test]
fn parameters_have_shapes_whole_and_local() {
    let split = "m.transformer.h[0].mlp.c_fc.|weight.shard(out, over: tp)";
    assert_says(&main_of(split), &["[64, 256] f32, [64, 128] on each rank", "dimensions `in`, `out`"]);
    assert_says(&main_of(split), &["`dp` R, `tp` S(1): 32.0 KiB on each rank", "torch.addmm"]);
    assert_says(&main_of("m.transformer.|wte.freeze()"), &["16384 parameters in all: 64.0 KiB on each rank"]);
}

/// A pair as in Megatron: what comes in is whole, what lies between is split, and a sum goes out.
#[test]
fn points_say_how_ranks_hold_them() {
    let pair = |statement: &str| {
        main_of(&format!(
            "m.data_parallel(over: dp)\n    for b in m.transformer.h {{\n        column(b.mlp.c_fc, over: tp)\n        \
             row(b.mlp.c_proj, over: tp)\n    }}\n    {statement}"
        ))
    };
    let of = |statement: &str, wanted: &str| assert_says(&pair(statement), &[wanted]);
    of("m.transformer.h[0].mlp.c_fc.out|put().sync(slice(hidden), over: tp)", "The value as it leaves the module");
    of(
        "let y = m.transformer.h[0].mlp.c_fc.out|put()",
        "* output [8, 64, 256] f32, [4, 64, 128] on each rank; `dp` S(0), `tp` S(2): 128.0 KiB on each rank",
    );
    of("let y = m.transformer.h.*.mlp.c_fc.out|put()", "At each of 3 modules:");
    of("let y = m.transformer.h[0].mlp.c_proj.out|put()", "`dp` S(0), `tp` P → R: 64.0 KiB on each rank");
    of("let y = m.transformer.h[0].mlp.c_fc.in|put()", "`dp` S(0), `tp` R: 64.0 KiB on each rank");
    of(
        "let g = m.transformer.h[0].mlp.c_fc.weight.gr|ad()",
        "* gradient [64, 256] f32, [64, 128] on each rank; `dp` R, `tp` S(1): 32.0 KiB on each rank",
    );
}

#[test]
fn what_other_files_declare_is_explained() {
    let text =
        |statement: &str| main_of(statement).replace("use std", "use own.blocks.{halves, gelu_new, Mlp}\nuse std");
    assert_says(&text("hal|ves(m.lm_head, over: tp)"), &["halves(l: Linear, over: axis)", "Its weight in two."]);
    assert_says(&text("m.find(gelu|_new)"), &["pattern gelu_new(x) =", "As published."]);
    assert_says(&text("m.**.only(M|lp).freeze()"), &["type Mlp = { c_fc: Linear }"]);
}

#[test]
fn selectors_say_how_many_they_match() {
    assert_says(&main_of("m.transformer.h.|*.checkpoint()"), &["3 modules:", "`transformer.h.2` GPT2Block"]);
    assert_says(&main_of("m.transformer.h.*.ml|p.checkpoint()"), &["3 modules:"]);
    assert_says(&main_of("m.**.only(Conv1D).wei|ght.freeze()"), &["12 parameters:"]);
    assert_says(&main_of("for b in m.transformer.h {\n        |b.checkpoint()\n    }"), &["One or some of 3 modules"]);
}

#[test]
fn the_language_is_explained() {
    assert_says(
        &main_of("m.lm_head.weight.sh|ard(out, over: tp)"),
        &["param.shard(", "`over`: the axis", "reassociating"],
    );
    assert_says(&main_of("m.lm_head.weight.shard(o|ut, over: tp)"), &["The output features"]);
    assert_says(&main_of("m.lm_head.weight.shard(out, o|ver: tp)"), &["over: an axis"]);
    assert_says(
        &main_of("m.lm_head.output().sync(all_red|uce, over: tp)"),
        &["a collective".trim_start_matches("a "), "Adds"],
    );
    assert_says(&main_of("m.lm_head.out|put().sync(all_reduce, over: tp)"), &["leaves the module"]);
    assert_says(&main_of("let n = l|en(m.transformer.h)"), &["len(list)"]);
}

#[test]
fn schedules_and_values_say_what_they_are() {
    assert_says(
        &main_of("col|umn(m.lm_head, over: tp)"),
        &["column(l: Linear, over: axis", "first half of a Megatron pair"],
    );
    assert_says(&main_of("checkpoint_|every(m.transformer.h, n: 2)"), &["n: int", "Recomputes every `n`-th block"]);
    assert_says(&main_of("column(m.lm_head, over: t|p)"), &["tp = 2", "2 ranks"]);
    let documented = format!("## How much.\nknob ratio = 0.5 in [0.0, 0.5]\n\n{}", main_of("let x = rat|io"));
    assert_says(&documented, &["knob ratio = 0.5 in [0.0, 0.5]", "How much."]);
    assert_says(
        &main_of("let blocks = m.transformer.h\n    blo|cks[0].checkpoint()"),
        &["let blocks = m.transformer.h", "3 × GPT2Block"],
    );
    assert_says(&main_of("m.**.only(GPT2|MLP).checkpoint()"), &["3 of the model's modules"]);
}
