//! What statements and expressions do: one line of source, one expected value.

use crate::support::{gpt2, run_on};

/// The value of an expression, as `annotate` records it; or the codes of what is wrong.
fn value(expression: &str) -> String {
    let text = format!(
        "input {{ batch = 8, seq = 64 }}\nmesh {{ dp = 2, tp = 4 }}\nlet third = 1 / 3\n\
         schedule main(m: GPT2LMHeadModel) {{\n    let h = m.transformer.h\n    m.annotate(\"v\", {expression})\n}}\n"
    );
    let run = run_on(&gpt2(), &text);
    match run.checked.steps.first() {
        Some(step) => step.arg("value").unwrap().to_string(),
        None => run.codes().join(" "),
    }
}

#[test]
fn expressions() {
    let cases: &[(&str, &str)] = &[
        ("13 / 2", "6.5"),
        ("1 / 3 + third", "2/3"),
        ("0.1 + 0.2", "0.3"),
        ("-2 ^ 2", "-4"),
        ("2 ^ 3 ^ 2", "512"),
        ("2 ^ -2", "0.25"),
        ("7 % 4", "3"),
        ("-7 % 4", "1"),
        ("7.5 % 2", "1.5"),
        ("1e3 + 1_000", "2000"),
        ("1e-5", "0.00001"),
        ("2KiB + 1KB", "3048"),
        ("1.5MiB", "1572864"),
        ("floor(-6.5)", "-7"),
        ("ceil(6.5)", "7"),
        ("floor(len(h) / 2)", "1"),
        ("min(3, tp, 7)", "3"),
        ("max(3, tp)", "4"),
        ("abs(-2 / 3)", "2/3"),
        ("dp * tp", "8"),
        ("tp", "4"),
        ("choose(tp > 2, \"wide\", \"narrow\")", "\"wide\""),
        ("tp > 2 and not (dp == 3)", "true"),
        ("1 < 2 or 1 / 0 == 1", "true"),
        ("h[0] == h.0", "true"),
        ("h[0] == h[-3]", "true"),
        ("h[0] != h[1]", "true"),
        ("m.lm_head.weight == m.transformer.wte.weight", "true"),
        ("out == in", "false"),
        ("\"a\" == \"a\"", "true"),
        ("len(h)", "3"),
        ("len(m.**)", "47"),
        ("len(h.*.attn)", "3"),
        ("len(h[1..])", "2"),
        ("len(h[..-1])", "2"),
        ("len(h[0..0])", "0"),
        ("len([h[0], h[1], h[0]])", "2"),
        ("len([h[0..2], h[1..]])", "3"),
        ("len([1, 2, 3][1..])", "2"),
        ("len(m.lm_head.bias?)", "0"),
        ("len(h.*.{ln_1, ln_2})", "6"),
        ("len(m.**.only(LayerNorm))", "7"),
        ("len(m.**.only(Linear))", "13"),
        ("len(m.**.only(Linear).except(m.lm_head))", "12"),
        ("len(m.**.only(Linear).except(h[0].**))", "9"),
        ("len(m.**.weight)", "21"),
        ("len(m.**.c_attn)", "3"),
        ("len(m.transformer.h.**.attn)", "3"),
        ("len(h.only(GPT2Block).expect(3))", "3"),
        ("h[0].is(GPT2Block)", "true"),
        ("h[0].mlp.c_fc.is(Linear)", "true"),
        ("h[0].is(Linear)", "false"),
        ("h[0].mlp.c_fc.is(\"transformers.pytorch_utils.Conv1D\")", "true"),
        ("h[0].mlp.c_fc.weight.size(out)", "256"),
        ("h[0].mlp.c_fc.weight.size(in)", "64"),
        ("h[0].mlp.c_fc.weight.size(0)", "64"),
        ("h[0].mlp.c_fc.weight.size(-1)", "256"),
        ("m.lm_head.weight.size(out)", "256"),
        ("m.transformer.wte.weight.size(vocab)", "256"),
        ("m.transformer.wte.weight.size(hidden)", "64"),
        ("m.transformer[\"h\"][\"0\"].ln_1.bias.size(hidden)", "64"),
        ("2 ^ 126 / 2 ^ 125", "2"),
        ("1 / 3 < 0.34", "true"),
        ("-1 / 3 > -0.34", "true"),
        ("10 / 3 <= 3.3", "false"),
        ("2 ^ 120 / 7 < 2 ^ 120 / 5", "true"),
        ("(2 ^ 120 + 1) / 2 ^ 60 > 2 ^ 60", "true"),
        ("1 / 3 == 2 / 6", "true"),
        ("1 / 0", "S0308"),
        ("2 ^ 127", "S0308"),
        ("170141183460469231731687303715884105728", "S0308"),
        ("h[len(h) / 2] == h[1]", "S0306"),
        ("h[-4] == h[0]", "S0203"),
        ("h.x == h.y", "S0201"),
        ("h.is(GPT2Block)", "false"),
        ("[1, 2] == [1, 2]", "S0301"),
        ("1 == \"1\"", "S0301"),
        ("not 1", "S0301"),
        ("h[0].mlp.c_fc.weight.size(vocab)", "S0206"),
        ("m.size(0)", "S0301"),
        ("h", "S0301"),
    ];
    let found: Vec<(&str, String)> = cases.iter().map(|(source, _)| (*source, value(source))).collect();
    let wrong: Vec<String> = found
        .iter()
        .zip(cases)
        .filter(|((_, found), (_, expected))| found != expected)
        .map(|((source, found), (_, expected))| format!("{source} gives {found}, not {expected}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Steps of a body, without their ids and places.
fn steps(body: &str) -> Vec<String> {
    let text = format!(
        "input {{ batch = 8, seq = 64 }}\nschedule mark(m: Module) {{ m.annotate(\"mark\", 1) }}\n\
         schedule marks(all: [Module], from: int = 0) {{ all[from..].annotate(\"mark\", len(all)) }}\n\
         schedule tensor(p: param) {{ p.annotate(\"mark\", 2) }}\n\
         schedule main(m: GPT2LMHeadModel) {{\n    let h = m.transformer.h\n{body}\n}}\n"
    );
    let run = run_on(&gpt2(), &text);
    assert_eq!(run.rendered(), "", "{body}");
    run.checked.steps.iter().map(|step| format!("{} {}", step.primitive.name, step.target.path)).collect()
}

#[test]
fn statements() {
    let cases: &[(&str, &[&str])] = &[
        ("h[1].freeze()", &["freeze transformer.h.1"]),
        ("h.1.freeze()", &["freeze transformer.h.1"]),
        ("h[1..].freeze()", &["freeze transformer.h.1", "freeze transformer.h.2"]),
        ("h[..0].freeze()", &[]),
        ("for b in h[..2] { b.attn.freeze() }", &["freeze transformer.h.0.attn", "freeze transformer.h.1.attn"]),
        ("for b in h { if b == h[2] { b.freeze() } }", &["freeze transformer.h.2"]),
        ("for i in 1..=2 { h[i].freeze() }", &["freeze transformer.h.1", "freeze transformer.h.2"]),
        ("for i in 2..0 { h[i].freeze() }", &[]),
        ("for n in [0, 2] { h[n].freeze() }", &["freeze transformer.h.0", "freeze transformer.h.2"]),
        ("if 1 > 2 { m.freeze() } else if 2 > 1 { h[0].freeze() } else { m.freeze() }", &["freeze transformer.h.0"]),
        // The model's order, whatever the order of writing; nothing twice.
        ("m.transformer.{ln_f, wte}.freeze()", &["freeze transformer.wte", "freeze transformer.ln_f"]),
        ("[h[1], h[0], h[1]].freeze()", &["freeze transformer.h.0", "freeze transformer.h.1"]),
        // A tied parameter is one thing within a selection.
        ("[m.lm_head.weight, m.transformer.wte.weight].freeze()", &["freeze transformer.wte.weight"]),
        // Once per element; a list parameter takes the whole.
        ("mark(h[..2])", &["annotate transformer.h.0", "annotate transformer.h.1"]),
        ("marks(h, from: 2)", &["annotate transformer.h.2"]),
        ("marks(h[..2], from: 1)", &["annotate transformer.h.1"]),
        ("marks([h[0], m.lm_head])", &["annotate transformer.h.0", "annotate lm_head"]),
        (
            "tensor(m.transformer.ln_f.{weight, bias})",
            &["annotate transformer.ln_f.weight", "annotate transformer.ln_f.bias"],
        ),
        (
            "h.*.mlp.act?.annotate(\"x\", 1)",
            &[
                "annotate transformer.h.0.mlp.act",
                "annotate transformer.h.1.mlp.act",
                "annotate transformer.h.2.mlp.act",
            ],
        ),
        (
            "m.transformer.*.weight?.freeze()",
            &["freeze transformer.wte.weight", "freeze transformer.wpe.weight", "freeze transformer.ln_f.weight"],
        ),
        // What is tried and not applicable changes nothing, also in the middle of a schedule.
        ("try m.lm_head.bias?.freeze()\nh[0].freeze()", &["freeze transformer.h.0"]),
        (
            "h[1].freeze()\ntry h.*.freeze()",
            &["freeze transformer.h.1", "freeze transformer.h.0", "freeze transformer.h.2"],
        ),
        ("require len(h) == 3\nm.accumulate(steps: 8)", &["accumulate "]),
    ];
    for (body, expected) in cases {
        assert_eq!(steps(body), *expected, "{body}");
    }
}

#[test]
fn a_tried_schedule_is_undone_as_a_whole() {
    let text = "input { batch = 8, seq = 64 }\n\
        schedule both(b: Module) {\n    b.annotate(\"seen\", true)\n    b.attn.checkpoint()\n}\n\
        schedule main(m: GPT2LMHeadModel) {\n    let h = m.transformer.h\n    h[1].checkpoint()\n    try both(h.*)\n}\n";
    let run = run_on(&gpt2(), text);
    assert_eq!(run.rendered(), "");
    let steps: Vec<&str> = run.checked.steps.iter().map(|step| step.target.path.as_str()).collect();
    assert_eq!(
        steps,
        ["transformer.h.1", "transformer.h.0", "transformer.h.0.attn", "transformer.h.2", "transformer.h.2.attn"]
    );
    let ids: Vec<u32> = run.checked.steps.iter().map(|step| step.id).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
    assert_eq!(run.checked.skipped.len(), 1);
    assert_eq!(run.checked.skipped[0].what, "checkpoint transformer.h.1.attn");
}

/// Without a model names and types are checked, in every branch and in schedules that nobody calls.
#[test]
fn without_a_model_names_and_types_are_checked() {
    let text = "schedule lonely(l: Linear) {\n    if false { l.weight.freze() }\n    l.accumulate(steps: nothing)\n}\n\
        schedule main(m: Module) {\n    if false { m.accumulate(steps: \"a\") } else { m.x.y.z.freeze() }\n}\n";
    let run = crate::support::run("none", text);
    assert_eq!(run.codes(), ["S0103", "S0101", "S0301"], "{}", run.rendered());
    assert!(run.checked.steps.is_empty() && run.checked.sizes.is_none());
}
