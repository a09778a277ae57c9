//! `slapoc apply`: the report, the stages, the folder.

use crate::schedules::{folder, run_on};
use crate::support::{command, run};
use insta::assert_snapshot;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

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
        ("layouts", "forward    %"),
        ("torch", "def backward(f, micro_batch):"),
        ("program", "step: "),
        ("program-json", "{\"version\":"),
    ] {
        let run = run_on(SCHEDULE, &["apply", "main.slapo", "--emit", stage]).expect(0);
        assert!(run.stdout.contains(part), "{stage}: {}", &run.stdout[..run.stdout.len().min(2000)]);
    }
    let steps = run_on(SCHEDULE, &["apply", "main.slapo", "--emit", "steps"]).expect(0);
    assert_snapshot!(steps.stdout);
}

const TENSOR_PARALLEL: &str = "\
use std.parallel.{column, row}
model \"model.pt2\"
input { batch = 8, seq = 64 }
mesh { dp = 2, tp = 2 }

schedule main(m: GPT2LMHeadModel) {
    m.data_parallel(over: dp)
    let mlp = m.transformer.h[0].mlp
    column(mlp.c_fc, over: tp)
    row(mlp.c_proj, over: tp)
    m.accumulate(steps: 2)
}
";

fn report_of(schedule: &str, options: &[&str]) -> Value {
    let args = [&["apply", "main.slapo", "--message-format", "json"], options].concat();
    let run = run_on(schedule, &args).expect(0);
    let records = run.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    records.into_iter().find(|record| record["type"] == "report").expect("a report")
}

#[test]
fn a_mesh_is_reported_with_its_layouts_and_collectives() {
    assert_snapshot!(run(&["apply", "examples/gpt2/tp_dp.slapo", "--clip", "1"]).expect(0).shown());
}

#[test]
fn layouts_and_collectives_are_data() {
    let report = report_of(TENSOR_PARALLEL, &[]);
    let layouts = report["layouts"].as_array().expect("modules");
    let linear =
        layouts.iter().find(|module| module["pattern"] == "transformer.h.0.mlp.c_proj").expect("the row layer");
    let value = |what: &str| linear["values"].as_array().expect("values").iter().find(|v| v["what"] == what).cloned();
    let weight = value("weight").expect("a weight");
    assert_eq!((&weight["shape"], &weight["local"]), (&[256, 64].into(), &[128, 64].into()));
    assert_eq!(weight["layouts"], serde_json::json!(["R", "S(0)"]));
    assert_eq!(value("output").expect("an output")["layouts"], serde_json::json!(["S(0)", "P → R"]));
    let collectives = report["collectives"].as_array().expect("collectives");
    let of = |what: &str| collectives.iter().filter(|c| c["what"] == what).collect::<Vec<_>>();
    // The program is that of a micro-batch: two calls a step each, but for what is done once a step.
    let is_once = |c: &Value| c["function"] == "reduction";
    let calls = |c: &Value| c["calls"].as_u64().expect("calls");
    assert!(collectives.iter().all(|c| is_once(c) || calls(c) % 2 == 0), "{collectives:#?}");
    assert_eq!((of("the loss").len(), of("the token count").len()), (1, 1));
    let [gradients] = of("the gradient")[..] else { panic!("one line of gradients: {collectives:#?}") };
    assert!(is_once(gradients) && calls(gradients) == 1, "{gradients:#?}");
    assert_eq!(gradients["places"], 40, "every parameter's gradient");
    let bytes = |of: &Value| of["bytes"].as_u64().expect("bytes");
    let totals = report["collective_totals"].as_array().expect("totals");
    assert_eq!(totals.iter().map(bytes).sum::<u64>(), collectives.iter().map(bytes).sum::<u64>());
}

