//! Values that depend on no parameter and no input, evaluated by the compiler.
//!
//! Hugging Face builds causal masks out of `arange`, comparisons and gathers; what the compiler needs to know is that the
//! result is lower triangular, or that a gather by whole ranges is no gather at all. [`Constants`] evaluates integer and
//! boolean operators on demand. It gives facts; it does not put literals into the graph. Broadcast dimensions keep
//! stride 0 throughout, so that a mask of `[B, 1, S, S]` costs S².

use crate::ir::ops::{self, Call, broadcast_shape, wrap};
use slapo_model::{Arg, Def, Graph, NodeId, Op, ValueId};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Tensors of more stored elements than this stay unknown.
const LIMIT: i64 = 1 << 26;

/// An integer tensor (booleans as 0 and 1), strided over shared storage.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub shape: Vec<i64>,
    strides: Vec<i64>,
    offset: i64,
    data: Rc<Vec<i32>>,
}

/// Evaluates constants of one graph, each at most once.
pub struct Constants<'g> {
    graph: &'g Graph,
    known: BTreeMap<ValueId, Option<Tensor>>,
}

impl<'g> Constants<'g> {
    pub fn new(graph: &'g Graph) -> Constants<'g> {
        Constants { graph, known: BTreeMap::new() }
    }

    /// The value as a tensor of integers, if it depends on no parameter and no input and the evaluator knows the operators
    /// it is made by.
    pub fn get(&mut self, value: ValueId) -> Option<Tensor> {
        // Depth first without recursion: masks are made by chains that grow with the model's code, not with the stack.
        let mut todo = vec![value];
        while let Some(&v) = todo.last() {
            if self.known.contains_key(&v) {
                todo.pop();
                continue;
            }
            let Def::Node(node, 0) = self.graph.value(v).def else {
                self.known.insert(v, None);
                continue;
            };
            let missing: Vec<ValueId> = self.graph.node(node).reads().filter(|r| !self.known.contains_key(r)).collect();
            if missing.is_empty() {
                let result = self.evaluate(node);
                self.known.insert(v, result);
            } else {
                todo.extend(missing);
            }
        }
        self.known.get(&value).cloned().flatten()
    }

    fn evaluate(&self, id: NodeId) -> Option<Tensor> {
        let node = self.graph.node(id);
        let Op::Aten(name) = &node.op else { return None };
        let at = ROWS.binary_search_by_key(&name.as_str(), |row| row.0).ok()?;
        let eval = Eval { call: Call { graph: self.graph, node }, known: &self.known };
        let out = self.graph.ty(node.outs[0]?);
        if out.dtype.is_float() {
            return None;
        }
        let result = (ROWS[at].1)(&eval)?;
        (result.shape == out.shape).then_some(result)
    }
}

struct Eval<'a> {
    call: Call<'a>,
    known: &'a BTreeMap<ValueId, Option<Tensor>>,
}

type Rule = fn(&Eval) -> Option<Tensor>;

