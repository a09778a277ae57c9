//! Faults that users of other tools ran into, where the right answer is the right numbers. Each test bears the number of
//! its case.

use crate::harness::{BOUND, Case};
use slapo_core::compile::{Effects, Fault, LayoutProblem, unchecked};
use slapo_program::{Op, Placement, Program};
use slapo_runtime::dropout::dropout;
use slapo_runtime::geometry::{Geometry, local_shape};
use slapo_runtime::logical::{Held, assemble};
use slapo_runtime::mesh::Mesh;
use slapo_runtime::random::Stream;
use std::collections::BTreeMap;
use tch::{Device, Kind, Tensor};

const ODD: &str = "tests/data/gpt2-odd.pt2";
const BERT: &str = "tests/data/bert-tiny.pt2";

const BLOCKS: &str = "for b in m.transformer.h {
    column(b.attn.c_attn, over: tp, groups: 3)
    row(b.attn.c_proj, over: tp)
    column(b.mlp.c_fc, over: tp)
    row(b.mlp.c_proj, over: tp)
}";

/// The table of the tied head in uneven pieces, at both of its uses: 37 rows.
const TABLE: &str = "m.transformer.wte.weight.shard(vocab, over: tp, uneven: true)
m.transformer.wte.output().sync(all_reduce, over: tp)
m.lm_head.input().grad().sync(all_reduce, over: tp)";

fn assert_right(case: &Case) {
    let apart = case.run(case.programs()).unwrap_or_else(|e| panic!("{e}")).apart(&case.oracle());
    assert!(apart <= BOUND, "{apart:e}");
}

/// On axes of size 1 a schedule is the unsharded model, to the last bit.
#[test]
fn b03_degree_one_equals_the_unsharded_model() {
    for batch in [4, 1] {
        let mut case = Case::on(ODD, "dp = 1, tp = 1", &format!("{BLOCKS}\n{TABLE}\nm.data_parallel(over: dp)"));
        case.sizes.batch = batch;
        let ours = case.run(case.programs()).expect("it runs");
        case.effects = Effects::default();
        let plain = case.run(case.programs()).expect("it runs");
        assert_eq!(ours.apart(&plain), 0.0);
        assert!(ours.apart(&case.oracle()) <= BOUND);
    }
}

/// A tied head under each primitive that there is.
#[test]
fn b15_a_tie_under_each_primitive() {
    let bodies = [
        ("", "m.transformer.wte.weight.annotate(\"lr\", 0.5)"),
        ("", "m.transformer.h.*.checkpoint()\nm.lm_head.checkpoint()"),
        ("", "m.accumulate(steps: 2)"),
        ("", "m.transformer.wte.weight.freeze()"),
        ("", "m.lm_head.freeze()"),
        ("dp = 2", "m.data_parallel(over: dp)"),
        ("tp = 2", TABLE),
        ("tp = 3", TABLE),
    ];
    for (mesh, body) in bodies {
        assert_right(&Case::on(ODD, mesh, body));
    }
    let all = format!(
        "{TABLE}\n{BLOCKS}\nm.data_parallel(over: dp)\nm.accumulate(steps: 2)\nm.transformer.h[0].checkpoint()"
    );
    assert_right(&Case::on(ODD, "dp = 2, tp = 2", &all));
}

/// A head in columns and a batch in chunks: gradients add up over chunks, and over ranks where they are summands.
#[test]
fn b25_gradients_of_chunks_are_those_of_the_whole() {
    assert_right(&Case::on(ODD, "tp = 2", &format!("{TABLE}\nm.accumulate(steps: 4)")));
    let gathered = format!(
        "{TABLE}\nm.lm_head.output().sync(all_gather, over: tp)\nm.lm_head.output().grad().sync(slice(vocab), over: tp)"
    );
    let gathered = gathered.replace(", uneven: true", "").replace("slice(vocab)", "slice(2)");
    assert_right(&Case::on("examples/gpt2/gpt2-tiny.pt2", "tp = 2", &format!("{gathered}\nm.accumulate(steps: 2)")));
}

const NORMS: &str = "for b in m.transformer.h {
    b.ln_2.input().sync(slice(seq), over: tp)
    b.ln_2.output().sync(all_gather, over: tp)
    b.ln_2.input().grad().sync(all_gather, over: tp)
    b.ln_2.output().grad().sync(slice(seq), over: tp)
    b.ln_2.{weight, bias}.grad().sync(all_reduce, over: tp)
}";

/// Whole weights on pieces of the sequence, beside layers in pieces.
#[test]
fn b26_whole_parameters_on_varying_data() {
    assert_right(&Case::on(ODD, "tp = 2", NORMS));
    assert_right(&Case::on(ODD, "dp = 2, tp = 3", &format!("{NORMS}\nm.data_parallel(over: dp)")));
    assert_right(&Case::on(ODD, "tp = 2", &format!("{BLOCKS}\n{NORMS}")));
}

/// Without its reduction a norm's gradient differs between the ranks: the check says so, and so does the run.
#[test]
fn b27_replicas_of_a_norm_agree() {
    let mut case = Case::on(ODD, "tp = 2", NORMS);
    let weight = case.model.parameters.iter().position(|p| p.names[0] == "transformer.h.0.ln_2.weight");
    let weight = slapo_model::ParameterId(weight.expect("it is there") as u32);
    let at = slapo_core::compile::SyncPoint::ParameterGradient(weight);
    case.effects.syncs.retain(|sync| sync.at != at);
    let built =
        unchecked(&case.model, &case.sizes, &case.effects, &case.options, None).unwrap_or_else(|e| panic!("{e:?}"));
    let [Fault::Layout(fault)] = &built.faults[..] else { panic!("{:?}", built.faults) };
    assert!(matches!(fault.problem, LayoutProblem::Gradient { parameter, .. } if parameter == weight));
    let message = case.run(built.programs.unwrap_or_else(|e| panic!("{e:?}"))).err().expect("it stops");
    assert!(message.contains("ln_2.weight") && message.contains("differs between ranks"), "{message}");
}

