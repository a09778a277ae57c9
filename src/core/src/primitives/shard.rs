//! `param.shard(dim, over, groups, uneven)`: a parameter held in pieces.

use super::numbers::{divisors, groups, joined, numbered};
use super::{Class, Parameter, Primitive, Problem, Receiver, Refusal, State};
use crate::compile::{MeshAxis, Shard};
use crate::schedule::{Argument, Kind, Place, Step, Want, dimension, dimensions, roles};
use slapo_model::{Module, ParameterId};
use slapo_syntax::Code;

pub static SHARD: Primitive = Primitive {
    name: "shard",
    receiver: Receiver::Parameter,
    params: &[
        Parameter {
            name: "dim",
            want: Want::one(Kind::Dim),
            default: None,
            docs: "the dimension to split, by its role (`out`, `in`, `vocab`, `hidden`) or its number",
        },
        Parameter { name: "over", want: Want::one(Kind::Axis), default: None, docs: "the axis whose ranks hold a piece each" },
        Parameter {
            name: "groups",
            want: Want::one(Kind::Groups),
            default: Some(Argument::Int(1)),
            docs: "equal sections of the dimension, each of which is split: 3 for a fused query, key and value",
        },
        Parameter {
            name: "uneven",
            want: Want::one(Kind::Bool),
            default: Some(Argument::Bool(false)),
            docs: "whether the pieces may differ by one: for a dimension that the model neither cuts nor views as heads, \
                   such as a vocabulary",
        },
    ],
    class: Class::Reassociating,
    docs: "\
Stores a parameter, its gradient and its optimizer state in pieces, one per rank of an axis, and computes with the pieces.
What is computed from them is split too, or is a partial sum: the syncs that the model then needs are checked, none is
added. `groups` times the size of the axis must divide the dimension, unless the pieces may be `uneven`: then the first
ranks have one element more. A tied parameter is split under each of its names.

```slapo
mesh { tp = 2 }

schedule main(m: GPT2LMHeadModel) {
    let mlp = m.transformer.h[0].mlp
    mlp.c_fc.{weight, bias}.shard(out, over: tp)
    mlp.c_proj.weight.shard(in, over: tp)
    mlp.c_fc.input().grad().sync(all_reduce, over: tp)
    mlp.c_proj.output().sync(all_reduce, over: tp)
}
```",
    check,
    apply,
};

fn check(state: &State, step: &Step) -> Result<(), Refusal> {
    let illegal = |problem| Err(Refusal::illegal(problem));
    let Place::Parameter { id, .. } = step.target.place else { return Ok(()) };
    let Some((axis, over)) = state.axis(step) else { return Err(super::no_axis(step)) };
    let dim = dim(state, step)?;
    let groups = groups(step.arg("groups"))?;
    if let Some(before) = state.effects.shards.iter().find(|shard| shard.parameter == id && shard.axis == axis) {
        return Err(sharded_before(state, step, before.step, &over.name));
    }
    let size = state.model.parameter(id).shape[dim];
    let others = Others::of(state, id, dim, axis);
    if let Some((inner, outer)) = others.crossing(groups) {
        return illegal(crossing(state, step, dim, inner, outer));
    }
    let parts = groups.max(others.groups).saturating_mul(others.parts);
    match size % parts.saturating_mul(over.size) {
        0 => Ok(()),
        // One group, over one axis.
        _ if is_uneven(step) && parts == 1 => Ok(()),
        _ => illegal(uneven(state, step, dim, size, groups, parts, over)),
    }
}

/// The dimension that a step means.
fn dim(state: &State, step: &Step) -> Result<usize, Refusal> {
    let place = step.target.place;
    let (roles, shape) = (place.roles(state.model), place.shape(state.model).unwrap_or_default());
    let found = match step.arg("dim") {
        Some(Argument::Word(role)) => dimension(roles, shape.len(), role),
        Some(Argument::Int(number)) => numbered(*number, shape.len()),
        _ => None,
    };
    found.ok_or_else(|| {
        let name = step.arg("dim").map(ToString::to_string).unwrap_or_default();
        let message = format!("`{}` has no dimension `{name}`", step.target.path);
        let problem = Problem::new(Code::NoSuchDim, message, "not one of its dimensions");
        Refusal::illegal(problem.help(dimensions(roles, shape)))
    })
}

fn sharded_before(state: &State, step: &Step, before: u32, axis: &str) -> Refusal {
    let path = &step.target.path;
    let Some(earlier) = state.steps.iter().find(|known| known.id == before) else {
        return Refusal::illegal(Problem::new(Code::Contradiction, format!("`{path}` is split already"), "again"));
    };
    let same = ["dim", "groups"].iter().all(|name| earlier.arg(name) == step.arg(name));
    let code = if same { Code::Repeated } else { Code::Contradiction };
    let message = format!("`{path}` is split over `{axis}` already");
    let dim = earlier.arg("dim").map(ToString::to_string).unwrap_or_default();
    let what = match earlier.target.path == *path {
        true => format!("split along `{dim}` here"),
        false => format!("split along `{dim}` here, as `{}`", earlier.target.path),
    };
    let problem = Problem::new(code, message, "for the second time").earlier(before, what);
    match earlier.target.path == *path {
        true => Refusal::illegal(problem),
        false => Refusal::illegal(problem.note("both names are one parameter")),
    }
}

