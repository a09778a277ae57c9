//! The table of derivatives: one row per forward operator, in terms of ATen operators.
//!
//! A rule reads the node and the gradients of its results and adds to the gradients of the arguments that want one.
//! Formulas follow PyTorch's `derivatives.yaml`. Rows stand in alphabetical order.

use crate::ir::ops::{self, Call, wrap};
use crate::ir::{TABLE, arg};
use crate::passes::autodiff::Backward;
use slapo_model::{Arg, Node, Op, ValueId};

/// Adds the gradients of a node's arguments, given those of its results.
pub type Rule = fn(&mut Backward, &Node, &[Option<ValueId>]);

/// The rule of the operator named as in [`Node::name`].
pub fn row(name: &str) -> Option<Rule> {
    ROWS.binary_search_by_key(&name, |row| row.0).ok().map(|i| ROWS[i].1)
}

#[rustfmt::skip]
static ROWS: &[(&str, Rule)] = &[
    ("_log_softmax", |d, n, g| softmax(d, n, g, "_log_softmax_backward_data")),
    ("_scaled_dot_product_flash_attention_for_cpu", flash_attention),
    ("_softmax", |d, n, g| softmax(d, n, g, "_softmax_backward_data")),
    ("add.Scalar", |d, n, g| through(d, n, g, |_, g| g)),
    ("add.Tensor", |d, n, g| sum(d, n, g, 1.0)),
    ("addmm", addmm),
    ("border", border),
    ("cat", cat),
    ("clone", |d, n, g| through(d, n, g, |_, g| g)),
    ("div.Scalar", |d, n, g| { let c = number(d, n, "other"); through(d, n, g, |d, g| d.b.one("div.Scalar", vec![arg("self", g), arg("other", c)])) }),
    ("div.Tensor", quotient),
    ("dropout", dropout),
    ("embedding", embedding),
    ("exp", |d, n, g| { let y = n.outs[0]; through(d, n, g, |d, g| d.b.binary("mul.Tensor", g, y.unwrap_or(g))) }),
    ("expand", to_shape),
    ("gelu", gelu),
    ("linear", linear),
    ("masked_fill.Scalar", masked_fill),
    ("matmul", matmul),
    ("mean", mean),
    ("mean.dim", mean),
    ("mm", mm),
    ("mul.Scalar", |d, n, g| { let c = number(d, n, "other"); through(d, n, g, |d, g| d.b.scale(g, c)) }),
    ("mul.Tensor", product),
    ("native_layer_norm", layer_norm),
    ("neg", |d, n, g| through(d, n, g, |d, g| d.b.unary("neg", g))),
    ("nll_loss_forward", nll_loss),
    ("permute", permute),
    ("pow.Tensor_Scalar", pow),
    ("reciprocal", reciprocal),
    ("relu", |d, n, g| of_output(d, n, g, "threshold_backward", |_, y, g| vec![arg("grad_output", g), arg("self", y), arg("threshold", 0i64)])),
    ("reshape", |d, n, g| through_shape(d, n, g)),
    ("rsqrt", rsqrt),
    ("rsub.Scalar", |d, n, g| { let alpha = number(d, n, "alpha"); through(d, n, g, |d, g| d.b.scale(g, -alpha)) }),
    ("sigmoid", |d, n, g| of_output(d, n, g, "sigmoid_backward", |_, y, g| vec![arg("grad_output", g), arg("output", y)])),
    ("silu", silu),
    ("slice.Tensor", slice),
    ("sqrt", sqrt),
    ("squeeze.dim", |d, n, g| through_shape(d, n, g)),
    ("sub.Scalar", |d, n, g| through(d, n, g, |_, g| g)),
    ("sub.Tensor", |d, n, g| sum(d, n, g, -1.0)),
    ("sum", |d, n, g| spread(d, n, g, 1.0)),
    ("sum.dim_IntList", |d, n, g| spread(d, n, g, 1.0)),
    ("sync", |d, n, g| through(d, n, g, |_, g| g)),
    ("tanh", |d, n, g| of_output(d, n, g, "tanh_backward", |_, y, g| vec![arg("grad_output", g), arg("output", y)])),
    ("to.dtype", cast),
    ("transpose.int", transpose),
    ("unsqueeze", |d, n, g| through_shape(d, n, g)),
    ("where.ScalarOther", where_scalar_other),
];

