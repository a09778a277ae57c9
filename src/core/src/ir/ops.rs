//! The operator table: one row per ATen operator that the compiler itself reasons about.
//!
//! A row gives the result types (element type and shape) as a function of the arguments, and what the results' storage
//! is. Any other operator is *opaque*: it keeps the types the archive gives it and runs through the dispatcher. Rows
//! stand in alphabetical order. Schemas: PyTorch's `native_functions.yaml`.

use slapo_model::{Arg, Graph, Node, Type, ValueId};
use slapo_program::DType;

/// One operator.
pub struct Row {
    pub name: &'static str,
    /// The results' types; `None` for arguments that the table does not describe.
    pub infer: fn(&Call) -> Option<Vec<Type>>,
    pub storage: Storage,
}

/// Where the first result's values lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    Fresh,
    /// A view of the argument of that name.
    View(&'static str),
    /// A view where strides allow it, else a copy.
    MaybeView(&'static str),
}

/// A node together with the graph it stands in, for reading arguments.
pub struct Call<'g> {
    pub graph: &'g Graph,
    pub node: &'g Node,
}

use Storage::{Fresh, MaybeView, View};

macro_rules! rows {
    ($($name:literal $storage:expr, $infer:expr;)*) => {
        &[$(Row { name: $name, infer: $infer, storage: $storage },)*]
    };
}

#[rustfmt::skip]
static ROWS: &[Row] = rows! {
    "__and__.Tensor"        Fresh, |c| c.broadcast_as(DType::Bool);
    "_log_softmax"          Fresh, |c| c.same("self");
    "_log_softmax_backward_data" Fresh, |c| c.same("grad_output");
    "_scaled_dot_product_flash_attention_for_cpu" Fresh, flash;
    "_scaled_dot_product_flash_attention_for_cpu_backward" Fresh, |c| c.like(&["query", "key", "value"]);
    "_softmax"              Fresh, |c| c.same("self");
    "_softmax_backward_data" Fresh, |c| c.same("grad_output");
    "add.Scalar"            Fresh, |c| c.same("self");
    "add.Tensor"            Fresh, |c| c.broadcast();
    "addmm"                 Fresh, |c| c.product("mat1", "mat2");
    "amax"                  Fresh, reduce;
    "cat"                   Fresh, cat;
    "clone"                 Fresh, |c| c.same("self");
    "div.Scalar"            Fresh, |c| c.same("self");
    "div.Tensor"            Fresh, |c| c.broadcast();
    "embedding"             Fresh, embedding;
    "embedding_dense_backward" Fresh, |c| Some(vec![Type { dtype: c.ty("grad_output")?.dtype, shape: vec![c.int("num_weights")?, *c.ty("grad_output")?.shape.last()?] }]);
    "eq.Scalar"             Fresh, |c| c.same_as("self", DType::Bool);
    "exp"                   Fresh, |c| c.same("self");
    "expand"                View("self"), |c| c.sized("size");
    "full"                  Fresh, |c| Some(vec![Type { dtype: c.dtype("dtype")?, shape: c.ints("size")? }]);
    "ge.Scalar"             Fresh, |c| c.same_as("self", DType::Bool);
    "gelu"                  Fresh, |c| c.same("self");
    "gelu_backward"         Fresh, |c| c.same("grad_output");
    "linear"                Fresh, linear;
    "log"                   Fresh, |c| c.same("self");
    "logical_or"            Fresh, |c| c.broadcast_as(DType::Bool);
    "lt.Scalar"             Fresh, |c| c.same_as("self", DType::Bool);
    "masked_fill.Scalar"    Fresh, |c| c.against("mask");
    "matmul"                Fresh, matmul;
    "mean"                  Fresh, |c| c.ty("self").map(|t| vec![scalar(t.dtype)]);
    "mean.dim"              Fresh, reduce;
    "mm"                    Fresh, |c| c.product("self", "mat2");
    "mul.Scalar"            Fresh, |c| c.same("self");
    "mul.Tensor"            Fresh, |c| c.broadcast();
    "native_layer_norm"     Fresh, layer_norm;
    "native_layer_norm_backward" Fresh, layer_norm_backward;
    "ne.Scalar"             Fresh, |c| c.same_as("self", DType::Bool);
    "neg"                   Fresh, |c| c.same("self");
    "nll_loss_backward"     Fresh, |c| c.same("self");
    "nll_loss_forward"      Fresh, |c| c.ty("self").map(|t| vec![scalar(t.dtype), scalar(t.dtype)]);
    "permute"               View("self"), permute;
    "pow.Tensor_Scalar"     Fresh, |c| c.same("self");
    "reciprocal"            Fresh, |c| c.same("self");
    "relu"                  Fresh, |c| c.same("self");
    "reshape"               MaybeView("self"), |c| Some(vec![Type { dtype: c.ty("self")?.dtype, shape: c.ints("shape")? }]);
    "rsqrt"                 Fresh, |c| c.same("self");
    "rsub.Scalar"           Fresh, |c| c.same("self");
    "sigmoid"               Fresh, |c| c.same("self");
    "sigmoid_backward"      Fresh, |c| c.same("grad_output");
    "silu"                  Fresh, |c| c.same("self");
    "silu_backward"         Fresh, |c| c.same("grad_output");
    "slice.Tensor"          View("self"), slice;
    "slice_backward"        Fresh, |c| Some(vec![Type { dtype: c.ty("grad_output")?.dtype, shape: c.ints("input_sizes")? }]);
    "sqrt"                  Fresh, |c| c.same("self");
    "squeeze.dim"           View("self"), squeeze;
    "sub.Scalar"            Fresh, |c| c.same("self");
    "sub.Tensor"            Fresh, |c| c.broadcast();
    "sum"                   Fresh, |c| c.ty("self").map(|t| vec![scalar(if t.dtype.is_float() { t.dtype } else { DType::I64 })]);
    "sum.dim_IntList"       Fresh, reduce;
    "tanh"                  Fresh, |c| c.same("self");
    "tanh_backward"         Fresh, |c| c.same("grad_output");
    "threshold_backward"    Fresh, |c| c.same("grad_output");
    "to.dtype"              Fresh, |c| c.same_as("self", c.dtype("dtype")?);
    "transpose.int"         View("self"), transpose;
    "unsqueeze"             View("self"), unsqueeze;
    "view"                  View("self"), |c| c.sized("size");
    "where.Scalar"          Fresh, |c| c.same_as("condition", DType::F32);
    "where.ScalarOther"     Fresh, |c| c.against("condition");
};

