//! What `slapoc` and the worker say to each other: a [`Job`] goes in as one JSON document, [`Event`]s come out as JSON
//! lines on the worker's standard output.

use crate::{Program, Value};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One training run of one rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub program: Program,
    /// The programs of ranks 1, 2, … of a mesh that this process simulates, all ranks in lock step; for checking, not for
    /// training.
    #[serde(default)]
    pub simulated: Vec<Program>,
    /// The other ranks of the mesh, where each is a process of its own.
    #[serde(default)]
    pub peers: Option<Peers>,
    /// The archive that holds the weights; absent when every parameter is initialised.
    pub archive: Option<PathBuf>,
    /// Training data: `.safetensors` with one tensor per input (rows along dimension 0), anything else is bytes of text.
    pub data: PathBuf,
    pub steps: u64,
    /// Fill parameters by [`crate::Init`] instead of from the archive.
    pub init: bool,
    /// Intra-operator threads; `None` leaves libtorch's default.
    pub threads: Option<u32>,
    pub deterministic: bool,
    /// Write the first step's parameter gradients, before clipping, under the model's own names.
    pub dump_gradients: Option<PathBuf>,
    /// Write the trained parameters under the model's own names.
    pub save: Option<PathBuf>,
    /// Write values of the first step as every rank has them.
    #[serde(default)]
    pub trace: Option<Trace>,
}

/// What a run writes down of its first step, for comparing two programs value by value.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trace {
    /// A `.safetensors` file of tensors under [`Trace::name`].
    pub path: PathBuf,
    /// Locals, as each is computed; globals, as they are before the optimizer runs.
    pub values: Vec<Value>,
}

impl Trace {
    /// Under which a value stands in the file; globals have micro-batch 0.
    pub fn name(value: Value, rank: usize, micro_batch: u32) -> String {
        format!("{value} of rank {rank}, micro-batch {micro_batch}")
    }
}

/// Which rank of a mesh a worker is, and where it meets the others. Rank 0's job goes for all ranks: it alone writes files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peers {
    pub rank: u32,
    pub world: u32,
    /// Where ranks meet.
    pub host: String,
    /// For rank 0, where it serves, 0 is any: it says by [`Event::Listening`] which.
    pub port: u16,
    /// Whether rank 0 opens the meeting place; otherwise the launcher has.
    pub serve: bool,
    /// Of the names that ranks use at the meeting place, which may be others' as well.
    pub prefix: String,
    /// Seconds that a rank waits for another in one collective, and for it to begin.
    pub timeout: u64,
    /// Try every collective on known answers first.
    pub self_test: bool,
}

impl Job {
    /// Reads the JSON form; refuses programs of other versions before looking at anything else.
    pub fn from_json(text: &str) -> Result<Job, String> {
        #[derive(Deserialize)]
        struct Outline {
            program: Version,
            #[serde(default)]
            simulated: Vec<Version>,
        }
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let outline: Outline = serde_json::from_str(text).map_err(|e| format!("not a job: {e}"))?;
        for program in std::iter::once(outline.program).chain(outline.simulated) {
            crate::check_version(program.version)?;
        }
        serde_json::from_str(text).map_err(|e| format!("damaged job: {e}"))
    }
}

/// A line of the worker's standard output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Rank 0 can be reached at this port.
    Listening { port: u16 },
    /// Weights are loaded and the setup functions have run.
    Ready {
        libtorch: String,
        threads: u32,
        /// Rows of the data set; a step consumes the batch size of them.
        rows: u64,
        seconds: f64,
    },
    Step {
        /// From 1.
        step: u64,
        #[serde(with = "crate::number")]
        loss: f64,
        #[serde(with = "crate::number::optional")]
        grad_norm: Option<f64>,
        seconds: f64,
        memory: MemoryReport,
    },
    /// A file asked for by the job has been written.
    Wrote { path: PathBuf, bytes: u64 },
    Done {
        steps: u64,
        seconds: f64,
        /// What rank 0 communicates in one step.
        #[serde(default)]
        collectives: Vec<CollectiveCount>,
    },
    Failed {
        kind: FailureKind,
        message: String,
        /// The function, instruction number and operator that failed, where one did.
        function: Option<String>,
        instruction: Option<usize>,
        operator: Option<String>,
        /// Types of the operator's tensor arguments, as `f32[2, 3]`.
        shapes: Vec<String>,
        module: Option<String>,
        source: Option<String>,
    },
}

/// Collectives of one kind over one axis, in the functions of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectiveCount {
    pub axis: String,
    /// `all_reduce`, `all_reduce_max`, `all_gather`, `reduce_scatter` or `all_to_all`.
    pub kind: String,
    /// `prologue`, `forward`, `backward` or `optimizer`.
    pub function: String,
    pub calls: u64,
    /// Of the tensors that the rank brings, over all calls.
    pub bytes: u64,
}

/// Who is to blame, which decides the exit code of `slapoc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Data or archive that does not fit the job (exit code 2).
    Input,
    /// What ranks hold does not fit together: replicas that differ, for one (exit code 3).
    Ranks,
    /// Anything that went wrong while running (exit code 3).
    Run,
    /// Another rank is gone or does not answer (exit code 3): what happened to it is the cause.
    Peer,
}

/// Bytes seen by libtorch's allocator, as the worker's hook counts them: `current` and `peak` of the whole process, with
/// all ranks that it simulates; the others of rank 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReport {
    pub current: u64,
    /// Highest `current` during the step.
    pub peak: u64,
    /// Bytes held by globals of each role at the end of the step's backward.
    pub parameters: u64,
    pub gradients: u64,
    pub optimizer: u64,
    pub buffers: u64,
}
