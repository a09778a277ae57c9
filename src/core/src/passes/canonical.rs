//! The imported graph in the compiler's own, smaller vocabulary.
//!
//! What changes: no-ops vanish; scalar operands get the scalar overloads; `split` becomes slices; `dropout` gets a site;
//! attention, softmax, layer norm and cross-entropy become the forward operators that save what their derivatives need;
//! masks that turn out causal become `is_causal`; gathers by whole ranges vanish; a mean over valid tokens becomes a sum
//! over the step's global count. Casts to the same type stay: they mark where the model asks for fp32. What no rule
//! knows is copied as it stands.

use crate::ir::ops::{self, Call, wrap};
use crate::ir::{Builder, arg};
use crate::passes::constant::Constants;
use slapo_model::{Arg, Def, Graph, Model, Node, Op, Type, ValueId};
use slapo_program::DType;
use std::collections::BTreeMap;

/// How the model is run, as far as it changes the graph.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Treat every dropout probability as 0.
    pub no_dropout: bool,
    /// Compute in this type instead of the archive's floating types; floating constants follow.
    pub dtype: Option<DType>,
}

/// The imported graph for libtorch's own autograd. Dropout is `x · mask`, with the masks of the canonical form; attention with
/// dropout is computed in steps with such a mask. Everything else stands as it was imported, so that a mistake of the
/// canonical form shows.
pub fn oracle(model: &Model, graph: &Graph, options: Options) -> Graph {
    rewrite(model, graph, options, true)
}

/// The canonical form of `graph`; only what the loss and the buffers' new values depend on is kept. Its outputs are the loss
/// and then the new value of each of the model's mutated buffers.
pub fn canonicalize(model: &Model, graph: &Graph, options: Options) -> Graph {
    rewrite(model, graph, options, false)
}

fn rewrite(model: &Model, graph: &Graph, options: Options, is_oracle: bool) -> Graph {
    let retyped = options.dtype.map(|dtype| retype(graph, dtype));
    let old = retyped.as_ref().unwrap_or(graph);
    let mut canon = Canon {
        old,
        constants: Constants::new(old),
        b: Builder::new(),
        map: BTreeMap::new(),
        biases: BTreeMap::new(),
        triangles: BTreeMap::new(),
        sites: 0,
        no_dropout: options.no_dropout,
        of_parameters: of_parameters(old),
        is_oracle,
    };
    debug_assert_eq!(model.inputs.len(), old.inputs.len());
    canon.leaves();
    for node in &old.nodes {
        canon.node(node);
    }
    let mut graph = canon.b.graph;
    graph.loss = canon.map[&old.loss];
    graph.outputs = vec![graph.loss];
    graph.outputs.extend(model.mutations.iter().map(|(_, v)| canon.map[v]));
    super::prune(&graph)
}

/// By value: whether it depends on a parameter.
fn of_parameters(graph: &Graph) -> Vec<bool> {
    let mut of: Vec<bool> = graph.values.iter().map(|v| matches!(v.def, Def::Parameter(_))).collect();
    for node in &graph.nodes {
        if node.reads().any(|v| of[v.0 as usize]) {
            node.outs.iter().flatten().for_each(|v| of[v.0 as usize] = true);
        }
    }
    of
}

/// Every floating type, constants included, replaced by `dtype`.
fn retype(graph: &Graph, dtype: DType) -> Graph {
    let mut graph = graph.clone();
    let swap = |d: &mut DType| {
        if d.is_float() {
            *d = dtype;
        }
    };
    graph.values.iter_mut().for_each(|v| swap(&mut v.ty.dtype));
    let Graph { nodes, values, .. } = &mut graph;
    for node in nodes {
        for (_, arg) in &mut node.args {
            if let Arg::DType(d) = arg {
                swap(d);
            }
        }
        // A factory that names no type makes the default one, which the values' types no longer are.
        let float = node.outs.iter().flatten().any(|v| values[v.0 as usize].ty.dtype.is_float());
        if float && FACTORIES.contains(&node.name()) && !matches!(node.arg("dtype"), Some(Arg::DType(_))) {
            node.args.retain(|(name, _)| name != "dtype");
            node.args.push(arg("dtype", dtype));
        }
    }
    graph
}

