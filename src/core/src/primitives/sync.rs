//! `point.sync(kind, over)`: a collective, where the schedule wants it.

use super::numbers::{groups, numbered};
use super::{Class, Parameter, Primitive, Problem, Receiver, Refusal, State};
use crate::compile::{PointSync, SyncPoint};
use crate::layout::{Layout, Sync};
use crate::schedule::{Argument, Kind, Place, Point, Port, Step, Want, dimension, dimensions};
use slapo_model::InputSizes;
use slapo_syntax::Code;

pub static SYNC: Primitive = Primitive {
    name: "sync",
    receiver: Receiver::Point,
    params: &[
        Parameter {
            name: "kind",
            want: Want::one(Kind::Collective),
            default: None,
            docs: "`all_reduce`, `all_gather`, `reduce_scatter(dim, groups)`, `all_to_all(from, to, groups)` or `slice(dim, groups)`; \
                   dimensions are `batch`, `seq`, `token`, `head`, `hidden`, the roles of a parameter, or numbers",
        },
        Parameter { name: "over", want: Want::one(Kind::Axis), default: None, docs: "the axis whose ranks take part, a factor of it, or a list of axes" },
    ],
    class: Class::Exact,
    docs: "\
Changes how the ranks of an axis hold the value, or the gradient, at a point. `all_reduce` makes a partial sum whole;
`reduce_scatter` makes it whole and leaves each rank a piece; `all_gather` puts pieces together; `all_to_all` splits along
another dimension; `slice` takes a piece of what every rank has. The value itself does not change, and nothing is forced on
the other direction: the gradient has its own syncs. A sync that does not fit what the ranks hold is an error. Over several
axes, or one that is given as factors, it is done axis by axis: pieces are put together from the inside and cut from the outside.

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
    let axes = state.axes(step)?;
    let Some((point, at)) = synced(state, step)? else { return Ok(()) };
    for (axis, sync) in over(state, axes, sync(state, step, &point)?)? {
        let same = |known: &&PointSync| known.at == at && known.axis == axis && known.sync == sync;
        if let Some(before) = state.effects.syncs.iter().find(same) {
            let name = &state.effects.axes[axis].name;
            let message = format!("`{}` has this {sync} over `{name}` already", step.target.path);
            let problem = Problem::new(Code::Repeated, message, "for the second time");
            return Err(Refusal::illegal(problem.earlier(before.step, "synced here")));
        }
    }
    Ok(())
}

/// The point of a step and where its border is, if a gradient flows there.
pub(super) fn synced(state: &State, step: &Step) -> Result<Option<(Point, SyncPoint)>, Refusal> {
    let Some(point) = step.target.point else { return Ok(None) };
    is_called(state, &point)?;
    carries_gradient(state, step, &point)?;
    Ok(place_of(state, step).map(|at| (point, at)))
}

/// A sync over each of several axes, in the order in which they are done: pieces are cut by the outermost first, and put
/// together by the innermost first.
pub(super) fn over(state: &State, axes: Vec<usize>, sync: Sync) -> Result<Vec<(usize, Sync)>, Refusal> {
    let within = |at: usize| axes[..at].iter().map(|axis| state.size(*axis)).fold(1, i64::saturating_mul);
    let cut = |sync: fn(usize, i64) -> Sync, dim: usize, groups: i64| {
        axes.iter().enumerate().map(|(at, axis)| (*axis, sync(dim, groups.saturating_mul(within(at))))).collect()
    };
    Ok(match sync {
        Sync::ReduceScatter { dim, groups } => cut(|dim, groups| Sync::ReduceScatter { dim, groups }, dim, groups),
        Sync::Slice { dim, groups } => cut(|dim, groups| Sync::Slice { dim, groups }, dim, groups),
        Sync::Become(Layout::Split { dim, groups }) => {
            cut(|dim, groups| Sync::Become(Layout::Split { dim, groups }), dim, groups)
        }
        Sync::AllToAll { .. } if axes.len() > 1 => {
            let message = format!("`{sync}` cannot run over several axes at once");
            let problem = Problem::new(Code::BadValue, message, "one axis at a time");
            return Err(Refusal::illegal(problem.help("gather over them, and slice along the other dimension")));
        }
        sync => axes.iter().rev().map(|axis| (*axis, sync)).collect(),
    })
}

