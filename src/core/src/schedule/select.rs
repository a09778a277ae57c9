//! Paths on a model: what a name or a wildcard leads to.
//!
//! Everything here is a question to the [`Model`]; messages are made where the schedule's text is known. Read [`Place`]
//! first.

use super::roles::{is_class, roles};
use super::types::{Field, Kind, PlaceKind, Structure, Want};
use slapo_model::{BufferId, Model, ModuleId, ParameterId};
use std::collections::BTreeSet;

/// One thing that a path leads to. A tied parameter is another place under each of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Module(ModuleId),
    /// By its owner on the path used, and its position among the owner's parameters.
    Parameter {
        module: ModuleId,
        slot: u32,
        id: ParameterId,
    },
    Buffer {
        module: ModuleId,
        slot: u32,
        id: BufferId,
    },
}

/// A field of a structure that a module does not have as the type says.
pub struct Missed<'s> {
    pub field: &'s Field,
    /// The module without it.
    pub of: Place,
    /// What is there instead.
    pub found: Option<Place>,
}

/// What a place is, whatever path leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    Module(ModuleId),
    Parameter(ParameterId),
    Buffer(BufferId),
}

impl Place {
    /// The place of a full dotted path.
    pub fn at(model: &Model, path: &str) -> Option<Place> {
        if let Some(module) = model.find(path) {
            return Some(Place::Module(module));
        }
        let (owner, name) = path.rsplit_once('.').unwrap_or(("", path));
        Place::Module(model.find(owner)?).named(model, name)
    }

    /// The thing itself: a tied parameter is the same under each of its names.
    pub fn identity(self) -> Identity {
        match self {
            Place::Module(id) => Identity::Module(id),
            Place::Parameter { id, .. } => Identity::Parameter(id),
            Place::Buffer { id, .. } => Identity::Buffer(id),
        }
    }

    /// The full dotted path; empty for the model itself.
    pub fn path(self, model: &Model) -> String {
        let (module, name) = match self {
            Place::Module(id) => return model.module(id).path.clone(),
            Place::Parameter { module, slot, .. } => (module, &model.module(module).parameters[slot as usize].0),
            Place::Buffer { module, slot, .. } => (module, &model.module(module).buffers[slot as usize].0),
        };
        match model.module(module).path.as_str() {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        }
    }

    /// The child, parameter or buffer of that name.
    pub fn named(self, model: &Model, name: &str) -> Option<Place> {
        let Place::Module(module) = self else { return None };
        let here = model.module(module);
        if let Some(child) = here.children.iter().find(|child| model.module(**child).name == name) {
            return Some(Place::Module(*child));
        }
        let position = |(known, _): &(String, _)| known == name;
        if let Some(slot) = here.parameters.iter().position(position) {
            return Some(Place::Parameter { module, slot: slot as u32, id: here.parameters[slot].1 });
        }
        let slot = here.buffers.iter().position(|(known, _)| known == name)?;
        Some(Place::Buffer { module, slot: slot as u32, id: here.buffers[slot].1 })
    }

    /// Every name that can follow the dot.
    pub fn names(self, model: &Model) -> Vec<&str> {
        let Place::Module(module) = self else { return Vec::new() };
        let here = model.module(module);
        let children = here.children.iter().map(|child| model.module(*child).name.as_str());
        let parameters = here.parameters.iter().map(|(name, _)| name.as_str());
        children.chain(parameters).chain(here.buffers.iter().map(|(name, _)| name.as_str())).collect()
    }

    pub fn children(self, model: &Model) -> Vec<Place> {
        match self {
            Place::Module(module) => model.module(module).children.iter().copied().map(Place::Module).collect(),
            _ => Vec::new(),
        }
    }

    /// Itself and every module below, in the model's order.
    pub fn below(self, model: &Model) -> Vec<Place> {
        let mut found = Vec::new();
        let mut todo = vec![self];
        while let Some(place) = todo.pop() {
            found.push(place);
            todo.extend(place.children(model).into_iter().rev());
        }
        found
    }

    /// Parameters at or below, each once, in the model's order.
    pub fn parameters(self, model: &Model) -> Vec<ParameterId> {
        match self {
            Place::Parameter { id, .. } => vec![id],
            Place::Buffer { .. } => Vec::new(),
            Place::Module(_) => {
                let modules = self.below(model).into_iter().filter_map(Place::module);
                let mut seen = BTreeSet::new();
                let all = modules.flat_map(|id| model.module(id).parameters.iter().map(|(_, id)| *id));
                all.filter(|id| seen.insert(*id)).collect()
            }
        }
    }

    pub fn module(self) -> Option<ModuleId> {
        match self {
            Place::Module(id) => Some(id),
            _ => None,
        }
    }

