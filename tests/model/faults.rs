//! Archives that are refused, each with one thing wrong, and what the user is told.

use crate::support::{Edit, bytes, model};
use serde_json::{Value, json};
use slapo_model::{Arg, ImportError, import};

/// Message, place in the model and its source, and advice of each error.
fn told(result: Result<slapo_model::Model, Vec<ImportError>>) -> String {
    let errors = match result {
        Ok(_) => return "accepted\n".to_string(),
        Err(errors) => errors,
    };
    let mut text = String::new();
    for error in errors {
        text += &format!("error: {error}\n");
        if let Some(source) = error.site().and_then(|site| site.source.as_ref()) {
            text += &format!("  {}:{}: {}\n", source.file, source.line, source.text);
        }
        if let Some(advice) = error.advice() {
            text += &format!("  help: {advice}\n");
        }
    }
    text
}

#[test]
fn committed_archives_are_refused() {
    let mut text = String::new();
    for name in ["empty", "inplace", "json", "noweights", "random", "schema", "short", "truncated", "zip"] {
        text += &format!("{name}\n{}\n", told(import(&bytes(&format!("bad/{name}")))));
    }
    insta::assert_snapshot!("faults-committed", text);
}

fn argument(node: &mut Value, name: &str, arg: Value) {
    let inputs = node["inputs"].as_array_mut().unwrap();
    match inputs.iter_mut().find(|input| input["name"] == name) {
        Some(input) => input["arg"] = arg,
        None => inputs.push(json!({"name": name, "arg": arg, "kind": 2})),
    }
}

fn specs<'a>(model: &'a mut Value, which: &str) -> &'a mut Vec<Value> {
    model["graph_module"]["signature"][which].as_array_mut().unwrap()
}