fn number(d: &Backward, node: &Node, name: &str) -> f64 {
    Call { graph: &d.b.graph, node }.number(name).unwrap_or(1.0)
}

/// Linear in `self` alone, elementwise.
fn through(d: &mut Backward, node: &Node, g: &[Option<ValueId>], f: impl FnOnce(&mut Backward, ValueId) -> ValueId) {
    if let (Some(x), Some(g)) = (d.wants(node, "self"), g[0]) {
        let dx = f(d, g);
        d.add(x, dx);
    }
}

/// The same elements in another shape.
fn through_shape(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    if let (Some(x), Some(g)) = (d.wants(node, "self"), g[0]) {
        let shape = d.b.shape(x);
        let dx = d.b.reshape(g, shape);
        d.add(x, dx);
    }
}

/// An elementwise operator whose backward reads the result instead of the argument.
fn of_output(
    d: &mut Backward,
    node: &Node,
    g: &[Option<ValueId>],
    op: &'static str,
    args: impl FnOnce(&Backward, ValueId, ValueId) -> Vec<(String, Arg)>,
) {
    if let (Some(x), Some(g), Some(y)) = (d.wants(node, "self"), g[0], node.outs[0]) {
        let args = args(d, y, g);
        let dx = d.b.one(op, args);
        d.add(x, dx);
    }
}

/// A gradient brought to an operand's shape and type.
fn reduced(d: &mut Backward, operand: ValueId, g: ValueId) -> ValueId {
    let shape = d.b.shape(operand);
    let g = d.b.sum_to(g, &shape);
    let dtype = d.b.ty(operand).dtype;
    d.b.cast(g, dtype)
}

fn to_shape(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    if let (Some(x), Some(g)) = (d.wants(node, "self"), g[0]) {
        let dx = reduced(d, x, g);
        d.add(x, dx);
    }
}

fn sum(d: &mut Backward, node: &Node, g: &[Option<ValueId>], sign: f64) {
    let Some(g) = g[0] else { return };
    let factor = sign * number(d, node, "alpha");
    if let Some(x) = d.wants(node, "self") {
        let dx = reduced(d, x, g);
        d.add(x, dx);
    }
    if let Some(y) = d.wants(node, "other") {
        let g = if factor == 1.0 { g } else { d.b.scale(g, factor) };
        let dy = reduced(d, y, g);
        d.add(y, dy);
    }
}

fn product(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let Some(g) = g[0] else { return };
    for (own, other) in [("self", "other"), ("other", "self")] {
        if let (Some(x), Some(factor)) = (d.wants(node, own), node.tensor(other)) {
            let part = d.b.binary("mul.Tensor", g, factor);
            let dx = reduced(d, x, part);
            d.add(x, dx);
        }
    }
}

fn quotient(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let (Some(g), Some(y), Some(out)) = (g[0], node.tensor("other"), node.outs[0]) else { return };
    if let Some(x) = d.wants(node, "self") {
        let part = d.b.binary("div.Tensor", g, y);
        let dx = reduced(d, x, part);
        d.add(x, dx);
    }
    if d.wants_value(y) {
        let part = d.b.binary("mul.Tensor", g, out);
        let part = d.b.binary("div.Tensor", part, y);
        let part = d.b.unary("neg", part);
        let dy = reduced(d, y, part);
        d.add(y, dy);
    }
}

fn pow(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let n = number(d, node, "exponent");
    let Some(x) = node.tensor("self") else { return };
    through(d, node, g, |d, g| {
        let power =
            if n == 2.0 { x } else { d.b.one("pow.Tensor_Scalar", vec![arg("self", x), arg("exponent", n - 1.0)]) };
        let slope = d.b.scale(power, n);
        d.b.binary("mul.Tensor", g, slope)
    });
}

