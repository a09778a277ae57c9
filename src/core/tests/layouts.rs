//! Tensor and data parallelism of the committed models: the right schedule types at every degree, and each mutant of it is
//! refused with one fault.

use slapo_core::compile::{
    DataParallel, Effects, Fault, LayoutFault, LayoutProblem, MeshAxis, Options, PointSync, Shard, SyncPoint, compile,
    programs,
};
use slapo_core::layout::{Layout, Sync};
use slapo_core::memory::predict;
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
            uneven: false,
            sections: Sections::default(),
            axis: TP,
            gathered: None,
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
        let module = self.module(path);
        if self.model.module(module).parameters.iter().any(|(name, _)| name == "bias") {
            self.shard(&format!("{path}.bias"), 0, groups);
        }
        self.sync(SyncPoint::InputGradient { module, port: 0 }, Sync::AllReduce);
    }

    /// Input features split.
    fn row(&mut self, path: &str, input: usize) {
        self.shard(&format!("{path}.weight"), input, 1);
        let module = self.module(path);
        self.sync(SyncPoint::Output { module, port: 0 }, Sync::AllReduce);
    }

    /// Lets the pieces of what is split so far differ in size.
    fn unevenly(&mut self) {
        self.effects.shards.iter_mut().for_each(|shard| shard.uneven = true);
    }

    /// The table of an embedding and the head that is tied to it, split along the vocabulary.
    fn vocabulary(&mut self, embedding: &str, head: &str) {
        self.shard(&format!("{embedding}.weight"), 0, 1);
        let (module, head) = (self.module(embedding), self.module(head));
        self.sync(SyncPoint::Output { module, port: 0 }, Sync::AllReduce);
        self.sync(SyncPoint::InputGradient { module: head, port: 0 }, Sync::AllReduce);
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

/// Llama: two key and value heads serve four query heads; gate and up share one input.
fn llama(model: &Model, dp: i64, tp: i64) -> Effects {
    let mut plan = Plan::new(model, dp, tp);
    for layer in 0..2 {
        let path = |name: &str| format!("model.layers.{layer}.{name}");
        for projection in ["q_proj", "k_proj", "v_proj"] {
            plan.column(&path(&format!("self_attn.{projection}")), 0, 1);
        }
        plan.row(&path("self_attn.o_proj"), 1);
        plan.column(&path("mlp.gate_proj"), 0, 1);
        plan.column(&path("mlp.up_proj"), 0, 1);
        plan.row(&path("mlp.down_proj"), 1);
    }
    plan.data_parallel();
    plan.effects
}

/// The vocabularies of BERT and OPT, of 41, divide by no size.
fn vocabulary(model: &Model, effects: Effects, embedding: &str, head: &str) -> Effects {
    let step = 100;
    let mut plan = Plan { model, effects, step };
    plan.vocabulary(embedding, head);
    plan.unevenly();
    plan.effects
}

fn gpt2_vocabulary(model: &Model, dp: i64, tp: i64) -> Effects {
    vocabulary(model, gpt2(model, dp, tp), "transformer.wte", "lm_head")
}

/// The head's bias, too, has an element per word.
fn bert_vocabulary(model: &Model, dp: i64, tp: i64) -> Effects {
    let effects = bert(model, dp, tp);
    let effects = vocabulary(model, effects, "bert.embeddings.word_embeddings", "cls.predictions.decoder");
    let mut plan = Plan { model, effects, step: 200 };
    plan.shard("cls.predictions.decoder.bias", 0, 1);
    plan.unevenly();
    plan.effects
}

fn opt_vocabulary(model: &Model, dp: i64, tp: i64) -> Effects {
    vocabulary(model, opt(model, dp, tp), "model.decoder.embed_tokens", "lm_head")
}

type Schedule = fn(&Model, i64, i64) -> Effects;

const LLAMA: &str = "tests/data/llama-tiny.pt2";

/// Archives, with the number of ranks that can share their heads at most.
const MODELS: [(&str, Schedule, i64); 7] = [
    ("examples/gpt2/gpt2-tiny.pt2", gpt2, 4),
    ("tests/data/bert-tiny.pt2", bert, 4),
    ("tests/data/opt-tiny.pt2", opt, 4),
    (LLAMA, llama, 2),
    ("examples/gpt2/gpt2-tiny.pt2", gpt2_vocabulary, 4),
    ("tests/data/bert-tiny.pt2", bert_vocabulary, 4),
    ("tests/data/opt-tiny.pt2", opt_vocabulary, 4),
];

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
    for (path, schedule, most) in MODELS {
        let model = archive(path);
        let meshes = [(1, 1), (2, 1), (1, 2), (3, 1), (1, 4), (2, 2), (3, 2), (3, 4)];
        for (dp, tp) in meshes.into_iter().filter(|(_, tp)| *tp <= most) {
            assert_eq!(faults(&model, &schedule(&model, dp, tp)), [], "{path}, dp {dp}, tp {tp}");
        }
    }
}