#[test]
fn edited_archives_are_refused() {
    let target =
        |name: &'static str, target: &'static str| Edit::small().node(name, |node| node["target"] = json!(target));
    let linear = |name: &'static str, arg: Value| Edit::small().node("linear", |node| argument(node, name, arg));
    let output = |spec: Value| Edit::small().model(|model| specs(model, "output_specs").push(spec));
    let input = |spec: Value| Edit::small().model(|model| specs(model, "input_specs").push(spec));
    let meta = |name: &'static str, field: &'static str, value: Value| {
        Edit::small().graph(|graph| graph["tensor_values"][name][field] = value)
    };
    let weight = |name: &'static str, field: &'static str, value: Value| {
        Edit::small().json("model_weights_config.json", |table| table["config"][name][field] = value)
    };
    let cases: Vec<(&str, Edit)> = vec![
        (
            "two in-place operators, one that writes to an argument, and missing weights",
            Edit::small()
                .without("weights/weight_1")
                .node("embedding", |node| node["target"] = json!("torch.ops.aten.relu_.default"))
                .node("linear", |node| node["target"] = json!("torch.ops.aten.mul.out"))
                .node("view", |node| node["target"] = json!("torch.ops.aten.__iand__.Tensor")),
        ),
        ("control flow", target("linear", "torch.ops.higher_order.cond")),
        ("a custom operator", target("linear", "torch.ops.mylib.fused_linear.default")),
        ("a function that is no operator", target("linear", "mylib.fused_linear")),
        (
            "batch statistics in place",
            Edit::of("counters").node("_native_batch_norm_legit_functional", |node| {
                node["target"] = json!("torch.ops.aten.batch_norm.default");
            }),
        ),
        ("an unknown kind of argument", linear("x", json!({"as_nested_tensors": []}))),
        ("a complex number", linear("x", json!({"as_complex": {"real": 1.0, "imag": 0.0}}))),
        ("a symbolic float", linear("x", json!({"as_sym_float": {"as_name": "f"}}))),
        ("a sparse layout", linear("x", json!({"as_layout": 1}))),
        ("an unsupported type asked for", linear("dtype", json!({"as_scalar_type": 29}))),
        ("an unknown integer", linear("x", json!({"as_sym_int": {"as_name": "nothing"}}))),
        ("a read of nothing", linear("input", json!({"as_tensor": {"name": "nothing"}}))),
        ("a read of what comes later", linear("input", json!({"as_tensor": {"name": "view"}}))),
        ("an argument without a kind", linear("x", json!({}))),
        (
            "a result without a type",
            Edit::small().graph(|graph| {
                graph["tensor_values"].as_object_mut().unwrap().remove("linear");
            }),
        ),
        ("a result of an unsupported type", meta("linear", "dtype", json!(10))),
        ("a negative size", meta("linear", "sizes", json!([{"as_int": -1}]))),
        (
            "an unknown function in a size",
            meta(
                "linear",
                "sizes",
                json!([
                    {"as_expr": {"expr_str": "Zeta(Integer(2))", "hint": null}}
                ]),
            ),
        ),
        (
            "a name defined twice",
            Edit::small().node("linear", |node| {
                node["outputs"] = json!([{"as_tensor": {"name": "linear"}}, {"as_tensor": {"name": "embedding"}}]);
            }),
        ),
        ("no loss", Edit::small().model(|model| drop(specs(model, "output_specs").remove(0)))),
        ("no outputs", Edit::small().model(|model| specs(model, "output_specs").clear())),
        ("an output that is not there", output(json!({"user_output": {"arg": {"as_tensor": {"name": "x"}}}}))),
        (
            "a parameter changed",
            output(json!({"parameter_mutation": {"arg": {"name": "linear"}, "parameter_name": "head.weight"}})),
        ),
        (
            "an input changed",
            output(json!({"user_input_mutation": {"arg": {"name": "linear"}, "user_input_name": "labels"}})),
        ),
        (
            "a backward",
            output(json!({"gradient_to_parameter": {"arg": {"name": "linear"}, "parameter_name": "head.weight"}})),
        ),
        (
            "a buffer changed that is none",
            output(json!({"buffer_mutation": {"arg": {"name": "linear"}, "buffer_name": "x"}})),
        ),
        ("a number as input", input(json!({"user_input": {"arg": {"as_sym_int": {"as_name": "n"}}}}))),
        (
            "a custom object",
            input(json!({"custom_obj": {"arg": {"name": "o", "class_fqn": "C"}, "custom_obj_name": "o"}})),
        ),
        ("a token", input(json!({"token": {"arg": {"name": "t"}}}))),
        ("an unknown input", input(json!({"telepathy": {}}))),
        (
            "a parameter without an entry",
            Edit::small().json("model_weights_config.json", |table| {
                table["config"].as_object_mut().unwrap().remove("head.weight");
            }),
        ),
        ("a pickled weight", weight("head.weight", "use_pickle", json!(true))),
        ("weights of another shape", meta("p_head_weight", "sizes", json!([{"as_int": 7}, {"as_int": 5}]))),
        (
            "overlapping parameters",
            Edit::small().json("model_weights_config.json", |table| {
                table["config"]["head.bias"]["path_name"] = json!("weight_1");
            }),
        ),
        ("no table of weights", Edit::small().without("model_weights_config.json")),
        ("a big-endian archive", Edit::small().bytes_of("byteorder", |bytes| *bytes = b"big".to_vec())),
        (
            "a module too deep",
            Edit::small().model(|model| {
                let calls = model["graph_module"]["module_call_graph"].as_array_mut().unwrap();
                calls.push(json!({"fqn": vec!["a"; 70].join("."), "signature": null}));
            }),
        ),
        (
            "a broken module stack",
            Edit::small().node("linear", |node| {
                node["metadata"]["nn_module_stack"] = json!("no stack");
            }),
        ),
        (
            "an older schema of another form",
            Edit::small().model(|model| {
                model["schema_version"] = json!({"major": 5, "minor": 2});
                model["graph_module"] = json!([]);
            }),
        ),
    ];
    let mut text = String::new();
    for (what, edit) in cases {
        text += &format!("{what}\n{}\n", told(edit.import()));
    }
    assert!(!text.contains("accepted"), "{text}");
    insta::assert_snapshot!("faults-edited", text);
}