/// d x^(-1/2) = −½ y³
fn rsqrt(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let Some(y) = node.outs[0] else { return };
    through(d, node, g, |d, g| {
        let cube = d.b.one("pow.Tensor_Scalar", vec![arg("self", y), arg("exponent", 3)]);
        let slope = d.b.scale(cube, -0.5);
        d.b.binary("mul.Tensor", g, slope)
    });
}

/// d √x = 1 / (2 √x)
fn sqrt(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let Some(y) = node.outs[0] else { return };
    through(d, node, g, |d, g| {
        let twice = d.b.scale(y, 2.0);
        d.b.binary("div.Tensor", g, twice)
    });
}

/// d (1/x) = −1/x²
fn reciprocal(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let Some(y) = node.outs[0] else { return };
    through(d, node, g, |d, g| {
        let square = d.b.binary("mul.Tensor", y, y);
        let part = d.b.binary("mul.Tensor", g, square);
        d.b.unary("neg", part)
    });
}

fn gelu(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let Some(x) = node.tensor("self") else { return };
    let approximate = node.arg("approximate").cloned().unwrap_or(Arg::Str("none".to_owned()));
    through(d, node, g, |d, g| {
        d.b.one("gelu_backward", vec![arg("grad_output", g), arg("self", x), arg("approximate", approximate)])
    });
}

fn silu(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let Some(x) = node.tensor("self") else { return };
    through(d, node, g, |d, g| d.b.one("silu_backward", vec![arg("grad_output", g), arg("self", x)]));
}

fn cast(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    if let (Some(x), Some(g)) = (d.wants(node, "self"), g[0]) {
        let dtype = d.b.ty(x).dtype;
        let dx = d.b.cast(g, dtype);
        d.add(x, dx);
    }
}

/// The identity, like a sync: a collective is the identity on global values, so its derivative is too.
fn border(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let Op::Border { gradient } = &node.op else { return };
    through(d, node, g, |d, g| gradient.iter().fold(g, |g, sync| d.b.sync(g, *sync)));
}

/// The same mask again: its numbers depend on the site, not on when they are drawn.
fn dropout(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let Op::Dropout { .. } = node.op else { return };
    through(d, node, g, |d, g| {
        let ty = d.b.ty(g).clone();
        let again = Node { op: node.op.clone(), args: vec![arg("self", g)], outs: Vec::new(), origin: node.origin };
        d.b.push(again, vec![Some((None, ty))])[0].unwrap_or(g)
    });
}

fn where_scalar_other(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    if let (Some(x), Some(g), Some(condition)) = (d.wants(node, "self"), g[0], node.tensor("condition")) {
        let kept = vec![arg("condition", condition), arg("self", g), arg("other", 0.0)];
        let kept = d.b.one("where.ScalarOther", kept);
        let dx = reduced(d, x, kept);
        d.add(x, dx);
    }
}

fn masked_fill(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    if let (Some(x), Some(g), Some(mask)) = (d.wants(node, "self"), g[0], node.tensor("mask")) {
        let kept = d.b.one("masked_fill.Scalar", vec![arg("self", g), arg("mask", mask), arg("value", 0.0)]);
        let dx = reduced(d, x, kept);
        d.add(x, dx);
    }
}

fn softmax(d: &mut Backward, node: &Node, g: &[Option<ValueId>], op: &'static str) {
    let (dim, dtype) = (number(d, node, "dim") as i64, node.tensor("self").map(|x| d.b.ty(x).dtype));
    let Some(dtype) = dtype else { return };
    of_output(d, node, g, op, |_, y, g| {
        vec![arg("grad_output", g), arg("output", y), arg("dim", dim), arg("input_dtype", dtype)]
    });
}

/// Contractions: the derivative of each operand is a contraction of the gradient with the other.
fn mm(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    if let (Some(g), Some(a), Some(b)) = (g[0], node.tensor("self"), node.tensor("mat2")) {
        matrices(d, g, a, b);
    }
}

fn addmm(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let Some(g) = g[0] else { return };
    if let (Some(a), Some(b)) = (node.tensor("mat1"), node.tensor("mat2")) {
        matrices(d, g, a, b);
    }
    to_shape(d, node, &[Some(g)]);
}

