//! Parameters and buffers before the first step: read from the archive, or initialised.
//!
//! The archive is mapped; a rank touches only the pages of its own boxes. Values are converted to the program's element
//! type. Read [`load`] first.

use crate::collectives::part_of;
use crate::error::{Error, Result};
use crate::executor::Executor;
use crate::geometry::{self, Geometry};
use crate::libtorch;
use crate::random::Stream;
use memmap2::Mmap;
use slapo_program::{DType, Init, Parameter, Placement, Program, Source, Split, TensorType};
use std::fs::File;
use std::path::Path;
use tch::{Device, Kind, Tensor};

/// Elements below which a second thread costs more than it gains.
const GRAIN: usize = 8 * 1024;

/// Fills every parameter and buffer of the executor. `init` prefers initialisation where a parameter has one.
pub fn load(executor: &mut Executor, archive: Option<&Path>, init: bool) -> Result<()> {
    let parameters = executor.program().parameters.clone();
    let stored = |p: &Parameter| p.source.is_some() && (p.init == Init::Stored || !init);
    let map = match archive {
        Some(path) if parameters.iter().any(stored) => Some((path, open(path)?)),
        _ => None,
    };
    for parameter in &parameters {
        let program = executor.program();
        let ty = &program.globals[parameter.global as usize].ty;
        let tensor = match (&parameter.source, &map) {
            (Some(source), Some((path, map))) if stored(parameter) => {
                read(map, path, source, &parameter.placement, ty).map_err(|e| e.of(parameter))
            }
            (Some(_), None) if stored(parameter) => {
                Err(Failure::Input("is stored in the archive, and the job names none".to_owned()).of(parameter))
            }
            _ => initialise(program, parameter, ty).map_err(|e| e.of(parameter)),
        }?;
        executor.set_global(parameter.global, tensor)?;
    }
    Ok(())
}

/// What is wrong with one parameter, and whose fault it is.
enum Failure {
    Input(String),
    Run(String),
}

impl Failure {
    fn of(self, parameter: &Parameter) -> Error {
        let name = parameter.names.first().map_or("", String::as_str);
        match self {
            Failure::Input(message) => Error::input(format!("`{name}` {message}")),
            Failure::Run(message) => Error::run(format!("while filling `{name}`: {message}")),
        }
    }
}

impl From<tch::TchError> for Failure {
    fn from(error: tch::TchError) -> Failure {
        Failure::Run(libtorch::message(&error))
    }
}

fn open(path: &Path) -> Result<Mmap> {
    let named = |e: std::io::Error| Error::input(format!("cannot read `{}`: {e}", path.display()));
    let file = File::open(path).map_err(named)?;
    // SAFETY: a file that is cut short while it is read ends the worker, as documented for every mapped file.
    unsafe { Mmap::map(&file) }.map_err(named)
}

fn read(
    map: &Mmap,
    path: &Path,
    source: &Source,
    placement: &Placement,
    ty: &TensorType,
) -> std::result::Result<Tensor, Failure> {
    let reach: i64 = source.shape.iter().zip(&source.strides).map(|(n, stride)| (n - 1).max(0) * stride).sum();
    let empty = source.shape.contains(&0);
    let bytes = if empty { 0 } else { (reach as u64 + 1) * source.dtype.bytes() };
    if source.strides.iter().any(|s| *s < 0) || source.offset.saturating_add(bytes) > map.len() as u64 {
        return Err(Failure::Input(format!(
            "should lie at bytes {} to {} of `{}`, which has {}: was the archive changed after compiling?",
            source.offset,
            source.offset.saturating_add(bytes),
            path.display(),
            map.len()
        )));
    }
    // SAFETY: the whole reach of the view lies inside the map, and the view is copied before it goes out of scope.
    let whole = unsafe {
        Tensor::f_from_blob(
            map.as_ptr().add(source.offset as usize),
            &source.shape,
            &source.strides,
            libtorch::kind(source.dtype),
            Device::Cpu,
        )
    }?;
    let part = cut(whole, placement)?;
    if part.size() != ty.shape {
        return Err(Failure::Input(format!(
            "is stored as {}{:?}, the program keeps {ty} of it",
            source.dtype, source.shape
        )));
    }
    let mut own = libtorch::empty(ty).map_err(Failure::Run)?;
    own.f_copy_(&part)?;
    Ok(own)
}

/// The rank's box of a whole tensor, as a view where its strides allow it.
fn cut(whole: Tensor, placement: &Placement) -> std::result::Result<Tensor, Failure> {
    placement.splits.iter().try_fold(whole, |whole, split| {
        let size = whole.size().get(split.dim).copied().unwrap_or(0);
        if let Some(lengths) = split.sections.lengths(size) {
            return cut_sections(&whole, split, &lengths);
        }
        let Split { dim, groups, parts, .. } = *split;
        part_of(&whole, dim, groups, parts, geometry::part(split, 0)).map_err(Failure::Run)
    })
}

/// The pieces of sections that are not of one size, behind each other.
fn cut_sections(whole: &Tensor, split: &Split, lengths: &[i64]) -> std::result::Result<Tensor, Failure> {
    let (dim, mut start, mut pieces) = (split.dim as i64, 0, Vec::new());
    for length in lengths {
        let piece = length / split.parts;
        pieces.push(whole.f_narrow(dim, start + geometry::part(split, 0) * piece, piece)?);
        start += length;
    }
    Ok(Tensor::f_cat(&pieces, dim)?)
}

fn initialise(program: &Program, parameter: &Parameter, ty: &TensorType) -> std::result::Result<Tensor, Failure> {
    match parameter.init {
        Init::Stored => Err(Failure::Input("can only come from the archive, which does not hold it".to_owned())),
        Init::Constant(x) => {
            let tensor = libtorch::empty(ty).map_err(Failure::Run)?;
            Ok(tensor.f_fill(x)?)
        }
        Init::Normal { std, site } => {
            let geometry = Geometry::new(&parameter.placement, &ty.shape, 0).map_err(Failure::Run)?;
            let wide = if ty.dtype == DType::F64 { Kind::Double } else { Kind::Float };
            let tensor = Tensor::f_empty(&ty.shape, (wide, Device::Cpu))?;
            let stream = Stream::parameter(program.seed, site);
            match wide {
                Kind::Double => fill(&tensor, &geometry, stream, |z| z * std),
                _ => fill(&tensor, &geometry, stream, |z| (z * std) as f32),
            }
            Ok(tensor.f_to_kind(libtorch::kind(ty.dtype))?)
        }
    }
}

/// Writes `value(normal number)` to every element of a dense tensor of element type `T`.
fn fill<T: Copy>(tensor: &Tensor, geometry: &Geometry, stream: Stream, value: impl Fn(f64) -> T + Sync) {
    // An address rather than a pointer, so that threads may share it.
    let base = tensor.data_ptr() as usize;
    libtorch::parallel_for(geometry.elements(), GRAIN, |range| {
        geometry.for_each_run(range, |local, global, length| {
            // SAFETY: the tensor is dense with `elements` elements of type `T`; runs do not overlap.
            let mut out = unsafe { std::slice::from_raw_parts_mut((base as *mut T).add(local), length) }.iter_mut();
            stream.normals(global, length, |z| {
                if let Some(slot) = out.next() {
                    *slot = value(z);
                }
            });
        });
    });
}