#[test]
fn compressed_entries_are_refused() {
    let mut bytes = bytes("bad/small");
    // The method stands 10 bytes into a directory entry and 36 before the name; names are written at both places.
    let name = b"models/model.json";
    let at: Vec<usize> = (0..bytes.len() - name.len()).filter(|i| bytes[*i..].starts_with(name)).collect();
    let directory = at[at.len() - 1] - "small/".len() - 36;
    assert_eq!(bytes[directory..directory + 2], [0, 0]);
    bytes[directory] = 8;
    insta::assert_snapshot!(told(import(&bytes)), @r"
    error: entry `models/model.json` is compressed
      help: weights are read in place: keep the file as `torch.export.save` wrote it
    ");
}

/// Things that look like faults and are none.
#[test]
fn harmless_archives_are_accepted() {
    let constant = json!({"constant_input": {"name": "use_cache", "value": {"as_bool": false}}});
    let none = json!({"user_input": {"arg": {"as_none": true}}});
    let plain = model("bad/small").fingerprint;
    let model = Edit::small()
        .model(|model| {
            let specs = specs(model, "input_specs");
            specs.insert(0, constant);
            specs.push(none);
        })
        .node("linear", |node| node["metadata"]["custom"] = json!("field"))
        .graph(|graph| {
            let effects = ["_assert_scalar.default", "_assert_async.msg", "sym_constrain_range_for_size.default"];
            for target in effects {
                let node = json!({
                    "target": format!("torch.ops.aten.{target}"),
                    "inputs": [{"name": "x", "arg": {"as_sym_bool": {"as_name": "b"}}, "kind": 1}],
                    "outputs": [],
                    "metadata": {},
                });
                graph["nodes"].as_array_mut().unwrap().push(node);
            }
        })
        .import()
        .unwrap();
    assert_eq!(model.fingerprint, plain);
}

#[test]
fn every_encoding_of_arguments_is_read() {
    let model = Edit::small()
        .node("linear", |node| {
            let ids = json!({"name": "input_ids"});
            for (name, arg) in [
                ("a", json!({"as_optional_tensors": [{"as_none": true}, {"as_tensor": ids}]})),
                ("b", json!({"as_optional_tensor": {"as_tensor": ids}})),
                ("c", json!({"as_optional_tensor": {"as_none": true}})),
                ("d", json!({"as_tensors": [ids, ids]})),
                ("e", json!({"as_float": "-Infinity"})),
                ("f", json!({"as_floats": [1, 2.5, "NaN"]})),
                ("g", json!({"as_bools": [true, false]})),
                ("h", json!({"as_string": "tanh"})),
                ("i", json!({"as_scalar_type": 13})),
                ("j", json!({"as_sym_int": {"as_int": 3}})),
                ("k", json!({"as_sym_ints": [{"as_int": 3}, {"as_name": "sym_size_int_4"}]})),
                ("l", json!({"as_device": {"type": "cuda", "index": 0}})),
                ("m", json!({"as_memory_format": 2})),
                ("n", json!({"as_none": true})),
                ("o", json!({"as_sym_int": {"as_name": "sym_size_int_4"}})),
            ] {
                argument(node, name, arg);
            }
        })
        .graph(|graph| {
            let size = json!({"as_expr": {"expr_str": "Symbol('s72')", "hint": null}});
            graph["sym_int_values"]["sym_size_int_4"] = size;
        })
        .import()
        .unwrap();
    let linear = model.graph.nodes.iter().find(|node| node.is_aten("linear")).unwrap();
    let listing = slapo_model::Listing::of(&model).to_string();
    let line = listing.lines().find(|line| line.starts_with("%linear")).unwrap();
    let kept = "a: [None, %input_ids], b: %input_ids, c: None, d: [%input_ids, %input_ids], e: -inf, \
                f: [1.0, 2.5, NaN], g: [true, false], h: \"tanh\", i: bf16, j: 3, k: [3, s72], n: None, o: s72)  # head";
    assert!(line.ends_with(kept), "{line}");
    assert!(matches!(linear.arg("e"), Some(Arg::Float(value)) if *value == f64::NEG_INFINITY));
    assert!(linear.arg("l").is_none() && linear.arg("m").is_none());
}

/// `getitem` nodes, should an exporter write them, pick the value itself.
#[test]
fn picks_from_lists_vanish() {
    let model =
        Edit::small()
            .graph(|graph| {
                let mut meta = graph["tensor_values"]["linear"].clone();
                meta["requires_grad"] = json!(false);
                graph["tensor_values"]["picked"] = meta;
                let nodes = graph["nodes"].as_array_mut().unwrap();
                let after = nodes.iter().position(|node| node["name"] == "linear").unwrap();
                nodes.insert(after + 1, json!({
                "target": "_operator.getitem",
                "inputs": [
                    {"name": "a", "arg": {"as_tensors": [{"name": "embedding"}, {"name": "linear"}]}, "kind": 1},
                    {"name": "b", "arg": {"as_int": 1}, "kind": 1},
                ],
                "outputs": [{"as_tensor": {"name": "picked"}}],
                "metadata": {},
            }));
            })
            .node("view", |node| argument(node, "self", json!({"as_tensor": {"name": "picked"}})))
            .import()
            .unwrap();
    assert_eq!(model.fingerprint, crate::support::model("bad/small").fingerprint);
}
