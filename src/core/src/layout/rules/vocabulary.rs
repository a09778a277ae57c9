//! Rules of what runs over a vocabulary: embeddings, softmax and the loss.
//!
//! A table split by rows, or logits split by classes, leave a rank with the entries that are its own, in one group; what
//! the ranks then tell each other is part of the operator ([`crate::layout::partition`]). Only ranks can: micro-batches
//! of one rank do not run at the same time.

use super::{Outcome, Rule, Verdict, refuse};
use crate::ir::{TABLE, ops::wrap};
use crate::layout::{Layout, Partial, Refusal, Replicated, Split};

impl Rule<'_> {
    /// Of split rows each rank looks up its own ids; the others' are zero there.
    pub(super) fn embedding(&self) -> Verdict {
        match (self.layout("weight"), self.layout("indices")) {
            (Replicated, ids @ (Replicated | Split { .. })) => Ok(self.all(ids)),
            (Split { dim: 0, groups }, Replicated) => self.vocabulary(groups, Partial),
            (Split { dim: 1, groups }, Replicated) => Ok(self.all(Split { dim: self.out_shape().len() - 1, groups })),
            _ => Err(refuse("the table and the indices are both split, or one is partial")),
        }
    }

    /// The gradient is held as the table where that is split by rows: every rank sees all ids and keeps its own.
    pub(super) fn embedding_backward(&self) -> Verdict {
        let last = self.shape("grad_output").len() - 1;
        let (g, ids) = (self.layout("grad_output"), self.layout("indices"));
        let of_tokens = matches!(ids, Split { .. }) || matches!(g, Split { dim, .. } if dim < last);
        let by_rows = matches!(self.layout(TABLE), Split { dim: 0, .. });
        if self.call().flag("scale_grad_by_freq") && (of_tokens || by_rows) {
            return Err(refuse("it scales by how often an id occurs, of which a part sees only some"));
        }
        if let Split { dim: 0, groups } = self.layout(TABLE) {
            return match (g, ids) {
                (Replicated, Replicated) => self.vocabulary(groups, Split { dim: 0, groups }),
                (Partial, _) => Err(refuse("each part would keep its summand of its own rows only")),
                _ => Err(refuse("the table's rows are split, and so are the gradient or the indices")),
            };
        }
        match (g, ids) {
            (Split { dim, .. }, ids) if dim < last => {
                let mut outcome = self.all(Partial);
                if ids == Replicated {
                    let v = self.node.tensor("indices").ok_or_else(|| refuse("it has no indices"))?;
                    outcome.slices.push(self.sliced(v, g)?);
                } else if ids != g {
                    return Err(refuse("the gradient and the indices are split differently"));
                }
                Ok(outcome)
            }
            (Split { groups, .. }, Replicated) => Ok(self.all(Split { dim: 1, groups })),
            (Replicated | Partial, Replicated) => Ok(self.all(g)),
            (Replicated, ids @ Split { .. }) => {
                let v = self.node.tensor("grad_output").ok_or_else(|| refuse("it has no gradient"))?;
                let mut outcome = self.all(Partial);
                outcome.slices.push(self.sliced(v, ids)?);
                Ok(outcome)
            }
            _ => Err(refuse("the gradient and the indices are held differently")),
        }
    }

    /// Along a split dimension the ranks find the largest and the sum together.
    pub(super) fn log_softmax(&self) -> Verdict {
        match self.layout("self") {
            held @ Split { dim, groups } if Some(dim) == self.softmax_dim("self") => self.vocabulary(groups, held),
            _ => self.keeps_dim_whole("self"),
        }
    }

    pub(super) fn log_softmax_backward(&self) -> Verdict {
        match (self.layout("grad_output"), self.layout("output")) {
            (held @ Split { dim, groups }, output) if held == output && Some(dim) == self.softmax_dim("output") => {
                self.vocabulary(groups, held)
            }
            _ => self.backward_keeps_dim_whole("output"),
        }
    }

    pub(super) fn keeps_dim_whole(&self, of: &str) -> Verdict {
        match self.layout(of) {
            Partial => Err(refuse("softmax is not linear, but its input is a partial sum")),
            Split { dim, .. } if Some(dim) == self.softmax_dim(of) => {
                Err(refuse("softmax runs over a split dimension"))
            }
            layout => Ok(self.all(layout)),
        }
    }

    pub(super) fn backward_keeps_dim_whole(&self, output: &str) -> Verdict {
        let dim = self.softmax_dim(output);
        let split = |l: Layout| matches!(l, Split { dim: d, .. } if Some(d) == dim);
        if split(self.layout("grad_output")) || split(self.layout(output)) {
            return Err(refuse("softmax runs over a split dimension"));
        }
        self.linear_in("grad_output")
    }

    fn softmax_dim(&self, of: &str) -> Option<usize> {
        self.call().int("dim").map(|dim| wrap(dim, self.shape(of).len()))
    }

    /// The sum of token losses: tokens split give a partial sum; of split classes each rank picks the targets that are its
    /// own, and the ranks add up.
    pub(super) fn nll_loss(&self) -> Verdict {
        match (self.layout("self"), self.layout("target")) {
            (Replicated, Replicated) => Ok(self.all(Replicated)),
            (a @ Split { dim: 0, .. }, _) => self.with_targets(a, Partial),
            (Split { dim: 1, groups }, Replicated) => self.classes(groups, Replicated),
            (Split { dim: 1, .. }, _) => Err(refuse("its classes are split, and so are its targets")),
            _ => Err(refuse("its logits and targets must be split alike along the tokens")),
        }
    }

    pub(super) fn nll_loss_backward(&self) -> Verdict {
        match (self.layout("grad_output"), self.layout("self"), self.layout("target")) {
            (g @ (Replicated | Partial), Replicated, Replicated) => Ok(self.all(g)),
            (Replicated, a @ Split { dim: 0, .. }, _) => self.with_targets(a, a),
            (Replicated, a @ Split { dim: 1, groups }, Replicated) => self.classes(groups, a),
            (_, Split { dim: 1, .. }, _) => {
                Err(refuse("its classes are split, and its gradient and targets must be whole"))
            }
            _ => Err(refuse("its gradient, logits and targets are held differently")),
        }
    }

    /// Targets of tokens held as `tokens`: replicated ones are sliced, they carry no gradient.
    fn with_targets(&self, tokens: Layout, result: Layout) -> Verdict {
        let mut outcome = self.all(result);
        match (self.layout("target"), self.node.tensor("target")) {
            (target, _) if target == tokens => {}
            (Replicated, Some(target)) => outcome.slices.push(self.sliced(target, tokens)?),
            _ => return Err(refuse("its logits and targets are split differently")),
        }
        Ok(outcome)
    }

    fn classes(&self, groups: i64, result: Layout) -> Verdict {
        let (call, sum) = (self.call(), 2);
        match (self.node.tensor("weight"), call.int("reduction"), call.int("ignore_index")) {
            (None, Some(reduction), Some(_)) if reduction == sum => self.vocabulary(groups, result),
            _ => Err(refuse("its classes are split, where it must be a sum over targets of equal weights")),
        }
    }

    /// A vocabulary that the ranks of this axis share, one stretch of it each.
    fn vocabulary(&self, groups: i64, result: Layout) -> Result<Outcome, Refusal> {
        match (self.on.axis, groups) {
            (None, _) => Err(refuse("micro-batches cannot share a vocabulary")),
            (_, 1) => Ok(self.all(result)),
            _ => Err(refuse(format!(
                "a rank must have one stretch of the vocabulary, which is split in {groups} groups, or over several axes"
            ))),
        }
    }
}
