//! The command line of the compiler: everything that reads, writes, prints or starts a process.
//!
//! Decides nothing about schedules, models or programs; the other crates do. Read `args` for what there is, `commands`
//! for what it does, `failure` for how it exits.

mod args;
mod blame;
mod commands;
mod compare;
mod failure;
mod launch;
mod launcher;
mod levels;
mod load;
mod lsp;
mod output;
mod prepare;
mod ranks;
mod render;
mod report;
mod rewrite;
mod sample;
mod training;
mod units;

use clap::Parser;
use failure::{Context, Result};
use output::Output;
use std::panic::PanicHookInfo;
use std::process::ExitCode;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(report_bug));
    let args = args::Args::parse();
    let out = Output::new(&args.global);
    let ran = enter(&args.global).and_then(|()| commands::run(&args, &out));
    let exit = ran.unwrap_or_else(|failure| {
        out.failure(&failure);
        failure.exit
    });
    out.close(None);
    exit.into()
}

fn enter(global: &args::Global) -> Result<()> {
    let Some(folder) = &global.directory else { return Ok(()) };
    std::env::set_current_dir(folder)
        .map_err(|e| load::reason(&e))
        .unexpected(format!("change to the folder `{}`", folder.display()))
}

/// A panic is a bug of slapoc, never the user's fault. The exit code is then 101.
fn report_bug(info: &PanicHookInfo) {
    use std::io::Write;
    let message = info.payload_as_str().unwrap_or("no message");
    let place = info.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
    let command: Vec<String> = std::env::args().collect();
    let _ = writeln!(
        std::io::stderr(),
        "slapoc {} has a bug: {message}\n  at {place}\n  \
         Please report it with this command, its files, and what `slapoc doctor` prints:\n    {}\n  \
         RUST_BACKTRACE=1 shows more.",
        env!("CARGO_PKG_VERSION"),
        command.join(" ")
    );
    let trace = std::backtrace::Backtrace::capture();
    if trace.status() == std::backtrace::BacktraceStatus::Captured {
        let _ = writeln!(std::io::stderr(), "{trace}");
    }
}
