//! What the operators of a module come to, as far as it can be told without running them: what softmaxes are masked by,
//! activations, norms with their epsilons, residual additions, gates, scales, dropouts.
//!
//! Two writings of one computation have one inventory. The other way round is not so: values are compared by `slapoc verify`.

use super::functions::{Function, functions};
use super::types::typed;
use super::{contract, refuse};
use crate::ir::ops::Call;
use crate::passes::borders::differentiable;
use crate::passes::constant::{Constants, Tensor};
use crate::patterns::operators::is_close;
use crate::primitives::Refusal;
use slapo_model::regions::Region;
use slapo_model::sym::Size;
use slapo_model::{Arg, Def, Graph, Node, NodeId, Type, ValueId};
use slapo_program::DType;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub struct Inventory {
    /// In words, with how often they occur.
    facts: BTreeMap<String, usize>,
    /// The product of all factors.
    scale: f64,
    /// Probability and type of what is dropped, in the graph's order.
    dropouts: Vec<(f64, Type)>,
}

impl Inventory {
    /// Of a region of `symbolic`, which is `bound` with its sizes.
    pub fn of(symbolic: &Graph<Size>, bound: &Graph, region: &Region) -> Inventory {
        let mut taking = Taking {
            graph: bound,
            inside: region.nodes.iter().copied().collect(),
            flows: differentiable(bound),
            constants: Constants::new(bound),
            selected: BTreeSet::new(),
            inventory: Inventory { facts: BTreeMap::new(), scale: 1.0, dropouts: Vec::new() },
        };
        for function in functions(symbolic, bound, &region.nodes) {
            taking.inventory.function(function);
        }
        for id in &region.nodes {
            taking.node(bound.node(*id));
        }
        for id in &region.nodes {
            taking.selection(bound.node(*id));
        }
        taking.inventory
    }

    fn add(&mut self, fact: impl Into<String>) {
        *self.facts.entry(fact.into()).or_default() += 1;
    }

    fn function(&mut self, function: Function) {
        match function {
            Function::Affine { scale, shift } => {
                self.scale *= scale;
                if shift != 0.0 {
                    self.add(format!("an addition of {}", number(shift)));
                }
            }
            Function::Activation { name, scale } => {
                self.scale *= scale;
                self.add(format!("`{name}`"));
            }
            Function::Norm { epsilon, scale } => {
                self.scale *= scale;
                self.add(norm(epsilon));
            }
            // The squares of a norm; where they are anything else, values tell.
            Function::Power { exponent: 2, scale } => self.scale *= scale,
            Function::Power { exponent, scale } => {
                self.scale *= scale;
                self.add(format!("a power of {exponent}"));
            }
            Function::Other { at, value } => self.add(format!("a function that is {} at {at}", number(value))),
        }
    }

    /// Refuses an archive that does not have what the module of that path has, or has more than it.
    pub fn compare(&self, archive: &Inventory, name: &str, path: &str) -> Result<(), Refusal> {
        let mut lost = missing(&self.facts, &archive.facts);
        let mut new = missing(&archive.facts, &self.facts);
        if !is_close(self.scale as f32 as f64, archive.scale as f32 as f64)
            && (self.scale / archive.scale - 1.0).abs() > 1e-5
        {
            lost.push(format!("a scale of {}", number(self.scale)));
            new.push(format!("a scale of {}", number(archive.scale)));
        }
        // A product of matrices may be written as a sum of several.
        let is_more = new.iter().any(|fact| ![ADDITION, PRODUCT].iter().any(|streams| fact.ends_with(streams)));
        if lost.is_empty() && !is_more {
            return self.same_dropouts(archive, name, path);
        }
        let message = match lost.as_slice() {
            [] => format!("`{name}` computes more than `{path}`: {}", new.join(", ")),
            lost => format!("`{name}` does not compute what `{path}` does: {} would be lost", lost.join(", ")),
        };
        let problem = contract(message, "another computation");
        refuse(match (lost.is_empty(), new.is_empty()) {
            (false, false) => problem.note(format!("in its place the archive has {}", new.join(", "))),
            _ => problem,
        })
    }

