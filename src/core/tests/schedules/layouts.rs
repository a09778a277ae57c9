//! Sharding and syncs: right schedules on every mesh, and what is said of each way to get them wrong.

use crate::support::{Run, gpt2, run, schedules};
use slapo_core::compile::{Fault, Heads, LayoutFault, LayoutProblem, Place, SyncPoint};
use slapo_core::layout::Layout;
use slapo_core::schedule::{Place as Target, ReplayError, fault_diagnostic, replay, to_json};
use slapo_model::{ModuleId, SourceId};

const HEAD: &str = "use std.parallel.{column, row, column_gathered}\nmodel \"gpt2-tiny.pt2\"\ninput { batch = 8, seq = 64 }\nmesh { dp = 2, tp = 2 }\n\n";

/// The right schedule, one statement a line.
const RIGHT: [&str; 10] = [
    "    b.attn.c_attn.weight.shard(out, over: tp, groups: 3)",
    "    b.attn.c_attn.bias.shard(out, over: tp, groups: 3)",
    "    b.attn.c_attn.input().grad().sync(all_reduce, over: tp)",
    "    b.attn.c_proj.weight.shard(in, over: tp)",
    "    b.attn.c_proj.output().sync(all_reduce, over: tp)",
    "    b.mlp.c_fc.weight.shard(out, over: tp)",
    "    b.mlp.c_fc.bias.shard(out, over: tp)",
    "    b.mlp.c_fc.input().grad().sync(all_reduce, over: tp)",
    "    b.mlp.c_proj.weight.shard(in, over: tp)",
    "    b.mlp.c_proj.output().sync(all_reduce, over: tp)",
];

fn text(statements: &[&str]) -> String {
    let body = statements.join("\n");
    format!("{HEAD}schedule main(m: GPT2LMHeadModel) {{\n    let b = m.transformer.h[1]\n{body}\n}}\n")
}

fn check(statements: &[&str]) -> Run {
    run("mutant", &text(statements)).compiled()
}

#[test]
fn the_right_schedule() {
    assert_eq!(check(&RIGHT).rendered(), "");
    assert_eq!(check(&[&RIGHT[..], &["    m.data_parallel(over: dp)"]].concat()).rendered(), "");
}

/// Columns, rows, the whole batch, and both, on every mesh that the model can be cut for.
#[test]
fn examples_check_alike_on_every_mesh() {
    for (folder, tps) in [("examples/gpt2", &[1, 2, 4][..]), ("examples/llama", &[1, 2])] {
        for (stem, text) in schedules(folder).into_iter().filter(|(_, text)| text.contains("mesh {")) {
            for (dp, tp) in [1, 2, 4].into_iter().flat_map(|dp| tps.iter().map(move |tp| (dp, tp))) {
                let sized = text.replace("dp = 2", &format!("dp = {dp}")).replace("tp = 2", &format!("tp = {tp}"));
                let run = run(&stem, &sized).compiled();
                assert_eq!(run.rendered(), "", "{stem} on dp {dp}, tp {tp}");
            }
        }
    }
}

#[test]
fn sizes_that_do_not_divide() {
    let mut out = String::new();
    for (stem, from, to) in [
        ("tensor_parallel", "tp = 2", "tp = 3"),
        ("tensor_parallel", "tp = 2", "tp = 8"),
        ("data_parallel", "dp = 2", "dp = 3"),
        ("tp_dp", "m.data_parallel(over: dp)", "m.accumulate(steps: 8)\n    m.data_parallel(over: dp)"),
        ("tp_dp", "m.data_parallel(over: dp)", "m.data_parallel(over: dp)\n    m.accumulate(steps: 8)"),
    ] {
        let (_, text) = schedules("examples/gpt2").into_iter().find(|(known, _)| known == stem).unwrap();
        out += &format!("---- {stem} with {to}\n{}", run(stem, &text.replace(from, to)).compiled().rendered());
    }
    insta::assert_snapshot!("sizes-that-do-not-divide", out);
}

