//! From archive to Program: what passes do to the committed models, and that the program's validator agrees.

use slapo_core::compile::{Compiled, Effects, Fault, Options, compile, oracle};
use slapo_core::memory::predict;
use slapo_core::passes::canonical;
use slapo_model::{Graph, InputSizes, Listing, Model, ParameterId, import};
use slapo_program::{DType, Op, Program, Value, validate};
use std::collections::BTreeSet;
use std::path::Path;

const GPT2: &str = "examples/gpt2/gpt2-tiny.pt2";
const ODD: &str = "tests/data/gpt2-odd.pt2";
const BERT: &str = "tests/data/bert-tiny.pt2";
const OPT: &str = "tests/data/opt-tiny.pt2";
const LLAMA: &str = "tests/data/llama-tiny.pt2";
const MISC: &str = "tests/data/misc.pt2";
const COUNTERS: &str = "tests/data/counters.pt2";
const OPERATORS: &str = "tests/data/operators.pt2";

fn archive(path: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    import(&bytes).unwrap_or_else(|e| panic!("{}: {e:?}", path.display()))
}

const SIZES: InputSizes = InputSizes { batch: 6, seq: Some(7) };

fn compiled(path: &str, effects: &Effects, options: &Options) -> Compiled {
    compile(&archive(path), &SIZES, effects, options).unwrap_or_else(|e| panic!("{path}: {e:?}"))
}

fn plain(path: &str) -> Compiled {
    compiled(path, &Effects::default(), &Options::default())
}

fn without_dropout() -> Options {
    Options { model: canonical::Options { no_dropout: true, dtype: None }, ..Options::default() }
}

/// Checkpoints every child of `path`.
fn checkpoints(model: &Model, path: &str) -> Effects {
    let list = model.find(path).unwrap_or_else(|| panic!("no module {path}"));
    let children = &model.module(list).children;
    Effects { checkpoints: children.iter().map(|child| (*child, 0)).collect(), ..Effects::default() }
}

fn count(graph: &Graph, name: &str) -> usize {
    graph.nodes.iter().filter(|n| n.name() == name).count()
}

fn faults(program: &Program) -> Vec<String> {
    validate(program).into_iter().map(|f| format!("{} {:?}: {}", f.function, f.instruction, f.message)).collect()
}

#[test]
fn programs_are_valid_with_any_number_of_micro_batches() {
    for path in [GPT2, ODD, BERT, OPT, LLAMA] {
        for micro_batches in [1, 2, 3, 6] {
            let effects = Effects { micro_batches, ..Effects::default() };
            let program = compiled(path, &effects, &Options::default()).program;
            assert_eq!(faults(&program), [""; 0], "{path}, {micro_batches} micro-batches");
        }
    }
    for path in [MISC, COUNTERS, OPERATORS] {
        assert_eq!(faults(&plain(path).program), [""; 0], "{path}");
    }
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    for path in [GPT2, BERT, OPERATORS] {
        assert_eq!(plain(path).program.to_json(), plain(path).program.to_json());
    }
}

#[test]
fn a_program_survives_its_json() {
    let program = plain(OPERATORS).program;
    assert_eq!(Program::from_json(&program.to_json()), Ok(program));
}

/// Hugging Face's masks are made of `arange`, comparisons and gathers; they turn out to be causal.
#[test]
fn a_lower_triangular_mask_becomes_is_causal() {
    for (path, layers) in [(GPT2, 3), (OPT, 2), (LLAMA, 2)] {
        let graph = compiled(path, &Effects::default(), &without_dropout()).joint.graph;
        assert_eq!(count(&graph, "_scaled_dot_product_flash_attention_for_cpu"), layers, "{path}");
        for gone in ["index.Tensor", "le.Tensor", "diff", "where.Scalar"] {
            assert_eq!(count(&graph, gone), 0, "{path} still has {gone}");
        }
    }
}

/// BERT's mask depends on an input: it stays, but its gathers by whole ranges are views.
#[test]
fn a_mask_of_inputs_stays_without_gathers() {
    let graph = compiled(BERT, &Effects::default(), &without_dropout()).joint.graph;
    assert_eq!(count(&graph, "index.Tensor"), 0);
    assert_eq!(count(&graph, "where.Scalar"), 1, "one bias for all layers");
}

