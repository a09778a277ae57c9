//! Answers for a cursor in a text: `|` marks it.

mod completing;
mod hovering;
mod marking;
mod naming;
mod robust;

use slapo_core::schedule::{Found as Module, Modules, Overrides};
use slapo_ide::{Found, Snapshot};
use slapo_model::{Model, import};
use slapo_syntax::Parse;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Goes before every text that has a `main`.
const HEAD: &str = "\
use std.parallel.{column, row, vocab}

model \"gpt2-tiny.pt2\"
input { batch = 8, seq = 64 }
mesh { dp = 2, tp = 2 }

";

const BLOCKS: &str = "\
## Its weight in two.
schedule halves(l: Linear, over: axis) {
    l.weight.shard(out, over: over)
}

## As published.
pattern gelu_new(x) = 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ^ 3)))

type Mlp = { c_fc: Linear }
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
    snapshot_on(text, Found { current, ..Found::default() })
}

/// The snapshot of a text beside the module `own/blocks.slapo`, with no flags.
fn snapshot_on(text: &str, found: Found) -> Snapshot {
    let modules = |parse: &Parse| {
        Modules::gather(Some("main"), parse, |path| match path {
            "own/blocks" => Module::Text { name: "/own/blocks.slapo".to_owned(), text: BLOCKS.into() },
            _ => Module::Nothing { reason: None, beside: Vec::new() },
        })
    };
    Snapshot::new("main.slapo", text, |_| found, modules, |_| Overrides::default(), |found| found)
}

/// A schedule whose `main` has these statements.
fn main_of(statements: &str) -> String {
    format!("{HEAD}schedule main(m: GPT2LMHeadModel) {{\n    {statements}\n}}\n")
}
