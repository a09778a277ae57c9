//! Where everything that slapoc says goes: results to standard output, the rest to standard error.
//!
//! No other file prints. Diagnostics are rendered by `render`; here is decided whether, where and in which format.

use crate::args::{Color, Global, MessageFormat};
use crate::failure::{Failure, Result};
use crate::render::{self, Style, Tally};
use serde::Serialize;
use slapo_syntax::{Code, Diagnostic, Severity, SourceMap};
use std::cell::RefCell;
use std::io::{self, ErrorKind, IsTerminal, Write};

pub struct Output {
    format: MessageFormat,
    color: bool,
    quiet: bool,
    verbose: bool,
    progress: bool,
    /// Whether another process of the run says everything.
    mute: bool,
    /// What was shown since the last closing line.
    tally: RefCell<Tally>,
}

/// The first record of all JSON output.
#[derive(Serialize)]
pub struct Version {
    slapoc: &'static str,
    /// Of the records; a field or a record that is added does not change it.
    format: u32,
}

pub const VERSION: Version = Version { slapoc: env!("CARGO_PKG_VERSION"), format: 1 };

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
            mute: false,
            tally: RefCell::default(),
        }
    }

    /// For a process that is one rank of several: the first says what all have to say, failures aside.
    pub fn muted(&self) -> Output {
        let Output { format, color, verbose, .. } = *self;
        Output { format, color, quiet: true, verbose, progress: false, mute: true, tally: RefCell::default() }
    }

    /// To be called before anything else is said.
    pub fn begin(&self) -> Result<()> {
        if self.is_json() { self.record("version", &VERSION) } else { Ok(()) }
    }

    pub fn is_json(&self) -> bool {
        self.format == MessageFormat::Json
    }

    /// A schedule that is not in the one style.
    pub fn unformatted(&self, name: &str) -> Result<()> {
        match self.format {
            MessageFormat::Github => self.result(&render::github::unformatted(name)),
            _ => self.result(&format!("{name}\n")),
        }
    }

    /// Whether something may move on the terminal.
    pub fn animates(&self) -> bool {
        self.progress
    }

    /// A result, with its line end.
    pub fn result(&self, text: &str) -> Result<()> {
        if self.mute {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        written.map_err(|e| match e.kind() {
            ErrorKind::BrokenPipe => Failure::nobody_listens(),
            _ => Failure::not_done(
                Code::UnwritableFile,
                format!("cannot write to standard output: {}", crate::load::reason(&e)),
            ),
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

    /// What was found in one schedule and its model.
    pub fn diagnostics(&self, files: &SourceMap, diagnostics: &[Diagnostic]) -> Result<()> {
        let style = self.style();
        let diagnostics = if self.mute { &[] } else { diagnostics };
        for diagnostic in diagnostics.iter().filter(|d| !self.quiet || d.severity == Severity::Error) {
            match self.format {
                MessageFormat::Human => say(&render::human::diagnostic(files, diagnostic, style)),
                MessageFormat::Short => say(&render::short::diagnostic(files, diagnostic)),
                MessageFormat::Json => self.record("diagnostic", &render::json::diagnostic(files, diagnostic))?,
                MessageFormat::Github => self.result(&render::github::diagnostic(files, diagnostic))?,
            }
            self.tally.borrow_mut().add(diagnostic.severity, diagnostic.code);
        }
        Ok(())
    }

    /// Sums up for people what was shown, once. `among` says in how many of how many schedules that was.
    pub fn close(&self, among: Option<(usize, usize)>) {
        let closing = self.tally.take().closing(among, self.style());
        if let (MessageFormat::Human | MessageFormat::Short, Some(line)) = (self.format, closing) {
            say(&line);
        }
    }

    /// Why the command ends. Nothing is left to do where this cannot be said.
    pub fn failure(&self, failure: &Failure) {
        if failure.message.is_empty() {
            return;
        }
        let _ = match self.format {
            MessageFormat::Human => {
                say(&render::human::failure(failure, self.style()));
                Ok(())
            }
            MessageFormat::Short => {
                say(&render::short::failure(failure));
                Ok(())
            }
            MessageFormat::Json => self.record("diagnostic", &render::json::failure(failure)),
            MessageFormat::Github => self.result(&render::github::failure(failure)),
        };
        if let Some(code) = failure.code {
            self.tally.borrow_mut().add(Severity::Error, code);
        }
    }

    fn style(&self) -> Style {
        Style { color: self.color }
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