/// Llama's tables of cosines and sines depend on no input: they are made once, before the first step.
#[test]
fn rotary_tables_are_made_once() {
    let program = plain(LLAMA).program;
    let lines = |function: &str| -> Vec<String> {
        let function = program.functions.iter().filter(|f| f.name == function);
        function.flat_map(|f| &f.body).map(|instr| program.line(instr)).collect()
    };
    let tables = ["cos(", "sin(", "arange("];
    let named = |line: &String| tables.iter().any(|table| line.contains(table));
    assert_eq!(lines("setup").iter().filter(|line| named(line)).count(), tables.len());
    for function in ["prologue", "forward", "backward"] {
        assert!(!lines(function).iter().any(named), "{function}");
    }
    assert!(!lines("forward").is_empty());
}

#[test]
fn slices_that_tile_a_value_are_joined_in_backward() {
    let graph = plain(GPT2).joint.graph;
    assert_eq!(count(&graph, "slice_backward"), 0);
    assert_eq!(count(&graph, "cat"), 3, "one per fused projection of queries, keys and values");
}

#[test]
fn float64_reaches_every_floating_value() {
    let model = canonical::Options { no_dropout: false, dtype: Some(DType::F64) };
    for path in [GPT2, BERT, OPT, LLAMA, MISC, OPERATORS] {
        let program = compiled(path, &Effects::default(), &Options { model, ..Options::default() }).program;
        for instr in program.functions.iter().filter(|f| f.name != "optimizer").flat_map(|f| &f.body) {
            let wrong = |v: &Value| ![DType::F64, DType::I64, DType::Bool].contains(&program.ty(*v).dtype);
            let line = program.line(instr);
            // `where` of two numbers makes PyTorch's default type, whatever the mask is for; it is cast at once.
            assert!(!instr.outs.iter().flatten().any(wrong) || line.contains("where.Scalar"), "{path}: {line}");
        }
    }
}

#[test]
fn recomputation_takes_less_memory_and_more_instructions() {
    for (path, blocks) in
        [(GPT2, "transformer.h"), (BERT, "bert.encoder.layer"), (OPT, "model.decoder.layers"), (LLAMA, "model.layers")]
    {
        let model = archive(path);
        let again = compiled(path, &checkpoints(&model, blocks), &Options::default()).program;
        let kept = plain(path).program;
        assert_eq!(faults(&again), [""; 0], "{path}");
        assert!(predict(&again).peak() < predict(&kept).peak(), "{path}");
        let instructions = |p: &Program| p.functions.iter().map(|f| f.body.len()).sum::<usize>();
        assert!(instructions(&again) > instructions(&kept), "{path}");
        let forward = |p: &Program| p.functions.iter().find(|f| f.name == "forward").map(|f| f.body.len());
        assert_eq!(forward(&again), forward(&kept), "{path}: forward stays as it is");
    }
}

#[test]
fn a_frozen_parameter_has_neither_gradient_nor_state() {
    let model = archive(GPT2);
    let frozen: BTreeSet<ParameterId> = (0..model.parameters.len() as u32)
        .map(ParameterId)
        .filter(|p| !model.parameter(*p).names[0].starts_with("transformer.h.2"))
        .collect();
    let effects = Effects { frozen, ..Effects::default() };
    let program = compiled(GPT2, &effects, &Options::default()).program;
    let trained: Vec<&str> = program.parameters.iter().filter(|p| p.trainable).map(|p| p.names[0].as_str()).collect();
    assert_eq!(trained.len(), 12);
    assert!(trained.iter().all(|name| name.starts_with("transformer.h.2")));
    // Nothing below the first trained block needs a gradient at all.
    let backward = program.functions.iter().find(|f| f.name == "backward").expect("a backward");
    let modules = backward.body.iter().map(|i| program.origins[i.origin as usize].module.as_str());
    assert!(!modules.into_iter().any(|m| m.starts_with("transformer.h.0") || m.starts_with("transformer.h.1")));
}

