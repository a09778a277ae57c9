//! Faults that users of other tools ran into, as schedules that are refused: where, why, and with what advice.
//!
//! Each test bears the number of its case. What must compute the right numbers rather than be refused is with the runtime.

use crate::support::{self, Run, run};

/// A schedule of one block `b` of the example, on two ranks by two.
fn check(body: &str) -> Run {
    on("tp = 2", body)
}

fn on(tp: &str, body: &str) -> Run {
    let text = format!(
        "use std.parallel.{{column, row}}\nmodel \"gpt2-tiny.pt2\"\ninput {{ batch = 8, seq = 64 }}\nmesh {{ dp = 2, {tp} }}\n\
         schedule main(m: GPT2LMHeadModel) {{\nlet b = m.transformer.h[0]\n{body}\n}}\n"
    );
    run("case", &text).compiled()
}

/// One error of that code, at the statement that begins with `at`, which says everything in `said`.
fn refused(run: &Run, code: &str, at: &str, said: &[&str]) {
    support::refused(run, code, said);
    let shown = run.rendered();
    let span = run.diagnostics[0].span().unwrap_or_else(|| panic!("{shown}"));
    let line = run.files.line_column(run.file, span.start).line as usize;
    let text = run.files.text(run.file).lines().nth(line - 1).unwrap_or_default();
    assert!(span.file == run.file && text.trim().starts_with(at), "at `{text}`, not `{at}`: {shown}");
}

/// Degree 1 is no special case: the axis exists, and what is right at 2 is right at 1.
#[test]
fn b03_every_schedule_checks_at_degree_one() {
    let body = "column(b.mlp.c_fc, over: tp)\nrow(b.mlp.c_proj, over: tp)\nm.data_parallel(over: dp)";
    for tp in ["tp = 1", "tp = 2"] {
        assert_eq!(on(tp, body).rendered(), "");
    }
    let wrong = "column(b.mlp.c_fc, over: tp)\nb.mlp.c_proj.weight.shard(in, over: tp)";
    assert_eq!(on("tp = 1", wrong).codes(), on("tp = 2", wrong).codes());
}

/// A name that is not there is an error, whatever else of the list matches.
#[test]
fn b11_every_alternative_in_a_list_must_match() {
    let run = check("b.mlp.{c_fc, fake}.weight.shard(out, over: tp)");
    refused(&run, "S0201", "b.mlp.{c_fc, fake}", &["has no `fake`", "`fake`"]);
    let run = check("b.attn.{c_attn, c_proj}.{weight, wieght}.annotate(\"lr\", 2)");
    assert!(!run.checked.is_ok() && run.rendered().contains("`wieght`"), "{}", run.rendered());
    assert_eq!(check("b.mlp.{c_fc, fake?}.weight.annotate(\"lr\", 2)").codes(), [""; 0]);
}

/// Each way to split the table of a tied head halfway names the use that does not go along; the table is one parameter.
#[test]
fn b15_half_of_a_tie_is_refused_with_the_reason() {
    let table = "m.transformer.wte.weight.shard(vocab, over: tp)";
    let gradient = "m.lm_head.input().grad().sync(all_reduce, over: tp)";
    let output = "m.transformer.wte.output().sync(all_reduce, over: tp)";
    assert_eq!(check(&format!("{table}\n{gradient}\n{output}")).rendered(), "");
    let run = check(&format!("{table}\n{gradient}"));
    refused(&run, "S0602", table, &["the output of `transformer.wte` is a partial sum"]);
    let run = check(&format!("{table}\n{output}"));
    refused(&run, "S0602", table, &["the gradient of the input of `lm_head` is a partial sum"]);
    let run = check(&format!("{table}\nm.lm_head.weight.shard(out, over: tp)\n{gradient}\n{output}"));
    refused(&run, "S0502", "m.lm_head.weight.shard", &["both names are one parameter"]);
    let run = check("m.transformer.wte.weight.shard(hidden, over: tp)");
    refused(&run, "S0603", "m.transformer.wte.weight.shard", &["`native_layer_norm`", "split"]);
    let run = check("m.lm_head.weight.grad().sync(all_reduce, over: tp)");
    refused(&run, "S0604", "m.lm_head.weight.grad()", &["whole on every rank of `tp`", "leave the sync out"]);
}

