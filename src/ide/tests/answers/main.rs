//! Answers for a cursor in a text: `|` marks it.

mod completing;
mod hovering;
mod marking;
mod naming;
mod robust;

use slapo_core::schedule::Modules;
use slapo_ide::{Found, Snapshot};
use slapo_model::{Model, import};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Goes before every text that has a `main`.
const HEAD: &str = "\
use std.parallel.{column, row, vocab}

model \"gpt2-tiny.pt2\"
input { batch = 8, seq = 64 }
mesh { dp = 2, tp = 2 }

";

fn model() -> Arc<Model> {
    static MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    let read = || {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gpt2/gpt2-tiny.pt2");
        Arc::new(import(&std::fs::read(path).expect("reads")).expect("imports"))
    };
    MODEL.get_or_init(read).clone()
}

/// The snapshot of a text without its marker, and where that was.
fn at(text: &str) -> (Snapshot, u32) {
    let offset = text.find('|').expect("a marker");
    (snapshot(&text.replacen('|', "", 1)), offset as u32)
}

fn snapshot(text: &str) -> Snapshot {
    let current = text.contains("\nmodel ").then(model);
    Snapshot::new("main.slapo", text, |_| Found { current, ..Found::default() }, |_| Modules::default())
}

/// A schedule whose `main` has these statements.
fn main_of(statements: &str) -> String {
    format!("{HEAD}schedule main(m: GPT2LMHeadModel) {{\n    {statements}\n}}\n")
}
