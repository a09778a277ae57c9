//! Which warnings are shown, and which count as errors: `-A`, `-W` and `-D`.
//!
//! What names a lint goes before what names all of them, wherever it stands on the command line.

use crate::args;
use crate::failure::{Failure, Result};
use slapo_syntax::{Code, Diagnostic, Lint, Severity};
use std::collections::BTreeMap;

/// Stands for every lint that is on.
const ALL: &str = "warnings";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Allow,
    Warn,
    Deny,
}

#[derive(Debug, Default)]
pub struct Levels {
    of_all: Option<Level>,
    of_one: BTreeMap<Code, Level>,
}

impl Levels {
    pub fn new(args: &args::Levels) -> Result<Levels> {
        let mut levels = Levels::default();
        let given = [(&args.allow, Level::Allow), (&args.warn, Level::Warn), (&args.deny, Level::Deny)];
        for (name, level) in given.into_iter().flat_map(|(names, level)| names.iter().map(move |name| (name, level))) {
            let before = match (name.eq_ignore_ascii_case(ALL), Lint::find(name)) {
                (true, _) => levels.of_all.replace(level),
                (false, Some(lint)) => levels.of_one.insert(lint.code, level),
                (false, None) => return Err(unknown(name)),
            };
            if before.is_some_and(|before| before != level) {
                return Err(Failure::usage(format!("`{name}` is given two levels")));
            }
        }
        Ok(levels)
    }

    /// The diagnostics that are to be shown, as severe as was asked for. Errors stay.
    pub fn applied(&self, diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
        diagnostics.into_iter().filter_map(|diagnostic| self.leveled(diagnostic)).collect()
    }

    fn leveled(&self, mut diagnostic: Diagnostic) -> Option<Diagnostic> {
        if diagnostic.severity != Severity::Warning {
            return Some(diagnostic);
        }
        match self.level(diagnostic.code) {
            Level::Allow => return None,
            Level::Warn => {}
            Level::Deny => diagnostic.severity = Severity::Error,
        }
        Some(diagnostic)
    }

    fn level(&self, code: Code) -> Level {
        let is_on = Lint::of(code).is_none_or(|lint| lint.is_on);
        let general = if is_on { self.of_all.unwrap_or(Level::Warn) } else { Level::Allow };
        self.of_one.get(&code).copied().unwrap_or(general)
    }
}

fn unknown(name: &str) -> Box<Failure> {
    let failure = Failure::usage(format!("there is no lint `{name}`"));
    let failure = match Code::parse(name) {
        Some(code) => failure.note(format!("{code} is an error, which cannot be allowed")),
        None => failure,
    };
    let names: Vec<&str> = Lint::ALL.iter().map(|lint| lint.name).collect();
    failure.help(format!("lints are {}; `{ALL}` stands for all that are on", names.join(", ")))
}