/// Operators that make a tensor from no tensor.
const FACTORIES: [&str; 9] =
    ["arange", "arange.start", "arange.start_step", "eye", "full", "linspace", "ones", "scalar_tensor", "zeros"];

struct Canon<'g> {
    old: &'g Graph,
    constants: Constants<'g>,
    b: Builder,
    /// Old value → new value.
    map: BTreeMap<ValueId, ValueId>,
    /// Boolean mask (new value) and float type → additive bias.
    biases: BTreeMap<(ValueId, DType), ValueId>,
    /// Causal masks by size.
    triangles: BTreeMap<Vec<i64>, ValueId>,
    sites: u32,
    no_dropout: bool,
    /// By old value: depends on a parameter.
    of_parameters: Vec<bool>,
    /// Only dropout is rewritten.
    is_oracle: bool,
}

type Rule = fn(&mut Canon, &Node) -> Option<ValueId>;

/// One row per operator with a rule, in alphabetical order. A rule that returns `None` leaves the node as it is.
#[rustfmt::skip]
static RULES: &[(&str, Rule)] = &[
    ("_to_copy", |c, n| c.cast(n)),
    ("_unsafe_view", |c, n| c.view(n)),
    ("add.Tensor", |c, n| c.arithmetic(n, "add.Scalar")),
    ("addmm", |c, n| c.scaled_addmm(n)),
    ("alias", |c, n| c.identity(n)),
    ("bmm", |c, n| c.matmul(n, "mat2")),
    ("contiguous", |c, n| c.contiguous(n)),
    ("cross_entropy_loss", |c, n| c.cross_entropy(n)),
    ("div.Tensor", |c, n| c.arithmetic(n, "div.Scalar")),
    ("dropout", |c, n| c.dropout(n)),
    ("expand", |c, n| c.expand(n)),
    ("flatten.using_ints", |c, n| c.view(n)),
    ("index.Tensor", |c, n| c.index(n)),
    ("layer_norm", |c, n| c.layer_norm(n)),
    ("log_softmax.int", |c, n| c.softmax(n, "_log_softmax")),
    ("matmul", |c, n| c.matmul(n, "other")),
    ("mul.Tensor", |c, n| c.arithmetic(n, "mul.Scalar")),
    ("native_dropout", |c, n| c.dropout(n)),
    ("reshape", |c, n| c.view(n)),
    ("scaled_dot_product_attention", |c, n| c.attention(n)),
    ("slice.Tensor", |c, n| c.slice(n)),
    ("softmax.int", |c, n| c.softmax(n, "_softmax")),
    ("split.Tensor", |c, n| c.split(n)),
    ("split_with_sizes", |c, n| c.split(n)),
    ("sub.Tensor", |c, n| c.arithmetic(n, "sub.Scalar")),
    ("t", |c, n| c.matrix_transpose(n)),
    ("to.device", |c, n| c.identity_or_cast(n)),
    ("to.dtype", |c, n| c.cast(n)),
    ("to.dtype_layout", |c, n| c.identity_or_cast(n)),
    ("view", |c, n| c.view(n)),
];

