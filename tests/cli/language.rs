//! `slapoc verify` of what the language can say about layouts: several axes and factors of one, layouts asked for instead of
//! syncs, merged reductions; beside libtorch's own autograd, dropout on.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn slapoc(command: &str, schedule: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slapoc"))
        .current_dir(root())
        .args([command, "--message-format", "json"])
        .arg(schedule)
        .output()
        .expect("slapoc starts")
}

/// The record of `kind` that a command gives for a schedule of `model` on `mesh`; it must succeed.
fn record(command: &str, kind: &str, model: &str, mesh: &str, body: &str) -> Value {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("case.slapo");
    let text = format!(
        "use std.parallel.{{column, row}}\nmodel \"{}\"\ninput {{ batch = 8, seq = 6 }}\nmesh {{ {mesh} }}\n\
         schedule main(m: Module) {{\n{body}\n}}\n",
        root().join(model).display()
    );
    std::fs::write(&path, &text).expect("writing the schedule");
    let output = slapoc(command, &path);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let mut records = said.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    records.find(|record| record["type"] == kind).unwrap_or_else(|| panic!("no {kind} in {said}"))
}

fn is_right(model: &str, mesh: &str, body: &str, ranks: i64) {
    let report = record("verify", "verify", model, mesh, body);
    assert_ne!(report["verdict"], "wrong", "{mesh}\n{body}\n{report:#}");
    assert_eq!(report["ranks"], ranks, "{mesh}");
}

const GPT2: &str = "examples/gpt2/gpt2-tiny.pt2";
const BERT: &str = "tests/data/bert-tiny.pt2";
const OPT: &str = "tests/data/opt-tiny.pt2";
const GROUPED: &str = "tests/data/grouped.pt2";

/// Four query heads over both factors, two key and value heads over the outer one: replicas of a head add up its gradients.
const FEW_HEADS: &str = "let a = m.apart
    column(a.q_proj, over: tp)
    column(a.{k_proj, v_proj}, over: tp[0])
    a.{k_proj, v_proj}.input().grad().sync(all_reduce, over: tp[1])
    a.{k_proj, v_proj}.{weight, bias}.grad().sync(all_reduce, over: tp[1])
    row(a.o_proj, over: tp)
    m.data_parallel(over: dp)";

#[test]
fn fewer_heads_than_ranks() {
    for (mesh, ranks) in [("dp = 2, tp = [2, 2]", 8), ("tp = [2, 2], dp = 1", 4), ("tp = [2, 1], dp = [2, 2]", 8)] {
        is_right(GROUPED, mesh, FEW_HEADS, ranks);
    }
    let all = format!("{FEW_HEADS}\nm.accumulate(steps: 2)\nm.apart.checkpoint()");
    is_right(GROUPED, "tp = [2, 2], dp = 2", &all, 8);
}

/// A column and its row over several axes: pieces nest, groups of a fused weight too.
#[test]
fn one_parameter_over_several_axes() {
    let body = "for b in m.transformer.h {
        column(b.attn.c_attn, over: [x, y], groups: 3)
        row(b.attn.c_proj, over: [y, x])
        column(b.mlp.c_fc, over: [x, y], groups: 2)
        b.mlp.c_proj.weight.shard(in, over: [x, y], groups: 2)
        b.mlp.c_proj.output().sync(all_reduce, over: [x, y])
    }";
    is_right(GPT2, "x = 2, y = 2", body, 4);
    is_right(GPT2, "y = [2], x = 2, z = 1", body, 4);
}

