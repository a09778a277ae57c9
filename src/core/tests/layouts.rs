//! Tensor and data parallelism of the committed models: the right schedule types at every degree, and each mutant of it is
//! refused with one fault.

use slapo_core::compile::{
    DataParallel, Effects, Fault, LayoutFault, LayoutProblem, MeshAxis, Options, PointSync, Shard, SyncPoint, compile,
    programs,
};
use slapo_core::layout::{Layout, Sync};
use slapo_model::{InputSizes, Model, ModuleId, ParameterId, import};
use slapo_program::Sections;
use std::collections::BTreeSet;
use std::path::Path;

fn archive(path: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    import(&bytes).unwrap_or_else(|e| panic!("{}: {e:?}", path.display()))
}

/// A schedule under construction; axis 0 is `dp`, axis 1 `tp`.
struct Plan<'m> {
    model: &'m Model,
    effects: Effects,
    step: u32,
}

const DP: usize = 0;
const TP: usize = 1;

impl<'m> Plan<'m> {
    fn new(model: &'m Model, dp: i64, tp: i64) -> Plan<'m> {
        let axis = |name: &str, size| MeshAxis { name: name.to_owned(), size };
        let effects = Effects { axes: vec![axis("dp", dp), axis("tp", tp)], ..Effects::default() };
        Plan { model, effects, step: 0 }
    }

    fn module(&self, path: &str) -> ModuleId {
        self.model.find(path).unwrap_or_else(|| panic!("no module {path}"))
    }

    fn parameter(&self, path: &str) -> ParameterId {
        let named = |p: &slapo_model::Parameter| p.names.iter().any(|name| name == path);
        ParameterId(self.model.parameters.iter().position(named).unwrap_or_else(|| panic!("no parameter {path}")) as u32)
    }

    fn step(&mut self) -> u32 {
        self.step += 1;
        self.step
    }

    fn shard(&mut self, parameter: &str, dim: usize, groups: i64) {
        let shard = Shard {
            parameter: self.parameter(parameter),
            dim,
            groups,
            sections: Sections::default(),
            axis: TP,
            step: self.step(),
        };
        self.effects.shards.push(shard);
    }

    fn sync(&mut self, at: SyncPoint, sync: Sync) {
        let step = self.step();
        self.effects.syncs.push(PointSync { at, sync, axis: TP, step });
    }

    /// Output features split; `out` is the weight's dimension of them.
    fn column(&mut self, path: &str, out: usize, groups: i64) {
        self.shard(&format!("{path}.weight"), out, groups);
        self.shard(&format!("{path}.bias"), 0, groups);
        let module = self.module(path);
        self.sync(SyncPoint::InputGradient { module, port: 0 }, Sync::AllReduce);
    }

    /// Input features split.
    fn row(&mut self, path: &str, input: usize) {
        self.shard(&format!("{path}.weight"), input, 1);
        let module = self.module(path);
        self.sync(SyncPoint::Output { module, port: 0 }, Sync::AllReduce);
    }

    fn data_parallel(&mut self) {
        let step = self.step();
        self.effects.data_parallel.push(DataParallel { axis: DP, step });
    }
}

/// Megatron's plan for GPT-2, whose `Conv1D` stores `[in, out]`.
fn gpt2(model: &Model, dp: i64, tp: i64) -> Effects {
    let mut plan = Plan::new(model, dp, tp);
    for block in 0..3 {
        let path = |name: &str| format!("transformer.h.{block}.{name}");
        plan.column(&path("attn.c_attn"), 1, 3);
        plan.row(&path("attn.c_proj"), 0);
        plan.column(&path("mlp.c_fc"), 1, 1);
        plan.row(&path("mlp.c_proj"), 0);
    }
    plan.data_parallel();
    plan.effects
}

/// BERT: three projections share one input, so three reductions; its layer input also feeds the residual.
fn bert(model: &Model, dp: i64, tp: i64) -> Effects {
    let mut plan = Plan::new(model, dp, tp);
    for layer in 0..2 {
        let path = |name: &str| format!("bert.encoder.layer.{layer}.{name}");
        for projection in ["query", "key", "value"] {
            plan.column(&path(&format!("attention.self.{projection}")), 0, 1);
        }
        plan.row(&path("attention.output.dense"), 1);
        plan.column(&path("intermediate.dense"), 0, 1);
        plan.row(&path("output.dense"), 1);
    }
    plan.data_parallel();
    plan.effects
}

/// OPT flattens tokens before its feed-forward layers.
fn opt(model: &Model, dp: i64, tp: i64) -> Effects {
    let mut plan = Plan::new(model, dp, tp);
    for layer in 0..2 {
        let path = |name: &str| format!("model.decoder.layers.{layer}.{name}");
        for projection in ["q_proj", "k_proj", "v_proj"] {
            plan.column(&path(&format!("self_attn.{projection}")), 0, 1);
        }
        plan.row(&path("self_attn.out_proj"), 1);
        plan.column(&path("fc1"), 0, 1);
        plan.row(&path("fc2"), 1);
    }
    plan.data_parallel();
    plan.effects
}

type Schedule = fn(&Model, i64, i64) -> Effects;

const MODELS: [(&str, Schedule); 3] =
    [("examples/gpt2/gpt2-tiny.pt2", gpt2), ("tests/data/bert-tiny.pt2", bert), ("tests/data/opt-tiny.pt2", opt)];

const SIZES: InputSizes = InputSizes { batch: 12, seq: Some(7) };

fn faults(model: &Model, effects: &Effects) -> Vec<LayoutFault> {
    match compile(model, &SIZES, effects, &Options::default()) {
        Ok(_) => Vec::new(),
        Err(faults) => faults
            .into_iter()
            .map(|fault| match fault {
                Fault::Layout(fault) => *fault,
                other => panic!("{other:?}"),
            })
            .collect(),
    }
}

#[test]
fn megatron_types_at_every_degree() {
    for (path, schedule) in MODELS {
        let model = archive(path);
        for (dp, tp) in [(1, 1), (2, 1), (1, 2), (3, 1), (1, 4), (2, 2), (3, 4)] {
            assert_eq!(faults(&model, &schedule(&model, dp, tp)), [], "{path}, dp {dp}, tp {tp}");
        }
    }
}

#[test]
fn recomputation_and_micro_batches_change_no_layout() {
    for (path, schedule) in MODELS {
        let model = archive(path);
        let mut effects = schedule(&model, 2, 2);
        effects.micro_batches = 3;
        let blocks: Vec<ModuleId> = (0..model.modules.len() as u32).map(ModuleId).collect();
        let block = |id: &ModuleId| {
            let class = model.module(*id).short_class();
            ["GPT2Block", "BertLayer", "OPTDecoderLayer"].contains(&class)
        };
        effects.checkpoints = blocks.into_iter().filter(block).map(|id| (id, 0)).collect();
        assert!(!effects.checkpoints.is_empty());
        assert_eq!(faults(&model, &effects), [], "{path}");
    }
}

/// A forgotten reduction is an error, forward or backward, at every degree; one mistake, one fault.
#[test]
fn a_removed_sync_is_one_fault() {
    for (path, schedule) in MODELS {
        let model = archive(path);
        for tp in [1, 2] {
            let right = schedule(&model, 1, tp);
            for removed in 0..right.syncs.len() {
                let mut wrong = right.clone();
                let sync = wrong.syncs.remove(removed);
                let found = faults(&model, &wrong);
                assert_eq!(found.len(), 1, "{path}, tp {tp}, without {sync:?}: {found:#?}");
                let origin = found[0].origin.as_ref().unwrap_or_else(|| panic!("{sync:?}: no origin: {found:#?}"));
                let module = match sync.at {
                    SyncPoint::Output { module, .. } | SyncPoint::InputGradient { module, .. } => module,
                    other => panic!("{other:?}"),
                };
                assert_eq!(origin.module, model.module(module).path, "{sync:?}");
                assert_eq!(origin.is_backward, matches!(sync.at, SyncPoint::InputGradient { .. }), "{sync:?}");
            }
        }
    }
}

#[test]
fn a_sync_too_many_is_refused() {
    for (path, schedule) in MODELS {
        let model = archive(path);
        let right = schedule(&model, 1, 2);
        for doubled in 0..right.syncs.len() {
            let mut wrong = right.clone();
            wrong.syncs.push(right.syncs[doubled].clone());
            let found = faults(&model, &wrong);
            assert_eq!(found.len(), 1, "{path}, {:?}", right.syncs[doubled]);
            assert!(matches!(found[0].problem, LayoutProblem::Sync { found: Layout::Replicated, .. }), "{found:?}");
        }
    }
}

#[test]
fn a_removed_shard_is_refused() {
    for (path, schedule) in MODELS {
        let model = archive(path);
        let right = schedule(&model, 1, 2);
        for removed in 0..right.shards.len() {
            let mut wrong = right.clone();
            let shard = wrong.shards.remove(removed);
            assert!(!faults(&model, &wrong).is_empty(), "{path}, without {shard:?}");
        }
    }
}

/// Queries, keys and values are one projection of GPT-2: split without groups, a rank's share is not whole heads.
#[test]
fn wrong_groups_are_refused() {
    let model = archive("examples/gpt2/gpt2-tiny.pt2");
    for groups in [1, 2, 6] {
        let mut wrong = gpt2(&model, 1, 2);
        wrong.shards[..2].iter_mut().for_each(|shard| shard.groups = groups);
        assert!(!faults(&model, &wrong).is_empty(), "{groups} groups");
    }
}

#[test]
fn heads_that_do_not_divide_name_the_legal_sizes() {
    let model = archive("examples/gpt2/gpt2-tiny.pt2");
    let found = faults(&model, &gpt2(&model, 1, 8));
    let legal: Vec<&Vec<i64>> = found.iter().map(|f| &f.legal).collect();
    assert!(legal.iter().all(|l| **l == [1, 2, 4]), "{found:#?}");
    let found = faults(&model, &gpt2(&model, 1, 3));
    assert!(found.iter().all(|f| matches!(f.problem, LayoutProblem::Uneven { .. })), "{found:#?}");
}

#[test]
fn without_data_parallel_nothing_reads_pieces_of_the_batch() {
    let model = archive("tests/data/bert-tiny.pt2");
    let mut effects = bert(&model, 2, 2);
    effects.data_parallel.clear();
    assert_eq!(faults(&model, &effects), []);
}

/// Token ids have no gradient to reduce.
#[test]
fn a_sync_of_what_has_no_gradient_is_refused() {
    let model = archive("examples/gpt2/gpt2-tiny.pt2");
    let mut plan = Plan::new(&model, 1, 2);
    let module = plan.module("transformer.wte");
    plan.sync(SyncPoint::InputGradient { module, port: 0 }, Sync::AllReduce);
    let found = faults(&model, &plan.effects);
    assert!(matches!(found[..], [LayoutFault { problem: LayoutProblem::NoValue { .. }, .. }]), "{found:?}");
}

/// Data parallelism brings one reduction for the loss and one per parameter; the token count is reduced with it.
#[test]
fn data_parallel_reduces_the_loss_and_every_gradient() {
    let model = archive("examples/gpt2/gpt2-tiny.pt2");
    let effects = gpt2(&model, 2, 2);
    let compiled = compile(&model, &SIZES, &effects, &Options::default()).expect("a right schedule");
    let all = compiled.syncs.iter().zip(&compiled.asked);
    let added: Vec<_> = all.filter(|(_, asked)| asked.is_none()).map(|(sync, _)| *sync).collect();
    assert_eq!(added, vec![(DP, Sync::AllReduce); 1 + model.parameters.len()]);
}

/// Queries, keys and values of BERT and OPT send the gradient of their common input once; GPT-2 has one layer for them.
#[test]
fn reductions_of_one_gradient_are_merged() {
    for ((path, schedule), (layers, merged)) in MODELS.into_iter().zip([(3, 0), (2, 2), (2, 2)]) {
        let model = archive(path);
        let effects = Effects { data_parallel: Vec::new(), ..schedule(&model, 1, 2) };
        let compiled = compile(&model, &SIZES, &effects, &Options::default()).expect("a right schedule");
        let backward = compiled.conversions.iter().filter(|conversion| conversion.at.is_backward).count();
        assert_eq!(backward, 2 * layers, "{path}: one for attention, one for the feed-forward block");
        assert_eq!(compiled.merged.len(), merged, "{path}");
        assert!(compiled.merged.iter().all(|merged| merged.syncs.len() == 3 && merged.axis == TP), "{path}");
    }
}

/// A call moves what a rank holds of the value: its rows of the batch, of one micro-batch.
#[test]
fn bytes_of_a_conversion() {
    let model = archive("examples/gpt2/gpt2-tiny.pt2");
    for (dp, micro_batches, rows) in [(1, 1, 12), (2, 1, 6), (2, 3, 2)] {
        let effects = Effects { micro_batches, ..gpt2(&model, dp, 2) };
        let compiled = compile(&model, &SIZES, &effects, &Options::default()).expect("a right schedule");
        let asked = compiled.conversions.iter().filter(|conversion| conversion.asked.is_some());
        let bytes: BTreeSet<i64> = asked.map(|conversion| conversion.bytes).collect();
        assert_eq!(bytes, BTreeSet::from([rows * 7 * 64 * 4]), "dp {dp}, {micro_batches} micro-batches");
    }
}

/// All ranks run the same operators in the same order, each on its own boxes, and a valid program.
#[test]
fn ranks_have_programs_of_their_own() {
    for (path, schedule) in MODELS {
        let model = archive(path);
        for (dp, tp, micro_batches) in [(1, 2, 1), (2, 1, 3), (2, 2, 1), (3, 4, 2)] {
            let effects = Effects { micro_batches, ..schedule(&model, dp, tp) };
            let options = Options::default();
            let compiled = compile(&model, &SIZES, &effects, &options).unwrap_or_else(|e| panic!("{path}: {e:?}"));
            let ranks = programs(&model, &compiled, &effects, &options).unwrap_or_else(|e| panic!("{path}: {e:?}"));
            assert_eq!(ranks.len() as i64, dp * tp);
            for program in &ranks {
                assert_eq!(slapo_program::validate(program), [], "{path}, dp {dp}, tp {tp}");
                let collectives = |p: &slapo_program::Program| {
                    let all = p.functions.iter().flat_map(|f| &f.body);
                    all.filter(|i| matches!(i.op, slapo_program::Op::Collective { .. })).count()
                };
                assert_eq!(collectives(program), collectives(&ranks[0]));
                assert!(collectives(program) > 0);
            }
        }
    }
}
