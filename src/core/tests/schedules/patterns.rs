//! Patterns: what is found, what is not and why, and what may be done with a match. Tests with a number are faults of
//! other tools, by number.

use crate::support::{Run, refused, run};
use slapo_core::compile::{Options, compile};
use slapo_core::schedule::{replay, to_json};

const GELU: &str = "pattern gelu_tanh(x) = 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ^ 3)))";

fn on(model: &str, items: &str, body: &str) -> Run {
    let text = format!(
        "model \"{model}\"\ninput {{ batch = 8, seq = 16 }}\n{items}\nschedule main(m: Module) {{\n{body}\n}}\n"
    );
    run("pattern", &text).compiled()
}

/// On the example, whose activation is GELU in steps.
fn gpt2(items: &str, body: &str) -> Run {
    on("gpt2-tiny.pt2", items, body)
}

/// The targets of all steps, with nothing to say.
fn targets(run: &Run) -> Vec<&str> {
    assert_eq!(run.rendered(), "");
    run.checked.steps.iter().map(|step| step.target.path.as_str()).collect()
}

#[test]
fn a_pattern_is_found_in_every_block_and_below_any_module() {
    let all = ["transformer.h.0.mlp.act", "transformer.h.1.mlp.act", "transformer.h.2.mlp.act"];
    let all = all.map(|path| format!("{path}.find(gelu_tanh)"));
    for body in [
        "m.find(gelu_tanh).checkpoint()",
        "m.transformer.h.find(gelu_tanh).expect(3).checkpoint()",
        "m.**.find(gelu_tanh).checkpoint()",
        "for b in m.transformer.h { b.mlp.act.find(gelu_tanh)[0].checkpoint() }",
        "for found in m.find(gelu_tanh) { found.checkpoint() }",
    ] {
        assert_eq!(targets(&gpt2(GELU, body)), all, "{body}");
    }
    let run = gpt2(GELU, "m.find(gelu_tanh)[1 ..].checkpoint()");
    assert_eq!(targets(&run), all[1..]);
    let recomputed = &run.checked.effects.recomputed;
    assert!(recomputed.iter().all(|(values, _)| values.len() == 8), "{recomputed:?}");
}

#[test]
fn commutative_operands_change_places_and_nothing_else_does() {
    let other = "pattern gelu(y) = (1 + tanh((0.044715 * y ^ 3 + y) * sqrt(2 / pi))) * (y * 0.5)";
    assert_eq!(targets(&gpt2(other, "m.find(gelu).checkpoint()")).len(), 3);
    let regrouped = "pattern gelu(y) = 0.5 * (y * (1 + tanh((0.044715 * y ^ 3 + y) * sqrt(2 / pi))))";
    refused(&gpt2(regrouped, "m.find(gelu).checkpoint()"), "S0210", &["closest at"]);
    let difference = "pattern d(a) = 1 - tanh(a)";
    refused(&gpt2(difference, "m.transformer.h[0].mlp.find(d).checkpoint()"), "S0210", &["computed by `sub`"]);
}

#[test]
fn numbers_of_the_model_are_bound_and_agree() {
    let norm = "pattern norm(x, w, eps: float) = w * (x * rsqrt(mean(x ^ 2, dim: -1, keepdim: true) + eps))";
    let llama = |items: &str, body: &str| on("llama-tiny.pt2", items, body);
    assert_eq!(targets(&llama(norm, "m.find(norm).expect(5).checkpoint()")).len(), 5);
    let wrong = norm.replace("dim: -1", "dim: 1");
    refused(&llama(&wrong, "m.find(norm).checkpoint()"), "S0210", &["dimension 1", "dimension 2"]);
    let wrong = norm.replace(", keepdim: true", "");
    refused(&llama(&wrong, "m.find(norm).checkpoint()"), "S0210", &["`keepdim: false`", "true"]);
    let twice = "pattern twice(x, c: float) = tanh(c * (x + c * x ^ 3))";
    refused(&gpt2(twice, "m.find(twice).checkpoint()"), "S0210", &["`c` would stand for two different values"]);
    let swiglu = "pattern swiglu(g, u) = silu(g) * u";
    assert_eq!(
        targets(&llama(swiglu, "m.find(swiglu).checkpoint()")),
        ["model.layers.0.mlp.find(swiglu)", "model.layers.1.mlp.find(swiglu)"]
    );
}