    /// Masks are functions of a dropout's number among all and of the element: they stay if both are the same.
    fn same_dropouts(&self, archive: &Inventory, name: &str, path: &str) -> Result<(), Refusal> {
        if self.dropouts == archive.dropouts {
            return Ok(());
        }
        let shown = |dropouts: &[(f64, Type)]| {
            let one = |(p, ty): &(f64, Type)| format!("{p} of {}", typed(ty));
            let all: Vec<String> = dropouts.iter().map(one).collect();
            if all.is_empty() { "nothing".to_string() } else { all.join(", ") }
        };
        let message = format!("`{name}` does not draw the random numbers of `{path}`");
        refuse(contract(message, "other dropouts").note(format!(
            "the module drops {}; the archive {}, in this order",
            shown(&self.dropouts),
            shown(&archive.dropouts)
        )))
    }
}

/// What of `a` is not in `b`, with numbers where there are several.
fn missing(a: &BTreeMap<String, usize>, b: &BTreeMap<String, usize>) -> Vec<String> {
    let over = |(fact, count): (&String, &usize)| {
        let over = count.saturating_sub(b.get(fact).copied().unwrap_or_default());
        match over {
            0 => None,
            1 => Some(fact.clone()),
            several => Some(format!("{several} times {fact}")),
        }
    };
    a.iter().filter_map(over).collect()
}

fn norm(epsilon: f64) -> String {
    format!("a norm with epsilon {epsilon:.0e}")
}

/// Six digits: more is rounding.
fn number(x: f64) -> String {
    let digits = format!("{x:.6}");
    digits.trim_end_matches('0').trim_end_matches('.').to_string()
}

struct Taking<'g> {
    graph: &'g Graph,
    inside: BTreeSet<NodeId>,
    /// By value: a gradient flows through it.
    flows: Vec<bool>,
    constants: Constants<'g>,
    /// What a softmax is said to be masked by.
    selected: BTreeSet<ValueId>,
    inventory: Inventory,
}

/// Operators that pass on what they are given, as far as masks are concerned.
const PASSING: [&str; 17] = [
    "_to_copy",
    "_unsafe_view",
    "alias",
    "clone",
    "contiguous",
    "div.Scalar",
    "div.Tensor",
    "expand",
    "mul.Scalar",
    "mul.Tensor",
    "reshape",
    "sub.Tensor",
    "to.dtype",
    "transpose.int",
    "unsqueeze",
    "view",
    "add.Scalar",
];

