//! One training run: a [`Job`] comes in, [`Event`]s go out.
//!
//! Owns the order of things around the program: weights, setup, data, steps, reports, files. What a step computes is the
//! program's business, and how many ranks do it the mesh's. Read [`run`] first.

use crate::allocator;
use crate::data::DataSet;
use crate::error::{Error, Result};
use crate::mesh::Mesh;
use crate::processes::Processes;
use crate::{agreement, libtorch, save, self_test};
use slapo_program::{Call, Event, FunctionKind, Job, MemoryReport, Peers, Role, Trace};
use std::path::Path;
use std::time::Instant;
use tch::Tensor;

/// Runs the job to its end. An error is not reported as an event here: see [`Error::event`].
pub fn run(job: Job, emit: &mut dyn FnMut(&Event) -> Result<()>) -> Result<()> {
    let began = Instant::now();
    allocator::install();
    configure(&job)?;
    if job.peers.as_ref().is_none_or(|peers| peers.rank == 0) {
        job.save.iter().chain(&job.dump_gradients).try_for_each(|path| save::check_target(path))?;
    }
    let data = DataSet::open(&job.data, &job.program)?;
    let others = job.peers.as_ref().map(|peers| join(peers, &job, &data, emit)).transpose()?;
    let mut mesh = match others {
        Some(others) => Mesh::of_process(job.program, others),
        None => Mesh::new(std::iter::once(job.program).chain(job.simulated).collect()),
    }?;
    mesh.load(job.archive.as_deref(), job.init)?;
    mesh.setup()?;
    emit(&Event::Ready {
        libtorch: libtorch::version(),
        threads: libtorch::threads(),
        rows: data.rows(),
        seconds: began.elapsed().as_secs_f64(),
    })?;
    let training = Instant::now();
    let outputs = Outputs { gradients: job.dump_gradients.as_deref(), trace: job.trace.as_ref() };
    for step in 0..job.steps {
        let outputs = if step == 0 { outputs } else { Outputs::default() };
        one_step(&mut mesh, &data, step, outputs, emit)?;
    }
    let trained = job.save.as_ref().map(|_| mesh.parameters()).transpose()?;
    mesh.leave()?;
    if let (Some(path), Some(tensors), true) = (&job.save, trained, mesh.has_first()) {
        wrote(path, &tensors, emit)?;
    }
    emit(&Event::Done { steps: job.steps, seconds: training.elapsed().as_secs_f64(), collectives: mesh.collectives() })
}

/// Meets the ranks that are other processes.
fn join(peers: &Peers, job: &Job, data: &DataSet, emit: &mut dyn FnMut(&Event) -> Result<()>) -> Result<Processes> {
    let facts = agreement::facts(job, data)?;
    let others = Processes::join(peers, &job.program, &facts, job.deterministic, emit)?;
    if peers.self_test || cfg!(debug_assertions) {
        self_test::run(&others, job.program.mesh.len())?;
    }
    Ok(others)
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

/// What a step leaves behind beside its event.
#[derive(Clone, Copy, Default)]
struct Outputs<'j> {
    gradients: Option<&'j Path>,
    trace: Option<&'j Trace>,
}

fn one_step(
    mesh: &mut Mesh,
    data: &DataSet,
    step: u64,
    outputs: Outputs,
    emit: &mut dyn FnMut(&Event) -> Result<()>,
) -> Result<()> {
    let began = Instant::now();
    allocator::reset_peak();
    for (global, tensor) in data.batch(step)? {
        mesh.set_global(global, &tensor)?;
    }
    mesh.begin_step(step)?;
    if let Some(trace) = outputs.trace {
        mesh.trace(trace);
    }
    let calls = mesh.program().step.clone();
    let updates = |call: &Call| mesh.program().functions[call.function as usize].kind == FunctionKind::Optimizer;
    let backward_ends = calls.iter().position(updates).unwrap_or(calls.len());
    let (differentiate, update) = calls.split_at(backward_ends);
    for call in differentiate {
        mesh.call(*call)?;
    }
    // Parameter gradients are complete, and nothing has used them. Whether ranks agree on them is seen behind the trace.
    if let Some(trace) = outputs.trace {
        wrote(&trace.path, &mesh.traced()?, emit)?;
    }
    let loss = mesh.scalar(mesh.program().loss)?;
    let roles = by_role(mesh);
    if let Some(path) = outputs.gradients {
        let gradients = mesh.gradients()?;
        if mesh.has_first() {
            wrote(path, &gradients, emit)?;
        }
    }
    for call in update {
        mesh.call(*call)?;
    }
    mesh.end_step();
    let grad_norm = mesh.program().grad_norm.map(|g| mesh.scalar(g)).transpose()?;
    let memory = allocator::read();
    emit(&Event::Step {
        step: step + 1,
        loss,
        grad_norm,
        seconds: began.elapsed().as_secs_f64(),
        memory: MemoryReport { current: memory.current, peak: memory.peak, ..roles },
    })
}

/// Of the first rank here.
fn by_role(mesh: &Mesh) -> MemoryReport {
    let bytes = |role| mesh.ranks()[0].bytes_of(role);
    MemoryReport {
        parameters: bytes(Role::Parameter),
        gradients: bytes(Role::Gradient),
        optimizer: bytes(Role::Optimizer),
        buffers: bytes(Role::Buffer),
        ..MemoryReport::default()
    }
}

fn wrote(path: &Path, tensors: &[(String, Tensor)], emit: &mut dyn FnMut(&Event) -> Result<()>) -> Result<()> {
    let named: Vec<(&str, &Tensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let bytes = save::write(path, &named)?;
    emit(&Event::Wrote { path: path.to_owned(), bytes })
}