/// An attribute that a pattern cannot name has its neutral value, or the node is another operator.
#[test]
fn attributes_that_have_no_name_are_neutral() {
    let lookup = "pattern lookup(w, ids) = embedding(w, ids)";
    let run = on("bert-tiny.pt2", lookup, "m.bert.embeddings.find(lookup).checkpoint()");
    let path = |name: &str| format!("bert.embeddings.{name}.find(lookup)");
    // That of words has a padding index.
    assert_eq!(targets(&run), [path("token_type_embeddings"), path("position_embeddings")]);
}

/// Patterns and matches are values: arguments of schedules, elements of lists, and counted.
#[test]
fn patterns_and_matches_are_arguments() {
    let items = format!(
        "{GELU}\npattern absent(x) = log(x)\nschedule recompute(m: Module, p: pattern) {{ m.find(p).checkpoint() }}\n\
         schedule one(found: match) {{ found.checkpoint() }}\nschedule all(found: [match]) {{ found[0].checkpoint() }}"
    );
    let steps = |body: &str| targets(&gpt2(&items, body)).len();
    assert_eq!(steps("recompute(m, gelu_tanh)"), 3);
    assert_eq!(steps("recompute(m.transformer.h.*, gelu_tanh)"), 3);
    assert_eq!(steps("one(m.find(gelu_tanh))"), 3);
    assert_eq!(steps("all(m.find(gelu_tanh))"), 1);
    assert_eq!(steps("for p in [gelu_tanh, absent] { try recompute(m, p) }"), 3);
    assert_eq!(steps("if len(m.find(absent)) == 0 { one(m.find(gelu_tanh)[-1]) }"), 1);
    refused(&gpt2(&items, "recompute(m, 3)"), "S0301", &["takes a pattern, not a number"]);
    refused(&gpt2(&items, "one(m)"), "S0301", &["takes a match, not a module"]);
    refused(&gpt2(&items, "m.find(gelu_tanh)"), "S0309", &["only matches", "`checkpoint`, `replace`"]);
    refused(
        &gpt2(&items, "m.find(gelu_tanh).freeze()"),
        "S0301",
        &["asked of a parameter or a module, not of matches"],
    );
}

/// From the library, from files beside the schedule, in lists, as defaults, and as values of knobs and `let`.
#[test]
fn patterns_are_imported_and_passed_on() {
    let items = "use std.fusion.{gelu_tanh, rms_norm, swiglu}\nuse blocks.activations.{each, up}\n\
                 knob which = gelu_tanh in [gelu_tanh, swiglu]\nlet both = [gelu_tanh, rms_norm]\n\
                 schedule first(m: Module, p: pattern = gelu_tanh) { m.find(p)[0].checkpoint() }\n\
                 schedule every(found: [match]) { for one in found { one.checkpoint() } }";
    for (body, steps) in [
        ("m.find(up).expect(3).checkpoint()", 3),
        ("each(m, [gelu_tanh, swiglu])", 3),
        ("each(m, both)", 3),
        ("each(m.transformer.h[1], [up])", 1),
        ("first(m)\nfirst(m.transformer.h[1], p: up)", 2),
        ("first(m, choose(len(m.transformer.h) > 3, rms_norm, gelu_tanh))", 1),
        ("m.find(which)[1 ..].checkpoint()", 2),
        ("every(m.find(up))", 3),
        ("for p in [rms_norm, up] { if len(m.find(p)) > 0 { every(m.find(p)[.. 2]) } }", 2),
    ] {
        let text = format!(
            "model \"gpt2-tiny.pt2\"\ninput {{ batch = 8, seq = 16 }}\n{items}\nschedule main(m: Module) {{\n{body}\n}}\n"
        );
        let run = run("pattern", &text).compiled();
        assert_eq!((run.rendered().as_str(), run.checked.steps.len()), ("", steps), "{body}");
        let unused = |name: &str| run.checked.lints.iter().any(|lint| lint.message.contains(name));
        assert!(!unused("gelu_tanh") && !unused("rms_norm"), "{:?}", run.checked.lints);
    }
    // Chosen on the command line.
    let knob = "# slapoc check --set which=swiglu\nmodel \"llama-tiny.pt2\"\ninput { batch = 8, seq = 16 }\n\
                use std.fusion.{gelu_tanh, swiglu}\nknob which = gelu_tanh\n\
                schedule main(m: Module) {\nm.find(which).expect(2).checkpoint()\n}\n";
    assert_eq!(run("pattern", knob).rendered(), "");
    refused(
        &run("pattern", &knob.replace("=swiglu", "=silu").replace("m.find(which).expect(2)", "m")),
        "S0301",
        &["is a pattern, which `silu` is not"],
    );
    let text = |uses: &str| run("pattern", &format!("{uses}\nschedule main(m: Module) {{\nm.checkpoint()\n}}\n"));
    refused(&text("use blocks.activations.upp"), "S0105", &["did you mean `up`?"]);
    refused(&text("use std.fusion.{up}"), "S0105", &["`std.fusion` has no `up`"]);
}

