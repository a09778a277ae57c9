//! What must be known of each archive.

use crate::support::{Edit, MODELS, bytes, model};
use slapo_model::sym::{Range, Symbol};
use slapo_model::{Def, Model, Module, import, validate};

fn module<'a>(model: &'a Model, path: &str) -> &'a Module {
    model.module(model.find(path).unwrap_or_else(|| panic!("no module {path}")))
}

#[test]
fn every_archive_gives_a_valid_graph() {
    for name in MODELS {
        let model = model(name);
        assert_eq!(validate(&model, &model.graph), [], "{name}");
    }
}

#[test]
fn parameters_are_counted_with_ties_once() {
    let counts = MODELS.map(|name| {
        let model = model(name);
        let elements = model.parameters.iter().map(|p| p.shape.iter().product::<i64>());
        (model.parameters.len(), elements.sum::<i64>())
    });
    assert_eq!(counts, [(40, 174_656), (28, 11_280), (42, 16_673), (36, 15_984), (21, 10_728), (8, 1_055), (5, 377)]);
}

#[test]
fn the_first_name_in_the_models_order_owns_a_tie() {
    let ties = |name| -> Vec<Vec<String>> {
        let parameters = model(name).parameters.into_iter();
        parameters.map(|p| p.names).filter(|names| names.len() > 1).collect()
    };
    assert_eq!(ties("gpt2-tiny"), [["transformer.wte.weight", "lm_head.weight"]]);
    assert_eq!(
        ties("bert-tiny"),
        [
            ["bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"],
            ["cls.predictions.bias", "cls.predictions.decoder.bias"],
        ]
    );
    assert_eq!(ties("opt-tiny"), [["model.decoder.embed_tokens.weight", "lm_head.weight"]]);
    assert!(ties("llama-tiny").is_empty());
    assert!(ties("misc").is_empty());
}

#[test]
fn a_tie_is_one_value_and_both_modules_own_it() {
    let model = model("gpt2-tiny");
    let of = |path| module(&model, path).parameters[0].clone();
    assert_eq!(of("transformer.wte").1, of("lm_head").1);
    let defs = model.graph.values.iter().filter(|value| value.def == Def::Parameter(of("lm_head").1));
    assert_eq!(defs.map(|v| v.name.as_str()).collect::<Vec<_>>(), ["p_transformer_wte_weight"]);
    for node in model.graph.nodes.iter().filter(|n| n.is_aten("linear")) {
        assert_eq!(model.graph.value(node.tensor("weight").unwrap()).name, "p_transformer_wte_weight");
    }
}

#[test]
fn values_begin_with_parameters_buffers_and_inputs() {
    for name in MODELS {
        let model = model(name);
        let defs: Vec<Def> = model.graph.values.iter().map(|v| v.def).collect();
        let (p, b) = (model.parameters.len(), model.buffers.len());
        assert!(defs[..p].iter().all(|d| matches!(d, Def::Parameter(_))), "{name}");
        assert!(defs[p..p + b].iter().all(|d| matches!(d, Def::Buffer(_))), "{name}");
        let inputs = &defs[p + b..p + b + model.inputs.len()];
        assert!(inputs.iter().all(|d| matches!(d, Def::Input(_))), "{name}");
    }
}

#[test]
fn modules_have_classes_and_containers_have_none() {
    let model = model("gpt2-tiny");
    let class = |path| module(&model, path).class.as_str();
    assert_eq!(class(""), "transformers.models.gpt2.modeling_gpt2.GPT2LMHeadModel");
    assert_eq!(class("transformer.h"), "");
    assert_eq!(class("transformer.h.2.mlp.act"), "transformers.activations.NewGELUActivation");
    assert_eq!(module(&model, "transformer.h.2.attn").short_class(), "GPT2Attention");
    let children = |path| -> Vec<&str> {
        let children = module(&model, path).children.iter();
        children.map(|id| model.module(*id).name.as_str()).collect()
    };
    assert_eq!(children(""), ["transformer", "lm_head"]);
    assert_eq!(children("transformer"), ["wte", "wpe", "drop", "h", "ln_f"]);
    assert_eq!(children("transformer.h"), ["0", "1", "2"]);
}

