//! The rule table: one row per operator, what layouts it accepts and which ones it gives.
//!
//! Rules are per axis. A replicated operand that meets a split one is read as a piece where that is free ([`sliceable`]).
//! Everything else is refused with the reason. An operator without a row is opaque: all operands replicated.

mod vocabulary;

use super::{Layout, OnAxis, Partial, Refusal, Replicated, Split, Typing, sections, view};
use crate::ir::ops::{self, Call, wrap};
use slapo_model::{Arg, Def, Graph, Node, Op, ValueId};

/// What a rule decides: a layout per result, and the replicated operands it reads as pieces.
#[derive(Default)]
pub struct Outcome {
    pub results: Vec<Layout>,
    pub slices: Vec<(ValueId, Layout)>,
    /// The bias of a partial product is added by the first part alone.
    pub biased_once: bool,
}

pub(super) type Verdict = Result<Outcome, Refusal>;

/// Applies the row of the node's operator; `sliceable` as [`sliceable`] gives it.
pub fn apply(graph: &Graph, node: &Node, typing: &Typing, sliceable: &[bool], on: OnAxis) -> Verdict {
    let rule = Rule { graph, node, typing, sliceable, on };
    if node.reads().any(|v| matches!(typing.of(v), Layout::Sections { .. })) {
        return rule.sectioned();
    }
    match &node.op {
        Op::StepSum => Ok(rule.all(Replicated)),
        Op::Collective { kind, .. } => rule.collective(*kind),
        Op::Part { dim, groups, .. } => rule.part(*dim, *groups),
        Op::Border { .. } => rule.linear(),
        Op::Sync { sync } => rule.sync(*sync),
        Op::Vjp { .. } => rule.opaque(),
        Op::Dropout { .. } => rule.linear(),
        Op::Aten(name) => match ROWS.binary_search_by_key(&name.as_str(), |row| row.0) {
            Ok(at) => (ROWS[at].1)(&rule),
            Err(_) => rule.opaque(),
        },
    }
}

