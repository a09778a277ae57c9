//! Element-wise functions of one value, known by their values at a few points: so `0.5 * x * (1 + tanh(…))` and the operator
//! `gelu` are one function, however they are written.

use crate::passes::borders::differentiable;
use crate::patterns::operators::{Given, Seen, is_close, see};
use crate::patterns::sample::computed;
use slapo_model::sym::Size;
use slapo_model::{Graph, NodeId, ValueId};
use std::collections::BTreeMap;

/// Around 0, and where activations differ.
const POINTS: [f64; 7] = [-3.1, -1.7, -0.6, 0.2, 0.9, 1.8, 3.3];
/// Well above the error of the polynomial for `erf`, well below the difference of two activations.
const TOLERANCE: f64 = 1e-5;

type Samples = [f64; POINTS.len()];

/// Activations by name, with an attribute.
const NAMED: [(&str, &str, bool); 10] = [
    ("gelu", "gelu", false),
    ("gelu(approximate: \"tanh\")", "gelu", true),
    ("relu", "relu", false),
    ("silu", "silu", false),
    ("sigmoid", "sigmoid", false),
    ("tanh", "tanh", false),
    ("exp", "exp", false),
    ("abs", "abs", false),
    ("sin", "sin", false),
    ("cos", "cos", false),
];

/// What a function of one value is.
#[derive(Clone, Debug, PartialEq)]
pub enum Function {
    /// `scale * x + shift`
    Affine {
        scale: f64,
        shift: f64,
    },
    Activation {
        name: &'static str,
        scale: f64,
    },
    /// `scale / sqrt(x + epsilon)`, or its inverse: the end of a norm.
    Norm {
        epsilon: f64,
        scale: f64,
    },
    /// `x ^ 2`, which norms begin with, or another power.
    Power {
        exponent: i32,
        scale: f64,
    },
    /// None of these: its value at a point.
    Other {
        at: f64,
        value: f64,
    },
}

/// The functions that a set of nodes computes, each as far as it goes: up to a node that does something else.
pub fn functions(symbolic: &Graph<Size>, bound: &Graph, nodes: &[NodeId]) -> Vec<Function> {
    let flows = differentiable(bound);
    let mut known: BTreeMap<ValueId, (ValueId, Samples)> = BTreeMap::new();
    for id in nodes {
        let node = symbolic.node(*id);
        if let (Some(seen), Some(Some(out))) = (see(symbolic, node), node.outs.first())
            && let Some(function) = applied(&seen, &known, &flows)
        {
            known.insert(*out, function);
        }
    }
    // Of a function that others are made of, only these are told.
    let goes_on = |value: ValueId, root: ValueId, node: NodeId| {
        let out = symbolic.node(node).outs.first().copied().flatten();
        out.and_then(|out| known.get(&out)).is_some_and(|(of, _)| *of == root && value != root)
    };
    let mut found = Vec::new();
    for (value, (root, samples)) in &known {
        let mut readers = (0..symbolic.nodes.len() as u32)
            .map(NodeId)
            .filter(|id| symbolic.node(*id).reads().any(|read| read == *value));
        let ends = readers.any(|reader| !goes_on(*value, *root, reader)) || symbolic.outputs.contains(value);
        if ends {
            found.push(recognised(samples));
        }
    }
    found
}

/// An operator on functions of one and the same value, or on that value itself.
fn applied(seen: &Seen, known: &BTreeMap<ValueId, (ValueId, Samples)>, flows: &[bool]) -> Option<(ValueId, Samples)> {
    let mut root = None;
    let mut operands: Vec<Samples> = Vec::new();
    let mut is_tanh = false;
    for given in &seen.given {
        operands.push(match given {
            Given::Value(value) => {
                let (of, samples) = known.get(value).copied().unwrap_or((*value, POINTS));
                if !flows[value.0 as usize] || root.is_some_and(|known| known != of) {
                    return None;
                }
                root = Some(of);
                samples
            }
            Given::Number(number) => [*number; POINTS.len()],
            Given::Text(text) => {
                is_tanh = text == "tanh";
                continue;
            }
            _ => return None,
        });
    }
    let mut samples = POINTS;
    for (at, sample) in samples.iter_mut().enumerate() {
        *sample = computed(seen.operator.name, |slot| operands.get(slot).map(|of| of[at]), is_tanh)?;
    }
    Some((root?, samples))
}

