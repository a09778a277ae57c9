//! `slapoc apply`: the report, the stages, the folder.

use crate::schedules::{folder, run_on};
use crate::support::{command, run};
use insta::assert_snapshot;
use serde_json::Value;
use std::fs;

const SCHEDULE: &str = "\
model \"model.pt2\"
input { batch = 8, seq = 64 }

schedule quiet(b: GPT2Block) {
    b.checkpoint()
    b.attn.freeze()
}

schedule main(m: GPT2LMHeadModel) {
    m.accumulate(steps: 4)
    for b in m.transformer.h {
        quiet(b)
    }
    m.transformer.wpe.weight.freeze()
    m.transformer.h[0].annotate(\"owner\", \"us\")
    try m.transformer.h[0].mlp.checkpoint()
}
";

#[test]
fn the_example_is_reported() {
    assert_snapshot!(run(&["apply", "examples/gpt2/recompute.slapo"]).expect(0).shown());
}

#[test]
fn every_kind_of_change_is_reported() {
    assert_snapshot!(run_on(SCHEDULE, &["apply", "main.slapo"]).expect(0).shown());
}

#[test]
fn the_empty_schedule_changes_nothing() {
    assert_snapshot!(run(&["apply", "examples/gpt2/gpt2-tiny.pt2"]).expect(0).shown());
}

#[test]
fn the_report_is_data() {
    let run = run_on(SCHEDULE, &["apply", "main.slapo", "--message-format", "json"]).expect(0);
    let records: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let report = records.iter().find(|record| record["type"] == "report").expect("a report");
    assert_eq!(report["micro_batches"], 4);
    assert_eq!(report["blocks"][1]["pattern"], "transformer.h[0..3]");
    assert_eq!(report["blocks"][1]["count"], 3);
    assert_eq!(report["class"], "changes training");
    let peak = |which: &str| {
        let terms = report["memory"][which].as_object().expect("terms");
        terms.values().map(|bytes| bytes.as_u64().expect("bytes")).sum::<u64>()
    };
    assert!(peak("after") < peak("before"));
    assert_eq!(report["not_applied"].as_array().map(Vec::len), Some(1));
}

#[test]
fn every_stage_is_printed() {
    for (stage, part) in [
        ("steps", "checkpoint transformer.h.0"),
        ("graph", "loss %"),
        ("joint", "native_layer_norm_backward"),
        ("program", "step: "),
        ("program-json", "{\"version\":"),
    ] {
        let run = run_on(SCHEDULE, &["apply", "main.slapo", "--emit", stage]).expect(0);
        assert!(run.stdout.contains(part), "{stage}: {}", &run.stdout[..run.stdout.len().min(2000)]);
    }
    let steps = run_on(SCHEDULE, &["apply", "main.slapo", "--emit", "steps"]).expect(0);
    assert_snapshot!(steps.stdout);
}

#[test]
fn statements_behind_a_line_are_left_out() {
    let run = run_on(SCHEDULE, &["apply", "main.slapo", "--until", "10", "--emit", "steps"]).expect(0);
    assert!(run.stdout.contains("accumulate") && !run.stdout.contains("checkpoint"), "{}", run.stdout);
}

#[test]
fn the_folder_holds_program_steps_and_report() {
    let folder = folder(SCHEDULE);
    let apply = |into: &str| {
        let mut command = command(&["apply", "main.slapo", "-o", into]);
        let output = command.current_dir(folder.path()).output().expect("starts");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    };
    apply("one");
    apply("a/two");
    for name in ["program.json", "steps.json", "report.json"] {
        let read = |into: &str| fs::read_to_string(folder.path().join(into).join(name)).expect("was written");
        let one = read("one");
        assert_eq!(one, read("a/two"), "{name}: the same inputs give the same bytes");
        assert!(serde_json::from_str::<Value>(&one).is_ok(), "{name}");
    }
    let program = fs::read_to_string(folder.path().join("one/program.json")).expect("was written");
    let program = slapo_program::Program::from_json(&program).expect("a program");
    assert_eq!(program.micro_batches, 4);
    fs::write(folder.path().join("file"), "").expect("writes");
    let mut onto_file = command(&["apply", "main.slapo", "-o", "file"]);
    assert_eq!(onto_file.current_dir(folder.path()).output().expect("starts").status.code(), Some(2));
}

#[test]
fn a_broken_schedule_is_not_applied() {
    let run = run_on("schedule main(m: Module) {", &["apply", "main.slapo", "--model", "model.pt2"]).expect(1);
    assert!(run.stdout.is_empty());
    let no_model = run_on("schedule main(m: Module) {}", &["apply", "main.slapo"]).expect(2);
    assert!(no_model.stderr.contains("names no model"), "{}", no_model.stderr);
}
