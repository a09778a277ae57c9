//! What a training run says while it runs: a line per step, the log, the bar, and the summary.
//!
//! Events come in, text goes out; of workers it knows only their events. In JSON the log and standard output carry the same
//! records. Read [`Training`] first.

use crate::failure::{Context, Failure, Result};
use crate::load::reason;
use crate::output::{Output, record};
use crate::units::{bytes, grouped, seconds};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use slapo_program::{Event, MemoryReport};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a run without a terminal says on standard error how far it is.
const EVERY: Duration = Duration::from_secs(60);

const HEADER: &str = "   step          loss          norm         ms    tokens/s      memory";

/// One run, from its first event to its last.
pub struct Training<'a> {
    out: &'a Output,
    plan: Plan,
    log: Option<Log>,
    bar: ProgressBar,
    began: Instant,
    spoke: Instant,
    /// Whether somebody still reads standard output.
    listened_to: bool,
    totals: Totals,
}

/// What is known before the worker starts.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub schedule: String,
    pub model: String,
    pub data: PathBuf,
    pub steps: u64,
    pub batch: i64,
    pub seq: Option<i64>,
    pub micro_batches: u32,
    pub seed: u64,
    /// Bytes at the peak of a step.
    pub predicted_memory: u64,
    /// Whether the run leaves files behind, so that it is of use with nobody reading.
    #[serde(skip)]
    pub leaves_files: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    steps: u64,
    seconds: f64,
    first_loss: f64,
    last_loss: f64,
    peak: u64,
}

/// An event's own fields, and what follows from them.
#[derive(Serialize)]
struct Step<'a> {
    #[serde(flatten)]
    event: &'a Event,
    tokens_per_second: f64,
}

/// A loss that is no number is `null`.
#[derive(Serialize)]
struct Summary {
    steps: u64,
    /// In steps, without start and files.
    seconds: f64,
    first_loss: f64,
    last_loss: f64,
    tokens_per_second: f64,
    predicted_memory: u64,
    measured_memory: u64,
}

impl Plan {
    /// Tokens of one step; rows where the model has no sequence.
    fn tokens(&self) -> f64 {
        (self.batch * self.seq.unwrap_or(1)) as f64
    }
}

impl<'a> Training<'a> {
    /// Opens the log and says what will be done.
    pub fn new(out: &'a Output, plan: Plan, log: Option<&Path>) -> Result<Training<'a>> {
        let log = log.map(Log::create).transpose()?;
        let bar = bar(out, plan.steps);
        let now = Instant::now();
        let totals = Totals::default();
        let mut training = Training { out, plan, log, bar, began: now, spoke: now, listened_to: true, totals };
        let plan = training.plan.clone();
        training.record("training", &plan)?;
        Ok(training)
    }

    /// An event that is no failure.
    pub fn event(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Ready { libtorch, threads, rows, seconds } => {
                let text = format!(
                    "libtorch {libtorch}, {}, {} rows of data, ready after {seconds:.1} s",
                    crate::render::counted(*threads as usize, "thread"),
                    grouped(*rows)
                );
                self.bar.suspend(|| self.out.note(&text));
                self.bar.set_message("");
                self.record("ready", event)?;
                self.line(HEADER)
            }
            Event::Step { step, loss, grad_norm, seconds, memory } => {
                self.totals.add(*loss, *seconds, memory);
                let rate = self.plan.tokens() / seconds.max(1e-9);
                self.record("step", &Step { event, tokens_per_second: rate })?;
                self.line(&step_line(*step, *loss, *grad_norm, *seconds, rate, memory.peak))?;
                self.progress(*step);
                Ok(())
            }
            Event::Wrote { path, bytes: size } => {
                let text = format!("wrote {} ({})", path.display(), bytes(*size));
                self.bar.suspend(|| self.out.note(&text));
                self.record("wrote", event)
            }
            Event::Done { .. } | Event::Failed { .. } => Ok(()),
        }
    }

    /// The last event as the worker sent it, for the log.
    pub fn failed(&mut self, event: &Event) -> Result<()> {
        self.bar.finish_and_clear();
        self.record("failed", event)
    }

