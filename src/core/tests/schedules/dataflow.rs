//! What counts as the same expression: each way in which tools that match operators in the order of a list go wrong, or
//! find too little. Models are those of `patterns.pt2`, one way of writing to a module, and of the archives.

use crate::support::{Run, run};

fn on(model: &str, items: &str, body: &str) -> Run {
    let text = format!(
        "model \"{model}\"\ninput {{ batch = 4, seq = 8 }}\n{items}\nschedule main(m: Module) {{\n{body}\n}}\n"
    );
    run("dataflow", &text).compiled()
}

/// Where the one pattern of `item` is found below `module`, and how many nodes each match has.
fn found(model: &str, module: &str, item: &str) -> Vec<(String, usize)> {
    let name = item.split(['(', ' ']).next().unwrap();
    let run = on(model, &format!("pattern {item}"), &format!("{module}.find({name}).checkpoint()"));
    assert_eq!(run.rendered(), "", "{item}");
    let found = run.checked.steps.iter().filter_map(|step| step.target.found.as_ref().map(|found| (step, found)));
    found.map(|(step, found)| (step.target.path.clone(), found.values.len())).collect()
}

fn missed(model: &str, module: &str, item: &str, said: &str) {
    let name = item.split(['(', ' ']).next().unwrap();
    let run = on(model, &format!("pattern {item}"), &format!("{module}.find({name}).checkpoint()"));
    assert_eq!(run.codes(), ["S0210"], "{item}: {}", run.rendered());
    assert!(run.rendered().contains(said), "{item}: {}", run.rendered());
}

const MODEL: &str = "patterns.pt2";

fn one(path: &str, nodes: usize) -> Vec<(String, usize)> {
    vec![(path.to_string(), nodes)]
}

// ---- how patterns are found

#[test]
fn subgraph_exact_match() {
    let gelu = "p(x) = 0.5 * x * (1 + erf(x / sqrt(2)))";
    assert_eq!(found(MODEL, "m", gelu), one("erf.find(p)", 5));
    missed(MODEL, "m", &gelu.replace("0.5", "0.25"), "the pattern wants 0.25, the model has 0.5");
}

/// One operator by whatever ATen name: `mm`, `matmul` and `bmm`; a number as a tensor operand or as an attribute.
#[test]
fn subgraph_forms_of_one_operator() {
    assert_eq!(found(MODEL, "m.views", "p(a, b) = matmul(a, b)"), one("views.find(p)", 1));
    assert_eq!(found(MODEL, "m.attention", "p(a, b) = matmul(a, b)").len(), 2);
    assert_eq!(found(MODEL, "m.diamond", "p(x) = 3 * x"), one("diamond.find(p)", 1));
}

#[test]
fn subgraph_repeated_matches() {
    let paths: Vec<String> =
        found("gpt2-tiny.pt2", "m", "p(x) = 1 + tanh(x)").into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, (0..3).map(|b| format!("transformer.h.{b}.mlp.act.find(p)")).collect::<Vec<_>>());
}

#[test]
fn subgraph_two_inputs() {
    assert_eq!(found(MODEL, "m.gated", "p(g, u) = u * (g * sigmoid(g))"), one("gated.find(p)", 3));
    // Both ways round, in every place.
    assert_eq!(found(MODEL, "m.gated", "p(g, u) = sigmoid(g) * g * u"), one("gated.find(p)", 3));
    missed(MODEL, "m.gated", "p(g, u) = u * (g * sigmoid(u))", "would stand for two different values");
}

/// Two products that meet: operands that are themselves computed, on both sides.
#[test]
fn subgraph_tree() {
    let tree = "p(x, g, a, u, b) = linear(x, u, b) * (linear(x, g, a) * sigmoid(linear(x, g, a)))";
    assert_eq!(found(MODEL, "m", tree), one("gated.find(p)", 5));
    // The input of both is one value.
    assert_eq!(
        found(MODEL, "m", "p(x, y, g, a, u, b) = linear(y, u, b) * (linear(x, g, a) * sigmoid(linear(x, g, a)))").len(),
        1
    );
}

/// Several operators of one input, beside each other.
#[test]
fn subgraph_horizontal() {
    let qkv = "p(x, q, k, v, a, b, c) = [linear(x, q, a), linear(x, k, b), linear(x, v, c)]";
    let paths: Vec<(String, usize)> = found(MODEL, "m", qkv);
    assert_eq!(paths, [("attention.find(p)".to_string(), 3), ("divided.find(p)".to_string(), 3)]);
    // Three that do not share their input are no such three.
    missed(MODEL, "m.gated", qkv, "goes on with another linear, the model with none");
}

