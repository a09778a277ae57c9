//! What a refused node works on, in words of the model: where its operands come from, and which heads it would cut.

use crate::compile::{Heads, LayoutFault, LayoutProblem, Place};
use crate::layout::{self, Layout, Split};
use crate::passes::autodiff::Joint;
use slapo_model::{Def, Graph, Model, Node, Op, ValueId};

/// Operands by argument name, with what they are: `` `other` (from `model.layers.0.mlp.up_proj`) ``.
pub fn operands(model: &Model, joint: &Joint, node: &Node, operands: Vec<(String, Layout)>) -> Vec<(String, Layout)> {
    let described = operands.into_iter().map(|(name, layout)| {
        let source = node.tensor(&name).and_then(|v| source(model, joint, node, v));
        let source = source.map_or(String::new(), |source| format!(" ({source})"));
        (format!("`{name}`{source}"), layout)
    });
    described.collect()
}

/// The parameter, buffer or input that `v` is, or the module outside of the node's own that it comes from.
fn source(model: &Model, joint: &Joint, node: &Node, mut v: ValueId) -> Option<String> {
    let graph = &joint.graph;
    let is_computed = |v: &ValueId| matches!(graph.value(*v).def, Def::Node(..));
    loop {
        let id = match graph.value(v).def {
            Def::Parameter(p) => return Some(format!("`{}`", model.parameter(p).names[0])),
            Def::Buffer(b) => return Some(format!("`{}`", model.buffers[b.0 as usize].name)),
            Def::Input(i) => return Some(format!("`{}`", model.inputs[i as usize].name)),
            Def::Node(id, _) => id,
        };
        let maker = graph.node(id);
        let is_identity = matches!(maker.op, Op::Border { .. } | Op::Sync { .. });
        if maker.origin.scope != node.origin.scope && !is_identity {
            let path = model.scope_path(maker.origin.scope);
            let direction = if id.0 as usize >= joint.forward { "the backward of " } else { "" };
            return (!path.is_empty()).then(|| format!("from {direction}`{path}`"));
        }
        v = maker.reads().find(is_computed).or_else(|| maker.reads().next())?;
    }
}

/// The problem of a view that leaves no whole pieces, or of one of an attention's operands that is split inside its heads;
/// `legal` as the rule gave it.
pub fn cut(graph: &Graph, node: &Node, at: &Place, found: Layout, legal: &[i64]) -> Option<LayoutProblem> {
    let Split { dim, groups } = found else { return None };
    let from = &graph.ty(node.tensor("self")?).shape;
    let all = attending(graph, node);
    let (whole, size) = match (node.name(), &from[..]) {
        ("reshape", _) if !legal.is_empty() => {
            let to = &graph.ty((*node.outs.first()?)?).shape;
            (from[dim] / groups, to[layout::cut(from, to, dim, groups)?])
        }
        ("slice.Tensor", &[_, heads, _, width]) if dim == 3 && all? % heads == 0 => (heads * width, heads),
        _ => return None,
    };
    let heads = all.and_then(|all| match () {
        () if size == all => Some(Heads::All),
        () if size <= 0 || all % size != 0 => None,
        () if whole == all => Some(Heads::Repeated),
        () => Some(Heads::KeyValue),
    });
    Some(LayoutProblem::Cut { at: at.clone(), whole, size, heads })
}

/// An axis that cuts the heads of a module's queries, keys and values is one mistake: the fault that leaves fewest sizes. So is
/// a gradient that fits neither operand of a product in backward.
pub fn once_per_module(faults: Vec<LayoutFault>) -> Vec<LayoutFault> {
    let module = |fault: &LayoutFault| match &fault.problem {
        LayoutProblem::Cut { at, .. } => Some((at.module.clone(), None)),
        LayoutProblem::Operator { at, .. } if at.is_backward => Some((at.module.clone(), at.source)),
        _ => None,
    };
    let mut kept: Vec<LayoutFault> = Vec::new();
    for fault in faults {
        let known = kept.iter_mut().find(|known| module(known).is_some() && module(known) == module(&fault));
        match known {
            Some(known) if fault.legal.len() < known.legal.len() => *known = fault,
            Some(_) => {}
            None => kept.push(fault),
        }
    }
    kept
}

/// The number of heads of the attention in the node's module: the second dimension of queries, or of attention weights.
fn attending(graph: &Graph, node: &Node) -> Option<i64> {
    graph.nodes.iter().filter(|other| other.origin.scope == node.origin.scope).find_map(|other| {
        let of = match other.name() {
            "_scaled_dot_product_flash_attention_for_cpu" => "query",
            "_softmax" => "self",
            _ => return None,
        };
        match graph.ty(other.tensor(of)?).shape[..] {
            [_, heads, _, _] => Some(heads),
            _ => None,
        }
    })
}
