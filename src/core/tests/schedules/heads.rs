//! Attention heads and the size of an axis: whole heads for every rank, and an error at the statement that asks for less.
//!
//! `bNN` and `fNN` name the reported fault of another tool that a test keeps out.

use crate::support::{Run, imported, run};
use slapo_core::compile::{Effects, Options, compile, programs};
use slapo_model::InputSizes;
use slapo_program::Program;

/// Queries, keys and values by heads.
const BY_HEADS: &str = "column(l.self_attn.{q_proj, k_proj, v_proj}, over: tp)";

/// Queries by heads; every rank holds the keys and values, which all of its queries read.
const SHARED: &str = "l.self_attn.q_proj.weight.shard(out, over: tp)
        l.self_attn.{k_proj, v_proj}.weight.grad().sync(all_reduce, over: tp)
        l.self_attn.input().grad().sync(all_reduce, over: tp)";

/// Megatron's plan for the Llama of that name, its attention as said.
fn llama(name: &str, tp: i64, attention: &str) -> Run {
    let text = format!(
        "use std.parallel.{{column, row}}
model \"{name}.pt2\"
input {{ batch = 4, seq = 6 }}
mesh {{ tp = {tp} }}
schedule main(m: LlamaForCausalLM) {{
    for l in m.model.layers {{
        {attention}
        row(l.self_attn.o_proj, over: tp)
        column(l.mlp.{{gate_proj, up_proj}}, over: tp)
        row(l.mlp.down_proj, over: tp)
    }}
}}
"
    );
    run("heads", &text).compiled()
}

/// One error, at the line that splits the queries, with that message and help.
fn refused(run: &Run, message: &str, help: &str) {
    assert_eq!(run.codes(), ["S0601"], "{}", run.rendered());
    assert_eq!(run.lines(), [7], "{}", run.rendered());
    let said = &run.diagnostics[0];
    assert!(said.message.contains(message), "{}", said.message);
    assert_eq!(said.helps, [help]);
}

/// Two heads of keys and values for four of queries: the fewer ones limit the axis.
#[test]
fn b01_more_ranks_than_key_and_value_heads() {
    for tp in [1, 2] {
        assert_eq!(llama("llama-tiny", tp, BY_HEADS).rendered(), "", "tp {tp}");
    }
    for tp in [3, 4] {
        let message =
            format!("cannot split the 2 key and value heads of `model.layers.0.self_attn` over `tp` of size {tp}");
        refused(&llama("llama-tiny", tp, BY_HEADS), &message, "legal sizes of `tp` here: 1, 2");
    }
    let shared = llama("llama-tiny", 4, SHARED);
    refused(&shared, "cannot split the 2 key and value heads", "legal sizes of `tp` here: 1, 2");
}

/// One head of keys and values for three of queries cannot be split, but every rank can hold it.
#[test]
fn b01_one_key_and_value_head() {
    let message = "cannot split the 1 key and value head of `model.layers.0.self_attn` over `tp` of size 2";
    refused(&llama("llama-odd", 2, BY_HEADS), message, "split between heads, or leave these whole on every rank");
    for tp in [1, 3] {
        assert_eq!(llama("llama-odd", tp, SHARED).rendered(), "", "tp {tp}");
    }
    let unsynced: Vec<&str> = SHARED.lines().filter(|line| !line.contains("weight.grad()")).collect();
    let run = llama("llama-odd", 3, &unsynced.join("\n"));
    assert_eq!(run.codes(), ["S0607"], "{}", run.rendered());
    let help = "reduce it: `m.model.layers[0].self_attn.k_proj.weight.grad().sync(all_reduce, over: tp)`";
    assert_eq!(run.diagnostics[0].helps, [help]);
    assert!(run.diagnostics[0].notes.contains(&"the same happens once more here".to_string()), "values are as keys");
}

#[test]
fn b75_three_heads_on_two_ranks() {
    let message = "cannot split the 3 heads of `model.layers.0.self_attn` over `tp` of size 2";
    refused(&llama("llama-odd", 2, SHARED), message, "legal sizes of `tp` here: 1, 3");
}

/// The features divide, the heads do not: known when the schedule is checked, not when a view fails.
#[test]
fn f21_heads_that_the_axis_does_not_divide() {
    let model = imported("llama-odd.pt2").unwrap();
    let of_queries = |name: &String| name.ends_with("q_proj.weight");
    let queries = model.parameters.iter().find(|parameter| parameter.names.iter().any(of_queries)).unwrap();
    assert_eq!(queries.shape[0] % 4, 0);
    refused(&llama("llama-odd", 4, SHARED), "cannot split the 3 heads", "legal sizes of `tp` here: 1, 3");
}

/// How many heads a rank computes follows from what it holds; their size stays.
#[test]
fn f20_a_rank_computes_its_own_heads_of_whole_size() {
    let cases = [("llama-tiny", BY_HEADS, 2, 2, 1, 6), ("llama-odd", SHARED, 3, 1, 1, 4)];
    for (name, attention, tp, queries, keys, width) in cases {
        let run = llama(name, tp, attention);
        let (model, effects) = (imported(&format!("{name}.pt2")).unwrap(), &run.checked.effects);
        for program in ranks(&model, effects) {
            let shapes = views(&program);
            assert!(shapes.contains(&vec![4, 6, queries, width]), "{name}: {shapes:?}");
            assert!(shapes.contains(&vec![4, 6, keys, width]), "{name}: {shapes:?}");
            let most = queries.max(keys);
            assert!(!shapes.iter().any(|s| s.len() == 4 && s[2] > most && s[3] == width && s[1] == 6), "{shapes:?}");
        }
    }
}

fn ranks(model: &slapo_model::Model, effects: &Effects) -> Vec<Program> {
    let (sizes, options) = (InputSizes { batch: 4, seq: Some(6) }, Options::default());
    let compiled = compile(model, &sizes, effects, &options).unwrap();
    programs(model, &compiled, effects, &options).unwrap()
}

/// Shapes that forward sees tensors in.
fn views(program: &Program) -> Vec<Vec<i64>> {
    let forward = program.functions.iter().filter(|function| function.name == "forward").flat_map(|f| &f.body);
    let views = forward.filter(|instr| program.line(instr).contains("reshape("));
    views.flat_map(|instr| instr.outs.iter().flatten()).map(|value| program.ty(*value).shape.clone()).collect()
}
