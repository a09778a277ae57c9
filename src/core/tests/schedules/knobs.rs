//! Knobs of the modules that a schedule uses: chosen on the command line by their full names.

use crate::support::{Run, imported};
use slapo_core::schedule::{Found, Modules, Overrides, check};
use slapo_syntax::{SourceMap, parse};
use std::sync::Arc;

const BLOCKS: &str = "knob ratio = 0.5 in 0.0..=1.0\nknob depth = 1 in [1, 2]\n\n\
schedule some(blocks: [Module]) {\n    for b in blocks[.. floor(len(blocks) * ratio)] {\n        b.annotate(\"depth\", depth)\n    }\n}\n";

const MAIN: &str = "use blocks.tp.{some}\nmodel \"gpt2-tiny.pt2\"\ninput { batch = 8, seq = 64 }\nknob keep = 1\n\
schedule main(m: GPT2LMHeadModel) {\n    some(m.transformer.h)\n    m.annotate(\"keep\", keep)\n}\n";

fn with(main: &str, set: &[(&str, &str)]) -> Run {
    let mut files = SourceMap::new();
    let file = files.add("main.slapo", main);
    let parsed = parse(file, main);
    let modules = Modules::gather(Some("main"), &parsed, |path| match path {
        "blocks/tp" => Found::Text { name: "blocks/tp.slapo".into(), text: Arc::from(BLOCKS) },
        _ => Found::Nothing { reason: None, beside: Vec::new() },
    });
    let knobs = set.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let model = imported("gpt2-tiny.pt2").unwrap();
    let overrides = Overrides { knobs, ..Overrides::default() };
    let checked = check(&mut files, file, &parsed, &modules, Some(&model), &overrides);
    let diagnostics = checked.diagnostics.clone();
    Run { files, file, parsed, model: Some(model), checked, diagnostics }
}

fn targets(run: &Run) -> Vec<&str> {
    run.checked.steps.iter().map(|step| step.target.path.as_str()).collect()
}

#[test]
fn a_knob_of_a_module_is_set_by_its_full_name() {
    assert_eq!(targets(&with(MAIN, &[])), ["transformer.h.0", ""]);
    let set = with(MAIN, &[("blocks.tp.ratio", "1.0"), ("blocks.tp.depth", "2"), ("keep", "3")]);
    assert_eq!(set.rendered(), "");
    assert_eq!(targets(&set), ["transformer.h.0", "transformer.h.1", "transformer.h.2", ""]);
    let knobs: Vec<String> =
        set.checked.knobs.iter().map(|knob| format!("{} = {} {}", knob.name, knob.value, knob.is_set)).collect();
    assert_eq!(knobs, ["blocks.tp.ratio = 1 true", "blocks.tp.depth = 2 true", "keep = 3 true"]);
}

/// What is imported has its bare name too.
#[test]
fn an_imported_knob_is_set_by_its_name() {
    let main = MAIN.replace("{some}", "{some, ratio}").replace("\"keep\", keep", "\"keep\", keep * ratio");
    assert_eq!(targets(&with(&main, &[("ratio", "1.0")])).len(), 4);
}

#[test]
fn values_that_a_module_does_not_allow_name_those_it_does() {
    let beyond = with(MAIN, &[("blocks.tp.ratio", "1.5")]);
    let shown = beyond.rendered();
    assert_eq!(beyond.codes(), ["S0307"], "{shown}");
    for said in ["blocks/tp.slapo:1:", "knob `blocks.tp.ratio` may not be 1.5", "0..=1", "`--set blocks.tp.ratio=1.5`"]
    {
        assert!(shown.contains(said), "nothing of `{said}` in {shown}");
    }
    let shown = with(MAIN, &[("blocks.tp.depth", "3")]).rendered();
    assert!(shown.contains("legal here: 1, 2"), "{shown}");
    let shown = with(MAIN, &[("blocks.tp.depth", "true")]).rendered();
    assert!(shown.contains("knob `blocks.tp.depth` is a number, not a truth value"), "{shown}");
}

#[test]
fn a_knob_that_is_not_there_names_those_that_are() {
    for (name, said) in [
        ("blocks.tp.parallelism", "its knobs are `blocks.tp.depth`, `blocks.tp.ratio`, `keep`"),
        ("blocks.tp.ration", "did you mean `blocks.tp.ratio`?"),
        ("ratio", "its knobs are"),
        ("blocks.dp.ratio", "did you mean `blocks.tp.ratio`?"),
        ("some", "its knobs are"),
    ] {
        let run = with(MAIN, &[(name, "1")]);
        let shown = run.rendered();
        assert_eq!(run.codes().len(), 1, "{shown}");
        assert!(shown.contains(&format!("the schedule has no knob `{name}`")) && shown.contains(said), "{shown}");
    }
}
