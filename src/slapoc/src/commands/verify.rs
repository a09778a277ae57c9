//! `slapoc verify`: the compiled program on a simulated mesh beside the unscheduled model under libtorch's own autograd.
//!
//! Both run in float64 on the same batches and draw the same dropout masks. Compared are the loss and the gradient norm of
//! every step, every parameter's gradient of the first, and the parameters at the end.

use crate::args::Verify;
use crate::blame::failure;
use crate::compare::{self, Row, Tensors, Verdict};
use crate::failure::{Context, Exit, Failure, Result};
use crate::launch::{self, Worker};
use crate::load::Ready;
use crate::output::Output;
use crate::prepare::{Prepared, no_model, options, prepare};
use crate::render::counted;
use crate::sample;
use safetensors::{Dtype, SafeTensors};
use serde::Serialize;
use slapo_core::compile::{Compiled, Options, oracle, programs};
use slapo_model::Op;
use slapo_program::{DType, Event, Job, Program};
use slapo_syntax::Code;
use std::path::{Path, PathBuf};

/// More ranks are not simulated in one process.
const MOST_RANKS: i64 = 64;

/// What was compared with what, and how far apart they are.
#[derive(Serialize)]
struct Report {
    schedule: String,
    ranks: i64,
    micro_batches: u32,
    steps: u64,
    dropout: bool,
    verdict: Verdict,
    rows: Vec<Row>,
}

/// What a run leaves behind.
struct Outcome {
    losses: Vec<f64>,
    norms: Vec<f64>,
    gradients: Tensors,
    parameters: Tensors,
}

pub fn run(args: &Verify, out: &Output) -> Result<Exit> {
    if args.compile.dtype.is_some() {
        return Err(Failure::usage(
            "verify computes in float64, where rounding and mistakes are far apart: leave `--dtype` out",
        ));
    }
    let in_double = |loaded: &crate::load::Loaded| {
        let mut options = options(&args.compile, loaded);
        options.model.dtype = Some(DType::F64);
        options
    };
    let (ready, compiled) = match prepare(&args.source, None, in_double, out)? {
        Prepared::Stopped(exit) => return Ok(exit),
        Prepared::WithoutModel(loaded) => return Err(no_model(&loaded)),
        Prepared::Compiled(ready, compiled) => (ready, compiled),
    };
    let ranks = ready.loaded.checked.mesh.world();
    if ranks > MOST_RANKS {
        let message = format!("the mesh has {ranks} ranks, and at most {MOST_RANKS} are simulated");
        return Err(
            Failure::not_done(Code::WorldSize, message).help("verify at smaller degrees: the check is the same at all")
        );
    }
    out.close(None);
    ready.tell_defaults(out);
    let report = compare_runs(args, &ready, &compiled, &in_double(&ready.loaded))?;
    show(&report, out)?;
    Ok(if report.verdict == Verdict::Wrong { Exit::Findings } else { Exit::Done })
}

fn compare_runs(args: &Verify, ready: &Ready, compiled: &Compiled, options: &Options) -> Result<Report> {
    let worker = launch::find()?;
    let (model, effects) = (&ready.archive.model, &ready.loaded.checked.effects);
    let folder = Folder::new()?;
    let oracle = oracle(model, compiled, effects, options);
    let data = match &args.data {
        Some(path) => absolute(path)?,
        None => {
            let path = folder.0.join("batches.safetensors");
            // Where losses are means over valid tokens, some are not.
            let ragged = compiled.joint.graph.nodes.iter().any(|node| node.op == Op::StepSum);
            let kind = sample::Kind { steps: args.steps, seed: args.compile.seed, ragged };
            sample::write(&oracle, &kind, &path)?;
            path
        }
    };
    let ranks = programs(model, compiled, effects, options).map_err(|faults| {
        Failure::usage(format!("the schedule checks, but does not compile for its ranks: {faults:?}"))
    })?;
    let mut ranks = ranks.into_iter();
    let first = ranks.next().unwrap_or_else(|| compiled.program.clone());
    let job = |name: &str, program: Program, simulated: Vec<Program>| -> Result<Job> {
        Ok(Job {
            program,
            simulated,
            peers: None,
            archive: Some(absolute(&ready.archive.path)?),
            data: data.clone(),
            steps: args.steps,
            init: args.init,
            threads: None,
            deterministic: true,
            dump_gradients: Some(folder.0.join(format!("{name}.gradients.safetensors"))),
            save: Some(folder.0.join(format!("{name}.parameters.safetensors"))),
        })
    };
    let theirs = follow(&worker.path, &job("oracle", oracle, Vec::new())?, ready)?;
    let ours = follow(&worker.path, &job("schedule", first, ranks.collect())?, ready)?;
    let mut rows = vec![compare::numbers("loss", &ours.losses, &theirs.losses)];
    if !theirs.norms.is_empty() {
        rows.push(compare::numbers("gradient norm", &ours.norms, &theirs.norms));
    }
    rows.push(compare::tensors("gradients", &ours.gradients, &theirs.gradients));
    rows.push(compare::tensors("parameters", &ours.parameters, &theirs.parameters));
    Ok(Report {
        schedule: ready.loaded.name.clone(),
        ranks: ready.loaded.checked.mesh.world(),
        micro_batches: effects.micro_batches,
        steps: args.steps,
        dropout: !args.compile.no_dropout,
        verdict: rows.iter().map(|row| row.verdict).max().unwrap_or(Verdict::Equal),
        rows,
    })
}

