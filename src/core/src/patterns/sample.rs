//! Values of patterns at a few points, so that a replacement that computes something else is refused before anything runs:
//! element by element where that is all there is to it, else on small tensors of the shapes at hand. Random numbers and
//! indices are not sampled: `slapoc verify` compares them.

use super::operators::Given;
use super::tensors::{self, Bound, Tensor};
use super::{Term, TermId, Variant};
use slapo_model::sym::Size;

/// Around 0, and where activations differ.
const POINTS: [f64; 7] = [-3.1, -1.7, -0.6, 0.2, 0.9, 1.8, 3.3];
/// Well above the error of [`erf`], well below the difference of two activations.
const TOLERANCE: f64 = 1e-5;
/// More sizes than any pattern of use has.
const MOST_SIZES: usize = 8;

/// Where two expressions differ: the point if it is one, and both values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    pub at: Option<f64>,
    pub values: [f64; 2],
}

/// Compares the first results of two variants over parameters that are `bound`; `shape` is that of a tensor, if its
/// elements are floating. `head` is the width of a head, where attention takes its scale from it. `None` if they agree, or
/// cannot be sampled.
pub fn difference<'g>(
    bound: &[Given],
    shape: impl Fn(&Given) -> Option<&'g [Size]>,
    head: Option<f64>,
    a: &Variant,
    b: &Variant,
) -> Option<Difference> {
    let is_elementwise = |variant| evaluate(variant, &|_| 1.0).is_some();
    match is_elementwise(a) && is_elementwise(b) {
        true => at_points(bound, a, b),
        false => on_tensors(&small(bound, shape)?, head, a, b),
    }
}

fn at_points(bound: &[Given], a: &Variant, b: &Variant) -> Option<Difference> {
    for (i, at) in POINTS.iter().enumerate() {
        let value = |param: usize| match bound.get(param) {
            Some(Given::Number(number)) => *number,
            // Every tensor at another point, so that operands are told apart.
            _ => POINTS[(i + 3 * param) % POINTS.len()],
        };
        let first = |variant: &Variant| evaluate(variant, &value);
        let values = [first(a)?, first(b)?];
        if is_different(values) {
            return Some(Difference { at: Some(*at), values });
        }
    }
    None
}

fn on_tensors(params: &[Option<Tensor>], head: Option<f64>, a: &Variant, b: &Variant) -> Option<Difference> {
    let bound = Bound { params, head };
    let (a, b) = (tensors::evaluate(a, &bound)?, tensors::evaluate(b, &bound)?);
    let mut pairs = a.data.iter().zip(&b.data).map(|(a, b)| [*a, *b]);
    pairs.find(|values| is_different(*values)).map(|values| Difference { at: None, values })
}

fn is_different(values: [f64; 2]) -> bool {
    (values[0] - values[1]).abs() > TOLERANCE * values[0].abs().max(1.0)
}

/// The parameters as small tensors: equal sizes stay equal, different ones different.
fn small<'g>(bound: &[Given], shape: impl Fn(&Given) -> Option<&'g [Size]>) -> Option<Vec<Option<Tensor>>> {
    let mut sizes: Vec<&Size> = vec![&Size::Const(1)];
    let mut params = Vec::with_capacity(bound.len());
    for (at, given) in bound.iter().enumerate() {
        params.push(match given {
            Given::Number(number) => Some(Tensor::number(*number)),
            Given::Value(_) => {
                let mut small = Vec::new();
                for size in shape(given)? {
                    small.push(1 + sizes.iter().position(|known| *known == size).unwrap_or(sizes.len()));
                    sizes.extend((!sizes.contains(&size)).then_some(size));
                }
                let count = tensors::count(&small)?;
                Some(Tensor { shape: small, data: (0..count).map(|i| noise(at, i)).collect() })
            }
            _ => None,
        });
    }
    (sizes.len() <= MOST_SIZES).then_some(params)
}

/// Between -1.5 and 1.5, in no order.
fn noise(param: usize, element: usize) -> f64 {
    let turns = (param * 7919 + element * 104_729 + 1) as f64 * 0.618_033_988_749_895;
    (turns.fract() - 0.5) * 3.0
}

/// The first result; operands stand in front of what uses them, and each is computed once.
fn evaluate(variant: &Variant, param: &dyn Fn(usize) -> f64) -> Option<f64> {
    let mut known: Vec<Option<f64>> = Vec::with_capacity(variant.terms.len());
    for term in &variant.terms {
        let value = match term {
            Term::Param(at) => Some(param(*at)),
            Term::Given(Given::Number(number)) => Some(*number),
            Term::Given(_) => None,
            Term::Apply(operator, args) => apply(variant, operator.name, args, &known),
        };
        known.push(value);
    }
    known.get(*variant.results.first()?).copied().flatten()
}

fn apply(variant: &Variant, operator: &str, args: &[Option<TermId>], known: &[Option<f64>]) -> Option<f64> {
    let operand = |at: usize| known.get((*args.get(at)?)?).copied().flatten();
    let attribute = args.get(1).copied().flatten().map(|term| &variant.terms[term]);
    let is_tanh = matches!(attribute, Some(Term::Given(Given::Text(text))) if text == "tanh");
    computed(operator, operand, is_tanh)
}

/// An element-wise operator at one point; `is_tanh` is an attribute of gelu. `None` for what mixes elements.
pub(crate) fn computed(operator: &str, operand: impl Fn(usize) -> Option<f64>, is_tanh: bool) -> Option<f64> {
    let x = operand(0)?;
    Some(match operator {
        "add" => x + operand(1)?,
        "div" => x / operand(1)?,
        "mul" => x * operand(1)?,
        "pow" => x.powf(operand(1)?),
        "sub" => x - operand(1)?,
        "gelu" => gelu(x, is_tanh),
        name => function(name)?(x),
    })
}

/// The function of one number that an operator computes.
pub(super) fn function(operator: &str) -> Option<fn(f64) -> f64> {
    Some(match operator {
        "abs" => f64::abs,
        "cos" => f64::cos,
        "erf" => erf,
        "exp" => f64::exp,
        "log" => f64::ln,
        "neg" => |x| -x,
        "relu" => |x| x.max(0.0),
        "rsqrt" => |x| 1.0 / x.sqrt(),
        "sigmoid" => sigmoid,
        "silu" => |x| x * sigmoid(x),
        "sin" => f64::sin,
        "sqrt" => f64::sqrt,
        "tanh" => f64::tanh,
        _ => return None,
    })
}

pub(super) fn gelu(x: f64, by_tanh: bool) -> f64 {
    match by_tanh {
        true => 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()),
        false => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Abramowitz and Stegun, 7.1.26: within 1.5e-7.
fn erf(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.3275911 * x.abs());
    let polynomial = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    (1.0 - polynomial * (-x * x).exp()).copysign(x)
}