/// Statements that say something else than they should, by number.
#[test]
fn one_statement_changed() {
    let changes: [(usize, &str); 13] = [
        (0, "    b.attn.c_attn.weight.shard(in, over: tp)"),
        (1, "    b.attn.c_attn.bias.shard(out, over: tp)"),
        (0, "    b.attn.c_attn.weight.shard(out, over: tp)"),
        (2, "    b.attn.c_attn.input().sync(all_reduce, over: tp)"),
        (2, "    b.attn.c_attn.input().grad().sync(all_reduce, over: dp)"),
        (4, "    b.attn.c_proj.output().grad().sync(all_reduce, over: tp)"),
        (4, "    b.attn.c_proj.output().sync(reduce_scatter(seq), over: tp)"),
        (4, "    b.attn.output().sync(all_reduce, over: tp)"),
        (4, "    b.output().sync(all_reduce, over: tp)"),
        (7, "    b.mlp.c_fc.output().sync(all_gather, over: tp)"),
        (7, "    b.ln_2.weight.shard(hidden, over: tp)"),
        (8, "    b.mlp.c_proj.weight.shard(out, over: tp)"),
        (9, "    b.mlp.c_proj.output().sync(all_reduce, over: tp)\n    b.mlp.output().sync(all_reduce, over: tp)"),
    ];
    let mut out = String::new();
    for (at, other) in changes {
        let mut lines = RIGHT.to_vec();
        lines[at] = other;
        out += &format!("---- {}\n{}", other.trim(), check(&lines).rendered());
    }
    insta::assert_snapshot!("one-statement-changed", out);
}

#[test]
fn one_statement_less() {
    let mut out = String::new();
    for missing in RIGHT {
        let rest: Vec<&str> = RIGHT.iter().copied().filter(|line| *line != missing).collect();
        let run = check(&rest);
        out += &format!("---- without {}\n{}", missing.trim(), run.rendered());
    }
    insta::assert_snapshot!("one-statement-less", out);
}

/// Degree 1 is no special case: what is wrong on two ranks is wrong on one.
#[test]
fn an_axis_of_one_rank_is_checked_alike() {
    for missing in RIGHT {
        let rest: Vec<&str> = RIGHT.iter().copied().filter(|line| *line != missing).collect();
        let one = run("mutant", &text(&rest).replace("tp = 2", "tp = 1")).compiled();
        assert_eq!(one.codes(), check(&rest).codes(), "without {missing}");
    }
}

/// What the steps become, groups and tied names included, and that written steps say the same.
#[test]
fn steps_and_effects() {
    let statements = [
        "    m.lm_head.weight.shard(in, over: tp)",
        "    b.attn.c_attn.{weight, bias}.shard(out, over: tp, groups: 3)",
        "    b.mlp.c_fc.bias.shard(-1, over: tp)",
        "    b.mlp.c_fc.bias.shard(0, over: dp)",
        "    b.mlp.c_proj.output().sync(reduce_scatter(seq, groups: 2), over: tp)",
        "    b.mlp.c_proj.output().grad().sync(all_gather, over: tp)",
        "    b.input(0).sync(all_to_all(seq, hidden), over: tp)",
        "    m.output(\"cross_entropy_loss\").sync(all_reduce, over: tp)",
        "    [b.ln_1, b.ln_2].weight.grad().sync(all_reduce, over: tp)",
        "    m.data_parallel(over: dp)",
    ];
    let run = run("list", &text(&statements));
    let mut out = run.rendered();
    run.steps().iter().for_each(|step| out += &format!("{step}\n"));
    let effects = &run.checked.effects;
    effects.shards.iter().for_each(|shard| out += &format!("{shard:?}\n"));
    effects.syncs.iter().for_each(|sync| out += &format!("{sync:?}\n"));
    insta::assert_snapshot!("steps-and-effects", out);
    let json = to_json(&run.checked.steps).unwrap();
    assert_eq!(replay(&json, &gpt2(), run.checked.sizes, &effects.axes).as_ref(), Ok(effects));
    let without_tp = replay(&json, &gpt2(), run.checked.sizes, &effects.axes[..1]);
    let message = "the mesh has no axis `tp`".to_string();
    assert_eq!(without_tp, Err(ReplayError::Refused { step: 1, message }));
}

