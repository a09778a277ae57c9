//! `param.shard(dim, over, groups, uneven)`: a parameter held in pieces.

use super::numbers::{divisors, joined, numbered, sections};
use super::{Class, Parameter, Primitive, Problem, Receiver, Refusal, State};
use crate::compile::{Effects, MeshAxis, Shard};
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
        Parameter { name: "over", want: Want::one(Kind::Axis), default: None, docs: "the axis whose ranks hold a piece each, a factor of it, or a list of axes" },
        Parameter {
            name: "groups",
            want: Want::one(Kind::Groups),
            default: Some(Argument::Int(1)),
            docs: "sections of the dimension, each of which is split: 3 for a fused query, key and value; a list of sizes \
                   where they differ, `[32, 8, 8]` heads",
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

Over several axes, or one that is given as factors, the pieces of an axis further out in the mesh are cut again by those
further in. A parameter that is split over some of the factors only is the same on the ranks of the others: with `tp = [2, 2]`,
four query heads can be split over `tp` and two key and value heads over `tp[0]`.

The sizes of a list are relative: their sum must divide the dimension, and the axis every section. A value in such sections can
be added to, activated and taken apart into its sections; nothing else is computed with it, and no other axis splits it.

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
    let axes = state.axes(step)?;
    let dim = dim(state, step)?;
    let (groups, sections) = sections(step.arg("groups"))?;
    let before = |shard: &&Shard| shard.parameter == id && axes.contains(&shard.axis);
    if let Some(before) = state.effects.shards.iter().find(before) {
        return Err(sharded_before(state, step, before.step, &state.effects.axes[before.axis].name));
    }
    if let Some(whole) = state.effects.whole.iter().find(|whole| whole.parameter == id && axes.contains(&whole.axis)) {
        let axis = &state.effects.axes[whole.axis].name;
        let message = format!("`{}` is to be whole on every rank of `{axis}`", step.target.path);
        let problem = Problem::new(Code::Contradiction, message, "splits it").earlier(whole.step, "stated here");
        return illegal(problem);
    }
    let size = state.model.parameter(id).shape[dim];
    let other = |shard: &&Shard| shard.parameter == id && shard.dim == dim;
    let other = state.effects.shards.iter().find(other);
    if !sections.is_none() || other.is_some_and(|other| !other.sections.is_none()) {
        return match (other, axes.len()) {
            (None, 1) => fits(state, step, dim, size, axes[0]),
            _ => illegal(sections_alone(state, step, dim, other.map(|other| other.step))),
        };
    }
    for axis in &axes {
        let others = Others::of(state, id, dim, *axis);
        if let Some((inner, outer)) = others.crossing(groups) {
            return illegal(crossing(state, step, dim, inner, outer));
        }
    }
    let others = Others::of(state, id, dim, axes[0]);
    let parts = groups.max(others.groups).saturating_mul(others.parts);
    let over = MeshAxis {
        name: step.arg("over").map(ToString::to_string).unwrap_or_default(),
        size: axes.iter().map(|axis| state.size(*axis)).fold(1, i64::saturating_mul),
    };
    match size % parts.saturating_mul(over.size) {
        0 => Ok(()),
        // One group, over one axis.
        _ if is_uneven(step) && parts == 1 && axes.len() == 1 => Ok(()),
        _ => illegal(uneven(state, step, dim, size, groups, parts, &over)),
    }
}

/// Whether sections of different sizes divide.
fn fits(state: &State, step: &Step, dim: usize, size: i64, axis: usize) -> Result<(), Refusal> {
    let over = &state.effects.axes[axis];
    let (_, sections) = sections(step.arg("groups"))?;
    // The sum of the sizes as they are given: they may have a common factor.
    let given = match step.arg("groups") {
        Some(Argument::List(sizes)) => sizes.as_slice(),
        _ => &[],
    };
    let sum: i64 = given.iter().map(|size| if let Argument::Int(size) = size { *size } else { 0 }).sum();
    if size % sum == 0 && sections.divide(size, over.size) {
        return Ok(());
    }
    let shown = step.arg("groups").map(ToString::to_string).unwrap_or_default();
    let message = format!(
        "cannot split dimension {} ({size}) of `{}` over `{}` of size {} in the sections {shown}",
        named(state, step, dim),
        step.target.path,
        over.name,
        over.size
    );
    Err(Refusal::illegal(if size % sum == 0 {
        let lengths = sections.lengths(size).unwrap_or_default();
        let legal: Vec<i64> = divisors(lengths[0]).into_iter().filter(|k| sections.divide(size, *k)).collect();
        let here = format!("sections of {} do not divide by {}", joined(&lengths), over.size);
        Problem::new(Code::Uneven, message, here).sizes(&over.name, legal)
    } else {
        Problem::new(Code::Uneven, message, format!("{size} / {sum} is not a whole number"))
            .help("the sum of the sizes must divide the dimension")
    }))
}

fn sections_alone(state: &State, step: &Step, dim: usize, other: Option<u32>) -> Problem {
    let message = format!(
        "dimension {} of `{}` is split over one axis only, since its sections are of different sizes",
        named(state, step, dim),
        step.target.path
    );
    let problem =
        Problem::new(Code::SplitsCross, message, "over another axis").help("split another dimension, or over one axis");
    other.into_iter().fold(problem, |problem, step| problem.earlier(step, "the other split"))
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
            let given = step.and_then(|step| sections(step.arg("groups")).ok()).map_or(1, |(groups, _)| groups);
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
    let legal = divisors(size / parts);
    match size % parts {
        // Not the size is to blame, but what was to make it do.
        0 if is_uneven(step) => problem.note("pieces are uneven in one group and over one axis only").help(format!(
            "legal sizes of `{}` here: {}",
            over.name,
            joined(&legal)
        )),
        0 if parts == 1 && may_be_uneven(state, step, size) => {
            problem.sizes(&over.name, legal).help("or let the pieces differ by one, with `uneven: true`")
        }
        0 => problem.sizes(&over.name, legal),
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
    let (Ok(axes), Ok(dim), Ok((given, sections))) = (state.axes(step), dim(state, step), sections(step.arg("groups")))
    else {
        return;
    };
    for axis in axes {
        let (size, mut groups) = (state.size(axis), given);
        let Effects { axes, shards, .. } = &mut state.effects;
        for shard in shards.iter_mut().filter(|shard| shard.parameter == id && shard.dim == dim) {
            match shard.axis < axis {
                true => groups *= axes[shard.axis].size,
                false => shard.groups *= size,
            }
        }
        let uneven = is_uneven(step);
        shards.push(Shard { parameter: id, dim, groups, sections, uneven, axis, gathered: None, step: step.id });
    }
    state.touched.insert(id);
}
