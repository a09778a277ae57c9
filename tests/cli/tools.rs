//! `explain`, `inspect`, `doctor`, `completions`, `man`.

use crate::support::run;
use insta::assert_snapshot;
use slapo_core::primitives;
use slapo_syntax::Code;

#[test]
fn everything_that_is_listed_is_explained() {
    let list = run(&["explain"]).expect(0).stdout;
    let topics: Vec<&str> = list.lines().filter_map(|l| l.strip_prefix("    ")?.split_whitespace().next()).collect();
    let library = slapo_stdlib::names().filter_map(slapo_stdlib::module);
    let schedules = library.flat_map(str::lines).filter(|line| line.starts_with("schedule ")).count();
    assert_eq!(topics.len(), Code::ALL.len() + primitives::ALL.len() + schedules);
    for topic in &topics {
        let page = run(&["explain", topic]).expect(0).stdout;
        assert!(page.starts_with("# "), "{topic}: {page}");
        assert!(page.lines().count() >= 3 && page.matches("```").count().is_multiple_of(2), "{topic}: {page}");
        for placeholder in [concat!("TO", "DO"), concat!("FIX", "ME"), "XXX", ",fail", ",ok\n"] {
            assert!(!page.contains(placeholder), "{topic} has `{placeholder}`: {page}");
        }
    }
    let lower = run(&["explain", "s0031"]).expect(0).stdout;
    assert_eq!(lower, run(&["explain", "S0031"]).expect(0).stdout);
    let all = run(&["explain", "--message-format", "json"]).expect(0).stdout;
    assert_eq!(all.lines().count(), 1 + topics.len());
    assert!(all.starts_with("{\"type\":\"version\""), "{all}");
}

#[test]
fn schedules_of_the_library_are_explained_with_their_import() {
    let page = run(&["explain", "column"]).expect(0).stdout;
    assert!(
        page.starts_with("# `column(l: Linear, over: axis, groups: groups = 1, uneven: bool = false)`\n"),
        "{page}"
    );
    assert!(page.contains("first half of a Megatron pair") && page.contains("`use std.parallel.column`"), "{page}");
    for module in slapo_stdlib::names() {
        let text = slapo_stdlib::module(module).expect("there");
        let names = text.lines().filter_map(|line| line.strip_prefix("schedule ")?.split('(').next());
        names.for_each(|name| assert!(run(&["explain", name]).expect(0).stdout.contains("It is in the library")));
    }
}

#[test]
fn primitives_are_explained_with_their_errors() {
    for primitive in primitives::ALL {
        let page = run(&["explain", primitive.name]).expect(0).stdout;
        let parts = [&format!("# `{}`", primitive.signature()), "```slapo\n", "Numeric class: ", "* S0501: "];
        assert!(parts.iter().all(|part| page.contains(*part)), "{page}");
    }
    assert_snapshot!(run(&["explain", "accumulate"]).expect(0).stdout);
}

#[test]
fn unknown_topics_are_refused_with_what_there_is() {
    let run = run(&["explain", "shrad"]).expect(2);
    assert!(run.stderr.contains("checkpoint"), "{}", run.stderr);
}

