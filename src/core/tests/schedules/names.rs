//! What is named and not there, and names that are hard to write: the answer says what there is.
//!
//! Tests bear the numbers of the faults of other tools that they stand for.

use crate::support::{Run, refused, run, run_with};
use slapo_core::schedule::Overrides;

const HEAD: &str = "model \"gpt2-tiny.pt2\"\ninput { batch = 8, seq = 64 }\nmesh { dp = 2, tp = 2 }\n";

/// One statement about a block `b` of the example.
fn check(statement: &str) -> Run {
    let body = format!("let b = m.transformer.h[0]\n{statement}\nb.annotate(\"used\", 1)");
    run("case", &format!("{HEAD}schedule main(m: GPT2LMHeadModel) {{\n{body}\n}}\n"))
}

#[test]
fn f1_an_unknown_module_names_the_nearest_path_and_the_children() {
    let fc3 = check("b.mlp.fc3.freeze()");
    refused(&fc3, "S0201", &["`transformer.h.0.mlp` has no `fc3`", "it has `c_fc`, `c_proj`, `act`, `dropout`"]);
    refused(&check("b.mlp.c_fx.freeze()"), "S0201", &["did you mean `c_fc`?"]);
    let short = check("m.wte.freeze()");
    refused(&short, "S0201", &["the model has no `wte`", "`transformer`, `lm_head`", "there is `transformer.wte`"]);
    let dotted = check("m[\"transformer.wte\"].freeze()");
    refused(&dotted, "S0201", &["the model has no `transformer.wte`", "there is `transformer.wte`"]);
    refused(&check("m.transformer.h.mlp.freeze()"), "S0201", &["it is a list; `.*.mlp`"]);
}

#[test]
fn f2_an_unknown_parameter_names_the_module_and_its_parameters() {
    let near = check("b.mlp.c_fc.wieght.freeze()");
    refused(&near, "S0201", &["`transformer.h.0.mlp.c_fc` has no `wieght`", "did you mean `weight`?"]);
    let far = check("b.mlp.c_fc.kernel.freeze()");
    refused(&far, "S0201", &["`transformer.h.0.mlp.c_fc` has no `kernel`", "it has `weight`, `bias`"]);
}

/// There are no hooks to get wrong: what is done at a module's border is a primitive on one of its ports.
#[test]
fn f25_what_is_done_at_a_border_is_typed() {
    refused(&check("b.hook(1)"), "S0103", &["there is no primitive `hook`", "primitives are `accumulate`"]);
    let port = check("b.input(3).layout(replicate, over: tp)");
    refused(&port, "S0207", &["`transformer.h.0` has 2 inputs", "0 (`", "1 (`"]);
    let only = check("b.mlp.c_fc.output(1).layout(replicate, over: tp)");
    refused(&only, "S0207", &["has 1 output\n", "counted from 0: 0 (`", "[8, 64, 256]"]);
    refused(&check("b.input(\"x\").layout(replicate, over: tp)"), "S0207", &["no input", "there are `"]);
    refused(&check("b.input(0, 1).layout(replicate, over: tp)"), "S0304", &["`input` takes 1 argument"]);
    refused(&check("b.output().sync(all_reduce, over: tp, async: true)"), "S0303", &["has no argument `async`"]);
}

/// A schedule with a knob and a condition on it; the other branch names what another version of the model has.
fn branching(condition: &str, knob: &str) -> Run {
    let text = format!(
        "{HEAD}knob fused = true\nknob count = 2 in [0, 1, 2]\nschedule main(m: GPT2LMHeadModel) {{\n\
         if {condition} {{\n    m.transformer.h.*.mlp.annotate(\"k\", 1)\n}} else {{\n    m.transformer.h.*.feed_forward.annotate(\"k\", 1)\n}}\n}}\n"
    );
    let knobs = knob.split_once('=').map(|(name, value)| (name.into(), value.into()));
    run_with("case", &text, &Overrides { knobs: knobs.into_iter().collect(), ..Overrides::default() })
}