/// `b?`: its operator disappears with it, or the operator goes without it.
#[test]
fn optional_operands_may_be_absent() {
    let block = "pattern block(x, r, w, b?, p: float, eps: float) = layer_norm(dropout(x, p: p) + r, w, b, eps: eps)";
    assert_eq!(targets(&on("bert-tiny.pt2", block, "m.find(block).expect(4).checkpoint()")).len(), 4);
    let scaled = "pattern act(x, b?) = tanh(x + b)";
    assert_eq!(targets(&gpt2(scaled, "m.find(act).expect(3).checkpoint()")).len(), 3);
    let linear = "pattern lin(x, w, b?) = linear(x, w, b)";
    assert_eq!(targets(&on("llama-tiny.pt2", linear, "m.find(lin).expect(15).checkpoint()")).len(), 15);
    let strict = "pattern lin(x, w, b) = linear(x, w, b)";
    refused(&on("llama-tiny.pt2", strict, "m.find(lin).checkpoint()"), "S0210", &["a tensor for `b`", "nothing"]);
}

/// Q, K and V of one input, and a sum that is a result beside what is made of it.
#[test]
fn patterns_have_several_results() {
    let qkv = "pattern qkv(x, q, k, v, a, b, c) = [linear(x, q, a), linear(x, k, b), linear(x, v, c)]";
    let run = on("bert-tiny.pt2", qkv, "m.find(qkv).checkpoint()");
    let paths = targets(&run);
    assert_eq!(paths[0], "bert.encoder.layer.0.attention.self.find(qkv)");
    let add = "pattern add_norm(x, r, w, b) = [x + r, layer_norm(x + r, w, b)]";
    assert_eq!(targets(&gpt2(add, "m.transformer.h.find(add_norm).checkpoint()")).len(), 5);
    // The sum is used by the next block too: without being a result it would escape.
    let norm = "pattern norm(x, r, w, b) = layer_norm(x + r, w, b)";
    let run = gpt2(norm, "m.transformer.h[0].find(norm).checkpoint()");
    refused(&run, "S0210", &["inside of it is also used by", "transformer.h.0"]);
}

#[test]
fn matches_of_one_pattern_do_not_overlap_and_are_numbered() {
    let product = "pattern product(a, b) = a * b";
    let run = gpt2(product, "m.transformer.h[0].mlp.find(product).checkpoint()");
    let act = "transformer.h.0.mlp.act.find(product)";
    assert_eq!(targets(&run), [act.to_string()]);
    let scaled = "pattern scaled(x, c: float) = x * c";
    let run = gpt2(scaled, "m.transformer.h[0].mlp.find(scaled).checkpoint()");
    assert_eq!(targets(&run), (0..3).map(|i| format!("transformer.h.0.mlp.act.find(scaled)[{i}]")).collect::<Vec<_>>());
    let chain = "pattern chain(a, b, c: float) = a * b * c";
    refused(
        &gpt2(chain, "m.transformer.h[0].mlp.find(chain).checkpoint()"),
        "S0210",
        &["2 of 2 operators agree", "a tensor for `b`"],
    );
}

