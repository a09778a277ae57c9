//! Expressions of patterns on small tensors: what the operators compute, of any shape.
//!
//! Operators that draw random numbers or look into an index have no value here. A number is a tensor without dimensions.

use super::operators::{Given, Operator};
use super::{Term, TermId, Variant};

/// Elements that one tensor may have.
const MOST_ELEMENTS: usize = 1 << 14;

#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

/// What the parameters of a pattern are, and what the width of a head is in the model.
pub struct Bound<'a> {
    pub params: &'a [Option<Tensor>],
    pub head: Option<f64>,
}

/// The first result of an expression, unless it has an operator without a value.
pub fn evaluate(variant: &Variant, bound: &Bound) -> Option<Tensor> {
    let mut known: Vec<Option<Tensor>> = Vec::with_capacity(variant.terms.len());
    for term in &variant.terms {
        let value = match term {
            Term::Param(at) => bound.params.get(*at).cloned().flatten(),
            Term::Given(Given::Number(number)) => Some(Tensor::number(*number)),
            Term::Given(_) => None,
            Term::Apply(operator, args) => Call { variant, operator, args, known: &known, head: bound.head }.value(),
        };
        known.push(value);
    }
    known.into_iter().nth(*variant.results.first()?)?
}

/// One operator with its operands.
struct Call<'a> {
    variant: &'a Variant,
    operator: &'static Operator,
    args: &'a [Option<TermId>],
    known: &'a [Option<Tensor>],
    head: Option<f64>,
}

impl Call<'_> {
    fn value(&self) -> Option<Tensor> {
        let x = self.operand(0)?;
        let rank = x.shape.len();
        match self.operator.name {
            "add" | "div" | "mul" | "pow" | "sub" => {
                let b = self.operand(1)?;
                match self.operator.name {
                    "add" => x.with(b, |a, b| a + b),
                    "div" => x.with(b, |a, b| a / b),
                    "mul" => x.with(b, |a, b| a * b),
                    "pow" => x.with(b, f64::powf),
                    _ => x.with(b, |a, b| a - b),
                }
            }
            "addmm" => self.operand(1)?.matmul(self.operand(2)?)?.with(x, |product, b| product + b),
            "attention" => self.attention(x, self.operand(1)?, self.operand(2)?),
            "cat" => cat(x, self.operand(1)?, self.dim("dim", rank)?),
            "dropout" => (self.number("p", rank)? == 0.0).then(|| x.clone()),
            "layer_norm" => self.layer_norm(x),
            "linear" => {
                let product = x.matmul(&self.operand(1)?.transposed(0, 1)?)?;
                self.operand(2).map_or(Some(product.clone()), |b| product.with(b, |a, b| a + b))
            }
            "matmul" => x.matmul(self.operand(1)?),
            "mean" | "sum" => {
                let Given::Dims(mut dims) = self.given("dim", rank)? else { return None };
                let keepdim = self.given("keepdim", rank)? == Given::Bool(true);
                dims.sort_unstable_by(|a, b| b.cmp(a));
                let is_mean = self.operator.name == "mean";
                dims.into_iter().try_fold(x.clone(), |x, dim| x.reduced(usize::try_from(dim).ok()?, is_mean, keepdim))
            }
            "softmax" => x.softmax(self.dim("dim", rank)?),
            "transpose" => x.transposed(self.dim("dim0", rank)?, self.dim("dim1", rank)?),
            "gelu" => {
                let by_tanh = self.given("approximate", rank)? == Given::Text("tanh".to_string());
                Some(x.map(|x| super::sample::gelu(x, by_tanh)))
            }
            name => {
                let function = super::sample::function(name)?;
                Some(x.map(function))
            }
        }
    }

    fn operand(&self, at: usize) -> Option<&Tensor> {
        self.known.get((*self.args.get(at)?)?)?.as_ref()
    }

    /// An attribute, as the operator keeps it for a tensor of that rank.
    fn given(&self, name: &str, rank: usize) -> Option<Given> {
        let at = self.operator.slots.iter().position(|slot| slot.name == name)?;
        let slot = &self.operator.slots[at];
        match self.args.get(at).copied().flatten() {
            None => Some(slot.usual_of(rank)),
            Some(term) => match &self.variant.terms[term] {
                Term::Given(given) => slot.fit(given.clone(), rank),
                Term::Param(_) => Some(Given::Number(*self.known.get(term)?.as_ref()?.data.first()?)),
                Term::Apply(..) => None,
            },
        }
    }

    fn number(&self, name: &str, rank: usize) -> Option<f64> {
        if let Given::Number(number) = self.given(name, rank)? { Some(number) } else { None }
    }

    fn dim(&self, name: &str, rank: usize) -> Option<usize> {
        let Given::Dims(dims) = self.given(name, rank)? else { return None };
        let [dim] = dims.as_slice() else { return None };
        usize::try_from(*dim).ok().filter(|dim| *dim < rank)
    }

    fn layer_norm(&self, x: &Tensor) -> Option<Tensor> {
        let rank = x.shape.len();
        let (last, eps) = (rank.checked_sub(1)?, self.number("eps", rank)?);
        let mean = x.reduced(last, true, true)?;
        let centred = x.with(&mean, |x, mean| x - mean)?;
        let variance = centred.map(|x| x * x).reduced(last, true, true)?;
        let normed = centred.with(&variance, |x, variance| x / (variance + eps).sqrt())?;
        let scaled = self.operand(1).map_or(Some(normed.clone()), |w| normed.with(w, |x, w| x * w))?;
        self.operand(2).map_or(Some(scaled.clone()), |b| scaled.with(b, |x, b| x + b))
    }

    fn attention(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Option<Tensor> {
        let rank = q.shape.len();
        let usual = || self.head.map(|head| 1.0 / head.sqrt());
        let scale = self.number("scale", rank).or_else(usual)?;
        let (rows, columns) = (rank.checked_sub(2)?, rank - 1);
        let mut scores = q.matmul(&k.transposed(rows, columns)?)?.map(|score| score * scale);
        if self.args.get(3).copied().flatten().is_some() {
            scores = scores.with(self.operand(3)?, |score, mask| score + mask)?;
        }
        if self.given("causal", rank)? == Given::Bool(true) {
            let (height, width) = (*scores.shape.get(rows)?, *scores.shape.get(columns)?);
            for (at, score) in scores.data.iter_mut().enumerate() {
                if at % width > at / width % height {
                    *score = f64::NEG_INFINITY;
                }
            }
        }
        (self.number("p", rank)? == 0.0).then(|| scores.softmax(columns)?.matmul(v)).flatten()
    }
}

