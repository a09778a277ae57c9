//! How long work takes, on machines that do other things too: the fastest of several runs counts.
//!
//! Bounds in seconds hold for optimised builds; `cargo xtask bench language` prints those figures. What must be seen in any
//! build is work that grows faster than its input.

#![allow(dead_code, clippy::allow_attributes, reason = "each test target uses a part")]

use std::time::{Duration, Instant};

/// Other builds are given that many times as long.
const UNOPTIMISED: u32 = 40;

/// Until then a bound that was passed is measured again.
const ATTEMPTS: usize = 12;

/// A bound for the build at hand.
pub fn bound(optimised: Duration) -> Duration {
    if cfg!(debug_assertions) { optimised * UNOPTIMISED } else { optimised }
}

/// Seconds of one run.
fn seconds<T>(work: impl Fn() -> T) -> (T, Duration) {
    let started = Instant::now();
    let result = work();
    (result, started.elapsed())
}

/// What `work` gives; fails where it always takes longer than `limit`.
pub fn within<T>(limit: Duration, what: &str, work: impl Fn() -> T) -> T {
    let mut fastest = Duration::MAX;
    for _ in 0..ATTEMPTS {
        let (result, taken) = seconds(&work);
        fastest = fastest.min(taken);
        if taken <= limit {
            return result;
        }
    }
    panic!("{fastest:?}, more than {limit:?}, for {what}");
}

/// What `work` does with a text; fails where it takes longer than a time that grows with the text's length.
pub fn in_time<T>(text: &str, per_kilobyte: Duration, work: impl Fn() -> T) -> T {
    let limit = bound(per_kilobyte.mul_f64(1.0 + text.len() as f64 / 1_000.0));
    within(limit, &format!("{} bytes", text.len()), work)
}

/// Fails where work on `size` always takes more than eight times as long as on a quarter of it (four times is
/// proportional, sixteen times quadratic), or longer than `limit`. Prints how long it took.
pub fn grows_with<T, R>(size: usize, limit: Duration, what: &str, make: impl Fn(usize) -> T, work: impl Fn(&T) -> R) {
    let (quarter, whole) = (make(size / 4), make(size));
    let is_fine = |short: Duration, long: Duration| long < short * 8 && long <= bound(limit);
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let (short, long) = (seconds(|| work(&quarter)).1, seconds(|| work(&whole)).1);
        if is_fine(short, long) {
            println!("{what}: {long:?}, a quarter of it {short:?}");
            return;
        }
        seen.push((short, long));
    }
    panic!("{what}: a quarter and the whole always take too long: {seen:?}");
}
