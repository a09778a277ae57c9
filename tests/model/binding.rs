//! Sizes bound to models: what is legal, and that every shape of the graph comes out.

use crate::support::{Edit, MODELS, model};
use serde_json::json;
use slapo_model::{Arg, BindError, InputSizes, bind, legal_sizes, validate};

fn sizes(batch: i64, seq: i64) -> InputSizes {
    InputSizes { batch, seq: Some(seq) }
}

#[test]
fn every_legal_size_binds() {
    for name in MODELS {
        let model = model(name);
        for (batch, seq) in [(1, 1), (1, 7), (2, 1), (3, 2), (16, 19)] {
            let graph = bind(&model, &sizes(batch, seq)).unwrap();
            assert_eq!(validate(&model, &graph), [], "{name} {batch} {seq}");
            for input in &graph.inputs {
                assert_eq!(graph.ty(*input).shape, [batch, seq], "{name}");
            }
        }
    }
}

/// What PyTorch computes for the shapes of a GPT-2, at a batch of 1 too.
#[test]
fn shapes_follow_from_the_inputs() {
    let model = model("gpt2-tiny");
    for (batch, seq) in [(1, 1), (1, 9), (5, 6)] {
        let graph = bind(&model, &sizes(batch, seq)).unwrap();
        let shape = |name: &str| {
            let value = graph.values.iter().find(|v| v.name == name);
            value.unwrap().ty.shape.clone()
        };
        assert_eq!(shape("embedding"), [batch, seq, 64]);
        assert_eq!(shape("addmm"), [batch * seq, 192]);
        assert_eq!(shape("scaled_dot_product_attention"), [batch, 4, seq, 16]);
        assert_eq!(shape("linear"), [batch, seq, 256]);
        assert_eq!(shape("pad"), [batch, seq + 1]);
        assert_eq!(graph.ty(graph.loss).shape, [0; 0]);
    }
}

#[test]
fn sizes_of_views_are_concrete() {
    for name in MODELS {
        let model = model(name);
        let graph = bind(&model, &sizes(3, 7)).unwrap();
        for node in &graph.nodes {
            if let (true, Some(Arg::Ints(size))) = (node.is_aten("view") || node.is_aten("expand"), node.arg("size")) {
                assert_eq!(*size, graph.ty(node.outs[0].unwrap()).shape, "{name}");
            }
        }
    }
}

#[test]
fn sizes_out_of_range_are_refused_with_the_legal_ones() {
    let model = model("gpt2-tiny");
    let legal = legal_sizes(&model);
    assert_eq!((legal.batch.to_string(), legal.seq.to_string()), ("1..".into(), "1..=128".into()));
    let refused = |batch, seq| {
        let error = bind(&model, &sizes(batch, seq)).unwrap_err();
        format!("{error}; {}", error.advice().unwrap_or_default())
    };
    assert_eq!(refused(8, 200), "seq 200 is over the model's limit 128; legal here: 1..=128");
    assert_eq!(refused(0, 64), "batch 0 is under the model's limit 1; legal here: 1..");
    assert_eq!(refused(-3, 64), "batch -3 is under the model's limit 1; legal here: 1..");
    let error = bind(&model, &InputSizes { batch: 8, seq: None }).unwrap_err();
    assert_eq!(error.to_string(), "the sequence length of `input_ids` is not given");
    assert_eq!(error.advice().unwrap(), "give `seq` in `input`; legal here: 1..=128");
}

#[test]
fn huge_sizes_are_refused() {
    let error = bind(&model("gpt2-tiny"), &sizes(i64::MAX, 64)).unwrap_err();
    assert!(matches!(error, BindError::NoSize { .. }), "{error}");
}

fn with_input_shape(shape: serde_json::Value) -> slapo_model::Model {
    Edit::small().graph(|graph| graph["tensor_values"]["labels"]["sizes"] = shape).import().unwrap()
}

fn symbol(name: &str) -> serde_json::Value {
    json!({"as_expr": {"expr_str": format!("Symbol('{name}')"), "hint": null}})
}

#[test]
fn static_sizes_accept_only_themselves() {
    let model = with_input_shape(json!([{"as_int": 4}, symbol("s38")]));
    assert_eq!(legal_sizes(&model).batch.to_string(), "4");
    let error = bind(&model, &sizes(8, 5)).unwrap_err();
    assert_eq!(error.to_string(), "batch 8 does not fit: `labels` was exported with a fixed size of 4");
    assert_eq!(error.advice().unwrap(), "legal here: 4 alone; export with a dynamic batch for others");
}

#[test]
fn a_size_that_nothing_decides_is_refused() {
    let model = with_input_shape(json!([symbol("s97"), symbol("s38"), symbol("s5")]));
    let error = bind(&model, &sizes(8, 5)).unwrap_err();
    assert_eq!(error.to_string(), "dimension 2 of `labels` is dynamic, and neither batch nor seq decides it");
}

#[test]
fn a_size_given_as_an_expression_is_solved() {
    let double = json!({"as_expr": {"expr_str": "Mul(Integer(2), Symbol('s97'))", "hint": null}});
    let model = with_input_shape(json!([double, symbol("s38")]));
    assert_eq!(legal_sizes(&model).batch.to_string(), "2..");
    let graph = bind(&model, &sizes(8, 5)).unwrap_err();
    // Four rows of labels for eight of inputs: the export flattened both.
    assert!(matches!(graph, BindError::Uneven { .. }), "{graph}");
    let error = bind(&model, &sizes(7, 5)).unwrap_err();
    assert!(matches!(error, BindError::Contradiction { size: 6, asked: 7, .. }), "{error}");
}

#[test]
fn a_lower_limit_above_two_is_real() {
    let model = Edit::small().model(|model| model["range_constraints"]["s72"]["min_val"] = json!(4)).import().unwrap();
    assert_eq!(legal_sizes(&model).batch.to_string(), "4..");
    let error = bind(&model, &sizes(3, 5)).unwrap_err();
    assert_eq!(error.to_string(), "batch 3 is under the model's limit 4");
}