#[test]
fn freezing_everything_leaves_nothing_to_train() {
    let model = archive(GPT2);
    let frozen = (0..model.parameters.len() as u32).map(ParameterId).collect();
    let fault = compile(&model, &SIZES, &Effects { frozen, ..Effects::default() }, &Options::default());
    assert_eq!(fault.err(), Some(vec![Fault::NothingToTrain]));
}

/// Batch norm and a sum over the batch mix rows; running them by micro-batches would train another model.
#[test]
fn a_model_that_mixes_rows_is_not_run_by_micro_batches() {
    for (path, operator) in [(COUNTERS, "_native_batch_norm_legit_functional"), (MISC, "cumsum")] {
        let effects = Effects { micro_batches: 2, ..Effects::default() };
        let result = compile(&archive(path), &SIZES, &effects, &Options::default());
        let Err(faults) = result else { panic!("{path} was accepted") };
        let found = faults.iter().any(|f| matches!(f, Fault::NotSeparable { node, .. } if node.name() == operator));
        assert!(found, "{path}: {faults:?}");
    }
}

#[test]
fn micro_batches_must_divide_the_batch() {
    let effects = Effects { micro_batches: 4, ..Effects::default() };
    let fault = compile(&archive(GPT2), &SIZES, &effects, &Options::default()).err();
    assert_eq!(fault, Some(vec![Fault::Batch { batch: 6, micro_batches: 4 }]));
}

/// What a rank holds for its optimizer is twice its parameters under AdamW.
#[test]
fn predicted_terms_add_up() {
    let program = plain(GPT2).program;
    let memory = predict(&program);
    let parameters: u64 = program.parameters.iter().map(|p| program.globals[p.global as usize].ty.bytes()).sum();
    assert_eq!(memory.parameters, parameters);
    assert!(memory.optimizer >= 2 * parameters && memory.optimizer < 2 * parameters + 128);
    assert_eq!(
        memory.peak(),
        memory.parameters + memory.gradients + memory.optimizer + memory.activations + memory.buffers
    );
}

#[test]
fn operators_without_a_derivative_are_counted() {
    let rerun = plain(MISC).joint.rerun;
    assert!(rerun.contains_key("cumsum"), "{rerun:?}");
    for path in [GPT2, BERT, OPT, LLAMA] {
        assert!(plain(path).joint.rerun.is_empty(), "{path}");
    }
}

#[test]
fn every_dropout_site_is_drawn_once_forward_and_once_backward() {
    let program = plain(GPT2).program;
    let mut sites: Vec<u32> = Vec::new();
    for instr in program.functions.iter().flat_map(|f| &f.body) {
        if let Op::Dropout { site, .. } = instr.op {
            sites.push(site);
        }
    }
    sites.sort_unstable();
    // One after the embeddings; three in each of three blocks.
    assert_eq!(sites, (0..10).flat_map(|site| [site, site]).collect::<Vec<_>>());
}

#[test]
fn stages_of_an_odd_gpt2() {
    let model = archive(ODD);
    let effects = Effects { micro_batches: 2, ..checkpoints(&model, "transformer.h") };
    let compiled = compiled(ODD, &effects, &Options::default());
    insta::assert_snapshot!("odd_gpt2_joint", Listing::new(&model, &compiled.joint.graph).to_string());
    insta::assert_snapshot!("odd_gpt2_program", compiled.program.to_string());
}

/// What programs are checked against is the model as it was imported, dropout apart.
#[test]
fn the_oracle_is_the_imported_graph() {
    for path in [GPT2, BERT, OPT, LLAMA, MISC, OPERATORS] {
        let model = archive(path);
        let (effects, options) = (Effects::default(), Options::default());
        let compiled = compile(&model, &SIZES, &effects, &options).unwrap_or_else(|e| panic!("{path}: {e:?}"));
        let program = oracle(&model, &compiled, &effects, &options);
        assert_eq!(faults(&program), [""; 0], "{path}");
        let ours = |name: &str| program.functions.iter().flat_map(|f| &f.body).any(|i| program.line(i).contains(name));
        assert!(ours("autograd("), "{path}");
        for canonical in ["_log_softmax", "native_layer_norm", "nll_loss_forward", "_backward"] {
            assert!(!ours(canonical), "{path} has {canonical}");
        }
    }
}
