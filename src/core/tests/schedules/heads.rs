//! Attention heads and the size of an axis: whole heads for every rank, and an error at the statement that asks for less.
//!
//! `bNN` and `fNN` name the reported fault of another tool that a test keeps out.

use crate::support::{Run, imported, run};
use slapo_core::compile::{Effects, Options, compile, programs};
use slapo_model::InputSizes;
use slapo_program::Program;

/// Megatron's plan for the Llama of that name.
fn llama(name: &str, tp: i64) -> Run {
    let text = format!(
        "use std.parallel.{{column, row}}
model \"{name}.pt2\"
input {{ batch = 4, seq = 6 }}
mesh {{ tp = {tp} }}
schedule main(m: LlamaForCausalLM) {{
    for l in m.model.layers {{
        column(l.self_attn.{{q_proj, k_proj, v_proj}}, over: tp)
        row(l.self_attn.o_proj, over: tp)
        column(l.mlp.{{gate_proj, up_proj}}, over: tp)
        row(l.mlp.down_proj, over: tp)
    }}
}}
"
    );
    run("heads", &text).compiled()
}

/// The line of the schedule that splits queries, keys and values.
const COLUMN: u32 = 7;

fn refused(run: &Run, message: &str, legal: &str) {
    assert_eq!(run.codes(), ["S0601"], "{}", run.rendered());
    assert_eq!(run.lines(), [COLUMN], "{}", run.rendered());
    let said = &run.diagnostics[0];
    assert!(said.message.contains(message), "{}", said.message);
    assert_eq!(said.helps, [format!("legal sizes of `tp` here: {legal}")]);
}

/// Two heads of keys and values for four of queries: the fewer ones limit the axis.
#[test]
fn b01_more_ranks_than_key_and_value_heads() {
    for tp in [1, 2] {
        assert_eq!(llama("llama-tiny", tp).rendered(), "", "tp {tp}");
    }
    for tp in [3, 4] {
        let message =
            format!("cannot split the 2 key and value heads of `model.layers.0.self_attn` over `tp` of size {tp}");
        refused(&llama("llama-tiny", tp), &message, "1, 2");
    }
}

#[test]
fn b75_three_heads_on_two_ranks() {
    refused(&llama("llama-odd", 2), "cannot split the 3 heads of `model.layers.0.self_attn`", "1, 3");
    assert_eq!(llama("llama-odd", 3).rendered(), "");
}

/// The features divide, the heads do not: known when the schedule is checked, not when a view fails.
#[test]
fn f21_heads_that_the_axis_does_not_divide() {
    let model = imported("llama-odd.pt2").unwrap();
    assert!(
        model.parameters.iter().all(|parameter| parameter.names[0].contains("embed") || parameter.shape[0] % 4 == 0)
    );
    refused(&llama("llama-odd", 4), "cannot split the 3 heads", "1, 3");
}

/// How many heads a rank computes follows from what it holds; their size stays.
#[test]
fn f20_a_rank_computes_its_own_heads_of_whole_size() {
    for (name, tp, queries, keys, width) in [("llama-tiny", 2, 2, 1, 6), ("llama-odd", 3, 1, 1, 4)] {
        let run = llama(name, tp);
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