#[test]
fn f52_branches_that_are_not_taken_fit_the_model_too() {
    for condition in ["fused", "count > 1", "tp > 1 and not (count == 0)", "true"] {
        let run = branching(condition, "");
        refused(&run, "S0201", &["has no `feed_forward`", "the branch is not taken with these values"]);
        assert_eq!(run.checked.steps.len(), 3, "{condition}: only the steps of the branch that is taken");
    }
    let taken = branching("fused", "fused=false");
    refused(&taken, "S0201", &["has no `feed_forward`"]);
    assert!(!taken.rendered().contains("not taken"), "{}", taken.rendered());
    let chosen = check("choose(tp > 1, b.mlp, b.feed_forward).annotate(\"k\", 1)");
    refused(&chosen, "S0201", &["has no `feed_forward`", "not taken"]);
    // Where the model decides, the other branch is for other models.
    for condition in ["m.is(GPT2LMHeadModel)", "len(m.transformer.h) == 3", "m.is(GPT2LMHeadModel) or fused"] {
        assert_eq!(branching(condition, "").rendered(), "", "{condition}");
    }
}

/// What is wrong because of the values at hand may be right with others: only names are looked at.
#[test]
fn f52_branches_that_are_not_taken_may_divide_by_zero() {
    let text = format!(
        "{HEAD}knob every = 0 in 0..=4\nschedule main(m: GPT2LMHeadModel) {{\nlet h = m.transformer.h\n\
         if every > 0 {{\n    for i in 0..len(h) / every {{ h[i * every].checkpoint() }}\n    h[len(h) / every].mlp.freeze()\n\
         m.accumulate(steps: 1 / every)\n    let last = h[every - 1]\n    last.checkpoint()\n    last.freeze()\n}} else if every == 0 {{\n    h[0].checkpoint()\n}} else {{\n    h[0].checkpoint()\n}}\n}}\n"
    );
    let run = run("case", &text);
    assert_eq!(run.rendered(), "");
    assert_eq!(run.steps().len(), 1);
}

#[test]
fn f53_bad_words_name_the_legal_ones() {
    let collectives = "`all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all` and `slice`";
    refused(&check("b.output().sync(mean, over: tp)"), "S0101", &["there is no `mean`", "legal here are", collectives]);
    refused(&check("b.output().sync(gather(seq), over: tp)"), "S0101", &["legal here are", collectives]);
    refused(&check("b.output().sync(all_redcue, over: tp)"), "S0101", &["did you mean `all_reduce`?"]);
    refused(&check("b.output().layout(whole, over: tp)"), "S0101", &["legal here are `replicate` and `shard`"]);
    let dim = check("b.output().sync(reduce_scatter(rows), over: tp)");
    refused(&dim, "S0101", &["there is no `rows`", "legal here are `in`, `out`", "`seq`"]);
    refused(&check("b.mlp.c_fc.weight.shard(rows, over: tp)"), "S0101", &["`batch`, `seq`"]);
    // A word of another kind is said to be one.
    refused(&check("b.output().sync(bf16, over: tp)"), "S0301", &["takes a collective, not an element type"]);
    refused(&check("b.output().sync(all_reduce, over: \"tp\")"), "S0301", &["`over` takes an axis, not a string"]);
}