    /// `a module`, `a parameter`, `a buffer`
    pub fn noun(self) -> &'static str {
        match self {
            Place::Module(_) => "a module",
            Place::Parameter { .. } => "a parameter",
            Place::Buffer { .. } => "a buffer",
        }
    }

    pub fn kind(self) -> PlaceKind {
        match self {
            Place::Module(_) => PlaceKind::Module,
            _ => PlaceKind::Tensor,
        }
    }

    /// The shape of a parameter or buffer.
    pub fn shape(self, model: &Model) -> Option<&[i64]> {
        match self {
            Place::Module(_) => None,
            Place::Parameter { id, .. } => Some(&model.parameter(id).shape),
            Place::Buffer { id, .. } => model.buffers.get(id.0 as usize).map(|buffer| buffer.shape.as_slice()),
        }
    }

    /// Role names of its dimensions, as far as they have any.
    pub fn roles(self, model: &Model) -> &'static [&'static str] {
        let (module, name) = match self {
            Place::Module(_) => return &[],
            Place::Parameter { module, slot, .. } => (module, &model.module(module).parameters[slot as usize].0),
            Place::Buffer { module, slot, .. } => (module, &model.module(module).buffers[slot as usize].0),
        };
        roles(model.module(module).short_class(), name)
    }

    /// Whether it is what a class, a `type`, `Module` or `param` says.
    pub fn is(self, model: &Model, want: &Want) -> bool {
        if want.list {
            let one = Want::one(want.kind.clone());
            return self.kind() == PlaceKind::Module && self.children(model).iter().all(|child| child.is(model, &one));
        }
        match (&want.kind, self) {
            // That the type is not known is reported where it is named.
            (Kind::Unknown, _) | (Kind::Module, Place::Module(_)) => true,
            (Kind::Tensor, Place::Parameter { .. } | Place::Buffer { .. }) => true,
            (Kind::Class(name), Place::Module(id)) => is_class(&model.module(id).class, name),
            (Kind::Structure(structure), Place::Module(_)) => self.misses(model, structure).is_none(),
            _ => false,
        }
    }

    /// The first field of a structure that is absent here or is something else; of a structure in it, the field of that.
    pub fn misses<'s>(self, model: &Model, structure: &'s Structure) -> Option<Missed<'s>> {
        structure.fields.iter().find_map(|field| match self.named(model, &field.name) {
            Some(found) if found.is(model, &field.want) => None,
            Some(found) => match &field.want {
                Want { kind: Kind::Structure(inner), list: false } if found.module().is_some() => {
                    found.misses(model, inner)
                }
                Want { list: true, kind } => {
                    let one = Want::one(kind.clone());
                    let other = found.children(model).into_iter().find(|child| !child.is(model, &one));
                    match (other, kind) {
                        (Some(child), Kind::Structure(inner)) if child.module().is_some() => child.misses(model, inner),
                        _ => Some(Missed { field, of: self, found: Some(other.unwrap_or(found)) }),
                    }
                }
                _ => Some(Missed { field, of: self, found: Some(found) }),
            },
            None => (!field.is_optional).then_some(Missed { field, of: self, found: None }),
        })
    }
}

/// Answers that are worth keeping for a whole schedule.
pub struct Selector<'m> {
    pub model: &'m Model,
    /// Position of every module in the model's order.
    rank: Vec<u32>,
}

impl<'m> Selector<'m> {
    pub fn new(model: &'m Model) -> Selector<'m> {
        let mut rank = vec![u32::MAX; model.modules.len()];
        for (i, place) in Place::Module(ModuleId(0)).below(model).into_iter().enumerate() {
            if let Place::Module(id) = place {
                rank[id.0 as usize] = i as u32;
            }
        }
        Selector { model, rank }
    }

    /// Sorts into the model's order; a module, and a parameter under one of its names, is left only once.
    pub fn tidy(&self, places: &mut Vec<Place>) {
        let rank = |id: ModuleId| self.rank[id.0 as usize];
        places.sort_by_key(|place| match *place {
            Place::Module(id) => (rank(id), 0, 0),
            Place::Parameter { module, slot, .. } => (rank(module), 1, slot),
            Place::Buffer { module, slot, .. } => (rank(module), 2, slot),
        });
        let mut seen = BTreeSet::new();
        places.retain(|place| seen.insert(place.identity()));
    }

    /// Whether any module of the model is of that class.
    pub fn has_class(&self, name: &str) -> bool {
        self.model.modules.iter().any(|module| is_class(&module.class, name))
    }

    /// Short names of all classes, each once, in the model's order.
    pub fn classes(&self) -> Vec<&'m str> {
        let mut seen = BTreeSet::new();
        let names = self.model.modules.iter().map(|module| module.short_class());
        names.filter(|name| !name.is_empty() && seen.insert(*name)).collect()
    }
}

/// The dimension that a role names in a shape of `rank` dimensions.
pub fn dimension(roles: &[&str], rank: usize, name: &str) -> Option<usize> {
    roles.iter().position(|role| *role == name).filter(|dim| *dim < rank)
}

/// What can be asked for: ``its dimensions are `out` (96), `in` (32)``
pub fn dimensions(roles: &[&str], shape: &[i64]) -> String {
    let named = shape.iter().enumerate().map(|(at, size)| match roles.get(at) {
        Some(role) => format!("`{role}` ({size})"),
        None => format!("`{at}` ({size})"),
    });
    let named: Vec<String> = named.collect();
    match named.is_empty() {
        true => "it has no dimensions".to_string(),
        false => format!("its dimensions are {}", named.join(", ")),
    }
}

/// A full dotted path as a schedule writes it: `m.transformer.h[0].mlp` for `transformer.h.0.mlp`.
pub fn selector(model: &Model, path: &str) -> String {
    let mut out = "m".to_string();
    let mut above = "";
    for name in path.split('.').filter(|name| !name.is_empty()) {
        let here = &path[..name.as_ptr() as usize - path.as_ptr() as usize + name.len()];
        let siblings = model.find(above).map(|id| model.module(id).children.as_slice()).unwrap_or_default();
        let position = siblings.iter().position(|child| model.module(*child).path == here);
        let is_plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        out += &match position {
            Some(at) if name.parse() == Ok(at) => format!("[{at}]"),
            _ if is_plain => format!(".{name}"),
            _ => format!("[{name:?}]"),
        };
        above = here;
    }
    out
}