impl Tensor {
    pub fn number(number: f64) -> Tensor {
        Tensor { shape: Vec::new(), data: vec![number] }
    }

    fn map(&self, function: impl Fn(f64) -> f64) -> Tensor {
        Tensor { shape: self.shape.clone(), data: self.data.iter().map(|x| function(*x)).collect() }
    }

    /// Element by element, broadcast.
    fn with(&self, other: &Tensor, function: impl Fn(f64, f64) -> f64) -> Option<Tensor> {
        let shape = broadcast(&self.shape, &other.shape)?;
        let data = (0..count(&shape)?).map(|at| function(self.at(&shape, at), other.at(&shape, at))).collect();
        Some(Tensor { shape, data })
    }

    /// The element that stands at position `at` of the broadcast `shape`.
    fn at(&self, shape: &[usize], mut at: usize) -> f64 {
        let (mut index, mut stride) = (0, 1);
        let lead = shape.len() - self.shape.len();
        for dim in (0..shape.len()).rev() {
            let position = at % shape[dim];
            at /= shape[dim];
            if dim >= lead {
                let size = self.shape[dim - lead];
                index += if size == 1 { 0 } else { position * stride };
                stride *= size;
            }
        }
        self.data[index]
    }

    /// The outer size, the size of `dim`, and the inner size.
    fn around(&self, dim: usize) -> Option<(usize, usize, usize)> {
        let size = *self.shape.get(dim)?;
        Some((self.shape[..dim].iter().product(), size, self.shape[dim + 1..].iter().product()))
    }

    fn transposed(&self, a: usize, b: usize) -> Option<Tensor> {
        let mut shape = self.shape.clone();
        if a.max(b) >= shape.len() {
            return None;
        }
        shape.swap(a, b);
        let strides: Vec<usize> = (0..shape.len()).map(|dim| self.shape[dim + 1..].iter().product()).collect();
        let mut order: Vec<usize> = strides;
        order.swap(a, b);
        let element = |mut at: usize| {
            let mut index = 0;
            for dim in (0..shape.len()).rev() {
                index += at % shape[dim] * order[dim];
                at /= shape[dim];
            }
            self.data[index]
        };
        Some(Tensor { data: (0..self.data.len()).map(element).collect(), shape })
    }

