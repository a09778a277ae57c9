//! `slapoc train`: compile, start a worker for each rank, and follow them to their end.
//!
//! All ranks of a mesh are started here (`--nproc`), or this process is one of them and a launcher started the others.

use crate::args::{Binding, Compile, Source, Train};
use crate::blame::{Started, blame};
use crate::failure::{Context, Exit, Failure, Result};
use crate::launch;
use crate::launcher::{self, Place};
use crate::load::{Ready, reason};
use crate::output::Output;
use crate::prepare::{Prepared, no_model, optimizer, options, prepare};
use crate::ranks::{End, Ranks, What};
use crate::training::{Initial, Plan, Training};
use slapo_core::compile::{Compiled, program_of, programs};
use slapo_core::memory::predict;
use slapo_core::schedule::Mesh;
use slapo_model::Model;
use slapo_program::{Init, Job, Peers, Program};
use slapo_syntax::{Code, Diagnostic};
use std::fs::File;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

pub fn run(args: &Train, out: &Output) -> Result<Exit> {
    let place = launched(args)?;
    let muted;
    let out = match &place {
        Some(place) if place.rank > 0 => {
            muted = out.muted();
            &muted
        }
        _ => out,
    };
    let world = place.as_ref().map(|place| place.world).or(args.nproc);
    let source = with_world(&args.source, world)?;
    let (ready, compiled) = match prepare(&source, None, |loaded| options(&args.compile, loaded), out)? {
        Prepared::Stopped(exit) => return Ok(exit),
        Prepared::WithoutModel(loaded) => return Err(no_model(&loaded)),
        Prepared::Compiled(ready, compiled) => (ready, compiled),
    };
    if let Some(refusal) = more_than_one_rank(&ready.loaded.checked.mesh, world.is_some() || args.simulate) {
        out.diagnostics(&ready.loaded.files, &[refusal])?;
        return Ok(Exit::NotDone);
    }
    out.close(None);
    data_exists(&args.data)?;
    let writes = place.as_ref().is_none_or(|place| place.rank == 0);
    args.save.iter().chain(&args.dump_gradients).filter(|_| writes).try_for_each(|path| can_be_written(path))?;
    let worker = launch::find()?;
    ready.tell_defaults(out);
    out.detail(&format!("worker {} ({})", worker.path.display(), worker.by));
    let log = args.log.as_deref().filter(|_| writes);
    let mut training = Training::new(out, plan(args, &ready, &compiled), log)?;
    let started = Started {
        first: place.as_ref().map_or(0, |place| place.rank),
        count: if place.is_some() { 1 } else { args.nproc.unwrap_or(1) },
        world: world.unwrap_or(1),
    };
    let jobs = jobs(args, &ready, &compiled, &started, place.as_ref())?;
    let ranks = Ranks::start(&worker.path, jobs.len())?;
    let interrupted = ranks.stop_on_interrupt()?;
    let end = ranks.follow(jobs, &mut |event| training.event(event))?;
    if interrupted.load(Ordering::SeqCst) && !matches!(end, End::Done(_)) {
        return Err(stopped(&training, &started));
    }
    match end {
        End::Done(last) => training.finish(&last).map(|()| Exit::Done),
        End::Failed(cause) => {
            if let What::Told(event) | What::Silent(event) = &cause.what {
                training.failed(event)?;
            }
            training.clear();
            let mut failure = blame(&cause, &started, &training.done(), &ready.archive.model);
            if started.first > 0 && failure.code == Some(Code::RanksDiffer) {
                // Rank 0 tells.
                failure.message.clear();
            }
            Err(failure)
        }
    }
}

/// What a launcher made of this process.
fn launched(args: &Train) -> Result<Option<Place>> {
    if args.simulate {
        return Ok(None);
    }
    let place = launcher::place(|name| std::env::var(name).ok())?;
    match (place, args.nproc) {
        (Some(place), Some(_)) if place.may_be_script() => Ok(None),
        (Some(Place { by, rank, world, .. }), Some(nproc)) => {
            let message = format!("`--nproc {nproc}` starts all ranks, and by `{by}` this is rank {rank} of {world}");
            Err(Failure::not_done(Code::LaunchVariables, message)
                .help("under a launcher leave `--nproc` out; without one, unset its variables"))
        }
        (place, _) => Ok(place),
    }
}