/// Several axes, factors, sections, layouts and limits, and that written steps say the same.
#[test]
fn steps_over_factors() {
    let statements = [
        "    b.attn.c_attn.{weight, bias}.shard(out, over: [tp, dp], groups: 3)",
        "    b.mlp.c_fc.bias.shard(out, over: tp[1])",
        "    b.mlp.c_proj.weight.shard(in, over: dp, groups: [2, 1, 1])",
        "    b.mlp.c_proj.output().sync(reduce_scatter(seq, groups: 2), over: tp)",
        "    b.mlp.c_proj.output().sync(all_gather, over: tp)",
        "    b.ln_1.output().layout(shard(batch), over: [dp, tp[0]])",
        "    b.deny(reshard: 1.5MiB)",
        "    m.data_parallel(over: tp)",
    ];
    let run = run("list", &text(&statements).replace("tp = 2", "tp = [2, 4]"));
    let mut out = run.rendered();
    run.steps().iter().for_each(|step| out += &format!("{step}\n"));
    let effects = &run.checked.effects;
    effects.shards.iter().for_each(|shard| out += &format!("{shard:?}\n"));
    effects.syncs.iter().for_each(|sync| out += &format!("{sync:?}\n"));
    effects.data_parallel.iter().for_each(|data| out += &format!("{data:?}\n"));
    insta::assert_snapshot!("steps-over-factors", out);
    let json = to_json(&run.checked.steps).unwrap();
    assert_eq!(replay(&json, &gpt2(), run.checked.sizes, &effects.axes).as_ref(), Ok(effects));
}

/// Faults that no short schedule gives, made by hand.
#[test]
fn faults_made_by_hand() {
    let model = gpt2();
    let statements = [RIGHT[8], RIGHT[9], "    m.data_parallel(over: dp)"];
    let mut run = run("made", &text(&statements));
    let at = |module: &str, operator: &str, is_backward| Place {
        module: module.into(),
        source: Some(SourceId(0)),
        operator: operator.into(),
        is_backward,
    };
    let (weight, bias) =
        (Target::at(&model, "transformer.h.1.mlp.c_proj.weight"), Target::at(&model, "lm_head.weight"));
    let [weight, tied] = [weight, bias].map(|place| place.unwrap().parameters(&model)[0]);
    let split = |dim, groups| Layout::Split { dim, groups };
    let fault = |axis, problem, origin, steps: &[u32], legal: &[i64]| {
        let fault = LayoutFault { axis, problem, origin, steps: steps.to_vec(), legal: legal.to_vec() };
        Fault::Layout(Box::new(fault))
    };
    let gradient = |parameter, found, wanted| LayoutProblem::Gradient { parameter, found, wanted };
    let port = SyncPoint::Output { module: ModuleId(1), port: 0 };
    let uneven = LayoutProblem::Uneven { parameter: tied, dim: 0, size: 256, groups: 3, parts: 2 };
    let nesting = LayoutProblem::Nesting { at: at("transformer", "add.Tensor", false), dim: 0, other: 1 };
    let loss = |found| LayoutProblem::Loss { found };
    let cut =
        |whole, heads| LayoutProblem::Cut { at: at("transformer.h.1.attn", "reshape", true), whole, size: 2, heads };
    let row = || Some(at("transformer.h.1.mlp.c_proj", "addmm", true));
    let faults = [
        fault(1, uneven, None, &[1], &[1, 2]),
        fault(1, LayoutProblem::NoValue { at: port, step: 2 }, None, &[2], &[]),
        fault(0, loss(Layout::Partial), None, &[3], &[]),
        fault(1, loss(Layout::Partial), Some(at("lm_head", "linear", false)), &[], &[]),
        fault(1, loss(split(0, 8)), None, &[2, 1], &[]),
        fault(1, gradient(weight, Layout::Partial, Layout::Replicated), row(), &[1], &[]),
        fault(1, gradient(tied, Layout::Partial, Layout::Replicated), row(), &[], &[]),
        fault(1, gradient(weight, Layout::Partial, split(0, 1)), None, &[1], &[]),
        fault(1, gradient(tied, split(0, 3), Layout::Replicated), None, &[], &[]),
        fault(1, gradient(tied, split(0, 1), split(1, 1)), None, &[1], &[]),
        fault(0, nesting, None, &[], &[]),
        fault(1, cut(4, Some(Heads::Repeated)), None, &[1], &[1, 2]),
        fault(1, cut(12, Some(Heads::KeyValue)), None, &[1], &[1, 2]),
        fault(1, cut(12, None), None, &[1], &[]),
    ];
    run.diagnostics = faults.iter().map(|fault| fault_diagnostic(fault, &model, &run.checked)).collect();
    insta::assert_snapshot!("made-by-hand", run.rendered());
}