/// Chunks of the batch: that a gradient is a sum over ranks follows from what it is computed of, not from its activation.
#[test]
fn b25_gradients_of_chunks_are_partial_sums_too() {
    let head = "m.transformer.wte.weight.shard(vocab, over: tp)\nm.transformer.wte.output().sync(all_reduce, over: tp)\n\
                m.accumulate(steps: 4)";
    let run = check(head);
    refused(&run, "S0602", "m.transformer.wte.weight.shard", &["the gradient of the input of `lm_head`"]);
    assert_eq!(check(&format!("{head}\nm.lm_head.input().grad().sync(all_reduce, over: tp)")).rendered(), "");
}

const ROWS: &str = "b.ln_2.input().sync(slice(seq), over: tp)
b.ln_2.output().sync(all_gather, over: tp)
b.ln_2.input().grad().sync(all_gather, over: tp)
b.ln_2.output().grad().sync(slice(seq), over: tp)";

/// A whole parameter that is used on pieces of the sequence has a gradient that is a sum over the ranks.
#[test]
fn b26_a_whole_parameter_on_varying_data_needs_a_reduction() {
    for (reduced, missing) in [("weight", "bias"), ("bias", "weight")] {
        let run = check(&format!("{ROWS}\nb.ln_2.{reduced}.grad().sync(all_reduce, over: tp)"));
        let said = format!("the gradient of `transformer.h.0.ln_2.{missing}` is a partial sum over `tp`");
        refused(&run, "S0607", "b.ln_2.output().grad().sync", &[&said]);
    }
}

#[test]
fn b27_norms_on_pieces_of_the_sequence_reduce_their_gradients() {
    assert!(check(ROWS).codes().contains(&"S0607"));
    assert_eq!(check(&format!("{ROWS}\nb.ln_2.{{weight, bias}}.grad().sync(all_reduce, over: tp)")).rendered(), "");
}

/// Found at check time, for the mesh that is declared, with the degrees that would do.
#[test]
fn f03_a_dimension_that_does_not_divide() {
    let run = on("tp = 3", "b.mlp.c_fc.{weight, bias}.shard(out, over: tp)");
    let shown = run.rendered();
    assert!(run.codes().iter().all(|code| *code == "S0601") && !run.checked.is_ok(), "{shown}");
    assert!(shown.contains("`out` (256)") && shown.contains("legal sizes of `tp` here: 1, 2, 4, 8"), "{shown}");
}

#[test]
fn f07_a_column_weight_without_its_bias() {
    let run = check(
        "b.mlp.c_fc.weight.shard(out, over: tp)\nb.mlp.c_fc.input().grad().sync(all_reduce, over: tp)\nrow(b.mlp.c_proj, over: tp)",
    );
    refused(
        &run,
        "S0603",
        "b.mlp.c_fc.weight.shard",
        &["`transformer.h.0.mlp.c_fc`", "its bias is replicated: shard the bias too"],
    );
}

#[test]
fn f08_a_column_layer_in_front_of_a_whole_one() {
    let run = check("column(b.mlp.c_fc, over: tp)");
    refused(
        &run,
        "S0602",
        "column(b.mlp.c_fc",
        &["the output of `transformer.h.0.mlp.c_proj` is a partial sum", "c_proj.output().sync(all_reduce"],
    );
}

#[test]
fn f09_a_row_layer_without_its_reduction() {
    let run = check("column(b.mlp.c_fc, over: tp)\nb.mlp.c_proj.weight.shard(in, over: tp)");
    refused(
        &run,
        "S0602",
        "b.mlp.c_proj.weight.shard",
        &["the output of `transformer.h.0.mlp.c_proj` is a partial sum", "c_proj.output().sync(all_reduce"],
    );
}

#[test]
fn f10_a_column_layer_without_the_reduction_of_its_gradient() {
    let run = check("b.mlp.c_fc.{weight, bias}.shard(out, over: tp)\nrow(b.mlp.c_proj, over: tp)");
    refused(
        &run,
        "S0602",
        "b.mlp.c_fc.{weight, bias}.shard",
        &["the gradient of the input of `transformer.h.0.mlp.c_fc`", "c_fc.input().grad().sync(all_reduce"],
    );
}

