//! Parts of a model in words: classes, shapes, what ranks hold.

use crate::origin;
use crate::select::{Extent, Selected};
use slapo_core::compile::{Compiled, Shard};
use slapo_core::layout::{Held, Holdings, Layout, first_piece, forward};
use slapo_core::schedule::{Checked, Place, Query};
use slapo_core::units;
use slapo_model::{Model, ParameterId};
use std::collections::BTreeSet;

/// Lines of a list in a hover.
const SHOWN: usize = 12;

/// `GPT2Block`, or what children a container has.
pub fn class(model: &Model, place: Place) -> String {
    let Place::Module(id) = place else { return place.noun().trim_start_matches("a ").to_owned() };
    let module = model.module(id);
    match (module.short_class(), module.children.as_slice()) {
        ("", [first, ..]) => match model.module(*first).short_class() {
            "" => format!("{} modules", module.children.len()),
            class => format!("{} × {class}", module.children.len()),
        },
        ("", []) => "runs nothing".to_owned(),
        (class, _) => class.to_owned(),
    }
}

/// `[96, 32] f32`
pub fn tensor(model: &Model, place: Place) -> Option<String> {
    let shape = place.shape(model)?;
    let dtype = match place {
        Place::Parameter { id, .. } => model.parameter(id).dtype,
        Place::Buffer { id, .. } => model.buffers.get(id.0 as usize)?.dtype,
        Place::Module(_) => return None,
    };
    Some(format!("{shape:?} {dtype}"))
}

/// What the first rank holds of a parameter, which has the most where pieces differ: `[32, 48]`.
pub fn local(model: &Model, checked: &Checked, id: ParameterId) -> Vec<i64> {
    let mut shape = model.parameter(id).shape.clone();
    for shard in checked.effects.shards.iter().filter(|shard| shard.parameter == id) {
        let parts = checked.effects.axes.get(shard.axis).map_or(1, |axis| axis.size.max(1));
        if let Some(size) = shape.get_mut(shard.dim) {
            *size = first_piece(shard.layout(), *size, parts);
        }
    }
    shape
}

/// Bytes that the first rank holds of parameters, each counted once.
pub fn local_bytes(model: &Model, checked: &Checked, of: impl IntoIterator<Item = ParameterId>) -> u64 {
    let distinct: BTreeSet<ParameterId> = of.into_iter().collect();
    let bytes = |id: ParameterId| {
        let elements: i64 = local(model, checked, id).iter().product();
        elements as u64 * model.parameter(id).dtype.bytes()
    };
    distinct.into_iter().map(bytes).sum()
}

/// Ranks of the mesh.
pub fn world(checked: &Checked) -> i64 {
    checked.effects.axes.iter().map(|axis| axis.size).product()
}

/// `64.0 KiB`, or `32.0 KiB on each rank`
fn on_each(checked: &Checked, bytes: u64) -> String {
    let bytes = units::bytes(bytes);
    if world(checked) > 1 { format!("{bytes} on each rank") } else { bytes }
}

/// "`dp` R, `tp` S(1)"
fn by_axis(checked: &Checked, layouts: impl Iterator<Item = String>) -> String {
    let axes = checked.effects.axes.iter().zip(layouts);
    axes.map(|(axis, layout)| format!("`{}` {layout}", axis.name)).collect::<Vec<_>>().join(", ")
}

/// How a parameter is held: by axis, and in bytes.
fn held(model: &Model, checked: &Checked, id: ParameterId) -> String {
    let effects = &checked.effects;
    let layout = |axis| {
        let shard = effects.shards.iter().find(|shard| shard.parameter == id && shard.axis == axis);
        shard.map_or(Layout::Replicated, Shard::layout).to_string()
    };
    let axes = by_axis(checked, (0..effects.axes.len()).map(layout));
    let bytes = on_each(checked, local_bytes(model, checked, [id]));
    if axes.is_empty() { bytes } else { format!("{axes}: {bytes}") }
}

/// How ranks hold the values that a query such as `output` names, as Markdown.
pub fn points(
    model: &Model,
    checked: &Checked,
    compiled: &Compiled,
    selected: &Selected,
    query: Query,
) -> Option<String> {
    let forward = forward(compiled);
    let holdings = Holdings::new(model, compiled, &forward);
    let values = |place: &Place| match (query, *place) {
        (Query::Input, Place::Module(id)) => holdings.border(id, true),
        (Query::Output, Place::Module(id)) => holdings.border(id, false),
        (Query::Grad, Place::Parameter { id, .. }) => holdings.gradient(id).into_iter().collect(),
        _ => Vec::new(),
    };
    let found: Vec<(&Place, Vec<Held>)> = selected.places.iter().map(|place| (place, values(place))).collect();
    let (first, all) = (found.first()?, found.len());
    if found.iter().all(|(_, values)| *values == first.1) {
        let lines: Vec<String> = first.1.iter().map(|one| format!("* {}", value(checked, one))).collect();
        let head = if all > 1 { format!("At each of {}:\n\n", counted(&selected.places)) } else { String::new() };
        return (!lines.is_empty()).then(|| head + &lines.join("\n"));
    }
    let lines = found.iter().take(SHOWN).flat_map(|(place, values)| {
        values.iter().map(|one| format!("* `{}` {}", path(model, **place), value(checked, one)))
    });
    let rest = (all > SHOWN).then(|| format!("* … and {} more", all - SHOWN));
    Some(lines.chain(rest).collect::<Vec<_>>().join("\n"))
}

