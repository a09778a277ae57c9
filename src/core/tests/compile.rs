//! Every committed archive compiles to a program that the validator accepts, with and without micro-batches.

use slapo_core::compile::{Compiled, Effects, Options, compile};
use slapo_model::{InputSizes, Model, import};
use std::path::{Path, PathBuf};

fn archive(path: &str) -> Model {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    import(&bytes).unwrap_or_else(|e| panic!("{}: {e:?}", path.display()))
}

fn compiled(path: &str, micro_batches: u32) -> Compiled {
    let model = archive(path);
    let effects = Effects { micro_batches, ..Effects::default() };
    let sizes = InputSizes { batch: 4, seq: Some(7) };
    compile(&model, &sizes, &effects, &Options::default()).unwrap_or_else(|e| panic!("{path}: {e:?}"))
}

const ARCHIVES: [&str; 4] =
    ["examples/gpt2/gpt2-tiny.pt2", "tests/data/gpt2-odd.pt2", "tests/data/bert-tiny.pt2", "tests/data/opt-tiny.pt2"];

#[test]
fn programs_are_valid() {
    for path in ARCHIVES {
        for micro_batches in [1, 2, 4] {
            let program = compiled(path, micro_batches).program;
            assert_eq!(slapo_program::validate(&program), [], "{path}, {micro_batches} micro-batches\n{program}");
        }
    }
}