/// Modules are chosen by class, by a type or by name, and searched.
#[test]
fn subgraph_in_modules_of_a_class() {
    let items = "pattern qkv(x, q, k, v, a, b, c) = [linear(x, q, a), linear(x, k, b), linear(x, v, c)]\n\
                 type Heads = { query: Linear, key: Linear, value: Linear }";
    let paths = |model: &str, of: &str| {
        let run = on(model, items, &format!("{of}.find(qkv).checkpoint()"));
        assert_eq!(run.rendered(), "", "{of}");
        run.checked.steps.iter().map(|step| step.target.path.clone()).collect::<Vec<_>>()
    };
    let layers = [0, 1].map(|layer| format!("bert.encoder.layer.{layer}.attention.self.find(qkv)"));
    for of in ["m.**.only(BertSelfAttention)", "m.**.only(Heads)", "m.bert.encoder.layer.*.attention.self", "m.**.self"]
    {
        assert_eq!(paths("bert-tiny.pt2", of), layers, "{of}");
    }
    assert_eq!(paths(MODEL, "m.**.only(Heads).except(m.divided)"), ["attention.find(qkv)"]);
}

/// One value, two ways, one sum; what else is computed between is no part of it, wherever it stands.
#[test]
fn subgraph_diamond_among_unrelated_operators() {
    let diamond = "p(x, y) = tanh(sigmoid(x)) * exp(sigmoid(x) * 0.25) + y";
    assert_eq!(found(MODEL, "m.diamond", diamond), one("diamond.find(p)", 6));
    let open = "p(x, z, y) = tanh(sigmoid(x)) * exp(sigmoid(z) * 0.25) + y";
    // Two parameters may stand for one value.
    assert_eq!(found(MODEL, "m.diamond", open), one("diamond.find(p)", 6));
    missed(MODEL, "m.diamond", "p(x) = tanh(sigmoid(x))", "is also used by");
}

/// Equal expressions are one: what the pattern writes twice, the model computes once.
#[test]
fn subgraph_equal_expressions_are_one_node() {
    assert_eq!(
        found(MODEL, "m.diamond", "p(x) = tanh(sigmoid(x)) * exp(sigmoid(x) * 0.25)"),
        one("diamond.find(p)", 5)
    );
    missed(MODEL, "m.gated", "p(x) = sigmoid(x) * sigmoid(x)", "goes on with the same sigmoid, the model with linear");
}

/// A number that is found twice is the same number.
#[test]
fn subgraph_shared_numbers_agree() {
    let twice = |a: &str| format!("p(x, y, c: float) = tanh(y) * exp(sigmoid(x) * c) + cos(x) * 3 * {a}");
    assert_eq!(found(MODEL, "m.diamond", &twice("c")).len(), 1);
    missed(MODEL, "m.diamond", &twice("(2 * 0.25)"), "the pattern wants 0.5, the model has 0.25");
    let both = "p(x, y, c: float) = tanh(y) * exp(sigmoid(x) * c) + cos(x) * c * 0.25";
    missed(MODEL, "m.diamond", both, "`c` would stand for two different values");
}

#[test]
fn subgraph_across_modules() {
    let across = "p(x, w, b, y) = linear(x, w, b) * y";
    assert_eq!(found(MODEL, "m", across).len(), 1);
    let path = "transformer.h.0.find(p)";
    let norm = "p(x, p: float, r, w, b) = [dropout(x, p: p) + r, layer_norm(dropout(x, p: p) + r, w, b)]";
    assert_eq!(found("gpt2-tiny.pt2", "m.transformer.h[0]", norm), one(path, 3));
}

// ---- what is looked through

/// A reshape between rows, in front of an operator that computes each by itself.
#[test]
fn reshapes_of_rows_are_passed() {
    let act = "p(x, b) = gelu(x + b)";
    assert_eq!(found(MODEL, "m.views", act), one("views.find(p)", 3));
    let layer = "p(x, w, b, n, c) = addmm(b, layer_norm(x, n, c), w)";
    let found = found("gpt2-tiny.pt2", "m.transformer.h[0]", layer);
    assert_eq!(
        found.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(),
        ["transformer.h.0.find(p)[0]", "transformer.h.0.find(p)[1]"]
    );
    // Heads change the last dimension: a row is another one behind it.
    missed(
        "gpt2-eager.pt2",
        "m.transformer.h[0].attn",
        "p(q, k, w, b) = matmul(q, transpose(linear(k, w, b), 1, 2))",
        "goes on with",
    );
}

#[test]
fn transposes_that_cancel_are_passed() {
    assert_eq!(found(MODEL, "m.views", "p(x) = tanh(gelu(x))"), one("views.find(p)", 4));
    // One alone is an operator.
    missed(MODEL, "m", "p(x, w, b) = relu(conv1d(x, w, b, padding: 1)) + relu(x)", "goes on with relu");
    missed(MODEL, "m.conv", "p(x, y) = conv1d(x + y, x, y, padding: 1)", "goes on with add, the model with transpose");
}