/// "output \[8, 64, 256] f32, \[8, 64, 128] on each rank; `tp` S(2): 256.0 KiB on each rank"
fn value(checked: &Checked, held: &Held) -> String {
    let Held { what, dtype, shape, local, layouts } = held;
    let local = if shape == local { String::new() } else { format!(", {local:?} on each rank") };
    let axes = by_axis(checked, layouts.iter().cloned());
    let bytes = on_each(checked, held.bytes());
    let how = if axes.is_empty() { bytes } else { format!("{axes}: {bytes}") };
    format!("{what} {shape:?} {dtype}{local}; {how}")
}

/// Everything about what an expression leads to, as Markdown.
pub fn selected(model: &Model, checked: &Checked, selected: &Selected) -> String {
    match (selected.extent, selected.places.as_slice()) {
        (_, []) => "Nothing in the model.".to_owned(),
        (Extent::One, [place]) => one(model, checked, *place),
        (Extent::Some, [place]) => one(model, checked, *place),
        (extent, places) => {
            let head = match extent {
                Extent::Some => format!("One or some of {}:", counted(places)),
                _ => format!("{}:", counted(places)),
            };
            let lines = places.iter().take(SHOWN).map(|place| format!("* {}", line(model, checked, *place)));
            let more = places.len().saturating_sub(SHOWN);
            let rest = (more > 0).then(|| format!("* … and {more} more"));
            format!("{head}\n\n{}", lines.chain(rest).collect::<Vec<_>>().join("\n"))
        }
    }
}

/// `4 modules`
pub fn counted(places: &[Place]) -> String {
    let modules = places.iter().filter(|place| place.module().is_some()).count();
    let noun = match modules {
        0 => "parameter",
        all if all == places.len() => "module",
        _ => "part",
    };
    format!("{} {noun}{}", places.len(), if places.len() == 1 { "" } else { "s" })
}

fn line(model: &Model, checked: &Checked, place: Place) -> String {
    let path = path(model, place);
    let what = shapes(model, checked, place).unwrap_or_else(|| class(model, place));
    format!("`{path}` {what}")
}

fn path(model: &Model, place: Place) -> String {
    match place.path(model) {
        path if path.is_empty() => "(model)".to_owned(),
        path => path,
    }
}

/// `[96, 32] f32, [48, 32] on each rank`
fn shapes(model: &Model, checked: &Checked, place: Place) -> Option<String> {
    let whole = tensor(model, place)?;
    Some(match place {
        Place::Parameter { id, .. } => match local(model, checked, id) {
            local if local == model.parameter(id).shape => whole,
            local => format!("{whole}, {local:?} on each rank"),
        },
        _ => whole,
    })
}

fn one(model: &Model, checked: &Checked, place: Place) -> String {
    let mut lines = vec![format!("`{}` **{}**", path(model, place), class(model, place))];
    if let Some(shapes) = shapes(model, checked, place) {
        let roles = place.roles(model).iter().map(|role| format!("`{role}`")).collect::<Vec<_>>().join(", ");
        lines.push(if roles.is_empty() { shapes } else { format!("{shapes}; dimensions {roles}") });
    }
    if let Place::Parameter { id, .. } = place {
        lines.push(held(model, checked, id));
    }
    let source = origin::line(model, place);
    let source = source.map(|line| format!("`{}` at {}:{}", line.text.trim(), line.file, line.line));
    let Place::Module(id) = place else {
        lines.extend(source);
        lines.extend(steps(checked, place));
        return lines.join("\n\n");
    };
    let module = model.module(id);
    let own = module.parameters.iter().map(|(name, _)| name).chain(module.buffers.iter().map(|(name, _)| name));
    let own = own.filter_map(|name| Some(format!("* `{name}` {}", shapes(model, checked, place.named(model, name)?)?)));
    let own: Vec<String> = own.collect();
    if !own.is_empty() {
        lines.push(own.join("\n"));
    }
    let children = place.children(model);
    if !children.is_empty() {
        let shown = children.iter().filter_map(|child| child.module()).take(SHOWN);
        let shown =
            shown.map(|child| format!("* `{}` {}", model.module(child).name, class(model, Place::Module(child))));
        let more = children.len().saturating_sub(SHOWN);
        let rest = (more > 0).then(|| format!("* … and {more} more"));
        lines.push(shown.chain(rest).collect::<Vec<_>>().join("\n"));
    }
    let numbers = |id: ParameterId| model.parameter(id).shape.iter().product::<i64>();
    let all: i64 = place.parameters(model).into_iter().map(numbers).sum();
    if all > 0 {
        let bytes = on_each(checked, local_bytes(model, checked, place.parameters(model)));
        lines.push(format!("{all} parameters in all: {bytes}"));
    }
    lines.extend(source);
    lines.extend(steps(checked, place));
    lines.join("\n\n")
}

/// The steps on a place.
fn steps(checked: &Checked, place: Place) -> Option<String> {
    let on = checked.steps.iter().filter(|step| step.target.place.identity() == place.identity());
    let all: Vec<String> = on.map(|step| format!("* `{step}`")).collect();
    let more = all.len().saturating_sub(SHOWN);
    let rest = (more > 0).then(|| format!("* … and {more} more"));
    let shown = all.into_iter().take(SHOWN).chain(rest);
    let shown: Vec<String> = shown.collect();
    (!shown.is_empty()).then(|| format!("Steps:\n\n{}", shown.join("\n")))
}
