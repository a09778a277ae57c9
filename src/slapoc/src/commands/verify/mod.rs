//! `slapoc verify`: the compiled program on a simulated mesh beside the unscheduled model under libtorch's own autograd.
//!
//! Both run in float64 on the same batches and draw the same dropout masks. Compared are the loss and the gradient norm of
//! every step, every parameter's gradient of the first, and the parameters at the end. A schedule that claims to change no
//! bit is held to it: it also runs beside its own unscheduled program. Read [`run`] first.

mod parting;
mod runs;
mod show;
#[cfg(all(test, feature = "worker-tests"))]
mod tests;

use crate::args::{FloatType, Verify};
use crate::compare::{self, InFloat32, Row, Verdict};
use crate::failure::{Exit, Failure, Result};
use crate::load::{Loaded, Ready};
use crate::output::Output;
use crate::prepare::{Prepared, compile_with, no_model, options, prepare};
use crate::report::{KnobUsed, class, knobs};
use parting::Parting;
use runs::{Bench, Outcome};
use serde::Serialize;
use slapo_core::compile::{Compiled, Effects, Options, oracle, programs};
use slapo_core::primitives::Class;
use slapo_core::trace::traced;
use slapo_program::{CollectiveCount, DType, Program, communications, counts};
use slapo_syntax::Code;

/// More ranks are not simulated in one process.
const MOST_RANKS: i64 = 64;

/// What was compared with what, and how far apart they are.
#[derive(Serialize)]
struct Report {
    schedule: String,
    knobs: Vec<KnobUsed>,
    ranks: i64,
    micro_batches: u32,
    steps: u64,
    dropout: bool,
    /// The schedule's own claim.
    class: &'static str,
    verdict: Verdict,
    /// Beside libtorch's autograd, in float64.
    rows: Vec<Row>,
    /// Beside the compiler's own program without the schedule, where the schedule claims to change no bit.
    unscheduled: Option<Vec<Row>>,
    /// Beside libtorch's autograd in float32, where that was asked for.
    float32: Option<Vec<InFloat32>>,
    /// The first value that is another one, where the verdict is wrong.
    parting: Option<Parting>,
    /// What rank 0 communicates in one step, as the worker counted it, and as the compiler foretells it.
    collectives: Vec<CollectiveCount>,
    predicted_collectives: Vec<CollectiveCount>,
}

