//! The table of lints: what is allowed and probably not meant. A row gives a code its name for `-A`, `-W` and `-D`.
//!
//! A lint is found as a [warning](crate::Severity::Warning), always; whether it is shown, and whether it counts as an
//! error, is up to whoever asked.

use crate::code::Code;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lint {
    pub code: Code,
    /// `unused-import`
    pub name: &'static str,
    /// Whether it is shown unless asked otherwise.
    pub is_on: bool,
}

const fn on(code: Code, name: &'static str) -> Lint {
    Lint { code, name, is_on: true }
}

const fn off(code: Code, name: &'static str) -> Lint {
    Lint { code, name, is_on: false }
}

impl Lint {
    /// Every lint, in the order of the codes.
    pub const ALL: &[Lint] = &[
        on(Code::IgnoredInput, "ignored-input"),
        on(Code::UnusedImport, "unused-import"),
        on(Code::UnusedLet, "unused-let"),
        on(Code::UnusedParameter, "unused-parameter"),
        on(Code::UnusedSchedule, "unused-schedule"),
        on(Code::IdleAxis, "idle-axis"),
        on(Code::IdleCheckpoint, "idle-checkpoint"),
        on(Code::SeparateSyncs, "separate-syncs"),
        off(Code::WholeParameters, "whole-parameters"),
        on(Code::UnevenPieces, "uneven-pieces"),
    ];

    /// Finds a lint by its name or its code's id, in either case.
    pub fn find(name: &str) -> Option<Lint> {
        let is_it = |lint: &&Lint| lint.name.eq_ignore_ascii_case(name) || Code::parse(name) == Some(lint.code);
        Lint::ALL.iter().find(is_it).copied()
    }

    pub fn of(code: Code) -> Option<Lint> {
        Lint::ALL.iter().find(|lint| lint.code == code).copied()
    }
}
