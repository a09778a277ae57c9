//! The joint forward-backward graph.
//!
//! Backward is written behind forward from the table of derivatives, in terms of ATen operators, so that every later
//! pass sees it as ordinary nodes. An operator without a row is differentiated by rerunning it ([`Op::Vjp`]), which is
//! reported. Contributions to one value's gradient are added; slices that tile a value are joined without adding.

use crate::ir::{Builder, arg, ops};
use crate::passes::derivatives;
use slapo_model::{Arg, Def, Graph, Node, Op, ParameterId, Type, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Forward and backward in one graph.
#[derive(Clone, Debug)]
pub struct Joint {
    pub graph: Graph,
    /// Nodes before this index are forward.
    pub forward: usize,
    /// The new values of mutated buffers, in the order of the model's list.
    pub mutations: Vec<ValueId>,
    /// The gradient of every trainable parameter that the loss depends on.
    pub gradients: Vec<(ParameterId, ValueId)>,
    /// Operators differentiated by rerunning them, with the number of nodes each.
    pub rerun: BTreeMap<String, usize>,
}

/// An operator that cannot be differentiated.
#[derive(Clone, Debug, PartialEq)]
pub struct NoDerivative {
    pub node: Node,
    pub reason: &'static str,
}

/// Differentiates the loss of `graph` with respect to `trainable`.
pub fn differentiate(graph: Graph, trainable: &BTreeSet<ParameterId>) -> Result<Joint, Vec<NoDerivative>> {
    let forward = graph.nodes.len();
    let wanted = wanted(&graph, trainable);
    let mut back = Backward {
        b: Builder::resume(graph),
        wanted,
        contributions: BTreeMap::new(),
        rerun: BTreeMap::new(),
        faults: Vec::new(),
    };
    let loss = back.b.graph.loss;
    back.b.origin = back.b.graph.definition(loss).map(|n| n.origin).unwrap_or_default();
    let Type { dtype, .. } = back.b.ty(loss).clone();
    let seed = back.b.one("full", vec![arg("size", Vec::<i64>::new()), arg("fill_value", 1.0), arg("dtype", dtype)]);
    back.add(loss, seed);
    for i in (0..forward).rev() {
        back.node(i);
    }
    if !back.faults.is_empty() {
        return Err(back.faults);
    }
    let leaves: Vec<(ParameterId, ValueId)> = back
        .b
        .graph
        .values
        .iter()
        .enumerate()
        .filter_map(|(i, v)| match v.def {
            Def::Parameter(p) if trainable.contains(&p) => Some((p, ValueId(i as u32))),
            _ => None,
        })
        .collect();
    back.b.origin = slapo_model::Origin::default();
    let mut gradients = Vec::new();
    for (parameter, value) in leaves {
        if let Some(gradient) = back.total(value) {
            gradients.push((parameter, gradient));
        }
    }
    let mut graph = back.b.graph;
    let mutations = graph.outputs.iter().skip(1).copied().collect();
    graph.outputs.extend(gradients.iter().map(|(_, g)| *g));
    Ok(Joint { graph, forward, mutations, gradients, rerun: back.rerun })
}

/// Values that depend on a trainable parameter through floating-point values.
fn wanted(graph: &Graph, trainable: &BTreeSet<ParameterId>) -> Vec<bool> {
    let mut wanted: Vec<bool> =
        graph.values.iter().map(|v| matches!(v.def, Def::Parameter(p) if trainable.contains(&p))).collect();
    for node in &graph.nodes {
        if node.reads().any(|v| wanted[v.0 as usize]) {
            for out in node.outs.iter().flatten() {
                wanted[out.0 as usize] = graph.ty(*out).dtype.is_float();
            }
        }
    }
    wanted
}

/// A part of a value's gradient.
enum Contribution {
    Whole(ValueId),
    /// The gradient of `[start, end)` along `dim`; zero elsewhere.
    Slice {
        dim: usize,
        start: i64,
        end: i64,
        value: ValueId,
    },
}

/// Backward under construction; rules of the derivative table write through it.
pub struct Backward {
    pub b: Builder,
    wanted: Vec<bool>,
    contributions: BTreeMap<ValueId, Vec<Contribution>>,
    rerun: BTreeMap<String, usize>,
    faults: Vec<NoDerivative>,
}

impl Backward {
    /// Whether the gradient of the node's argument `name` is wanted.
    pub fn wants(&self, node: &Node, name: &str) -> Option<ValueId> {
        node.tensor(name).filter(|v| self.wants_value(*v))
    }

    pub fn wants_value(&self, value: ValueId) -> bool {
        self.wanted.get(value.0 as usize).copied().unwrap_or(false)
    }

    /// Adds to the gradient of `value`, which must have its type.
    pub fn add(&mut self, value: ValueId, gradient: ValueId) {
        debug_assert_eq!(self.b.ty(value), self.b.ty(gradient), "gradient of {}", self.b.graph.value(value).name);
        self.contributions.entry(value).or_default().push(Contribution::Whole(gradient));
    }

    /// Adds to the gradient of `value[start..end]` along `dim`.
    pub fn add_slice(&mut self, value: ValueId, dim: usize, start: i64, end: i64, gradient: ValueId) {
        let part = Contribution::Slice { dim, start, end, value: gradient };
        self.contributions.entry(value).or_default().push(part);
    }

    fn node(&mut self, i: usize) {
        let node = self.b.graph.nodes[i].clone();
        if !node.outs.iter().flatten().any(|v| self.contributions.contains_key(v)) {
            return;
        }
        self.b.origin = node.origin;
        let grads: Vec<Option<ValueId>> = node.outs.iter().map(|v| self.total((*v)?)).collect();
        let described = !matches!(node.op, Op::Aten(_)) || ops::describes(&self.b.graph, &node);
        match derivatives::row(node.name()) {
            Some(rule) if described => rule(self, &node, &grads),
            _ => self.rerun(&node, &grads),
        }
    }

    /// The whole gradient of `value`, if anything contributes to it.
    fn total(&mut self, value: ValueId) -> Option<ValueId> {
        let parts = self.contributions.remove(&value)?;
        let ty = self.b.ty(value).clone();
        let parts = match self.tiled(&parts, &ty) {
            Some(joined) => vec![joined],
            None => parts.into_iter().map(|part| self.whole(part, &ty)).collect(),
        };
        parts.into_iter().reduce(|sum, part| self.b.binary("add.Tensor", sum, part))
    }

    fn whole(&mut self, part: Contribution, ty: &Type) -> ValueId {
        match part {
            Contribution::Whole(v) => v,
            Contribution::Slice { dim, start, end, value } => self.b.one(
                "slice_backward",
                vec![
                    arg("grad_output", value),
                    arg("input_sizes", ty.shape.clone()),
                    arg("dim", dim as i64),
                    arg("start", start),
                    arg("end", end),
                    arg("step", 1),
                ],
            ),
        }
    }

    /// Slices that cover the value exactly once are its gradient, end to end.
    fn tiled(&mut self, parts: &[Contribution], ty: &Type) -> Option<ValueId> {
        let mut slices = Vec::new();
        let mut along = None;
        for part in parts {
            let Contribution::Slice { dim, start, end, value } = part else { return None };
            if along.is_some_and(|d| d != *dim) {
                return None;
            }
            along = Some(*dim);
            slices.push((*start, *end, *value));
        }
        slices.sort_unstable();
        let mut at = 0;
        for (start, end, _) in &slices {
            if *start != at {
                return None;
            }
            at = *end;
        }
        let dim = along?;
        if at != ty.shape[dim] {
            return None;
        }
        let values = slices.into_iter().map(|(.., v)| Some(v)).collect();
        Some(self.b.one("cat", vec![arg("tensors", Arg::Values(values)), arg("dim", dim as i64)]))
    }

    /// The derivative of an operator without a row.
    fn rerun(&mut self, node: &Node, grads: &[Option<ValueId>]) {
        let Op::Aten(op) = &node.op else { return };
        if is_random(op) {
            let reason = "it draws random numbers, so running it again would give other ones";
            self.faults.push(NoDerivative { node: node.clone(), reason });
            return;
        }
        *self.rerun.entry(op.clone()).or_default() += 1;
        let mut args = node.args.clone();
        for (i, grad) in grads.iter().enumerate() {
            args.push(arg(&format!("grad_{i}"), *grad));
        }
        let tensors: Vec<ValueId> = node.reads().collect();
        let results = tensors.iter().map(|v| self.wants_value(*v).then(|| (None, self.b.ty(*v).clone()))).collect();
        let vjp = Node {
            op: Op::Vjp { op: op.clone(), results: grads.len() as u32 },
            args,
            outs: Vec::new(),
            origin: node.origin,
        };
        let outs = self.b.push(vjp, results);
        for (value, gradient) in tensors.into_iter().zip(outs) {
            if let Some(gradient) = gradient {
                self.add(value, gradient);
            }
        }
    }
}

/// Operators that draw from libtorch's own generator.
fn is_random(op: &str) -> bool {
    const PREFIXES: [&str; 9] = [
        "bernoulli",
        "dropout",
        "exponential",
        "feature_dropout",
        "multinomial",
        "native_dropout",
        "normal",
        "rand",
        "uniform",
    ];
    PREFIXES.iter().any(|p| op.starts_with(p))
}
