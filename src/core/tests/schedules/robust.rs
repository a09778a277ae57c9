//! No text makes the checker panic, run for long or point outside of a file; the same text gives the same answer.

use crate::clock::grows_with;
use crate::support::{Run, gpt2, imported, run_on, schedules};
use slapo_core::schedule::{Modules, Overrides, check};
use slapo_model::Model;
use slapo_syntax::{Diagnostic, FileId, Parse, SourceMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Checks a text, and what must hold for every text.
pub fn sound(model: &Arc<Model>, text: &str) -> Run {
    let run = run_on(model, text);
    for diagnostic in &run.diagnostics {
        let labels = diagnostic.primary.iter().chain(&diagnostic.secondary);
        for label in labels {
            let text = run.files.text(label.span.file);
            assert!(text.get(label.span.range()).is_some(), "{diagnostic:?} points outside of its file");
        }
        assert!(!diagnostic.message.is_empty());
    }
    if run.parsed.is_ok() && run.checked.is_ok() {
        assert!(run.checked.entry.is_some());
    }
    run
}

fn texts() -> Vec<String> {
    let all = ["tests/ui", "tests/syntax/good", "tests/syntax/bad", "examples/gpt2", "examples/llama"];
    all.iter().flat_map(|folder| schedules(folder)).map(|(_, text)| text).collect()
}

#[test]
fn every_schedule_on_every_model() {
    for name in ["gpt2-odd.pt2", "bert-tiny.pt2", "opt-tiny.pt2", "llama-tiny.pt2", "misc.pt2", "counters.pt2"] {
        let model = imported(name).unwrap();
        for text in texts() {
            sound(&model, &text);
        }
    }
}

/// One slip in a right schedule gives few errors.
#[test]
fn one_slip_few_errors() {
    let model = gpt2();
    let text = std::fs::read_to_string(crate::support::root().join("examples/gpt2/recompute.slapo")).unwrap();
    assert!(sound(&model, &text).diagnostics.is_empty());
    for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
        let mut broken = text.clone();
        broken.remove(at);
        let run = sound(&model, &broken);
        let errors = run.diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count();
        assert!(errors <= 3, "{errors} errors after deleting byte {at}:\n{}", run.rendered());
    }
}

fn main_with(body: &str) -> String {
    format!("input {{ batch = 8, seq = 64 }}\nschedule main(m: Module) {{\n{body}\n}}\n")
}

#[test]
fn deep_nesting() {
    let model = gpt2();
    for depth in [30, 200, 300, 10_000] {
        let wrap =
            |open: &str, inside: &str, close: &str| format!("{}{inside}{}", open.repeat(depth), close.repeat(depth));
        let expressions = [
            wrap("(", "1", ")"),
            wrap("[", "1", "]"),
            wrap("-", "1", ""),
            wrap("not ", "true", ""),
            wrap("floor(", "1", ")"),
            wrap("1 + ", "1", ""),
            wrap("2 ^ ", "1", ""),
            wrap("m.x[", "0", "]"),
            format!("m{}", ".transformer".repeat(depth)),
            format!("m{}", "[0]".repeat(depth)),
            format!("m{}", ".**".repeat(depth)),
        ];
        for expression in expressions {
            sound(&model, &main_with(&format!("m.annotate(\"v\", {expression})")));
        }
        sound(&model, &main_with(&wrap("if true {\n", "m.accumulate(steps: 2)", "\n}")));
        sound(&model, &main_with(&wrap("for b in m {\n", "b.freeze()", "\n}")));
        sound(&model, &main_with(&format!("if false {{ }}{}", " else if false { }".repeat(depth))));
        sound(&model, &format!("schedule main(m: {}) {{ }}", wrap("[", "Module", "]")));
        sound(&model, &format!("type T = {}\nschedule main(m: T) {{ }}", wrap("{ a: ", "Linear", " }")));
    }
}

