//! Counter-based random numbers: a value depends on what it is for, never on who computes it or in which order.
//!
//! Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The key is
//! the seed; the counter names a *block* of four words of one *stream*:
//!
//! | counter word | holds |
//! | --- | --- |
//! | 0, 1 | low and high half of the block's number |
//! | 2 | the site: which dropout or which parameter; parameters have the highest bit set |
//! | 3 | the training step from 0, modulo 2^32; 0 for parameters |
//!
//! Element `i` (its index in the *global* tensor) uses block `i / 4`.
//!
//! * *Dropout* keeps element `i` where word `i % 4` of its block is at least `round(p · 2^32)`.
//! * *Normal* numbers come from Box-Muller in double precision: elements `4b` and `4b + 1` from words 0 and 1 of block
//!   `b`, elements `4b + 2` and `4b + 3` from words 2 and 3. With `u = (first + 1) / 2^32`, `v = second / 2^32` and
//!   `r = sqrt(−2 ln u)`, the even one is `r cos 2πv`, the odd one `r sin 2πv`.

use std::f64::consts::TAU;

/// Set in the site of parameters, so that no dropout shares their numbers.
const PARAMETER: u32 = 0x8000_0000;

/// Blocks computed side by side by [`Stream::words`]: enough independent multiplications to hide their latency, few enough
/// to stay in registers.
const LANES: usize = 16;
/// Words of one call of [`Stream::words`].
pub const BATCH: usize = 4 * LANES;

const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;
const LOW: u64 = 0xFFFF_FFFF;

/// All random numbers of one site at one step.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    key: [u32; 2],
    site: u32,
    step: u32,
}

impl Stream {
    pub fn dropout(seed: u64, site: u32, step: u64) -> Stream {
        Stream { key: key(seed), site, step: step as u32 }
    }

    pub fn parameter(seed: u64, site: u32) -> Stream {
        Stream { key: key(seed), site: site | PARAMETER, step: 0 }
    }

    /// The four words of a block.
    pub fn block(&self, block: u64) -> [u32; 4] {
        philox([block as u32, (block >> 32) as u32, self.site, self.step], self.key)
    }

    /// The words of `LANES` consecutive blocks: what [`Stream::block`] gives one by one.
    ///
    /// Lanes are 64 bits wide, so that a compiler sees the one vector instruction that multiplies 32 by 32 bits.
    #[inline(always)]
    pub fn words(&self, first_block: u64) -> [u32; BATCH] {
        let mut c0 = [0u64; LANES];
        let mut c1 = [0u64; LANES];
        let mut c2 = [u64::from(self.site); LANES];
        let mut c3 = [u64::from(self.step); LANES];
        for lane in 0..LANES {
            let block = first_block.wrapping_add(lane as u64);
            c0[lane] = block & LOW;
            c1[lane] = block >> 32;
        }
        for round in 0..ROUNDS {
            let k0 = u64::from(self.key[0].wrapping_add(WEYL[0].wrapping_mul(round)));
            let k1 = u64::from(self.key[1].wrapping_add(WEYL[1].wrapping_mul(round)));
            for lane in 0..LANES {
                let p0 = MULTIPLIERS[0] * (c0[lane] & LOW);
                let p1 = MULTIPLIERS[1] * (c2[lane] & LOW);
                c0[lane] = (p1 >> 32) ^ c1[lane] ^ k0;
                c1[lane] = p1 & LOW;
                c2[lane] = (p0 >> 32) ^ c3[lane] ^ k1;
                c3[lane] = p0 & LOW;
            }
        }
        let mut words = [0; BATCH];
        for lane in 0..LANES {
            words[4 * lane] = c0[lane] as u32;
            words[4 * lane + 1] = c1[lane] as u32;
            words[4 * lane + 2] = c2[lane] as u32;
            words[4 * lane + 3] = c3[lane] as u32;
        }
        words
    }

    /// Calls `give` with the standard normal number of every element of `first..first + count`, in order.
    pub fn normals(&self, first: u64, count: usize, mut give: impl FnMut(f64)) {
        let end = first + count as u64;
        for block in first / 4..end.div_ceil(4) {
            for (element, value) in (4 * block..).zip(normal_block(self.block(block))) {
                if (first..end).contains(&element) {
                    give(value);
                }
            }
        }
    }
}