/// The pieces of several axes put together, cut again and put together, whatever the order of the axes in the mesh, with
/// micro-batches inside.
#[test]
fn conversions_over_several_axes() {
    let body = "let mlp = m.transformer.h[0].mlp
    mlp.c_fc.{weight, bias}.shard(out, over: tp, groups: 2)
    mlp.c_fc.input().grad().sync(all_reduce, over: tp)
    mlp.c_fc.output().sync(all_gather(hidden), over: tp)
    mlp.c_fc.output().sync(slice(seq), over: tp[1])
    mlp.c_fc.output().sync(all_to_all(seq, hidden), over: tp[1])
    mlp.c_fc.output().sync(all_gather, over: tp[1])
    mlp.c_fc.output().grad().sync(slice(hidden, groups: 2), over: tp)
    let b = m.transformer.h[1].mlp.c_proj
    b.weight.shard(in, over: tp)
    b.input().sync(slice(hidden), over: tp)
    b.input().grad().sync(all_gather, over: tp[0])
    b.input().grad().sync(all_gather, over: tp[1])
    b.output().sync(reduce_scatter(batch, groups: rows), over: tp)
    b.output().sync(all_gather, over: tp[0])
    b.output().sync(all_gather, over: tp[1])
    m.data_parallel(over: dp)";
    // Rows of the batch are shared by data-parallel ranks first, then by micro-batches.
    let body = |rows: i64| body.replace("rows", &rows.to_string());
    is_right(GPT2, "dp = 2, tp = [2, 2]", &body(2), 8);
    is_right(GPT2, "tp = [2, 1], dp = 2", &format!("{}\nm.accumulate(steps: 2)", body(4)), 4);
    let all = format!("{}\nm.accumulate(steps: 4)\nm.transformer.h.*.checkpoint()", body(4));
    is_right(GPT2, "tp = [1, 2], dp = 1", &all, 2);
}

/// From pieces along one dimension, one of each of several groups, to pieces along another, and back; also of the batch that
/// data parallelism and micro-batches cut outside of them.
#[test]
fn exchanges_in_groups() {
    let body = "let mlp = m.transformer.h[0].mlp
    mlp.input().sync(slice(hidden, groups: 4), over: tp)
    mlp.input().sync(all_to_all(hidden, seq, groups: 3), over: tp)
    mlp.input().sync(all_to_all(seq, hidden, groups: 2), over: tp)
    mlp.input().sync(all_gather, over: tp)
    let c = m.transformer.h[1].attn.c_attn
    c.output().sync(slice(seq), over: tp)
    c.output().layout(shard(hidden, groups: 3), over: tp)
    c.output().grad().layout(shard(seq, groups: 3), over: tp)
    c.output().grad().sync(all_to_all(seq, batch, groups: 4), over: tp)
    c.output().grad().sync(all_to_all(batch, seq), over: tp)
    c.output().grad().sync(all_gather(seq), over: tp)
    m.transformer.h[1].attn.c_proj.input().layout(replicate, over: tp)
    m.transformer.h[1].attn.c_proj.input().grad().layout(shard(hidden), over: tp)
    m.data_parallel(over: dp)";
    is_right(GPT2, "dp = 2, tp = 2", body, 4);
    is_right(GPT2, "tp = 2, dp = 1", &format!("{body}\nm.accumulate(steps: 2)\nm.transformer.h.*.checkpoint()"), 2);
    is_right(GPT2, "tp = 2, dp = 2", &format!("{body}\nm.accumulate(steps: 2)"), 4);
}

/// Tokens that are flattened before a layer are pieces within every row of the batch, on whichever side data parallelism is.
#[test]
fn sequences_of_flattened_tokens() {
    let body = "for l in m.model.decoder.layers {
        column(l.fc1, over: tp)
        l.fc2.weight.shard(in, over: tp)
        l.fc2.output().sync(reduce_scatter(seq), over: tp)
        l.fc2.output().layout(replicate, over: tp)
    }
    m.data_parallel(over: dp)
    m.accumulate(steps: 2)";
    is_right(OPT, "dp = 2, tp = 2", body, 4);
    is_right(OPT, "tp = 3, dp = 2", body, 6);
}

