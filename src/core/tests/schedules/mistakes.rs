//! Mistakes that schedules of other systems accept, or refuse without a word of why. Names are those of the list that they
//! come from.

use crate::support::{Run, run};

const HEAD: &str = "model \"gpt2-tiny.pt2\"\ninput { batch = 8, seq = 64 }\nmesh { dp = 2, tp = 2 }\n\n";

/// Lines 6 and following are `statements`.
fn check(statements: &[&str]) -> Run {
    let body = statements.join("\n    ");
    run("case", &format!("{HEAD}schedule main(m: GPT2LMHeadModel) {{\n    {body}\n}}\n")).compiled()
}

/// The labels of the only diagnostic: line and text, the primary one first.
fn labels(run: &Run) -> Vec<(u32, String)> {
    let [diagnostic] = run.diagnostics.as_slice() else { panic!("one diagnostic is wanted:\n{}", run.rendered()) };
    let all = diagnostic.primary.iter().chain(&diagnostic.secondary);
    all.map(|label| (run.files.line_column(label.span.file, label.span.start).line, label.text.clone())).collect()
}

/// A column and its row, right but for what a case adds.
const PAIR: [&str; 6] = [
    "let mlp = m.transformer.h[0].mlp",
    "mlp.c_fc.weight.shard(out, over: tp)",
    "mlp.c_fc.bias.shard(out, over: tp)",
    "mlp.c_proj.weight.shard(in, over: tp)",
    "mlp.c_fc.input().grad().sync(all_reduce, over: tp)",
    "mlp.c_proj.output().sync(all_reduce, over: tp)",
];

#[test]
fn b13_a_parameter_is_sharded_twice() {
    let run = check(&[
        "let fc = m.transformer.h[0].mlp.c_fc",
        "fc.weight.shard(0, over: tp)",
        "fc.weight.shard(0, over: tp)",
    ]);
    assert_eq!(run.codes(), ["S0501"]);
    assert_eq!(labels(&run), [(8, "for the second time".to_string()), (7, "split along `0` here".to_string())]);
}

#[test]
fn f6_along_another_dimension_of_the_same_axis() {
    let run = check(&[
        "let fc = m.transformer.h[0].mlp.c_fc",
        "fc.weight.shard(in, over: tp)",
        "fc.weight.shard(out, over: tp)",
    ]);
    assert_eq!(run.codes(), ["S0502"]);
    assert_eq!(labels(&run), [(8, "for the second time".to_string()), (7, "split along `in` here".to_string())]);
}

/// Over two axes a parameter may be split, along two dimensions or twice along one: the pieces then nest.
#[test]
fn f6_over_two_axes() {
    let run = check(&[
        "let fc = m.transformer.h[0].mlp.c_fc",
        "fc.weight.shard(in, over: dp)",
        "fc.weight.shard(out, over: tp)",
    ]);
    assert!(run.checked.is_ok(), "{}", run.rendered());
    let run = check(&[
        "let fc = m.transformer.h[0].mlp.c_fc",
        "fc.bias.shard(out, over: tp)",
        "fc.bias.shard(out, over: dp)",
    ]);
    let groups: Vec<(usize, i64)> = run.checked.effects.shards.iter().map(|s| (s.axis, s.groups)).collect();
    assert_eq!(groups, [(1, 2), (0, 1)]);
    let again = check(&[
        "let fc = m.transformer.h[0].mlp.c_fc",
        "fc.bias.shard(out, over: [dp, tp])",
        "fc.bias.shard(out, over: dp)",
    ]);
    assert_eq!(again.codes(), ["S0501"]);
    assert_eq!(labels(&again)[1], (7, "split along `out` here".to_string()));
}

#[test]
fn f4_a_dimension_that_is_not_there() {
    let run = check(&["m.transformer.h[0].mlp.c_fc.weight.shard(2, over: tp)"]);
    assert_eq!(run.codes(), ["S0206"]);
    assert_eq!(run.diagnostics[0].helps, ["its dimensions are `in` (64), `out` (256)"]);
    let run = check(&["m.transformer.h[0].mlp.output().sync(reduce_scatter(3), over: tp)"]);
    assert_eq!(run.codes(), ["S0206"]);
    assert_eq!(run.diagnostics[0].helps, ["its dimensions are `batch` (8), `seq` (64), `hidden` (64)"]);
}

#[test]
fn f5_negative_dimensions_count_from_the_end() {
    let dims = |statement: &str| {
        let run = check(&[statement]);
        run.checked.effects.shards.iter().map(|shard| shard.dim).collect::<Vec<usize>>()
    };
    assert_eq!(dims("m.transformer.h[0].mlp.c_fc.weight.shard(-1, over: tp)"), [1]);
    assert_eq!(dims("m.transformer.h[0].mlp.c_fc.weight.shard(-2, over: tp)"), [0]);
    assert_eq!(check(&["m.transformer.h[0].mlp.c_fc.weight.shard(-3, over: tp)"]).codes(), ["S0206"]);
}