#[test]
fn numbered_children_stand_in_numeric_order() {
    let model = Edit::small()
        .model(|model| {
            let calls = model["graph_module"]["module_call_graph"].as_array_mut().unwrap();
            for number in [10, 2, 1] {
                calls.push(serde_json::json!({"fqn": format!("blocks.{number}"), "signature": null}));
            }
        })
        .import()
        .unwrap();
    let blocks = module(&model, "blocks").children.iter();
    let names: Vec<&str> = blocks.map(|id| model.module(*id).name.as_str()).collect();
    assert_eq!(names, ["1", "2", "10"]);
}

#[test]
fn modules_are_numbered_depth_first() {
    for name in MODELS {
        let model = model(name);
        for (index, module) in model.modules.iter().enumerate() {
            assert!(module.parent.is_none_or(|parent| (parent.0 as usize) < index));
            let children = module.children.iter();
            assert!(children.clone().all(|child| child.0 as usize > index));
            assert!(children.is_sorted());
        }
    }
}

#[test]
fn a_module_called_twice_has_two_scopes() {
    let model = model("misc");
    let mix = model.find("mix").unwrap();
    let calls: Vec<u32> = model.scopes.iter().filter(|s| s.module == mix).map(|s| s.call).collect();
    assert_eq!(calls, [0, 1]);
    let scopes: Vec<u32> = model
        .graph
        .nodes
        .iter()
        .filter(|node| node.is_aten("conv1d"))
        .map(|node| model.scopes[node.origin.scope.0 as usize].call)
        .collect();
    assert_eq!(scopes, [0, 1]);
}

#[test]
fn nodes_belong_to_the_innermost_module() {
    let model = model("gpt2-tiny");
    let mut paths: Vec<&str> = model
        .graph
        .nodes
        .iter()
        .filter(|node| node.is_aten("addmm"))
        .map(|node| model.scope_path(node.origin.scope))
        .collect();
    paths.truncate(4);
    assert_eq!(
        paths,
        [
            "transformer.h.0.attn.c_attn",
            "transformer.h.0.attn.c_proj",
            "transformer.h.0.mlp.c_fc",
            "transformer.h.0.mlp.c_proj",
        ]
    );
}

#[test]
fn nodes_without_a_stack_belong_to_the_call_around_their_neighbours() {
    let gone = serde_json::json!("_empty_nn_module_stack_from_metadata_hook,x,x");
    let model = Edit::of("gpt2-odd")
        .node("addmm", |node| node["metadata"]["nn_module_stack"] = gone.clone())
        .node("layer_norm_1", |node| node["metadata"]["nn_module_stack"] = gone)
        .import();
    // The path of a missing stack is its key thrice; anything else is a module.
    assert!(model.is_ok());
    let gone = serde_json::json!(["_empty_nn_module_stack_from_metadata_hook"; 3].join(","));
    let model = Edit::of("gpt2-odd")
        .node("addmm", |node| node["metadata"]["nn_module_stack"] = gone.clone())
        .node("layer_norm_1", |node| node["metadata"]["nn_module_stack"] = gone)
        .import()
        .unwrap();
    let path = |name: &str| {
        let value = model.graph.values.iter().find(|value| value.name == name).unwrap();
        let Def::Node(node, _) = value.def else { unreachable!() };
        model.scope_path(model.graph.node(node).origin.scope)
    };
    assert_eq!(path("addmm"), "transformer.h.0.attn.c_attn");
    assert_eq!(path("layer_norm_1"), "transformer.h.0");
}

