//! Completion and signature help.

use super::{HEAD, at, main_of};
use slapo_ide::{Completion, completions, signature_help};

fn labels(text: &str) -> Vec<String> {
    let (snapshot, offset) = at(text);
    completions(&snapshot, offset).into_iter().map(|found| found.label).collect()
}

fn one(text: &str, label: &str) -> Completion {
    let (snapshot, offset) = at(text);
    let all = completions(&snapshot, offset);
    let found = all.iter().find(|found| found.label == label);
    found
        .unwrap_or_else(|| panic!("no `{label}` among {:?}", all.iter().map(|one| &one.label).collect::<Vec<_>>()))
        .clone()
}

#[test]
fn names_of_the_model_follow_a_dot() {
    let found = labels(&main_of("m.transformer.h[0].|"));
    assert_eq!(found[..4], ["ln_1", "attn", "ln_2", "mlp"]);
    assert!(found.contains(&"checkpoint".to_owned()) && found.contains(&"output".to_owned()), "{found:?}");
    assert!(!found.contains(&"shard".to_owned()), "a module is not split: {found:?}");
    let mlp = one(&main_of("m.transformer.h[0].|"), "mlp");
    assert_eq!(mlp.detail, "GPT2MLP");
    let weight = one(&main_of("m.transformer.h[0].mlp.c_fc.|"), "weight");
    assert_eq!(weight.detail, "[64, 256] f32");
}

#[test]
fn variables_are_followed_to_the_model() {
    assert_eq!(labels(&main_of("let b = m.transformer.h[1]\n    b.ml|"))[3], "mlp");
    assert_eq!(labels(&main_of("for b in m.transformer.h {\n        b.mlp.|\n    }"))[..2], ["c_fc", "c_proj"]);
    assert_eq!(labels(&main_of("m.transformer.h.*.{ln_1, |}"))[..4], ["ln_1", "attn", "ln_2", "mlp"]);
    assert_eq!(labels(&main_of("m.**.only(GPT2MLP).|"))[..2], ["c_fc", "c_proj"]);
    // A parameter stands for what callers give.
    let helper = format!("{}\nschedule help(b: Module) {{\n    b.|\n}}\n", main_of("help(m.transformer.h[0].attn)"));
    assert_eq!(labels(&helper)[..2], ["c_attn", "c_proj"]);
    let alone = format!("{}\nschedule help(b: GPT2MLP) {{\n    b.|\n}}\n", main_of(""));
    assert_eq!(labels(&alone)[..2], ["c_fc", "c_proj"]);
}

#[test]
fn what_is_typed_already_is_replaced() {
    let text = main_of("m.transformer.w|te.freeze()");
    let found = one(&text, "wte");
    let (snapshot, offset) = at(&text);
    assert_eq!(snapshot.files.slice(found.replaced), "wte");
    assert_eq!(found.replaced.start, offset - 1);
}

#[test]
fn only_points_can_be_synced() {
    let found = labels(&main_of("m.lm_head.input().|"));
    assert_eq!(found, ["layout", "sync", "grad"]);
    let found = labels(&main_of("m.lm_head.weight.|"));
    assert!(found.contains(&"shard".to_owned()) && !found.contains(&"checkpoint".to_owned()), "{found:?}");
}

#[test]
fn arguments_are_what_their_parameter_wants() {
    let axes = ["dp", "tp"];
    assert_eq!(labels(&main_of("column(m.transformer.h[0].mlp.c_fc, over: |)")), axes);
    assert_eq!(labels(&main_of("column(m.transformer.h[0].mlp.c_fc, over: |")), axes, "the bracket is still open");
    let roles = labels(&main_of("m.lm_head.weight.shard(|, over: tp)"));
    assert!(roles.starts_with(&["in", "out", "vocab", "hidden"].map(String::from)), "{roles:?}");
    assert!(roles.ends_with(&["dim:", "groups:", "uneven:"].map(String::from)), "{roles:?}");
    let found = labels(&main_of("m.lm_head.output().sync(|, over: tp)"));
    assert!(found.starts_with(&["all_reduce", "all_gather"].map(String::from)), "{found:?}");
    let found = labels(&main_of("m.lm_head.output().layout(|)"));
    assert!(found.starts_with(&["replicate", "shard"].map(String::from)), "{found:?}");
}

#[test]
fn labels_are_offered_once() {
    let found = labels(&main_of("column(m.transformer.h[0].mlp.c_fc, over: tp, |)"));
    assert!(found.ends_with(&["groups:", "uneven:"].map(String::from)), "{found:?}");
    assert!(!found.contains(&"over:".to_owned()), "{found:?}");
    assert_eq!(one(&main_of("m.data_parallel(|)"), "over:").insert, "over: ");
}