/// The row of an operator named as in [`slapo_model::Op::Aten`].
pub fn row(name: &str) -> Option<&'static Row> {
    ROWS.binary_search_by_key(&name, |row| row.name).ok().map(|i| &ROWS[i])
}

fn scalar(dtype: DType) -> Type {
    Type { dtype, shape: Vec::new() }
}

/// Whether the table describes the node as it stands: it has a row, and the row gives the types that the node has.
pub fn describes(graph: &Graph, node: &Node) -> bool {
    let Some(row) = row(node.name()) else { return false };
    let types = (row.infer)(&Call { graph, node }).unwrap_or_default();
    types.len() == node.outs.len()
        && types.iter().zip(&node.outs).all(|(ty, out)| out.is_none_or(|v| graph.ty(v) == ty))
}

/// A dimension that may count from the end.
pub fn wrap(dim: i64, rank: usize) -> usize {
    (if dim < 0 { dim + rank as i64 } else { dim }) as usize
}

impl Call<'_> {
    pub fn value(&self, name: &str) -> Option<ValueId> {
        self.node.tensor(name)
    }

    pub fn ty(&self, name: &str) -> Option<&Type> {
        self.value(name).map(|v| self.graph.ty(v))
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        match self.node.arg(name)? {
            Arg::Int(i) => Some(*i),
            _ => None,
        }
    }

    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        match self.node.arg(name)? {
            Arg::Ints(v) => Some(v.clone()),
            Arg::Int(i) => Some(vec![*i]),
            _ => None,
        }
    }

    /// A number, whatever its spelling.
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.node.arg(name)? {
            Arg::Float(x) => Some(*x),
            Arg::Int(i) => Some(*i as f64),
            Arg::Bool(b) => Some(f64::from(u8::from(*b))),
            _ => None,
        }
    }

    pub fn flag(&self, name: &str) -> bool {
        matches!(self.node.arg(name), Some(Arg::Bool(true)))
    }

    pub fn dtype(&self, name: &str) -> Option<DType> {
        match self.node.arg(name)? {
            Arg::DType(d) => Some(*d),
            _ => None,
        }
    }

    pub fn dim(&self, name: &str) -> Option<usize> {
        let dim = self.int(name).or_else(|| self.ints(name)?.first().copied())?;
        Some(wrap(dim, self.ty("self")?.shape.len()))
    }

    fn same(&self, name: &str) -> Option<Vec<Type>> {
        Some(vec![self.ty(name)?.clone()])
    }

    fn same_as(&self, name: &str, dtype: DType) -> Option<Vec<Type>> {
        Some(vec![Type { dtype, shape: self.ty(name)?.shape.clone() }])
    }

    fn like(&self, names: &[&str]) -> Option<Vec<Type>> {
        names.iter().map(|n| self.ty(n).cloned()).collect()
    }

    fn sized(&self, name: &str) -> Option<Vec<Type>> {
        Some(vec![Type { dtype: self.ty("self")?.dtype, shape: self.ints(name)? }])
    }

    /// Type promotion as far as the canonical form needs it: the higher float wins, a float wins over integers, and a
    /// scalar tensor never changes the other's float type.
    fn broadcast(&self) -> Option<Vec<Type>> {
        let (a, b) = (self.ty("self")?, self.ty("other")?);
        let dtype = match (a.shape.is_empty(), b.shape.is_empty()) {
            (false, true) if a.dtype.is_float() >= b.dtype.is_float() => a.dtype,
            (true, false) if b.dtype.is_float() >= a.dtype.is_float() => b.dtype,
            _ => a.dtype.max(b.dtype),
        };
        Some(vec![Type { dtype, shape: broadcast_shape(&a.shape, &b.shape)? }])
    }

    /// Two matrices.
    fn product(&self, a: &str, b: &str) -> Option<Vec<Type>> {
        let (a, b) = (self.ty(a)?, self.ty(b)?);
        match (&a.shape[..], &b.shape[..]) {
            (&[rows, _], &[_, columns]) => Some(vec![Type { dtype: a.dtype, shape: vec![rows, columns] }]),
            _ => None,
        }
    }

    /// `self` broadcast against a mask.
    fn against(&self, mask: &str) -> Option<Vec<Type>> {
        let x = self.ty("self")?;
        Some(vec![Type { dtype: x.dtype, shape: broadcast_shape(&x.shape, &self.ty(mask)?.shape)? }])
    }

    fn broadcast_as(&self, dtype: DType) -> Option<Vec<Type>> {
        let (a, b) = (self.ty("self")?, self.ty("other")?);
        Some(vec![Type { dtype, shape: broadcast_shape(&a.shape, &b.shape)? }])
    }
}

