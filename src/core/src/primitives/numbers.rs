//! Numbers that primitives have in common: divisors, and what `groups` may be.

use super::{Problem, Refusal};
use crate::schedule::Argument;
use slapo_program::Sections;
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
            let message = "only parameters are split in sections of different sizes";
            let problem = Problem::new(Code::BadValue, message, "a list of sizes");
            Err(Refusal::illegal(problem.help("`groups` is the number of equal sections here")))
        }
        Some(other) => {
            let message = format!("a dimension cannot be seen in {other} groups");
            Err(Refusal::illegal(Problem::new(Code::BadValue, message, "must be a whole number of at least 1")))
        }
    }
}

/// The sections that a step asks for: a number of groups, or sizes that are not all the same.
pub fn sections(argument: Option<&Argument>) -> Result<(i64, Sections), Refusal> {
    let Some(Argument::List(list)) = argument else { return Ok((groups(argument)?, Sections::default())) };
    let size = |size: &Argument| if let Argument::Int(size) = size { Some(*size) } else { None };
    let sizes: Option<Vec<i64>> = list.iter().map(size).collect();
    let sizes = sizes.filter(|sizes| !sizes.is_empty() && sizes.iter().all(|size| *size >= 1));
    if let Some([first, rest @ ..]) = sizes.as_deref()
        && rest.iter().all(|size| size == first)
    {
        return Ok((list.len() as i64, Sections::default()));
    }
    match sizes.and_then(Sections::new) {
        Some(sections) => Ok((1, sections)),
        None => {
            let shown = argument.map(ToString::to_string).unwrap_or_default();
            let message = format!("a dimension cannot be seen in the sections {shown}");
            let problem = Problem::new(Code::BadValue, message, "not a list of sizes");
            let most = Sections::MOST;
            Err(Refusal::illegal(
                problem.help(format!("sizes are whole numbers of at least 1, at most {most} of them")),
            ))
        }
    }
}

/// The dimension of that number, of `rank` many; negative ones count from the end.
pub fn numbered(number: i64, rank: usize) -> Option<usize> {
    let number = if number < 0 { number.saturating_add(rank as i64) } else { number };
    usize::try_from(number).ok().filter(|dim| *dim < rank)
}
