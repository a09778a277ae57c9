//! The training data: a file of bytes read as tokens, or a `.safetensors` file with one tensor per input.
//!
//! *Text*: every byte is a token. Window `i` is the `i`-th full stretch of sequence length; `input_ids` and `labels` get
//! the tokens, `attention_mask` ones. *Tensors*: rows along dimension 0. Row `r` of step `s` (from 0) is row
//! `s · batch + r`, around and around. Files are mapped, not read. Read [`DataSet::open`] first.

use crate::error::{Error, Result};
use crate::libtorch;
use memmap2::Mmap;
use safetensors::SafeTensors;
use slapo_program::{DType, Global, GlobalId, Input, Program, TensorType};
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;
use tch::Tensor;

/// Bytes of a block that a digest reads, and about how many of them it reads.
const BLOCK: usize = 4096;
const BLOCKS: usize = 1024;

pub struct DataSet {
    columns: Vec<Column>,
    rows: u64,
    batch: u64,
    map: Mmap,
}

/// How one input is filled.
struct Column {
    input: Input,
    ty: TensorType,
    rows: Rows,
}

enum Rows {
    /// Bytes of text, one per token.
    Tokens,
    Ones,
    /// Stored rows, which begin at `offset` of the file.
    Stored {
        offset: usize,
        dtype: DType,
    },
}

impl DataSet {
    /// Opens a data set and checks that it fits the program's inputs.
    pub fn open(path: &Path, program: &Program) -> Result<DataSet> {
        let named = |e: std::io::Error| Error::input(format!("cannot read `{}`: {e}", path.display()));
        let file = File::open(path).map_err(named)?;
        let bytes = file.metadata().map_err(named)?.len();
        if bytes == 0 {
            return Err(Error::input(format!("`{}` is empty", path.display())));
        }
        // SAFETY: a file that is cut short while the worker runs ends it, as documented for every mapped file.
        let map = unsafe { Mmap::map(&file) }.map_err(named)?;
        let batch = batch_size(program)?;
        if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("safetensors")) {
            stored(path, map, program, batch)
        } else {
            text(path, map, program, batch)
        }
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Hexadecimal; of the file's length and of blocks all over it, so that it takes no time for a file of any size.
    pub fn digest(&self) -> String {
        let mut hasher = DefaultHasher::new();
        hasher.write_usize(self.map.len());
        let stride = (self.map.len() / BLOCKS).max(BLOCK);
        for block in self.map.chunks(stride) {
            hasher.write(&block[..BLOCK.min(block.len())]);
        }
        format!("{:016x}", hasher.finish())
    }

    /// The inputs of a step, from 0.
    pub fn batch(&self, step: u64) -> Result<Vec<(GlobalId, Tensor)>> {
        let fill = |column: &Column| {
            let tensor = self.fill(column, step).map_err(Error::run)?;
            self.check_limit(column, &tensor, step)?;
            Ok((column.input.global, tensor))
        };
        self.columns.iter().map(fill).collect()
    }

    fn row(&self, step: u64, row: u64) -> u64 {
        (step * self.batch + row) % self.rows
    }

    fn fill(&self, column: &Column, step: u64) -> std::result::Result<Tensor, String> {
        let ty = &column.ty;
        let failed = |e: tch::TchError| libtorch::message(&e);
        let (offset, dtype) = match column.rows {
            Rows::Ones => return Tensor::f_ones(&ty.shape, options(ty.dtype)).map_err(failed),
            Rows::Tokens => (0, DType::U8),
            Rows::Stored { offset, dtype } => (offset, dtype),
        };
        let tensor = Tensor::f_empty(&ty.shape, options(dtype)).map_err(failed)?;
        let row_bytes = TensorType::new(dtype, &ty.shape[1..]).bytes() as usize;
        for row in 0..self.batch {
            let from = offset + self.row(step, row) as usize * row_bytes;
            let source = &self.map[from..from + row_bytes];
            // SAFETY: the tensor is dense, of `batch` rows of `row_bytes` bytes each.
            unsafe {
                let to = tensor.data_ptr().cast::<u8>().add(row as usize * row_bytes);
                to.copy_from_nonoverlapping(source.as_ptr(), row_bytes);
            }
        }
        if dtype == ty.dtype { Ok(tensor) } else { tensor.f_to_kind(libtorch::kind(ty.dtype)).map_err(failed) }
    }

    /// Values that index a table stay inside it, and classes are those of the model.
    fn check_limit(&self, column: &Column, tensor: &Tensor, step: u64) -> Result<()> {
        let Some(limit) = column.input.limit else { return Ok(()) };
        let values = Vec::<i64>::try_from(tensor.to_kind(tch::Kind::Int64).flatten(0, -1))
            .map_err(|e| Error::run(libtorch::message(&e)))?;
        let ignored = column.input.ignored;
        let is_legal = |value: &i64| (0..limit).contains(value) || Some(*value) == ignored;
        let Some(at) = values.iter().position(|v| !is_legal(v)) else { return Ok(()) };
        let others = ignored.map(|ignored| format!(", and {ignored} for what the loss ignores")).unwrap_or_default();
        let width = (values.len() as u64 / self.batch).max(1);
        Err(Error::input(format!(
            "input `{}` is {} in row {} of the data: legal values are 0 to {}{others}",
            column.input.name,
            values[at],
            self.row(step, at as u64 / width),
            limit - 1
        )))
    }
}

