//! What each archive is read as.

use crate::support::{MODELS, model};
use slapo_model::inspect::{inspect, render, render_ports};
use slapo_model::{InputSizes, Listing, bind};

#[test]
fn inspect_shows_every_model() {
    for name in MODELS {
        insta::assert_snapshot!(format!("inspect-{name}"), render(&inspect(&model(name))));
    }
}

#[test]
fn graphs_list_as_imported() {
    for name in ["bert-tiny", "misc", "counters"] {
        let model = model(name);
        insta::assert_snapshot!(format!("graph-{name}"), Listing::of(&model).to_string());
    }
}

#[test]
fn graphs_list_with_sizes_bound() {
    for name in ["gpt2-odd", "opt-tiny"] {
        let model = model(name);
        let sizes = InputSizes { batch: 4, seq: Some(7) };
        let graph = bind(&model, &sizes).unwrap();
        let listing = Listing::new(&model, &graph).to_string();
        insta::assert_snapshot!(format!("bound-{name}"), listing);
    }
}

#[test]
fn source_lines_are_the_models_own() {
    let lines: Vec<String> = model("gpt2-odd")
        .sources
        .iter()
        .map(|source| format!("{}:{} {}\n", source.file, source.line, source.text))
        .collect();
    insta::assert_snapshot!("sources-gpt2-odd", lines.concat());
}

#[test]
fn ports_are_listed_per_call() {
    let gpt2 = inspect(&model("gpt2-tiny"));
    let misc = inspect(&model("misc"));
    let shown = [
        render_ports(&gpt2, "transformer.h.0.attn").unwrap(),
        render_ports(&gpt2, "transformer.h.0.attn.attn_dropout").unwrap(),
        render_ports(&gpt2, "").unwrap(),
        render_ports(&misc, "mix").unwrap(),
    ];
    insta::assert_snapshot!("ports", shown.join("\n"));
    assert_eq!(render_ports(&gpt2, "transformer.g"), None);
    assert_eq!(render_ports(&gpt2, "trans"), None);
}

#[test]
fn inspect_serialises() {
    let json = serde_json::to_string_pretty(&inspect(&model("counters"))).unwrap();
    insta::assert_snapshot!("json-counters", json);
}
