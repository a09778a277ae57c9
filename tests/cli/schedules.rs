//! Running `slapoc` on texts, and runs as snapshots.

use crate::support::{Run, command, root};
use tempfile::TempDir;

/// Runs on a schedule of that text, which stands alone in a folder with a copy of the small GPT-2 as `model.pt2`.
pub fn run_on(text: impl AsRef<[u8]>, args: &[&str]) -> Run {
    let folder = folder(text);
    command(args).current_dir(folder.path()).output().expect("slapoc starts").into()
}

pub fn folder(text: impl AsRef<[u8]>) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("main.slapo"), text).expect("writes");
    std::fs::copy(root().join("examples/gpt2/gpt2-tiny.pt2"), folder.path().join("model.pt2")).expect("copies");
    folder
}

impl Run {
    /// Everything there is to see.
    pub fn shown(&self) -> String {
        let code = self.code.map_or("killed".to_owned(), |code| code.to_string());
        format!("exit code {code}\n--- stdout\n{}--- stderr\n{}", self.stdout, self.stderr)
    }
}