/// PyTorch's broadcasting; `None` where the shapes do not fit.
pub fn broadcast_shape(a: &[i64], b: &[i64]) -> Option<Vec<i64>> {
    let rank = a.len().max(b.len());
    let at = |s: &[i64], i: usize| if i + s.len() >= rank { s[i + s.len() - rank] } else { 1 };
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y || y == 1 => Some(x),
            (1, y) => Some(y),
            _ => None,
        })
        .collect()
}

fn linear(c: &Call) -> Option<Vec<Type>> {
    let mut ty = c.ty("input")?.clone();
    match c.ty("weight")?.shape[..] {
        [out, _] => *ty.shape.last_mut()? = out,
        _ => return None,
    }
    Some(vec![ty])
}

fn matmul(c: &Call) -> Option<Vec<Type>> {
    let (a, b) = (c.ty("self")?, c.ty("other")?);
    let ([ab @ .., rows, _], [bb @ .., _, columns]) = (&a.shape[..], &b.shape[..]) else { return None };
    let mut shape = broadcast_shape(ab, bb)?;
    shape.extend([rows, columns]);
    Some(vec![Type { dtype: a.dtype, shape }])
}

/// Output `[B, H, Sq, D]` and log-sum-exp `[B, H, Sq]` (kept as `[B, Sq, H]` inside, in fp32 for half types).
fn flash(c: &Call) -> Option<Vec<Type>> {
    let q = c.ty("query")?;
    let dtype = if q.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let (&[b, h, s, _], &[.., width]) = (&q.shape[..], &c.ty("value")?.shape[..]) else { return None };
    let out = Type { dtype: q.dtype, shape: vec![b, h, s, width] };
    Some(vec![out, Type { dtype, shape: vec![b, h, s] }])
}

fn layer_norm(c: &Call) -> Option<Vec<Type>> {
    let x = c.ty("input")?;
    let kept = x.shape.len().checked_sub(c.ints("normalized_shape")?.len())?;
    let mut stat = x.clone();
    stat.shape.get_mut(kept..)?.fill(1);
    Some(vec![x.clone(), stat.clone(), stat])
}