/// One row per operator, in alphabetical order.
#[rustfmt::skip]
static ROWS: &[(&str, Rule)] = &[
    ("__and__.Tensor", |e| e.binary(|a, b| a & b)),
    ("__or__.Tensor", |e| e.binary(|a, b| a | b)),
    ("add.Tensor", |e| e.binary(i32::wrapping_add)),
    ("arange", |e| e.arange(0, e.call.int("end")?)),
    ("arange.start", |e| e.arange(e.call.int("start")?, e.call.int("end")?)),
    ("bitwise_and.Tensor", |e| e.binary(|a, b| a & b)),
    ("bitwise_not", |e| e.logical_not()),
    ("bitwise_or.Tensor", |e| e.binary(|a, b| a | b)),
    ("clone", |e| e.tensor("self")),
    ("contiguous", |e| e.tensor("self")),
    ("cumsum", |e| e.cumsum()),
    ("diff", |e| e.diff()),
    ("eq.Scalar", |e| e.binary(|a, b| i32::from(a == b))),
    ("eq.Tensor", |e| e.binary(|a, b| i32::from(a == b))),
    ("expand", |e| e.tensor("self")?.expand(&e.call.ints("size")?)),
    ("full", |e| Some(Tensor::filled(e.call.ints("size")?, e.scalar("fill_value")?))),
    ("ge.Scalar", |e| e.binary(|a, b| i32::from(a >= b))),
    ("ge.Tensor", |e| e.binary(|a, b| i32::from(a >= b))),
    ("gt.Scalar", |e| e.binary(|a, b| i32::from(a > b))),
    ("gt.Tensor", |e| e.binary(|a, b| i32::from(a > b))),
    ("index.Tensor", |e| e.index()),
    ("le.Scalar", |e| e.binary(|a, b| i32::from(a <= b))),
    ("le.Tensor", |e| e.binary(|a, b| i32::from(a <= b))),
    ("logical_and", |e| e.binary(|a, b| i32::from(a != 0 && b != 0))),
    ("logical_not", |e| e.logical_not()),
    ("lt.Scalar", |e| e.binary(|a, b| i32::from(a < b))),
    ("lt.Tensor", |e| e.binary(|a, b| i32::from(a < b))),
    ("mul.Tensor", |e| e.binary(i32::wrapping_mul)),
    ("ne.Scalar", |e| e.binary(|a, b| i32::from(a != b))),
    ("ne.Tensor", |e| e.binary(|a, b| i32::from(a != b))),
    ("new_ones", |e| Some(Tensor::filled(e.call.ints("size")?, 1))),
    ("new_zeros", |e| Some(Tensor::filled(e.call.ints("size")?, 0))),
    ("ones", |e| Some(Tensor::filled(e.call.ints("size")?, 1))),
    ("reshape", |e| e.tensor("self")?.view(&e.out_shape())),
    ("slice.Tensor", |e| { let (dim, range) = ops::slice_range(&e.call)?; e.tensor("self")?.narrow(dim, range.start, range.end - range.start) }),
    ("sub.Tensor", |e| e.binary(i32::wrapping_sub)),
    ("to.dtype", |e| e.cast()),
    ("transpose.int", |e| e.transpose()),
    ("tril", |e| e.triangle(|row, col, k| col <= row + k)),
    ("triu", |e| e.triangle(|row, col, k| col >= row + k)),
    ("unsqueeze", |e| { let x = e.tensor("self")?; let at = wrap(e.call.int("dim")?, x.shape.len() + 1); Some(x.unsqueeze(at)) }),
    ("view", |e| e.tensor("self")?.view(&e.out_shape())),
    ("zeros", |e| Some(Tensor::filled(e.call.ints("size")?, 0))),
];

