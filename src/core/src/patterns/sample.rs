//! Values of element-wise patterns at a few points, so that a replacement that computes something else is refused before
//! anything runs. What mixes elements is not sampled: `slapoc verify` compares it.

use super::operators::Given;
use super::{Term, TermId, Variant};

/// Around 0, and where activations differ.
const POINTS: [f64; 7] = [-3.1, -1.7, -0.6, 0.2, 0.9, 1.8, 3.3];
/// Well above the error of [`erf`], well below the difference of two activations.
const TOLERANCE: f64 = 1e-5;

/// Where two expressions differ: the point, and both values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    pub at: f64,
    pub values: [f64; 2],
}

/// Compares the first results of two variants over parameters that are `bound`, tensors at several points each; `None` if
/// they agree, or cannot be sampled.
pub fn difference(bound: &[Given], a: &Variant, b: &Variant) -> Option<Difference> {
    for (i, at) in POINTS.iter().enumerate() {
        let value = |param: usize| match bound.get(param) {
            Some(Given::Number(number)) => *number,
            // Every tensor at another point, so that operands are told apart.
            _ => POINTS[(i + 3 * param) % POINTS.len()],
        };
        let first = |variant: &Variant| evaluate(variant, &value);
        let values = [first(a)?, first(b)?];
        if (values[0] - values[1]).abs() > TOLERANCE * values[0].abs().max(1.0) {
            return Some(Difference { at: *at, values });
        }
    }
    None
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
        "abs" => x.abs(),
        "add" => x + operand(1)?,
        "cos" => x.cos(),
        "div" => x / operand(1)?,
        "erf" => erf(x),
        "exp" => x.exp(),
        "gelu" if is_tanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        "gelu" => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
        "log" => x.ln(),
        "mul" => x * operand(1)?,
        "neg" => -x,
        "pow" => x.powf(operand(1)?),
        "relu" => x.max(0.0),
        "rsqrt" => 1.0 / x.sqrt(),
        "sigmoid" => sigmoid(x),
        "silu" => x * sigmoid(x),
        "sin" => x.sin(),
        "sqrt" => x.sqrt(),
        "sub" => x - operand(1)?,
        "tanh" => x.tanh(),
        _ => return None,
    })
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