/// What leads to a layout is the compiler's choice, for values, gradients and gradients of parameters.
#[test]
fn layouts_asked_for() {
    let body = "for b in m.transformer.h {
        b.attn.c_attn.{weight, bias}.shard(out, over: tp, groups: 3)
        b.attn.c_proj.weight.shard(in, over: tp)
        b.mlp.c_fc.{weight, bias}.shard(out, over: tp)
        b.mlp.c_proj.weight.shard(in, over: tp)
        let columns = [b.attn.c_attn, b.mlp.c_fc]
        let rows = [b.attn.c_proj, b.mlp.c_proj]
        columns.input().layout(replicate, over: tp)
        columns.input().grad().layout(shard(seq), over: tp)
        rows.output().layout(shard(seq), over: tp)
        rows.output().grad().layout(replicate, over: tp)
        b.{ln_1, ln_2}.{weight, bias}.grad().layout(replicate, over: tp)
    }
    m.transformer.h[0].input().layout(shard(seq), over: tp)
    m.transformer.h[0].input().grad().layout(replicate, over: tp)
    m.transformer.ln_f.input().layout(replicate, over: tp)
    m.transformer.ln_f.input().grad().layout(shard(seq), over: tp)
    m.data_parallel(over: dp)";
    is_right(GPT2, "dp = 2, tp = 2", body, 4);
    is_right(GPT2, "dp = 1, tp = 2", &format!("{body}\nm.accumulate(steps: 2)\nm.transformer.h[1].checkpoint()"), 2);
}

/// `apply` says what each layout came to, and what it moves.
#[test]
fn what_was_chosen_is_reported() {
    let body = "let mlp = m.transformer.h[0].mlp
    mlp.c_fc.{weight, bias}.shard(out, over: tp)
    mlp.c_proj.weight.shard(in, over: tp)
    mlp.c_fc.input().grad().layout(replicate, over: tp)
    mlp.c_proj.input().layout(shard(hidden), over: tp)
    mlp.c_proj.output().layout(shard(seq), over: tp)
    mlp.output().layout(replicate, over: tp)";
    let report = record("apply", "report", GPT2, "tp = 2", body);
    let blocks = report["blocks"].as_array().expect("a list").iter();
    let changes = blocks.flat_map(|block| block["changes"].as_array().expect("a list"));
    let layouts = changes.filter(|change| change["what"] == "layout");
    let details: Vec<&str> = layouts.map(|change| change["detail"].as_str().expect("text")).collect();
    // A value is f32[8, 6, 64].
    assert_eq!(
        details,
        [
            "to: replicate, over: tp: by all_reduce, 12.0 KiB",
            "to: shard(hidden), over: tp: already so",
            "to: shard(seq), over: tp: by reduce_scatter(1), 12.0 KiB",
            "to: replicate, over: tp: by all_gather, 12.0 KiB",
        ]
    );
}

const BERT_COLUMNS: &str = "for l in m.bert.encoder.layer {
        column(l.attention.self.{query, key, value}, over: tp)
        row(l.attention.output.dense, over: tp)
    }";

/// Three reductions of the gradient that queries, keys and values give their input are one, over one axis or two.
#[test]
fn reductions_of_one_gradient_are_one() {
    for (mesh, ranks, reductions) in [("tp = 2", 2, 1), ("tp = [2, 2]", 4, 2)] {
        let all = format!("{BERT_COLUMNS}\nm.accumulate(steps: 2)\nm.bert.encoder.layer.*.checkpoint()");
        is_right(BERT, mesh, &all, ranks);
        let report = record("apply", "report", BERT, mesh, BERT_COLUMNS);
        let merged = report["merged"].as_array().expect("a list");
        assert_eq!(merged.len(), reductions, "{merged:#?}");
        assert_eq!(merged[0]["reductions"], 3);
        assert_eq!(merged[0]["pattern"], "bert.encoder.layer[0..2].attention.self");
    }
}

/// Queries, keys and values of different sizes in one weight: every section is split by itself.
#[test]
fn sections_of_different_sizes() {
    let body = "column(m.fused.qkv, over: tp, groups: [4, 2, 2])
    row(m.fused.o_proj, over: tp)
    m.data_parallel(over: dp)";
    for (mesh, ranks) in [("tp = 2, dp = 1", 2), ("dp = 2, tp = 2", 4), ("tp = 1, dp = 2", 2)] {
        is_right(GROUPED, mesh, body, ranks);
    }
    let all = format!("{body}\nm.accumulate(steps: 2)\nm.fused.checkpoint()");
    is_right(GROUPED, "tp = 2, dp = 2", &all, 4);
    is_right(GROUPED, "tp = [2], dp = 1", &format!("{body}\nm.fused.qkv.bias.freeze()"), 2);
}
