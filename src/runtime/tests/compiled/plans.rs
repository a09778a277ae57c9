//! Ways to spread two layers, and what schedules promise beside the numbers: every one beside libtorch's own autograd.

use crate::harness::{BOUND, Case};

const BERT: &str = "tests/data/bert-tiny.pt2";
const GPT2: &str = "tests/data/gpt2-odd.pt2";

fn assert_right(case: &Case, what: &str) {
    let apart = case.run(case.programs()).unwrap_or_else(|e| panic!("{what}: {e}")).apart(&case.oracle());
    assert!(apart <= BOUND, "{what}: {apart:e}");
}

/// Plans of the two linear layers `one` and `two` of an MLP, by what a rank holds between them and of what.
const PLANS: [(&str, &str); 8] = [
    ("whole", ""),
    (
        "features in the first, then positions: all-to-all between them",
        "column(one, over: tp)
        one.output().sync(all_to_all(hidden, seq), over: tp)
        one.output().grad().sync(all_to_all(seq, hidden), over: tp)
        two.output().sync(all_gather, over: tp)
        two.output().grad().sync(slice(seq), over: tp)
        two.{weight, bias}.grad().sync(all_reduce, over: tp)",
    ),
    (
        "positions in the first, then features: all-to-all between them",
        "one.input().sync(slice(seq), over: tp)
        one.input().grad().sync(all_gather, over: tp)
        one.{weight, bias}.grad().sync(all_reduce, over: tp)
        one.output().sync(all_to_all(seq, hidden), over: tp)
        one.output().grad().sync(all_to_all(hidden, seq), over: tp)
        row(two, over: tp)",
    ),
    ("column and row", "column(one, over: tp)\nrow(two, over: tp)"),
    ("two columns, gathered", "column_gathered(one, over: tp)\ncolumn_gathered(two, over: tp)"),
    (
        "whole, then features",
        "one.output().sync(slice(hidden), over: tp)
        one.output().grad().sync(all_gather, over: tp)
        row(two, over: tp)",
    ),
    (
        "whole, then positions",
        "one.output().sync(slice(seq), over: tp)
        one.output().grad().sync(all_gather, over: tp)
        two.output().sync(all_gather, over: tp)
        two.output().grad().sync(slice(seq), over: tp)
        two.{weight, bias}.grad().sync(all_reduce, over: tp)",
    ),
    (
        "whole, then positions, cut in front of the second",
        "two.input().sync(slice(seq), over: tp)
        two.input().grad().sync(all_gather, over: tp)
        two.output().layout(replicate, over: tp)
        two.output().grad().layout(shard(seq), over: tp)
        two.{weight, bias}.grad().layout(replicate, over: tp)",
    ),
];

#[test]
fn eight_plans_of_two_layers() {
    for (what, plan) in PLANS {
        for (archive, layers) in [
            (BERT, "let l = m.bert.encoder.layer[0]\nlet one = l.intermediate.dense\nlet two = l.output.dense"),
            (GPT2, "let one = m.transformer.h[0].mlp.c_fc\nlet two = m.transformer.h[0].mlp.c_proj"),
        ] {
            let case = Case::on(archive, "tp = 2", &format!("{layers}\n{plan}"));
            assert_right(&case, &format!("{what}, {archive}"));
        }
    }
}

/// Four ranks would add a bias four times; as every parameter here, it is drawn and not zero.
#[test]
fn the_bias_of_a_row_layer_is_added_once() {
    let of_bert =
        "let l = m.bert.encoder.layer[0]\ncolumn(l.intermediate.dense, over: tp)\nrow(l.output.dense, over: tp)";
    let of_gpt2 = "let mlp = m.transformer.h[0].mlp\ncolumn(mlp.c_fc, over: tp)\nrow(mlp.c_proj, over: tp)";
    for (archive, body, bias) in
        [(BERT, of_bert, "bert.encoder.layer.0.output.dense.bias"), (GPT2, of_gpt2, "transformer.h.0.mlp.c_proj.bias")]
    {
        let case = Case::on(archive, "tp = 4", body);
        let outcome = case.run(case.programs()).expect("it runs");
        let (ours, theirs) = (&outcome.parameters[bias], &case.oracle().parameters[bias]);
        assert!(theirs.iter().any(|x| x.abs() > 0.1), "{bias} is not drawn");
        assert!(ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() <= 1e-10), "{bias}");
        assert_right(&case, archive);
    }
}

/// Dropout of attention, which the ranks share, and behind it, which they repeat: what is drawn once more is drawn alike, to the
/// last bit.
#[test]
fn recomputed_dropout_is_the_same_inside_and_outside_of_split_layers() {
    let split = "for l in m.bert.encoder.layer {
        column(l.attention.self.{query, key, value}, over: tp)
        row(l.attention.output.dense, over: tp)
    }";
    let kept = Case::on(BERT, "tp = 2", split);
    let recomputed = Case::on(BERT, "tp = 2", &format!("{split}\nm.bert.encoder.layer.*.checkpoint()"));
    let outcomes = [&kept, &recomputed].map(|case| case.run(case.programs()).expect("it runs"));
    assert_eq!(outcomes[0].apart(&outcomes[1]), 0.0);
    let mut without = Case::on(BERT, "tp = 2", split);
    without.options.model.no_dropout = true;
    assert!(without.run(without.programs()).expect("it runs").apart(&outcomes[0]) > 1e-3, "nothing was dropped");
}

/// Two tables and a head that are one parameter: split under each of its names, with one gradient.
#[test]
fn a_tie_of_three_survives_sharding() {
    let body = "vocab(m.source, over: tp)
        m.target.output().sync(all_reduce, over: tp)
        m.head.input().grad().sync(all_reduce, over: tp)";
    for mesh in ["tp = 2", "tp = 3"] {
        let case = Case::on("tests/data/shared.pt2", mesh, body);
        let names = ["source.weight", "target.weight", "head.weight"];
        assert!(case.model.parameters.iter().any(|parameter| parameter.names == names));
        let programs = case.programs();
        assert!(programs[0].parameters.iter().any(|parameter| parameter.names == names));
        let table = case.run(programs).expect("it runs");
        assert_eq!(table.parameters["source.weight"].len(), 13 * 10, "{mesh}: it is one parameter, whole");
        assert_right(&case, mesh);
    }
}