pub fn run(args: &Verify, out: &Output) -> Result<Exit> {
    let also_float32 = match args.compile.dtype {
        None | Some(FloatType::F64) => false,
        Some(FloatType::F32) => true,
        Some(FloatType::BF16 | FloatType::F16) => {
            let message = "verify decides in float64, where rounding and mistakes are far apart";
            return Err(Failure::usage(message).help("`--dtype f32` also shows the distances in float32"));
        }
    };
    let (ready, compiled) = match prepare(&args.source, None, |loaded| options_in(args, loaded, DType::F64), out)? {
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
    let pair =
        Pair::new(&ready, &ready.loaded.checked.effects, &compiled, &options_in(args, &ready.loaded, DType::F64))?;
    let bench = Bench::new(args, &ready, &pair.theirs, &compiled.joint.graph)?;
    let mut report = compare_runs(args, &ready, &compiled, &pair, &bench)?;
    if also_float32 {
        report.float32 = Some(float32(args, &ready, &bench)?);
    }
    show::show(&report, out)?;
    Ok(if report.verdict == Verdict::Wrong { Exit::Findings } else { Exit::Done })
}

fn options_in(args: &Verify, loaded: &Loaded, dtype: DType) -> Options {
    let mut options = options(&args.compile, loaded);
    options.model.dtype = Some(dtype);
    options
}

/// What is compared: the schedule's programs, all ranks, and the unscheduled model's under autograd.
struct Pair {
    ours: Vec<Program>,
    theirs: Program,
}

impl Pair {
    fn new(ready: &Ready, effects: &Effects, compiled: &Compiled, options: &Options) -> Result<Pair> {
        let model = &ready.archive.model;
        let ours = programs(model, compiled, effects, options).map_err(|faults| {
            Failure::usage(format!("the schedule checks, but does not compile for its ranks: {faults:?}"))
        })?;
        Ok(Pair { ours, theirs: oracle(model, compiled, effects, options) })
    }
}

fn compare_runs(args: &Verify, ready: &Ready, compiled: &Compiled, pair: &Pair, bench: &Bench) -> Result<Report> {
    let checked = &ready.loaded.checked;
    let theirs = bench.run("oracle", vec![pair.theirs.clone()])?;
    let ours = bench.run("schedule", pair.ours.clone())?;
    let rows = rows(&ours, &theirs);
    let class = class(&ready.loaded);
    let unscheduled = match class {
        Class::Exact => Some(self::rows(&ours, &unscheduled(args, ready, bench)?)),
        _ => None,
    };
    let verdict = match &unscheduled {
        // Of what claims to change no bit, none may differ.
        Some(own) if worst(own) != Verdict::Equal => Verdict::Wrong,
        Some(_) if worst(&rows) != Verdict::Wrong => Verdict::Equal,
        _ => worst(&rows),
    };
    let parting = match verdict {
        Verdict::Wrong => {
            let values = traced(&ready.archive.model, compiled, &checked.effects, &pair.ours[0], &pair.theirs);
            parting::first(bench, &values, &pair.ours, &pair.theirs)?
        }
        _ => None,
    };
    Ok(Report {
        schedule: ready.loaded.name.clone(),
        knobs: knobs(checked),
        ranks: checked.mesh.world(),
        micro_batches: checked.effects.micro_batches,
        steps: args.steps,
        dropout: !args.compile.no_dropout,
        class: class.name(),
        verdict,
        rows,
        unscheduled,
        float32: None,
        parting,
        collectives: ours.collectives,
        predicted_collectives: counts(&pair.ours[0], &communications(&pair.ours[0])),
    })
}

/// The compiler's own program of the empty schedule.
fn unscheduled(args: &Verify, ready: &Ready, bench: &Bench) -> Result<Outcome> {
    let options = options_in(args, &ready.loaded, DType::F64);
    let compiled = compile_with(ready, &Effects::default(), &options)
        .map_err(|faults| Failure::usage(format!("the model does not compile without its schedule: {faults:?}")))?;
    bench.run("unscheduled", vec![compiled.program])
}

/// The same comparison in float32: how far rounding alone may move what the schedule computes.
fn float32(args: &Verify, ready: &Ready, bench: &Bench) -> Result<Vec<InFloat32>> {
    let (effects, options) = (&ready.loaded.checked.effects, options_in(args, &ready.loaded, DType::F32));
    let compiled = compile_with(ready, effects, &options)
        .map_err(|faults| Failure::usage(format!("the schedule does not compile in float32: {faults:?}")))?;
    let pair = Pair::new(ready, effects, &compiled, &options)?;
    let theirs = bench.run("oracle-float32", vec![pair.theirs])?;
    let ours = bench.run("schedule-float32", pair.ours)?;
    Ok(rows(&ours, &theirs).into_iter().map(Row::in_float32).collect())
}

fn rows(ours: &Outcome, theirs: &Outcome) -> Vec<Row> {
    if let Some(why) = &ours.at_odds {
        return vec![compare::at_odds(why)];
    }
    let mut rows = vec![compare::numbers("loss", &ours.losses, &theirs.losses)];
    if !theirs.norms.is_empty() {
        rows.push(compare::numbers("gradient norm", &ours.norms, &theirs.norms));
    }
    rows.push(compare::tensors("gradients", &ours.gradients, &theirs.gradients));
    rows.push(compare::tensors("parameters", &ours.parameters, &theirs.parameters));
    rows
}

fn worst(rows: &[Row]) -> Verdict {
    rows.iter().map(|row| row.verdict).max().unwrap_or(Verdict::Equal)
}
