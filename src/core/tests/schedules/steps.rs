//! Steps: their text, their JSON, and replaying them.

use crate::support::{gpt2, run, run_on, run_with};
use slapo_core::schedule::{FrameKind, Overrides, ReplayError, replay, to_json};

const SCHEDULE: &str = r#"
use std.memory.checkpoint_ratio
model "gpt2-tiny.pt2"
input { batch = 8, seq = 64 }
mesh { dp = 2 }

schedule note(m: Module, value: float) {
    m.annotate("value", value)
}

schedule main(m: GPT2LMHeadModel) {
    checkpoint_ratio(m.transformer.h, ratio: 0.7)
    for b in m.transformer.h {
        for i in 0..2 {
            if i == 1 { b.ln_1.weight.freeze() }
        }
    }
    note(m.transformer.h.*.mlp, value: 1 / 3)
    m.lm_head.annotate("text", "a \"quoted\" one")
    m.lm_head.annotate("flag", true)
    m.lm_head.annotate("axis", dp)
    m.transformer.wpe.freeze()
    try m.lm_head.bias?.freeze()
    try m.transformer.wpe.freeze()
    m.accumulate(steps: 4)
}
"#;

#[test]
fn listing() {
    let run = run("list", SCHEDULE);
    assert_eq!(run.rendered(), "");
    let skipped = run
        .checked
        .skipped
        .iter()
        .map(|skipped| format!("not applied: {} ({}), {}", skipped.what, skipped.reason, skipped.site));
    let text: Vec<String> = run.steps().into_iter().chain(skipped).collect();
    insta::assert_snapshot!("listing", text.join("\n"));
    insta::assert_snapshot!("json", to_json(&run.checked.steps).unwrap());
}

#[test]
fn replay_gives_equal_effects() {
    let run = run("list", SCHEDULE);
    let model = run.model.as_deref().unwrap();
    let json = to_json(&run.checked.steps).unwrap();
    assert_eq!(replay(&json, model, run.checked.sizes, &run.checked.effects.axes), Ok(run.checked.effects.clone()));
    assert_eq!(run.checked.effects.frozen.len(), 4);
    assert_eq!(run.checked.effects.checkpoints.len(), 2);
    assert_eq!(run.checked.effects.micro_batches, 4);
}

/// Recorded steps that do not fit are refused with the step's number, never applied in part.
#[test]
fn replay_refuses_what_does_not_fit() {
    let model = gpt2();
    let step = |primitive: &str, target: &str, args: &str| {
        format!(r#"[{{"id": 7, "primitive": "{primitive}", "target": "{target}", "args": [{args}]}}]"#)
    };
    let sizes = slapo_model::InputSizes { batch: 8, seq: Some(64) };
    let refused = |json: String| replay(&json, &model, Some(sizes), &[]).unwrap_err();
    let name = || "steps".to_string();
    assert!(matches!(refused("[{]".into()), ReplayError::Json(_)));
    assert_eq!(refused(step("thaw", "", "")), ReplayError::Primitive { step: 7, name: "thaw".into() });
    assert_eq!(
        refused(step("freeze", "transformer.x", "")),
        ReplayError::Target { step: 7, path: "transformer.x".into() }
    );
    assert_eq!(
        refused(step("checkpoint", "lm_head.weight", "")),
        ReplayError::Target { step: 7, path: "lm_head.weight".into() }
    );
    assert_eq!(refused(step("accumulate", "", "")), ReplayError::Argument { step: 7, name: name() });
    assert_eq!(
        refused(step("accumulate", "", r#"["steps", {"text": "2"}]"#)),
        ReplayError::Argument { step: 7, name: name() }
    );
    assert_eq!(
        refused(step("freeze", "lm_head", r#"["steps", {"int": 2}]"#)),
        ReplayError::Argument { step: 7, name: name() }
    );
    let message = "a batch of 8 does not divide into 3 micro-batches".to_string();
    assert_eq!(refused(step("accumulate", "", r#"["steps", {"int": 3}]"#)), ReplayError::Refused { step: 7, message });
}

#[test]
fn every_step_knows_the_way_that_led_to_it() {
    let run = run("list", SCHEDULE);
    let way = |id: u32| -> Vec<String> {
        let step = run.checked.step(id).unwrap();
        let frames = step.chain.frames();
        let frames = frames.map(|frame| match &frame.kind {
            FrameKind::Call { schedule } => format!("{schedule} at {}", frame.site),
            FrameKind::Iteration { variable, value } => format!("{variable} = {value} at {}", frame.site),
        });
        frames.collect()
    };
    assert_eq!(way(1), ["checkpoint_ratio at list.slapo:12"]);
    assert_eq!(way(3), ["i = 1 at list.slapo:14", "b = transformer.h.0 at list.slapo:13"]);
    assert_eq!(way(6), ["note at list.slapo:18", "m = transformer.h.0.mlp at list.slapo:18"]);
}

#[test]
fn until_leaves_out_what_stands_behind_a_line() {
    let steps = |until: u32| {
        let overrides = Overrides { until: Some(until), ..Overrides::default() };
        let run = run_with("list", SCHEDULE, &overrides);
        assert_eq!(run.rendered(), "");
        run.checked.steps.len()
    };
    assert_eq!([11, 12, 13, 15, 18, 19, 999].map(steps), [0, 2, 2, 5, 8, 9, 13]);
}

#[test]
fn what_is_left_untouched() {
    let model = gpt2();
    let run = run_on(
        &model,
        "input { batch = 8, seq = 64 }\nschedule main(m: Module) {\n    m.transformer.h.*.freeze()\n    m.transformer.wpe.weight.annotate(\"seen\", true)\n}",
    );
    let names: Vec<&str> = run.checked.untouched.iter().map(|id| model.parameter(*id).names[0].as_str()).collect();
    assert_eq!(names, ["transformer.wte.weight", "transformer.ln_f.weight", "transformer.ln_f.bias"]);
}

/// The examples' schedules are right, and compile.
#[test]
fn examples() {
    for (stem, text) in ["examples/gpt2", "examples/llama"].into_iter().flat_map(crate::support::schedules) {
        let run = run(&stem, &text).compiled();
        assert_eq!(run.rendered(), "", "{stem}");
    }
}
