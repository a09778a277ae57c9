//! Rules for values in sections that are not of one size: queries, keys and values of one fused weight.
//!
//! Few operators meet such a value: the layer itself and its backward, and the slices that take it apart. They have a rule
//! here, each as its row of the table has it for groups; every other operator refuses it.

use super::rules::{Outcome, Rule, Verdict, refuse};
use super::{Layout, Partial, Replicated, Split, view};
use crate::ir::ops::{self, wrap};
use slapo_model::{Op, ValueId};
use slapo_program::Sections;

/// Operators that act element by element, on one tensor or on several of one shape.
const ELEMENTWISE: &[&str] = &[
    "add.Tensor",
    "clone",
    "div.Scalar",
    "gelu",
    "gelu_backward",
    "mul.Scalar",
    "mul.Tensor",
    "neg",
    "relu",
    "sigmoid",
    "sigmoid_backward",
    "silu",
    "silu_backward",
    "sub.Tensor",
    "tanh",
    "tanh_backward",
    "threshold_backward",
    "to.dtype",
];

/// The layout whose pieces come of sections of these lengths: groups where all are equal. `None` where they are too many.
pub fn from_lengths(dim: usize, lengths: &[i64]) -> Option<Layout> {
    match lengths.windows(2).all(|pair| pair[0] == pair[1]) {
        true => Some(Split { dim, groups: lengths.len() as i64 }),
        false => Sections::new(lengths.iter().copied()).map(|sections| Layout::Sections { dim, sections }),
    }
}