fn matrices(d: &mut Backward, g: ValueId, a: ValueId, b: ValueId) {
    if d.wants_value(a) {
        let t = d.b.transpose(b, 0, 1);
        let da = d.b.mm(g, t);
        d.add(a, da);
    }
    if d.wants_value(b) {
        let t = d.b.transpose(a, 0, 1);
        let db = d.b.mm(t, g);
        d.add(b, db);
    }
}

/// `x · wᵀ + b` over all leading dimensions.
fn linear(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let (Some(g), Some(x), Some(w)) = (g[0], node.tensor("input"), node.tensor("weight")) else { return };
    let (features, inner) = (d.b.ty(w).shape[0], d.b.ty(w).shape[1]);
    let tokens = d.b.shape(g).iter().product::<i64>() / features;
    let g = d.b.reshape(g, vec![tokens, features]);
    if d.wants_value(x) {
        let dx = d.b.mm(g, w);
        let shape = d.b.shape(x);
        let dx = d.b.reshape(dx, shape);
        d.add(x, dx);
    }
    if d.wants_value(w) {
        let rows = d.b.reshape(x, vec![tokens, inner]);
        let t = d.b.transpose(g, 0, 1);
        let dw = d.b.mm(t, rows);
        d.add(w, dw);
    }
    if let Some(bias) = d.wants(node, "bias") {
        let db = d.b.sum_dims(g, vec![0], false);
        d.add(bias, db);
    }
}

/// Batched matrix product of equal ranks; broadcast batch dimensions are summed.
fn matmul(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let (Some(g), Some(a), Some(b)) = (g[0], node.tensor("self"), node.tensor("other")) else { return };
    if d.wants_value(a) {
        let t = d.b.transpose(b, -2, -1);
        let da = d.b.binary("matmul", g, t);
        let da = reduced(d, a, da);
        d.add(a, da);
    }
    if d.wants_value(b) {
        let t = d.b.transpose(a, -2, -1);
        let db = d.b.binary("matmul", t, g);
        let db = reduced(d, b, db);
        d.add(b, db);
    }
}

fn transpose(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let (a, b) = (number(d, node, "dim0") as i64, number(d, node, "dim1") as i64);
    through(d, node, g, |d, g| d.b.transpose(g, a, b));
}

fn permute(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let Some(dims) = (Call { graph: &d.b.graph, node }).ints("dims") else { return };
    let mut inverse = vec![0; dims.len()];
    for (to, from) in dims.iter().enumerate() {
        inverse[wrap(*from, dims.len())] = to as i64;
    }
    through(d, node, g, |d, g| d.b.one("permute", vec![arg("self", g), arg("dims", inverse)]));
}

fn slice(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let range = ops::slice_range(&Call { graph: &d.b.graph, node });
    if let (Some(x), Some(g), Some((dim, range))) = (d.wants(node, "self"), g[0], range) {
        d.add_slice(x, dim, range.start, range.end, g);
    }
}

fn cat(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let (Some(g), Some(Arg::Values(parts))) = (g[0], node.arg("tensors")) else { return };
    let dim = wrap(if node.arg("dim").is_some() { number(d, node, "dim") as i64 } else { 0 }, d.b.shape(g).len());
    let mut start = 0;
    for part in parts.iter().flatten() {
        let end = start + d.b.ty(*part).shape[dim];
        if d.wants_value(*part) {
            let args = vec![arg("self", g), arg("dim", dim as i64), arg("start", start), arg("end", end)];
            let dx = d.b.one("slice.Tensor", args);
            d.add(*part, dx);
        }
        start = end;
    }
}