fn fresh(programs: Vec<Program>) -> BTreeMap<String, Vec<u8>> {
    let mut mesh = Mesh::new(programs).unwrap_or_else(|e| panic!("{e}"));
    let archive = crate::harness::root().join(ODD);
    mesh.load(Some(&archive), true).unwrap_or_else(|e| panic!("{e}"));
    let parameters = mesh.parameters().unwrap_or_else(|e| panic!("{e}"));
    let bytes =
        |t: &Tensor| Vec::<f64>::try_from(t.flatten(0, -1)).map(|v| v.iter().flat_map(|x| x.to_le_bytes()).collect());
    parameters
        .iter()
        .filter(|(_, t)| t.kind() == Kind::Double)
        .map(|(n, t)| (n.clone(), bytes(t).expect("numbers")))
        .collect()
}

/// What each dropout site of the ranks makes of ones, put together.
fn masks(programs: &[Program]) -> BTreeMap<u32, Vec<f64>> {
    let mut sites: BTreeMap<u32, Vec<(usize, Tensor, Placement)>> = BTreeMap::new();
    for (rank, program) in programs.iter().enumerate() {
        for instr in program.functions.iter().flat_map(|f| &f.body) {
            let Op::Dropout { site, p, placement } = &instr.op else { continue };
            let held = sites.entry(*site).or_default();
            if held.iter().any(|(known, ..)| *known == rank) {
                continue;
            }
            let shape = local_shape(placement).unwrap_or_else(|e| panic!("{e}"));
            let geometry = Geometry::new(placement, &shape, 0).unwrap_or_else(|e| panic!("{e}"));
            let ones = Tensor::ones(&shape[..], (Kind::Double, Device::Cpu));
            let mask = dropout(&ones, *p, Stream::dropout(program.seed, *site, 0), &geometry);
            held.push((rank, mask.unwrap_or_else(|e| panic!("{e}")), placement.clone()));
        }
    }
    let whole = |held: &[(usize, Tensor, Placement)]| {
        let held: Vec<Held> =
            held.iter().map(|(rank, tensor, placement)| Held { rank: *rank, tensor, placement }).collect();
        let whole = assemble(&held).unwrap_or_else(|e| panic!("{e}"));
        Vec::<f64>::try_from(whole.flatten(0, -1)).expect("numbers")
    };
    sites.iter().map(|(site, held)| (*site, whole(held))).collect()
}

/// Initial values and dropout masks do not depend on the layout, to the last bit; replicas draw alike, shards their own.
#[test]
fn b39_initial_values_and_masks_do_not_depend_on_the_layout() {
    let case = Case::on(ODD, "dp = 2, tp = 2", &format!("{TABLE}\n{BLOCKS}\nm.data_parallel(over: dp)"));
    let alone = Case::on(ODD, "", "");
    assert_eq!(case.programs().len(), 4);
    assert_eq!(fresh(case.programs()), fresh(alone.programs()));
    let (ours, theirs) = (masks(&case.programs()), masks(&alone.programs()));
    assert!(theirs.len() >= 7 && theirs.values().all(|mask| mask.contains(&0.0) && mask.iter().any(|x| *x > 1.0)));
    assert_eq!(ours, theirs);
}

/// Which rows of a table are here is the operator's business: ids of other ranks' rows give zeros, whatever the model asks
/// of padding. There is no hook in which to mask them wrongly.
#[test]
fn f23_f24_rows_of_other_ranks_are_masked() {
    let bert = "m.bert.embeddings.word_embeddings.weight.shard(vocab, over: tp, uneven: true)
m.bert.embeddings.word_embeddings.output().sync(all_reduce, over: tp)
m.cls.predictions.decoder.input().grad().sync(all_reduce, over: tp)
m.cls.predictions.decoder.bias.shard(0, over: tp, uneven: true)";
    for tp in [2, 3, 4] {
        assert_right(&Case::on(ODD, &format!("tp = {tp}"), TABLE));
        assert_right(&Case::on(BERT, &format!("tp = {tp}"), bert));
    }
}

/// Dropout inside and outside of what the ranks share, recomputed and in micro-batches: there is no state to fork or seed,
/// only what a site's placement says.
#[test]
fn f47_f48_dropout_in_a_parallel_region() {
    let body = format!("{BLOCKS}\nm.data_parallel(over: dp)\nm.accumulate(steps: 2)\nm.transformer.h.*.checkpoint()");
    let case = Case::on(ODD, "dp = 2, tp = 2", &body);
    let programs = case.programs();
    assert!(programs.iter().all(|p| p.seed == programs[0].seed));
    let inner = |p: &Program| {
        let ops = p.functions.iter().flat_map(|f| &f.body).map(|i| &i.op);
        ops.filter(|op| matches!(op, Op::Dropout { placement, .. } if placement.splits.len() >= 3)).count()
    };
    assert!(inner(&programs[0]) > 0, "attention's dropout is split over both axes and micro-batches");
    assert_right(&case);
}