type Row = (&'static str, fn(&Rule) -> Verdict);

/// In alphabetical order.
#[rustfmt::skip]
static ROWS: &[Row] = &[
    ("__and__.Tensor", |r| r.elementwise()),
    ("__or__.Tensor", |r| r.elementwise()),
    ("_log_softmax", |r| r.log_softmax()),
    ("_log_softmax_backward_data", |r| r.log_softmax_backward()),
    ("_scaled_dot_product_flash_attention_for_cpu", |r| r.attention()),
    ("_scaled_dot_product_flash_attention_for_cpu_backward", |r| r.attention()),
    ("_softmax", |r| r.keeps_dim_whole("self")),
    ("_softmax_backward_data", |r| r.backward_keeps_dim_whole("output")),
    ("abs", |r| r.elementwise()),
    ("add.Scalar", |r| r.elementwise()),
    ("add.Tensor", |r| r.sum()),
    ("addmm", |r| r.contraction("mat1", "mat2", Some("self"))),
    ("amax", |r| r.largest()),
    ("bitwise_not", |r| r.elementwise()),
    ("cat", |r| r.cat()),
    ("clamp", |r| r.elementwise()),
    ("clone", |r| r.linear()),
    ("cos", |r| r.elementwise()),
    ("div.Scalar", |r| r.linear()),
    ("div.Tensor", |r| r.quotient()),
    ("embedding", |r| r.embedding()),
    ("embedding_dense_backward", |r| r.embedding_backward()),
    ("eq.Scalar", |r| r.elementwise()),
    ("eq.Tensor", |r| r.elementwise()),
    ("erf", |r| r.elementwise()),
    ("exp", |r| r.elementwise()),
    ("expand", |r| r.expand()),
    ("full", |r| Ok(r.all(Replicated))),
    ("ge.Scalar", |r| r.elementwise()),
    ("ge.Tensor", |r| r.elementwise()),
    ("gelu", |r| r.elementwise()),
    ("gelu_backward", |r| r.linear_in("grad_output")),
    ("gt.Scalar", |r| r.elementwise()),
    ("gt.Tensor", |r| r.elementwise()),
    ("le.Scalar", |r| r.elementwise()),
    ("le.Tensor", |r| r.elementwise()),
    ("linear", |r| r.contraction("input", "weight", Some("bias"))),
    ("log", |r| r.elementwise()),
    ("logical_and", |r| r.elementwise()),
    ("logical_not", |r| r.elementwise()),
    ("logical_or", |r| r.elementwise()),
    ("lt.Scalar", |r| r.elementwise()),
    ("lt.Tensor", |r| r.elementwise()),
    ("masked_fill.Scalar", |r| r.elementwise()),
    ("matmul", |r| r.contraction("self", "other", None)),
    ("maximum", |r| r.elementwise()),
    ("mean", |r| r.reduction()),
    ("mean.dim", |r| r.reduction()),
    ("minimum", |r| r.elementwise()),
    ("mm", |r| r.contraction("self", "mat2", None)),
    ("mul.Scalar", |r| r.linear()),
    ("mul.Tensor", |r| r.product()),
    ("native_layer_norm", |r| r.layer_norm()),
    ("native_layer_norm_backward", |r| r.layer_norm_backward()),
    ("ne.Scalar", |r| r.elementwise()),
    ("ne.Tensor", |r| r.elementwise()),
    ("neg", |r| r.linear()),
    ("nll_loss_backward", |r| r.nll_loss_backward()),
    ("nll_loss_forward", |r| r.nll_loss()),
    ("pad", |r| r.pad()),
    ("permute", |r| r.permute()),
    ("pow.Tensor_Scalar", |r| r.elementwise()),
    ("reciprocal", |r| r.elementwise()),
    ("relu", |r| r.elementwise()),
    ("remainder.Scalar", |r| r.elementwise()),
    ("reshape", |r| r.view()),
    ("rsqrt", |r| r.elementwise()),
    ("rsub.Scalar", |r| r.elementwise()),
    ("sigmoid", |r| r.elementwise()),
    ("sigmoid_backward", |r| r.linear_in("grad_output")),
    ("silu", |r| r.elementwise()),
    ("silu_backward", |r| r.linear_in("grad_output")),
    ("sin", |r| r.elementwise()),
    ("slice.Tensor", |r| r.slice()),
    ("slice_backward", |r| r.slice_backward()),
    ("sqrt", |r| r.elementwise()),
    ("squeeze.dim", |r| r.view()),
    ("sub.Scalar", |r| r.elementwise()),
    ("sub.Tensor", |r| r.sum()),
    ("sum", |r| r.reduction()),
    ("sum.dim_IntList", |r| r.reduction()),
    ("tanh", |r| r.elementwise()),
    ("tanh_backward", |r| r.linear_in("grad_output")),
    ("threshold_backward", |r| r.linear_in("grad_output")),
    ("to.dtype", |r| r.cast()),
    ("transpose.int", |r| r.permute()),
    ("unsqueeze", |r| r.view()),
    ("where.Scalar", |r| r.elementwise()),
    ("where.ScalarOther", |r| r.elementwise()),
    ("where.self", |r| r.elementwise()),
];

pub(super) fn refuse(reason: impl Into<String>) -> Refusal {
    Refusal {
        node: 0,
        reason: reason.into(),
        operands: Vec::new(),
        legal: Vec::new(),
        origin: None,
        causes: Vec::new(),
    }
}

pub(super) struct Rule<'a> {
    pub(super) graph: &'a Graph,
    pub(super) node: &'a Node,
    pub(super) typing: &'a Typing,
    sliceable: &'a [bool],
    pub(super) on: OnAxis<'a>,
}

/// Whether the node takes a rank's rows of an input, of one axis after the other.
pub fn is_rows_of_input(graph: &Graph, node: &Node) -> bool {
    matches!(node.op, Op::Part { .. })
        && node.reads().all(|v| match graph.value(v).def {
            Def::Input(_) => true,
            Def::Node(id, _) => is_rows_of_input(graph, graph.node(id)),
            _ => false,
        })
}

