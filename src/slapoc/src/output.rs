//! Where everything that slapoc says goes: results to standard output, the rest to standard error.
//!
//! No other file prints. Diagnostics are rendered by `render`; here is decided whether, where and in which format.

use crate::args::{Color, Global, MessageFormat};
use crate::failure::{Failure, Result};
use crate::render::{self, Style};
use serde::Serialize;
use slapo_syntax::{Diagnostic, Severity, SourceMap};
use std::io::{self, ErrorKind, IsTerminal, Write};

pub struct Output {
    format: MessageFormat,
    color: bool,
    quiet: bool,
    verbose: bool,
    progress: bool,
}

impl Output {
    pub fn new(global: &Global) -> Output {
        let terminal = io::stderr().is_terminal();
        Output {
            format: global.message_format,
            color: match global.color {
                Color::Always => true,
                Color::Never => false,
                Color::Auto => colors_wanted(terminal),
            },
            quiet: global.quiet,
            verbose: global.verbose,
            progress: terminal && !global.no_progress && !global.quiet && global.message_format != MessageFormat::Json,
        }
    }

    pub fn is_json(&self) -> bool {
        self.format == MessageFormat::Json
    }

    /// Whether something may move on the terminal.
    pub fn animates(&self) -> bool {
        self.progress
    }

    /// A result, with its line end.
    pub fn result(&self, text: &str) -> Result<()> {
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        written.map_err(|e| match e.kind() {
            ErrorKind::BrokenPipe => Failure::nobody_listens(),
            _ => Failure::not_done(format!("cannot write to standard output: {}", crate::load::reason(&e))),
        })
    }

    /// A result as one line of JSON. `kind` becomes the field `type`.
    pub fn record(&self, kind: &str, content: &impl Serialize) -> Result<()> {
        self.result(&format!("{}\n", record(kind, content)))
    }

    /// Something to know, on standard error.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            say(text);
        }
    }

    /// Something to know for those who asked for more.
    pub fn detail(&self, text: &str) {
        if self.verbose {
            say(text);
        }
    }

    /// All diagnostics of a run and the closing line.
    pub fn diagnostics(&self, files: &SourceMap, diagnostics: &[Diagnostic]) -> Result<()> {
        let wanted = |d: &&Diagnostic| !self.quiet || d.severity == Severity::Error;
        let shown: Vec<&Diagnostic> = diagnostics.iter().filter(wanted).collect();
        let style = Style { color: self.color };
        for diagnostic in &shown {
            match self.format {
                MessageFormat::Human => say(&render::human::diagnostic(files, diagnostic, style)),
                MessageFormat::Short => say(&render::short::diagnostic(files, diagnostic)),
                MessageFormat::Json => self.record("diagnostic", &render::json::diagnostic(files, diagnostic))?,
                MessageFormat::Github => self.result(&render::github::diagnostic(files, diagnostic))?,
            }
        }
        let closing = render::closing(&shown, style);
        if let (MessageFormat::Human | MessageFormat::Short, Some(line)) = (self.format, closing) {
            say(&line);
        }
        Ok(())
    }

    /// Why the command ends.
    pub fn failure(&self, failure: &Failure) {
        self.outside_of_schedules(Severity::Error, failure);
    }

    /// Something that is likely wrong, and not in a schedule.
    pub fn warning(&self, warning: &Failure) {
        if !self.quiet {
            self.outside_of_schedules(Severity::Warning, warning);
        }
    }

    /// Nothing is left to do where this cannot be said.
    fn outside_of_schedules(&self, severity: Severity, failure: &Failure) {
        if failure.message.is_empty() {
            return;
        }
        let style = Style { color: self.color };
        let _ = match self.format {
            MessageFormat::Human => return say(&render::human::failure(severity, failure, style)),
            MessageFormat::Short => return say(&render::short::failure(severity, failure)),
            MessageFormat::Json => self.record("diagnostic", &render::json::failure(severity, failure)),
            MessageFormat::Github => self.result(&render::github::failure(severity, failure)),
        };
    }
}

/// `{"type":"step","step":1,…}`
pub fn record(kind: &str, content: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Record<'a, T> {
        #[serde(rename = "type")]
        kind: &'a str,
        #[serde(flatten)]
        content: &'a T,
    }
    serde_json::to_string(&Record { kind, content }).expect("records have string keys")
}

/// Standard error may be closed; that changes nothing.
fn say(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
    if !text.ends_with('\n') {
        let _ = stderr.write_all(b"\n");
    }
}

/// <https://no-color.org> and CLICOLOR_FORCE.
fn colors_wanted(terminal: bool) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if set("NO_COLOR") {
        return false;
    }
    let forced = std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0");
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    forced || terminal && !dumb
}