#[test]
fn a_match_checkpointed_twice_or_across_another_is_refused() {
    let items = format!("{GELU}\npattern inner(x) = 1 + tanh(x)");
    let b = "let b = m.transformer.h[0].mlp\n";
    refused(&gpt2(&items, &format!("{b}b.find(gelu_tanh).checkpoint()\nb.find(gelu_tanh).checkpoint()")), "S0501", &[]);
    let run = gpt2(&items, &format!("{b}b.find(gelu_tanh).checkpoint()\nb.find(inner).checkpoint()"));
    refused(&run, "S0502", &["operators in common", "checkpointed here"]);
    let run = gpt2(&items, &format!("{b}m.transformer.h[0].checkpoint()\nb.find(inner).checkpoint()"));
    refused(&run, "S0503", &["`transformer.h.0` is recomputed as a whole"]);
    let run = gpt2(&items, &format!("{b}m.transformer.h[0].checkpoint()\ntry b.find(inner).checkpoint()"));
    assert_eq!((run.rendered().as_str(), run.checked.skipped.len()), ("", 1));
}

#[test]
fn recorded_matches_are_replayed() {
    let run = gpt2(GELU, "m.find(gelu_tanh).checkpoint()");
    let model = run.model.as_deref().unwrap();
    let json = to_json(&run.checked.steps).unwrap();
    assert_eq!(replay(&json, model, run.checked.sizes, &[]), Ok(run.checked.effects.clone()));
    let beyond = json.replace("\"values\": [", "\"values\": [\n999999,");
    assert!(replay(&beyond, model, run.checked.sizes, &[]).is_err());
}

/// A pattern that matches nothing says how close it comes, and is no error where that is expected.
#[test]
fn f34_a_pattern_without_a_match_names_the_nearest_place() {
    let erf = "pattern gelu(x) = 0.5 * x * (1 + erf(x / sqrt(2)))";
    let run = gpt2(erf, "m.transformer.h[1].mlp.find(gelu).checkpoint()");
    refused(&run, "S0210", &["3 of 5 operators agree", "goes on with erf, the model with tanh", "activations.py"]);
    for body in ["try m.find(gelu).checkpoint()", "require len(m.find(gelu).expect(0)) == 0"] {
        assert_eq!(gpt2(erf, body).rendered(), "", "{body}");
    }
    refused(&gpt2(GELU, "m.find(gelu_tanh).expect(4).checkpoint()"), "S0204", &["4 elements are expected"]);
    // Every alternative of a list that matches nothing, also where a library asks.
    refused(&gpt2(erf, "for p in [gelu] { m.find(p).checkpoint() }"), "S0210", &[]);
}

/// Constants and edges count: another number or another operand is no match.
#[test]
fn f35_a_pattern_does_not_match_too_much() {
    for (from, to) in [("0.044715", "0.0447"), ("0.5", "0.25"), ("x ^ 3", "x ^ 2"), ("2 / pi", "3 / pi")] {
        let wrong = GELU.replacen(from, to, 1);
        refused(&gpt2(&wrong, "m.find(gelu_tanh).checkpoint()"), "S0210", &["the pattern wants"]);
    }
    let same = "pattern square(x) = x * x";
    refused(&gpt2(same, "m.find(square).checkpoint()"), "S0210", &["`x` would stand for two different values"]);
    // The rounding of a float32 is no difference.
    let rounded = GELU.replacen("sqrt(2 / pi)", "0.79788458", 1);
    assert_eq!(targets(&gpt2(&rounded, "m.find(gelu_tanh).checkpoint()")).len(), 3);
}

/// A value inside of the pattern that is used elsewhere is named, with its use.
#[test]
fn f37_an_escaping_value_is_named() {
    let inner = "pattern product(x, c: float) = (x + c * x ^ 3) * x";
    let run = gpt2(inner, "m.find(product).checkpoint()");
    refused(&run, "S0210", &["`product`"]);
    let sum = "pattern next(x, r, w, b) = layer_norm(x + r, w, b)";
    refused(&gpt2(sum, "m.transformer.h[1].find(next).checkpoint()"), "S0210", &["is also used by"]);
}

