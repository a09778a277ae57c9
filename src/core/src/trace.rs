//! Where two runs part: values of a rank's program beside the same values of the unscheduled model, in the order in which
//! they are computed.
//!
//! A value is global; ranks and micro-batches hold parts of it, as the layouts say. What the model's own graph and the
//! schedule's have in common they call alike, and a sync is the identity, so every value has one counterpart at most.
//! Read [`traced`] first; [`assemble`] makes a value of its parts.

use crate::compile::{Compiled, Effects, MeshAxis, coordinates, micro_typing};
use crate::layout::{Layout, Typing};
use crate::passes::autodiff::Joint;
use crate::passes::borders::differentiable;
use crate::passes::mesh;
use crate::passes::mesh::Check;
use slapo_model::{Model, Op as GraphOp, ParameterId};
use slapo_program::{FunctionKind, Global, GlobalId, Instr, LocalId, Op, Program, Role, Split, Value};
use std::collections::BTreeMap;

/// One value in both programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Traced {
    /// The model's own name: of a value of its graph, or of the parameter whose gradient it is.
    pub name: String,
    /// Dotted path.
    pub module: String,
    /// What computes it in the schedule's program.
    pub operator: String,
    pub is_gradient: bool,
    pub ours: Value,
    pub theirs: Value,
    /// How it is held: axes of the mesh, outermost first, then micro-batches. Each axis divides what those before it leave.
    pub held: Vec<Held>,
}

/// How the parts of one axis hold a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Of the mesh; `None`: micro-batches.
    pub axis: Option<String>,
    pub parts: i64,
    pub layout: Layout,
    /// When a rank's graph was taken apart along the axis: 0 first.
    pub turn: usize,
}

/// The values that `ours`, the first rank's program, has in common with `theirs`, the [`crate::compile::oracle`]: those of
/// forward that gradients flow through, then the gradients of parameters in the order in which backward completes them.
pub fn traced(model: &Model, compiled: &Compiled, effects: &Effects, ours: &Program, theirs: &Program) -> Vec<Traced> {
    let mut traced = forward(model, compiled, effects, ours, theirs);
    traced.extend(gradients(model, compiled, effects, ours, theirs));
    traced
}

fn forward(model: &Model, compiled: &Compiled, effects: &Effects, ours: &Program, theirs: &Program) -> Vec<Traced> {
    let held = layouts(model, compiled, effects);
    let known = locals(theirs, FunctionKind::Recorded);
    let own = locals(ours, FunctionKind::Forward);
    let named = counterparts(&compiled.joint);
    let mut traced: Vec<Traced> = Vec::new();
    for function in ours.functions.iter().filter(|f| f.kind == FunctionKind::Forward) {
        for instr in &function.body {
            for out in instr.outs.iter().flatten() {
                let Value::Local(local) = *out else { continue };
                let slot = ours.locals[local as usize].name.as_str();
                let Some(name) = named.get(slot).filter(|_| own.get(slot) == Some(&local)) else { continue };
                let (Some(theirs), Some(held)) = (known.get(name.as_str()), held.get(slot)) else { continue };
                traced.push(Traced {
                    name: name.clone(),
                    module: ours.origins.get(instr.origin as usize).map(|o| o.module.clone()).unwrap_or_default(),
                    operator: operator(instr),
                    is_gradient: false,
                    ours: *out,
                    theirs: Value::Local(*theirs),
                    held: held.clone(),
                });
            }
        }
    }
    traced
}

/// Locals of a program's functions of one kind, by name; of those that share a name none.
fn locals(program: &Program, kind: FunctionKind) -> BTreeMap<&str, LocalId> {
    let mut found: BTreeMap<&str, Option<LocalId>> = BTreeMap::new();
    for function in program.functions.iter().filter(|f| f.kind == kind) {
        for out in function.body.iter().flat_map(|instr| instr.outs.iter().flatten()) {
            if let Value::Local(l) = out {
                found.entry(&program.locals[*l as usize].name).and_modify(|known| *known = None).or_insert(Some(*l));
            }
        }
    }
    found.into_iter().filter_map(|(name, local)| Some((name, local?))).collect()
}