impl Eval<'_> {
    fn tensor(&self, name: &str) -> Option<Tensor> {
        self.known.get(&self.call.value(name)?)?.clone()
    }

    fn scalar(&self, name: &str) -> Option<i32> {
        let x = self.call.number(name)?;
        (x.fract() == 0.0 && x.abs() < f64::from(i32::MAX)).then_some(x as i32)
    }

    fn out_shape(&self) -> Vec<i64> {
        self.call.node.outs[0].map_or_else(Vec::new, |v| self.call.graph.ty(v).shape.clone())
    }

    fn binary(&self, f: impl Fn(i32, i32) -> i32) -> Option<Tensor> {
        if self.scalar("alpha").is_some_and(|alpha| alpha != 1) {
            return None;
        }
        let a = self.tensor("self")?;
        match self.tensor("other") {
            Some(b) => a.zip(&b, f),
            None => {
                let b = self.scalar("other")?;
                a.map(|x| f(x, b))
            }
        }
    }

    fn logical_not(&self) -> Option<Tensor> {
        let x = self.call.value("self")?;
        (self.call.graph.ty(x).dtype == slapo_program::DType::Bool).then_some(())?;
        self.tensor("self")?.map(|x| 1 - x)
    }

    fn cast(&self) -> Option<Tensor> {
        let x = self.tensor("self")?;
        match self.call.dtype("dtype")? {
            slapo_program::DType::Bool => x.map(|x| i32::from(x != 0)),
            slapo_program::DType::I64 | slapo_program::DType::I32 => Some(x),
            _ => None,
        }
    }

    fn arange(&self, start: i64, end: i64) -> Option<Tensor> {
        if end - start > LIMIT {
            return None;
        }
        let data: Vec<i32> = (start..end).map(i32::try_from).collect::<Result<_, _>>().ok()?;
        Some(Tensor { shape: vec![data.len() as i64], strides: vec![1], offset: 0, data: Rc::new(data) })
    }

    fn cumsum(&self) -> Option<Tensor> {
        let x = self.tensor("self")?;
        let dim = self.call.dim("dim")?;
        x.along(dim, |line| {
            let mut sum = 0i32;
            line.iter_mut().for_each(|v| {
                sum = sum.wrapping_add(*v);
                *v = sum;
            });
        })
    }

    fn diff(&self) -> Option<Tensor> {
        let x = self.tensor("self")?;
        if self.call.int("n").unwrap_or(1) != 1 || self.call.value("append").is_some() {
            return None;
        }
        let dim = wrap(self.call.int("dim").unwrap_or(-1), x.shape.len());
        let joined = match self.tensor("prepend") {
            Some(p) => p.cat(&x, dim)?,
            None => x,
        };
        let n = joined.shape[dim] - 1;
        joined.narrow(dim, 1, n)?.zip(&joined.narrow(dim, 0, n)?, i32::wrapping_sub)
    }

    /// Leading dimensions indexed by broadcast index tensors.
    fn index(&self) -> Option<Tensor> {
        let x = self.tensor("self")?;
        let Some(Arg::Values(list)) = self.call.node.arg("indices") else { return None };
        let indices: Vec<Tensor> = list.iter().map(|v| self.known.get(&(*v)?)?.clone()).collect::<Option<_>>()?;
        let shape = indices.iter().try_fold(Vec::new(), |s, i| broadcast_shape(&s, &i.shape))?;
        let mut at = Tensor::filled(Vec::new(), i32::try_from(x.offset).ok()?);
        for (dim, index) in indices.iter().enumerate() {
            let (stride, size) = (x.strides[dim] as i32, x.shape[dim] as i32);
            // A dimension of stride 0 is the same wherever it is read.
            if stride != 0 {
                let index = index.map(|i| (if i < 0 { i + size } else { i }) * stride)?;
                at = at.zip(&index, i32::wrapping_add)?;
            }
        }
        let rest = indices.len()..x.shape.len();
        let mut full = shape.clone();
        full.extend(&x.shape[rest.clone()]);
        for _ in rest.clone() {
            at = at.unsqueeze(at.shape.len());
        }
        for dim in rest {
            if x.strides[dim] != 0 {
                let data = (0..x.shape[dim]).map(|i| (i * x.strides[dim]) as i32).collect::<Vec<_>>();
                let mut offsets =
                    Tensor { shape: vec![data.len() as i64], strides: vec![1], offset: 0, data: Rc::new(data) };
                for _ in dim + 1..x.shape.len() {
                    offsets = offsets.unsqueeze(offsets.shape.len());
                }
                at = at.zip(&offsets, i32::wrapping_add)?;
            }
        }
        let data = &x.data;
        let picked = at.try_map(|i| data.get(usize::try_from(i).ok()?).copied())?;
        picked.expand(&full)
    }

    fn transpose(&self) -> Option<Tensor> {
        let mut x = self.tensor("self")?;
        let rank = x.shape.len();
        let (a, b) = (wrap(self.call.int("dim0")?, rank), wrap(self.call.int("dim1")?, rank));
        x.shape.swap(a, b);
        x.strides.swap(a, b);
        Some(x)
    }

    fn triangle(&self, keep: impl Fn(i64, i64, i64) -> bool) -> Option<Tensor> {
        let x = self.tensor("self")?;
        let k = self.call.int("diagonal").unwrap_or(0);
        let [.., rows, cols] = x.shape[..] else { return None };
        let data: Vec<i32> =
            (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))).map(|(r, c)| i32::from(keep(r, c, k))).collect();
        let mask = Tensor { shape: vec![rows, cols], strides: vec![cols, 1], offset: 0, data: Rc::new(data) };
        x.zip(&mask, |a, b| a * b)
    }
}

impl Tensor {
    fn filled(shape: Vec<i64>, value: i32) -> Tensor {
        Tensor { strides: vec![0; shape.len()], shape, offset: 0, data: Rc::new(vec![value]) }
    }

    /// Shape with the dimensions of stride 0 taken once.
    fn stored_shape(&self) -> Vec<i64> {
        self.shape.iter().zip(&self.strides).map(|(n, s)| if *s == 0 { (*n).min(1) } else { *n }).collect()
    }

    /// Elements in row-major order over `shape`, which may take a dimension once.
    fn read(&self, shape: &[i64], mut f: impl FnMut(i32)) {
        if shape.contains(&0) {
            return;
        }
        let rank = shape.len();
        let mut index = vec![0i64; rank];
        let mut at = self.offset;
        loop {
            f(self.data[at as usize]);
            let mut dim = rank;
            loop {
                if dim == 0 {
                    return;
                }
                dim -= 1;
                index[dim] += 1;
                at += self.strides[dim];
                if index[dim] < shape[dim] {
                    break;
                }
                at -= index[dim] * self.strides[dim];
                index[dim] = 0;
            }
        }
    }

    /// A dense tensor over `stored`, broadcast back to `shape`.
    fn dense(data: Vec<i32>, stored: &[i64], shape: Vec<i64>) -> Tensor {
        let mut strides = vec![0; stored.len()];
        let mut step = 1;
        for dim in (0..stored.len()).rev() {
            strides[dim] = if stored[dim] == 1 { 0 } else { step };
            step *= stored[dim];
        }
        Tensor { shape, strides, offset: 0, data: Rc::new(data) }
    }