impl Taking<'_> {
    fn node(&mut self, node: &Node) {
        let graph = self.graph;
        let call = Call { graph, node };
        match node.name() {
            "scaled_dot_product_attention" => self.attention(&call),
            "softmax.int" | "log_softmax.int" | "_softmax" | "_log_softmax" => {
                let masks = call.value("self").map(|x| self.masks(x)).unwrap_or_default();
                self.softmax(masks);
                let last = call.ty("self").map_or(0, |ty| ty.shape.len()).checked_sub(1);
                if let Some(dim) = call.dim("dim").filter(|dim| Some(*dim) != last) {
                    self.inventory.add(format!("a softmax over dimension {dim}"));
                }
            }
            "layer_norm" | "native_layer_norm" | "group_norm" | "native_group_norm" => {
                self.inventory.add(norm(call.number("eps").unwrap_or(1e-5)));
                self.inventory.add(CENTRED);
            }
            "sub.Tensor" if self.is_mean(node.tensor("other")) => self.inventory.add(CENTRED),
            name if ACTIVATIONS.contains(&name) => self.inventory.add(format!("`{name}`")),
            "rms_norm" => self.inventory.add(norm(call.number("eps").unwrap_or(f64::from(f32::EPSILON)))),
            "dropout" | "native_dropout" => {
                let is_on = node.arg("train") != Some(&Arg::Bool(false));
                let x = node.tensor("input").or_else(|| node.tensor("self"));
                if let (Some(p), Some(x)) = (call.number("p").filter(|p| *p > 0.0 && is_on), x) {
                    self.inventory.dropouts.push((p, graph.ty(x).clone()));
                }
            }
            "add.Tensor" | "sub.Tensor" if self.are_streams(node) => self.inventory.add(ADDITION),
            "mul.Tensor" | "div.Tensor" if self.are_streams(node) => self.inventory.add(PRODUCT),
            _ => {}
        }
    }

    /// Whether a value is the mean of a computed one.
    fn is_mean(&self, value: Option<ValueId>) -> bool {
        let node = value.and_then(|value| self.graph.definition(value));
        node.is_some_and(|node| node.name() == "mean.dim" || node.name().starts_with("var_mean"))
    }

    /// Values that a mask picks, where no softmax follows.
    fn selection(&mut self, node: &Node) {
        let is_hidden = match node.name() {
            "masked_fill.Scalar" | "masked_fill.Tensor" => true,
            "where.self" | "where.ScalarOther" | "where.ScalarSelf" => false,
            _ => return,
        };
        let flows = node.reads().any(|read| self.flows[read.0 as usize]);
        let is_told = node.outs.iter().flatten().any(|out| self.selected.contains(out));
        let mask = node.tensor("mask").or_else(|| node.tensor("condition"));
        if let Some(mask) = mask.filter(|_| flows && !is_told)
            && let Some(mask) = self.mask(mask, is_hidden)
        {
            self.inventory.add(format!("a selection by {mask}"));
        }
    }

    /// Two computed values of the result's own shape, such as a layer's output and what went around it. Operands of one
    /// element-wise function are none: they are one value.
    fn are_streams(&self, node: &Node) -> bool {
        let (Some(a), Some(b), Some(Some(out))) = (node.tensor("self"), node.tensor("other"), node.outs.first()) else {
            return false;
        };
        let shape = &self.graph.ty(*out).shape;
        let is_stream = |value: ValueId| {
            self.flows[value.0 as usize]
                && self.graph.ty(value).shape == *shape
                && !matches!(self.graph.value(value).def, Def::Parameter(_) | Def::Buffer(_))
        };
        a != b && is_stream(a) && is_stream(b) && self.root(a) != self.root(b)
    }

    /// What an element-wise chain of one operand begins with.
    fn root(&self, value: ValueId) -> ValueId {
        let mut value = value;
        while let Def::Node(id, _) = self.graph.value(value).def
            && self.inside.contains(&id)
        {
            let node = self.graph.node(id);
            let mut flowing: Vec<ValueId> = node.reads().filter(|read| self.flows[read.0 as usize]).collect();
            flowing.dedup();
            let is_element_wise = ELEMENT_WISE.contains(&node.name());
            let roots: BTreeSet<ValueId> = match is_element_wise {
                true if flowing.len() > 1 => flowing.iter().map(|read| self.root(*read)).collect(),
                true => flowing.into_iter().collect(),
                false => return value,
            };
            match (roots.first(), roots.len()) {
                (Some(one), 1) => value = *one,
                _ => return value,
            }
        }
        value
    }

    fn attention(&mut self, call: &Call) {
        let (Some(q), Some(k)) = (call.ty("query"), call.ty("key")) else { return };
        let (Some(width), Some(keys)) = (q.shape.last(), k.shape.iter().rev().nth(1)) else { return };
        self.inventory.scale *= call.number("scale").unwrap_or(1.0 / (*width as f64).sqrt());
        if let Some(p) = call.number("dropout_p").filter(|p| *p > 0.0) {
            let mut scores = q.clone();
            if let Some(last) = scores.shape.last_mut() {
                *last = *keys;
            }
            self.inventory.dropouts.push((p, scores));
        }
        let mut masks = BTreeSet::new();
        if call.flag("is_causal") {
            masks.insert(CAUSAL.to_string());
        }
        if let Some(mask) = call.value("attn_mask") {
            masks.extend(self.mask(mask, false));
        }
        self.softmax(masks);
    }

    fn softmax(&mut self, masks: BTreeSet<String>) {
        let masks: Vec<String> = masks.into_iter().collect();
        self.inventory.add(match masks.is_empty() {
            true => "a softmax without a mask".to_string(),
            false => format!("a softmax under {}", masks.join(" and ")),
        });
    }

    /// What hides scores on their way to a softmax.
    fn masks(&mut self, scores: ValueId) -> BTreeSet<String> {
        let mut masks = BTreeSet::new();
        let mut todo = vec![scores];
        while let Some(value) = todo.pop() {
            let graph = self.graph;
            let Some(node) = graph.definition(value) else { continue };
            let flowing: Vec<ValueId> = node.reads().filter(|read| self.flows[read.0 as usize]).collect();
            self.selected.insert(value);
            match node.name() {
                "masked_fill.Scalar" | "masked_fill.Tensor" => {
                    masks.extend(node.tensor("mask").and_then(|mask| self.mask(mask, true)));
                    todo.extend(node.tensor("self"));
                }
                "where.self" | "where.ScalarOther" | "where.ScalarSelf" => {
                    let is_hidden = node.tensor("self").is_none_or(|x| !self.flows[x.0 as usize]);
                    masks.extend(node.tensor("condition").and_then(|mask| self.mask(mask, is_hidden)));
                    todo.extend(flowing);
                }
                "add.Tensor" => {
                    let added = node.reads().find(|read| !self.flows[read.0 as usize]);
                    todo.extend(flowing);
                    masks.extend(added.and_then(|mask| self.mask(mask, false)));
                }
                name if PASSING.contains(&name) => todo.extend(flowing),
                _ => {}
            }
        }
        masks
    }

    /// A mask in words; nothing where it hides nothing. `is_hidden`: it is true where scores are hidden.
    fn mask(&mut self, mask: ValueId, is_hidden: bool) -> Option<String> {
        if self.graph.ty(mask).dtype == DType::Bool {
            return match self.constants.get(mask) {
                Some(known) => fixed(&if is_hidden { known.complement() } else { known }),
                None => Some(self.dynamic(mask)),
            };
        }
        // Scores to be added: 0 where they stay.
        let additive = self.graph.definition(mask).filter(|node| node.name().starts_with("where."));
        let zero =
            |name: &str| additive.is_some_and(|node| matches!(node.arg(name), Some(Arg::Float(0.0) | Arg::Int(0))));
        match additive.and_then(|node| node.tensor("condition")) {
            Some(condition) if zero("self") => self.mask(condition, false),
            Some(condition) if zero("other") => self.mask(condition, true),
            _ => Some(self.dynamic(mask)),
        }
    }

    /// A mask that depends on values from outside: by these.
    fn dynamic(&self, mask: ValueId) -> String {
        let mut sources = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut todo = vec![mask];
        while let Some(value) = todo.pop() {
            if !seen.insert(value) {
                continue;
            }
            match self.graph.value(value).def {
                Def::Node(id, _) if self.inside.contains(&id) => todo.extend(self.graph.node(id).reads()),
                _ => drop(sources.insert(format!("`{}`", self.graph.value(value).name))),
            }
        }
        match sources.is_empty() {
            true => "a fixed table".to_string(),
            false => format!("the mask of {}", sources.into_iter().collect::<Vec<_>>().join(", ")),
        }
    }
}

