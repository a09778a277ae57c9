//! How ranks hold the parameters, inputs and outputs of the modules that the schedule puts on the mesh.

use super::patterns::{patterns, shape};
use serde::Serialize;
use slapo_core::compile::{Compiled, Effects, SyncPoint};
use slapo_core::layout::{Held, Holdings, forward};
use slapo_model::{Model, ModuleId};
use std::collections::BTreeSet;

/// Modules that are held alike.
#[derive(Debug, Serialize)]
pub struct ModuleLayouts {
    /// Such as `transformer.h[0..6].mlp.c_fc`; empty for the model itself.
    pub pattern: String,
    pub class: String,
    pub count: usize,
    pub values: Vec<Held>,
}

/// In the order of the model's tree; nothing where the schedule asks nothing of the mesh.
pub fn layouts(model: &Model, compiled: &Compiled, effects: &Effects) -> Vec<ModuleLayouts> {
    if compiled.layouts.is_empty() {
        return Vec::new();
    }
    let forward = forward(compiled);
    let holdings = Holdings::new(model, compiled, &forward);
    let mut found: Vec<(Vec<String>, ModuleLayouts)> = Vec::new();
    for module in touched(model, effects) {
        let (path, values) = (&model.module(module).path, holdings.module(module));
        let alike = |(paths, known): &&mut (Vec<String>, ModuleLayouts)| {
            shape(&paths[0]) == shape(path) && known.values == values
        };
        match found.iter_mut().find(alike) {
            Some((paths, known)) => {
                paths.push(path.clone());
                known.count += 1;
            }
            None => {
                let class = model.module(module).short_class().to_owned();
                let layouts = ModuleLayouts { pattern: String::new(), class, count: 1, values };
                found.push((vec![path.clone()], layouts));
            }
        }
    }
    found
        .into_iter()
        .map(|(paths, layouts)| ModuleLayouts { pattern: patterns(&paths).join(", "), ..layouts })
        .collect()
}

/// Modules of which a step shards a parameter or syncs a point, and the model where its inputs are split.
fn touched(model: &Model, effects: &Effects) -> BTreeSet<ModuleId> {
    let shards = effects.shards.iter().map(|shard| model.parameter(shard.parameter).module);
    let syncs = effects.syncs.iter().map(|sync| match sync.at {
        SyncPoint::Input { module, .. }
        | SyncPoint::Output { module, .. }
        | SyncPoint::InputGradient { module, .. }
        | SyncPoint::OutputGradient { module, .. } => module,
        SyncPoint::ParameterGradient(parameter) => model.parameter(parameter).module,
    });
    let whole = effects.data_parallel.first().map(|_| ModuleId(0));
    shards.chain(syncs).chain(whole).collect()
}