/// What each value of forward that gradients flow through is called in the model: its own name, or behind borders and
/// syncs the name of what enters them.
fn counterparts(joint: &Joint) -> BTreeMap<&str, String> {
    let graph = &joint.graph;
    let differentiable = differentiable(graph);
    let mut named: BTreeMap<&str, String> = BTreeMap::new();
    for node in &graph.nodes[..joint.forward] {
        let source =
            matches!(node.op, GraphOp::Border { .. } | GraphOp::Sync { .. }).then(|| node.tensor("self")).flatten();
        let source = source.map(|v| graph.value(v).name.as_str());
        for out in node.outs.iter().flatten().filter(|out| differentiable[out.0 as usize]) {
            let own = graph.value(*out).name.as_str();
            let name = source.map_or(own, |source| named.get(source).map_or(source, String::as_str)).to_owned();
            named.insert(own, name);
        }
    }
    named
}

/// By name: how the parts hold the values of forward.
fn layouts(model: &Model, compiled: &Compiled, effects: &Effects) -> BTreeMap<String, Vec<Held>> {
    let mut held: BTreeMap<String, Vec<(usize, Held)>> = BTreeMap::new();
    let mut add = |at: usize, axis: Option<&str>, turn: usize, joint: &Joint, typing: &Typing| {
        for node in &joint.graph.nodes[..joint.forward] {
            for out in node.outs.iter().flatten() {
                let layout = typing.of(*out);
                let layout = Held { axis: axis.map(str::to_owned), parts: typing.parts, layout, turn };
                held.entry(joint.graph.value(*out).name.clone()).or_default().push((at, layout));
            }
        }
    };
    let first = coordinates(effects, 0);
    let mut turns = 0;
    let on_axis = &mut |axis: usize, joint: &Joint, typing: &Typing| {
        add(axis, Some(&effects.axes[axis].name), turns, joint, typing);
        turns += 1;
    };
    let meshed = compiled.meshed();
    let local = mesh::partitioned(model, &meshed, effects, &compiled.layouts, Check::Held, &first, on_axis);
    let Ok(local) = local else { return BTreeMap::new() };
    if effects.micro_batches > 1
        && let Ok(typing) = micro_typing(&local, i64::from(effects.micro_batches))
    {
        add(effects.axes.len(), None, turns, &local, &typing);
        turns += 1;
    }
    let in_mesh_order = |mut held: Vec<(usize, Held)>| {
        held.sort_by_key(|(at, _)| *at);
        held.into_iter().map(|(_, held)| held).collect()
    };
    // Values that came with a partition are of that rank alone.
    let known = held.into_iter().filter(|(_, held)| held.len() == turns);
    known.map(|(name, held)| (name, in_mesh_order(held))).collect()
}

fn gradients(model: &Model, compiled: &Compiled, effects: &Effects, ours: &Program, theirs: &Program) -> Vec<Traced> {
    let boxes = mesh::boxes(effects, &coordinates(effects, 0));
    let held = |parameter: ParameterId| {
        // Innermost first, and inside of all a piece that is only updated here.
        let piece = ours.parameters.iter().find(|p| p.names == model.parameter(parameter).names).and_then(|p| p.piece);
        let zero = effects.zero.iter().find(|zero| zero.parameter == parameter);
        let piece = zero.zip(piece).map(|(zero, piece)| (zero.axis, piece));
        let splits: Vec<(usize, Split)> = boxes.get(&parameter).into_iter().flatten().copied().chain(piece).collect();
        let split = |axis: usize| {
            let own = splits.iter().find(|(a, _)| *a == axis);
            own.map_or(Layout::Replicated, |(_, split)| match split.sections.is_none() {
                true => Layout::Split { dim: split.dim, groups: split.groups },
                false => Layout::Sections { dim: split.dim, sections: split.sections },
            })
        };
        let axes = effects.axes.iter().enumerate();
        // Boxes stand innermost first.
        let turn = |axis: usize| splits.iter().position(|(a, _)| *a == axis).unwrap_or(0);
        let held = |(i, axis): (usize, &MeshAxis)| Held {
            axis: Some(axis.name.clone()),
            parts: axis.size,
            layout: split(i),
            turn: turn(i),
        };
        axes.map(held).collect()
    };
    let backward = ours.functions.iter().filter(|f| f.kind == FunctionKind::Backward);
    let mut traced = Vec::new();
    for own in backward.flat_map(|f| in_order(ours, &f.body)) {
        let name = &ours.globals[own as usize].name;
        // Where what backward adds up is not what the update takes, that is the one that is left.
        let is_own = |(_, g): &(usize, &Global)| g.role == Role::Gradient && g.name == *name;
        let own = ours.globals.iter().enumerate().find(is_own).map_or(own, |(at, _)| at as GlobalId);
        let known = theirs.globals.iter().position(|g| g.role == Role::Gradient && g.name == *name);
        let parameter =
            compiled.joint.gradients.iter().map(|(p, _)| *p).find(|p| model.parameter(*p).names[0] == *name);
        let (Some(known), Some(parameter)) = (known, parameter) else { continue };
        traced.push(Traced {
            name: name.clone(),
            module: model.module(model.parameter(parameter).module).path.clone(),
            operator: "gradient".to_owned(),
            is_gradient: true,
            ours: Value::Global(own),
            theirs: Value::Global(known as GlobalId),
            held: held(parameter),
        });
    }
    traced
}