#[test]
fn statements_start_with_schedules_and_keywords() {
    let found = labels(&main_of("let b = m.transformer.h[1]\n    |"));
    assert_eq!(found[..2], ["m", "b"]);
    for wanted in ["column", "row", "vocab", "for", "let", "try"] {
        assert!(found.contains(&wanted.to_owned()), "{wanted}: {found:?}");
    }
    assert!(!found.contains(&"main".to_owned()));
    let column = one(&main_of("col|"), "column");
    assert_eq!(column.detail, "column(l: Linear, over: axis, groups: groups = 1, uneven: bool = false)");
    assert_eq!(column.insert, "column($0)");
    assert!(column.docs.starts_with("Splits a linear layer"), "{}", column.docs);
    // What is declared below is not there yet.
    assert!(!labels(&main_of("|\n    let late = 1")).contains(&"late".to_owned()));
}

#[test]
fn the_library_is_offered_where_it_is_used() {
    assert_eq!(labels("use |"), ["std"]);
    let modules = labels("use std.|");
    assert!(modules.contains(&"memory".to_owned()) && modules.contains(&"parallel".to_owned()), "{modules:?}");
    let found = labels("use std.parallel.{column, |}");
    assert!(found.contains(&"row".to_owned()) && !found.contains(&"column".to_owned()), "{found:?}");
    assert!(labels("use std.parallel.|").contains(&"column".to_owned()));
}

#[test]
fn files_beside_are_offered_with_what_they_declare() {
    let (mut snapshot, offset) = at("use |");
    snapshot.beside.modules = vec!["blocks".to_owned()];
    let found: Vec<String> = completions(&snapshot, offset).into_iter().map(|one| one.insert).collect();
    assert_eq!(found, ["std.$0", "blocks.{$0}"]);
    let found = labels("use own.blocks.{halves, |}\n");
    assert_eq!(found, ["gelu_new", "Mlp"]);
    let used = main_of("hal|").replace("use std", "use own.blocks.{halves, gelu_new}\nuse std");
    assert_eq!(one(&used, "halves").detail, "halves(l: Linear, over: axis)");
    let used = main_of("m.find(|)").replace("use std", "use own.blocks.{halves, gelu_new}\nuse std");
    assert_eq!(labels(&used), ["gelu_new"]);
    assert_eq!(one(&used, "gelu_new").docs, "As published.");
}

#[test]
fn models_are_offered_in_the_quotes() {
    let inserted = |text: &str| {
        let (mut snapshot, offset) = at(text);
        snapshot.beside.archives = vec!["gpt2.pt2".to_owned()];
        let found = completions(&snapshot, offset);
        found.iter().map(|one| (one.insert.clone(), snapshot.files.slice(one.replaced).to_owned())).collect::<Vec<_>>()
    };
    let one = |replaced: &str| vec![("gpt2.pt2".to_owned(), replaced.to_owned())];
    assert_eq!(inserted("model \"|"), one(""));
    assert_eq!(inserted("model \"gp|t.pt2\"\nmesh { tp = 2 }"), one("gpt.pt2"));
    assert!(!inserted("model \"a.pt2\" |").contains(&one("")[0]), "behind the quotes");
}

#[test]
fn schedules_of_the_library_bring_their_import() {
    let text = main_of("co|");
    let found = one(&text, "column_gathered");
    let [edit] = found.also.as_slice() else { panic!("{found:?}") };
    assert_eq!((edit.span.start, edit.replacement.as_str()), (0, "use std.parallel.column_gathered\n"));
    assert_eq!(one(&text, "column").also, [], "that is imported");
}

#[test]
fn a_schedule_is_completed_before_it_has_a_body() {
    let found = labels(&format!("{HEAD}schedule main(m: |"));
    assert!(found.contains(&"GPT2LMHeadModel".to_owned()) && !found.contains(&"mesh".to_owned()), "{found:?}");
    let found = labels(&format!("{HEAD}schedule main(m: GPT2LMHeadModel) {{\n    for b in m.transformer.|"));
    assert_eq!(found[..4], ["wte", "wpe", "drop", "h"]);
    let found = labels(&format!("{HEAD}schedule main(m: GPT2LMHeadModel) {{\n    if not m.|"));
    assert_eq!(found[..2], ["transformer", "lm_head"]);
}