#[test]
fn recomputation_and_micro_batches_change_no_layout() {
    for (path, schedule, _) in MODELS {
        let model = archive(path);
        let mut effects = schedule(&model, 2, 2);
        effects.micro_batches = 3;
        let blocks: Vec<ModuleId> = (0..model.modules.len() as u32).map(ModuleId).collect();
        let block = |id: &ModuleId| {
            let class = model.module(*id).short_class();
            ["GPT2Block", "BertLayer", "OPTDecoderLayer", "LlamaDecoderLayer"].contains(&class)
        };
        effects.checkpoints = blocks.into_iter().filter(block).map(|id| (id, 0)).collect();
        assert!(!effects.checkpoints.is_empty());
        assert_eq!(faults(&model, &effects), [], "{path}");
    }
}

/// A forgotten reduction is an error, forward or backward, at every degree; one mistake, one fault.
#[test]
fn a_removed_sync_is_one_fault() {
    for (path, schedule, _) in MODELS {
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
    for (path, schedule, _) in MODELS {
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
    for (path, schedule, _) in MODELS {
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

/// One value, whatever name it was split by: a sync at the head that was not forgotten, and one that was.
#[test]
fn b51_f18_a_tie_is_split_on_both_sides() {
    let model = archive("examples/gpt2/gpt2-tiny.pt2");
    for name in ["transformer.wte.weight", "lm_head.weight"] {
        let mut plan = Plan::new(&model, 1, 2);
        plan.vocabulary("transformer.wte", "lm_head");
        plan.effects.shards[0].parameter = plan.parameter(name);
        assert_eq!(faults(&model, &plan.effects), [], "{name}");
        plan.effects.syncs.retain(|sync| matches!(sync.at, SyncPoint::Output { .. }));
        let found = faults(&model, &plan.effects);
        let [LayoutFault { origin: Some(origin), .. }] = &found[..] else { panic!("{name}: {found:#?}") };
        assert_eq!((origin.module.as_str(), origin.is_backward), ("lm_head", true));
    }
}

/// Both names of one value on different axes: the fault is told with both steps.
#[test]
fn f19_a_tie_is_split_over_one_axis() {
    let model = archive("examples/gpt2/gpt2-tiny.pt2");
    let mut plan = Plan::new(&model, 2, 2);
    plan.vocabulary("transformer.wte", "lm_head");
    let (inner, step) = (plan.effects.shards[0].step, plan.step());
    plan.effects.shards[0].groups = 2;
    let parameter = plan.parameter("lm_head.weight");
    plan.effects.shards.push(Shard {
        parameter,
        dim: 0,
        groups: 1,
        sections: Sections::default(),
        uneven: false,
        axis: DP,
        gathered: None,
        step,
    });
    let found = faults(&model, &plan.effects);
    assert!(found.iter().any(|fault| fault.axis == TP && fault.steps == [inner, step]), "{found:#?}");
}

/// Not in the groups of a fused projection: a rank has one stretch of the vocabulary.
#[test]
fn a_vocabulary_is_split_in_one_group() {
    let model = archive("examples/gpt2/gpt2-tiny.pt2");
    let mut plan = Plan::new(&model, 2, 2);
    plan.vocabulary("transformer.wte", "lm_head");
    plan.effects.shards[0].groups = 2;
    let found = faults(&model, &plan.effects);
    assert!(
        matches!(&found[0].problem, LayoutProblem::Operator { reason, .. } if reason.contains("2 groups")),
        "{found:#?}"
    );
}

/// Pieces that differ in size are as good where nothing cuts the dimension; heads are cut.
#[test]
fn uneven_pieces_are_refused_where_they_are_cut() {
    let model = archive("tests/data/bert-tiny.pt2");
    let mut plan = Plan::new(&model, 1, 5);
    let path = |name: &str| format!("bert.encoder.layer.0.{name}");
    plan.column(&path("intermediate.dense"), 0, 1);
    plan.row(&path("output.dense"), 1);
    plan.unevenly();
    assert_eq!(faults(&model, &plan.effects), []);
    plan.column(&path("attention.self.query"), 0, 1);
    plan.unevenly();
    let found = faults(&model, &plan.effects);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].legal, [1, 2, 4]);
}

/// Of several parts the first is the largest, and the memory that is predicted is its.
#[test]
fn the_first_rank_has_the_most() {
    let model = archive("tests/data/opt-tiny.pt2");
    let (effects, options) = (opt_vocabulary(&model, 1, 2), Options::default());
    let compiled = compile(&model, &SIZES, &effects, &options).expect("a right schedule");
    let ranks = programs(&model, &compiled, &effects, &options).expect("programs");
    let rows = |program: &slapo_program::Program| {
        let table =
            program.globals.iter().find(|global| global.name.ends_with("embed_tokens.weight")).expect("the table");
        table.ty.shape[0]
    };
    assert_eq!(ranks.iter().map(rows).collect::<Vec<i64>>(), [21, 20]);
    let bytes: Vec<u64> = ranks.iter().map(|program| predict(program).peak()).collect();
    assert!(bytes[0] > bytes[1], "{bytes:?}");
    let limits: Vec<Option<i64>> = ranks[1].inputs.iter().map(|input| input.limit).collect();
    assert_eq!(limits, [Some(41), Some(41)], "ids and classes of the other rank are legal too");
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

/// Queries, keys and values of BERT, OPT and Llama send the gradient of their common input once, and so do Llama's gate and
/// up projections; GPT-2 has one layer for each.
#[test]
fn reductions_of_one_gradient_are_merged() {
    let expected: [(usize, &[usize]); 4] = [(3, &[]), (2, &[3]), (2, &[3]), (2, &[3, 2])];
    for ((path, schedule, _), (layers, sizes)) in MODELS.into_iter().zip(expected) {
        let model = archive(path);
        let effects = Effects { data_parallel: Vec::new(), ..schedule(&model, 1, 2) };
        let compiled = compile(&model, &SIZES, &effects, &Options::default()).expect("a right schedule");
        let backward = compiled.conversions.iter().filter(|conversion| conversion.at.is_backward).count();
        assert_eq!(backward, 2 * layers, "{path}: one for attention, one for the feed-forward block");
        let mut found: Vec<usize> = compiled.merged.iter().map(|merged| merged.syncs.len()).collect();
        found.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
        let wanted: Vec<usize> = sizes.iter().flat_map(|size| std::iter::repeat_n(*size, layers)).collect();
        assert_eq!(found, wanted, "{path}");
        assert!(compiled.merged.iter().all(|merged| merged.axis == TP), "{path}");
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
    for (path, schedule, most) in MODELS {
        let model = archive(path);
        let meshes = [(1, 2, 1), (2, 1, 3), (2, 2, 1), (3, 2, 2), (3, 4, 2)];
        for (dp, tp, micro_batches) in meshes.into_iter().filter(|(_, tp, _)| *tp <= most) {
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
