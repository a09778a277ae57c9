//! `slapoc completions` and `slapoc man`: the command line's own definitions for other programs.

use crate::args::{Args, Completions};
use crate::failure::{Context, Exit, Result};
use crate::output::Output;
use clap::CommandFactory;

pub fn completions(args: &Completions, out: &Output) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "slapoc", &mut script);
    out.result(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}

/// The page of slapoc, then those of its commands, each a complete roff document.
pub fn man(out: &Output) -> Result<Exit> {
    let mut command = Args::command();
    command.build();
    let mut pages = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut pages).unexpected("write the manual")?;
    for subcommand in command.get_subcommands() {
        clap_mangen::Man::new(subcommand.clone()).render(&mut pages).unexpected("write the manual")?;
    }
    out.result(&String::from_utf8_lossy(&pages))?;
    Ok(Exit::Done)
}