/// The word below which dropout drops; 2^32 where nothing survives.
pub fn threshold(p: f64) -> u64 {
    (p * 4_294_967_296.0).round() as u64
}

fn key(seed: u64) -> [u32; 2] {
    [seed as u32, (seed >> 32) as u32]
}

fn normal_block(words: [u32; 4]) -> [f64; 4] {
    let pair = |first: u32, second: u32| {
        let radius = (-2.0 * ((f64::from(first) + 1.0) / 4_294_967_296.0).ln()).sqrt();
        let (sin, cos) = (TAU * (f64::from(second) / 4_294_967_296.0)).sin_cos();
        [radius * cos, radius * sin]
    };
    let ([a, b], [c, d]) = (pair(words[0], words[1]), pair(words[2], words[3]));
    [a, b, c, d]
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let p0 = MULTIPLIERS[0] * u64::from(counter[0]);
        let p1 = MULTIPLIERS[1] * u64::from(counter[2]);
        counter =
            [(p1 >> 32) as u32 ^ counter[1] ^ key[0], p1 as u32, (p0 >> 32) as u32 ^ counter[3] ^ key[1], p0 as u32];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counter, key and output of `philox4x32 10` in the known answers of Random123 (`kat_vectors`).
    type KnownAnswer = ([u32; 4], [u32; 2], [u32; 4]);
    const KNOWN: [KnownAnswer; 3] = [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];

    #[test]
    fn known_answers() {
        for (counter, key, output) in KNOWN {
            assert_eq!(philox(counter, key), output);
        }
    }

    #[test]
    fn blocks_side_by_side_equal_blocks_one_by_one() {
        let stream = Stream::dropout(0x1234_5678_9abc_def0, 7, 3);
        for first in [0, 5, u64::from(u32::MAX) - 3, u64::MAX - 2] {
            let single: Vec<u32> = (0..LANES as u64).flat_map(|lane| stream.block(first.wrapping_add(lane))).collect();
            assert_eq!(stream.words(first).as_slice(), single);
        }
    }

    #[test]
    fn normals_have_the_moments_of_the_standard_normal() {
        let mut sums = [0.0; 4];
        let count = 1 << 18;
        Stream::parameter(1, 0).normals(0, count, |z| {
            for (power, sum) in (1..).zip(&mut sums) {
                *sum += z.powi(power);
            }
        });
        // Five standard errors of the sample moments: sqrt(1, 2, 15, 96 over n).
        let expected = [(0.0, 1.0), (1.0, 2.0), (0.0, 15.0), (3.0, 96.0)];
        for (sum, (moment, variance)) in sums.iter().zip(expected) {
            let mean = sum / count as f64;
            assert!((mean - moment).abs() < 5.0 * f64::sqrt(variance / count as f64), "{mean} for {moment}");
        }
    }

    #[test]
    fn normals_depend_on_the_index_alone() {
        let stream = Stream::parameter(9, 4);
        let mut whole = Vec::new();
        stream.normals(0, 40, |z| whole.push(z));
        for (first, count) in [(0, 1), (3, 2), (5, 30), (39, 1), (7, 0)] {
            let mut piece = Vec::new();
            stream.normals(first, count, |z| piece.push(z));
            assert_eq!(piece, whole[first as usize..first as usize + count]);
        }
    }

    #[test]
    fn sites_steps_seeds_and_uses_differ() {
        let streams = [
            Stream::dropout(1, 0, 0),
            Stream::dropout(1, 1, 0),
            Stream::dropout(1, 0, 1),
            Stream::dropout(2, 0, 0),
            Stream::dropout(1 << 32, 0, 0),
            Stream::parameter(1, 0),
        ];
        let blocks: Vec<[u32; 4]> = streams.iter().map(|s| s.block(0)).collect();
        for (i, block) in blocks.iter().enumerate() {
            assert!(!blocks[..i].contains(block));
        }
    }
}
