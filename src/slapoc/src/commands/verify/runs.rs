//! Runs of programs on one set of batches, and what they leave behind.
//!
//! Every run has one thread and sums in rank order, so that its bits depend on its programs and batches alone. Read
//! [`Bench`] first.

use crate::args::Verify;
use crate::blame::failure;
use crate::compare::Tensors;
use crate::failure::{Context, Failure, Result};
use crate::launch::{self, Worker};
use crate::load::Ready;
use crate::sample;
use safetensors::{Dtype, SafeTensors};
use slapo_core::trace::Array;
use slapo_model::Op;
use slapo_program::{CollectiveCount, Event, FailureKind, Job, Program, Trace, Value};
use slapo_syntax::Code;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// What all runs of one comparison share.
pub struct Bench<'r> {
    ready: &'r Ready,
    worker: PathBuf,
    folder: Folder,
    data: PathBuf,
    steps: u64,
    init: bool,
}

/// What a run leaves behind.
#[derive(Default)]
pub struct Outcome {
    pub losses: Vec<f64>,
    pub norms: Vec<f64>,
    pub gradients: Tensors,
    pub parameters: Tensors,
    pub collectives: Vec<CollectiveCount>,
    /// Why ranks cannot agree on what each should hold: the run ended there.
    pub at_odds: Option<String>,
}

impl<'r> Bench<'r> {
    /// The given batches, or random ones that fit `program`.
    pub fn new(args: &Verify, ready: &'r Ready, program: &Program, joint: &slapo_model::Graph) -> Result<Bench<'r>> {
        let worker = launch::find()?.path;
        let folder = Folder::new()?;
        let data = match &args.data {
            Some(path) => absolute(path)?,
            None => {
                let path = folder.0.join("batches.safetensors");
                // Where losses are means over valid tokens, some are not.
                let ragged = joint.nodes.iter().any(|node| node.op == Op::StepSum);
                let kind = sample::Kind { steps: args.steps, seed: args.compile.seed, ragged };
                sample::write(program, &kind, &path)?;
                path
            }
        };
        Ok(Bench { ready, worker, folder, data, steps: args.steps, init: args.init })
    }

    /// Trains with the programs of all ranks. `name` is of the files that are written.
    pub fn run(&self, name: &str, programs: Vec<Program>) -> Result<Outcome> {
        let gradients = self.folder.0.join(format!("{name}.gradients.safetensors"));
        let parameters = self.folder.0.join(format!("{name}.parameters.safetensors"));
        let job = Job {
            steps: self.steps,
            dump_gradients: Some(gradients.clone()),
            save: Some(parameters.clone()),
            ..self.job(programs)?
        };
        let mut outcome = self.follow(&job)?;
        if outcome.at_odds.is_none() {
            outcome.gradients = numbers(&gradients)?;
            outcome.parameters = numbers(&parameters)?;
        }
        Ok(outcome)
    }

    /// Values of the first step, by [`Trace::name`].
    pub fn trace(&self, name: &str, programs: Vec<Program>, values: Vec<Value>) -> Result<BTreeMap<String, Array>> {
        let path = self.folder.0.join(format!("{name}.trace.safetensors"));
        let trace = Some(Trace { path: path.clone(), values });
        // Ranks that disagree do so behind the trace.
        self.follow(&Job { steps: 1, trace, ..self.job(programs)? })?;
        read(&path)
    }

    fn job(&self, programs: Vec<Program>) -> Result<Job> {
        let mut programs = programs.into_iter();
        let program = programs.next().ok_or_else(|| Failure::usage("there is no program to run"))?;
        Ok(Job {
            program,
            simulated: programs.collect(),
            peers: None,
            archive: Some(absolute(&self.ready.archive.path)?),
            data: self.data.clone(),
            steps: 0,
            init: self.init,
            threads: None,
            deterministic: true,
            dump_gradients: None,
            save: None,
            trace: None,
        })
    }

    /// Runs a job to its end, or to where its ranks disagree.
    fn follow(&self, job: &Job) -> Result<Outcome> {
        let mut worker = Worker::start(&self.worker)?;
        worker.give(job)?;
        let (mut outcome, mut failed) = (Outcome::default(), None);
        while let Some(event) = worker.next()? {
            match event {
                Event::Step { loss, grad_norm, .. } => {
                    outcome.losses.push(loss);
                    outcome.norms.extend(grad_norm);
                }
                Event::Done { collectives, .. } => outcome.collectives = collectives,
                Event::Failed { .. } => failed = Some(event),
                _ => {}
            }
        }
        let (ending, said) = worker.finish()?;
        match failed {
            None => {}
            Some(Event::Failed { kind: FailureKind::Ranks, message, .. }) => {
                outcome.at_odds = Some(message);
                return Ok(outcome);
            }
            Some(event) => return Err(failure(&event, &self.ready.archive.model, &said)),
        }
        if !ending.0.success() {
            let failure = Failure::worker(Code::WorkerDied, format!("the worker {ending}"));
            return Err(said.into_iter().fold(failure, |failure, line| failure.note(line)));
        }
        Ok(outcome)
    }
}

fn numbers(path: &Path) -> Result<Tensors> {
    Ok(read(path)?.into_iter().map(|(name, array)| (name, array.values)).collect())
}

/// The floating-point tensors of a file, in float64.
fn read(path: &Path) -> Result<BTreeMap<String, Array>> {
    let doing = || format!("read `{}`, which the worker wrote", path.display());
    let bytes = std::fs::read(path).context(Code::RunFailed, doing())?;
    let file = SafeTensors::deserialize(&bytes).context(Code::RunFailed, doing())?;
    let mut arrays = BTreeMap::new();
    for (name, view) in file.tensors() {
        let values: Vec<f64> = match view.dtype() {
            Dtype::F64 => view.data().as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
            Dtype::F32 => view.data().as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
            _ => continue,
        };
        arrays.insert(name, Array { shape: view.shape().iter().map(|n| *n as i64).collect(), values });
    }
    Ok(arrays)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).unexpected(format!("find `{}`", path.display()))
}

/// A folder of this run's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("slapoc-verify-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).context(Code::UnwritableFile, format!("make `{}`", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays behind is in the system's folder for such things.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
