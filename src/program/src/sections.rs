//! Sections of a dimension that are not of one size: the queries, keys and values of one fused weight.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The sizes of sections relative to each other, in lowest terms: `4, 1, 1`. None where all are equal.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u32>", into = "Vec<u32>")]
pub struct Sections {
    /// Zeros behind the last.
    sizes: [u32; Sections::MOST],
}

impl Sections {
    /// As many as one dimension can have.
    pub const MOST: usize = 8;

    /// `None` where there are too many, or a size is no whole number from 1 to 2³² − 1.
    pub fn new(sizes: impl IntoIterator<Item = i64>) -> Option<Sections> {
        let given: Vec<u32> = sizes.into_iter().map(|size| u32::try_from(size).ok()).collect::<Option<_>>()?;
        let unit = given.iter().copied().fold(0, gcd);
        if given.len() > Sections::MOST || given.contains(&0) {
            return None;
        }
        let mut sections = Sections::default();
        sections.sizes.iter_mut().zip(&given).for_each(|(own, size)| *own = size / unit);
        Some(sections)
    }

    pub fn is_none(&self) -> bool {
        self.sizes[0] == 0
    }

    /// The relative sizes.
    pub fn sizes(self) -> Vec<i64> {
        self.sizes.iter().take_while(|size| **size != 0).map(|size| i64::from(*size)).collect()
    }

    /// The lengths of the sections of a dimension of `size`; `None` where they are no whole numbers.
    pub fn lengths(self, size: i64) -> Option<Vec<i64>> {
        let sizes = self.sizes();
        let total: i64 = sizes.iter().sum();
        (total > 0 && size % total == 0).then(|| sizes.iter().map(|one| size / total * one).collect())
    }

    /// Whether every section of a dimension of `size` divides into `parts`.
    pub fn divide(self, size: i64, parts: i64) -> bool {
        self.lengths(size).is_some_and(|lengths| parts >= 1 && lengths.iter().all(|length| length % parts == 0))
    }
}

impl fmt::Debug for Sections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sizes()).finish()
    }
}

impl TryFrom<Vec<u32>> for Sections {
    type Error = String;

    fn try_from(sizes: Vec<u32>) -> Result<Sections, String> {
        Sections::new(sizes.iter().map(|size| i64::from(*size))).ok_or_else(|| format!("{sizes:?} are no sections"))
    }
}

impl From<Sections> for Vec<u32> {
    fn from(sections: Sections) -> Vec<u32> {
        sections.sizes.into_iter().take_while(|size| *size != 0).collect()
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_relative() {
        let sections = Sections::new([32, 8, 8]).expect("three sections");
        assert_eq!(sections, Sections::new([4, 1, 1]).expect("three sections"));
        assert_eq!(sections.lengths(72), Some(vec![48, 12, 12]));
        assert_eq!(sections.lengths(40), None);
        assert!(sections.divide(72, 3) && !sections.divide(72, 5) && !sections.divide(72, 0));
    }

    #[test]
    fn what_are_no_sections() {
        assert_eq!(Sections::new([1; 9]), None);
        assert_eq!(Sections::new([4, 0, 1]), None);
        assert_eq!(Sections::new([4, -1]), None);
        assert!(Sections::new([]).is_some_and(|none| none.is_none()));
    }

    #[test]
    fn written_as_a_list() {
        let sections = Sections::new([2, 1, 1]).expect("three sections");
        assert_eq!(serde_json::to_string(&sections).expect("text"), "[2,1,1]");
        assert_eq!(serde_json::from_str::<Sections>("[4,2,2]").expect("sections"), sections);
        assert!(serde_json::from_str::<Sections>("[1,0]").is_err());
    }
}
