//! `slapoc train`: compile, start a worker on it, and follow it to its end.

use crate::args::{Compile, Train};
use crate::failure::{Context, Exit, Failure, Result};
use crate::launch::{self, Ending, Worker};
use crate::load::{Ready, reason};
use crate::output::Output;
use crate::prepare::{Prepared, no_model, optimizer, options, prepare};
use crate::render::counted;
use crate::training::{Initial, Plan, Training};
use slapo_core::compile::Compiled;
use slapo_core::memory::predict;
use slapo_core::schedule::Mesh;
use slapo_model::Model;
use slapo_program::{Event, FailureKind, Init, Job, Program};
use slapo_syntax::{Code, Diagnostic, ModelExcerpt};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

pub fn run(args: &Train, out: &Output) -> Result<Exit> {
    let (ready, compiled) = match prepare(&args.source, None, |loaded| options(&args.compile, loaded), out)? {
        Prepared::Stopped(exit) => return Ok(exit),
        Prepared::WithoutModel(loaded) => return Err(no_model(&loaded)),
        Prepared::Compiled(ready, compiled) => (ready, compiled),
    };
    if let Some(refusal) = more_than_one_rank(&ready.loaded.checked.mesh) {
        out.diagnostics(&ready.loaded.files, &[refusal])?;
        return Ok(Exit::NotDone);
    }
    out.close(None);
    data_exists(&args.data)?;
    args.save.iter().chain(&args.dump_gradients).try_for_each(|path| can_be_written(path))?;
    let worker = launch::find()?;
    ready.tell_defaults(out);
    out.detail(&format!("worker {} ({})", worker.path.display(), worker.by));
    let mut training = Training::new(out, plan(args, &ready, &compiled), args.log.as_deref())?;
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
fn more_than_one_rank(mesh: &Mesh) -> Option<Diagnostic> {
    let ranks = mesh.world();
    let axis = mesh.axes.iter().find(|axis| axis.size != 1)?;
    let message = format!("the mesh has {ranks} ranks, and this version trains on one");
    let here = format!("`{}` has {} ranks", axis.name, axis.size);
    let help = "make every axis 1, or `auto` without `--world`";
    Some(Diagnostic::error(Code::WorldSize, message).primary(axis.span, here).help(help))
}

/// The worker would find out too, a second later.
fn data_exists(path: &Path) -> Result<()> {
    let found = File::open(path).and_then(|file| file.metadata());
    let doing = format!("read the data `{}`", path.display());
    let found = found.map_err(|e| reason(&e)).context(Code::UnreadableData, doing)?;
    if found.is_dir() {
        return Err(Failure::not_done(Code::UnreadableData, format!("the data `{}` is a folder", path.display()))
            .help("give a file: text, or `.safetensors` with one tensor per input"));
    }
    Ok(())
}

/// What would be a pity to find out after the training.
fn can_be_written(path: &Path) -> Result<()> {
    let refuse = |why: &str| {
        Failure::not_done(Code::UnwritableFile, format!("cannot write `{}`: {why}", path.display()))
            .help("name a file in a folder that exists and can be written to")
    };
    if path.exists() && !path.is_file() {
        return Err(refuse(if path.is_dir() { "it is a folder" } else { "it is not a regular file" }));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => Err(refuse(&format!("there is no folder `{}`", folder.display()))),
        _ => Ok(()),
    }
}

fn plan(args: &Train, ready: &Ready, compiled: &Compiled) -> Plan {
    let outputs = [&args.save, &args.dump_gradients, &args.log];
    let program = &compiled.program;
    Plan {
        schedule: ready.loaded.name.clone(),
        model: ready.archive.name.clone(),
        class: ready.archive.model.modules[0].short_class().to_owned(),
        data: args.data.clone(),
        steps: args.steps,
        batch: ready.sizes.batch,
        seq: ready.sizes.seq,
        micro_batches: program.micro_batches,
        optimizer: optimizer_line(&args.compile),
        seed: args.compile.seed,
        initial: if args.init { initial_values(program, &ready.archive.model) } else { Vec::new() },
        predicted_memory: predict(program).peak(),
        clips: program.grad_norm.is_some(),
        leaves_files: outputs.iter().any(|file| file.is_some()),
    }
}

/// `adamw, lr 0.001, weight decay 0.01, clipped at norm 1`
fn optimizer_line(flags: &Compile) -> String {
    let settings = optimizer(flags);
    let name = format!("{:?}", flags.optimizer).to_lowercase();
    let clip = settings.clip.map(|norm| format!(", clipped at norm {norm}")).unwrap_or_default();
    format!("{name}, lr {}, weight decay {}{clip}", settings.lr, settings.weight_decay)
}

/// Which values which tensors of which classes begin with.
fn initial_values(program: &Program, model: &Model) -> Vec<Initial> {
    let mut found: Vec<Initial> = Vec::new();
    for parameter in &program.parameters {
        let values = match parameter.init {
            Init::Normal { std, .. } => format!("normal {std}"),
            Init::Constant(value) => value.to_string(),
            Init::Stored => continue,
        };
        let name = parameter.names.first().map_or("", String::as_str);
        let class = model.parameters.iter().find(|p| p.names.iter().any(|known| known == name));
        let class = class.map_or("", |p| model.module(p.module).short_class());
        let of = format!("{class}.{}", name.rsplit('.').next().unwrap_or_default());
        match found.iter_mut().find(|initial| initial.values == values) {
            Some(initial) => {
                initial.tensors += 1;
                if !initial.of.contains(&of) {
                    initial.of.push(of);
                }
            }
            None => found.push(Initial { values, of: vec![of], tensors: 1 }),
        }
    }
    found
}

fn job(args: &Train, ready: &Ready, program: Program) -> Result<Job> {
    let absolute = |path: &Path| -> Result<PathBuf> {
        std::path::absolute(path).map_err(|e| reason(&e)).unexpected(format!("find `{}`", path.display()))
    };
    let optional = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
    Ok(Job {
        program,
        simulated: Vec::new(),
        archive: Some(absolute(&ready.archive.path)?),
        data: absolute(&args.data)?,
        steps: args.steps,
        init: args.init,
        threads: args.threads,
        deterministic: args.deterministic,
        dump_gradients: optional(&args.dump_gradients)?,
        save: optional(&args.save)?,
        trace: None,
    })
}

fn done(training: &Training, steps: u64) -> String {
    format!("{} of {} done", training.steps_done(), counted(steps as usize, "step"))
}

fn stopped(training: &Training, steps: u64) -> Box<Failure> {
    training.clear();
    Failure::new(Exit::Interrupted, format!("interrupted: the worker is stopped, {}", done(training, steps)))
}

/// Where the worker's message decides what kind of mistake it is.
const SAID: [(&str, Code); 3] = [
    ("cannot write ", Code::UnwritableFile),
    ("cannot read ", Code::UnreadableData),
    ("cannot run the job ", Code::NoWorker),
];

/// The worker's own account, with the model's line where it is known.
pub(super) fn failure(event: &Event, model: &Model, said: &[String]) -> Box<Failure> {
    let Event::Failed { kind, message, function, instruction, operator, shapes, module, source } = event else {
        return Failure::worker(Code::RunFailed, "the worker failed");
    };
    let message = without_error_number(message);
    let code = SAID.iter().find(|(start, _)| message.starts_with(start)).map(|(_, code)| *code);
    let mut failure = match (kind, operator) {
        (FailureKind::Input, _) => Failure::not_done(code.unwrap_or(Code::UnfitData), message),
        (FailureKind::Run | FailureKind::Ranks, Some(operator)) => {
            let message = format!("`{operator}` failed: {}", message.trim_end_matches('.'));
            Failure::worker(Code::OperatorFailed, message)
        }
        (FailureKind::Run | FailureKind::Ranks, None) => Failure::worker(code.unwrap_or(Code::RunFailed), message),
    };
    if failure.code == Some(Code::NoWorker) {
        failure = failure.help(launch::ONE_VERSION);
    }
    if !shapes.is_empty() {
        failure = failure.note(format!("its tensors are {}", shapes.join(", ")));
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
        FailureKind::Run | FailureKind::Ranks => with_last_words(failure, said),
    }
}

/// `No space left on device (os error 28)` without its number.
fn without_error_number(message: &str) -> String {
    let Some(start) = message.find(" (os error ") else { return message.to_owned() };
    let end = message[start..].find(')').map_or(message.len(), |at| start + at + 1);
    format!("{}{}", &message[..start], &message[end..])
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
    let failure = Failure::worker(Code::WorkerDied, format!("the worker {ending}, {}", done(training, steps)));
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
