//! The operators that patterns and replacements speak of: one row each, with the ATen operators that compute it.
//!
//! A row knows its tensors and attributes by name and how each ATen form spells them, so that reading a node and
//! writing one follow one table. Attributes that a row does not list must have their neutral value in the model, or the
//! node is no such operator. Rows stand in alphabetical order.

use slapo_model::sym::Size;
use slapo_model::{Arg, Graph, Node, Op, ValueId};
use std::fmt;

/// An operator of the pattern language.
pub struct Operator {
    pub name: &'static str,
    /// Tensors and attributes, in the order in which a pattern gives them.
    pub slots: &'static [Slot],
    /// The first two operands may change places.
    pub commutes: bool,
    /// The first form is what a replacement is written as.
    pub forms: &'static [Form],
}

/// A tensor or an attribute of an operator.
pub struct Slot {
    pub name: &'static str,
    pub kind: SlotKind,
    /// What it is where neither pattern nor model gives it; a slot without one must be given.
    pub default: Option<Fixed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotKind {
    /// A tensor, or a number where the operator takes either.
    Operand,
    Tensor,
    Number,
    Bool,
    Text,
    /// One dimension or a list of them, counted from either end.
    Dims,
    /// One size for every dimension, or a size for each.
    Sizes,
}

/// How one ATen operator spells an [`Operator`].
pub struct Form {
    pub aten: &'static str,
    /// By slot, the argument's name in the schema; `tensors.0` is the first of a list.
    args: &'static [&'static str],
    /// Arguments that must be as here where they are given.
    only: &'static [(&'static str, Fixed)],
    /// Two dimensions that may change places.
    is_swap: bool,
}

/// A value that the table itself names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fixed {
    Absent,
    Number(f64),
    Bool(bool),
    Text(&'static str),
}

/// What is given for a slot.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    Absent,
    Value(ValueId),
    Number(f64),
    Bool(bool),
    Text(String),
    Dims(Vec<i64>),
}

/// A node read as an operator: what is given, by slot. Dimensions are counted from the front.
pub struct Seen {
    pub operator: &'static Operator,
    pub given: Vec<Given>,
    /// Of the first tensor.
    pub rank: usize,
    /// The order of the dimensions makes no difference.
    pub is_swap: bool,
}

const fn operand(name: &'static str) -> Slot {
    Slot { name, kind: SlotKind::Operand, default: None }
}

const fn tensor(name: &'static str) -> Slot {
    Slot { name, kind: SlotKind::Tensor, default: None }
}

const fn optional(name: &'static str) -> Slot {
    Slot { name, kind: SlotKind::Tensor, default: Some(Fixed::Absent) }
}

const fn attribute(name: &'static str, kind: SlotKind, default: Option<Fixed>) -> Slot {
    Slot { name, kind, default }
}

