//! The compiler's prediction of memory beside what the counting allocator sees, on whole training steps.
//!
//! The allocator counts the process. Of a simulated mesh it sees all ranks at once, which run every instruction one after the
//! other: their peaks are one moment, but for what each frees before the next begins, and the sum of the predictions is
//! what to compare with. One test, for the counters are the process' own.

#[path = "compiled/harness.rs"]
mod harness;

use harness::Case;
use slapo_core::memory::predict;
use slapo_program::Program;
use slapo_runtime::allocator;
use slapo_runtime::mesh::Mesh;

const TINY: &str = "examples/gpt2/gpt2-tiny.pt2";
const ODD: &str = "tests/data/gpt2-odd.pt2";
const BERT: &str = "tests/data/bert-tiny.pt2";
const OPT: &str = "tests/data/opt-tiny.pt2";

const BLOCKS: &str = "for b in m.transformer.h {
    column(b.attn.c_attn, over: tp, groups: 3)
    row(b.attn.c_proj, over: tp)
    column(b.mlp.c_fc, over: tp)
    row(b.mlp.c_proj, over: tp)
}";

/// Peak of the second step, in bytes: everything that is there once, is.
fn measured(case: &Case, programs: Vec<Program>) -> u64 {
    tch::set_num_threads(1);
    let before = allocator::read().current;
    let mut mesh = Mesh::new(programs).unwrap_or_else(|e| panic!("{e}"));
    mesh.load(Some(&case.archive), true).unwrap_or_else(|e| panic!("{e}"));
    mesh.setup().unwrap_or_else(|e| panic!("{e}"));
    let mut peak = 0;
    for step in 0..2 {
        for (global, tensor) in harness::batch(mesh.program()) {
            mesh.set_global(global, &tensor).unwrap_or_else(|e| panic!("{e}"));
        }
        allocator::reset_peak();
        mesh.begin_step(step).unwrap_or_else(|e| panic!("{e}"));
        for call in mesh.program().step.clone() {
            mesh.call(call).unwrap_or_else(|e| panic!("{e}"));
        }
        mesh.end_step();
        peak = allocator::read().peak - before;
    }
    peak
}

#[test]
fn the_predicted_peak_is_the_measured_one() {
    allocator::install();
    let data_parallel = format!("{BLOCKS}\nm.data_parallel(over: dp)");
    let cases = [
        ("GPT-2", TINY, "", ""),
        ("GPT-2, recomputed", TINY, "", "m.transformer.h.*.checkpoint()"),
        ("GPT-2, 4 micro-batches", TINY, "", "m.accumulate(steps: 4)"),
        ("GPT-2, both", TINY, "", "m.accumulate(steps: 2)\nm.transformer.h[..2].checkpoint()"),
        ("odd GPT-2", ODD, "", ""),
        ("odd GPT-2, head frozen", ODD, "", "m.lm_head.freeze()"),
        ("BERT", BERT, "", ""),
        ("BERT, recomputed", BERT, "", "m.bert.encoder.layer.*.checkpoint()"),
        ("OPT", OPT, "", ""),
        ("OPT, 2 micro-batches", OPT, "", "m.accumulate(steps: 2)"),
        ("GPT-2, tp 2", TINY, "tp = 2", BLOCKS),
        ("GPT-2, dp 2", TINY, "dp = 2", "m.data_parallel(over: dp)"),
        ("GPT-2, dp 2 × tp 2", TINY, "dp = 2, tp = 2", &data_parallel),
    ];
    let mut wrong = Vec::new();
    for (name, archive, mesh, body) in cases {
        let mut case = Case::on(archive, mesh, body);
        case.sizes.batch = 8;
        case.sizes.seq = Some(16);
        let programs = case.programs();
        let predicted: u64 = programs.iter().map(|p| predict(p).peak()).sum();
        let measured = measured(&case, programs);
        let ratio = predicted as f64 / measured as f64;
        println!("{name:<24} predicted {predicted:>9}, measured {measured:>9}: {ratio:.3}");
        if (ratio - 1.0).abs() > 0.05 {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
