//! What the tests of the Slapo library ask of paths and notes; `docs/from-slapo.md` has the whole list.

use crate::support::{imported, run_on};
use slapo_model::Model;
use std::collections::BTreeSet;

const ARCHIVES: [&str; 10] = [
    "gpt2-tiny.pt2",
    "llama-bytes.pt2",
    "gpt2-odd.pt2",
    "bert-tiny.pt2",
    "opt-tiny.pt2",
    "llama-tiny.pt2",
    "misc.pt2",
    "counters.pt2",
    "grouped.pt2",
    "shared.pt2",
];

/// Every module, parameter and buffer, by each of its names; the root is none.
fn paths(model: &Model) -> BTreeSet<String> {
    let below = |module: &slapo_model::Module, name: &str| match module.path.as_str() {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    let of_modules = model.modules.iter().filter(|module| !module.path.is_empty()).map(|module| module.path.clone());
    let of_tensors = model.modules.iter().flat_map(|module| {
        let parameters = module.parameters.iter().map(|(name, _)| name);
        parameters.chain(module.buffers.iter().map(|(name, _)| name)).map(move |name| below(module, name))
    });
    of_modules.chain(of_tensors).collect()
}

/// A path as `inspect` lists it is a path in a schedule, whatever depth of lists and modules lies above.
#[test]
fn every_path_of_every_model_can_be_scheduled() {
    for archive in ARCHIVES {
        let model = imported(archive).expect("a right archive");
        let paths = paths(&model);
        let lines = paths.iter().map(|path| format!("    m.{path}.annotate(\"{path}\", 1)\n"));
        let text =
            format!("input {{ batch = 4, seq = 8 }}\nschedule main(m: Module) {{\n{}}}\n", lines.collect::<String>());
        let run = run_on(&model, &text);
        assert_eq!(run.rendered(), "", "{archive}");
        assert_eq!(run.checked.steps.len(), paths.len(), "{archive}");
        for (step, path) in run.checked.steps.iter().zip(&paths) {
            assert_eq!(step.target.path, *path, "{archive}");
        }
        let misnamed = run_on(&model, &text.replacen("    m.", "    m.no.", 1));
        assert_eq!(misnamed.codes(), ["S0201"], "{archive}");
    }
}

/// A note and a split of one parameter keep out of each other's way; nothing else has the note, and the shape is the whole one.
#[test]
fn a_note_is_where_it_was_put_and_nowhere_else() {
    let split = "m.transformer.h[0].mlp.c_fc.{weight, bias}.shard(out, over: tp)";
    let note = "m.transformer.h[0].mlp.c_fc.weight.annotate(\"decay\", 0.5)";
    let model = imported("gpt2-tiny.pt2").expect("a right archive");
    for body in [format!("{split}\n{note}"), format!("{note}\n{split}")] {
        let text =
            format!("input {{ batch = 8, seq = 64 }}\nmesh {{ tp = 2 }}\nschedule main(m: Module) {{\n{body}\n}}\n");
        let run = run_on(&model, &text);
        assert_eq!(run.rendered(), "");
        let noted = run.checked.steps.iter().filter(|step| step.primitive.name == "annotate");
        let noted: Vec<(&str, String)> =
            noted.map(|step| (step.target.path.as_str(), step.arg("value").expect("a value").to_string())).collect();
        assert_eq!(noted, [("transformer.h.0.mlp.c_fc.weight", "0.5".to_owned())]);
        let split: Vec<&[i64]> =
            run.checked.effects.shards.iter().map(|shard| &model.parameter(shard.parameter).shape[..]).collect();
        assert_eq!(split, [&[64, 256][..], &[256]]);
    }
}
