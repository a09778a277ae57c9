//! `slapoc train`: compile, start a worker on it, and follow it to its end.

use crate::args::Train;
use crate::failure::{Context, Exit, Failure, Result};
use crate::launch::{self, Ending, Worker};
use crate::load::{Ready, reason};
use crate::output::Output;
use crate::prepare::{Prepared, no_model, options, prepare};
use crate::render::counted;
use crate::training::{Plan, Training};
use slapo_core::compile::Compiled;
use slapo_core::memory::predict;
use slapo_model::Model;
use slapo_program::{Event, FailureKind, Init, Job, Program};
use slapo_syntax::ModelExcerpt;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

pub fn run(args: &Train, out: &Output) -> Result<Exit> {
    let (ready, compiled) = match prepare(&args.source, None, |loaded| options(&args.compile, loaded), out)? {
        Prepared::Stopped(exit) => return Ok(exit),
        Prepared::WithoutModel(loaded) => return Err(no_model(&loaded)),
        Prepared::Compiled(ready, compiled) => (ready, compiled),
    };
    ready.tell_defaults(out);
    one_rank(&ready)?;
    data_exists(&args.data)?;
    let worker = launch::find()?;
    out.detail(&format!("worker {} ({})", worker.path.display(), worker.by));
    if args.init {
        out.note(&initialisation(&compiled.program));
    }
    let plan = plan(args, &ready, &compiled);
    out.note(&announcement(&plan, args));
    let mut training = Training::new(out, plan, args.log.as_deref())?;
    let job = job(args, &ready, compiled.program)?;
    let mut worker = Worker::start(&worker.path)?;
    let interrupted = worker.stop_on_interrupt()?;
    worker.give(&job)?;
    let mut ended = None;
    while let Some(event) = worker.next()? {
        match event {
            Event::Failed { .. } | Event::Done { .. } => ended = Some(event),
            event => training.event(&event)?,
        }
    }
    let (ending, said) = worker.finish()?;
    if interrupted.load(Ordering::SeqCst) && !matches!(ended, Some(Event::Done { .. })) {
        return Err(stopped(&training, args.steps));
    }
    match ended {
        Some(Event::Done { .. }) => training.finish().map(|()| Exit::Done),
        Some(event) => {
            training.failed(&event)?;
            Err(failure(&event, &ready.archive.model, &said))
        }
        None => Err(died(&training, ending, &said, args.steps)),
    }
}

/// A mesh of several ranks can be checked and applied, not yet trained.
fn one_rank(ready: &Ready) -> Result<()> {
    match ready.loaded.checked.mesh.world() {
        1 => Ok(()),
        ranks => Err(Failure::not_done(format!("the mesh has {ranks} ranks, and this version trains on one"))
            .help("make every axis 1, or `auto` without `--world`")),
    }
}

/// The worker would find out too, a second later.
fn data_exists(path: &Path) -> Result<()> {
    let found = File::open(path).and_then(|file| file.metadata());
    let found = found.map_err(|e| reason(&e)).context(format!("read the data `{}`", path.display()))?;
    if found.is_dir() {
        return Err(Failure::not_done(format!("the data `{}` is a folder", path.display()))
            .help("give a file: text, or `.safetensors` with one tensor per input"));
    }
    Ok(())
}

fn plan(args: &Train, ready: &Ready, compiled: &Compiled) -> Plan {
    let outputs = [&args.save, &args.dump_gradients, &args.log];
    Plan {
        schedule: ready.loaded.name.clone(),
        model: ready.archive.name.clone(),
        data: args.data.clone(),
        steps: args.steps,
        batch: ready.sizes.batch,
        seq: ready.sizes.seq,
        micro_batches: compiled.program.micro_batches,
        seed: args.compile.seed,
        predicted_memory: predict(&compiled.program).peak(),
        leaves_files: outputs.iter().any(|file| file.is_some()),
    }
}

