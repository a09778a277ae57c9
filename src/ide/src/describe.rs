//! Parts of a model in words: classes, shapes, what ranks hold.

use crate::select::{Extent, Selected};
use slapo_core::schedule::{Checked, Place};
use slapo_model::{Model, ParameterId};

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
        ("", []) => "an empty container".to_owned(),
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

/// What one rank holds of a parameter, where that is not the whole: `[32, 48]`; the most that one holds of pieces that
/// differ.
pub fn local(model: &Model, checked: &Checked, id: ParameterId) -> Option<Vec<i64>> {
    let mut shape = model.parameter(id).shape.clone();
    let mut is_split = false;
    for shard in checked.effects.shards.iter().filter(|shard| shard.parameter == id) {
        let parts = checked.effects.axes.get(shard.axis)?.size.max(1);
        let size = shape.get_mut(shard.dim)?;
        *size = (*size + parts - 1) / parts;
        is_split |= parts > 1;
    }
    is_split.then_some(shape)
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
    let local = match place {
        Place::Parameter { id, .. } => local(model, checked, id),
        _ => None,
    };
    Some(match local {
        Some(local) => format!("{whole}, {local:?} on each rank"),
        None => whole,
    })
}

fn one(model: &Model, checked: &Checked, place: Place) -> String {
    let mut lines = vec![format!("`{}` **{}**", path(model, place), class(model, place))];
    if let Some(shapes) = shapes(model, checked, place) {
        let roles = place.roles(model).iter().map(|role| format!("`{role}`")).collect::<Vec<_>>().join(", ");
        lines.push(if roles.is_empty() { shapes } else { format!("{shapes}; dimensions {roles}") });
    }
    let Place::Module(id) = place else {
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
        lines.push(format!("{all} parameters in all"));
    }
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