/// The gradients that a function accumulates, in the order in which they are computed: reductions over ranks come later.
fn in_order(program: &Program, body: &[Instr]) -> Vec<GlobalId> {
    let mut computed: BTreeMap<Value, usize> = BTreeMap::new();
    let mut found: Vec<(usize, GlobalId)> = Vec::new();
    for (i, instr) in body.iter().enumerate() {
        let operand = instr.reads().next().and_then(|v| computed.get(&v).copied());
        let at = if matches!(instr.op, Op::Collective { .. } | Op::Accumulate) { operand.unwrap_or(i) } else { i };
        computed.extend(instr.outs.iter().flatten().map(|out| (*out, at)));
        found.extend(gradient_of(program, instr).map(|global| (at, global)));
    }
    found.sort_unstable();
    found.into_iter().map(|(_, global)| global).collect()
}

fn gradient_of(program: &Program, instr: &Instr) -> Option<GlobalId> {
    match (&instr.op, instr.outs.first()) {
        (Op::Accumulate, Some(Some(Value::Global(g)))) if program.globals[*g as usize].role == Role::Gradient => {
            Some(*g)
        }
        _ => None,
    }
}

fn operator(instr: &Instr) -> String {
    match &instr.op {
        Op::Collective { kind, .. } => kind.name().to_owned(),
        Op::Dropout { .. } => "dropout".to_owned(),
        op => op.to_string(),
    }
}

/// A tensor in float64, row-major.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Array {
    pub shape: Vec<i64>,
    pub values: Vec<f64>,
}

/// Replicas of a value that differ: the axis between whose parts they do, `None` for micro-batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differs {
    pub axis: Option<String>,
}

/// The global value from its parts, which stand row-major over `held`. What was taken apart last is put together first.
pub fn assemble(held: &[Held], mut parts: Vec<Array>) -> Result<Array, Differs> {
    let mut left: Vec<&Held> = held.iter().collect();
    while let Some(at) = (0..left.len()).max_by_key(|at| left[*at].turn) {
        let held = left.remove(at);
        let (size, inside) = (held.parts.max(1) as usize, left[at..].iter().map(|h| h.parts.max(1) as usize).product());
        let group =
            |first: usize| -> Vec<Array> { parts.iter().skip(first).step_by(inside).take(size).cloned().collect() };
        let firsts = (0..parts.len() / (size * inside)).flat_map(|o| (0..inside).map(move |i| o * size * inside + i));
        parts = firsts.map(|first| join(held, &group(first))).collect::<Result<_, Differs>>()?;
    }
    Ok(parts.into_iter().next().unwrap_or_default())
}

fn join(axis: &Held, parts: &[Array]) -> Result<Array, Differs> {
    let Some((first, others)) = parts.split_first() else { return Ok(Array::default()) };
    match axis.layout {
        Layout::Replicated => {
            let bits = |array: &Array| array.values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            let equal = others.iter().all(|other| bits(other) == bits(first));
            if equal { Ok(first.clone()) } else { Err(Differs { axis: axis.axis.clone() }) }
        }
        Layout::Partial => {
            let mut sum = first.clone();
            for other in others {
                sum.values.iter_mut().zip(&other.values).for_each(|(a, b)| *a += b);
            }
            Ok(sum)
        }
        Layout::Split { dim, groups } => {
            let equal = |length: i64| vec![length / groups.max(1); groups.max(1) as usize];
            Ok(gathered(parts, dim, equal))
        }
        Layout::Sections { dim, sections } => {
            Ok(gathered(parts, dim, |length| sections.lengths(length).unwrap_or_else(|| vec![length])))
        }
    }
}

