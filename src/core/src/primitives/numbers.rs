//! Numbers that primitives have in common: divisors, and what `groups` may be.

use super::{Problem, Refusal};
use crate::schedule::Argument;
use slapo_syntax::Code;

/// At most six divisors of `number`, those closest to `near` first.
pub fn divisors_near(number: i64, near: i64) -> Vec<i64> {
    const SHOWN: usize = 6;
    let mut divisors = divisors(number);
    divisors.sort_by_key(|d| (d.abs_diff(near), *d));
    divisors.truncate(SHOWN);
    divisors
}

/// Divisors in ascending order; of very large numbers not all of them.
pub fn divisors(number: i64) -> Vec<i64> {
    const TRIED: i64 = 1_000_000;
    let small = (1..=TRIED).take_while(|d| d * d <= number);
    let mut divisors: Vec<i64> = small.filter(|d| number % d == 0).flat_map(|d| [d, number / d]).collect();
    divisors.sort_unstable();
    divisors.dedup();
    divisors
}

/// `1, 2, 4`
pub fn joined(numbers: &[i64]) -> String {
    numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}

/// The number of groups that a step or a collective asks for.
pub fn groups(argument: Option<&Argument>) -> Result<i64, Refusal> {
    match argument {
        None => Ok(1),
        Some(Argument::Int(groups)) if *groups >= 1 => Ok(*groups),
        Some(Argument::List(_)) => {
            let message = "sections of different sizes cannot be split yet";
            let problem = Problem::new(Code::BadValue, message, "a list of sizes");
            Err(Refusal::illegal(problem.help("`groups` is the number of equal sections")))
        }
        Some(other) => {
            let message = format!("a dimension cannot be seen in {other} groups");
            Err(Refusal::illegal(Problem::new(Code::BadValue, message, "must be a whole number of at least 1")))
        }
    }
}

/// The dimension of that number, of `rank` many; negative ones count from the end.
pub fn numbered(number: i64, rank: usize) -> Option<usize> {
    let number = if number < 0 { number.saturating_add(rank as i64) } else { number };
    usize::try_from(number).ok().filter(|dim| *dim < rank)
}