/// Runs a job to its end.
fn follow(worker: &Path, job: &Job, ready: &Ready) -> Result<Outcome> {
    let mut worker = Worker::start(worker)?;
    worker.give(job)?;
    let (mut losses, mut norms, mut failed) = (Vec::new(), Vec::new(), None);
    while let Some(event) = worker.next()? {
        match event {
            Event::Step { loss, grad_norm, .. } => {
                losses.push(loss);
                norms.extend(grad_norm);
            }
            Event::Failed { .. } => failed = Some(event),
            _ => {}
        }
    }
    let (ending, said) = worker.finish()?;
    if let Some(event) = failed {
        return Err(failure(&event, &ready.archive.model, &said));
    }
    if !ending.0.success() {
        let failure = Failure::worker(Code::WorkerDied, format!("the worker {ending}"));
        return Err(said.into_iter().fold(failure, |failure, line| failure.note(line)));
    }
    let written = |path: &Option<PathBuf>| path.as_deref().map_or_else(|| Ok(Tensors::new()), read);
    Ok(Outcome { losses, norms, gradients: written(&job.dump_gradients)?, parameters: written(&job.save)? })
}

fn read(path: &Path) -> Result<Tensors> {
    let doing = || format!("read `{}`, which the worker wrote", path.display());
    let bytes = std::fs::read(path).context(Code::RunFailed, doing())?;
    let file = SafeTensors::deserialize(&bytes).context(Code::RunFailed, doing())?;
    let floats = file.tensors().into_iter().filter(|(_, view)| view.dtype() == Dtype::F64);
    Ok(floats
        .map(|(name, view)| {
            let numbers = view.data().chunks_exact(8).filter_map(|b| Some(f64::from_le_bytes(b.try_into().ok()?)));
            (name, numbers.collect())
        })
        .collect())
}

fn show(report: &Report, out: &Output) -> Result<()> {
    if out.is_json() {
        return out.record("verify", report);
    }
    let dropout = if report.dropout { "dropout on" } else { "no dropout" };
    let mut text = format!(
        "{}: {}, {}, {}, {dropout}, in float64, against libtorch's autograd of the unscheduled model\n",
        report.schedule,
        counted(report.ranks as usize, "rank"),
        match report.micro_batches {
            1 => "one micro-batch".to_owned(),
            n => format!("{n} micro-batches"),
        },
        counted(report.steps as usize, "step"),
    );
    for row in &report.rows {
        let worst = if row.worst == 0.0 { String::new() } else { format!("{:.1e}", row.worst) };
        let at = row.at.as_deref().unwrap_or_default();
        text += &format!("  {:<14} {:>5}  {:<9} {worst:>8}  {at}\n", row.what, row.count, row.verdict.name());
    }
    text += match report.verdict {
        Verdict::Equal => "equal: every bit is the same\n",
        Verdict::Rounding => "right: only the order of sums differs\n",
        Verdict::Wrong => "wrong: the schedule does not compute what the model computes\n",
    };
    out.result(&text)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).unexpected(format!("find `{}`", path.display()))
}

/// A folder of this run's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder> {
        let path = std::env::temp_dir().join(format!("slapoc-verify-{}", std::process::id()));
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
