//! How far two runs of one model are apart: losses, norms, and tensors by name.
//!
//! The measure of a tensor is ‖a − b‖∞ over max(‖b‖∞, 10⁻³ · s), where s is the largest value among all tensors of its kind:
//! relative errors mean nothing where the true value is zero.

use serde::Serialize;
use std::collections::BTreeMap;

/// Tensors in float64, by name.
pub type Tensors = BTreeMap<String, Vec<f64>>;

/// At most this is the order of sums, not another result.
pub const BOUND: f64 = 1e-10;

/// What a difference means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every bit.
    Equal,
    /// Up to the order of sums.
    Rounding,
    Wrong,
}

/// One kind of numbers, compared.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub what: &'static str,
    pub count: usize,
    pub verdict: Verdict,
    /// The largest measure; infinite where something is missing or no number.
    pub worst: f64,
    /// The tensor of the largest measure, or the step.
    pub at: Option<String>,
}

/// One kind of numbers in float32. How far apart they are says how far rounding may carry; what it means is decided in
/// float64.
#[derive(Clone, Debug, Serialize)]
pub struct InFloat32 {
    pub what: &'static str,
    pub count: usize,
    /// As [`Row::worst`].
    pub worst: f64,
    /// The same in units of float32's last place.
    pub ulps: f64,
    pub at: Option<String>,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Equal => "equal",
            Verdict::Rounding => "rounding",
            Verdict::Wrong => "wrong",
        }
    }

    fn of(measure: f64) -> Verdict {
        match measure {
            0.0 => Verdict::Equal,
            m if m <= BOUND => Verdict::Rounding,
            _ => Verdict::Wrong,
        }
    }
}

/// One number a step.
pub fn numbers(what: &'static str, ours: &[f64], theirs: &[f64]) -> Row {
    let mut row = Row::new(what, theirs.len());
    if ours.len() != theirs.len() {
        row.worse(f64::INFINITY, format!("{} steps instead of {}", ours.len(), theirs.len()));
    }
    for (step, (a, b)) in ours.iter().zip(theirs).enumerate() {
        row.worse(measure(&[*a], &[*b], b.abs()), format!("step {}", step + 1));
    }
    row
}

/// Tensors of one kind.
pub fn tensors(what: &'static str, ours: &Tensors, theirs: &Tensors) -> Row {
    let mut row = Row::new(what, theirs.len());
    let scale = theirs.values().map(|b| largest(b)).fold(0.0, f64::max);
    for (name, b) in theirs {
        match ours.get(name) {
            Some(a) if a.len() == b.len() => row.worse(measure(a, b, largest(b).max(1e-3 * scale)), name.clone()),
            _ => row.worse(f64::INFINITY, name.clone()),
        }
    }
    for name in ours.keys().filter(|name| !theirs.contains_key(*name)) {
        row.worse(f64::INFINITY, name.clone());
    }
    row
}

/// Ranks that cannot agree on what each should hold leave nothing to compare.
pub fn at_odds(why: &str) -> Row {
    let mut row = Row::new("ranks", 0);
    row.worse(f64::INFINITY, why.to_owned());
    row
}

/// How far `a` is from `b`: of `b`'s largest element, which counts as `smallest` at least. They are of one length.
pub fn distance(a: &[f64], b: &[f64], smallest: f64) -> f64 {
    measure(a, b, largest(b).max(smallest))
}

impl Row {
    fn new(what: &'static str, count: usize) -> Row {
        Row { what, count, verdict: Verdict::Equal, worst: 0.0, at: None }
    }

    /// The row of runs in float32.
    pub fn in_float32(self) -> InFloat32 {
        let Row { what, count, worst, at, .. } = self;
        InFloat32 { what, count, worst, ulps: worst / f64::from(f32::EPSILON), at }
    }

    fn worse(&mut self, measure: f64, at: String) {
        if measure > self.worst {
            self.worst = measure;
            self.at = Some(at);
            self.verdict = Verdict::of(measure);
        }
    }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, x| most.max(x.abs()))
}

/// Two that are no numbers in the same place agree on that; one alone is as wrong as can be.
fn measure(a: &[f64], b: &[f64], scale: f64) -> f64 {
    let mut most: f64 = 0.0;
    for (a, b) in a.iter().zip(b) {
        let apart = match (a.is_nan(), b.is_nan()) {
            (true, true) => 0.0,
            (false, false) if a == b => 0.0,
            (false, false) => (a - b).abs() / scale,
            _ => f64::INFINITY,
        };
        most = most.max(if apart.is_nan() { f64::INFINITY } else { apart });
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[(&str, &[f64])]) -> Tensors {
        values.iter().map(|(name, v)| ((*name).to_owned(), v.to_vec())).collect()
    }

    #[test]
    fn verdicts_by_size_of_the_difference() {
        let theirs = of(&[("a", &[1.0, -2.0]), ("b", &[0.0])]);
        let row = |ours: &[(&str, &[f64])]| tensors("gradients", &of(ours), &theirs);
        assert_eq!(row(&[("a", &[1.0, -2.0]), ("b", &[0.0])]).verdict, Verdict::Equal);
        assert_eq!(row(&[("a", &[1.0 + 1e-12, -2.0]), ("b", &[0.0])]).verdict, Verdict::Rounding);
        let wrong = row(&[("a", &[1.0, -2.0]), ("b", &[1e-6])]);
        assert_eq!((wrong.verdict, wrong.at.as_deref()), (Verdict::Wrong, Some("b")));
    }

    #[test]
    fn what_is_missing_or_no_number_is_wrong() {
        let theirs = of(&[("a", &[1.0])]);
        for ours in [of(&[]), of(&[("a", &[f64::NAN])]), of(&[("a", &[1.0]), ("b", &[0.0])])] {
            assert_eq!(tensors("gradients", &ours, &theirs).verdict, Verdict::Wrong);
        }
        assert_eq!(numbers("loss", &[1.0], &[1.0, 2.0]).verdict, Verdict::Wrong);
        assert_eq!(numbers("loss", &[f64::NAN], &[f64::NAN]).verdict, Verdict::Equal);
    }
}