/// What a pattern holds may lie in several modules, below the searched one at any depth.
#[test]
fn f38_matches_cross_the_borders_of_modules() {
    let across = "pattern dense(x, w, b) = gelu(linear(x, w, b))";
    let run = on("bert-tiny.pt2", across, "m.find(dense).checkpoint()");
    let path = |layer: u32| format!("bert.encoder.layer.{layer}.intermediate.find(dense)");
    assert_eq!(targets(&run)[..2], [path(0), path(1)]);
    // The searched module holds all of it, or it is not found there.
    let run = on(
        "bert-tiny.pt2",
        across,
        "m.bert.encoder.layer[0].intermediate.intermediate_act_fn.find(dense).checkpoint()",
    );
    refused(&run, "S0210", &["linear, which belongs to it, is computed outside"]);
}

const REPLACED: &str = "m.find(gelu_tanh).replace(gelu(approximate: \"tanh\"))";

/// Of the bound graph, with what the schedule asks for: how often each operator stands in the forward.
fn count(run: &Run, operator: &str) -> usize {
    let sizes = run.checked.sizes.unwrap();
    let compiled = compile(run.model.as_deref().unwrap(), &sizes, &run.checked.effects, &Options::default()).unwrap();
    compiled.joint.graph.nodes[..compiled.joint.forward].iter().filter(|node| node.is_aten(operator)).count()
}

#[test]
fn one_operator_stands_in_for_a_match() {
    let run = gpt2(GELU, REPLACED);
    assert_eq!(targets(&run).len(), 3);
    assert_eq!((count(&run, "gelu"), count(&run, "tanh")), (3, 0));
    let json = to_json(&run.checked.steps).unwrap();
    let model = run.model.as_deref().unwrap();
    assert_eq!(replay(&json, model, run.checked.sizes, &[]), Ok(run.checked.effects.clone()));
    // Names of its own go by name.
    let swish = "pattern swish(hidden) = hidden * sigmoid(hidden)";
    refused(&gpt2(swish, "m.find(swish).replace(silu(x: hidden))"), "S0210", &[]);
    let named = GELU
        .replace("gelu_tanh(x)", "gelu_tanh(h)")
        .replace("* x *", "* h *")
        .replace("(x +", "(h +")
        .replace("x ^", "h ^");
    assert_eq!(count(&gpt2(&named, "m.find(gelu_tanh).replace(gelu(x: h, approximate: \"tanh\"))"), "gelu"), 3);
}

/// A step on what a step before it put there: the graph is searched as it then is.
#[test]
fn the_graph_is_searched_as_the_steps_left_it() {
    let items =
        format!("{GELU}\npattern act(x) = gelu(x, approximate: \"tanh\")\npattern gelu_add(x, b) = gelu(x + b)");
    let run = gpt2(&items, &format!("{REPLACED}\nm.find(act).expect(3).checkpoint()"));
    assert_eq!(targets(&run)[3], "transformer.h.0.mlp.act.find(act)");
    refused(&gpt2(&items, &format!("{REPLACED}\nm.find(gelu_tanh).checkpoint()")), "S0210", &[]);
    let body = "for l in m.bert.encoder.layer {\nl.intermediate.dense.decompose()\nl.intermediate.find(gelu_add).checkpoint()\n}";
    let run = on("bert-tiny.pt2", &items, body);
    assert_eq!(targets(&run).len(), 4);
}

#[test]
fn decomposed_layers_keep_their_points() {
    let run = gpt2("", "m.transformer.h[0].mlp.c_fc.decompose()");
    assert_eq!((targets(&run), count(&run, "mm")), (vec!["transformer.h.0.mlp.c_fc"], 1));
    let split = |body: &str| {
        run_text(&format!(
            "use std.parallel.{{column, row}}\nmodel \"gpt2-tiny.pt2\"\ninput {{ batch = 8, seq = 16 }}\nmesh {{ tp = 2 }}\n\
             schedule main(m: Module) {{\nlet b = m.transformer.h[0].mlp\n{body}\n}}\n"
        ))
    };
    let run = split("column(b.c_fc, over: tp)\nb.c_fc.decompose()\nrow(b.c_proj, over: tp)");
    assert_eq!((run.rendered().as_str(), count(&run, "mm")), ("", 1));
    // A bias on its own would be added to a partial sum once per rank.
    let run = split("b.{c_fc, c_proj}.decompose()\ncolumn(b.c_fc, over: tp)\nrow(b.c_proj, over: tp)");
    let said =
        ["it adds a partial sum to a value that is not partial", "do not decompose `transformer.h.0.mlp.c_proj`"];
    refused(&run, "S0602", &said);
    assert!(!run.rendered().contains("output().sync"), "{}", run.rendered());
    // A sync that is missing behind a whole layer is still said.
    let run = split("b.c_fc.decompose()\ncolumn(b.c_fc, over: tp)\nb.c_proj.weight.shard(in, over: tp)");
    refused(&run, "S0602", &["c_proj.output().sync(all_reduce, over: tp)"]);
}