fn layer_norm_backward(c: &Call) -> Option<Vec<Type>> {
    let x = c.ty("input")?;
    let param = Type { dtype: x.dtype, shape: c.ints("normalized_shape")? };
    Some(vec![x.clone(), param.clone(), param])
}

fn reduce(c: &Call) -> Option<Vec<Type>> {
    let x = c.ty("self")?;
    let dims: Vec<usize> = c.ints("dim")?.iter().map(|d| wrap(*d, x.shape.len())).collect();
    let keep = c.flag("keepdim");
    let mut shape = Vec::new();
    for (i, n) in x.shape.iter().enumerate() {
        match (dims.contains(&i), keep) {
            (false, _) => shape.push(*n),
            (true, true) => shape.push(1),
            (true, false) => {}
        }
    }
    let integer = !x.dtype.is_float();
    Some(vec![Type { dtype: if integer { DType::I64 } else { x.dtype }, shape }])
}

fn embedding(c: &Call) -> Option<Vec<Type>> {
    let (w, ids) = (c.ty("weight")?, c.ty("indices")?);
    let mut shape = ids.shape.clone();
    shape.push(*w.shape.last()?);
    Some(vec![Type { dtype: w.dtype, shape }])
}

fn cat(c: &Call) -> Option<Vec<Type>> {
    let Some(Arg::Values(parts)) = c.node.arg("tensors") else { return None };
    let types: Vec<&Type> = parts.iter().flatten().map(|v| c.graph.ty(*v)).collect();
    let mut ty = (*types.first()?).clone();
    let dim = wrap(c.int("dim").unwrap_or(0), ty.shape.len());
    let sizes: Option<Vec<i64>> = types.iter().map(|t| t.shape.get(dim).copied()).collect();
    *ty.shape.get_mut(dim)? = sizes?.into_iter().sum();
    Some(vec![ty])
}

fn transpose(c: &Call) -> Option<Vec<Type>> {
    let mut ty = c.ty("self")?.clone();
    let rank = ty.shape.len();
    let (a, b) = (wrap(c.int("dim0")?, rank), wrap(c.int("dim1")?, rank));
    (a < rank && b < rank).then(|| ty.shape.swap(a, b))?;
    Some(vec![ty])
}

fn permute(c: &Call) -> Option<Vec<Type>> {
    let x = c.ty("self")?;
    let shape: Option<_> = c.ints("dims")?.iter().map(|d| x.shape.get(wrap(*d, x.shape.len())).copied()).collect();
    Some(vec![Type { dtype: x.dtype, shape: shape? }])
}

fn unsqueeze(c: &Call) -> Option<Vec<Type>> {
    let mut ty = c.ty("self")?.clone();
    let at = wrap(c.int("dim")?, ty.shape.len() + 1);
    (at <= ty.shape.len()).then(|| ty.shape.insert(at, 1))?;
    Some(vec![ty])
}

fn squeeze(c: &Call) -> Option<Vec<Type>> {
    let mut ty = c.ty("self")?.clone();
    let dim = c.dim("dim")?;
    if ty.shape.get(dim) == Some(&1) {
        ty.shape.remove(dim);
    }
    Some(vec![ty])
}

fn slice(c: &Call) -> Option<Vec<Type>> {
    let mut ty = c.ty("self")?.clone();
    let (dim, range) = slice_range(c)?;
    *ty.shape.get_mut(dim)? = (range.end - range.start).max(0);
    Some(vec![ty])
}

/// The dimension and the half-open range that a `slice.Tensor` of step 1 keeps, clamped as PyTorch does.
pub fn slice_range(c: &Call) -> Option<(usize, std::ops::Range<i64>)> {
    let dim = c.dim("dim").unwrap_or(0);
    let size = *c.ty("self")?.shape.get(dim)?;
    let clamp = |at: i64| (if at < 0 { at + size } else { at }).clamp(0, size);
    if c.int("step").unwrap_or(1) != 1 {
        return None;
    }
    Some((dim, clamp(c.int("start").unwrap_or(0))..clamp(c.int("end").unwrap_or(i64::MAX))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_order_so_that_they_can_be_found() {
        for pair in ROWS.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} stands before {}", pair[0].name, pair[1].name);
        }
    }

    #[test]
    fn broadcasting_follows_pytorch() {
        assert_eq!(broadcast_shape(&[3, 1, 5], &[4, 1]), Some(vec![3, 4, 5]));
        assert_eq!(broadcast_shape(&[], &[2]), Some(vec![2]));
        assert_eq!(broadcast_shape(&[3], &[2]), None);
    }
}
