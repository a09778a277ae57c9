//! The ranks of one axis, or of the whole mesh, as one of them sees them: collectives between processes.
//!
//! All but the sum are made of exchanges between pairs, whose results do not depend on timing. Lengths along a dimension
//! may differ between ranks. Knows nothing of programs; read [`Line::collective`] first.

use crate::collectives::{gather, largest, piece, sum};
use crate::error::{Error, Result};
use crate::gloo::{Group, Lost, Store};
use crate::libtorch;
use slapo_program::Collective;
use std::time::Duration;
use tch::{Device, Kind, TchError, Tensor};

pub struct Line {
    /// As messages call it, such as "axis `tp`".
    name: String,
    group: Group,
    /// The mesh's ranks that it connects, in the order of the group.
    ranks: Vec<usize>,
    timeout: Duration,
}

impl Line {
    /// Connects rank `rank` of the mesh with the other `ranks`, who do the same under this `key`. `address` is one of this
    /// machine that they reach.
    pub fn connect(
        store: &Store,
        key: &str,
        name: String,
        ranks: Vec<usize>,
        rank: usize,
        address: &str,
    ) -> Result<Line> {
        let at = ranks.iter().position(|r| *r == rank).unwrap_or_default();
        let timeout = store.timeout();
        match Group::connect(store, key, at, ranks.len(), address) {
            Ok(group) => Ok(Line { name, group, ranks, timeout }),
            Err(lost) => Err(lost_in("connecting", &name, &ranks, at, timeout, &lost)),
        }
    }

    /// How many ranks it connects.
    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// Where among them this one is.
    pub fn rank(&self) -> usize {
        self.group.rank()
    }

    /// This rank's result of a collective, of shape `result`. Sums are taken in rank order where `in_order`.
    pub fn collective(&self, kind: Collective, own: &Tensor, result: &[i64], in_order: bool) -> Result<Tensor> {
        let what = kind.name();
        let parts = self.size() as i64;
        let pieces = |dim, groups| {
            let pieces = (0..parts).map(|at| piece(own, dim, groups, parts, at));
            pieces.collect::<std::result::Result<Vec<Tensor>, String>>()
        };
        let got = match kind {
            Collective::AllReduce if !in_order && gloo_sums(own.kind()) => {
                let total = libtorch::dense_copy(own).map_err(Error::run)?;
                self.group.sum(&total).map_err(|lost| self.lost(what, &lost))?;
                Ok(total)
            }
            Collective::AllReduce => sum(&self.everyones(what, own)?),
            // Gloo's own does not keep what is not a number.
            Collective::AllReduceMax => largest(&self.everyones(what, own)?),
            Collective::AllGather { dim, groups } => {
                let lengths = self.lengths(what, own, dim, result)?;
                let all = self.exchanged(what, self.to_all(own), |rank| with_length(own.size(), dim, lengths[rank]))?;
                gather(&all, dim, groups)
            }
            Collective::ReduceScatter { dim, groups } => {
                let sent = pieces(dim, groups).map_err(Error::run)?;
                let like = sent[self.rank()].size();
                sum(&self.exchanged(what, sent, |_| like.clone())?)
            }
            Collective::AllToAll { from, to, .. } if from == to => {
                Err(format!("all_to_all gathers and splits the same dimension {from}"))
            }
            Collective::AllToAll { from, groups, to } => {
                let sent = pieces(to, 1).map_err(Error::run)?;
                let lengths = self.lengths(what, own, from, result)?;
                let like = sent[self.rank()].size();
                let all = self.exchanged(what, sent, |rank| with_length(like.clone(), from, lengths[rank]))?;
                gather(&all, from, groups)
            }
        };
        got.map_err(Error::run)
    }

    /// Every rank's words; all bring equally many. `what` is what it is for.
    pub fn words(&self, what: &str, own: &[i64]) -> Result<Vec<Vec<i64>>> {
        let all = self.everyones(what, &Tensor::from_slice(own))?;
        all.iter().map(|words| Vec::try_from(words).map_err(failed)).collect()
    }

    /// Sends `sent[i]` to the i-th rank; what comes from each, of the shape that `shape` says. The own stays.
    pub fn exchanged(&self, what: &str, sent: Vec<Tensor>, shape: impl Fn(usize) -> Vec<i64>) -> Result<Vec<Tensor>> {
        let own = self.rank();
        let sent: Vec<Tensor> = sent.iter().map(|t| t.f_contiguous().map_err(failed)).collect::<Result<_>>()?;
        let options = (sent[own].kind(), Device::Cpu);
        let place = |rank: usize| match rank == own {
            true => Ok(sent[own].shallow_clone()),
            false => Tensor::f_empty(shape(rank), options).map_err(failed),
        };
        let received: Vec<Tensor> = (0..self.size()).map(place).collect::<Result<_>>()?;
        self.group.exchange(&sent, &received).map_err(|lost| self.lost(what, &lost))?;
        Ok(received)
    }

    /// A failure to communicate, in words.
    pub fn lost(&self, what: &str, lost: &Lost) -> Error {
        lost_in(what, &self.name, &self.ranks, self.rank(), self.timeout, lost)
    }

    /// Every rank's tensor, all of one type.
    fn everyones(&self, what: &str, own: &Tensor) -> Result<Vec<Tensor>> {
        self.exchanged(what, self.to_all(own), |_| own.size())
    }

    fn to_all(&self, own: &Tensor) -> Vec<Tensor> {
        self.ranks.iter().map(|_| own.shallow_clone()).collect()
    }

    /// How long every rank's tensor is along `dim`, where together they are as long as the result. Where they are equally
    /// long, all ranks see that by themselves.
    fn lengths(&self, what: &str, own: &Tensor, dim: usize, result: &[i64]) -> Result<Vec<i64>> {
        let length = own.size().get(dim).copied().unwrap_or(0);
        match result.get(dim) {
            Some(whole) if *whole != length * self.size() as i64 => {
                Ok(self.words(what, &[length])?.into_iter().flatten().collect())
            }
            _ => Ok(vec![length; self.size()]),
        }
    }
}

fn lost_in(what: &str, line: &str, ranks: &[usize], at: usize, timeout: Duration, lost: &Lost) -> Error {
    let rank = ranks[at];
    let others: Vec<String> = match lost.peer.and_then(|peer| ranks.get(peer)) {
        Some(peer) => vec![peer.to_string()],
        None => ranks.iter().filter(|other| **other != rank).map(ToString::to_string).collect(),
    };
    let others = format!("rank{} {}", if others.len() == 1 { "" } else { "s" }, others.join(", "));
    Error::peer(match lost.silent {
        true => format!("rank {rank} waited {} s for {others} in {what} over {line}", timeout.as_secs()),
        false => format!("rank {rank} lost {others} in {what} over {line}: {}", lost.text),
    })
}

fn failed(error: TchError) -> Error {
    Error::run(libtorch::message(&error))
}

fn with_length(mut shape: Vec<i64>, dim: usize, length: i64) -> Vec<i64> {
    if let Some(size) = shape.get_mut(dim) {
        *size = length;
    }
    shape
}

/// The element types that Gloo sums.
fn gloo_sums(kind: Kind) -> bool {
    matches!(kind, Kind::Float | Kind::Double | Kind::Half | Kind::BFloat16 | Kind::Int | Kind::Int64)
}