fn run_text(text: &str) -> Run {
    run("pattern", text).compiled()
}

/// A replacement whose operands have other shapes.
#[test]
fn f26_a_replacement_of_another_shape_is_refused() {
    let product = "pattern product(x, w) = linear(x, w)";
    let run = on("llama-tiny.pt2", product, "m.find(product).replace(linear(x: w, w: x))");
    refused(&run, "S0420", &["shapes do not fit", "`x` is f32["]);
    let run = on("llama-tiny.pt2", product, "m.find(product)[0].replace(silu(x: x))");
    refused(&run, "S0420", &["does not take `w`"]);
}

/// Operands go by name: permuted or missing ones are no accident.
#[test]
fn f27_f29_ports_have_names() {
    let add = "pattern sum(a, b) = a + b";
    let body = |op: &str| format!("m.transformer.h[0].find(sum)[0].replace({op})");
    refused(&gpt2(add, &body("add(x: a, b: b)")), "S0303", &["`add` has no `x`"]);
    refused(&gpt2(add, &body("add(a, b)")), "S0302", &["given by name", "`a`"]);
    refused(&gpt2(add, &body("add(a: c)")), "S0420", &["has no parameter `c`"]);
    refused(&gpt2(add, &body("linear(x: a, w: b)")), "S0420", &["shapes do not fit"]);
    refused(&gpt2(add, &body("matmul(a: a)")), "S0420", &["shapes do not fit"]);
    refused(&gpt2(GELU, "m.find(gelu_tanh).replace(linear)"), "S0420", &["`linear` needs `w`", "does not bind"]);
}

/// Attributes that are left out take the operator's own default.
#[test]
fn f28_defaults_of_a_replacement_hold() {
    let act = "pattern act(x) = gelu(x)";
    let run = on("bert-tiny.pt2", act, "m.find(act).replace(gelu)");
    assert_eq!(count(&run, "gelu"), targets(&run).len());
}

/// What the model has at the place, a residual, a bias, a scale, is taken by the replacement or the step is refused.
#[test]
fn f30_nothing_is_lost() {
    let norm = "pattern norm(x, w, b, eps: float) = layer_norm(x, w, b, eps: eps)";
    let body = |op: &str| format!("m.transformer.ln_f.find(norm).replace({op})");
    assert_eq!(gpt2(norm, &body("layer_norm")).rendered(), "");
    refused(&gpt2(norm, &body("layer_norm(eps: 0.1)")), "S0420", &["does not take `eps`"]);
    refused(&gpt2(norm, &body("layer_norm(b: w)")), "S0420", &["does not take `b`"]);
    let residual = "pattern residual(x, r, w, b) = layer_norm(x + r, w, b)";
    let run = gpt2(residual, "m.transformer.h[0].find(residual).replace(layer_norm)");
    assert!(!run.checked.is_ok(), "{}", run.rendered());
    let dropped = "pattern dropped(x, r, p: float) = dropout(x, p: p) + r";
    refused(
        &gpt2(dropped, "m.transformer.h[0].find(dropped)[0].replace(add(a: x, b: r))"),
        "S0420",
        &["random numbers"],
    );
    let both = "pattern both(x, r, w, b) = [x + r, layer_norm(x + r, w, b)]";
    refused(&gpt2(both, "m.transformer.h[0].find(both)[0].replace(layer_norm)"), "S0420", &["has 2 results"]);
}