#[test]
fn deep_calls_with_deep_blocks() {
    let model = gpt2();
    let mut text = main_with("f0(m)");
    for i in 0..80 {
        let turns = format!("{}f{}(m){}", format!("for i{i} in 0..1 {{\n").repeat(1), i + 1, "\n}");
        let inner = format!("{}{turns}{}", "if true {\n".repeat(100), "\n}".repeat(100));
        text += &format!("schedule f{i}(m: Module) {{\n{inner}\n}}\n");
    }
    text += "schedule f80(m: Module) { m.accumulate(steps: 2) }\n";
    let run = sound(&model, &text);
    assert_eq!(run.codes(), ["S0315"], "{}", run.rendered());
}

/// Schedules that would run for ever, or nearly so, are stopped.
#[test]
fn too_much_work() {
    let model = gpt2();
    let doubling: String =
        (0..40).map(|i| format!("schedule f{i}(m: Module) {{\n    f{}(m)\n    f{0}(m)\n}}\n", i + 1)).collect();
    let cases = [
        main_with("f0(m)") + &doubling + "schedule f40(m: Module) { }\n",
        main_with("for i in 0..10 ^ 30 { for j in 0..i { } }"),
        main_with("for i in 0..10 ^ 9 { m.annotate(\"n\", i) }"),
        main_with("for i in 0..10 ^ 9 { m.nothing.freeze() }"),
        main_with("for b in m.** { for c in m.** { for d in m.** { for e in m.** { for f in m.** { } } } } }"),
        main_with("let a = 10 ^ 37 * 10 ^ 37"),
        main_with("m.accumulate(steps: 10 ^ 18 - 1)"),
    ];
    for text in cases {
        let start = Instant::now();
        let run = sound(&model, &text);
        assert!(run.diagnostics.iter().any(Diagnostic::is_error));
        assert!(run.diagnostics.len() < 10, "{}", run.rendered());
        assert!(start.elapsed() < Duration::from_secs(60), "{:?} for {text}", start.elapsed());
    }
}

#[test]
fn the_same_text_gives_the_same_answer() {
    let model = gpt2();
    for text in texts() {
        let (a, b) = (sound(&model, &text), sound(&model, &text));
        assert_eq!(a.diagnostics, b.diagnostics);
        assert_eq!(a.checked.steps, b.checked.steps);
    }
}

/// A schedule with a body of that many lines, three of them to a loop.
fn long(lines: usize) -> String {
    let places =
        ["attn", "attn.c_attn", "attn.c_proj.weight", "mlp", "mlp.c_fc", "mlp.c_proj.bias", "ln_1", "ln_2.bias"];
    let mut body = String::from("    let h = m.transformer.h\n");
    for (i, place) in (0..lines / 3).zip(places.iter().cycle()) {
        body += &format!("    for b in h {{\n        b.{place}.annotate(\"n{i}\", len(h) * {i} / 2)\n    }}\n");
    }
    main_with(&body)
}

#[test]
fn a_long_schedule_is_checked_in_time() {
    let model = gpt2();
    let parsed = |lines: usize| {
        let text = long(lines);
        (slapo_syntax::parse(FileId(0), &text), text)
    };
    let work = |(parsed, text): &(Parse, String)| {
        let mut files = SourceMap::new();
        let file = files.add("long.slapo", text.as_str());
        let checked = check(&mut files, file, parsed, &Modules::default(), Some(&model), &Overrides::default());
        assert!(checked.is_ok() && checked.steps.len() >= text.lines().count() - 10);
    };
    grows_with(5_000, Duration::from_millis(200), "5000 lines checked", parsed, work);
}

/// Every line is a schedule that is called; each has a mistake.
#[test]
fn a_long_broken_schedule_is_checked_in_time() {
    let model = gpt2();
    let text = |lines: usize| {
        let calls: String = (0..lines / 4).map(|i| format!("    f{i}(m.transformer.h[{}])\n", i % 5)).collect();
        let callees = (0..lines / 4).map(|i| format!("schedule f{i}(m: Module) {{\n    m.mpl.freeze(x{i})\n}}\n"));
        main_with(&calls) + &callees.collect::<String>()
    };
    let work = |text: &String| assert!(run_on(&model, text).diagnostics.len() > 500);
    grows_with(5_000, Duration::from_millis(500), "5000 broken lines checked", text, work);
}
