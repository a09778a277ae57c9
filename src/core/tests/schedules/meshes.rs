//! No false refusals: a right schedule checks on every mesh, or the sizes that do not divide are named.

use crate::support::{root, run, schedules};
use std::collections::BTreeSet;

/// A dimension that does not divide into the parts; a batch that does not.
const INDIVISIBLE: [&str; 2] = ["S0601", "S0402"];

/// Checks and compiles; `true` where it is accepted. A refusal may only be of sizes.
fn accepted(name: &str, text: &str) -> bool {
    let run = run(name, text).compiled();
    let codes = run.codes();
    assert!(codes.iter().all(|code| INDIVISIBLE.contains(code)), "{text}\n{}", run.rendered());
    codes.is_empty()
}

/// `text` with the axis of that name given another size; unchanged where it has no such axis.
fn with_axis(text: &str, axis: &str, size: i64) -> String {
    text.replace(&format!("{axis} = 2"), &format!("{axis} = {size}"))
}

#[test]
fn every_example_on_every_mesh() {
    let folders = std::fs::read_dir(root().join("examples")).expect("the examples");
    let folders: BTreeSet<String> =
        folders.map(|folder| format!("examples/{}", folder.unwrap().file_name().to_string_lossy())).collect();
    let holds_schedules = |folder: &String| {
        let mut entries = std::fs::read_dir(root().join(folder)).expect("a folder");
        entries.any(|entry| entry.unwrap().path().extension().is_some_and(|ending| ending == "slapo"))
    };
    let all = folders.iter().filter(|folder| holds_schedules(folder)).flat_map(|folder| schedules(folder));
    let mut meshes = 0;
    for (stem, text) in all.filter(|(_, text)| text.contains("mesh {")) {
        let mut known = BTreeSet::new();
        for (dp, tp) in (1..=8).flat_map(|dp| (1..=8).map(move |tp| (dp, tp))) {
            let sized = with_axis(&with_axis(&text, "dp", dp), "tp", tp);
            if known.insert(sized.clone()) {
                let right = accepted(&stem, &sized);
                assert!(right || dp > 2 || tp > 2, "{stem} on dp {dp}, tp {tp}");
                meshes += 1;
            }
        }
    }
    assert!(meshes >= 80, "{meshes} meshes");
}

/// Of the tiny models, all of which have four heads.
const SCHEDULES: [(&str, &str); 9] = [
    (
        "gpt2-odd",
        "for b in m.transformer.h { column(b.attn.c_attn, over: tp, groups: 3); row(b.attn.c_proj, over: tp) }",
    ),
    ("gpt2-odd", "for b in m.transformer.h { column(b.mlp.c_fc, over: tp); row(b.mlp.c_proj, over: tp) }"),
    ("gpt2-odd", "column_gathered(m.transformer.h[0].mlp.c_fc, over: tp)"),
    ("gpt2-odd", "vocab(m.transformer.wte, over: tp); m.lm_head.input().grad().sync(all_reduce, over: tp)"),
    ("gpt2-odd", "checkpoint_ratio(m.transformer.h, ratio: 0.5)"),
    ("gpt2-odd", "checkpoint_every(m.transformer.h, n: 2)"),
    (
        "bert-tiny",
        "for l in m.bert.encoder.layer { column(l.attention.self.{query, key, value}, over: tp); row(l.attention.output.dense, over: tp) }",
    ),
    (
        "opt-tiny",
        "for l in m.model.decoder.layers { column(l.self_attn.{q_proj, k_proj, v_proj}, over: tp); row(l.self_attn.out_proj, over: tp) }",
    ),
    ("opt-tiny", "for l in m.model.decoder.layers { column(l.fc1, over: tp); row(l.fc2, over: tp) }"),
];

#[test]
fn std_schedules_on_every_mesh() {
    for (i, (model, body)) in SCHEDULES.into_iter().enumerate() {
        // What `tp` must divide: heads, inner features (80 of GPT-2, 96 of OPT), nothing: a vocabulary
        // need not be even.
        let divided = [4, 80, 80, 840, 840, 840, 4, 4, 96][i];
        for (dp, tp) in (1..=8).map(|tp| (1, tp)).chain((2..=8).map(|dp| (dp, 1))).chain([(3, 2), (5, 4), (7, 2)]) {
            // A batch that every number of ranks divides.
            let head = "use std.parallel.{column, row, column_gathered, vocab}\nuse std.memory.{checkpoint_ratio, checkpoint_every}\n";
            let sizes =
                format!("model \"{model}.pt2\"\ninput {{ batch = 840, seq = 7 }}\nmesh {{ dp = {dp}, tp = {tp} }}\n");
            let body = body.replace("; ", "\n");
            let text = format!("{head}{sizes}schedule main(m: Module) {{\n{body}\nm.data_parallel(over: dp)\n}}\n");
            assert_eq!(accepted(model, &text), divided % tp == 0, "{text}");
        }
    }
}

/// A batch that does not divide is said to be that, whatever else the schedule asks.
#[test]
fn batches_on_every_mesh() {
    for batch in 1..=9 {
        for dp in 1..=8 {
            let text = format!(
                "model \"gpt2-odd.pt2\"\ninput {{ batch = {batch}, seq = 5 }}\nmesh {{ dp = {dp} }}\nschedule main(m: Module) {{\nm.data_parallel(over: dp)\n}}\n"
            );
            assert_eq!(accepted("batch", &text), batch % dp == 0, "{text}");
        }
    }
}
