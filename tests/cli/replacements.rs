//! Modules replaced by archives beside the model as it is: parity with libtorch's own autograd, dropout on.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// A folder with the schedule `replaced.slapo` and every replacement beside it.
fn folder(model: &str, body: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let archives = std::fs::read_dir(root().join("tests/data/replacements")).expect("the archives");
    for archive in archives.map(|entry| entry.expect("an archive")) {
        std::fs::copy(archive.path(), folder.path().join(archive.file_name())).expect("copies");
    }
    let model = root().join("tests/data").join(model);
    let text = format!(
        "model \"{}\"\ninput {{ batch = 4, seq = 7 }}\nmesh {{ tp = 2 }}\nschedule main(m: Module) {{\n{body}\n}}\n",
        model.display()
    );
    std::fs::write(folder.path().join("replaced.slapo"), text).expect("writes the schedule");
    folder
}

fn slapoc(folder: &TempDir, args: &[&str]) -> Output {
    let mut slapoc = Command::new(env!("CARGO_BIN_EXE_slapoc"));
    slapoc.args(args).arg(folder.path().join("replaced.slapo")).output().expect("slapoc starts")
}

/// What `verify` says of a schedule that must be right.
fn verdict(model: &str, body: &str) -> String {
    let output = slapoc(&folder(model, body), &["verify", "--message-format", "json"]);
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{body}:\n{text}\n{errors}");
    let mut records = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    let report = records.find(|record| record["type"] == "verify").unwrap_or_else(|| panic!("no verdict in {text}"));
    report["verdict"].as_str().unwrap_or_default().to_owned()
}

/// A fused MLP, attention in steps and by `is_causal`, with the model's mask, and whole blocks: dropouts draw the masks of
/// those that they replace.
#[test]
fn f25_replaced_modules_compute_the_same() {
    for body in [
        "m.transformer.h.*.mlp.replace(\"mlp.pt2\", weights: by_name)",
        "m.transformer.h.*.attn.replace(\"attention.pt2\", weights: by_name)",
        "m.transformer.h.*.attn.replace(\"attention-eager.pt2\", weights: by_name)\nm.accumulate(2)",
        "for b in m.transformer.h {\nb.attn.replace(\"attention-masked.pt2\", weights: by_name, ports: [[\"mask\", \
         b.attn.input(1)]])\nb.checkpoint()\n}",
        "m.transformer.h[1].replace(\"block.pt2\", weights: by_name)",
    ] {
        assert_eq!(verdict("gpt2-odd.pt2", body), "rounding", "{body}");
    }
    // Both calls of a module; a table that the embedding has too.
    assert_eq!(verdict("misc.pt2", "m.mix.replace(\"mix.pt2\", weights: by_name)"), "rounding");
    assert_eq!(verdict("gpt2-odd.pt2", "m.lm_head.replace(\"head.pt2\", weights: by_name)"), "rounding");
}

/// Two layers behind one input as one, whose weight is theirs, joined; also where the optimizer's pieces are ranks'.
#[test]
fn layers_become_one() {
    let gate_up = "for l in m.model.layers {
        l.mlp.replace(\"gate-up.pt2\", weights: [[\"gate_up.weight\", [l.mlp.gate_proj.weight, l.mlp.up_proj.weight]], \
        [\"down.weight\", l.mlp.down_proj.weight]])
    }";
    assert_eq!(verdict("llama-tiny.pt2", gate_up), "rounding");
    assert_eq!(verdict("llama-tiny.pt2", &format!("{gate_up}\nm.zero(stage: 3, over: tp)")), "rounding");
}

/// Two inputs of one type, in either order: with the names of the model's values the numbers are the same, bit by bit; with
/// the names exchanged they are others, and `verify` finds it.
#[test]
fn f27_inputs_go_by_their_names() {
    let replaced = |archive: &str, x: u32, gate: u32| {
        let ports = format!("[[\"x\", m.gate.input({x})], [\"gate\", m.gate.input({gate})]]");
        format!("m.gate.replace(\"{archive}.pt2\", weights: by_name, ports: {ports})")
    };
    for archive in ["gate", "gate-swapped"] {
        assert_eq!(verdict("gated.pt2", &replaced(archive, 0, 1)), "equal");
        let output = slapoc(&folder("gated.pt2", &replaced(archive, 1, 0)), &["verify"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
}

/// Tensor parallelism of a replaced module, said before the replacement and behind it.
#[test]
fn f50_splits_hold_for_the_operators_of_an_archive() {
    let pairs = "[\"up.weight\", b.mlp.c_fc.weight], [\"up.bias\", b.mlp.c_fc.bias], \
                 [\"down.weight\", b.mlp.c_proj.weight], [\"down.bias\", b.mlp.c_proj.bias]";
    let replace = format!("b.mlp.replace(\"mlp-renamed.pt2\", weights: [{pairs}])");
    let split = "b.mlp.c_fc.{weight, bias}.shard(out, over: tp)\nb.mlp.c_proj.weight.shard(in, over: tp)\n\
                 b.mlp.input().grad().sync(all_reduce, over: tp)\nb.mlp.output().sync(all_reduce, over: tp)";
    for body in [format!("{replace}\n{split}"), format!("{split}\n{replace}")] {
        assert_eq!(verdict("gpt2-odd.pt2", &format!("for b in m.transformer.h {{\n{body}\n}}")), "rounding");
    }
}

/// An archive is looked for beside the schedule, may be named by a knob, and belongs to what the schedule is known by.
#[test]
fn archives_are_read_beside_the_schedule() {
    let body = "m.transformer.h.*.mlp.replace(\"nowhere.pt2\", weights: by_name)";
    let output = slapoc(&folder("gpt2-odd.pt2", body), &["check", "--message-format", "short"]);
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("error[S1010]: cannot read the archive `nowhere.pt2`: no such file"), "{text}");
    let folder = folder("gpt2-odd.pt2", "m.transformer.h.*.mlp.replace(file, weights: by_name)");
    let path = folder.path().join("replaced.slapo");
    let knob = "knob file = \"mlp.pt2\" in [\"mlp.pt2\", \"mlp-relu.pt2\"]\n";
    std::fs::write(&path, format!("{knob}{}", std::fs::read_to_string(&path).expect("reads"))).expect("writes");
    let program = |folder: &TempDir| {
        let output = slapoc(folder, &["apply", "--emit", "program"]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let before = program(&folder);
    let output = slapoc(&folder, &["check", "--set", "file=mlp-relu.pt2"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    // Another archive under the same name is another schedule, though what it computes is the same.
    std::fs::copy(folder.path().join("mlp-plain.pt2"), folder.path().join("mlp.pt2")).expect("copies");
    assert_ne!(before, program(&folder));
}