impl Rule<'_> {
    /// Whatever reads a value in sections.
    pub(super) fn sectioned(&self) -> Verdict {
        match &self.node.op {
            Op::Border { .. } => self.linear(),
            Op::Sync { sync } if !self.on.is_over(*sync) => self.linear(),
            // Of other axes, which split other dimensions.
            Op::Collective { .. } | Op::Part { .. } if self.keeps_sections() => self.linear(),
            Op::Sync { .. } => Err(refuse("no collective puts sections of different sizes together")),
            Op::Aten(name) => match name.as_str() {
                "linear" => self.sectioned_product("input", "weight", Some("bias")),
                "addmm" => self.sectioned_product("mat1", "mat2", Some("self")),
                "mm" => self.sectioned_product("self", "mat2", None),
                "matmul" => self.sectioned_product("self", "other", None),
                "reshape" => self.sectioned_view(),
                "transpose.int" => self.sectioned_transpose(),
                "slice.Tensor" => self.section(),
                "sum.dim_IntList" => self.sectioned_sum(),
                name if ELEMENTWISE.contains(&name) => self.sectioned_elements(),
                _ => self.no_sections(),
            },
            _ => self.no_sections(),
        }
    }

    fn keeps_sections(&self) -> bool {
        let dim = self.layout("self").split_dim();
        dim.is_some_and(|dim| self.shape("self").get(dim) == self.out_shape().get(dim))
    }

    fn no_sections(&self) -> Verdict {
        Err(refuse(format!("`{}` does not take sections of different sizes", self.node.name())))
    }

    /// All tensors in the same sections, but for what is broadcast along them.
    fn sectioned_elements(&self) -> Verdict {
        let rank = self.out_shape().len();
        let aligned = |v: ValueId| match self.typing.of(v) {
            Layout::Sections { dim, sections } => Some((dim + rank - self.graph.ty(v).shape.len(), sections)),
            _ => None,
        };
        let Some((at, sections)) = self.node.reads().find_map(aligned) else { return self.no_sections() };
        for v in self.node.reads() {
            let shape = &self.graph.ty(v).shape;
            let is_broadcast = (at + shape.len()).checked_sub(rank).is_none_or(|own| shape[own] == 1);
            match self.typing.of(v) {
                Layout::Sections { .. } if aligned(v) == Some((at, sections)) => {}
                Replicated if is_broadcast => {}
                _ => return Err(refuse("its operands are split differently")),
            }
        }
        Ok(self.all(Layout::Sections { dim: at, sections }))
    }

    /// A contraction in which one letter is in sections, on the operands that have it.
    fn sectioned_product(&self, a: &str, b: &str, bias: Option<&str>) -> Verdict {
        let letters = self.letters(a, b);
        let split = |name: &str, names: &[char]| match self.layout(name) {
            Layout::Sections { dim, sections } => Ok(Some((names[dim], sections))),
            Replicated => Ok(None),
            _ => Err(refuse("its operands are split differently")),
        };
        let (left, right) = (split(a, &letters.a)?, split(b, &letters.b)?);
        let Some((letter, sections)) = left.or(right) else { return self.no_sections() };
        let lacks = |split: Option<(char, Sections)>, names: &[char]| match split {
            Some(other) => other != (letter, sections),
            None => names.contains(&letter),
        };
        if lacks(left, &letters.a) || lacks(right, &letters.b) {
            return Err(refuse("its operands are split differently"));
        }
        let last = self.out_shape().len() - 1;
        let result = match letters.out.iter().position(|other| *other == letter) {
            Some(dim) => Layout::Sections { dim, sections },
            None => Partial,
        };
        match (result, bias.and_then(|name| self.node.tensor(name)).map(|v| self.typing.of(v))) {
            (_, None) => Ok(self.all(result)),
            (Partial, Some(Replicated)) => Ok(Outcome { biased_once: true, ..self.all(Partial) }),
            (Layout::Sections { dim, .. }, Some(Layout::Sections { dim: 0, sections: own }))
                if dim == last && own == sections =>
            {
                Ok(self.all(result))
            }
            (Layout::Sections { dim, .. }, Some(Replicated)) if dim < last => Ok(self.all(result)),
            (_, Some(bias)) => Err(refuse(format!("its bias is {bias}, which its product is not"))),
        }
    }

    /// A dimension in sections must stay one dimension.
    fn sectioned_view(&self) -> Verdict {
        let Layout::Sections { dim, sections } = self.layout("self") else { return self.no_sections() };
        match view::kept(self.shape("self"), self.out_shape(), dim) {
            Some(dim) => Ok(self.all(Layout::Sections { dim, sections })),
            None => Err(refuse("viewing a dimension in sections of different sizes as others would cut them")),
        }
    }

    fn sectioned_transpose(&self) -> Verdict {
        let rank = self.shape("self").len();
        let (Layout::Sections { dim, sections }, Some(a), Some(b)) =
            (self.layout("self"), self.call().int("dim0"), self.call().int("dim1"))
        else {
            return self.no_sections();
        };
        let dim = match (wrap(a, rank), wrap(b, rank)) {
            (a, b) if a == dim => b,
            (a, b) if b == dim => a,
            _ => dim,
        };
        Ok(self.all(Layout::Sections { dim, sections }))
    }

    /// A slice of another dimension, or of one section or several.
    fn section(&self) -> Verdict {
        let Layout::Sections { dim, sections } = self.layout("self") else { return self.no_sections() };
        if self.call().dim("dim").unwrap_or(0) != dim {
            return self.linear();
        }
        let size = self.shape("self")[dim];
        let (Some((_, range)), Some(lengths)) = (ops::slice_range(&self.call()), sections.lengths(size)) else {
            return Err(refuse("it takes every other element of the split dimension"));
        };
        let mut inside = Vec::new();
        let mut start = 0;
        for length in lengths {
            if start >= range.start && start + length <= range.end {
                inside.push(length);
            } else if start < range.end && start + length > range.start {
                return Err(refuse(format!(
                    "it takes [{}, {}) of dimension {dim}, which cuts a section of {length}",
                    range.start, range.end
                )));
            }
            start += length;
        }
        let kept = from_lengths(dim, &inside).filter(|_| !inside.is_empty());
        kept.map(|layout| self.all(layout)).ok_or_else(|| refuse("it takes nothing of the split dimension"))
    }

    fn sectioned_sum(&self) -> Verdict {
        let Layout::Sections { dim, sections } = self.layout("self") else { return self.no_sections() };
        let rank = self.shape("self").len();
        let dims: Vec<usize> = self.call().ints("dim").unwrap_or_default().iter().map(|d| wrap(*d, rank)).collect();
        if dims.is_empty() || dims.contains(&dim) {
            return Ok(self.all(Partial));
        }
        let gone = if self.call().flag("keepdim") { 0 } else { dims.iter().filter(|d| **d < dim).count() };
        Ok(self.all(Layout::Sections { dim: dim - gone, sections }))
    }
}
