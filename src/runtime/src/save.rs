//! Writes tensors under the model's own names as a `.safetensors` file.
//!
//! A tied parameter is written once, under its canonical name, as PyTorch's `safetensors.torch.save_model` and
//! `save_pretrained` of transformers do: `safetensors.torch.load_model(model, file)`, `from_pretrained` and
//! `model.load_state_dict(load_file(file), strict=False)` followed by the model's own tying all read it. The metadata says
//! `format: pt`, which transformers asks for. Equal values give equal bytes.
//!
//! The file appears whole or not at all: it is written beside its place, flushed to the disk and renamed.

use crate::error::{Error, Result};
use crate::libtorch;
use safetensors::{Dtype, View};
use slapo_program::DType;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use tch::Tensor;

/// One row per element type that both sides have.
const DTYPES: [(DType, Dtype); 10] = [
    (DType::Bool, Dtype::BOOL),
    (DType::U8, Dtype::U8),
    (DType::I8, Dtype::I8),
    (DType::I16, Dtype::I16),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
];

pub fn program_dtype(dtype: Dtype) -> Option<DType> {
    DTYPES.iter().find(|row| row.1 == dtype).map(|row| row.0)
}

/// Refuses a place that cannot become a file, before anything is computed for it.
pub fn check_target(path: &Path) -> Result<()> {
    let refuse = |why: String| Err(Error::input(format!("cannot write `{}`: {why}", path.display())));
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => return refuse("it is not a regular file".to_owned()),
        _ => {}
    }
    let target = match target(path) {
        Ok(target) => target,
        Err(e) => return refuse(e.to_string()),
    };
    let temporary = beside(&target);
    let probe = File::create(&temporary).and_then(|_| fs::remove_file(&temporary));
    probe.or_else(|e| refuse(e.to_string()))
}

/// Writes named tensors; returns the size of the file. What was at `path` before stays until the new file is complete.
pub fn write(path: &Path, tensors: &[(&str, &Tensor)]) -> Result<u64> {
    check_target(path)?;
    let mut views = Vec::new();
    for (name, tensor) in tensors {
        let view = Whole::new(tensor).map_err(|e| Error::run(format!("cannot write `{name}`: {e}")))?;
        views.push((*name, view));
    }
    let failed = |e: String| Error::run(format!("cannot write `{}`: {e}; the file is as it was", path.display()));
    let target = target(path).map_err(|e| failed(e.to_string()))?;
    let temporary = beside(&target);
    let written = write_temporary(&temporary, views).and_then(|bytes| {
        fs::rename(&temporary, &target).map_err(|e| e.to_string())?;
        Ok(bytes)
    });
    if written.is_err() {
        // Whatever there is of it; the first error is the one to tell.
        let _ = fs::remove_file(&temporary);
    }
    let bytes = written.map_err(failed)?;
    // The rename itself reaches the disk with the folder; file systems that cannot do this lose nothing but that.
    let _ = target.parent().map(|folder| File::open(folder).and_then(|f| f.sync_all()));
    Ok(bytes)
}

fn write_temporary(temporary: &Path, views: Vec<(&str, Whole)>) -> std::result::Result<u64, String> {
    let text = |e: io::Error| e.to_string();
    // Made here first for the permissions that a new file gets from the user's mask.
    let permissions = File::create(temporary).and_then(|f| f.metadata()).map_err(text)?.permissions();
    let format = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize_to_file(views, Some(format), temporary).map_err(|e| match e {
        safetensors::SafeTensorError::IoError(e) => e.to_string(),
        other => other.to_string(),
    })?;
    fs::set_permissions(temporary, permissions).map_err(text)?;
    let file = File::open(temporary).map_err(text)?;
    file.sync_all().map_err(text)?;
    Ok(file.metadata().map_err(text)?.len())
}

/// The absolute path of the file itself, behind symbolic links.
fn target(path: &Path) -> io::Result<PathBuf> {
    if path.exists() { fs::canonicalize(path) } else { std::path::absolute(path) }
}

fn beside(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

/// A dense tensor as the safetensors crate wants to see it.
struct Whole {
    tensor: Tensor,
    dtype: Dtype,
    shape: Vec<usize>,
}

impl Whole {
    fn new(tensor: &Tensor) -> std::result::Result<Whole, String> {
        let tensor = tensor.f_contiguous().map_err(|e| libtorch::message(&e))?;
        let dtype = libtorch::dtype(tensor.kind()).and_then(|d| DTYPES.iter().find(|row| row.0 == d));
        let (_, dtype) = dtype.ok_or_else(|| format!("safetensors files have no {:?}", tensor.kind()))?;
        let shape = tensor.size().iter().map(|n| *n as usize).collect();
        Ok(Whole { tensor, dtype: *dtype, shape })
    }
}

impl View for Whole {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(libtorch::bytes(&self.tensor))
    }

    fn data_len(&self) -> usize {
        self.tensor.numel() * self.dtype.bitsize() / 8
    }
}
