//! The command line: every flag once, with its help.
//!
//! Imports clap and nothing of ours, so that completions and the man page come from the same definitions. What a value
//! means, and its default where it depends on the model, is decided by the command. Read [`Args`] first.

use clap::{Args as Group, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Compiles schedules for PyTorch models and trains them on libtorch.
///
/// A schedule (`.slapo`) says how a model is executed; the model itself, exported once with `torch.export`, is never
/// edited. Where a schedule is expected, a `.pt2` alone means the empty schedule.
#[derive(Debug, Parser)]
#[command(name = "slapoc", version, propagate_version = true, max_term_width = 110, disable_help_subcommand = true)]
#[command(after_help = MORE)]
pub struct Args {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

const MORE: &str = "\
Examples:
    slapoc check examples/gpt2/recompute.slapo
    slapoc apply examples/gpt2/recompute.slapo
    slapoc train examples/gpt2/recompute.slapo --data examples/gpt2/corpus.txt --steps 50

Exit codes:
    0 done, nothing to report      1 errors in a schedule, or `fmt --check` would change one
    2 the job could not be done    3 a worker failed
    101 a bug in slapoc            130 interrupted";

#[derive(Debug, Group)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// When to use colours; `auto` honours NO_COLOR and CLICOLOR_FORCE
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
    /// Only results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say more
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub verbose: bool,
    /// How to show diagnostics and results
    #[arg(long, global = true, value_name = "FORMAT", default_value = "human")]
    pub message_format: MessageFormat,
    /// Change to this folder first
    #[arg(short = 'C', long, global = true, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// No progress bar, even on a terminal
    #[arg(long, global = true)]
    pub no_progress: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MessageFormat {
    /// Excerpts with labels
    Human,
    /// One line each
    Short,
    /// One JSON object a line, on standard output
    Json,
    /// Annotations for GitHub's workflow logs, on standard output
    Github,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check schedules against their models; no side effects
    Check(Check),
    /// Compile, and show what the schedule changes
    Apply(Apply),
    /// Train a model as a schedule says
    Train(Box<Train>),
    /// Run on a simulated mesh beside the unscheduled model under libtorch\'s autograd, and compare
    Verify(Box<Verify>),
    /// Show a model: modules, parameters, inputs, operators
    Inspect(Inspect),
    /// Write schedules in the one style, in place
    Fmt(Fmt),
    /// Explain a diagnostic's code, a primitive or a schedule of the library
    Explain(Explain),
    /// What slapoc finds on this machine, for bug reports
    Doctor(Doctor),
    /// Answer an editor: the language server protocol over standard input and output
    Lsp(Lsp),
    /// Print a script that completes this command line
    Completions(Completions),
    /// Print the manual page
    Man,
}

/// What is compiled, and for which sizes.
#[derive(Clone, Debug, Group)]
pub struct Source {
    /// A schedule, `-` for standard input, or a model alone for the empty schedule
    #[arg(value_name = "SCHEDULE.slapo|MODEL.pt2")]
    pub path: PathBuf,
    #[command(flatten)]
    pub binding: Binding,
    #[command(flatten, next_help_heading = "Lints")]
    pub levels: Levels,
}

/// What is said of schedules that may be so and probably are not meant so. A lint goes by its name or its code.
#[derive(Clone, Debug, Default, Group)]
pub struct Levels {
    /// Say nothing of this: unused-import, S1101, … or `warnings` for all
    #[arg(short = 'A', long, value_name = "LINT")]
    pub allow: Vec<String>,
    /// Warn of this, although it is off by default
    #[arg(short = 'W', long, value_name = "LINT")]
    pub warn: Vec<String>,
    /// Let this be an error
    #[arg(short = 'D', long, value_name = "LINT")]
    pub deny: Vec<String>,
}

/// What a schedule is put on.
#[derive(Clone, Debug, Group)]
pub struct Binding {
    /// Use this model instead of the schedule's own
    #[arg(long, value_name = "MODEL.pt2")]
    pub model: Option<PathBuf>,
    /// Rows of one step, over all ranks and micro-batches
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub batch: Option<i64>,
    /// Length of the sequence
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub seq: Option<i64>,
    /// Number of ranks; axes that are `auto` take what the others leave
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub world: Option<i64>,
    /// Give a knob of the schedule this value, `blocks.tp.ratio` for one of a module; once for every knob
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    pub set: Vec<(String, String)>,
    /// Start with this schedule of the file instead of `main`
    #[arg(long, value_name = "NAME")]
    pub schedule: Option<String>,
    /// What `-` is called in messages; the schedule's model is looked for beside it
    #[arg(long, value_name = "PATH")]
    pub stdin_filename: Option<PathBuf>,
}

/// Choices of a run that change what is compiled.
#[derive(Debug, Group)]
pub struct Compile {
    /// Treat every dropout probability as 0
    #[arg(long)]
    pub no_dropout: bool,
    /// Compute in this type instead of the model's floating-point types
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<FloatType>,
    #[arg(long, default_value = "adamw")]
    pub optimizer: Optimizer,
    /// Learning rate
    #[arg(long, value_name = "X", default_value_t = 1e-3, value_parser = not_negative)]
    pub lr: f64,
    /// Default 0.01 for adamw, 0 for sgd
    #[arg(long, value_name = "X", value_parser = not_negative)]
    pub weight_decay: Option<f64>,
    /// Decay rates of adamw's two moments
    #[arg(long, value_name = "A,B", default_value = "0.9,0.999", value_parser = betas)]
    pub betas: Betas,
    /// Added to adamw's denominator
    #[arg(long, value_name = "X", default_value_t = 1e-8, value_parser = not_negative)]
    pub eps: f64,
    /// Scale all gradients together to this norm at most
    #[arg(long, value_name = "NORM", value_parser = positive)]
    pub clip: Option<f64>,
    /// Decides initial values and dropout
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

#[derive(Debug, Group)]
pub struct Check {
    /// Schedules, models, and folders, of which every schedule is checked; `-` for standard input
    #[arg(value_name = "PATH", default_value = ".")]
    pub paths: Vec<PathBuf>,
    /// Make the fixes that are surely right, and check again
    #[arg(long)]
    pub fix: bool,
    /// With --fix, write nothing: show what would change, as a unified diff
    #[arg(long, requires = "fix")]
    pub diff: bool,
    #[command(flatten)]
    pub binding: Binding,
    #[command(flatten, next_help_heading = "Lints")]
    pub levels: Levels,
}

#[derive(Debug, Group)]
pub struct Apply {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten, next_help_heading = "Training options")]
    pub compile: Compile,
    /// Print one stage of the compilation instead of the report
    #[arg(long, value_name = "STAGE")]
    pub emit: Option<Stage>,
    /// Whose program and memory are shown
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    pub rank: i64,
    /// Leave out statements of the entry behind this line
    #[arg(long, value_name = "LINE", value_parser = clap::value_parser!(u32).range(1..))]
    pub until: Option<u32>,
    /// Write program.json, steps.json and report.json into this folder
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// What the schedule does, one primitive on one target a line
    Steps,
    /// The model's graph with concrete sizes
    Graph,
    /// Forward and backward
    Joint,
    /// How every axis of the mesh holds every value of forward and backward
    Layouts,
    /// What a rank executes
    Program,
    /// The same as the worker reads it
    ProgramJson,
    /// The same as PyTorch code, for reading
    Torch,
}

#[derive(Debug, Group)]
pub struct Verify {
    #[command(flatten)]
    pub source: Source,
    /// Text or .safetensors, as for train; random tokens with ragged labels and masks without it
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: u64,
    #[command(flatten, next_help_heading = "Training options")]
    pub compile: Compile,
    /// Initialise parameters instead of reading the model's weights
    #[arg(long)]
    pub init: bool,
    /// As for train; verify always has one thread and sums in rank order
    #[arg(long)]
    pub deterministic: bool,
}

#[derive(Debug, Group)]
pub struct Train {
    #[command(flatten)]
    pub source: Source,
    /// Text (every byte a token), or .safetensors with one tensor per input
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: u64,
    #[command(flatten, next_help_heading = "Training options")]
    pub compile: Compile,
    /// Initialise parameters (normal 0.02, biases 0, norm weights 1) instead of reading the model's weights
    #[arg(long)]
    pub init: bool,
    /// Start N ranks on this machine, as many as the mesh has
    #[arg(long, visible_alias = "nproc-per-node", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub nproc: Option<u32>,
    /// How long a rank waits for another
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub timeout: u64,
    /// Try every collective between ranks on known answers first
    #[arg(long)]
    pub self_test: bool,
    /// Run all ranks in one process, in lock step; for tests
    #[arg(long, hide = true, conflicts_with = "nproc")]
    pub simulate: bool,
    /// Threads per rank; by default the ranks of a machine share its cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Option<u32>,
    /// Equal bits on every run: one thread, fixed orders of summation
    #[arg(long, conflicts_with = "threads")]
    pub deterministic: bool,
    /// Write the first step's gradients, before clipping
    #[arg(long, value_name = "FILE.safetensors", help_heading = "Output files")]
    pub dump_gradients: Option<PathBuf>,
    /// Write the trained parameters
    #[arg(long, value_name = "FILE.safetensors", help_heading = "Output files")]
    pub save: Option<PathBuf>,
    /// Write every event as a JSON line
    #[arg(long, value_name = "FILE.jsonl", help_heading = "Output files")]
    pub log: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FloatType {
    #[value(name = "f64", alias = "float64", alias = "double")]
    F64,
    #[value(name = "f32", alias = "float32", alias = "float")]
    F32,
    #[value(name = "bf16", alias = "bfloat16")]
    BF16,
    #[value(name = "f16", alias = "float16", alias = "half")]
    F16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Optimizer {
    #[value(name = "adamw")]
    AdamW,
    #[value(name = "sgd")]
    Sgd,
}

/// `0.9,0.999`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Betas(pub f64, pub f64);

#[derive(Debug, Group)]
pub struct Inspect {
    #[arg(value_name = "MODEL.pt2")]
    pub model: PathBuf,
    /// The same as JSON
    #[arg(long)]
    pub json: bool,
    /// Only the inputs and outputs of this module, as `input(n)` and `output(n)` count them
    #[arg(long, value_name = "PATH", conflicts_with = "json")]
    pub module: Option<String>,
    /// Only where this occurs: a pattern of std.fusion by its name, or an expression such as 'gelu(x + b)'
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["json", "module"])]
    pub find: Option<String>,
}

#[derive(Debug, Group)]
pub struct Fmt {
    /// Schedules, and folders, of which every schedule is formatted; `-` for standard input, to standard output
    #[arg(value_name = "PATH", default_value = ".")]
    pub paths: Vec<PathBuf>,
    /// Write nothing: name the schedules that are not formatted, and exit with 1 if there are any
    #[arg(long)]
    pub check: bool,
    /// Write nothing: show what would change, as a unified diff
    #[arg(long)]
    pub diff: bool,
    /// What `-` is called in messages
    #[arg(long, value_name = "PATH")]
    pub stdin_filename: Option<PathBuf>,
}

#[derive(Debug, Group)]
pub struct Explain {
    /// S0601, checkpoint, column, …; everything there is if left out
    #[arg(value_name = "CODE|PRIMITIVE|SCHEDULE")]
    pub topic: Option<String>,
}

#[derive(Debug, Group)]
pub struct Doctor {
    /// The same as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Group)]
pub struct Lsp {
    /// What it does anyway; some editors ask for it
    #[arg(long)]
    pub stdio: bool,
}

#[derive(Debug, Group)]
pub struct Completions {
    pub shell: clap_complete::Shell,
}

/// `ratio=0.5`; what the value means depends on the knob.
fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("wants a name and a value, such as ratio=0.5")?;
    let (name, value) = (name.trim(), value.trim());
    let legal = !name.is_empty() && !value.is_empty();
    legal.then(|| (name.to_owned(), value.to_owned())).ok_or_else(|| "neither name nor value may be empty".to_owned())
}

fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

fn not_negative(text: &str) -> Result<f64, String> {
    let value = number(text)?;
    let legal = value.is_finite() && value >= 0.0;
    legal.then_some(value).ok_or_else(|| "must be 0 or more".to_owned())
}

fn positive(text: &str) -> Result<f64, String> {
    let value = number(text)?;
    let legal = value.is_finite() && value > 0.0;
    legal.then_some(value).ok_or_else(|| "must be more than 0".to_owned())
}

fn betas(text: &str) -> Result<Betas, String> {
    let (first, second) = text.split_once(',').ok_or("wants two numbers, such as 0.9,0.999")?;
    let (first, second) = (number(first.trim())?, number(second.trim())?);
    let legal = [first, second].iter().all(|beta| (0.0..1.0).contains(beta));
    legal.then_some(Betas(first, second)).ok_or_else(|| "both must be at least 0 and below 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definitions_do_not_contradict_each_other() {
        Args::command().debug_assert();
    }

    #[test]
    fn settings_have_a_name_and_a_value() {
        assert_eq!(setting("a = b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(setting("a").is_err() && setting("=1").is_err() && setting("a=").is_err());
    }

    #[test]
    fn decay_rates_come_in_pairs_below_one() {
        assert_eq!(betas("0.9, 0.95"), Ok(Betas(0.9, 0.95)));
        assert!(betas("0.9").is_err() && betas("0.9,1").is_err() && betas("a,b").is_err());
    }
}