/// Splits of the same dimension over other axes. Axes nest in the order of the mesh: an outer axis cuts the dimension into
/// coarser pieces, which the inner one cuts again.
struct Others {
    /// The product of their sizes.
    parts: i64,
    /// The largest number of groups that a step gave.
    groups: i64,
    /// Groups as a step gave them, and the step, of axes further out and further in.
    outer: Vec<(i64, u32)>,
    inner: Vec<(i64, u32)>,
}

impl Others {
    fn of(state: &State, parameter: ParameterId, dim: usize, axis: usize) -> Others {
        let mut others = Others { parts: 1, groups: 1, outer: Vec::new(), inner: Vec::new() };
        for shard in state.effects.shards.iter().filter(|shard| shard.parameter == parameter && shard.dim == dim) {
            let step = state.steps.iter().find(|step| step.id == shard.step);
            let given = step.and_then(|step| groups(step.arg("groups")).ok()).unwrap_or(1);
            others.parts = others.parts.saturating_mul(state.effects.axes[shard.axis].size);
            others.groups = others.groups.max(given);
            let side = if shard.axis < axis { &mut others.outer } else { &mut others.inner };
            side.push((given, shard.step));
        }
        others
    }

    /// The number of groups on the inner axis and on the outer where the first is no multiple of the second, with the
    /// other step.
    fn crossing(&self, groups: i64) -> Option<(i64, (i64, u32))> {
        let outer = self.outer.iter().find(|(outer, _)| groups % outer != 0).map(|outer| (groups, *outer));
        let inner = self.inner.iter().find(|(inner, _)| inner % groups != 0);
        outer.or(inner.map(|(inner, step)| (*inner, (groups, *step))))
    }
}

fn crossing(state: &State, step: &Step, dim: usize, inner: i64, (outer, other): (i64, u32)) -> Problem {
    let dim = named(state, step, dim);
    let message = format!(
        "two axes split dimension {dim} of `{}` across each other: the outer in {outer} groups, the inner in {inner}",
        step.target.path
    );
    Problem::new(Code::SplitsCross, message, "does not nest")
        .earlier(other, "the other split")
        .help("the groups of the inner axis are a multiple of those of the outer one")
}

/// Whether the step lets pieces differ in size.
fn is_uneven(step: &Step) -> bool {
    step.arg("uneven") == Some(&Argument::Bool(true))
}

fn uneven(state: &State, step: &Step, dim: usize, size: i64, groups: i64, parts: i64, over: &MeshAxis) -> Problem {
    let dim = named(state, step, dim);
    let sections = if groups == 1 { String::new() } else { format!(" in {groups} groups") };
    let message = format!(
        "cannot split dimension {dim} ({size}) of `{}` over `{}` of size {}{sections}",
        step.target.path, over.name, over.size
    );
    let here = match parts {
        1 => format!("{size} / {} is not a whole number", over.size),
        _ => format!("{size} / ({parts} * {}) is not a whole number", over.size),
    };
    let problem = Problem::new(Code::Uneven, message, here);
    let problem = match is_uneven(step) {
        true => problem.note("pieces are uneven in one group and over one axis only"),
        false => problem,
    };
    let legal = format!("legal sizes of `{}` here: {}", over.name, joined(&divisors(size / parts)));
    match size % parts {
        0 if parts == 1 && may_be_uneven(state, step, size) => problem.help(format!("{legal}; or `uneven: true`")),
        0 => problem.help(legal),
        _ => problem.help(format!("numbers of parts that divide {size}: {}", joined(&divisors(size)))),
    }
}

/// Whether the dimension is a vocabulary, which no view cuts: rows of an embedding, or the features of a layer that gives a
/// number for each.
fn may_be_uneven(state: &State, step: &Step, size: i64) -> bool {
    let roles_here = step.target.place.roles(state.model);
    let role = dim(state, step).ok().and_then(|dim| roles_here.get(dim).copied());
    let is_table = |module: &Module| {
        module.parameters.iter().any(|(name, id)| {
            roles(module.short_class(), name).first() == Some(&"vocab")
                && state.model.parameter(*id).shape.first() == Some(&size)
        })
    };
    role == Some("vocab") || role == Some("out") && state.model.modules.iter().any(is_table)
}

/// The dimension as the user may know it.
fn named(state: &State, step: &Step, dim: usize) -> String {
    let roles = step.target.place.roles(state.model);
    format!("`{}`", roles.get(dim).map_or(dim.to_string(), ToString::to_string))
}

/// Effects hold groups of the whole dimension: what is inside another axis counts its pieces too.
fn apply(state: &mut State, step: &Step) {
    let Place::Parameter { id, .. } = step.target.place else { return };
    let (Some((axis, over)), Ok(dim), Ok(mut groups)) =
        (state.axis(step), dim(state, step), groups(step.arg("groups")))
    else {
        return;
    };
    let size = over.size;
    let sizes: Vec<i64> = state.effects.axes.iter().map(|axis| axis.size).collect();
    for shard in state.effects.shards.iter_mut().filter(|shard| shard.parameter == id && shard.dim == dim) {
        match shard.axis < axis {
            true => groups *= sizes[shard.axis],
            false => shard.groups *= size,
        }
    }
    let uneven = is_uneven(step);
    state.effects.shards.push(Shard { parameter: id, dim, groups, uneven, axis, step: step.id });
    state.touched.insert(id);
}
