//! Batches for `verify` where no data is given: random tokens, ragged labels and masks, the same for the same seed.

use crate::failure::{Context, Result};
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use slapo_program::{DType, Program};
use slapo_syntax::Code;
use std::path::Path;

/// Labels that do not count, in Hugging Face's models and in PyTorch's cross-entropy.
const IGNORED: i64 = -100;

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: i64) -> i64 {
        (self.next() % n.max(1) as u64) as i64
    }
}

/// What the random batches are like.
pub struct Kind {
    pub steps: u64,
    pub seed: u64,
    /// Whether some labels may be ignored.
    pub ragged: bool,
}

/// Writes batches of every input of `program` to a `.safetensors` file.
pub fn write(program: &Program, kind: &Kind, path: &Path) -> Result<()> {
    let mut random = Random(kind.seed);
    let vocabulary = program.inputs.iter().filter_map(|input| input.limit).min().unwrap_or(2);
    let mut tensors = Vec::new();
    for input in &program.inputs {
        let ty = program.ty(slapo_program::Value::Global(input.global));
        let mut shape: Vec<usize> = ty.shape.iter().map(|n| *n as usize).collect();
        if let Some(rows) = shape.first_mut() {
            *rows *= kind.steps as usize;
        }
        let row: usize = shape.iter().skip(1).product();
        let count: usize = shape.iter().product();
        let mut bytes = Vec::with_capacity(8 * count);
        for i in 0..count {
            bytes.extend(match ty.dtype {
                DType::F16 | DType::BF16 | DType::F32 | DType::F64 => {
                    (random.below(1 << 20) as f64 / f64::from(1 << 19) - 1.0).to_le_bytes()
                }
                _ => match input.limit {
                    Some(limit) if input.ignored.is_none() => random.below(limit),
                    _ if input.name.contains("mask") => i64::from(i % row.max(1) < filled(row, i / row.max(1))),
                    _ if kind.ragged && i % row.max(1) > 1 && random.below(5) == 0 => input.ignored.unwrap_or(IGNORED),
                    limit => random.below(limit.unwrap_or(vocabulary)),
                }
                .to_le_bytes(),
            });
        }
        let dtype = if ty.dtype.is_float() { Dtype::F64 } else { Dtype::I64 };
        tensors.push((input.name.clone(), shape, dtype, bytes));
    }
    let doing = format!("write sample batches to `{}`", path.display());
    let mut views = Vec::new();
    for (name, shape, dtype, bytes) in &tensors {
        let view = TensorView::new(*dtype, shape.clone(), bytes).context(Code::UnwritableFile, &doing)?;
        views.push((name, view));
    }
    serialize_to_file(views, None, path).context(Code::UnwritableFile, doing)
}

/// How many places of row `number` a mask keeps: rows have ragged ends.
fn filled(row: usize, number: usize) -> usize {
    row - number % row.div_ceil(2).max(1)
}