/// Whole on purpose is not the same as forgotten.
#[test]
fn parameters_that_are_whole_on_purpose_are_listed_apart() {
    let stated = "    m.transformer.h.*.{ln_1, ln_2}.{weight, bias}.layout(replicate, over: tp)\n";
    let end = TENSOR_PARALLEL.rfind('}').expect("the end of `main`");
    let schedule = format!("{}{stated}}}\n", &TENSOR_PARALLEL[..end]);
    let of = |schedule: &str| report_of(schedule, &[])["parameters"].clone();
    let (plain, parameters) = (of(TENSOR_PARALLEL), of(&schedule));
    let tensors = |listed: &Value| listed["tensors"].as_u64().expect("a number");
    assert_eq!(
        parameters["replicated"][0]["stated"]["patterns"],
        serde_json::json!(["transformer.h[0..3].ln_1", "transformer.h[0..3].ln_2"])
    );
    assert_eq!(tensors(&parameters["replicated"][0]["stated"]), 12);
    for listed in ["/replicated/0", "/untouched"] {
        let before = tensors(plain.pointer(listed).expect("listed"));
        assert_eq!(tensors(parameters.pointer(listed).expect("listed")), before - 12, "{listed}");
    }
    let shown = run_on(&schedule, &["apply", "main.slapo"]).expect(0).stdout;
    assert!(shown.contains("whole on purpose on every rank of `tp` 768 in 12 tensors:"), "{shown}");
    assert!(shown.contains("~ layout  to: replicate, over: tp: stored so"), "{shown}");
}

/// transformers #37893: layers that no rule of a plan covered stayed whole without a word.
#[test]
fn b09_parameters_left_replicated_are_listed() {
    let replicated = |schedule: &str| report_of(schedule, &[])["parameters"]["replicated"].clone();
    let left = replicated(TENSOR_PARALLEL);
    let patterns = left[0]["patterns"].as_array().expect("patterns").clone();
    assert_eq!((&left[0]["axis"], left.as_array().map(Vec::len)), (&"tp".into(), Some(1)), "dp splits the batch");
    assert!(patterns.contains(&"transformer.h[1..3]".into()), "{patterns:?}");
    assert!(!patterns.iter().any(|p| p == "transformer.h.0.mlp.c_fc"), "{patterns:?}");
    // An axis that nothing uses at all.
    let idle = "model \"model.pt2\"\ninput { batch = 8, seq = 64 }\nmesh { tp = 2 }\nschedule main(m: Module) {}\n";
    assert_eq!(replicated(idle)[0]["tensors"], 40);
    let shown = run_on(idle, &["apply", "main.slapo"]).expect(0).stdout;
    assert!(shown.contains("nothing is split over `tp`"), "{shown}");
}

#[test]
fn every_value_has_a_line_of_layouts() {
    let layouts = run_on(TENSOR_PARALLEL, &["apply", "main.slapo", "--emit", "layouts"]).expect(0).stdout;
    let joint = run_on(TENSOR_PARALLEL, &["apply", "main.slapo", "--emit", "joint"]).expect(0).stdout;
    let line =
        layouts.lines().find(|line| line.contains("all_reduce  transformer.h.0.mlp")).expect("the row layer's sum");
    assert!(line.starts_with("forward    dp S(0)") && line.contains("tp R"), "{line}");
    let partial = layouts.lines().find(|line| line.contains("addmm  transformer.h.0.mlp.c_proj")).expect("its product");
    assert!(partial.contains("tp P"), "{partial}");
    let values = joint.lines().filter(|line| line.starts_with('%')).map(|line| {
        let outs = line.split_once(" = ").expect("a node").0;
        outs.matches('%').count()
    });
    let computed = layouts.lines().filter(|line| line.starts_with("forward") || line.starts_with("backward"));
    assert_eq!(computed.count(), values.sum::<usize>());
}