    fn try_map(&self, f: impl Fn(i32) -> Option<i32>) -> Option<Tensor> {
        let stored = self.stored_shape();
        let mut data = Vec::with_capacity(stored.iter().product::<i64>() as usize);
        let mut ok = true;
        self.read(&stored, |x| match f(x) {
            Some(y) => data.push(y),
            None => ok = false,
        });
        ok.then(|| Tensor::dense(data, &stored, self.shape.clone()))
    }

    fn map(&self, f: impl Fn(i32) -> i32) -> Option<Tensor> {
        self.try_map(|x| Some(f(x)))
    }

    fn zip(&self, other: &Tensor, f: impl Fn(i32, i32) -> i32) -> Option<Tensor> {
        let shape = broadcast_shape(&self.shape, &other.shape)?;
        let (a, b) = (self.expand(&shape)?, other.expand(&shape)?);
        let stored: Vec<i64> = (0..shape.len())
            .map(|i| if a.strides[i] == 0 && b.strides[i] == 0 { shape[i].min(1) } else { shape[i] })
            .collect();
        let count: i64 = stored.iter().product();
        if count > LIMIT {
            return None;
        }
        let mut left = Vec::with_capacity(count as usize);
        a.read(&stored, |x| left.push(x));
        let mut i = 0;
        b.read(&stored, |y| {
            left[i] = f(left[i], y);
            i += 1;
        });
        Some(Tensor::dense(left, &stored, shape))
    }

    fn expand(&self, shape: &[i64]) -> Option<Tensor> {
        let lead = shape.len().checked_sub(self.shape.len())?;
        let mut strides = vec![0; shape.len()];
        for (i, n) in self.shape.iter().enumerate() {
            if *n == shape[lead + i] {
                strides[lead + i] = self.strides[i];
            } else if *n != 1 {
                return None;
            }
        }
        Some(Tensor { shape: shape.to_vec(), strides, offset: self.offset, data: self.data.clone() })
    }

    fn unsqueeze(&self, at: usize) -> Tensor {
        let mut out = self.clone();
        out.shape.insert(at, 1);
        out.strides.insert(at, 0);
        out
    }

    fn narrow(&self, dim: usize, start: i64, len: i64) -> Option<Tensor> {
        if start < 0 || len < 0 || start + len > self.shape[dim] {
            return None;
        }
        let mut out = self.clone();
        out.offset += start * out.strides[dim];
        out.shape[dim] = len;
        Some(out)
    }

    fn view(&self, shape: &[i64]) -> Option<Tensor> {
        if self.shape.iter().product::<i64>() > LIMIT {
            return None;
        }
        let mut data = Vec::new();
        self.read(&self.shape, |x| data.push(x));
        Some(Tensor::dense(data, shape, shape.to_vec()))
    }

    fn cat(&self, other: &Tensor, dim: usize) -> Option<Tensor> {
        let mut shape = self.shape.clone();
        shape[dim] += other.shape[dim];
        let (a, b) = (self.stored_except(dim), other.stored_except(dim));
        let mut stored: Vec<i64> = a.iter().zip(&b).map(|(x, y)| *x.max(y)).collect();
        stored[dim] = shape[dim];
        let (mut left, mut right) = (stored.clone(), stored.clone());
        left[dim] = self.shape[dim];
        right[dim] = other.shape[dim];
        let inner: i64 = stored[dim + 1..].iter().product();
        let (mut x, mut y) = (Vec::new(), Vec::new());
        self.read(&left, |v| x.push(v));
        other.read(&right, |v| y.push(v));
        let (xs, ys) = ((left[dim] * inner) as usize, (right[dim] * inner) as usize);
        let outer: i64 = stored[..dim].iter().product();
        let mut data = Vec::with_capacity(x.len() + y.len());
        for i in 0..outer as usize {
            data.extend_from_slice(&x[i * xs..(i + 1) * xs]);
            data.extend_from_slice(&y[i * ys..(i + 1) * ys]);
        }
        Some(Tensor::dense(data, &stored, shape))
    }

    fn stored_except(&self, dim: usize) -> Vec<i64> {
        let mut stored = self.stored_shape();
        stored[dim] = self.shape[dim];
        stored
    }

