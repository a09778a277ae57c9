//! What a training run says while it runs: a line per step, the log, the bar, and the summary.
//!
//! Events come in, text goes out; of workers it knows only their events. In JSON the log and standard output carry the same
//! records. Read [`Training`] first.

use crate::failure::{Context, Failure, Result};
use crate::load::reason;
use crate::output::{Output, VERSION, record};
use crate::render::counted;
use crate::report::KnobUsed;
use crate::units::{bytes, grouped, seconds};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use slapo_program::{CollectiveCount, Event, MemoryReport};
use slapo_syntax::Code;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a run without a terminal says on standard error how far it is.
const EVERY: Duration = Duration::from_secs(60);

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
    pub knobs: Vec<KnobUsed>,
    pub model: String,
    pub class: String,
    pub data: PathBuf,
    pub steps: u64,
    pub batch: i64,
    pub seq: Option<i64>,
    pub micro_batches: u32,
    pub optimizer: String,
    pub seed: u64,
    /// Empty where parameters begin as the archive has them.
    pub initial: Vec<Initial>,
    /// Bytes at the peak of a step.
    pub predicted_memory: u64,
    /// Whether the norm of all gradients is computed.
    #[serde(skip)]
    pub clips: bool,
    /// Whether the run leaves files behind, so that it is of use with nobody reading.
    #[serde(skip)]
    pub leaves_files: bool,
}

/// Tensors that begin with the same values.
#[derive(Clone, Debug, Serialize)]
pub struct Initial {
    /// `normal 0.02`, `1`
    pub values: String,
    /// Such as `Conv1D.weight`.
    pub of: Vec<String>,
    pub tensors: usize,
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
struct Summary<'a> {
    steps: u64,
    /// In steps, without start and files.
    seconds: f64,
    first_loss: f64,
    last_loss: f64,
    tokens_per_second: f64,
    predicted_memory: u64,
    measured_memory: u64,
    /// Of rank 0 in one step.
    collectives: &'a [CollectiveCount],
}

impl Plan {
    /// Tokens of one step; rows where the model has no sequence.
    fn tokens(&self) -> f64 {
        (self.batch * self.seq.unwrap_or(1)) as f64
    }

    /// What tokens are called.
    fn unit(&self) -> &'static str {
        if self.seq.is_some() { "tokens" } else { "rows" }
    }

    /// For people, before the worker starts.
    fn announcement(&self) -> String {
        let on = if self.schedule == self.model { String::new() } else { format!(" ({})", self.model) };
        let micro = match self.micro_batches {
            1 => String::new(),
            n => format!(" in {n} micro-batches"),
        };
        let seq = self.seq.map(|seq| format!(", seq {seq}")).unwrap_or_default();
        let mut lines = vec![
            ("training", format!("{} on {}{on}", self.schedule, self.class)),
            ("data", self.data.display().to_string()),
            ("batch", format!("{}{micro}{seq}, {}", self.batch, counted(self.steps as usize, "step"))),
            ("optimizer", format!("{}, seed {}", self.optimizer, self.seed)),
        ];
        let width = self.initial.iter().map(|initial| initial.values.len()).max().unwrap_or(0);
        for (i, Initial { values, of, tensors }) in self.initial.iter().enumerate() {
            let name = if i == 0 { "initial" } else { "" };
            lines.push((name, format!("{values:<width$}  {} ({})", of.join(", "), counted(*tensors, "tensor"))));
        }
        if self.initial.is_empty() {
            lines.push(("initial", format!("as {} has them", self.model)));
        }
        lines.push(("memory", format!("{} predicted at the peak of a step", bytes(self.predicted_memory))));
        lines.iter().map(|(name, text)| row(name, text)).collect::<Vec<_>>().join("\n")
    }
}