/// By value: a replicated one may be read as a piece for nothing. It comes from an `expand`, or depends on no input of the
/// step, or carries no gradient.
pub fn sliceable(graph: &Graph) -> Vec<bool> {
    let n = graph.values.len();
    let (mut of_inputs, mut of_parameters, mut expanded) = (vec![false; n], vec![false; n], vec![false; n]);
    for (i, value) in graph.values.iter().enumerate() {
        of_inputs[i] = matches!(value.def, Def::Input(_));
        of_parameters[i] = matches!(value.def, Def::Parameter(_));
    }
    for node in &graph.nodes {
        let any = |of: &[bool]| node.reads().any(|v| of[v.0 as usize]);
        let (inputs, parameters) = (any(&of_inputs), any(&of_parameters));
        for out in node.outs.iter().flatten().map(|v| v.0 as usize) {
            of_inputs[out] = inputs;
            of_parameters[out] = parameters;
            // Heads that are repeated for grouped queries are viewed as heads behind the expansion.
            let passes = ["clone", "reshape", "transpose.int"].contains(&node.name());
            expanded[out] = node.is_aten("expand") || passes && any(&expanded);
        }
    }
    (0..n).map(|i| expanded[i] || !of_inputs[i] || !of_parameters[i]).collect()
}

impl Rule<'_> {
    pub(super) fn call(&self) -> Call<'_> {
        Call { graph: self.graph, node: self.node }
    }

    pub(super) fn layout(&self, name: &str) -> Layout {
        self.node.tensor(name).map_or(Replicated, |v| self.typing.of(v))
    }

    /// The argument that `v` is.
    fn name(&self, v: ValueId) -> &str {
        let reads = |arg: &Arg| match arg {
            Arg::Value(own) => *own == v,
            Arg::Values(all) => all.contains(&Some(v)),
            _ => false,
        };
        self.node.args.iter().find(|(_, arg)| reads(arg)).map_or("", |(name, _)| name)
    }

    pub(super) fn shape(&self, name: &str) -> &[i64] {
        self.node.tensor(name).map_or(&[], |v| &self.graph.ty(v).shape)
    }

    pub(super) fn out_shape(&self) -> &[i64] {
        self.node.outs.iter().flatten().next().map_or(&[], |v| &self.graph.ty(*v).shape)
    }

    pub(super) fn all(&self, layout: Layout) -> Outcome {
        Outcome { results: vec![layout; self.node.outs.len()], ..Outcome::default() }
    }

    fn results(&self, results: Vec<Layout>) -> Verdict {
        Ok(Outcome { results, ..Outcome::default() })
    }

    fn opaque(&self) -> Verdict {
        match self.node.reads().find(|v| self.typing.of(*v) != Replicated) {
            None => Ok(self.all(Replicated)),
            Some(v) => Err(refuse(format!(
                "`{}` has no layout rule, so its operands must be replicated, but `{}` is not",
                self.node.name(),
                self.name(v)
            ))),
        }
    }

    /// Refuses a split dimension that does not divide into equal pieces, where `what` needs them.
    pub(super) fn even(&self, shape: &[i64], dim: usize, groups: i64, what: &str) -> Result<(), Refusal> {
        let (size, parts) = (shape[dim], self.typing.parts);
        match size % groups.saturating_mul(parts) {
            0 => Ok(()),
            _ => Err(refuse(format!("{what} of dimension {dim} of size {size}, which {parts} parts hold unevenly"))),
        }
    }

    /// As [`Rule::even`], of the operand of that name.
    fn evenly(&self, name: &str, what: &str) -> Result<(), Refusal> {
        match self.layout(name) {
            Split { dim, groups } => self.even(self.shape(name), dim, groups, what),
            Replicated | Partial | Layout::Sections { .. } => Ok(()),
        }
    }

    /// A dimension of size 1 that is spread over `size` is no piece of it.
    fn not_spread(&self, v: ValueId, dim: usize, groups: i64, size: i64) -> Result<(), Refusal> {
        let shape = &self.graph.ty(v).shape;
        if shape[dim] == size { Ok(()) } else { self.even(shape, dim, groups, "it spreads pieces") }
    }

    /// Linear in its only tensor.
    pub(super) fn linear(&self) -> Verdict {
        Ok(self.all(self.layout("self")))
    }

    fn cast(&self) -> Verdict {
        let to_float = self.call().dtype("dtype").is_some_and(|d| d.is_float());
        let count = self.node.tensor("self").is_some_and(|v| !self.graph.ty(v).dtype.is_float());
        match self.layout("self") {
            // A count is a whole number whatever its type; a sum of rounded floats is not a rounded sum.
            Partial if !to_float && !count => Err(refuse("a partial sum cannot be cast to an integer")),
            layout => Ok(self.all(layout)),
        }
    }

    /// Elementwise, not linear: every operand replicated or split alike.
    fn elementwise(&self) -> Verdict {
        if let Some(v) = self.node.reads().find(|v| self.typing.of(*v) == Partial) {
            return Err(refuse(format!(
                "`{}` is not linear, but `{}` is a partial sum",
                self.node.name(),
                self.name(v)
            )));
        }
        let operands: Vec<ValueId> = self.node.reads().collect();
        self.aligned(&operands)
    }

    /// Operands broadcast against the result; the split ones must agree, replicated ones are sliced.
    fn aligned(&self, operands: &[ValueId]) -> Verdict {
        let rank = self.out_shape().len();
        let mut split: Option<(usize, i64)> = None;
        for v in operands {
            if let Split { dim, groups } = self.typing.of(*v) {
                let at = dim + rank - self.graph.ty(*v).shape.len();
                self.not_spread(*v, dim, groups, self.out_shape()[at])?;
                match split {
                    None => split = Some((at, groups)),
                    Some(other) if other == (at, groups) => {}
                    Some(_) => return Err(refuse("its operands are split differently")),
                }
            }
        }
        let Some((at, groups)) = split else { return Ok(self.all(Replicated)) };
        let mut outcome = self.all(Split { dim: at, groups });
        for v in operands.iter().filter(|v| self.typing.of(**v) == Replicated) {
            let shape = &self.graph.ty(*v).shape;
            let lead = rank - shape.len();
            if at >= lead && shape[at - lead] != 1 {
                outcome.slices.push(self.sliced(*v, Split { dim: at - lead, groups })?);
            }
        }
        Ok(outcome)
    }

    /// A free slice of a replicated value, if it is one.
    fn sliced(&self, v: ValueId, layout: Layout) -> Result<(ValueId, Layout), Refusal> {
        if self.sliceable[v.0 as usize] {
            return Ok((v, layout));
        }
        Err(refuse(format!(
            "a rank has all of `{}`, but would read a piece of it: split what it comes from, or sync it with `slice(…)`",
            self.name(v)
        )))
    }

    fn pair(&self) -> Vec<ValueId> {
        ["self", "other"].iter().filter_map(|n| self.node.tensor(n)).collect()
    }

    /// `a ± b`: all partial, or none.
    fn sum(&self) -> Verdict {
        let operands = self.pair();
        let partial = operands.iter().filter(|v| self.typing.of(**v) == Partial).count();
        match partial {
            0 => self.aligned(&operands),
            n if n == operands.len() => Ok(self.all(Partial)),
            _ => Err(refuse("it adds a partial sum to a value that is not partial")),
        }
    }

    /// Linear in each factor, so one may be partial if the other is replicated.
    fn product(&self) -> Verdict {
        match (self.layout("self"), self.layout("other")) {
            (Partial, Replicated) | (Replicated, Partial) => Ok(self.all(Partial)),
            (Partial, _) | (_, Partial) => Err(refuse("each part would multiply its summand by its own piece only")),
            _ => self.aligned(&self.pair()),
        }
    }

    fn quotient(&self) -> Verdict {
        match (self.layout("self"), self.layout("other")) {
            (Partial, Replicated) => Ok(self.all(Partial)),
            (Partial, _) | (_, Partial) => Err(refuse("it divides by, or into, partial sums")),
            _ => self.aligned(&self.pair()),
        }
    }

    /// Backward of an elementwise operator: linear in the gradient, not in what else it reads.
    fn linear_in(&self, gradient: &str) -> Verdict {
        if self.layout(gradient) == Partial {
            let others = self.node.reads().filter(|v| Some(*v) != self.node.tensor(gradient));
            return match others.into_iter().all(|v| self.typing.of(v) == Replicated) {
                true => Ok(self.all(Partial)),
                false => Err(refuse("the gradient is a partial sum, but the other operands are not replicated")),
            };
        }
        self.elementwise()
    }

    fn view(&self) -> Verdict {
        match self.layout("self") {
            Split { dim, groups } => {
                let (from, to) = (self.shape("self"), self.out_shape());
                match view::view(from, to, dim, groups, self.typing.parts) {
                    Ok(layout) => Ok(self.all(layout)),
                    Err(legal) => {
                        let reason = format!(
                            "viewing {from:?} as {to:?} would cut a dimension that is split over {} parts",
                            self.typing.parts
                        );
                        Err(Refusal { legal, ..refuse(reason) })
                    }
                }
            }
            layout => Ok(self.all(layout)),
        }
    }

    fn permute(&self) -> Verdict {
        let Split { dim, groups } = self.layout("self") else { return self.linear() };
        let (call, rank) = (self.call(), self.shape("self").len());
        let to = match (call.ints("dims"), call.int("dim0"), call.int("dim1")) {
            (Some(dims), ..) => dims.iter().position(|d| wrap(*d, rank) == dim),
            (_, Some(a), Some(b)) => {
                let (a, b) = (wrap(a, rank), wrap(b, rank));
                Some(if dim == a {
                    b
                } else if dim == b {
                    a
                } else {
                    dim
                })
            }
            _ => None,
        };
        let dim = to.ok_or_else(|| refuse("its dimensions are not known"))?;
        Ok(self.all(Split { dim, groups }))
    }

    fn expand(&self) -> Verdict {
        match self.layout("self") {
            Split { dim, groups } => {
                let at = dim + self.out_shape().len() - self.shape("self").len();
                if let Some(v) = self.node.tensor("self") {
                    self.not_spread(v, dim, groups, self.out_shape()[at])?;
                }
                Ok(self.all(Split { dim: at, groups }))
            }
            layout => Ok(self.all(layout)),
        }
    }

    /// Sums over a split dimension are partial; a mean is a sum times one over the global size.
    fn reduction(&self) -> Verdict {
        let Split { dim, groups } = self.layout("self") else { return self.linear() };
        let rank = self.shape("self").len();
        let dims: Vec<usize> = self.call().ints("dim").unwrap_or_default().iter().map(|d| wrap(*d, rank)).collect();
        if dims.is_empty() || dims.contains(&dim) {
            if self.node.name().starts_with("mean") {
                return Err(refuse("a mean over a split dimension divides by the size of the part"));
            }
            return Ok(self.all(Partial));
        }
        let gone = if self.call().flag("keepdim") { 0 } else { dims.iter().filter(|d| **d < dim).count() };
        Ok(self.all(Split { dim: dim - gone, groups }))
    }

    fn largest(&self) -> Verdict {
        match (self.layout("self"), self.reduction()?) {
            (Partial, _) => Err(refuse("the largest of partial sums is not that of the sums")),
            (_, outcome) if outcome.results.contains(&Partial) => Err(refuse("it looks along a split dimension")),
            (_, outcome) => Ok(outcome),
        }
    }

    fn slice(&self) -> Verdict {
        let Split { dim, groups } = self.layout("self") else { return self.linear() };
        if self.call().dim("dim").unwrap_or(0) != dim {
            return self.linear();
        }
        let Some((_, range)) = ops::slice_range(&self.call()) else {
            return Err(refuse("it takes every other element of the split dimension"));
        };
        self.evenly("self", "it cuts a slice")?;
        let size = self.shape("self")[dim];
        let unit = size / groups;
        if range.start % unit != 0 || range.end % unit != 0 {
            return Err(refuse(format!(
                "it takes elements {} to {} of the {size} along dimension {dim}, of which the ranks do not hold equal shares",
                range.start, range.end
            )));
        }
        Ok(self.all(Split { dim, groups: (range.end - range.start) / unit }))
    }

    fn slice_backward(&self) -> Verdict {
        let (call, layout) = (self.call(), self.layout("grad_output"));
        let Split { dim, groups } = layout else { return Ok(self.all(layout)) };
        let along = call.int("dim").map(|d| wrap(d, self.shape("grad_output").len()));
        if along != Some(dim) {
            return Ok(self.all(layout));
        }
        self.evenly("grad_output", "it places pieces")?;
        let unit = self.shape("grad_output")[dim] / groups;
        let (start, size) = (call.int("start").unwrap_or(0), self.out_shape()[dim]);
        if size % unit != 0 || start % unit != 0 {
            return Err(refuse("the slice does not begin and end on the borders of the parts"));
        }
        Ok(self.all(Split { dim, groups: size / unit }))
    }

    /// Along a whole dimension the parts are held alike, replicated ones sliced; along the split one their pieces follow
    /// each other, which must be of one size.
    fn cat(&self) -> Verdict {
        let Some(Arg::Values(parts)) = self.node.arg("tensors") else { return self.opaque() };
        let parts: Vec<ValueId> = parts.iter().flatten().copied().collect();
        let along = wrap(self.call().int("dim").unwrap_or(0), self.out_shape().len());
        let layouts: Vec<Layout> = parts.iter().map(|v| self.typing.of(*v)).collect();
        let split = layouts.iter().copied().find(|l| matches!(l, Split { .. }));
        match (split, layouts.iter().all(|l| *l == Partial), layouts.contains(&Partial)) {
            (None, true, _) => Ok(self.all(Partial)),
            (None, _, false) => Ok(self.all(Replicated)),
            (Some(split @ Split { dim, .. }), _, false) if dim != along => {
                let mut outcome = self.all(split);
                for (v, layout) in parts.iter().zip(&layouts).filter(|(_, layout)| **layout != split) {
                    match layout {
                        Replicated => outcome.slices.push(self.sliced(*v, split)?),
                        _ => return Err(refuse("it joins tensors that are split differently")),
                    }
                }
                Ok(outcome)
            }
            (Some(_), _, false) => self.joined(&parts, &layouts, along),
            _ => Err(refuse("it joins a partial sum with a value that is not partial")),
        }
    }

    /// Pieces of one size are groups of the whole, others its sections.
    fn joined(&self, parts: &[ValueId], layouts: &[Layout], along: usize) -> Verdict {
        let mut units = Vec::new();
        for (v, layout) in parts.iter().zip(layouts) {
            match layout {
                Split { dim, groups } if *dim == along => {
                    self.even(&self.graph.ty(*v).shape, *dim, *groups, "it joins pieces")?;
                    let unit = self.graph.ty(*v).shape[*dim] / groups;
                    units.extend(std::iter::repeat_n(unit, *groups as usize));
                }
                Split { .. } => return Err(refuse("it joins tensors that are split along different dimensions")),
                _ => return Err(refuse("it joins split and unsplit tensors along the split dimension")),
            }
        }
        sections::from_lengths(along, &units)
            .map(|layout| self.all(layout))
            .ok_or_else(|| refuse("it joins more pieces of different sizes than one dimension can have sections"))
    }

    fn pad(&self) -> Verdict {
        let layout = self.layout("self");
        let rank = self.shape("self").len();
        let padded = self.call().ints("pad").unwrap_or_default().len() / 2;
        match layout {
            Split { dim, .. } if dim + padded >= rank => Err(refuse("it pads the split dimension")),
            Partial => Err(refuse("it pads a partial sum")),
            layout => Ok(self.all(layout)),
        }
    }

    /// `a · b (+ bias)` over one contracted letter; operands may have leading batch dimensions.
    fn contraction(&self, a: &str, b: &str, bias: Option<&str>) -> Verdict {
        let letters = self.letters(a, b);
        let (left, right) = (self.layout(a), self.layout(b));
        let bias = bias.and_then(|n| self.node.tensor(n));
        let bias_layout = bias.map(|v| self.typing.of(v));
        let letter = |layout: Layout, names: &[char]| match layout {
            Split { dim, groups } => Some((names[dim], groups)),
            _ => None,
        };
        let (l, r) = (letter(left, &letters.a), letter(right, &letters.b));
        for (name, split, names) in [(a, l, &letters.a), (b, r, &letters.b)] {
            let at = |names: &[char]| split.and_then(|(letter, _)| names.iter().position(|c| *c == letter));
            if let (Some(v), Some((_, groups)), Some(own), Some(out)) =
                (self.node.tensor(name), split, at(names), at(&letters.out))
            {
                self.not_spread(v, own, groups, self.out_shape()[out])?;
            }
        }
        let result = match (left, right) {
            (Partial, Replicated) | (Replicated, Partial) => Partial,
            (Partial, _) | (_, Partial) => {
                return Err(refuse("each part would multiply its summand by its own piece only"));
            }
            _ => match (l, r) {
                (None, None) => Replicated,
                (Some(l), Some(r)) if l == r => letters.result(l),
                (Some(l), Some(r)) if l.0 == r.0 => {
                    return Err(refuse(format!(
                        "both operands are split along {}, but in different groups",
                        part(l.0)
                    )));
                }
                (Some(l), Some(r)) => {
                    return Err(refuse(format!("`{a}` is split along {}, `{b}` along {}", part(l.0), part(r.0))));
                }
                (Some(split), None) | (None, Some(split)) => {
                    let (other, names) = if l.is_some() { (b, &letters.b) } else { (a, &letters.a) };
                    let at = names.iter().position(|c| *c == split.0);
                    return self.half_split(other, at, split, &letters, bias);
                }
            },
        };
        match (result, bias_layout) {
            (_, None) | (Replicated | Split { .. }, Some(Replicated)) => Ok(self.all(result)),
            (Partial, Some(Replicated)) => Ok(Outcome { biased_once: true, ..self.all(Partial) }),
            (_, Some(_)) => Err(refuse("its bias is not held as its product is")),
        }
    }

    /// One operand is split, the other replicated: the letter must be the first's own, or the other is sliced.
    fn half_split(
        &self,
        other: &str,
        at: Option<usize>,
        split: (char, i64),
        letters: &Letters,
        bias: Option<ValueId>,
    ) -> Verdict {
        let mut outcome = self.all(letters.result(split));
        if let (Some(dim), Some(v)) = (at, self.node.tensor(other))
            && (split.0 == CONTRACTED || self.graph.ty(v).shape[dim] != 1)
        {
            outcome.slices.push(self.sliced(v, Split { dim, groups: split.1 })?);
        }
        let last = self.out_shape().len() - 1;
        match (outcome.results.first().copied(), bias.map(|v| self.typing.of(v))) {
            (_, None) => Ok(outcome),
            (Some(Split { dim, .. }), Some(Replicated)) if dim < last => Ok(outcome),
            (Some(Split { dim, groups }), Some(Split { dim: 0, groups: own })) if dim == last && own == groups => {
                Ok(outcome)
            }
            (Some(Partial), Some(Replicated)) => Ok(Outcome { biased_once: true, ..outcome }),
            (Some(Split { .. }), Some(Replicated)) => {
                Err(refuse("its product is split along its features, but its bias is replicated: shard the bias too"))
            }
            (_, Some(_)) => Err(refuse("its bias is not held as its product is")),
        }
    }

    pub(super) fn letters(&self, a: &str, b: &str) -> Letters {
        let (ra, rb) = (self.shape(a).len(), self.shape(b).len());
        if self.node.is_aten("linear") {
            // x [batch…, in] · w [out, in]
            let mut left: Vec<char> = ('a'..).take(ra - 1).collect();
            let mut out = left.clone();
            left.push(CONTRACTED);
            out.push('z');
            return Letters { a: left, b: vec!['z', CONTRACTED], out };
        }
        let batch: Vec<char> = ('a'..).take(ra.max(rb) - 2).collect();
        let with = |rank: usize, last: [char; 2]| [&batch[batch.len() - (rank - 2)..], &last].concat();
        Letters {
            a: with(ra, ['m', CONTRACTED]),
            b: with(rb, [CONTRACTED, 'z']),
            out: [&batch[..], &['m', 'z']].concat(),
        }
    }

    /// The first normalised dimension.
    fn normalized_from(&self) -> usize {
        self.shape("input").len() - self.call().ints("normalized_shape").unwrap_or_default().len()
    }

    fn layer_norm(&self) -> Verdict {
        if self.layout("weight") != Replicated || self.layout("bias") != Replicated {
            return Err(refuse("its weight and bias must be replicated"));
        }
        match self.layout("input") {
            Partial => Err(refuse("its input is a partial sum")),
            Split { dim, .. } if dim >= self.normalized_from() => Err(refuse("it normalises a split dimension")),
            layout => Ok(self.all(layout)),
        }
    }

    fn layer_norm_backward(&self) -> Verdict {
        let (g, x) = (self.layout("grad_out"), self.layout("input"));
        if self.layout("weight") != Replicated || self.layout("bias") != Replicated {
            return Err(refuse("its weight and bias must be replicated"));
        }
        if self.layout("mean") != x || self.layout("rstd") != x {
            return Err(refuse("its statistics are held otherwise than its input"));
        }
        match (g, x) {
            (Split { dim, .. }, _) | (_, Split { dim, .. }) if dim >= self.normalized_from() => {
                Err(refuse("it normalises a split dimension"))
            }
            (Replicated, Replicated) => Ok(self.all(Replicated)),
            (Partial, Replicated) => Ok(self.all(Partial)),
            (Split { .. }, _) if g == x => self.results(vec![g, Partial, Partial]),
            _ => Err(refuse("the gradient and the input are held differently")),
        }
    }

    /// Queries, keys, values (and the gradient) split alike along batch or heads; the mask sliced, and keys and values that
    /// are the same for several heads.
    fn attention(&self) -> Verdict {
        let names = ["query", "key", "value", "grad_out", "out", "logsumexp"];
        let tensors: Vec<ValueId> = names.iter().filter_map(|n| self.node.tensor(n)).collect();
        let first = self.layout("query");
        let mut outcome = self.all(first);
        for v in tensors.iter().filter(|v| self.typing.of(**v) != first) {
            match (first, self.typing.of(*v)) {
                (Split { dim, .. }, Replicated)
                    if self.sliceable[v.0 as usize]
                        && self.graph.ty(*v).shape.get(dim) == self.shape("query").get(dim) =>
                {
                    outcome.slices.push((*v, first));
                }
                _ => return Err(refuse("its queries, keys and values are held differently")),
            }
        }
        match first {
            Replicated => match self.layout("attn_mask") {
                Replicated => Ok(outcome),
                _ => Err(refuse("its mask is split, its queries are not")),
            },
            Split { dim, groups } if dim <= 1 => {
                self.evenly("query", "it attends with pieces")?;
                self.evenly("key", "it attends with pieces")?;
                self.evenly("attn_mask", "it masks with pieces")?;
                if let Some(mask) = self.node.tensor("attn_mask") {
                    let shape = &self.graph.ty(mask).shape;
                    let at = (dim + shape.len()).checked_sub(4);
                    match (self.typing.of(mask), at) {
                        (Split { dim: d, groups: g }, Some(at)) if d == at && g == groups => {}
                        (Replicated, Some(at)) if shape[at] != 1 => {
                            outcome.slices.push(self.sliced(mask, Split { dim: at, groups })?);
                        }
                        (Replicated, _) => {}
                        _ => return Err(refuse("its mask is split otherwise than its queries")),
                    }
                }
                Ok(outcome)
            }
            _ => Err(refuse("attention can be split along batch and heads only")),
        }
    }
}

/// What an index letter of a contraction stands for.
fn part(letter: char) -> &'static str {
    match letter {
        CONTRACTED => "the features that are summed over",
        'z' => "the features of the result",
        _ => "the rows",
    }
}
/// The letter that is summed over.
const CONTRACTED: char = 'k';

/// Index letters of a contraction.
pub(super) struct Letters {
    pub(super) a: Vec<char>,
    pub(super) b: Vec<char>,
    pub(super) out: Vec<char>,
}

impl Letters {
    /// The result's layout when both operands are split (or sliced) along one letter.
    fn result(&self, (letter, groups): (char, i64)) -> Layout {
        match self.out.iter().position(|c| *c == letter) {
            Some(dim) => Split { dim, groups },
            None => Partial,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ROWS;

    #[test]
    fn rows_stand_in_order() {
        assert!(ROWS.windows(2).all(|w| w[0].0 < w[1].0));
    }
}