fn recognised(samples: &Samples) -> Function {
    let defined: Vec<(f64, f64)> = POINTS.into_iter().zip(*samples).filter(|(_, y)| y.is_finite()).collect();
    if let Some((scale, shift)) = line(&defined).filter(|_| defined.len() == POINTS.len()) {
        return Function::Affine { scale, shift };
    }
    for (name, operator, is_tanh) in NAMED {
        let of = |x: f64| computed(operator, |_| Some(x), is_tanh).unwrap_or(f64::NAN);
        if let Some(scale) = ratio(defined.iter().map(|(x, y)| (of(*x), *y))) {
            return Function::Activation { name, scale };
        }
    }
    for exponent in [2, 3] {
        if let Some(scale) = ratio(defined.iter().map(|(x, y)| (x.powi(exponent), *y))) {
            return Function::Power { exponent, scale };
        }
    }
    // 1 / y² and y² are lines in x.
    for inverse in [true, false] {
        let square = |y: f64| if inverse { 1.0 / (y * y) } else { y * y };
        let squares: Vec<(f64, f64)> = defined.iter().map(|(x, y)| (*x, square(*y))).collect();
        if let Some((slope, start)) = line(&squares).filter(|(slope, _)| *slope > 0.0) {
            let scale = if inverse { 1.0 / slope.sqrt() } else { slope.sqrt() };
            return Function::Norm { epsilon: start / slope, scale };
        }
    }
    let at = POINTS[4];
    Function::Other { at, value: samples[4] }
}

/// Slope and value at 0 of the line through all points, three at least.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let [(x0, y0), .., (x1, y1)] = points else { return None };
    let slope = (y1 - y0) / (x1 - x0);
    let start = y0 - slope * x0;
    let is_on = |(x, y): &(f64, f64)| is_near(slope * x + start, *y);
    // A start that is only rounding is none.
    let start = if start.abs() < 1e-12 { 0.0 } else { start };
    (points.len() > 2 && points.iter().all(is_on)).then_some((slope, start))
}

/// What the second is of the first, at every point.
fn ratio(mut pairs: impl Iterator<Item = (f64, f64)> + Clone) -> Option<f64> {
    let (x, y) = pairs.clone().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))?;
    let scale = y / x;
    let close = if is_close(scale, 1.0) { 1.0 } else { scale };
    pairs.all(|(x, y)| is_near(scale * x, y)).then_some(close).filter(|scale| *scale != 0.0)
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()).max(1e-2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(f: impl Fn(f64) -> f64) -> Function {
        recognised(&POINTS.map(f))
    }

    #[test]
    fn functions_are_what_their_values_are() {
        let gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044715 * x * x * x)).tanh());
        assert!(matches!(sampled(gelu), Function::Activation { name: "gelu(approximate: \"tanh\")", .. }));
        assert!(matches!(sampled(|x| 2.0 * x.max(0.0)), Function::Activation { name: "relu", scale } if scale == 2.0));
        assert!(matches!(sampled(|x| x / (1.0 + (-x).exp())), Function::Activation { name: "silu", .. }));
        assert_eq!(sampled(|x| x * x), Function::Power { exponent: 2, scale: 1.0 });
        assert!(matches!(sampled(|x| 0.25 * x), Function::Affine { scale, shift } if scale == 0.25 && shift == 0.0));
        assert!(matches!(sampled(|x| x.max(0.1 * x)), Function::Other { .. }));
    }

    #[test]
    fn a_norm_is_known_by_its_epsilon() {
        let is_norm = |found: Function, wanted: f64| match found {
            Function::Norm { epsilon, scale } => (epsilon - wanted).abs() < 1e-3 * wanted && (scale - 1.0).abs() < 1e-6,
            _ => false,
        };
        assert!(is_norm(sampled(|x| 1.0 / (x + 1e-5).sqrt()), 1e-5));
        assert!(is_norm(sampled(|x| (x + 1e-6).sqrt()), 1e-6));
        assert!(!is_norm(sampled(|x| 1.0 / (x + 1e-5).sqrt()), 1e-3));
    }
}