    /// The run is over; what it came to.
    pub fn finish(mut self) -> Result<()> {
        self.bar.finish_and_clear();
        let (totals, plan) = (self.totals, &self.plan);
        let rate = plan.tokens() * totals.steps as f64 / totals.seconds.max(1e-9);
        let summary = Summary {
            steps: totals.steps,
            seconds: totals.seconds,
            first_loss: totals.first_loss,
            last_loss: totals.last_loss,
            tokens_per_second: rate,
            predicted_memory: plan.predicted_memory,
            measured_memory: totals.peak,
        };
        let off = (plan.predicted_memory as f64 / totals.peak.max(1) as f64 - 1.0) * 100.0;
        let text = format!(
            "\n{} in {}, {} {}/s, loss {:.6} to {:.6}\npeak memory {} measured, {} predicted ({off:+.1} %)",
            crate::render::counted(totals.steps as usize, "step"),
            seconds(totals.seconds),
            grouped(rate.round() as u64),
            if plan.seq.is_some() { "tokens" } else { "rows" },
            totals.first_loss,
            totals.last_loss,
            bytes(totals.peak),
            bytes(plan.predicted_memory),
        );
        self.record("summary", &summary)?;
        self.line(&text)?;
        self.log.map_or(Ok(()), Log::finish)
    }

    /// Takes the bar away, for what is said about an early end.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    pub fn steps_done(&self) -> u64 {
        self.totals.steps
    }

    fn progress(&mut self, step: u64) {
        self.bar.set_position(step);
        if !self.out.animates() && self.spoke.elapsed() > EVERY && step < self.plan.steps {
            self.spoke = Instant::now();
            let left = self.began.elapsed().as_secs_f64() / step.max(1) as f64 * (self.plan.steps - step) as f64;
            self.out.note(&format!("step {step} of {}, about {} left", self.plan.steps, seconds(left)));
        }
    }

    /// To the log, and in JSON to standard output.
    fn record(&mut self, kind: &str, content: &impl Serialize) -> Result<()> {
        let line = record(kind, content);
        if let Some(log) = &mut self.log {
            log.line(&line, self.out);
        }
        if self.out.is_json() { self.print(&line) } else { Ok(()) }
    }

    /// For people, on standard output.
    fn line(&mut self, text: &str) -> Result<()> {
        if self.out.is_json() { Ok(()) } else { self.print(text) }
    }

    fn print(&mut self, text: &str) -> Result<()> {
        if !self.listened_to {
            return Ok(());
        }
        let printed = self.bar.suspend(|| self.out.result(&format!("{text}\n")));
        match printed {
            Err(failure) if failure.message.is_empty() && self.plan.leaves_files => {
                self.listened_to = false;
                self.out.note("nobody reads standard output any more; training goes on for the files it writes");
                Ok(())
            }
            printed => printed,
        }
    }
}

impl Totals {
    fn add(&mut self, loss: f64, seconds: f64, memory: &MemoryReport) {
        if self.steps == 0 {
            self.first_loss = loss;
        }
        self.steps += 1;
        self.seconds += seconds;
        self.last_loss = loss;
        self.peak = self.peak.max(memory.peak);
    }
}

fn step_line(step: u64, loss: f64, norm: Option<f64>, seconds: f64, rate: f64, peak: u64) -> String {
    let norm = norm.map_or("-".to_owned(), |norm| format!("{norm:.6}"));
    let (milliseconds, rate, peak) = (seconds * 1e3, grouped(rate.round() as u64), bytes(peak));
    format!("{step:>7}  {loss:>12.6}  {norm:>12}  {milliseconds:>9.1}  {rate:>10}  {peak:>10}")
}

fn bar(out: &Output, steps: u64) -> ProgressBar {
    if !out.animates() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} steps, {eta} left {msg}");
    let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message("(starting the worker)");
    bar
}

/// A file of JSON lines. Training does not end for want of it: the failure is told at once and at the end.
struct Log {
    path: PathBuf,
    file: File,
    failed: Option<std::io::Error>,
}

impl Log {
    fn create(path: &Path) -> Result<Log> {
        let file = File::create(path).map_err(|e| reason(&e)).context(format!("write `{}`", path.display()))?;
        Ok(Log { path: path.to_owned(), file, failed: None })
    }

    fn line(&mut self, line: &str, out: &Output) {
        if self.failed.is_none() {
            self.failed = writeln!(self.file, "{line}").err();
            if let Some(e) = &self.failed {
                out.note(&format!("warning: the log ends here: cannot write `{}`: {}", self.path.display(), reason(e)));
            }
        }
    }

    fn finish(self) -> Result<()> {
        match self.failed {
            None => Ok(()),
            Some(e) => {
                Err(Failure::not_done(format!("the log `{}` is not complete: {}", self.path.display(), reason(&e))))
            }
        }
    }
}