/// The order of shards and syncs says nothing: layouts are looked at when all is said.
#[test]
fn f12_syncs_in_front_of_the_shards() {
    let reversed: Vec<&str> = PAIR[..1].iter().chain(PAIR[1..].iter().rev()).copied().collect();
    assert_eq!(check(&reversed).rendered(), "");
    // A contradiction is found in either order.
    let gather = "mlp.c_proj.output().sync(all_gather, over: tp)";
    for at in [1, 5] {
        let mut lines = PAIR[..5].to_vec();
        lines.insert(at, gather);
        let run = check(&lines);
        assert_eq!(run.codes(), ["S0604"], "{}", run.rendered());
        assert_eq!(labels(&run)[0], (6 + at as u32, "takes a split value".to_string()));
    }
}

#[test]
fn f13_one_collective_twice() {
    let run = check(&[&PAIR[..], &PAIR[5..]].concat());
    assert_eq!(run.codes(), ["S0501"]);
    assert_eq!(labels(&run), [(12, "for the second time".to_string()), (11, "synced here".to_string())]);
    // The same through another point: the sum is whole already.
    let run = check(&[&PAIR[..], &["mlp.output().sync(all_reduce, over: tp)"]].concat());
    assert_eq!(run.codes(), ["S0604"]);
    assert_eq!(labels(&run)[0].0, 12);
}

#[test]
fn f15_what_is_asked_for_is_not_what_is_there() {
    let mut lines = PAIR.to_vec();
    lines[5] = "mlp.c_proj.output().sync(all_to_all(seq, hidden), over: tp)";
    let run = check(&lines);
    assert_eq!(run.codes(), ["S0604"]);
    let message = &run.diagnostics[0].message;
    assert!(
        message.ends_with("the value at `transformer.h.0.mlp.c_proj.output()` is a partial sum over `tp`"),
        "{message}"
    );
}

#[test]
fn f16_a_gather_along_the_wrong_dimension() {
    let gather = |kind: &str| {
        let line = format!("mlp.c_fc.output().sync({kind}, over: tp)");
        check(&[PAIR[0], PAIR[1], PAIR[2], PAIR[4], &line, "mlp.c_fc.output().grad().sync(slice(hidden), over: tp)"])
    };
    for kind in ["all_gather(seq)", "all_gather(0)"] {
        let run = gather(kind);
        assert_eq!(run.codes(), ["S0604"], "{}", run.rendered());
        assert_eq!(run.diagnostics[0].helps, ["it is dimension 2 that is split"]);
    }
    for kind in ["all_gather", "all_gather(hidden)", "all_gather(-1)"] {
        assert_eq!(gather(kind).rendered(), "", "{kind}");
    }
}

/// A dash in a name reads as a subtraction, of a number where one follows.
#[test]
fn a_dashed_name_is_quoted() {
    let quoted = |line: &str| {
        let run = check(&[line]);
        assert_eq!(run.codes(), ["S0301"], "{}", run.rendered());
        let fix = run.diagnostics[0].fixes.first().map(|fix| fix.edits[0].replacement.clone());
        (run.diagnostics[0].helps[0].clone(), fix)
    };
    for (written, meant) in [
        ("m.transformer.zh-cn", "m.transformer[\"zh-cn\"]"),
        ("m.transformer.zh-hans-cn.weight", "m.transformer[\"zh-hans-cn\"].weight"),
        ("m.layer-1.x", "m[\"layer-1\"].x"),
    ] {
        let (help, fix) = quoted(&format!("m.annotate(\"a\", {written})"));
        assert_eq!((help, fix), (format!("a name with a dash is quoted: `{meant}`"), Some(meant.to_string())));
    }
    assert_eq!(quoted("m.annotate(\"a\", m.transformer - 1)").1, None);
}

/// A parameter that is whole on purpose is one that a step touched, and is not split behind that.
#[test]
fn a_parameter_is_whole_on_purpose() {
    let stated = "m.transformer.h[0].mlp.c_proj.bias.layout(replicate, over: tp)";
    let whole = check(&[PAIR[0], PAIR[1], PAIR[2], PAIR[3], PAIR[4], PAIR[5], stated]);
    assert_eq!(whole.rendered(), "");
    let plain = check(&PAIR);
    let untouched = |run: &Run| run.checked.untouched.len();
    assert_eq!(untouched(&whole) + 1, untouched(&plain));
    let label = |line: u32, text: &str| (line, text.to_string());
    let split = "m.transformer.h[0].mlp.c_proj.bias.shard(0, over: tp)";
    let later = check(&[stated, split]);
    assert_eq!(later.codes(), ["S0502"]);
    assert_eq!(labels(&later), [label(7, "splits it"), label(6, "stated here")]);
    let earlier = check(&[split, stated]);
    assert_eq!(earlier.codes(), ["S0502"]);
    assert_eq!(labels(&earlier), [label(7, "is to be whole"), label(6, "split here")]);
    assert_eq!(check(&[stated, stated]).codes(), ["S0501"]);
    let over_both = stated.replace("over: tp", "over: [dp, tp]");
    assert_eq!(check(&[&over_both]).rendered(), "");
    assert_eq!(labels(&check(&[&over_both, split])), [label(7, "splits it"), label(6, "stated here")]);
    let shard = check(&["m.transformer.wpe.weight.layout(shard(0), over: tp)"]);
    assert_eq!(shard.codes(), ["S0307"]);
}