/// Another activation is another function.
#[test]
fn f31_a_replacement_computes_the_same() {
    for other in ["gelu", "gelu(approximate: \"none\")", "silu", "relu", "tanh", "neg"] {
        let run = gpt2(GELU, &format!("m.find(gelu_tanh).replace({other})"));
        refused(&run, "S0420", &["does not compute what `gelu_tanh` does", "at -3.1"]);
    }
    let sum = "pattern sum(a, b) = a + b";
    refused(&gpt2(sum, "m.transformer.h[0].find(sum)[0].replace(mul)"), "S0420", &["does not compute"]);
    refused(&gpt2(sum, "m.transformer.h[0].find(sum)[0].replace(sub(a: b, b: a))"), "S0420", &["does not compute"]);
}

/// A match that a step has used is not used again, nor one that was found before the step.
#[test]
fn f36_a_match_is_used_once() {
    let body = format!("let found = m.find(gelu_tanh)\n{REPLACED}\nfound[0].replace(gelu(approximate: \"tanh\"))");
    refused(&gpt2(GELU, &body), "S0502", &["no longer there", "replaced here"]);
    let body = format!("let found = m.find(gelu_tanh)\n{REPLACED}\nfound[1].checkpoint()");
    refused(&gpt2(GELU, &body), "S0502", &["no longer there"]);
    let add = "pattern dense(x, w, b) = addmm(b, x, w)";
    let b = "let b = m.transformer.h[0].mlp.c_fc\nlet found = b.find(dense)\nb.decompose()\nfound.checkpoint()";
    refused(&gpt2(add, b), "S0502", &["no longer there"]);
}

/// Before or after a split, with a bias or without one.
#[test]
fn f49_decompose_does_not_depend_on_order() {
    let b = "let l = m.transformer.h[0].mlp.c_fc\n";
    for steps in ["l.decompose()\nl.weight.annotate(\"k\", 1)", "l.weight.annotate(\"k\", 1)\nl.decompose()"] {
        assert_eq!(gpt2("", &format!("{b}{steps}")).rendered(), "");
    }
    refused(&gpt2("", "m.lm_head.decompose()"), "S0421", &["no product with a bias"]);
    refused(&gpt2("", "m.transformer.h[0].mlp.decompose()"), "S0421", &["no product with a bias of its own"]);
    assert_eq!(gpt2("", "try m.lm_head.decompose()").rendered(), "");
    refused(&gpt2("", &format!("{b}l.decompose()\nl.decompose()")), "S0501", &["decomposed here"]);
}

/// Splits and notes belong to parameters and modules, which a replacement leaves as they are.
#[test]
fn f50_f51_a_replacement_keeps_splits_and_notes() {
    let parallel = "for b in m.transformer.h {\ncolumn(b.mlp.c_fc, over: tp)\nrow(b.mlp.c_proj, over: tp)\n}";
    let note = "m.transformer.h[0].mlp.act.annotate(\"kind\", \"gelu\")";
    let text = |body: &str| {
        run_text(&format!(
            "use std.parallel.{{column, row}}\nmodel \"gpt2-tiny.pt2\"\ninput {{ batch = 8, seq = 16 }}\nmesh {{ tp = 2 }}\n{GELU}\n\
             schedule main(m: Module) {{\n{body}\n}}\n"
        ))
    };
    let before = text(&format!("{note}\n{parallel}\n{REPLACED}"));
    let after = text(&format!("{REPLACED}\n{parallel}\n{note}"));
    assert_eq!((before.rendered(), after.rendered()), (String::new(), String::new()));
    assert_eq!(before.checked.effects.shards.len(), after.checked.effects.shards.len());
    assert_eq!(before.checked.steps.len(), after.checked.steps.len());
}

/// A filter that leaves nothing to search, or a pattern that no element holds, is an error.
#[test]
fn f55_nothing_found_anywhere_is_an_error() {
    let items = format!("{GELU}\npattern nothing(x) = log(x)");
    refused(&gpt2(&items, "m.**.only(Conv1D).find(gelu_tanh).checkpoint()"), "S0210", &["any of the 12 modules"]);
    refused(&gpt2(&items, "m.**.find(nothing).replace(log)"), "S0210", &["nothing there is computed by `log`"]);
}