fn place_of(state: &State, step: &Step) -> Option<SyncPoint> {
    border_of(state, &step.target.point?)
}

/// Where a point is; `None` where no gradient flows.
pub(super) fn border_of(state: &State, point: &Point) -> Option<SyncPoint> {
    let module = match point.of {
        Place::Parameter { id, .. } => return point.is_gradient.then_some(SyncPoint::ParameterGradient(id)),
        place => place.module()?,
    };
    let port = state.ports.differentiable_number(point)?;
    Some(match (point.port, point.is_gradient) {
        (Port::Input(_), false) => SyncPoint::Input { module, port },
        (Port::Output(_), false) => SyncPoint::Output { module, port },
        (Port::Input(_), true) => SyncPoint::InputGradient { module, port },
        (Port::Output(_), true) => SyncPoint::OutputGradient { module, port },
        (Port::Value, _) => return None,
    })
}

/// A container has no border of its own: what crosses it crosses its children's.
fn is_called(state: &State, point: &Point) -> Result<(), Refusal> {
    match point.of.module() {
        Some(id) if slapo_model::regions::calls(state.model, id).is_empty() => {
            let message = format!("`{}` is never called, so nothing enters or leaves it", point.of.path(state.model));
            let problem = Problem::new(Code::NeverRuns, message, "a container");
            Err(Refusal::illegal(problem.help("sync at its children")))
        }
        _ => Ok(()),
    }
}

/// Masks, indices and frozen parameters have no gradient; the ranks hold the former as they need them.
fn carries_gradient(state: &State, step: &Step, point: &Point) -> Result<(), Refusal> {
    if let Place::Parameter { id, .. } = point.of {
        let is_trained = state.model.parameter(id).trainable && !state.effects.frozen.contains(&id);
        let path = point.of.path(state.model);
        let message = format!("`{path}` is not trained: it has no gradient");
        return match is_trained {
            true => Ok(()),
            false => Err(Refusal::illegal(Problem::new(Code::NoGradient, message, "no gradient"))),
        };
    }
    let Some(value) = state.ports.value(point) else { return Ok(()) };
    if state.ports.is_differentiable(value) {
        return Ok(());
    }
    let known = state.model.graph.value(value);
    let why = match known.ty.dtype.is_float() {
        true => "it depends on no parameter",
        false => "whole numbers, such as token ids, and truth values have none",
    };
    let path = &step.target.path;
    let message = format!("no gradient flows through `{}`, the value at `{path}`: {why}", known.name);
    let problem = Problem::new(Code::NoGradient, message, "no gradient");
    Err(Refusal::illegal(problem.help("leave the sync out: ranks take what they need of such values")))
}

/// The collective with its dimensions as numbers.
fn sync(state: &State, step: &Step, point: &Point) -> Result<Sync, Refusal> {
    let (name, args): (&str, &[(String, Argument)]) = match step.arg("kind") {
        Some(Argument::Word(name)) => (name, &[]),
        Some(Argument::Call(name, args)) => (name, args),
        _ => ("", &[]),
    };
    let arg = |name: &str| args.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    let dim = |name: &str| match arg(name) {
        Some(dim) => dim_at(state, step, point, dim),
        None => Err(unfinished(step)),
    };
    Ok(match name {
        "all_reduce" => Sync::AllReduce,
        "all_gather" if args.is_empty() => Sync::AllGather { dim: None },
        "all_gather" => Sync::AllGather { dim: Some(dim("dim")?.0) },
        "reduce_scatter" => {
            let ((dim, outer), groups) = (dim("dim")?, groups(arg("groups"))?);
            Sync::ReduceScatter { dim, groups: groups.saturating_mul(outer) }
        }
        "slice" => {
            let ((dim, outer), groups) = (dim("dim")?, groups(arg("groups"))?);
            Sync::Slice { dim, groups: groups.saturating_mul(outer) }
        }
        "all_to_all" => {
            let ((to, outer), groups) = (dim("to")?, groups(arg("groups"))?);
            Sync::AllToAll { from: dim("from")?.0, to, groups: groups.saturating_mul(outer) }
        }
        _ => return Err(unfinished(step)),
    })
}