/// A sum's gradient is the same for every summand.
fn spread(d: &mut Backward, node: &Node, g: &[Option<ValueId>], factor: f64) {
    let (Some(x), Some(mut g)) = (d.wants(node, "self"), g[0]) else { return };
    let shape = d.b.shape(x);
    let call = Call { graph: &d.b.graph, node };
    let dims: Vec<usize> = call.ints("dim").unwrap_or_default().iter().map(|i| wrap(*i, shape.len())).collect();
    if factor != 1.0 {
        g = d.b.scale(g, factor);
    }
    let kept: Vec<i64> = if dims.is_empty() {
        vec![1; shape.len()]
    } else {
        shape.iter().enumerate().map(|(i, n)| if dims.contains(&i) { 1 } else { *n }).collect()
    };
    let g = d.b.reshape(g, kept);
    let dx = d.b.one("expand", vec![arg("self", g), arg("size", shape)]);
    d.add(x, dx);
}

fn mean(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let count = |v: Option<ValueId>| v.map_or(1, |v| d.b.ty(v).shape.iter().product::<i64>());
    let factor = count(node.outs[0]) as f64 / count(node.tensor("self")) as f64;
    spread(d, node, g, factor);
}

fn embedding(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let (Some(w), Some(g), Some(ids)) = (d.wants(node, "weight"), g[0], node.tensor("indices")) else { return };
    let call = Call { graph: &d.b.graph, node };
    let (padding, by_frequency) = (call.int("padding_idx").unwrap_or(-1), call.flag("scale_grad_by_freq"));
    let rows = d.b.ty(w).shape[0];
    let dw = d.b.one(
        "embedding_dense_backward",
        vec![
            arg("grad_output", g),
            arg("indices", ids),
            arg("num_weights", rows),
            arg("padding_idx", padding),
            arg("scale_grad_by_freq", by_frequency),
            arg(TABLE, w),
        ],
    );
    d.add(w, dw);
}

fn layer_norm(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let (Some(g), Some(x), &[_, Some(mean), Some(rstd)]) = (g[0], node.tensor("input"), &node.outs[..]) else { return };
    let wants = [d.wants_value(x), d.wants(node, "weight").is_some(), d.wants(node, "bias").is_some()];
    let shape = (Call { graph: &d.b.graph, node }).ints("normalized_shape").unwrap_or_default();
    let (w, bias) = (node.tensor("weight"), node.tensor("bias"));
    let outs = d.b.op(
        "native_layer_norm_backward",
        vec![
            arg("grad_out", g),
            arg("input", x),
            arg("normalized_shape", shape),
            arg("mean", mean),
            arg("rstd", rstd),
            arg("weight", w),
            arg("bias", bias),
            arg("output_mask", wants.to_vec()),
        ],
    );
    for ((operand, wanted), gradient) in [Some(x), w, bias].into_iter().zip(wants).zip(outs) {
        if let (Some(operand), true) = (operand, wanted) {
            d.add(operand, gradient);
        }
    }
}

fn flash_attention(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let (Some(g), &[Some(out), Some(lse)]) = (g[0], &node.outs[..]) else { return };
    let names = ["query", "key", "value"];
    let mut args = vec![arg("grad_out", g)];
    args.extend(node.args.iter().filter(|(name, _)| names.contains(&name.as_str())).cloned());
    args.extend([arg("out", out), arg("logsumexp", lse)]);
    args.extend(node.args.iter().filter(|(name, _)| !names.contains(&name.as_str())).cloned());
    let outs = d.b.op("_scaled_dot_product_flash_attention_for_cpu_backward", args);
    for (name, gradient) in names.into_iter().zip(outs) {
        if let Some(x) = d.wants(node, name) {
            d.add(x, gradient);
        }
    }
}

fn nll_loss(d: &mut Backward, node: &Node, g: &[Option<ValueId>]) {
    let (Some(x), Some(g), &[_, Some(total_weight)]) = (d.wants(node, "self"), g[0], &node.outs[..]) else { return };
    let mut args = vec![arg("grad_output", g)];
    args.extend(node.args.iter().cloned());
    args.push(arg("total_weight", total_weight));
    let dx = d.b.one("nll_loss_backward", args);
    d.add(x, dx);
}

#[cfg(test)]
mod tests {
    use super::ROWS;

    #[test]
    fn rows_stand_in_order_so_that_they_can_be_found() {
        for pair in ROWS.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{} stands before {}", pair[0].0, pair[1].0);
        }
    }
}