/// Other families: separate projections, a tied head, and a tokens-flattened MLP of which the ranks take pieces of every
/// sequence.
#[test]
fn other_models_check_too() {
    const BERT: &str = "
        column(l.attention.self.{query, key, value}, over: tp)
        row(l.attention.output.dense, over: tp)
        column(l.intermediate.dense, over: tp)
        row(l.output.dense, over: tp)";
    const BERT_ONCE: &str = "
        l.attention.self.{query, key, value}.{weight, bias}.shard(out, over: tp)
        l.attention.self.input().grad().sync(all_reduce, over: tp)
        row(l.attention.output.dense, over: tp)";
    const OPT: &str = "
        column(l.self_attn.{q_proj, k_proj, v_proj}, over: tp)
        row(l.self_attn.out_proj, over: tp)
        column(l.fc1, over: tp)
        row(l.fc2, over: tp)";
    const OPT_TOKENS: &str = "
        l.fc1.input().sync(slice(seq), over: tp)
        l.fc1.input().grad().sync(all_gather(token), over: tp)
        l.fc2.output().sync(all_gather, over: tp)
        l.fc2.output().grad().sync(slice(seq), over: tp)
        l.{fc1, fc2}.{weight, bias}.grad().sync(all_reduce, over: tp)";
    const LLAMA: &str = "
        column(l.self_attn.{q_proj, k_proj, v_proj}, over: tp)
        row(l.self_attn.o_proj, over: tp)
        column(l.mlp.{gate_proj, up_proj}, over: tp)
        row(l.mlp.down_proj, over: tp)";
    const LLAMA_ONCE: &str = "
        l.self_attn.{q_proj, k_proj, v_proj}.weight.shard(out, over: tp)
        l.self_attn.input().grad().sync(all_reduce, over: tp)
        row(l.self_attn.o_proj, over: tp)
        l.mlp.{gate_proj, up_proj}.weight.shard(out, over: tp)
        l.mlp.input().grad().sync(all_reduce, over: tp)
        l.mlp.down_proj.weight.shard(in, over: tp)
        l.mlp.output().sync(all_reduce, over: tp)";
    let cases = [
        ("bert-tiny", "bert.encoder.layer", BERT),
        ("bert-tiny", "bert.encoder.layer", BERT_ONCE),
        ("opt-tiny", "model.decoder.layers", OPT),
        ("opt-tiny", "model.decoder.layers", OPT_TOKENS),
        ("llama-tiny", "model.layers", LLAMA),
        ("llama-tiny", "model.layers", LLAMA_ONCE),
    ];
    for (model, layers, body) in cases {
        let head = format!("use std.parallel.{{column, row}}\nmodel \"{model}.pt2\"\ninput {{ batch = 4, seq = 6 }}\n");
        let loops = format!("    for l in m.{layers} {{{body}\n    }}\n    m.data_parallel(over: dp)\n");
        let text = format!("{head}mesh {{ dp = 2, tp = 2 }}\nschedule main(m: Module) {{\n{loops}}}\n");
        assert_eq!(run(model, &text).compiled().rendered(), "", "{text}");
    }
}
