//! Running `slapoc` from the repository's root, or as the pages of `slapoc explain` do, and what it leaves.

use slapo_syntax::Code;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// What one run left.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// `slapoc` with nothing of the user's own settings.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slapoc"));
    command.args(args).current_dir(root());
    for name in ["NO_COLOR", "CLICOLOR_FORCE", "RUST_BACKTRACE"] {
        command.env_remove(name);
    }
    command
}

pub fn run(args: &[&str]) -> Run {
    command(args).output().expect("slapoc starts").into()
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        let text = |bytes| String::from_utf8(bytes).expect("slapoc writes UTF-8");
        Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Run {
    pub fn expect(self, code: i32) -> Run {
        assert_eq!(self.code, Some(code), "\n{}\n{}", self.stdout, self.stderr);
        self
    }
}

/// The text of the fenced block with this info string.
pub fn block<'p>(page: &'p str, info: &str) -> Option<&'p str> {
    let start = page.find(&format!("```{info}\n"))? + info.len() + 4;
    let end = start + page[start..].find("```")?;
    Some(&page[start..end])
}

/// Runs the commands of a code's page in a folder of its own with a schedule, its model and a text: the erroneous ones
/// must give that code, the repaired ones must succeed. With `say`, the worker is a [`stand_in`].
pub fn try_page(code: Code, say: Option<&str>) {
    let page = code.page();
    let fail = block(page, "sh,fail").unwrap_or_else(|| panic!("{code} has no failing example"));
    let ok = block(page, "sh,ok").unwrap_or_else(|| panic!("{code} has no repaired example"));
    let failing = shell(fail, say);
    assert!(failing.code != Some(0) && failing.stderr.contains(&format!("error[{code}]: ")), "{code}: {failing:?}");
    shell(ok, say).expect(0);
}

fn shell(script: &str, say: Option<&str>) -> Run {
    let folder = TempDir::new().expect("a folder");
    let copy = |from: &str, to: &str| fs::copy(root().join(from), folder.path().join(to)).expect("copies");
    copy("examples/gpt2/gpt2-tiny.pt2", "gpt2.pt2");
    copy("examples/gpt2/corpus.txt", "corpus.txt");
    let schedule = "model \"gpt2.pt2\"\ninput { batch = 8, seq = 64 }\n\nschedule main(m: GPT2LMHeadModel) { }\n";
    fs::write(folder.path().join("gpt2.slapo"), schedule).expect("writes");
    let own = Path::new(env!("CARGO_BIN_EXE_slapoc")).parent().expect("a folder").display().to_string();
    let path = format!("{own}:{}", std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", script]).current_dir(folder.path()).env("PATH", path);
    if let Some(say) = say {
        shell.env("SLAPO_WORKER", stand_in()).env("SAY", say);
    }
    shell.output().expect("sh starts").into()
}

/// An executable in the worker's place, which does what the variable `SAY` of its environment says in shell.
pub fn stand_in() -> PathBuf {
    root().join("tests/cli/stand-in.sh")
}