#[test]
fn selectors_and_ranges_are_followed_to_the_model() {
    let children = ["ln_1", "attn", "ln_2", "mlp"];
    assert_eq!(labels(&main_of("m.transformer.h.*.|"))[..4], children);
    assert_eq!(labels(&main_of("m.transformer.h[..2].|"))[..4], children);
    assert_eq!(labels(&main_of("m.transformer.h[len(m.transformer.h) / 2 ..].|"))[..4], children);
    assert_eq!(labels(&main_of("m.transformer.h[-1].mlp.|"))[..2], ["c_fc", "c_proj"]);
    let star = one(&main_of("m.transformer.h.|"), "*");
    assert_eq!((star.detail.as_str(), star.insert.as_str()), ("3 modules", "*"));
    assert!(!labels(&main_of("m.transformer.|")).contains(&"*".to_owned()), "that has a class");
}

#[test]
fn values_of_a_knob_are_offered() {
    let knob = "knob depth = 4 in [1, 2, 4]\n";
    assert_eq!(labels("knob depth = | in [1, 2, 4]\n"), ["1", "2", "4"]);
    let found = labels(&format!("{knob}{}", main_of("if depth == | {\n    }")));
    assert_eq!(found[..3], ["1", "2", "4"]);
    assert_eq!(labels("knob depth = 4 in |\n"), [""; 0]);
}

#[test]
fn patterns_and_replacements_have_operators() {
    let found = labels(&format!("pattern twice(x) = |\n{}", main_of("")));
    assert!(found.contains(&"x".to_owned()), "{found:?}");
    assert!(found.contains(&"layer_norm".to_owned()) && !found.contains(&"len".to_owned()), "{found:?}");
    let pattern = format!("pattern twice(x) = x * 2\n{}", main_of("m.find(twice).|"));
    let found = labels(&pattern);
    assert!(found.contains(&"replace".to_owned()) && !found.contains(&"shard".to_owned()), "{found:?}");
    let gelu = one(&pattern.replace(".|", ".replace(|)"), "gelu");
    assert_eq!(gelu.detail, "gelu(x, approximate = \"none\")");
    assert_eq!(gelu.insert, "gelu($0)");
}

#[test]
fn items_types_and_sizes_have_their_words() {
    assert!(labels("|").contains(&"schedule".to_owned()));
    assert!(labels(&format!("{HEAD}sch|")).contains(&"schedule".to_owned()));
    let types = labels(&format!("{HEAD}schedule main(m: |) {{\n}}\n"));
    assert!(types.contains(&"Module".to_owned()) && types.contains(&"GPT2Block".to_owned()), "{types:?}");
    assert!(labels("mesh { tp = | }").contains(&"auto".to_owned()));
    assert_eq!(labels("input { | }"), ["batch", "seq"]);
}

#[test]
fn without_a_model_the_language_is_still_known() {
    let found = labels("schedule main(m: Module) {\n    m.|\n}\n");
    assert!(found.contains(&"checkpoint".to_owned()), "{found:?}");
}

#[test]
fn any_cursor_gets_an_answer() {
    let text =
        main_of("for b in m.transformer.h {\n        column(b.attn.c_attn, over: tp, groups: [1, 2 # å\n    let = \"");
    for (offset, _) in text.char_indices() {
        let snapshot = super::snapshot(&text[..offset]);
        completions(&snapshot, offset as u32);
        signature_help(&snapshot, offset as u32);
    }
}

#[test]
fn signatures_follow_the_cursor() {
    let active = |text: &str| {
        let (snapshot, offset) = at(text);
        let help = signature_help(&snapshot, offset)?;
        let active = help.active.map(|at| help.signature.params[at].name.clone());
        Some((help.signature.name, active.unwrap_or_default()))
    };
    let some = |name: &str, param: &str| Some((name.to_owned(), param.to_owned()));
    assert_eq!(active(&main_of("column(|")), some("column", "l"));
    assert_eq!(active(&main_of("column(m.lm_head, |)")), some("column", "over"));
    assert_eq!(active(&main_of("column(m.lm_head, groups: 3|, over: tp)")), some("column", "groups"));
    assert_eq!(active(&main_of("m.lm_head.weight.shard(out, over: |)")), some("shard", "over"));
    assert_eq!(active(&main_of("m.lm_head.output().sync(reduce_scatter(|")), some("reduce_scatter", "dim"));
    assert_eq!(active(&main_of("m.freeze()|")), None);
    let pattern = format!("pattern normed(x) = layer_norm(x, |)\n{}", main_of(""));
    assert_eq!(active(&pattern), some("layer_norm", "w"));
}
