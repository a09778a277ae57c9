//! A typed graph as text: a line a value, with how each axis of the mesh holds it.

use crate::compile::Compiled;
use crate::layout::{Layout, Typing};
use slapo_model::{Def, Model, Node, ValueId, typed};

/// The joint graph of `compiled` on axes of these names: leaves first, then what forward and backward compute, in order.
/// `forward  dp S(0)  tp P  %addmm_1: f32[512, 48]  addmm  transformer.h.0.attn.c_proj`
pub fn listing(model: &Model, compiled: &Compiled, axes: &[String]) -> String {
    let graph = &compiled.joint.graph;
    let axes: Vec<(&String, &Typing)> = axes.iter().zip(&compiled.layouts).collect();
    let shown = |typing: &Typing, v: usize| typing.values[v].to_string();
    let widths: Vec<usize> = axes
        .iter()
        .map(|(_, typing)| (0..graph.values.len()).map(|v| shown(typing, v).len()).max().unwrap_or(0))
        .collect();
    let line = |kind: &str, v: ValueId, how: &str, module: &str| {
        let columns = axes.iter().zip(&widths);
        let layouts = columns.map(|((axis, typing), w)| format!("{axis} {:<w$}  ", shown(typing, v.0 as usize)));
        let text = format!("{kind:<9}  {}{}  {how}  {module}", layouts.collect::<String>(), typed(graph.value(v)));
        format!("{}\n", text.trim_end())
    };
    let mut text = String::new();
    for (i, value) in graph.values.iter().enumerate() {
        let kind = match value.def {
            Def::Parameter(_) => "parameter",
            Def::Buffer(_) => "buffer",
            Def::Input(_) => "input",
            Def::Node(..) => continue,
        };
        text += &line(kind, ValueId(i as u32), "", "");
    }
    for (i, node) in graph.nodes.iter().enumerate() {
        let phase = if i < compiled.joint.forward { "forward" } else { "backward" };
        let module = model.scope_path(node.origin.scope);
        let how = how(compiled, &axes, i, node);
        node.outs.iter().flatten().for_each(|out| text += &line(phase, *out, &how, module));
    }
    text
}

/// The operator, with the free slices that it takes of its operands.
fn how(compiled: &Compiled, axes: &[(&String, &Typing)], i: usize, node: &Node) -> String {
    let mut how = match &node.op {
        slapo_model::Op::Sync { sync } => match compiled.syncs.get(*sync as usize) {
            Some((_, kind)) => kind.to_string(),
            None => node.name().to_owned(),
        },
        _ => node.name().to_owned(),
    };
    for (axis, typing) in axes {
        let own = typing.slices.range((i, ValueId(0))..=(i, ValueId(u32::MAX)));
        for ((_, v), layout) in own.filter(|(_, layout)| **layout != Layout::Replicated) {
            how += &format!(", reads %{} as {layout} of {axis}", compiled.joint.graph.value(*v).name);
        }
    }
    how
}