    fn reduced(&self, dim: usize, is_mean: bool, keepdim: bool) -> Option<Tensor> {
        let (outer, size, inner) = self.around(dim)?;
        let over = if is_mean { size as f64 } else { 1.0 };
        let sum = |at: usize| {
            let (row, column) = (at / inner, at % inner);
            (0..size).map(|i| self.data[(row * size + i) * inner + column]).sum::<f64>() / over
        };
        let mut shape = self.shape.clone();
        match keepdim {
            true => shape[dim] = 1,
            false => drop(shape.remove(dim)),
        }
        Some(Tensor { data: (0..outer * inner).map(sum).collect(), shape })
    }

    fn softmax(&self, dim: usize) -> Option<Tensor> {
        let powers = self.map(f64::exp);
        powers.with(&powers.reduced(dim, false, true)?, |power, sum| power / sum)
    }

    /// Batched, at least two dimensions on either side.
    fn matmul(&self, other: &Tensor) -> Option<Tensor> {
        let ([lead @ .., rows, inner], [other_lead @ .., height, columns]) =
            (self.shape.as_slice(), other.shape.as_slice())
        else {
            return None;
        };
        if inner != height {
            return None;
        }
        let batch = broadcast(lead, other_lead)?;
        let whole = |last: [usize; 2]| [batch.as_slice(), &last].concat();
        let (a, b) = (whole([*rows, *inner]), whole([*inner, *columns]));
        let shape = whole([*rows, *columns]);
        count(&shape)?.checked_mul(*inner).filter(|work| *work <= MOST_ELEMENTS * 8)?;
        let element = |at: usize| {
            let (row, column, block) = (at / columns % rows, at % columns, at / (rows * columns));
            let product = |i: usize| {
                let left = self.at(&a, (block * rows + row) * inner + i);
                left * other.at(&b, (block * inner + i) * columns + column)
            };
            (0..*inner).map(product).sum()
        };
        Some(Tensor { data: (0..count(&shape)?).map(element).collect(), shape })
    }
}

fn cat(a: &Tensor, b: &Tensor, dim: usize) -> Option<Tensor> {
    let (outer, first, inner) = a.around(dim)?;
    let (same, second, same_inner) = b.around(dim)?;
    if (outer, inner) != (same, same_inner) || a.shape.len() != b.shape.len() {
        return None;
    }
    let mut shape = a.shape.clone();
    shape[dim] = first + second;
    let (left, right) = (first * inner, second * inner);
    let rows = (0..outer).flat_map(|row| {
        let (from_a, from_b) = (&a.data[row * left..(row + 1) * left], &b.data[row * right..(row + 1) * right]);
        from_a.iter().chain(from_b).copied()
    });
    Some(Tensor { data: rows.collect(), shape })
}

fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let lead = long.len() - short.len();
    let mut shape = long.to_vec();
    for (size, other) in shape[lead..].iter_mut().zip(short) {
        match (*size, *other) {
            (a, b) if a == b => {}
            (1, b) => *size = b,
            (_, 1) => {}
            _ => return None,
        }
    }
    Some(shape)
}

/// How many elements a tensor of that shape has, if they are few.
pub fn count(shape: &[usize]) -> Option<usize> {
    let count = shape.iter().try_fold(1_usize, |count, size| count.checked_mul(*size))?;
    (count <= MOST_ELEMENTS).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[usize]) -> Tensor {
        let data = (0..count(shape).unwrap()).map(|at| at as f64).collect();
        Tensor { shape: shape.to_vec(), data }
    }

    #[test]
    fn operators_are_those_of_pytorch() {
        let product = tensor(&[2, 1, 2, 3]).matmul(&tensor(&[2, 3, 1])).unwrap();
        assert_eq!((product.shape, product.data), (vec![2, 2, 2, 1], vec![5., 14., 14., 50., 23., 32., 86., 122.]));
        assert_eq!(tensor(&[2, 3]).transposed(0, 1).unwrap().data, [0., 3., 1., 4., 2., 5.]);
        assert_eq!(tensor(&[2, 3]).reduced(0, true, false).unwrap().data, [1.5, 2.5, 3.5]);
        assert_eq!(tensor(&[2, 3]).with(&tensor(&[2, 1]), |a, b| a - b).unwrap().data, [0., 1., 2., 2., 3., 4.]);
        assert_eq!(cat(&tensor(&[2, 1]), &tensor(&[2, 2]), 1).unwrap().data, [0., 0., 1., 1., 2., 3.]);
        let ones = tensor(&[2, 3]).softmax(1).unwrap().reduced(1, false, false).unwrap();
        assert!(ones.data.iter().all(|sum| (sum - 1.0).abs() < 1e-12), "{ones:?}");
        assert_eq!(tensor(&[2, 3]).matmul(&tensor(&[2, 3])), None);
    }
}