#[test]
fn buffers_know_where_they_lie() {
    let model = model("misc");
    let shown: Vec<String> =
        model.buffers.iter().map(|b| format!("{} {} {:?}", b.name, b.persistent, b.module.map(|id| id.0))).collect();
    assert_eq!(shown, ["window false Some(0)", "offset true Some(0)", "lifted_tensor_0 false None"]);
    let file = bytes("misc");
    let values = |name: &str, count: usize| -> Vec<f32> {
        let buffer = model.buffers.iter().find(|b| b.name == name).unwrap();
        let start = buffer.stored.as_ref().unwrap().offset as usize;
        let bytes = file[start..start + 4 * count].chunks_exact(4);
        bytes.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    // `window` is `hann_window(14)[1:-1]`: its box begins inside its storage.
    assert!(values("window", 12)[0] > 0.04 && values("window", 12)[0] < 0.06);
    assert_eq!(values("offset", 12), [0.125; 12]);
    assert_eq!(values("lifted_tensor_0", 1), [1.25]);
}

/// PyTorch aligns every entry, so that weights can be used where they lie.
#[test]
fn parameters_are_stored_aligned_and_contiguous() {
    for parameter in model("gpt2-tiny").parameters {
        let stored = parameter.stored.unwrap();
        assert_eq!(stored.offset % 64, 0);
        let mut strides = vec![1; parameter.shape.len()];
        for dim in (1..strides.len()).rev() {
            strides[dim - 1] = strides[dim] * parameter.shape[dim];
        }
        assert_eq!(stored.strides, strides, "{:?}", parameter.names);
    }
}

#[test]
fn changed_buffers_are_recorded() {
    let model = model("counters");
    let shown: Vec<(&str, &str)> = model
        .mutations
        .iter()
        .map(|(buffer, value)| {
            let buffer = &model.buffers[buffer.0 as usize];
            (buffer.name.as_str(), model.graph.value(*value).name.as_str())
        })
        .collect();
    assert_eq!(
        shown,
        [("norm.running_mean", "getitem_3"), ("norm.running_var", "getitem_4"), ("norm.num_batches_tracked", "add_8"),]
    );
    assert_eq!(model.graph.outputs.len(), 2);
}

#[test]
fn symbols_have_ranges() {
    let model = model("gpt2-tiny");
    let symbol = |name: &str, max| {
        let range = Range { min: Some(2), max };
        (Symbol(name.to_string()), range)
    };
    assert_eq!(
        model.symbols,
        [symbol("s38", Some(128)), symbol("s70", Some(128)), symbol("s72", None), symbol("s97", None)]
    );
}

#[test]
fn an_ignored_input_is_known() {
    let unused = |name| -> Vec<String> {
        let model = model(name);
        model.unused_inputs().iter().map(|input| input.name.clone()).collect()
    };
    assert_eq!(unused("bad/ignored"), ["input_ids"]);
    for name in MODELS {
        assert!(unused(name).is_empty(), "{name}");
    }
}

#[test]
fn the_fingerprint_is_of_the_graph_and_not_of_the_weights() {
    let small = model("bad/small").fingerprint;
    assert_eq!(small.len(), 32);
    let reweighted = Edit::small().bytes_of("weights/weight_0", |bytes| bytes.fill(7)).import();
    assert_eq!(reweighted.unwrap().fingerprint, small);
    let moved = Edit::small().node("linear", |node| {
        node["metadata"]["stack_trace"] = serde_json::json!("File \"other.py\", line 1, in forward\n    x");
    });
    assert_eq!(moved.import().unwrap().fingerprint, small);
    let renamed = Edit::small().json("model_weights_config.json", |table| {
        table["config"]["embed.alias"] = table["config"]["embed.weight"].clone();
    });
    assert_ne!(renamed.import().unwrap().fingerprint, small);
    let rewired = Edit::small().node("cross_entropy_loss", |node| {
        let smoothing = serde_json::json!({"name": "label_smoothing", "arg": {"as_float": 0.1}, "kind": 1});
        node["inputs"].as_array_mut().unwrap().push(smoothing);
    });
    assert_ne!(rewired.import().unwrap().fingerprint, small);
}

#[test]
fn the_same_bytes_give_the_same_model() {
    for name in MODELS {
        let bytes = bytes(name);
        assert_eq!(import(&bytes), import(&bytes), "{name}");
    }
}
