//! What the compiler chose where the schedule left it a choice: collectives behind layouts, and reductions that became one.

use super::patterns::patterns;
use crate::units::bytes;
use serde::Serialize;
use slapo_core::compile::{Compiled, Effects};
use slapo_core::layout::Sync;
use slapo_model::{Model, ModuleId};
use std::collections::BTreeMap;

/// Reductions of gradients that are added up, at modules that are alike.
#[derive(Debug, Serialize)]
pub struct Merged {
    /// `all_reduce` or `reduce_scatter`.
    pub kind: &'static str,
    /// How many became one, at each.
    pub reductions: usize,
    pub axis: String,
    /// The modules that hold all the points.
    pub pattern: String,
    pub count: usize,
}

/// By step of a `layout`: what it came to, each way once.
pub fn layouts(effects: &Effects, compiled: &Compiled) -> BTreeMap<u32, Vec<String>> {
    let mut by_step: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for choice in &compiled.choices {
        let point = &effects.syncs[choice.asked];
        let what = match choice.collective {
            None => "already so".to_owned(),
            Some(collective) => {
                let moved = compiled.conversions.iter().find(|conversion| conversion.asked == Some(choice.asked));
                match moved.map_or(0, |conversion| conversion.bytes) {
                    0 => format!("by {collective}"),
                    count => format!("by {collective}, {}", bytes(count as u64)),
                }
            }
        };
        let ways = by_step.entry(point.step).or_default();
        if !ways.contains(&what) {
            ways.push(what);
        }
    }
    by_step
}

pub fn merged(model: &Model, effects: &Effects, compiled: &Compiled) -> Vec<Merged> {
    let mut groups: BTreeMap<(usize, usize, &'static str), Vec<String>> = BTreeMap::new();
    for merged in &compiled.merged {
        let is_scattered = matches!(compiled.syncs[merged.syncs[0] as usize].1, Sync::ReduceScatter { .. });
        let kind = if is_scattered { "reduce_scatter" } else { "all_reduce" };
        let asked = merged.syncs.iter().filter_map(|sync| compiled.asked[*sync as usize]);
        let modules = asked.map(|asked| effects.syncs[asked].at.module(model));
        let place = modules.reduce(|a, b| common(model, a, b)).map_or("", |id| model.module(id).path.as_str());
        groups.entry((merged.axis, merged.syncs.len(), kind)).or_default().push(place.to_owned());
    }
    let all = groups.into_iter();
    all.map(|((axis, reductions, kind), paths)| Merged {
        kind,
        reductions,
        axis: effects.axes[axis].name.clone(),
        count: paths.len(),
        pattern: patterns(&paths).join(", "),
    })
    .collect()
}

/// The innermost module around both.
fn common(model: &Model, a: ModuleId, b: ModuleId) -> ModuleId {
    let around = |module: ModuleId| std::iter::successors(Some(module), |id| model.module(*id).parent);
    around(a).find(|id| around(b).any(|other| other == *id)).unwrap_or_default()
}