fn unfinished(step: &Step) -> Refusal {
    let name = step.arg("kind").map(ToString::to_string).unwrap_or_default();
    let help = match name.as_str() {
        "all_to_all" => "say from which dimension to which: `all_to_all(seq, head)`".to_string(),
        name => format!("say along which dimension: `{name}(seq)`"),
    };
    let message = format!("`{name}` needs a dimension");
    Refusal::illegal(Problem::new(Code::MissingArgument, message, "a dimension is missing").help(help))
}

/// The dimension of the value at a point, and the groups that the role brings with it: the sequence of flattened tokens is
/// `batch` groups of them.
pub(super) fn dim_at(state: &State, step: &Step, point: &Point, dim: &Argument) -> Result<(usize, i64), Refusal> {
    let (shape, roles) = match (state.ports.value(point), state.sizes) {
        (Some(value), Some(sizes)) => {
            let shape = state.ports.bound_type(value, sizes).map(|ty| ty.shape).unwrap_or_default();
            let roles = activation_roles(&shape, sizes);
            (shape, roles)
        }
        _ => (point.of.shape(state.model).unwrap_or_default().to_vec(), point.of.roles(state.model).to_vec()),
    };
    let found = match dim {
        Argument::Int(number) => numbered(*number, shape.len()).map(|dim| (dim, 1)),
        Argument::Word(role) => match (dimension(&roles, shape.len(), role), role.as_str()) {
            (Some(dim), _) => Some((dim, 1)),
            (None, "seq") if roles.first() == Some(&"token") => Some((0, state.sizes.map_or(1, |sizes| sizes.batch))),
            _ => None,
        },
        _ => None,
    };
    found.ok_or_else(|| {
        let message = format!("the value at `{}` has no dimension `{dim}`", step.target.path);
        let problem = Problem::new(Code::NoSuchDim, message, "not one of its dimensions");
        Refusal::illegal(problem.help(dimensions(&roles, &shape)))
    })
}

/// What the dimensions of an activation stand for.
fn activation_roles(shape: &[i64], sizes: InputSizes) -> Vec<&'static str> {
    match shape {
        [_] => vec!["hidden"],
        [first, _] if *first == sizes.batch && sizes.seq != Some(1) => vec!["batch", "hidden"],
        [_, _] => vec!["token", "hidden"],
        [_, _, _] => vec!["batch", "seq", "hidden"],
        [_, _, _, _] => vec!["batch", "head", "seq", "hidden"],
        _ => Vec::new(),
    }
}

fn apply(state: &mut State, step: &Step) {
    if let Some(Ok(sync)) = step.target.point.map(|point| sync(state, step, &point)) {
        push(state, step, sync);
    }
}

/// The effect of a sync at the step's point.
pub(super) fn push(state: &mut State, step: &Step, sync: Sync) {
    let (Ok(axes), Some(at)) = (state.axes(step), place_of(state, step)) else { return };
    for (axis, sync) in over(state, axes, sync).into_iter().flatten() {
        state.effects.syncs.push(PointSync { at, sync, axis, step: step.id });
    }
    if let SyncPoint::ParameterGradient(id) = at {
        state.touched.insert(id);
    }
}