#[test]
fn inspect_finds_patterns() {
    let find = |model: &str, pattern: &str, code: i32| run(&["inspect", model, "--find", pattern]).expect(code);
    let gpt2 = "examples/gpt2/gpt2-tiny.pt2";
    let text = find(gpt2, "gelu_tanh", 0).stdout;
    assert!(
        text.starts_with("3 matches of `gelu_tanh`\n\ntransformer.h.0.mlp.act.find(gelu_tanh): 8 nodes\n"),
        "{text}"
    );
    assert!(
        text.contains("  x: f32[batch, seq, 256]  view_11\n") && text.contains("activations.py:66  return"),
        "{text}"
    );
    for (pattern, found) in [
        ("layer_norm(x, w, b)", "7 matches of `expression`"),
        ("1 + tanh(y)", "3 matches of `expression`"),
        ("pattern third(x) = x ^ 3", "3 matches of `third`"),
        ("norm(x, w, b, eps: float) = layer_norm(x, w, b, eps: eps)", "eps: 0.00001"),
    ] {
        let text = find(gpt2, pattern, 0).stdout;
        assert!(text.contains(found), "{pattern}: {text}");
    }
    let exact = find("tests/data/bert-tiny.pt2", "gelu(x, approximate: \"none\")", 0).stdout;
    assert!(exact.starts_with("3 matches"), "{exact}");
    let rotary =
        run(&["inspect", "tests/data/llama-odd.pt2", "--find", "rotary", "--message-format", "json"]).expect(0);
    let record: serde_json::Value = serde_json::from_str(rotary.stdout.lines().last().unwrap()).expect("JSON");
    assert_eq!((&record["type"], &record["pattern"]), (&"matches".into(), &"rotary".into()));
    assert_eq!(record["matches"].as_array().map(Vec::len), Some(2));
    assert_eq!(record["matches"][0]["operands"][3]["number"], 2.0);
    // What is wrong with the pattern, and how close the model comes.
    for (pattern, said) in [
        ("gelu_tan", "error[S0105]: `std.fusion` has no `gelu_tan`"),
        ("x +", "error[S0001]: "),
        ("tahn(x)", "error[S0102]: "),
        ("gelu_erf", "3 of 5 operators agree"),
    ] {
        let none = find(gpt2, pattern, 1).stderr;
        assert!(none.contains(said), "{pattern}: {none}");
    }
}

#[test]
fn inspect_shows_a_model() {
    let text = run(&["inspect", "examples/gpt2/gpt2-tiny.pt2"]).expect(0).stdout;
    assert!(text.contains("GPT2LMHeadModel") && text.contains("174,656"), "{text}");
    let json = run(&["inspect", "examples/gpt2/gpt2-tiny.pt2", "--json"]).expect(0).stdout;
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value["totals"]["elements"], 174_656);
    let records = run(&["inspect", "examples/gpt2/gpt2-tiny.pt2", "--message-format", "json"]).expect(0).stdout;
    let lines: Vec<serde_json::Value> = records.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[0]["type"], &lines[1]["type"]), (&"version".into(), &"model".into()));
    assert_eq!(lines[1]["totals"], value["totals"]);
    let ports = run(&["inspect", "examples/gpt2/gpt2-tiny.pt2", "--module", "transformer.h.0"]).expect(0).stdout;
    assert!(ports.contains("input(0)"), "{ports}");
    let none = run(&["inspect", "examples/gpt2/gpt2-tiny.pt2", "--module", "no.such"]).expect(2);
    assert!(none.stderr.starts_with("error[S0201]: ") && none.stderr.contains("`no.such`"), "{}", none.stderr);
    let broken = run(&["inspect", "tests/data/bad/random.pt2"]).expect(2);
    assert!(broken.stderr.starts_with("error[S1001]: tests/data/bad/random.pt2: "), "{}", broken.stderr);
}

#[test]
fn doctor_knows_the_machine_with_or_without_a_worker() {
    let absent =
        crate::support::command(&["doctor", "--json"]).env("SLAPO_WORKER", "/absent").output().expect("starts");
    assert_eq!(absent.status.code(), Some(2));
    let health: serde_json::Value = serde_json::from_slice(&absent.stdout).expect("JSON");
    assert_eq!(health["slapoc"], env!("CARGO_PKG_VERSION"));
    assert_eq!(health["program"], slapo_program::VERSION);
    assert!(health["machine"]["cores"].as_u64().is_some_and(|cores| cores > 0));
    assert!(health["worker"]["missing"]["helps"][0].as_str().is_some_and(|help| help.contains("xtask setup")));
}

#[test]
fn other_programs_get_the_command_line() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completions", shell]).expect(0).stdout.contains("slapoc"), "{shell}");
    }
    let man = run(&["man"]).expect(0).stdout;
    assert!(man.contains(".TH slapoc 1") && man.contains("dump\\-gradients"));
}
