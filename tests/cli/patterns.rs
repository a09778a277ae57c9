//! `slapoc verify` of what schedules do with the patterns they find: parity with libtorch's own autograd, dropout on.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const GELU: &str = "pattern gelu_tanh(x) = 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ^ 3)))";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn slapoc(command: &str, model: &str, items: &str, body: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("found.slapo");
    let model = root().join(model);
    let text = format!(
        "use std.parallel.{{column, row}}\nuse std.fusion.{{rms_norm, rotary, sdpa, sdpa_divided}}\nmodel \"{}\"\ninput {{ batch = 4, seq = 7 }}\nmesh {{ dp = 1, tp = 2 }}\n{items}\n\
         schedule main(m: Module) {{\n{body}\n}}\n",
        model.display()
    );
    std::fs::write(&path, text).expect("writing the schedule");
    let mut slapoc = Command::new(env!("CARGO_BIN_EXE_slapoc"));
    slapoc.args([command, "--message-format", "json"]).arg(&path).output().expect("slapoc starts")
}

/// The record of that type, of a run that must succeed.
fn record(command: &str, kind: &str, model: &str, items: &str, body: &str) -> Value {
    let output = slapoc(command, model, items, body);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{body}:\n{text}\n{errors}");
    let mut records = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    records.find(|record| record["type"] == kind).unwrap_or_else(|| panic!("no {kind} in {text}"))
}

/// Right beside the unscheduled model: `equal` bit by bit, or `rounding` where the schedule reorders sums.
fn right(verdict: &str, model: &str, items: &str, body: &str) {
    let report = record("verify", "verify", model, items, body);
    assert_eq!(report["verdict"], verdict, "{body}: {report}");
    let class = if verdict == "equal" { "exact" } else { "reassociating" };
    assert_eq!(report["class"], class, "{body}");
}

/// Recomputation of what a pattern found, beside tensor parallelism of the layers around it and recomputed modules.
#[test]
fn a_checkpointed_match_changes_no_number() {
    let items = format!(
        "{GELU}\npattern next(x, r, w, b, p: float) = [dropout(x, p: p) + r, layer_norm(dropout(x, p: p) + r, w, b)]"
    );
    let gpt2 = "examples/gpt2/gpt2-tiny.pt2";
    for body in [
        "m.find(gelu_tanh).checkpoint()",
        "m.find(gelu_tanh).checkpoint()\nm.transformer.h[0].checkpoint()",
        "m.find(next).expect(6).checkpoint()",
    ] {
        right("equal", gpt2, &items, body);
    }
    let parallel = "for b in m.transformer.h {\ncolumn(b.mlp.c_fc, over: tp)\nrow(b.mlp.c_proj, over: tp)\n}";
    right("rounding", gpt2, &items, &format!("m.find(gelu_tanh).checkpoint()\n{parallel}"));
    let qkv = "pattern qkv(x, q, k, v, a?, b?, c?) = [linear(x, q, a), linear(x, k, b), linear(x, v, c)]";
    right("equal", "tests/data/llama-tiny.pt2", qkv, "m.find(qkv).checkpoint()");
}

/// One kernel for the eight operators of GPT-2's activation; recomputed, split, and under micro-batches too.
#[test]
fn a_replaced_match_has_the_same_gradients() {
    let replaced = "m.find(gelu_tanh).replace(gelu(approximate: \"tanh\"))";
    let parallel = "for b in m.transformer.h {\ncolumn(b.mlp.c_fc, over: tp)\nrow(b.mlp.c_proj, over: tp)\n}";
    let gpt2 = "examples/gpt2/gpt2-tiny.pt2";
    right("rounding", gpt2, GELU, replaced);
    let items = format!("{GELU}\npattern act(x) = gelu(x, approximate: \"tanh\")");
    right("rounding", gpt2, &items, &format!("{replaced}\nm.find(act).checkpoint()\n{parallel}\nm.accumulate(2)"));
    let norm = "pattern norm(x, w, b, eps: float) = layer_norm(x, w, b, eps: eps)";
    right("rounding", gpt2, norm, "m.find(norm).replace(layer_norm)");
}

/// Attention that the model spells out, with its mask and without one; recomputed, and with its heads split.
#[test]
fn attention_in_place_of_its_operators_has_the_same_gradients() {
    let (eager, patterns) = ("tests/data/gpt2-eager.pt2", "tests/data/patterns.pt2");
    let replaced = "m.find(sdpa).expect(2).replace(attention(scale: c))";
    right("rounding", eager, "", replaced);
    let attention = "pattern fused(q, k, v, mask, s: float) = attention(q, k, v, mask, scale: s)";
    let heads =
        "for b in m.transformer.h {\ncolumn(b.attn.c_attn, over: tp, groups: 3)\nrow(b.attn.c_proj, over: tp)\n}";
    right("rounding", eager, attention, &format!("{replaced}\nm.find(fused).expect(2).checkpoint()\n{heads}"));
    let both = "m.find(sdpa).replace(attention(scale: c))\nm.find(sdpa_divided).replace(attention(scale: 1 / c))";
    right("rounding", patterns, "", both);
}

/// Matches across casts, reshapes and transposes that cancel: what is recomputed is the model's own.
#[test]
fn what_patterns_look_through_changes_no_number() {
    let items = "pattern bias_gelu(x, b) = gelu(x + b)\npattern turned(x, b) = tanh(gelu(x + b))";
    let all = "m.find(rms_norm).checkpoint()\nm.find(turned).checkpoint()\nm.find(sdpa).checkpoint()";
    right("equal", "tests/data/patterns.pt2", items, all);
    right(
        "equal",
        "tests/data/llama-tiny.pt2",
        "",
        "m.find(rotary).expect(4).checkpoint()\nm.find(rms_norm).checkpoint()",
    );
}

/// A product and the addition of its bias, alone and with the addition in a match, on both kinds of linear layer.
#[test]
fn a_decomposed_layer_has_the_same_gradients() {
    right("rounding", "examples/gpt2/gpt2-tiny.pt2", "", "m.transformer.h.*.mlp.{c_fc, c_proj}.decompose()");
    let bias_gelu = "pattern bias_gelu(x, b) = gelu(x + b)";
    let body = "for l in m.bert.encoder.layer {\nl.intermediate.dense.decompose()\ncolumn(l.intermediate.dense, over: tp)\n\
                row(l.output.dense, over: tp)\nl.intermediate.find(bias_gelu).checkpoint()\n}";
    right("rounding", "tests/data/bert-tiny.pt2", bias_gelu, body);
}