fn announcement(plan: &Plan, args: &Train) -> String {
    let seq = plan.seq.map(|seq| format!(", seq {seq}")).unwrap_or_default();
    let micro = match plan.micro_batches {
        1 => String::new(),
        n => format!(" in {n} micro-batches"),
    };
    let optimizer = format!("{:?}", args.compile.optimizer).to_lowercase();
    format!(
        "training {} on {}: {}, batch {}{micro}{seq}, {optimizer} lr {}, seed {}, {} predicted",
        plan.schedule,
        plan.data.display(),
        counted(plan.steps as usize, "step"),
        plan.batch,
        args.compile.lr,
        plan.seed,
        crate::units::bytes(plan.predicted_memory)
    )
}

/// How many tensors get which values.
fn initialisation(program: &Program) -> String {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for parameter in &program.parameters {
        let kind = match parameter.init {
            Init::Normal { std, .. } => format!("normal {std}"),
            Init::Constant(value) => format!("constant {value}"),
            Init::Stored => continue,
        };
        *kinds.entry(kind).or_default() += 1;
    }
    let shown: Vec<String> =
        kinds.iter().map(|(kind, count)| format!("{} {kind}", counted(*count, "tensor"))).collect();
    format!("initial values: {}", shown.join(", "))
}

fn job(args: &Train, ready: &Ready, program: Program) -> Result<Job> {
    let absolute = |path: &Path| -> Result<PathBuf> {
        std::path::absolute(path).map_err(|e| reason(&e)).context(format!("find `{}`", path.display()))
    };
    let optional = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
    Ok(Job {
        program,
        archive: Some(absolute(&ready.archive.path)?),
        data: absolute(&args.data)?,
        steps: args.steps,
        init: args.init,
        threads: args.threads,
        deterministic: args.deterministic,
        dump_gradients: optional(&args.dump_gradients)?,
        save: optional(&args.save)?,
    })
}

fn done(training: &Training, steps: u64) -> String {
    format!("{} of {} done", training.steps_done(), counted(steps as usize, "step"))
}

fn stopped(training: &Training, steps: u64) -> Box<Failure> {
    training.clear();
    Failure::new(Exit::Interrupted, format!("interrupted: the worker is stopped, {}", done(training, steps)))
}

/// The worker's own account, with the model's line where it is known.
fn failure(event: &Event, model: &Model, said: &[String]) -> Box<Failure> {
    let Event::Failed { kind, message, function, instruction, operator, shapes, module, source } = event else {
        return Failure::new(Exit::WorkerFailed, "the worker failed");
    };
    let exit = match kind {
        FailureKind::Input => Exit::NotDone,
        FailureKind::Run => Exit::WorkerFailed,
    };
    let mut failure = Failure::new(exit, message.clone());
    if let Some(operator) = operator {
        let of = if shapes.is_empty() { String::new() } else { format!(" of {}", shapes.join(", ")) };
        failure = failure.note(format!("while running `{operator}`{of}"));
    }
    if let Some(function) = function {
        let number = instruction.map(|n| format!("instruction {n} of ")).unwrap_or_default();
        failure = failure.note(format!("in {number}`{function}`"));
    }
    if let Some(module) = module.as_ref().filter(|module| !module.is_empty()) {
        failure = failure.note(format!("in module `{module}`"));
    }
    failure.excerpt = source.as_deref().and_then(|place| excerpt(model, place));
    match kind {
        FailureKind::Input => failure,
        FailureKind::Run => with_last_words(failure, said),
    }
}

/// The line at `file:line` as the archive carries it.
fn excerpt(model: &Model, place: &str) -> Option<ModelExcerpt> {
    let (file, line) = place.rsplit_once(':')?;
    let line: u32 = line.parse().ok()?;
    let known = model.sources.iter().find(|source| source.file == file && source.line == line);
    let source = known.map(|source| source.text.clone()).unwrap_or_default();
    Some(ModelExcerpt { file: file.to_owned(), line, source, label: String::new() })
}

fn died(training: &Training, ending: Ending, said: &[String], steps: u64) -> Box<Failure> {
    training.clear();
    let failure = Failure::new(Exit::WorkerFailed, format!("the worker {ending}, {}", done(training, steps)));
    let failure = with_last_words(failure, said);
    match ending.hint() {
        Some(hint) => failure.help(hint),
        None => failure,
    }
}

fn with_last_words(failure: Box<Failure>, said: &[String]) -> Box<Failure> {
    if said.is_empty() {
        return failure;
    }
    failure.note(format!("the worker's last words:\n{}", said.join("\n")))
}
