//! One file per subcommand. A command takes its arguments and the output, and returns how slapoc exits.

pub mod apply;
pub mod check;
pub mod doctor;
pub mod explain;
mod fix;
pub mod fmt;
pub mod inspect;
pub mod shell;
pub mod train;
pub mod verify;

use crate::args::{Args, Command};
use crate::failure::{Exit, Result};
use crate::lsp;
use crate::output::Output;

pub fn run(args: &Args, out: &Output) -> Result<Exit> {
    // These print what other programs read, whatever the format of messages.
    if !matches!(args.command, Command::Completions(_) | Command::Man | Command::Lsp(_)) {
        out.begin()?;
    }
    match &args.command {
        Command::Check(args) => check::run(args, out),
        Command::Apply(args) => apply::run(args, out),
        Command::Train(args) => train::run(args, out),
        Command::Verify(args) => verify::run(args, out),
        Command::Inspect(args) => inspect::run(args, out),
        Command::Fmt(args) => fmt::run(args, out),
        Command::Explain(args) => explain::run(args, out),
        Command::Doctor(args) => doctor::run(args, out),
        Command::Completions(args) => shell::completions(args, out),
        Command::Man => shell::man(out),
        Command::Lsp(_) => lsp::run(),
    }
}
