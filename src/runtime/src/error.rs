//! What can go wrong in a worker, with everything that is known about where.

use slapo_program::{Event, FailureKind};
use std::fmt;

pub type Result<T> = std::result::Result<T, Error>;

/// Boxed content: the error travels through every call of the executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Content>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    kind: FailureKind,
    message: String,
    place: Option<Place>,
}

/// The instruction that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub function: String,
    pub instruction: usize,
    pub operator: String,
    /// Types of the tensor arguments, as `f32[2, 3]`.
    pub shapes: Vec<String>,
    pub module: Option<String>,
    pub source: Option<String>,
}

impl Error {
    /// The user's files do not fit the job.
    pub fn input(message: impl Into<String>) -> Error {
        Error::new(FailureKind::Input, message.into())
    }

    /// What ranks hold does not fit together.
    pub fn ranks(message: impl Into<String>) -> Error {
        Error::new(FailureKind::Ranks, message.into())
    }

    /// Something went wrong while running.
    pub fn run(message: impl Into<String>) -> Error {
        Error::new(FailureKind::Run, message.into())
    }

    /// Another rank is gone or does not answer: whatever happened, it did not happen here.
    pub fn peer(message: impl Into<String>) -> Error {
        Error::new(FailureKind::Peer, message.into())
    }

    fn new(kind: FailureKind, message: String) -> Error {
        Error(Box::new(Content { kind, message, place: None }))
    }

    /// Adds the place, unless one nearer to the cause is there.
    pub fn at(mut self, place: impl FnOnce() -> Place) -> Error {
        self.0.place.get_or_insert_with(place);
        self
    }

    /// Says which of several ranks it is that failed.
    pub fn of_rank(mut self, rank: usize) -> Error {
        self.0.message = format!("rank {rank}: {}", self.0.message);
        self
    }

    pub fn kind(&self) -> FailureKind {
        self.0.kind
    }

    pub fn place(&self) -> Option<&Place> {
        self.0.place.as_ref()
    }

    /// The event that reports it.
    pub fn event(&self) -> Event {
        let Content { kind, message, place } = &*self.0;
        let place = place.as_ref();
        Event::Failed {
            kind: *kind,
            message: message.clone(),
            function: place.map(|p| p.function.clone()),
            instruction: place.map(|p| p.instruction),
            operator: place.map(|p| p.operator.clone()),
            shapes: place.map(|p| p.shapes.clone()).unwrap_or_default(),
            module: place.and_then(|p| p.module.clone()),
            source: place.and_then(|p| p.source.clone()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(place) = &self.0.place {
            write!(
                f,
                " (`{}` on {}, instruction {} of `{}`)",
                place.operator,
                place.shapes.join(", "),
                place.instruction,
                place.function
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