impl<'a> Training<'a> {
    /// Opens the log and says what will be done.
    pub fn new(out: &'a Output, plan: Plan, log: Option<&Path>) -> Result<Training<'a>> {
        let log = log.map(Log::create).transpose()?;
        out.note(&plan.announcement());
        let bar = bar(out, plan.steps);
        let now = Instant::now();
        let totals = Totals::default();
        let mut training = Training { out, plan, log, bar, began: now, spoke: now, listened_to: true, totals };
        let plan = training.plan.clone();
        if let Some(log) = &mut training.log {
            log.line(&record("version", &VERSION), out);
        }
        training.record("training", &plan)?;
        Ok(training)
    }

    /// An event that is no failure.
    pub fn event(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Ready { libtorch, threads, rows, seconds } => {
                let text = format!(
                    "libtorch {libtorch}, {}, {} rows of data, ready after {seconds:.1} s",
                    counted(*threads as usize, "thread"),
                    grouped(*rows)
                );
                self.bar.suspend(|| self.out.note(&row("worker", &text)));
                self.bar.set_message("");
                self.record("ready", event)?;
                self.line(&self.step_header())
            }
            Event::Step { step, loss, grad_norm, seconds, memory } => {
                self.totals.add(*loss, *seconds, memory);
                let rate = self.plan.tokens() / seconds.max(1e-9);
                self.record("step", &Step { event, tokens_per_second: rate })?;
                self.line(&self.step_line(*step, *loss, *grad_norm, *seconds, rate, memory.peak))?;
                self.progress(*step);
                Ok(())
            }
            Event::Wrote { path, bytes: size } => {
                let text = format!("wrote {} ({})", path.display(), bytes(*size));
                self.bar.suspend(|| self.out.note(&text));
                self.record("wrote", event)
            }
            Event::Listening { .. } | Event::Done { .. } | Event::Failed { .. } => Ok(()),
        }
    }

    /// The last event as the worker sent it, for the log.
    pub fn failed(&mut self, event: &Event) -> Result<()> {
        self.bar.finish_and_clear();
        self.record("failed", event)
    }

    /// The run is over; what it came to. `last` is the last event.
    pub fn finish(mut self, last: &Event) -> Result<()> {
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
            collectives: match last {
                Event::Done { collectives, .. } => collectives,
                _ => &[],
            },
        };
        let text = format!(
            "\n{} in {}, {} {}/s, loss {:.6} to {:.6}\npeak memory {} measured, {} predicted{}",
            counted(totals.steps as usize, "step"),
            seconds(totals.seconds),
            grouped(rate.round() as u64),
            plan.unit(),
            totals.first_loss,
            totals.last_loss,
            bytes(totals.peak),
            bytes(plan.predicted_memory),
            off(plan.predicted_memory, totals.peak),
        );
        self.record("summary", &summary)?;
        self.line(&text)?;
        self.log.map_or(Ok(()), Log::finish)
    }

    /// Takes the bar away, for what is said about an early end.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// `3 of 100 steps done`
    pub fn done(&self) -> String {
        format!("{} of {} done", self.totals.steps, counted(self.plan.steps as usize, "step"))
    }

    fn step_header(&self) -> String {
        let norm = if self.plan.clips { "          norm" } else { "" };
        let rate = format!("{}/s", self.plan.unit());
        format!("   step          loss{norm}         ms  {rate:>10}      memory")
    }

    fn step_line(&self, step: u64, loss: f64, norm: Option<f64>, seconds: f64, rate: f64, peak: u64) -> String {
        let norm = norm.filter(|_| self.plan.clips).map(|norm| format!("  {norm:>12.6}")).unwrap_or_default();
        let (milliseconds, rate, peak) = (seconds * 1e3, grouped(rate.round() as u64), bytes(peak));
        format!("{step:>7}  {loss:>12.6}{norm}  {milliseconds:>9.1}  {rate:>10}  {peak:>10}")
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

/// ` (-0.5 %)`, where that is not nothing.
fn off(predicted: u64, measured: u64) -> String {
    let percent = (predicted as f64 / measured.max(1) as f64 - 1.0) * 100.0;
    if percent.abs() < 0.05 { String::new() } else { format!(" ({percent:+.1} %)") }
}

fn row(name: &str, text: &str) -> String {
    format!("{name:<12}{text}")
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
        let file = File::create(path)
            .map_err(|e| reason(&e))
            .context(Code::UnwritableFile, format!("write `{}`", path.display()))?;
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
                let message = format!("the log `{}` is not complete: {}", self.path.display(), reason(&e));
                Err(Failure::not_done(Code::UnwritableFile, message))
            }
        }
    }
}