/// The number of ranks that are started is the world.
fn with_world(source: &Source, world: Option<u32>) -> Result<Source> {
    let world = world.map(i64::from);
    match (world, source.binding.world) {
        (Some(started), Some(given)) if started != given => {
            Err(Failure::usage(format!("`--world {given}` and {started} ranks: leave `--world` out")))
        }
        (started, given) => {
            Ok(Source { binding: Binding { world: started.or(given), ..source.binding.clone() }, ..source.clone() })
        }
    }
}

/// Nobody starts many processes without saying so.
fn more_than_one_rank(mesh: &Mesh, is_said: bool) -> Option<Diagnostic> {
    let ranks = mesh.world();
    let axis = mesh.axes.iter().find(|axis| axis.size != 1).filter(|_| !is_said)?;
    let message = format!("the mesh has {ranks} ranks, and nothing says who starts them");
    let here = format!("`{}` has {} ranks", axis.name, axis.size);
    let help =
        format!("`slapoc train --nproc {ranks}` starts all on this machine; torchrun, srun and mpirun start them, too");
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
        knobs: crate::report::knobs(&ready.loaded.checked),
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

/// One job for each worker that is started here.
fn jobs(
    args: &Train,
    ready: &Ready,
    compiled: &Compiled,
    started: &Started,
    place: Option<&Place>,
) -> Result<Vec<Job>> {
    let (model, effects) = (&ready.archive.model, &ready.loaded.checked.effects);
    let options = options(&args.compile, &ready.loaded);
    let faulty =
        |faults| Failure::usage(format!("the schedule checks, but does not compile for its ranks: {faults:?}"));
    if args.simulate {
        let mut ranks = programs(model, compiled, effects, &options).map_err(faulty)?.into_iter();
        let first = ranks.next().unwrap_or_else(|| compiled.program.clone());
        return Ok(vec![Job { simulated: ranks.collect(), ..job(args, ready, first)? }]);
    }
    if started.world == 1 {
        return Ok(vec![job(args, ready, compiled.program.clone())?]);
    }
    let local = place.map_or(Some(started.count), |place| place.local);
    (started.first..started.first + started.count)
        .map(|rank| {
            let program = program_of(model, compiled, effects, &options, i64::from(rank)).map_err(faulty)?;
            let job = job(args, ready, program)?;
            let threads = job.threads.or_else(|| share_of_cores(local?));
            Ok(Job { threads, peers: Some(peers(args, rank, started.world, place)), ..job })
        })
        .collect()
}

/// Where a rank meets the others: where the launcher says, or at a port that rank 0 finds free.
fn peers(args: &Train, rank: u32, world: u32, place: Option<&Place>) -> Peers {
    Peers {
        rank,
        world,
        host: place.map_or("127.0.0.1", |place| &place.host).to_owned(),
        port: place.map_or(0, |place| place.port),
        serve: place.is_none_or(|place| place.serve),
        prefix: place.map_or("slapo", |place| &place.prefix).to_owned(),
        timeout: args.timeout,
        self_test: args.self_test,
    }
}

/// Threads of one of several ranks on this machine; none where the environment says how many.
fn share_of_cores(ranks: u32) -> Option<u32> {
    if std::env::var_os("OMP_NUM_THREADS").is_some() {
        return None;
    }
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    u32::try_from(cores).ok().map(|cores| (cores / ranks.max(1)).max(1))
}

fn job(args: &Train, ready: &Ready, program: Program) -> Result<Job> {
    let absolute = |path: &Path| -> Result<PathBuf> {
        std::path::absolute(path).map_err(|e| reason(&e)).unexpected(format!("find `{}`", path.display()))
    };
    let optional = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
    Ok(Job {
        program,
        simulated: Vec::new(),
        peers: None,
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

fn stopped(training: &Training, started: &Started) -> Box<Failure> {
    training.clear();
    let workers = if started.count == 1 { "the worker is" } else { "the workers are" };
    Failure::new(Exit::Interrupted, format!("interrupted: {workers} stopped, {}", training.done()))
}
