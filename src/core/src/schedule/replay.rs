//! Steps that were written down, applied again: without the schedule, but with every check.

use super::archives::Archives;
use super::points::Ports;
use super::recorded::RecordedMatch;
use super::select::Place;
use super::steps::{Argument, Chain, Site, Step, Target};
use crate::compile::{Effects, MeshAxis};
use crate::primitives::{self, Primitive, Refusal, State};
use serde::Deserialize;
use slapo_model::{InputSizes, Model};
use slapo_syntax::{FileId, Span};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// What replaying needs of a step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Recorded {
    pub id: u32,
    pub primitive: String,
    pub target: RecordedTarget,
    pub args: Vec<(String, Argument)>,
}

/// The path of a part of the model, or a match.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum RecordedTarget {
    Path(String),
    Match(RecordedMatch),
}

/// Why recorded steps cannot be applied to a model.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplayError {
    /// The text is no list of steps.
    Json(String),
    Primitive {
        step: u32,
        name: String,
    },
    Target {
        step: u32,
        path: String,
    },
    Argument {
        step: u32,
        name: String,
    },
    /// The primitive refuses the step on this model, in these words.
    Refused {
        step: u32,
        message: String,
    },
}

/// Applies steps written by [`super::to_json`] to `model` on a mesh of `axes`, checking each as if a schedule asked for it.
/// No step may need an archive: for these there is [`replay_with`].
pub fn replay(json: &str, model: &Model, sizes: Option<InputSizes>, axes: &[MeshAxis]) -> Result<Effects, ReplayError> {
    replay_with(json, model, sizes, axes, &Archives::default())
}

/// The same, with the archives that replacements come from.
pub fn replay_with(
    json: &str,
    model: &Model,
    sizes: Option<InputSizes>,
    axes: &[MeshAxis],
    archives: &Archives,
) -> Result<Effects, ReplayError> {
    let recorded: Vec<Recorded> = serde_json::from_str(json).map_err(|e| ReplayError::Json(e.to_string()))?;
    let mut state = State::new(Rc::new(Ports::new(model)), sizes, axes.to_vec()).with(archives.clone());
    for step in recorded {
        let step = restored(step, &state)?;
        if let Some(problem) = state.gone(step.target.place) {
            return Err(ReplayError::Refused { step: step.id, message: problem.message });
        }
        (step.primitive.check)(&state, &step).map_err(|refusal| {
            let (Refusal::NotApplicable(problem) | Refusal::Illegal(problem)) = refusal;
            ReplayError::Refused { step: step.id, message: problem.message }
        })?;
        state.apply(step);
    }
    state.effects.settle(model);
    Ok(state.effects)
}

/// A step as it was before it was written, less its place in the schedule.
fn restored(recorded: Recorded, state: &State) -> Result<Step, ReplayError> {
    let Recorded { id, primitive: name, target, args } = recorded;
    let Some(primitive) = primitives::find(&name) else {
        return Err(ReplayError::Primitive { step: id, name });
    };
    let target = self::target(target, primitive, state).map_err(|path| ReplayError::Target { step: id, path })?;
    let mut given = Vec::new();
    for parameter in primitive.params {
        let value = args.iter().find(|(name, _)| name == parameter.name).map(|(_, value)| value);
        match value.filter(|value| parameter.want.takes(value)) {
            Some(value) => given.push((parameter.name, value.clone())),
            None => return Err(ReplayError::Argument { step: id, name: parameter.name.to_string() }),
        }
    }
    if let Some((name, _)) = args.iter().find(|(name, _)| primitive.params.iter().all(|p| p.name != name)) {
        return Err(ReplayError::Argument { step: id, name: name.clone() });
    }
    let site = Site { span: Span::new(FileId(u32::MAX), 0, 0), file: Arc::from("steps"), line: id, column: 1 };
    Ok(Step { id, primitive, target, args: given, site, chain: Chain::default() })
}

/// What a step acts on, or the path of what the model does not have.
fn target(recorded: RecordedTarget, primitive: &Primitive, state: &State) -> Result<Target, String> {
    match recorded {
        RecordedTarget::Path(path) => {
            let point = state.ports.at(&path);
            let place = point.map(|point| point.of).or_else(|| Place::at(state.model, &path));
            match place.filter(|place| primitive.receiver.takes(*place, point.is_some(), false)) {
                Some(place) => Ok(Target { place, point, found: None, path }),
                None => Err(path),
            }
        }
        RecordedTarget::Match(recorded) => {
            let found = recorded.restored(state.model, state.graph().values.len());
            let path = recorded.path().to_string();
            match found.filter(|found| primitive.receiver.takes(Place::Module(found.within), false, true)) {
                Some(found) => {
                    let place = Place::Module(found.within);
                    Ok(Target { place, point: None, found: Some(Arc::new(found)), path })
                }
                None => Err(path),
            }
        }
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Json(error) => write!(f, "not a list of steps: {error}"),
            ReplayError::Primitive { step, name } => write!(f, "step {step}: `{name}` is not a primitive"),
            ReplayError::Target { step, path } => write!(f, "step {step}: the model has nothing fitting at `{path}`"),
            ReplayError::Argument { step, name } => write!(f, "step {step}: argument `{name}` does not fit"),
            ReplayError::Refused { step, message } => write!(f, "step {step}: {message}"),
        }
    }
}

impl std::error::Error for ReplayError {}