impl Canon<'_> {
    fn leaves(&mut self) {
        for (i, value) in self.old.values.iter().enumerate() {
            if !matches!(value.def, Def::Node(..)) {
                let id = self.b.leaf(&value.name, value.ty.clone(), value.def);
                self.map.insert(ValueId(i as u32), id);
            }
        }
    }

    fn node(&mut self, node: &Node) {
        self.b.origin = node.origin;
        let applies = !self.is_oracle || self.is_substituted(node);
        let rule = RULES.binary_search_by_key(&node.name(), |row| row.0).ok().filter(|_| applies).map(|i| RULES[i].1);
        let known = self.b.graph.values.len();
        match rule.and_then(|rule| rule(self, node)) {
            Some(new) => {
                if let Some(Some(old)) = node.outs.first() {
                    self.map.insert(*old, new);
                }
            }
            // A rule with several results maps them itself.
            None if node.outs.iter().flatten().all(|v| self.map.contains_key(v)) && rule.is_some() => {}
            None => self.copy(node),
        }
        self.keep_names(node, known);
    }

    /// What a rule made in place of a value is called as the value was, so that it can be found in the model again.
    fn keep_names(&mut self, node: &Node, known: usize) {
        for old in node.outs.iter().flatten() {
            if let Some(new) = self.map.get(old).map(|v| v.0 as usize).filter(|new| *new >= known) {
                self.b.graph.values[new].name.clone_from(&self.old.value(*old).name);
            }
        }
    }

    /// What the oracle computes otherwise than imported: what is random; views, since attention in steps gives other
    /// strides; integers times a float, which are of PyTorch's default type and not of the type that is asked for.
    fn is_substituted(&self, node: &Node) -> bool {
        let of = |v: Option<ValueId>| v.map(|v| self.old.ty(v).dtype);
        let promotes = matches!((of(node.tensor("self")), of(node.outs.first().copied().flatten())),
            (Some(from), Some(to)) if !from.is_float() && to.is_float() && node.tensor("other").is_none());
        let names = ["_unsafe_view", "dropout", "native_dropout", "scaled_dot_product_attention", "view"];
        promotes || names.contains(&node.name())
    }

    fn copy(&mut self, node: &Node) {
        let map = &self.map;
        let args = node.args.iter().map(|(name, arg)| (name.clone(), arg.reading(|v| map[&v]))).collect();
        let results = node
            .outs
            .iter()
            .map(|v| v.map(|v| (Some(self.old.value(v).name.clone()), self.old.ty(v).clone())))
            .collect();
        let copied = Node { op: node.op.clone(), args, outs: Vec::new(), origin: node.origin };
        let outs = self.b.push(copied, results);
        for (old, new) in node.outs.iter().zip(outs) {
            if let (Some(old), Some(new)) = (old, new) {
                self.map.insert(*old, new);
            }
        }
    }

    fn call<'a>(&'a self, node: &'a Node) -> Call<'a> {
        Call { graph: self.old, node }
    }

    fn operand(&self, node: &Node, name: &str) -> Option<ValueId> {
        node.tensor(name).map(|v| self.map[&v])
    }

    fn out_ty(&self, node: &Node) -> Option<Type> {
        Some(self.old.ty((*node.outs.first()?)?).clone())
    }

    fn identity(&mut self, node: &Node) -> Option<ValueId> {
        self.operand(node, "self")
    }

    /// `contiguous` of what is contiguous anyway is nothing; behind a view that reorders, it is a copy.
    fn contiguous(&mut self, node: &Node) -> Option<ValueId> {
        let x = self.operand(node, "self")?;
        Some(self.b.one("clone", vec![arg("self", x)]))
    }

    fn cast(&mut self, node: &Node) -> Option<ValueId> {
        let dtype = self.out_ty(node)?.dtype;
        let x = self.operand(node, "self")?;
        Some(self.b.one("to.dtype", vec![arg("self", x), arg("dtype", dtype)]))
    }

    fn identity_or_cast(&mut self, node: &Node) -> Option<ValueId> {
        let x = self.operand(node, "self")?;
        if self.out_ty(node)?.dtype == self.b.ty(x).dtype { Some(x) } else { self.cast(node) }
    }

    fn view(&mut self, node: &Node) -> Option<ValueId> {
        let x = self.operand(node, "self")?;
        let shape = self.out_ty(node)?.shape;
        Some(self.b.reshape(x, shape))
    }

    fn expand(&mut self, node: &Node) -> Option<ValueId> {
        let x = self.operand(node, "self")?;
        let shape = self.out_ty(node)?.shape;
        if self.b.ty(x).shape == shape {
            return Some(x);
        }
        Some(self.b.one("expand", vec![arg("self", x), arg("size", shape)]))
    }

    fn slice(&mut self, node: &Node) -> Option<ValueId> {
        let x = self.operand(node, "self")?;
        let (dim, range) = ops::slice_range(&self.call(node))?;
        self.sliced(x, dim, range.start, range.end)
    }

    fn sliced(&mut self, x: ValueId, dim: usize, start: i64, end: i64) -> Option<ValueId> {
        if start == 0 && end == self.b.ty(x).shape[dim] {
            return Some(x);
        }
        let args = vec![arg("self", x), arg("dim", dim as i64), arg("start", start), arg("end", end)];
        Some(self.b.one("slice.Tensor", args))
    }

    fn split(&mut self, node: &Node) -> Option<ValueId> {
        let x = self.operand(node, "self")?;
        let dim = wrap(self.call(node).int("dim").unwrap_or(0), self.b.ty(x).shape.len());
        let size = self.b.ty(x).shape[dim];
        let sizes = match node.arg("split_size").or_else(|| node.arg("split_sizes"))? {
            Arg::Int(n) => (0..size).step_by(usize::try_from(*n).ok()?.max(1)).map(|at| (*n).min(size - at)).collect(),
            Arg::Ints(v) => v.clone(),
            _ => return None,
        };
        let mut start = 0;
        for (part, out) in sizes.into_iter().zip(&node.outs) {
            if let Some(out) = out {
                let slice = self.sliced(x, dim, start, start + part)?;
                self.map.insert(*out, slice);
            }
            start += part;
        }
        None
    }

    /// Matrices only: a vector is one with a dimension of size 1 in the place that the product contracts away.
    fn matmul(&mut self, node: &Node, other: &str) -> Option<ValueId> {
        let (mut a, mut b) = (self.operand(node, "self")?, self.operand(node, other)?);
        let shape = self.out_ty(node)?.shape;
        if let [n] = self.b.shape(a)[..] {
            a = self.b.reshape(a, vec![1, n]);
        }
        if let [n] = self.b.shape(b)[..] {
            b = self.b.reshape(b, vec![n, 1]);
        }
        let product = self.b.binary("matmul", a, b);
        Some(self.b.reshape(product, shape))
    }

    /// `beta · bias + alpha · product` in steps; with both 1 the operator stays.
    fn scaled_addmm(&mut self, node: &Node) -> Option<ValueId> {
        let call = self.call(node);
        let (alpha, beta) = (call.number("alpha").unwrap_or(1.0), call.number("beta").unwrap_or(1.0));
        if alpha == 1.0 && beta == 1.0 {
            return None;
        }
        let (bias, a, b) = (self.operand(node, "self")?, self.operand(node, "mat1")?, self.operand(node, "mat2")?);
        let product = self.b.mm(a, b);
        let (bias, product) = (self.b.scale(bias, beta), self.b.scale(product, alpha));
        Some(self.b.binary("add.Tensor", bias, product))
    }

    fn matrix_transpose(&mut self, node: &Node) -> Option<ValueId> {
        let x = self.operand(node, "self")?;
        (self.b.ty(x).shape.len() == 2).then(|| self.b.transpose(x, 0, 1))
    }

    /// `x ∘ number`, and `x ± alpha · y`.
    fn arithmetic(&mut self, node: &Node, scalar: &'static str) -> Option<ValueId> {
        let x = self.operand(node, "self")?;
        let alpha = self.call(node).number("alpha").unwrap_or(1.0);
        if node.tensor("other").is_some() {
            return None;
        }
        let other = match node.arg("other")? {
            Arg::Int(i) if alpha.fract() == 0.0 => Arg::Int(i * alpha as i64),
            Arg::Int(i) => Arg::Float(*i as f64 * alpha),
            Arg::Float(v) => Arg::Float(v * alpha),
            _ => return None,
        };
        // Integers times a float are floats of the default type.
        let x = self.b.cast(x, self.out_ty(node)?.dtype);
        let nothing = match (scalar, &other) {
            ("add.Scalar" | "sub.Scalar", Arg::Int(0)) => true,
            ("mul.Scalar" | "div.Scalar", Arg::Int(1)) => true,
            ("mul.Scalar" | "div.Scalar", Arg::Float(v)) => *v == 1.0,
            _ => false,
        };
        if nothing {
            return Some(x);
        }
        Some(self.b.one(scalar, vec![arg("self", x), arg("other", other)]))
    }

    /// Where the mask itself is used, the operator stays what it is.
    fn dropout(&mut self, node: &Node) -> Option<ValueId> {
        if node.outs.iter().skip(1).any(Option::is_some) {
            return None;
        }
        let x = self.operand(node, "input").or_else(|| self.operand(node, "self"))?;
        let call = self.call(node);
        let train = call.flag("train");
        let p = call.number("p")?;
        Some(self.dropped(x, if train { p } else { 0.0 }))
    }

    /// Only what is random has a site: what is not may be put in or left out without another mask anywhere.
    fn dropped(&mut self, x: ValueId, p: f64) -> ValueId {
        if p == 0.0 || self.no_dropout {
            return x;
        }
        let site = self.sites;
        self.sites += 1;
        let ty = self.b.ty(x).clone();
        let node =
            Node { op: Op::Dropout { site, p }, args: vec![arg("self", x)], outs: Vec::new(), origin: self.b.origin };
        self.b.push(node, vec![Some((None, ty))])[0].unwrap_or(x)
    }

    fn layer_norm(&mut self, node: &Node) -> Option<ValueId> {
        let x = self.operand(node, "input")?;
        let call = self.call(node);
        let (shape, eps) = (call.ints("normalized_shape")?, call.number("eps").unwrap_or(1e-5));
        let (w, bias) = (self.operand(node, "weight"), self.operand(node, "bias"));
        let args =
            vec![arg("input", x), arg("normalized_shape", shape), arg("weight", w), arg("bias", bias), arg("eps", eps)];
        Some(self.b.op("native_layer_norm", args)[0])
    }

    fn softmax(&mut self, node: &Node, op: &'static str) -> Option<ValueId> {
        let mut x = self.operand(node, "self")?;
        if let Some(dtype) = self.call(node).dtype("dtype") {
            x = self.b.one("to.dtype", vec![arg("self", x), arg("dtype", dtype)]);
        }
        let dim = self.call(node).dim("dim")? as i64;
        Some(self.softmaxed(op, x, dim))
    }

    fn softmaxed(&mut self, op: &'static str, x: ValueId, dim: i64) -> ValueId {
        self.b.one(op, vec![arg("self", x), arg("dim", dim), arg("half_to_float", false)])
    }

    /// A gather whose index tensors each count through the whole of their dimension is a view.
    fn index(&mut self, node: &Node) -> Option<ValueId> {
        let x = self.operand(node, "self")?;
        let Some(Arg::Values(list)) = node.arg("indices") else { return None };
        let from = self.b.shape(x);
        let to = self.out_ty(node)?.shape;
        let mut shape = vec![1; to.len() - (from.len() - list.len())];
        let mut last = None;
        for (dim, index) in list.iter().enumerate() {
            let index = self.constants.get((*index)?)?;
            let own = (shape.len()).checked_sub(index.shape.len())?;
            if from[dim] == 1 && index.elements().iter().all(|i| *i == 0) {
                continue;
            }
            let at = own + index.iota_dim()?;
            // The order of dimensions must stay, or it is a transposition.
            if index.shape[at - own] != from[dim] || last.is_some_and(|l| l >= at) {
                return None;
            }
            shape[at] = from[dim];
            last = Some(at);
        }
        shape.extend(&from[list.len()..]);
        let x = self.b.reshape(x, shape.clone());
        if shape == to {
            return Some(x);
        }
        Some(self.b.one("expand", vec![arg("self", x), arg("size", to)]))
    }

    /// Mean over valid tokens: the sum of the tokens' losses over the step's number of valid ones.
    fn cross_entropy(&mut self, node: &Node) -> Option<ValueId> {
        let call = self.call(node);
        let (mean, sum) = (1.0, 2.0);
        let reduction = call.number("reduction").unwrap_or(mean);
        let plain = node.tensor("weight").is_none()
            && call.number("label_smoothing").unwrap_or(0.0) == 0.0
            && !call.ty("target")?.dtype.is_float()
            && call.ty("self")?.shape.len() == 2
            && (reduction == mean || reduction == sum);
        let ignore = call.int("ignore_index").unwrap_or(-100);
        if !plain {
            return None;
        }
        let (x, target) = (self.operand(node, "self")?, self.operand(node, "target")?);
        let logp = self.softmaxed("_log_softmax", x, 1);
        let args = vec![
            arg("self", logp),
            arg("target", target),
            arg("weight", None),
            arg("reduction", sum as i64),
            arg("ignore_index", ignore),
        ];
        let total = self.b.op("nll_loss_forward", args)[0];
        if reduction == sum {
            return Some(total);
        }
        let valid = self.b.one("ne.Scalar", vec![arg("self", target), arg("other", ignore)]);
        let count = self.b.unary("sum", valid);
        let ty = self.b.ty(count).clone();
        let step_sum =
            Node { op: Op::StepSum, args: vec![arg("self", count)], outs: Vec::new(), origin: self.b.origin };
        let count = self.b.push(step_sum, vec![Some((None, ty))])[0]?;
        let dtype = self.b.ty(total).dtype;
        let count = self.b.cast(count, dtype);
        Some(self.b.binary("div.Tensor", total, count))
    }

    fn attention(&mut self, node: &Node) -> Option<ValueId> {
        let call = self.call(node);
        let (q_ty, k_ty, v_ty) = (call.ty("query")?.clone(), call.ty("key")?.clone(), call.ty("value")?.clone());
        let p = if self.no_dropout { 0.0 } else { call.number("dropout_p").unwrap_or(0.0) };
        let scale = call.number("scale").unwrap_or(1.0 / (*q_ty.shape.last()? as f64).sqrt());
        let mut causal = call.flag("is_causal");
        if self.is_oracle && p == 0.0 {
            return self.without_dropout(node);
        }
        let learned = node.tensor("attn_mask").is_some_and(|v| self.of_parameters[v.0 as usize]);
        let mask = self.mask(node, &mut causal);
        let (q, mut k, mut v) =
            (self.operand(node, "query")?, self.operand(node, "key")?, self.operand(node, "value")?);
        // libtorch's kernel has no dropout of ours, and no gradient for the mask.
        let width = |ty: &Type| ty.shape.last().copied();
        let vendor_kernel = p == 0.0
            && !learned
            && q_ty.shape.len() == 4
            && width(&q_ty) == width(&v_ty)
            && width(&k_ty) == width(&v_ty);
        if let (&[.., q_heads, _, _], &[.., k_heads, _, _]) = (&q_ty.shape[..], &k_ty.shape[..])
            && q_heads != k_heads
            && k_heads > 1
        {
            (k, v) = (self.repeat_heads(k, q_heads / k_heads), self.repeat_heads(v, q_heads / k_heads));
        }
        if !vendor_kernel {
            return Some(self.attention_in_steps(q, k, v, mask, causal, scale, p));
        }
        let bias = if causal { None } else { mask.map(|m| self.bias(m, q_ty.dtype)) };
        let bias = bias.map(|b| self.four_dims(b));
        let args = vec![
            arg("query", q),
            arg("key", k),
            arg("value", v),
            arg("dropout_p", 0.0),
            arg("is_causal", causal),
            arg("attn_mask", bias),
            arg("scale", scale),
        ];
        Some(self.b.op("_scaled_dot_product_flash_attention_for_cpu", args)[0])
    }

    /// The same attention with `dropout_p` 0.
    fn without_dropout(&mut self, node: &Node) -> Option<ValueId> {
        let mut plain = node.clone();
        plain.args.retain(|(name, _)| name != "dropout_p");
        self.copy(&plain);
        node.outs[0].map(|v| self.map[&v])
    }

    /// The mask without its broadcast; nothing where it masks nothing, or is lower triangular, which sets `causal`.
    fn mask(&mut self, node: &Node, causal: &mut bool) -> Option<ValueId> {
        let mut mask = node.tensor("attn_mask")?;
        if self.is_oracle {
            return Some(self.map[&mask]);
        }
        let known = self.constants.get(mask).filter(|_| self.old.ty(mask).dtype == DType::Bool);
        if let Some(known) = &known {
            *causal |= known.is_causal();
            if *causal || known.is_all_true() {
                return None;
            }
        }
        while let Some(def) = self.old.definition(mask)
            && def.is_aten("expand")
            && let Some(inner) = def.tensor("self")
            && self.old.ty(inner).shape.len() == self.old.ty(mask).shape.len()
        {
            mask = inner;
        }
        let mut new = self.map[&mask];
        if known.is_some_and(|k| k.is_same_over_leading()) {
            let lead = self.b.shape(new).len().saturating_sub(2);
            for dim in 0..lead {
                new = self.sliced(new, dim, 0, 1)?;
            }
        }
        Some(new)
    }

    /// Leading dimensions of size 1 up to rank 4, which is what the kernel wants.
    fn four_dims(&mut self, x: ValueId) -> ValueId {
        let shape = self.b.shape(x);
        let lead = vec![1; 4usize.saturating_sub(shape.len())];
        self.b.reshape(x, [lead, shape].concat())
    }

    /// A boolean mask as 0 where it is true and −∞ elsewhere, made once per mask; float masks are used as they are.
    fn bias(&mut self, mask: ValueId, dtype: DType) -> ValueId {
        if self.b.ty(mask).dtype != DType::Bool {
            return mask;
        }
        if let Some(bias) = self.biases.get(&(mask, dtype)) {
            return *bias;
        }
        let args = vec![arg("condition", mask), arg("self", 0.0), arg("other", f64::NEG_INFINITY)];
        let bias = self.b.one("where.Scalar", args);
        let bias = self.b.cast(bias, dtype);
        self.biases.insert((mask, dtype), bias);
        bias
    }

    /// Grouped-query attention: every key-value head serves `repeat` query heads.
    fn repeat_heads(&mut self, x: ValueId, repeat: i64) -> ValueId {
        let [batch, heads, seq, width] = self.b.shape(x)[..] else { return x };
        let wide = self.b.one("unsqueeze", vec![arg("self", x), arg("dim", 2)]);
        let wide = self.b.one("expand", vec![arg("self", wide), arg("size", vec![batch, heads, repeat, seq, width])]);
        self.b.reshape(wide, vec![batch, heads * repeat, seq, width])
    }

    /// Attention with dropout inside, which no vendor kernel can do with counter-based random numbers.
    #[expect(clippy::too_many_arguments, reason = "the operands of attention")]
    fn attention_in_steps(
        &mut self,
        q: ValueId,
        k: ValueId,
        v: ValueId,
        mask: Option<ValueId>,
        causal: bool,
        scale: f64,
        p: f64,
    ) -> ValueId {
        let keys = self.b.transpose(k, -2, -1);
        let q = self.b.scale(q, scale);
        let mut scores = self.b.binary("matmul", q, keys);
        let dtype = self.b.ty(scores).dtype;
        let mask = mask.or_else(|| causal.then(|| self.causal_mask(scores)));
        if let Some(mask) = mask {
            let bias = self.bias(mask, dtype);
            scores = self.b.binary("add.Tensor", scores, bias);
        }
        let weights = self.softmaxed("_softmax", scores, -1);
        let weights = self.dropped(weights, p);
        self.b.binary("matmul", weights, v)
    }

    /// True at and below the diagonal, made once per size.
    fn causal_mask(&mut self, scores: ValueId) -> ValueId {
        let shape = self.b.shape(scores);
        let size = shape[shape.len() - 2..].to_vec();
        if let Some(mask) = self.triangles.get(&size) {
            return *mask;
        }
        let ones = self.b.one("full", vec![arg("size", size.clone()), arg("fill_value", 1), arg("dtype", DType::Bool)]);
        let ty = Type { dtype: DType::Bool, shape: size.clone() };
        let tril = Node {
            op: Op::Aten("tril".to_owned()),
            args: vec![arg("self", ones)],
            outs: Vec::new(),
            origin: self.b.origin,
        };
        let mask = self.b.push(tril, vec![Some((None, ty))])[0].unwrap_or(ones);
        self.triangles.insert(size, mask);
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::RULES;

    #[test]
    fn rules_stand_in_order() {
        assert!(RULES.windows(2).all(|w| w[0].0 < w[1].0));
    }
}
