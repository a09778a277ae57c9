//! Why a command ends without having done its job, and the exit codes.
//!
//! A [`Failure`] is about the job: files, usage, workers. What is wrong *in* a user's schedule is a
//! [`slapo_syntax::Diagnostic`], which has a place.

use slapo_syntax::{Code, ModelExcerpt};
use std::fmt::Display;
use std::process::ExitCode;

/// The worst comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    Done,
    /// Errors in the user's schedule.
    Findings,
    /// Usage, missing or broken files, no worker.
    NotDone,
    WorkerFailed,
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Done => 0,
            Exit::Findings => 1,
            Exit::NotDone => 2,
            Exit::WorkerFailed => 3,
            Exit::Interrupted => 130,
        })
    }
}

/// Boxed wherever it is returned: it is large, and rare.
#[derive(Clone, Debug)]
pub struct Failure {
    pub exit: Exit,
    /// Absent for usage, which `--help` explains, and for interrupts.
    pub code: Option<Code>,
    /// One line that stands alone; empty where there is nobody to tell.
    pub message: String,
    pub notes: Vec<String>,
    pub helps: Vec<String>,
    /// The model's own line that it happened on.
    pub excerpt: Option<ModelExcerpt>,
}

pub type Result<T> = std::result::Result<T, Box<Failure>>;

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Box<Failure> {
        Box::new(Failure {
            exit,
            code: None,
            message: message.into(),
            notes: Vec::new(),
            helps: Vec::new(),
            excerpt: None,
        })
    }

    /// The job could not be done as it was asked for.
    pub fn usage(message: impl Into<String>) -> Box<Failure> {
        Failure::new(Exit::NotDone, message)
    }

    /// The job could not be done, for a reason that `slapoc explain` explains.
    pub fn not_done(code: Code, message: impl Into<String>) -> Box<Failure> {
        Failure::new(Exit::NotDone, message).code(code)
    }

    /// The worker is to blame, or what it met.
    pub fn worker(code: Code, message: impl Into<String>) -> Box<Failure> {
        Failure::new(Exit::WorkerFailed, message).code(code)
    }

    /// Whoever read standard output has gone: nothing is wrong.
    pub fn nobody_listens() -> Box<Failure> {
        Failure::new(Exit::Done, "")
    }

    fn code(mut self: Box<Self>, code: Code) -> Box<Failure> {
        self.code = Some(code);
        self
    }

    pub fn note(mut self: Box<Self>, text: impl Into<String>) -> Box<Failure> {
        self.notes.push(text.into());
        self
    }

    pub fn help(mut self: Box<Self>, text: impl Into<String>) -> Box<Failure> {
        self.helps.push(text.into());
        self
    }
}

/// Says what was being done when an error came.
pub trait Context<T> {
    /// For what goes wrong with files.
    fn context(self, code: Code, doing: impl Display) -> Result<T>;

    /// For what does not go wrong, such as writing JSON into memory.
    fn unexpected(self, doing: impl Display) -> Result<T>;
}

impl<T, E: Display> Context<T> for std::result::Result<T, E> {
    fn context(self, code: Code, doing: impl Display) -> Result<T> {
        self.map_err(|e| Failure::not_done(code, format!("cannot {doing}: {e}")))
    }

    fn unexpected(self, doing: impl Display) -> Result<T> {
        self.map_err(|e| Failure::usage(format!("cannot {doing}: {e}")))
    }
}
