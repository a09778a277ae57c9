//! What the word under the cursor is.

use super::{at, main_of};
use slapo_ide::hover;

fn text(schedule: &str) -> String {
    let (snapshot, offset) = at(schedule);
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
    assert_says(&main_of("column(m.lm_head, over: t|p)"), &["tp = 2", "2 ranks"]);
    let documented = format!("## How much.\nknob ratio = 0.5 in [0.0, 0.5]\n\n{}", main_of("let x = rat|io"));
    assert_says(&documented, &["knob ratio = 0.5 in [0.0, 0.5]", "How much."]);
    assert_says(
        &main_of("let blocks = m.transformer.h\n    blo|cks[0].checkpoint()"),
        &["let blocks = m.transformer.h", "3 × GPT2Block"],
    );
    assert_says(&main_of("m.**.only(GPT2|MLP).checkpoint()"), &["3 of the model's modules"]);
}
