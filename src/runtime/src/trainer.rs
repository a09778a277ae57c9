//! One training run: a [`Job`] comes in, [`Event`]s go out.
//!
//! Owns the order of things around the program: weights, setup, data, steps, reports, files. What a step computes is the
//! program's business. Read [`run`] first.

use crate::allocator;
use crate::data::DataSet;
use crate::error::{Error, Result};
use crate::executor::Executor;
use crate::{libtorch, save, weights};
use slapo_program::{Call, Event, FunctionKind, GlobalId, Job, MemoryReport, Role};
use std::path::Path;
use std::time::Instant;
use tch::Tensor;

/// Runs the job to its end. An error is not reported as an event here: see [`Error::event`].
pub fn run(job: Job, emit: &mut dyn FnMut(&Event) -> Result<()>) -> Result<()> {
    let began = Instant::now();
    allocator::install();
    configure(&job)?;
    for path in job.save.iter().chain(&job.dump_gradients) {
        save::check_target(path)?;
    }
    let data = DataSet::open(&job.data, &job.program)?;
    let mut executor = Executor::new(job.program)?;
    weights::load(&mut executor, job.archive.as_deref(), job.init)?;
    executor.setup()?;
    emit(&Event::Ready {
        libtorch: libtorch::version(),
        threads: libtorch::threads(),
        rows: data.rows(),
        seconds: began.elapsed().as_secs_f64(),
    })?;
    let trained = Instant::now();
    for step in 0..job.steps {
        let dump = job.dump_gradients.as_deref().filter(|_| step == 0);
        one_step(&mut executor, &data, step, dump, emit)?;
    }
    if let Some(path) = &job.save {
        wrote(path, &parameters(&executor)?, emit)?;
    }
    emit(&Event::Done { steps: job.steps, seconds: trained.elapsed().as_secs_f64() })
}

fn configure(job: &Job) -> Result<()> {
    let threads = if job.deterministic { Some(1) } else { job.threads };
    if let Some(threads) = threads {
        libtorch::set_threads(threads).map_err(Error::run)?;
    }
    libtorch::set_deterministic(job.deterministic).map_err(Error::run)?;
    // For operators that draw from libtorch's own generator; the program's dropout does not.
    tch::manual_seed(job.program.seed as i64);
    Ok(())
}

fn one_step(
    executor: &mut Executor,
    data: &DataSet,
    step: u64,
    dump: Option<&Path>,
    emit: &mut dyn FnMut(&Event) -> Result<()>,
) -> Result<()> {
    let began = Instant::now();
    allocator::reset_peak();
    for (global, tensor) in data.batch(step)? {
        executor.set_global(global, tensor)?;
    }
    executor.begin_step(step)?;
    let calls = executor.program().step.clone();
    let updates = |call: &Call| executor.program().functions[call.function as usize].kind == FunctionKind::Optimizer;
    let backward_ends = calls.iter().position(updates).unwrap_or(calls.len());
    let (differentiate, update) = calls.split_at(backward_ends);
    for call in differentiate {
        executor.call(*call)?;
    }
    // Parameter gradients are complete, and nothing has used them.
    let loss = scalar(executor, executor.program().loss)?;
    let roles = by_role(executor);
    if let Some(path) = dump {
        wrote(path, &gradients(executor), emit)?;
    }
    for call in update {
        executor.call(*call)?;
    }
    executor.end_step();
    let grad_norm = executor.program().grad_norm.map(|g| scalar(executor, g)).transpose()?;
    let memory = allocator::read();
    emit(&Event::Step {
        step: step + 1,
        loss,
        grad_norm,
        seconds: began.elapsed().as_secs_f64(),
        memory: MemoryReport { current: memory.current, peak: memory.peak, ..roles },
    })
}

fn by_role(executor: &Executor) -> MemoryReport {
    MemoryReport {
        parameters: executor.bytes_of(Role::Parameter),
        gradients: executor.bytes_of(Role::Gradient),
        optimizer: executor.bytes_of(Role::Optimizer),
        buffers: executor.bytes_of(Role::Buffer),
        ..MemoryReport::default()
    }
}

fn scalar(executor: &Executor, id: GlobalId) -> Result<f64> {
    let name = || executor.program().globals[id as usize].name.clone();
    let tensor = executor.global(id).ok_or_else(|| Error::run(format!("`{}` has no value", name())))?;
    tensor.f_double_value(&[]).map_err(|e| Error::run(format!("`{}`: {}", name(), libtorch::message(&e))))
}

type Named<'a> = Vec<(&'a str, &'a Tensor)>;

/// Trained and frozen parameters and persistent buffers, under their canonical names.
fn parameters(executor: &Executor) -> Result<Named<'_>> {
    let program = executor.program();
    let mut named = Vec::new();
    for parameter in &program.parameters {
        if !parameter.saved {
            continue;
        }
        let name = parameter.names.first().map_or("", String::as_str);
        if !parameter.placement.splits.is_empty() {
            return Err(Error::run(format!("cannot save `{name}`: this rank has only a part of it")));
        }
        if let Some(tensor) = executor.global(parameter.global) {
            named.push((name, tensor));
        }
    }
    Ok(named)
}

/// A gradient global carries its parameter's canonical name.
fn gradients(executor: &Executor) -> Named<'_> {
    let globals = executor.program().globals.iter().enumerate();
    globals
        .filter(|(_, global)| global.role == Role::Gradient)
        .filter_map(|(i, global)| Some((global.name.as_str(), executor.global(i as u32)?)))
        .collect()
}

fn wrote(path: &Path, tensors: &[(&str, &Tensor)], emit: &mut dyn FnMut(&Event) -> Result<()>) -> Result<()> {
    let bytes = save::write(path, tensors)?;
    emit(&Event::Wrote { path: path.to_owned(), bytes })
}