/// Of a norm: what is left of it without this is a root mean square.
const CENTRED: &str = "a mean that is taken off";
const ADDITION: &str = "an addition of two streams";
const PRODUCT: &str = "a product of two streams";
const CAUSAL: &str = "a causal mask";

/// Activations that are known by their operators alone.
const ACTIVATIONS: [&str; 18] = [
    "celu",
    "clamp",
    "clamp_min",
    "elu",
    "glu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "log_sigmoid",
    "log_sigmoid_forward",
    "mish",
    "prelu",
    "relu6",
    "selu",
    "softplus",
    "softshrink",
    "threshold",
];

/// Element-wise operators: those of one operand, and those that may have one operand twice.
const ELEMENT_WISE: [&str; 27] = [
    "abs",
    "add.Scalar",
    "add.Tensor",
    "alias",
    "clone",
    "div.Scalar",
    "div.Tensor",
    "erf",
    "exp",
    "gelu",
    "mul.Scalar",
    "mul.Tensor",
    "neg",
    "pow.Scalar",
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "relu",
    "rsqrt",
    "rsub.Scalar",
    "sigmoid",
    "silu",
    "sqrt",
    "sub.Scalar",
    "sub.Tensor",
    "tanh",
    "to.dtype",
    "_to_copy",
];

/// A mask that is true where scores stay.
fn fixed(keeps: &Tensor) -> Option<String> {
    if keeps.is_all_true() {
        return None;
    }
    if keeps.is_causal() {
        return Some(CAUSAL.to_string());
    }
    let elements = keeps.elements();
    let kept = elements.iter().filter(|x| **x != 0).count();
    Some(format!("a fixed mask that keeps {kept} of {} scores", elements.len()))
}