fn options(dtype: DType) -> (tch::Kind, tch::Device) {
    (libtorch::kind(dtype), tch::Device::Cpu)
}

fn inputs(program: &Program) -> impl Iterator<Item = (&Input, &Global)> {
    program.inputs.iter().map(|input| (input, &program.globals[input.global as usize]))
}

/// Rows of a step: dimension 0 of every input.
fn batch_size(program: &Program) -> Result<u64> {
    let mut sizes = inputs(program).map(|(input, global)| (input, global.ty.shape.first()));
    let Some((first, size)) = sizes.next() else {
        return Err(Error::input("the program has no inputs: there is nothing to train on"));
    };
    let size = size.ok_or_else(|| Error::input(format!("input `{}` is a scalar: it has no rows", first.name)))?;
    match sizes.find(|(_, other)| *other != Some(size)) {
        None => Ok(*size as u64),
        Some((other, found)) => Err(Error::input(format!(
            "input `{}` has {size} rows in a step, `{}` has {}",
            first.name,
            other.name,
            found.copied().unwrap_or(0)
        ))),
    }
}

fn text(path: &Path, map: Mmap, program: &Program, batch: u64) -> Result<DataSet> {
    let mut columns = Vec::new();
    let mut sequence: Option<i64> = None;
    for (input, global) in inputs(program) {
        let ty = global.ty.clone();
        let rows = match (input.name.as_str(), &ty.shape[..]) {
            ("input_ids" | "labels", [_, length]) if !ty.dtype.is_float() && ty.dtype != DType::Bool => {
                if let Some(other) = sequence.replace(*length).filter(|other| other != length) {
                    return Err(Error::input(format!(
                        "`{}` takes {length} tokens a row, another input takes {other}",
                        input.name
                    )));
                }
                Rows::Tokens
            }
            ("attention_mask", _) => Rows::Ones,
            _ => {
                return Err(Error::input(format!(
                    "input `{}` ({ty}) cannot be filled from text; give a `.safetensors` data set with one tensor \
                     per input",
                    input.name
                )));
            }
        };
        columns.push(Column { input: input.clone(), ty, rows });
    }
    let sequence = sequence.ok_or_else(|| Error::input("no input takes tokens; give a `.safetensors` data set"))?;
    let windows = map.len() as u64 / (sequence.max(1) as u64);
    if windows < batch {
        return Err(Error::input(format!(
            "`{}` is too short: one batch of {batch} rows of {sequence} bytes needs {} bytes, the file has {}",
            path.display(),
            batch * sequence as u64,
            map.len()
        )));
    }
    Ok(DataSet { columns, rows: windows, batch, map })
}

fn stored(path: &Path, map: Mmap, program: &Program, batch: u64) -> Result<DataSet> {
    let shown = path.display();
    let file = SafeTensors::deserialize(&map)
        .map_err(|e| Error::input(format!("`{shown}` is not a safetensors file: {e}")))?;
    let mut columns = Vec::new();
    let mut rows: Option<(u64, &str)> = None;
    for (input, global) in inputs(program) {
        let name = &input.name;
        let Ok(tensor) = file.tensor(name) else {
            return Err(Error::input(format!("`{shown}` has no tensor `{name}`; it has {}", listing(&file))));
        };
        let shape: Vec<i64> = tensor.shape().iter().map(|n| *n as i64).collect();
        let dtype = crate::save::program_dtype(tensor.dtype());
        let ty = global.ty.clone();
        let converts = dtype == Some(ty.dtype) || (dtype, ty.dtype) == (Some(DType::I32), DType::I64);
        let (Some(dtype), true, Some((count, row))) = (dtype, converts, shape.split_first()) else {
            return Err(Error::input(format!(
                "tensor `{name}` is {:?}{shape:?}, the model takes {ty}",
                tensor.dtype()
            )));
        };
        if row != &ty.shape[1..] {
            return Err(Error::input(format!(
                "rows of tensor `{name}` are {dtype}{row:?}, the model takes {}{:?}",
                ty.dtype,
                &ty.shape[1..]
            )));
        }
        let count = *count as u64;
        if let Some((other, first)) = rows.replace((count, name)).filter(|(other, _)| *other != count) {
            return Err(Error::input(format!("tensor `{name}` has {count} rows, `{first}` has {other}")));
        }
        let offset = tensor.data().as_ptr() as usize - map.as_ptr() as usize;
        columns.push(Column { input: input.clone(), ty, rows: Rows::Stored { offset, dtype } });
    }
    let rows = rows.map_or(0, |(count, _)| count);
    if rows == 0 {
        return Err(Error::input(format!("the tensors of `{shown}` have no rows")));
    }
    Ok(DataSet { columns, rows, batch, map })
}

fn listing(file: &SafeTensors) -> String {
    let mut entries: Vec<String> =
        file.iter().map(|(name, t)| format!("`{name}` {:?}{:?}", t.dtype(), t.shape())).collect();
    entries.sort();
    if entries.is_empty() { "no tensors".to_owned() } else { entries.join(", ") }
}