/// To a wider type and back: the digits that are lost were not there before. The parameter is what was cast.
#[test]
fn casts_back_and_forth_are_passed() {
    let norm = "p(x, w, eps: float) = w * (x * rsqrt(mean(x ^ 2, dim: -1, keepdim: true) + eps))";
    let run = on(MODEL, &format!("pattern {norm}"), "m.find(p).checkpoint()");
    assert_eq!(run.rendered(), "");
    let found = run.checked.steps[0].target.found.clone().unwrap();
    let (model, ty) = (run.model.as_ref().unwrap(), |name: &str| format!("{:?}", found.param(name).unwrap()));
    let x = model.graph.values.iter().position(|value| value.name == "add_49").unwrap();
    assert_eq!(ty("x"), format!("Value(ValueId({x}))"));
    // The way there and the way back are part of it.
    assert_eq!(found.values.len(), 8);
    // Without the way there, rounding is no part of the pattern.
    missed(MODEL, "m.diamond", "p(a, b, s, y) = a + b * 0.25 + exp(s) * y", "the model has a cast to f32");
}

// ---- what is fused

/// Convolution, ReLU, and a number that is added.
#[test]
fn fusion_convolution_relu_add() {
    let chain = "p(x, w, b, c: float) = relu(conv1d(x, w, b, padding: 1)) + c";
    assert_eq!(found(MODEL, "m", chain), one("conv.find(p)", 3));
    missed(MODEL, "m", &chain.replace("padding: 1", "padding: 2"), "the pattern wants `padding: 2`");
    missed(MODEL, "m", &chain.replace(", padding: 1", ""), "the pattern wants `padding: 0`");
}

/// The bias of a decomposed layer with the activation behind, whichever operand comes first.
#[test]
fn fusion_bias_gelu_after_decompose() {
    for act in ["p(x, b) = gelu(x + b)", "p(x, b) = gelu(b + x)"] {
        let body =
            "m.bert.encoder.layer.*.intermediate.dense.decompose()\nm.bert.encoder.find(p).expect(2).checkpoint()";
        let run = on("bert-tiny.pt2", &format!("pattern {act}"), body);
        assert_eq!((run.rendered().as_str(), run.checked.steps.len()), ("", 4), "{act}");
    }
}

/// Bias, dropout, residual and norm in one; dropout draws the same numbers when it is recomputed.
#[test]
fn fusion_bias_dropout_residual_norm() {
    let block = "p(x, b, r, w, c, p: float) = layer_norm(dropout(x + b, p: p) + r, w, c, eps: 1e-12)";
    let body =
        "m.bert.encoder.layer[0].output.dense.decompose()\nm.bert.encoder.layer[0].find(p).expect(1).checkpoint()";
    let run = on("bert-tiny.pt2", &format!("pattern {block}"), body);
    assert_eq!((run.rendered().as_str(), run.checked.steps.len()), ("", 2));
}

// ---- patterns inside patterns

#[test]
fn patterns_call_patterns() {
    let items = "pattern gate(g) = g * sigmoid(g)\npattern gated(g, u) = gate(g) * u\npattern fed(x, w, b, u) = gated(linear(x, w, b), u)";
    let run = on(MODEL, items, "m.find(fed).expect(1).checkpoint()");
    assert_eq!((run.rendered().as_str(), run.checked.effects.recomputed[0].0.len()), ("", 4));
    let optional = "pattern drop(x, p?: float) = dropout(x, p: p) + 1\npattern act(x) = drop(relu(x))";
    assert!(!on(MODEL, optional, "m.find(act).checkpoint()").checked.is_ok());
    for (items, code, said) in [
        ("pattern a(x) = b(x)\npattern b(x) = tanh(x)", "S0110", "`b` is declared further below"),
        ("pattern b(x) = tanh(x)\npattern a(x) = b(x, 2)", "S0304", "`b` takes 1 argument"),
        ("pattern b(x, c: float) = tanh(x * c)\npattern a(x) = b(x)", "S0302", "`b` is given no `c`"),
        ("pattern b(x, c: float) = tanh(x * c)\npattern a(x) = b(x, x)", "S0301", "`c` of `b` is a number"),
        ("pattern b(x) = tanh(x)\npattern a(x) = b(2) + x", "S0301", "`x` of `b` is a tensor"),
        ("pattern b(x) = [tanh(x), exp(x)]\npattern a(x) = b(x)", "S0320", "has several results"),
        ("pattern b(x) = tahn(x)\npattern a(x) = b(x)", "S0102", "`tahn`"),
        ("pattern a(x) = cat([x], dim: 1)", "S0320", "takes a list of 2 tensors"),
    ] {
        let run = on(MODEL, items, "m.checkpoint()");
        assert_eq!(run.codes(), [code], "{items}: {}", run.rendered());
        assert!(run.rendered().contains(said), "{items}: {}", run.rendered());
    }
    // Patterns of patterns grow, and end.
    let mut items = "pattern p0(x) = x + tanh(x)".to_string();
    (1..12).for_each(|at| items += &format!("\npattern p{at}(x) = p{0}(p{0}(x))", at - 1));
    let run = on(MODEL, &items, "m.checkpoint()");
    assert_eq!(run.codes(), ["S0320"], "{}", run.rendered());
    assert!(run.rendered().contains("at most 200 terms"), "{}", run.rendered());
}
