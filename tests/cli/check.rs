//! `slapoc check` on schedules right and wrong.

use crate::schedules::run_on;
use crate::support::run;
use insta::assert_snapshot;

const FORMATS: [&str; 4] = ["human", "short", "json", "github"];

/// Names, paths and arguments that are wrong, on several lines.
const BROKEN: &str = "\
model \"model.pt2\"
input { batch = 6, seq = 64 }

schedule main(m: GPT2LMHeadModel) {
    m.transformer.h[0].atn.checkpoint()
    m.transformer.h[0].chekpoint()
    let width = heigth + 1
    m.accumulate(steps: 4)
}
";

#[test]
fn a_right_schedule_is_passed_over_in_one_line() {
    let run = run(&["check", "examples/gpt2/plain.slapo"]).expect(0);
    assert_snapshot!(run.shown());
}

#[test]
fn every_example_is_right() {
    for name in ["plain", "recompute"] {
        run(&["check", "-q", &format!("examples/gpt2/{name}.slapo")]).expect(0);
    }
}

#[test]
fn mistakes_are_shown_in_four_formats() {
    for format in FORMATS {
        let run = run_on(BROKEN, &["check", "main.slapo", "--message-format", format]).expect(1);
        assert_snapshot!(format!("mistakes-{format}"), run.shown());
    }
}

#[test]
fn json_is_one_object_a_line_with_offsets_of_the_text() {
    let run = run_on(BROKEN, &["check", "main.slapo", "--message-format", "json"]).expect(1);
    assert!(run.stderr.is_empty(), "{}", run.stderr);
    let mut seen = 0;
    for line in run.stdout.lines() {
        let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(record["type"], "diagnostic");
        for label in record["labels"].as_array().expect("labels") {
            let offset = |name: &str| label[name].as_u64().expect("an offset") as usize;
            let lines: Vec<&str> = BROKEN[..offset("start")].split('\n').collect();
            assert_eq!(label["line"], lines.len());
            assert_eq!(label["column"], lines[lines.len() - 1].chars().count() + 1);
            assert!(offset("end") <= BROKEN.len());
            seen += 1;
        }
    }
    assert!(seen >= 4, "{}", run.stdout);
}

#[test]
fn colours_are_asked_for() {
    let plain = run_on(BROKEN, &["check", "main.slapo"]).expect(1);
    assert!(!plain.stderr.contains('\x1b'));
    let colored = run_on(BROKEN, &["check", "main.slapo", "--color", "always"]).expect(1);
    assert!(colored.stderr.contains("\x1b[31m"), "{}", colored.stderr);
}

#[test]
fn a_schedule_without_a_model_is_checked_for_names_and_types() {
    let run = run_on("schedule main(m: Module) { m.any.checkpoint() }\n", &["check", "main.slapo"]).expect(0);
    assert_snapshot!(run.shown());
}

#[test]
fn the_command_line_decides_model_and_sizes() {
    let text = "schedule main(m: Module) {}\n";
    let run_with = |args: &[&str]| run_on(text, &[&["check", "main.slapo", "--model", "model.pt2"], args].concat());
    let fits = run_with(&["--batch", "3", "--seq", "5"]).expect(0);
    assert!(fits.stderr.contains("batch 3, seq 5"), "{}", fits.stderr);
    let long = run_with(&["--batch", "3", "--seq", "129"]);
    assert!(matches!(long.code, Some(1 | 2)) && long.stderr.contains("128"), "{}", long.shown());
}

#[test]
fn a_model_alone_is_the_empty_schedule() {
    let run = run(&["check", "examples/gpt2/gpt2-tiny.pt2"]).expect(0);
    assert_snapshot!(run.shown());
}

#[test]
fn a_mistake_in_text_with_odd_characters_is_shown_at_its_place() {
    let text = "schedule main(m: Module) {\n    # naïve \u{1f980}\t\u{2028}\n    m.é\u{1b}[31m.nothing().x\r\n}\n";
    let run = run_on(text, &["check", "main.slapo"]).expect(1);
    assert!(!run.stderr.contains('\u{1b}'), "{:?}", run.stderr);
    let short = run_on(text, &["check", "main.slapo", "--message-format", "short"]).expect(1);
    assert!(short.stderr.starts_with("main.slapo:3:"), "{}", short.stderr);
}

#[test]
fn random_bytes_are_an_error_and_no_crash() {
    // Any fixed sequence will do: a linear congruential generator, constants of Numerical Recipes.
    let mut state = 7u32;
    let mut noise = |length: usize| -> Vec<u8> {
        let byte = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length).map(byte).collect()
    };
    for length in [1, 40, 4000] {
        let bytes = noise(length);
        let ascii: Vec<u8> = bytes.iter().map(|b| b % 95 + 32).collect();
        let run = run_on(&ascii, &["check", "main.slapo"]);
        assert_eq!(run.code, Some(1), "{}", run.stderr);
        let raw = run_on(&bytes, &["check", "main.slapo"]);
        assert!(matches!(raw.code, Some(1 | 2)), "{}", raw.stderr);
    }
}

#[test]
fn deep_nesting_is_an_error_and_no_crash() {
    for (open, close) in [("(", ")"), ("[", "]"), ("-", ""), ("if true {", "}"), ("not ", "")] {
        let text = format!("schedule main(m: Module) {{ let x = {}1{} }}\n", open.repeat(10_000), close.repeat(10_000));
        for format in ["human", "json"] {
            let run = run_on(&text, &["check", "main.slapo", "--message-format", format]);
            assert_eq!(run.code, Some(1), "{open}: {}", &run.stderr[..run.stderr.len().min(2000)]);
        }
    }
}