/// Whether Python reads it.
fn parses(listing: &str) -> bool {
    let mut python = Command::new("python3")
        .args(["-c", "import ast, sys; ast.parse(sys.stdin.read())"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("python3 is there: `cargo xtask setup` needs it");
    python.stdin.take().expect("a pipe").write_all(listing.as_bytes()).expect("is read");
    python.wait().expect("ends").success()
}

#[test]
fn the_torch_listing_is_python() {
    assert!(!parses("def f(:"));
    let torch = |options: &[&str]| {
        let args = [&["apply", "main.slapo", "--emit", "torch", "--clip", "1"], options].concat();
        let listing = run_on(TENSOR_PARALLEL, &args).expect(0).stdout;
        assert!(parses(&listing), "{listing}");
        listing
    };
    let last = torch(&["--rank", "3"]);
    for part in [
        "# For reading: what rank 3 of 4: dp 1 of 2, tp 1 of 2 executes",
        "mesh_dim_names=(\"dp\", \"tp\")",
        "torch.empty([128, 64], dtype=torch.float32),  # of [256, 64]: dim 0, rank 1 of 2",
        "    # transformer.h.0.mlp\n",
        ", group=tp)  # f32[2, 64, 64]",
        ".tensor_split(2, dim=0)[micro_batch]",
        "gradients[\"transformer.wte.weight\"] += ",
        "    backward(frames[1], 1)\n    reduction(frames[0], 0)\n    optimizer(frames[0], 0)\n",
    ] {
        assert!(last.contains(part), "{part}:\n{last}");
    }
    assert_ne!(last, torch(&[]));
    for model in ["tests/data/operators.pt2", "tests/data/bert-tiny.pt2", "tests/data/counters.pt2"] {
        let listing = run(&["apply", model, "--emit", "torch", "--optimizer", "sgd"]).expect(0).stdout;
        assert!(parses(&listing), "{listing}");
    }
}

#[test]
fn programs_and_memory_are_those_of_the_rank() {
    let program = |rank: &str| {
        run_on(TENSOR_PARALLEL, &["apply", "main.slapo", "--emit", "program", "--rank", rank]).expect(0).stdout
    };
    assert!(program("2").contains("\nrank 2 of 4: dp 1 of 2, tp 0 of 2\n"));
    assert!(program("0").contains(" = all_reduce over tp("));
    let memory = &report_of(TENSOR_PARALLEL, &["--rank", "1"])["memory"];
    assert_eq!((&memory["rank"], &memory["peaks"][0]), (&1.into(), &memory["peaks"][1]));
    let refused = run_on(TENSOR_PARALLEL, &["apply", "main.slapo", "--rank", "4"]).expect(2);
    assert!(refused.stderr.contains("there is no rank 4: the mesh has 4 ranks"), "{}", refused.stderr);
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

const KNOBS: &str = "\
model \"model.pt2\"
input { batch = 8, seq = 64 }
knob ratio = 0.5 in 0.0..=1.0
knob label = \"ours\"
knob fused = true
knob degree = 1 in [1, 2]
mesh { dp = degree }

schedule main(m: GPT2LMHeadModel) {
    m.transformer.h[..floor(3 * ratio)].checkpoint()
    m.annotate(\"label\", label)
    m.data_parallel(over: dp)
}

schedule all(m: GPT2LMHeadModel) {
    m.transformer.h.*.checkpoint()
}
";

#[test]
fn knobs_take_values_from_the_command_line() {
    let report = |args: &[&str]| -> Value {
        let args = [&["apply", "main.slapo", "--message-format", "json"], args].concat();
        let run = run_on(KNOBS, &args).expect(0);
        let mut records = run.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        records.find(|record| record["type"] == "report").expect("a report")
    };
    let knob =
        |name: &str, value: Value, is_set: bool| serde_json::json!({ "name": name, "value": value, "is_set": is_set });
    let default = report(&[]);
    let values = [("ratio", 0.5.into()), ("label", "ours".into()), ("fused", true.into()), ("degree", 1.into())];
    assert_eq!(default["knobs"], Value::from(values.map(|(name, value)| knob(name, value, false)).to_vec()));
    assert_eq!((&default["steps"], &default["ranks"]), (&3.into(), &1.into()));
    let set = report(&["--set", "ratio=1", "--set", "degree=1", "--set", "degree=2", "--set", "label=a b"]);
    let values = [knob("ratio", 1.into(), true), knob("label", "a b".into(), true), knob("fused", true.into(), false)];
    assert_eq!(set["knobs"].as_array().map(|knobs| &knobs[..3]), Some(&values[..]));
    assert_eq!((&set["steps"], &set["ranks"]), (&5.into(), &2.into()));
    let text = run_on(KNOBS, &["apply", "main.slapo", "--set", "ratio=0.34"]).expect(0).stdout;
    assert!(text.contains("\nknobs: ratio = 0.34 (set), label = \"ours\", fused = true, degree = 1\n"), "{text}");
}

#[test]
fn a_knob_set_wrongly_is_an_error() {
    for (set, said) in [
        ("ratoi=1", "did you mean `ratio`?"),
        ("ratio=2", "legal here: 0..=1"),
        ("degree=3", "legal here: 1, 2"),
        ("fused=1", "error[S0301]: knob `fused` is a truth value, not a number"),
    ] {
        let run = run_on(KNOBS, &["apply", "main.slapo", "--set", set]).expect(1);
        assert!(run.stderr.contains(said), "{set}: {}", run.stderr);
    }
    let run = run_on(KNOBS, &["apply", "main.slapo", "--set", "ratio"]).expect(2);
    assert!(run.stderr.contains("wants a name and a value"), "{}", run.stderr);
}

#[test]
fn another_schedule_of_the_file_can_be_the_entry() {
    let steps = |args: &[&str]| run_on(KNOBS, &[&["apply", "main.slapo", "--emit", "steps"], args].concat());
    let all = steps(&["--schedule", "all"]).expect(0).stdout;
    assert_eq!(all.lines().count(), 3, "{all}");
    assert!(all.starts_with("#1 checkpoint transformer.h.0"), "{all}");
    assert_eq!(steps(&["--schedule", "main"]).expect(0).stdout, steps(&[]).expect(0).stdout);
    let none = steps(&["--schedule", "none"]).expect(1).stderr;
    assert!(none.contains("its schedules are `main`, `all`"), "{none}");
}

/// Keeping the output of attention spares its recomputation, the all-reduce in it included, and takes its memory.
#[test]
fn what_is_kept_is_not_computed_again() {
    let report = |keep: &str| -> Value {
        let text = format!(
            "use std.parallel.{{column, row}}\nmodel \"model.pt2\"\ninput {{ batch = 8, seq = 64 }}\nmesh {{ tp = 2 }}\n\
             schedule main(m: GPT2LMHeadModel) {{\n    for b in m.transformer.h {{\n\
             column(b.attn.c_attn, over: tp, groups: 3)\nrow(b.attn.c_proj, over: tp)\nb.checkpoint({keep})\n}}\n}}\n"
        );
        let run = run_on(text, &["apply", "main.slapo", "--message-format", "json"]).expect(0);
        let mut records = run.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        records.find(|record| record["type"] == "report").expect("a report")
    };
    let number = |value: &Value| value.as_u64().expect("a number");
    let again = |report: &Value| number(&report["recomputed_operators"]);
    let activations = |report: &Value| number(&report["memory"]["after"]["activations"]);
    let reductions = |report: &Value| -> u64 {
        let all = report["collectives"].as_array().expect("collectives").iter();
        all.filter(|one| one["function"] == "backward").map(|one| number(&one["calls"])).sum()
    };
    let (nothing, kept) = (report(""), report("keep: [b.attn.output()]"));
    assert!(again(&kept) > 0 && again(&kept) < again(&nothing), "{} of {}", again(&kept), again(&nothing));
    assert!(activations(&kept) > activations(&nothing));
    assert_eq!((reductions(&nothing), reductions(&kept)), (6, 3), "{:#}", kept["collectives"]);
    // What enters the module is kept anyway.
    assert_eq!(again(&report("keep: [b.input()]")), again(&nothing));
}

/// A loss over all words of a large vocabulary: the tensor that fills the memory is named, and what makes it smaller.
#[test]
fn b70_the_largest_tensor_is_named() {
    let llama = "examples/llama/llama-bytes.pt2";
    let shown = run(&["apply", llama, "--batch", "8", "--seq", "32"]).expect(0).stdout;
    let largest = |shown: &str| {
        let line = shown.lines().find(|line| line.contains("the largest activation is"));
        line.expect("it is named").to_owned()
    };
    let line = largest(&shown);
    assert!(line.contains("[256, 256]") || line.contains("[8, 32, 256]"), "{line}");
    assert!(line.ends_with("256.0 KiB"), "{line}");
    assert!(shown.contains("`std.parallel.vocab` splits classes") && shown.contains("`accumulate`"), "{shown}");
    // An eighth of the rows at a time.
    let text = "model \"model.pt2\"\ninput { batch = 8, seq = 64 }\n\
                schedule main(m: GPT2LMHeadModel) {\n    m.accumulate(steps: 8)\n}\n";
    let size = |text: &str| largest(&run_on(text, &["apply", "main.slapo"]).expect(0).stdout);
    let (whole, eighth) = (size(&text.replace("steps: 8", "steps: 2")), size(text));
    assert!(whole.ends_with("256.0 KiB") && eighth.ends_with("64.0 KiB"), "{whole}\n{eighth}");
}

/// Nothing is compiled before and taken again: a program is of its schedule, its model and its sizes, and says so.
#[test]
fn b78_a_program_is_of_the_sizes_that_are_asked_for() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let out = folder.path().to_str().expect("UTF-8");
    let fingerprint = |model: &str, seq: &str| {
        run(&["apply", model, "--batch", "4", "--seq", seq, "-o", out]).expect(0);
        let text = fs::read_to_string(folder.path().join("program.json")).expect("reads");
        let program: Value = serde_json::from_str(&text).expect("JSON");
        let of = |key: &str| program["fingerprint"][key].as_str().expect("a fingerprint").to_owned();
        (of("schedule"), of("model"), text)
    };
    let (odd, short) = ("tests/data/gpt2-odd.pt2", "tests/data/gpt2-short.pt2");
    let (first, longer, again) = (fingerprint(odd, "8"), fingerprint(odd, "9"), fingerprint(odd, "8"));
    assert_eq!(first, again);
    assert_ne!(first.0, longer.0);
    assert_eq!(first.1, longer.1);
    let other = fingerprint(short, "8");
    assert_ne!(first.1, other.1);
}

/// What `keep` asks for in vain is said where it is asked.
#[test]
fn a_point_that_is_no_more_is_not_kept() {
    let text = "model \"model.pt2\"\ninput { batch = 8, seq = 64 }\nschedule main(m: GPT2LMHeadModel) {\n    let b = m.transformer.h[0]\n    \
                b.checkpoint(keep: [b.attn.output(), b.mlp.dropout.output()])\n}\n";
    let with = run_on(text, &["apply", "main.slapo"]).expect(0).stdout;
    assert!(!with.contains("not applied"), "{with}");
    let without = run_on(text, &["apply", "main.slapo", "--no-dropout"]).expect(0).stdout;
    assert_eq!(without.matches("not applied").count(), 1, "{without}");
    assert!(
        without.contains("keep transformer.h.0.mlp.dropout.output()") && without.contains("main.slapo:5"),
        "{without}"
    );
    assert!(without.contains("nothing is computed there any more"), "{without}");
}
