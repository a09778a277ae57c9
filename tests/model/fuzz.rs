//! No bytes make the importer panic. `SLAPO_FUZZ=100` runs a hundred times as many rounds.

use crate::support::bytes;
use slapo_model::inspect::{inspect, render};
use slapo_model::{InputSizes, bind, import};

/// Repeatable numbers (xorshift); which ones does not matter.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below.max(1) as u64) as usize
    }
}

/// Everything that is done with an archive; whether it was accepted.
fn use_all(bytes: &[u8]) -> bool {
    match import(bytes) {
        Ok(model) => {
            let sizes = InputSizes { batch: 2, seq: Some(3) };
            let _ = bind(&model, &sizes);
            let _ = render(&inspect(&model));
            true
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                let _ = (error.to_string(), error.advice());
            }
            false
        }
    }
}

fn rounds(count: usize) -> std::ops::Range<usize> {
    let factor = std::env::var("SLAPO_FUZZ").ok().and_then(|factor| factor.parse().ok());
    0..count * factor.unwrap_or(1)
}

fn position(bytes: &[u8], needle: &[u8]) -> usize {
    bytes.windows(needle.len()).position(|w| w == needle).unwrap()
}

#[test]
fn truncations() {
    let bytes = bytes("bad/small");
    for end in (0..bytes.len()).step_by(61) {
        assert!(!use_all(&bytes[..end]), "cut at {end}");
    }
}

#[test]
fn random_bytes() {
    let mut random = Random(1);
    for length in 0..400 {
        let bytes: Vec<u8> = (0..length).map(|_| random.next(256) as u8).collect();
        assert!(!use_all(&bytes));
    }
}

#[test]
fn flips_anywhere() {
    let good = bytes("bad/small");
    let mut random = Random(2);
    for _ in rounds(400) {
        let mut bytes = good.clone();
        for _ in 0..=random.next(3) {
            let at = random.next(bytes.len());
            bytes[at] ^= 1 << random.next(8);
        }
        use_all(&bytes);
    }
}

/// Flips in the directory, which is the end of the file.
#[test]
fn flips_in_the_directory() {
    let good = bytes("bad/small");
    let mut random = Random(3);
    for _ in rounds(400) {
        let mut bytes = good.clone();
        let at = bytes.len() - 1 - random.next(1400);
        bytes[at] = random.next(256) as u8;
        use_all(&bytes);
    }
}

/// JSON that stays JSON: digits, names and whole spans exchanged inside the model's description.
#[test]
fn edits_of_the_json() {
    for name in ["bad/small", "misc", "counters"] {
        let good = bytes(name);
        let start = position(&good, b"{\"graph_module\"");
        let end = position(&good, b"\"verifiers\"");
        let digits: Vec<usize> = (start..end).filter(|at| good[*at].is_ascii_digit()).collect();
        let quotes: Vec<usize> = (start..end).filter(|at| good[*at] == b'"').collect();
        let mut random = Random(4);
        let mut accepted = 0;
        for round in rounds(300) {
            let mut bytes = good.clone();
            if round % 2 == 0 {
                let at = digits[random.next(digits.len())];
                bytes[at] = b'0' + random.next(10) as u8;
            } else {
                // One string over another of the same length.
                let from = random.next(quotes.len() - 1);
                let length = quotes[from + 1] - quotes[from];
                let same = quotes.windows(2).filter(|pair| pair[1] - pair[0] == length);
                let same: Vec<usize> = same.map(|pair| pair[0]).collect();
                let to = same[random.next(same.len())];
                bytes.copy_within(quotes[from]..quotes[from] + length, to);
            }
            accepted += usize::from(use_all(&bytes));
        }
        // Otherwise this tests the JSON reader alone.
        assert!(accepted > 20, "{name}: {accepted}");
    }
}