    /// Applies `f` to every line along `dim`.
    fn along(&self, dim: usize, f: impl Fn(&mut [i32])) -> Option<Tensor> {
        let stored = self.stored_except(dim);
        let mut data = Vec::new();
        self.read(&stored, |x| data.push(x));
        let n = stored[dim] as usize;
        let inner: usize = stored[dim + 1..].iter().product::<i64>() as usize;
        let mut line = vec![0; n];
        for start in (0..data.len()).filter(|i| (i / inner).is_multiple_of(n.max(1))) {
            for k in 0..n {
                line[k] = data[start + k * inner];
            }
            f(&mut line);
            for k in 0..n {
                data[start + k * inner] = line[k];
            }
        }
        Some(Tensor::dense(data, &stored, self.shape.clone()))
    }

    /// All elements in row-major order.
    pub fn elements(&self) -> Vec<i32> {
        let mut data = Vec::new();
        self.read(&self.shape, |x| data.push(x));
        data
    }

    /// `[…, S, S]`, the same for all leading indices, 1 at and below the diagonal, 0 above.
    pub fn is_causal(&self) -> bool {
        let [.., rows, cols] = self.shape[..] else { return false };
        let lead = self.shape.len() - 2;
        if rows != cols || !self.same_over_leading(lead) {
            return false;
        }
        let mut i = 0;
        let mut causal = true;
        self.one_matrix().read(&[rows, cols], |x| {
            causal &= x == i32::from(i % cols <= i / cols);
            i += 1;
        });
        causal
    }

    /// Of a boolean tensor, what it is not.
    pub fn complement(&self) -> Tensor {
        Tensor { data: Rc::new(self.data.iter().map(|x| i32::from(*x == 0)).collect()), ..self.clone() }
    }

    /// Every element is 1.
    pub fn is_all_true(&self) -> bool {
        let mut all = true;
        self.read(&self.stored_shape(), |x| all &= x == 1);
        all
    }

    /// The same matrix for all leading indices.
    pub fn is_same_over_leading(&self) -> bool {
        self.shape.len() >= 2 && self.same_over_leading(self.shape.len() - 2)
    }

    fn same_over_leading(&self, lead: usize) -> bool {
        (0..lead).all(|d| self.shape[d] == 1 || self.strides[d] == 0)
    }

    fn one_matrix(&self) -> Tensor {
        let lead = self.shape.len() - 2;
        Tensor {
            shape: self.shape[lead..].to_vec(),
            strides: self.strides[lead..].to_vec(),
            offset: self.offset,
            data: self.data.clone(),
        }
    }

    /// The dimension along which the tensor counts 0, 1, 2, …, being the same along all others: an index of the whole range.
    pub fn iota_dim(&self) -> Option<usize> {
        let dim = (0..self.shape.len()).find(|d| self.shape[*d] != 1)?;
        let mut same = self.clone();
        same.shape.iter_mut().enumerate().filter(|(d, _)| *d != dim).for_each(|(_, n)| *n = (*n).min(1));
        let others = (0..self.shape.len()).filter(|d| *d != dim);
        let broadcast = others.clone().all(|d| self.shape[d] == 1 || self.strides[d] == 0);
        let counts = same.elements().iter().enumerate().all(|(i, x)| *x == i as i32);
        (broadcast && counts).then_some(dim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_order() {
        assert!(ROWS.windows(2).all(|w| w[0].0 < w[1].0));
    }

    fn range(n: i64) -> Tensor {
        Tensor { shape: vec![n], strides: vec![1], offset: 0, data: Rc::new((0..n as i32).collect()) }
    }

    #[test]
    fn a_comparison_of_ranges_is_causal_and_costs_one_matrix() {
        let (rows, cols) = (range(5).unsqueeze(1), range(5).unsqueeze(0));
        let mask = cols.zip(&rows, |a, b| i32::from(a <= b)).and_then(|m| m.expand(&[3, 1, 5, 5]));
        let mask = mask.expect("shapes fit");
        assert!(mask.is_causal());
        assert_eq!(mask.data.len(), 25);
        let strict = cols.zip(&rows, |a, b| i32::from(a < b)).expect("shapes fit");
        assert!(!strict.is_causal());
    }

    #[test]
    fn lines_along_a_dimension() {
        let x = range(6).view(&[2, 3]).expect("six elements");
        let sums = x.along(0, |l| l[1] += l[0]).expect("small");
        assert_eq!(sums.elements(), [0, 1, 2, 3, 5, 7]);
        assert_eq!(x.cat(&x, 1).expect("fits").elements(), [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]);
        assert_eq!(x.iota_dim(), None);
        assert_eq!(range(3).unsqueeze(0).expand(&[2, 3]).and_then(|t| t.iota_dim()), None);
        assert_eq!(range(3).unsqueeze(0).iota_dim(), Some(1));
    }
}