/// Of every group or section of the dimension, the parts' pieces one after the other; `pieces` gives their lengths in a part
/// of some length.
fn gathered(parts: &[Array], dim: usize, pieces: impl Fn(i64) -> Vec<i64>) -> Array {
    let mut shape = parts[0].shape.clone();
    let outer: i64 = shape[..dim].iter().product();
    let inner: i64 = shape[dim + 1..].iter().product();
    let pieces: Vec<Vec<i64>> = parts.iter().map(|part| pieces(part.shape[dim])).collect();
    shape[dim] = parts.iter().map(|part| part.shape[dim]).sum();
    let mut values = Vec::with_capacity(shape.iter().product::<i64>() as usize);
    for o in 0..outer {
        let mut starts: Vec<i64> = parts.iter().map(|part| o * part.shape[dim] * inner).collect();
        let groups = pieces[0].len();
        for (group, p) in (0..groups).flat_map(|group| (0..parts.len()).map(move |p| (group, p))) {
            let end = starts[p] + pieces[p][group] * inner;
            values.extend(&parts[p].values[starts[p] as usize..end as usize]);
            starts[p] = end;
        }
    }
    Array { shape, values }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slapo_program::Sections;

    fn held(parts: i64, layout: Layout) -> Held {
        Held { axis: Some("tp".to_owned()), parts, layout, turn: 0 }
    }

    fn array(shape: &[i64], values: &[i64]) -> Array {
        Array { shape: shape.to_vec(), values: values.iter().map(|x| *x as f64).collect() }
    }

    #[test]
    fn pieces_go_back_to_their_groups_and_axes_nest() {
        let columns = held(2, Layout::Split { dim: 1, groups: 2 });
        let parts = vec![array(&[2, 2], &[0, 2, 4, 6]), array(&[2, 2], &[1, 3, 5, 7])];
        assert_eq!(assemble(&[columns], parts), Ok(array(&[2, 4], &[0, 1, 2, 3, 4, 5, 6, 7])));
        let sections = Sections::new([2, 1]).expect("two sections");
        let parts = vec![array(&[3], &[0, 1, 4]), array(&[3], &[2, 3, 5])];
        let fused = held(2, Layout::Sections { dim: 0, sections });
        assert_eq!(assemble(&[fused], parts), Ok(array(&[6], &[0, 1, 2, 3, 4, 5])));
        // Rows over the outer axis, sums over the inner one.
        let axes = [held(2, Layout::Split { dim: 0, groups: 1 }), held(2, Layout::Partial)];
        let parts = [1, 10, 2, 20].map(|x| array(&[1], &[x])).to_vec();
        assert_eq!(assemble(&axes, parts), Ok(array(&[2], &[11, 22])));
        // Two axes on one dimension: the inner one's pieces lie in the outer one's.
        let axis = |groups, turn| Held { turn, ..held(2, Layout::Split { dim: 0, groups }) };
        let parts = [0, 1, 2, 3].map(|x| array(&[1], &[x])).to_vec();
        assert_eq!(assemble(&[axis(1, 1), axis(2, 0)], parts), Ok(array(&[4], &[0, 1, 2, 3])));
        let parts = [0, 2, 1, 3].map(|x| array(&[1], &[x])).to_vec();
        assert_eq!(assemble(&[axis(2, 0), axis(1, 1)], parts), Ok(array(&[4], &[0, 1, 2, 3])));
    }

    #[test]
    fn replicas_that_differ_name_their_axis() {
        let axes = [held(2, Layout::Replicated)];
        let differ = assemble(&axes, vec![array(&[1], &[1]), array(&[1], &[2])]);
        assert_eq!(differ, Err(Differs { axis: Some("tp".to_owned()) }));
        assert!(assemble(&axes, vec![array(&[1], &[1]); 2]).is_ok());
    }
}