/// Nothing is put in a place silently: a replacement names one operator, and one that is not there names those that are.
#[test]
fn f54_a_replacement_is_the_operator_that_is_named() {
    let text = |replace: &str| {
        format!(
            "{HEAD}pattern tanh_gelu(x) = 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ^ 3)))\n\
             schedule main(m: GPT2LMHeadModel) {{\nm.transformer.h[0].mlp.find(tanh_gelu).{replace}\n}}\n"
        )
    };
    let unknown = run("case", &text("replace(flash_gelu)"));
    refused(&unknown, "S0102", &["there is no operator `flash_gelu`", "operators are `abs`, `add`"]);
    refused(&run("case", &text("replace(glue)")), "S0102", &["did you mean `gelu`?"]);
    let right = run("case", &text("replace(gelu(approximate: \"tanh\"))"));
    assert_eq!(right.rendered(), "");
    assert_eq!(right.steps().len(), 1);
    // Another function is no replacement, and nothing takes its place.
    let other = run("case", &text("replace(silu)"));
    assert!(!other.checked.is_ok() && other.checked.steps.is_empty(), "{}", other.rendered());
}

#[test]
fn f56_every_name_can_be_addressed() {
    let text = "model \"names.pt2\"\ninput { batch = 4, seq = 8 }\nmesh { tp = 2 }\nschedule main(m: Names) {
    m.scale.annotate(\"a\", 1)
    m.shifts[\"per-feature\"].annotate(\"a\", 1)
    m.gains[\"1\"].annotate(\"a\", 1)
    m.branches[\"zh-cn\"][0].weight.annotate(\"a\", 1)
    m.branches[\"zh-cn\"][1][\"größe\"].weight.annotate(\"a\", 1)
    m.branches[\"zh-cn\"][1].größe.bias.annotate(\"a\", 1)
    m.branches[\"zh-cn\"][1][\"two words\"].weight.annotate(\"a\", 1)
    m.branches[\"zh-cn\"][1][\"0\"].weight.annotate(\"a\", 1)
    m.branches.let.weight.annotate(\"a\", 1)
    m.output.output().layout(replicate, over: tp)
    for b in m.branches[\"zh-cn\"][1] {
        b.weight.annotate(\"b\", 1)
    }
    m.branches.**.weight.annotate(\"c\", 1)
}
";
    let run = run("case", text).compiled();
    assert_eq!(run.rendered(), "");
    let paths: Vec<&str> = run.checked.steps.iter().map(|step| step.target.path.as_str()).collect();
    let weights =
        ["zh-cn.1.größe.weight", "zh-cn.1.0.weight", "zh-cn.1.two words.weight"].map(|p| format!("branches.{p}"));
    assert_eq!(paths[..3], ["scale", "shifts.per-feature", "gains.1"]);
    assert_eq!(paths[6..8], [&weights[2], &weights[1]]);
    assert_eq!(paths[8..10], ["branches.let.weight", "output.output()"]);
    assert_eq!(paths[10..13], weights);
    assert_eq!(paths.len(), 13 + 5);
    // What was written down finds the same places again.
    let json = slapo_core::schedule::to_json(&run.checked.steps).unwrap();
    let model = run.model.clone().unwrap();
    let axes = &run.checked.effects.axes;
    assert!(slapo_core::schedule::replay(&json, &model, run.checked.sizes, axes).is_ok());
}

#[test]
fn f56_names_that_cannot_be_are_said_so() {
    let case = |path: &str| {
        run(
            "case",
            &format!(
                "model \"names.pt2\"\ninput {{ batch = 4, seq = 8 }}\nschedule main(m: Names) {{\n{path}.freeze()\n}}\n"
            ),
        )
    };
    refused(&case("m.branches[\"zh_cn\"]"), "S0201", &["did you mean `zh-cn`?"]);
    refused(&case("m[\"\"]"), "S0201", &["it has `embed`, `branches`"]);
    refused(&case("m[\"branches.zh-cn\"]"), "S0201", &["there is `branches.zh-cn`"]);
    refused(&case("m.branches[\"zh-cn\"][\"2\"]"), "S0201", &["it has `0`, `1`"]);
    refused(&case("m.branches[\"zh-cn\"][2]"), "S0203", &["no position 2 among 2 elements"]);
    refused(&case("m.branches.zh-cn"), "S0301", &["a name with a dash is quoted"]);
    refused(&case("m..scale"), "S0026", &["a doubled dot"]);
}