#[test]
fn f11_a_reduction_of_what_is_whole() {
    let run = check("b.mlp.output().sync(all_reduce, over: tp)");
    refused(&run, "S0604", "b.mlp.output().sync", &["whole on every rank of `tp`", "leave the sync out"]);
}

#[test]
fn f14_pieces_that_are_never_put_together() {
    let run = check(
        "column(b.mlp.c_fc, over: tp)\nb.mlp.c_proj.weight.shard(in, over: tp)\nb.mlp.c_proj.output().sync(reduce_scatter(seq), over: tp)",
    );
    refused(&run, "S0603", "b.mlp.c_proj.output().sync", &["split over `tp` along dimension 1", "`transformer.h.0`"]);
}

/// In Megatron's sequence parallelism each forgotten line is one error, at the module that lacks it.
#[test]
fn f14_b26_what_sequence_parallelism_forgets() {
    let of = |family: &str| {
        let path = crate::support::root().join(format!("examples/{family}/sequence_parallel.slapo"));
        std::fs::read_to_string(path).unwrap()
    };
    let head = "    sequence_column(m.lm_head, over: tp, uneven: true)\n";
    let lost = run("sequence_parallel", &of("llama").replace(head, "")).compiled();
    refused(
        &lost,
        "S0606",
        "sequence_vocab(m.model.embed_tokens",
        &["in front of the head", "sync(all_gather, over: tp)"],
    );
    let text = of("gpt2");
    for (line, code, said) in [
        ("        sequence_norm(b.ln_2, over: tp)\n", "S0607", "the gradient of `transformer.h.0.ln_2.weight`"),
        (
            "    m.transformer.wpe.weight.grad().sync(all_reduce, over: tp)",
            "S0607",
            "the gradient of `transformer.wpe.weight`",
        ),
        ("    sequence_gather(m.lm_head, over: tp)\n", "S0603", "the operands of `linear` in `lm_head`"),
        ("        sequence_row(b.attn.c_proj, over: tp)\n", "S0602", "the output of `transformer.h.0.attn.c_proj`"),
    ] {
        assert!(text.contains(line), "{line}");
        let run = run("sequence_parallel", &text.replace(line, "")).compiled();
        let shown = run.rendered();
        assert_eq!(run.codes(), [code], "without {line}: {shown}");
        assert!(shown.contains(said), "without {line}: {shown}");
    }
}

#[test]
fn f17_a_sharded_bias_of_a_row_layer() {
    let run = check("column(b.mlp.c_fc, over: tp)\nrow(b.mlp.c_proj, over: tp)\nb.mlp.c_proj.bias.shard(0, over: tp)");
    assert_eq!(run.codes(), ["S0603"]);
    let shown = run.rendered();
    assert!(
        shown.contains("`transformer.h.0.mlp.c_proj`") && shown.contains("its bias is not held as its product is"),
        "{shown}"
    );
}

/// The rows that a rank has not are masked by the rule of the operator: what is left to say is that the result is a sum.
#[test]
fn f23_a_table_in_pieces_gives_a_sum() {
    let run =
        check("m.transformer.wte.weight.shard(vocab, over: tp)\nm.lm_head.input().grad().sync(all_reduce, over: tp)");
    refused(&run, "S0602", "m.transformer.wte.weight.shard", &["wte.output().sync(all_reduce"]);
}

/// Every operator is in the graph: what has no rule is named, with the line of the model that computes it.
#[test]
fn f39_an_operator_without_a_rule_is_named_with_its_line() {
    let text = "model \"misc.pt2\"\ninput { batch = 4, seq = 8 }\nmesh { tp = 2 }\nschedule main(m: Misc) {\n\
                m.embed.output().sync(slice(seq), over: tp)\n}\n";
    let run = run("case", text).compiled();
    refused(&run, "S0603", "m.embed.output()", &["`cumsum` has no layout rule", "torch.cumsum(x, dim=1)"]);
    let [line] = run.diagnostics[0].excerpt.as_slice() else { panic!("{}", run.rendered()) };
    assert!(line.file == "make.py" && line.line > 60, "{}:{}", line.file, line.line);
}