const fn form(aten: &'static str, args: &'static [&'static str]) -> Form {
    Form { aten, args, only: &[], is_swap: false }
}

const fn only(aten: &'static str, args: &'static [&'static str], only: &'static [(&'static str, Fixed)]) -> Form {
    Form { aten, args, only, is_swap: false }
}

const fn row(name: &'static str, slots: &'static [Slot], forms: &'static [Form]) -> Operator {
    Operator { name, slots, commutes: false, forms }
}

const fn either_way(name: &'static str, forms: &'static [Form]) -> Operator {
    Operator { name, slots: TWO, commutes: true, forms }
}

const ONE: &[Slot] = &[tensor("x")];
const TWO: &[Slot] = &[operand("a"), operand("b")];
const SELF: &[&str] = &["self"];
const BOTH: &[&str] = &["self", "other"];
const REDUCED: &[Slot] = &[
    tensor("x"),
    attribute("dim", SlotKind::Dims, None),
    attribute("keepdim", SlotKind::Bool, Some(Fixed::Bool(false))),
];
const PLAIN: &[(&str, Fixed)] = &[("alpha", Fixed::Number(1.0))];
const SAME_TYPE: &[(&str, Fixed)] = &[("dtype", Fixed::Absent)];
const PAIR: &[Slot] = &[tensor("a"), tensor("b"), attribute("dim", SlotKind::Dims, Some(Fixed::Number(0.0)))];
const CONVOLVED: &[Slot] = &[
    tensor("x"),
    tensor("w"),
    optional("b"),
    attribute("stride", SlotKind::Sizes, Some(Fixed::Number(1.0))),
    attribute("padding", SlotKind::Sizes, Some(Fixed::Number(0.0))),
    attribute("dilation", SlotKind::Sizes, Some(Fixed::Number(1.0))),
    attribute("groups", SlotKind::Number, Some(Fixed::Number(1.0))),
];
const CONVOLUTION: &[&str] = &["input", "weight", "bias", "stride", "padding", "dilation", "groups"];
/// Behind the last element, as PyTorch writes it.
const END: f64 = i64::MAX as f64;
const TRAINING: &[(&str, Fixed)] = &[("train", Fixed::Bool(true))];

#[rustfmt::skip]
static ROWS: &[Operator] = &[
    row("abs", ONE, &[form("abs", SELF)]),
    either_way("add", &[only("add.Tensor", BOTH, PLAIN), only("add.Scalar", BOTH, PLAIN)]),
    row("addmm", &[operand("b"), tensor("x"), tensor("w")],
        &[only("addmm", &["self", "mat1", "mat2"], &[("alpha", Fixed::Number(1.0)), ("beta", Fixed::Number(1.0))])]),
    row("attention",
        &[tensor("q"), tensor("k"), tensor("v"), optional("mask"), attribute("p", SlotKind::Number, Some(Fixed::Number(0.0))),
            attribute("causal", SlotKind::Bool, Some(Fixed::Bool(false))), attribute("scale", SlotKind::Number, Some(Fixed::Absent))],
        &[only("scaled_dot_product_attention", &["query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale"],
            &[("enable_gqa", Fixed::Bool(false))])]),
    row("cat", PAIR, &[form("cat", &["tensors.0", "tensors.1", "dim"])]),
    row("conv1d", CONVOLVED, &[form("conv1d", CONVOLUTION)]),
    row("conv2d", CONVOLVED, &[form("conv2d", CONVOLUTION)]),
    row("cos", ONE, &[form("cos", SELF)]),
    row("div", TWO, &[form("div.Tensor", BOTH), form("div.Scalar", BOTH)]),
    row("dropout", &[tensor("x"), attribute("p", SlotKind::Number, None)],
        &[only("native_dropout", &["input", "p"], TRAINING), only("dropout", &["input", "p"], TRAINING)]),
    row("embedding", &[tensor("w"), tensor("ids")], &[only("embedding", &["weight", "indices"],
        &[("padding_idx", Fixed::Number(-1.0)), ("scale_grad_by_freq", Fixed::Bool(false)), ("sparse", Fixed::Bool(false))])]),
    row("erf", ONE, &[form("erf", SELF)]),
    row("exp", ONE, &[form("exp", SELF)]),
    row("gelu", &[tensor("x"), attribute("approximate", SlotKind::Text, Some(Fixed::Text("none")))],
        &[form("gelu", &["self", "approximate"])]),
    row("layer_norm", &[tensor("x"), optional("w"), optional("b"), attribute("eps", SlotKind::Number, Some(Fixed::Number(1e-5)))],
        &[form("layer_norm", &["input", "weight", "bias", "eps"])]),
    row("linear", &[tensor("x"), tensor("w"), optional("b")], &[form("linear", &["input", "weight", "bias"])]),
    row("log", ONE, &[form("log", SELF)]),
    row("matmul", &[tensor("a"), tensor("b")],
        &[form("matmul", BOTH), form("mm", &["self", "mat2"]), form("bmm", &["self", "mat2"])]),
    row("mean", REDUCED, &[only("mean.dim", &["self", "dim", "keepdim"], SAME_TYPE)]),
    either_way("mul", &[form("mul.Tensor", BOTH), form("mul.Scalar", BOTH)]),
    row("neg", ONE, &[form("neg", SELF)]),
    row("pow", TWO, &[form("pow.Tensor_Scalar", &["self", "exponent"]), form("pow.Tensor_Tensor", &["self", "exponent"]),
        form("pow.Scalar", &["self", "exponent"])]),
    row("relu", ONE, &[form("relu", SELF)]),
    row("rsqrt", ONE, &[form("rsqrt", SELF)]),
    row("sigmoid", ONE, &[form("sigmoid", SELF)]),
    row("silu", ONE, &[form("silu", SELF)]),
    row("sin", ONE, &[form("sin", SELF)]),
    row("slice", &[tensor("x"), attribute("dim", SlotKind::Dims, Some(Fixed::Number(0.0))),
            attribute("start", SlotKind::Number, Some(Fixed::Number(0.0))), attribute("end", SlotKind::Number, Some(Fixed::Number(END)))],
        &[only("slice.Tensor", &["self", "dim", "start", "end"], &[("step", Fixed::Number(1.0))])]),
    row("softmax", &[tensor("x"), attribute("dim", SlotKind::Dims, None)],
        &[only("softmax.int", &["self", "dim"], SAME_TYPE)]),
    row("sqrt", ONE, &[form("sqrt", SELF)]),
    row("sub", TWO, &[only("sub.Tensor", BOTH, PLAIN), only("sub.Scalar", BOTH, PLAIN), only("rsub.Scalar", &["other", "self"], PLAIN)]),
    row("sum", REDUCED, &[only("sum.dim_IntList", &["self", "dim", "keepdim"], SAME_TYPE)]),
    row("tanh", ONE, &[form("tanh", SELF)]),
    row("transpose", &[tensor("x"), attribute("dim0", SlotKind::Dims, None), attribute("dim1", SlotKind::Dims, None)],
        &[Form { aten: "transpose.int", args: &["self", "dim0", "dim1"], only: &[], is_swap: true }]),
];

/// The operator of that name.
pub fn find(name: &str) -> Option<&'static Operator> {
    ROWS.binary_search_by_key(&name, |row| row.name).ok().map(|at| &ROWS[at])
}

/// In alphabetical order.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    ROWS.iter().map(|row| row.name)
}

/// What a node computes, if it is one of the table's operators and nothing else.
pub fn see(graph: &Graph<Size>, node: &Node<Size>) -> Option<Seen> {
    let Op::Aten(aten) = &node.op else { return None };
    let forms = ROWS.iter().flat_map(|row| row.forms.iter().map(move |form| (row, form)));
    let (operator, form) = forms.into_iter().find(|(_, form)| form.aten == aten)?;
    for (name, wanted) in form.only {
        let is_neutral = match (node.arg(name), wanted) {
            (None | Some(Arg::None), _) => true,
            (Some(arg), wanted) => read(arg).as_ref() == Some(&wanted.given()),
        };
        if !is_neutral {
            return None;
        }
    }
    // A norm goes over the last dimension alone.
    if matches!(node.arg("normalized_shape"), Some(Arg::Ints(shape)) if shape.len() != 1) {
        return None;
    }
    let out = (*node.outs.first()?)?;
    let rank = graph.ty(node.tensor(form.args[0]).unwrap_or(out)).shape.len();
    let mut given = Vec::with_capacity(operator.slots.len());
    for (slot, name) in operator.slots.iter().zip(form.args) {
        let found = match (node.arg(name), name.split_once('.')) {
            (Some(arg), _) if !matches!(arg, Arg::None) => Some(read(arg)?),
            (_, Some((list, at))) => Some(element(node, list, at, form)?),
            _ => None,
        };
        given.push(match found {
            Some(found) => slot.fit(found, rank)?,
            None => slot.usual_of(rank),
        });
    }
    Some(Seen { operator, given, rank, is_swap: form.is_swap })
}

/// One tensor of an argument that is a list, as long as the form has names for.
fn element(node: &Node<Size>, list: &str, at: &str, form: &Form) -> Option<Given> {
    let Some(Arg::Values(values)) = node.arg(list) else { return None };
    let names = form.args.iter().filter(|name| name.split_once('.').is_some_and(|(known, _)| known == list));
    let at: usize = at.parse().ok()?;
    let value = values.get(at).copied().flatten()?;
    (names.count() == values.len()).then_some(Given::Value(value))
}

fn read(arg: &Arg<Size>) -> Option<Given> {
    Some(match arg {
        Arg::None => Given::Absent,
        Arg::Value(v) => Given::Value(*v),
        Arg::Int(n) => Given::Number(n.constant()? as f64),
        Arg::Float(x) => Given::Number(*x),
        Arg::Bool(b) => Given::Bool(*b),
        Arg::Str(s) => Given::Text(s.clone()),
        Arg::Ints(dims) => {
            let dims: Option<Vec<i64>> = dims.iter().map(Size::constant).collect();
            Given::Dims(dims?)
        }
        Arg::Values(_) | Arg::Floats(_) | Arg::Bools(_) | Arg::DType(_) => return None,
    })
}

/// A dimension counted from the front.
fn front(dim: i64, rank: usize) -> i64 {
    if dim < 0 { dim + rank as i64 } else { dim }
}

impl Slot {
    /// The value as this slot keeps it: one dimension as a list, text by itself.
    pub fn fit(&self, given: Given, rank: usize) -> Option<Given> {
        Some(match (self.kind, given) {
            (SlotKind::Dims, Given::Number(dim)) if dim.fract() == 0.0 => Given::Dims(vec![front(dim as i64, rank)]),
            (SlotKind::Dims, Given::Dims(mut dims)) => {
                dims.iter_mut().for_each(|dim| *dim = front(*dim, rank));
                dims.sort_unstable();
                Given::Dims(dims)
            }
            (SlotKind::Sizes, Given::Number(size)) if size.fract() == 0.0 => Given::Dims(vec![size as i64]),
            (SlotKind::Sizes, Given::Dims(sizes)) => match sizes.as_slice() {
                [one, rest @ ..] if rest.iter().all(|size| size == one) => Given::Dims(vec![*one]),
                _ => Given::Dims(sizes),
            },
            (SlotKind::Operand, given @ (Given::Value(_) | Given::Number(_)))
            | (SlotKind::Tensor, given @ (Given::Value(_) | Given::Absent))
            | (SlotKind::Number, given @ Given::Number(_))
            | (SlotKind::Bool, given @ Given::Bool(_))
            | (SlotKind::Text, given @ Given::Text(_)) => given,
            _ => return None,
        })
    }

    /// What leaving it out means, as a pattern would write it.
    pub fn usual(&self) -> Given {
        self.default.map_or(Given::Absent, Fixed::given)
    }

    /// The same, as [`Slot::fit`] gives it.
    pub fn usual_of(&self, rank: usize) -> Given {
        self.fit(self.usual(), rank).unwrap_or_else(|| self.usual())
    }

    pub fn is_tensor(&self) -> bool {
        matches!(self.kind, SlotKind::Operand | SlotKind::Tensor)
    }
}

impl Operator {
    /// Whether it computes one element of one element; attributes apart, it has one operand.
    pub fn is_elementwise(&self) -> bool {
        self.name == "gelu" || super::sample::function(self.name).is_some()
    }

    /// Whether one node of it may stand in for a match: it draws no random numbers, and its shape is known.
    pub fn replaces(&self) -> bool {
        !matches!(self.name, "cat" | "conv1d" | "conv2d" | "dropout" | "embedding" | "slice")
    }

    /// How many of the first slots may be given as one list.
    pub fn listed(&self) -> usize {
        self.forms[0].args.iter().filter(|name| name.contains('.')).count()
    }

    /// The ATen operator of a replacement, and the names of its arguments by slot.
    pub fn written(&self) -> (&'static str, &'static [&'static str]) {
        let form = &self.forms[0];
        (form.aten, form.args)
    }
}

impl Fixed {
    fn given(self) -> Given {
        match self {
            Fixed::Absent => Given::Absent,
            Fixed::Number(number) => Given::Number(number),
            Fixed::Bool(value) => Given::Bool(value),
            Fixed::Text(text) => Given::Text(text.to_owned()),
        }
    }
}

impl Given {
    /// Whether two attributes are the same: numbers up to the rounding of float32.
    pub fn is(&self, other: &Given) -> bool {
        match (self, other) {
            (Given::Number(a), Given::Number(b)) => is_close(*a, *b),
            (a, b) => a == b,
        }
    }
}

/// Equal up to the rounding of a float32: what a model's source computes once in either precision.
pub fn is_close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= f64::from(f32::EPSILON) * a.abs().max(b.abs())
}

/// As a pattern writes it.
impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Given::Absent => f.write_str("nothing"),
            Given::Value(value) => write!(f, "value {}", value.0),
            Given::Number(number) => write!(f, "{number}"),
            Given::Bool(value) => write!(f, "{value}"),
            Given::Text(text) => write!(f, "{text:?}"),
            Given::Dims(dims) => match dims.as_slice() {
                [dim] => write!(f, "{dim}"),
                dims => write!(f, "{dims:?}"),
            },
        }
    }
}

impl PartialEq for Operator {
    fn eq(&self, other: &Operator) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_order() {
        assert!(ROWS.windows(2).all(|w| w[0].name < w[1].name));
    }

    #[test]
    fn every_form_spells_every_slot() {
        for row in ROWS {
            for form in row.forms {
                assert_eq!(form.args.len(), row.slots.len(), "{}", form.aten);
                let same = ROWS.iter().flat_map(|row| row.forms).filter(|other| other.aten == form.aten).count();
                assert_eq!(same, 1, "{} is two operators", form.aten);
            }
        }
    }
}
