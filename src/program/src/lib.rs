//! The Program: what one rank executes, and the only thing the worker knows of the compiler.
//!
//! Owns the schema (versioned JSON), the text form of a program and its validator. It must know nothing of schedules,
//! models or libtorch: operators are names, arguments are constants and slots. Read [`Program`] first, then
//! [`Instr`]; [`Job`] and [`Event`] are what `slapoc` and the worker say to each other around it.

mod communication;
mod job;
mod listing;
mod number;
mod sections;
mod torch;
mod types;
mod validate;

pub use communication::{Carries, Communication, communications, counts};
pub use job::{CollectiveCount, Event, FailureKind, Job, MemoryReport, Peers, Trace};
pub use sections::Sections;
pub use torch::torch;
pub use types::{DType, TensorType};
pub use validate::{Fault, validate};

use serde::{Deserialize, Serialize};

/// Raised whenever a program written by an older compiler would mean something else to this worker.
pub const VERSION: u32 = 1;

/// What one rank executes.
///
/// Values live in two places. *Globals* persist over steps: parameters, gradients, optimizer state, buffers, inputs
/// and constants. *Locals* are the slots of one micro-batch's frame: forward writes what backward of the same
/// micro-batch reads, so functions may be interleaved freely over micro-batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    pub version: u32,
    /// Fingerprints (hexadecimal) of what the program was compiled from.
    pub fingerprint: Fingerprint,
    pub seed: u64,
    pub micro_batches: u32,
    /// Axes of the mesh, outermost first; empty for one rank.
    pub mesh: Vec<Axis>,
    /// This rank's coordinate on each axis. Ranks count row-major over the mesh.
    pub coordinates: Vec<i64>,
    /// Where instructions come from; [`Instr::origin`] indexes this.
    pub origins: Vec<Origin>,
    pub globals: Vec<Global>,
    /// Slots of a micro-batch's frame, typed. A slot is written once.
    pub locals: Vec<Slot>,
    pub parameters: Vec<Parameter>,
    pub inputs: Vec<Input>,
    pub functions: Vec<Function>,
    /// Functions that run once, before the first step.
    pub setup: Vec<Call>,
    /// The functions of one training step, in order.
    pub step: Vec<Call>,
    /// Scalar global that holds the step's loss once the last `Backward` call has run.
    pub loss: GlobalId,
    /// Scalar global that holds the gradient norm before clipping, where the program computes it.
    pub grad_norm: Option<GlobalId>,
}

/// An axis of the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    pub name: String,
    pub size: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    pub schedule: String,
    pub model: String,
}

/// The place in the model that an instruction computes a part of.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// Dotted module path, empty for the root and for what no module owns.
    pub module: String,
    /// `file:line` in the model's own source, where the archive carries it.
    pub source: Option<String>,
}

pub type GlobalId = u32;
pub type LocalId = u32;

/// A persistent tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Global {
    pub name: String,
    pub ty: TensorType,
    pub role: Role,
}

/// Which of the five terms of memory a global counts towards, and how it comes into being.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Filled before setup from [`Program::parameters`].
    Parameter,
    /// Allocated by the first `Accumulate` of a step and released by `Release`. Carries the canonical name of its
    /// parameter.
    Gradient,
    /// Zero before the first step.
    Optimizer,
    /// Filled before setup from the archive, like a parameter, and never trained.
    Buffer,
    /// The global batch of an input, set before each step.
    Input,
    /// Written by a setup function.
    Constant,
    /// Scalars such as the loss and the number of valid tokens; zero at the beginning of every step.
    Scalar,
}

/// A slot of a micro-batch's frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    /// Of the graph's value, for people; unique among the values of forward where it is the model's own.
    #[serde(default)]
    pub name: String,
    pub ty: TensorType,
    /// The value whose storage this one shares (a view), if it owns none itself.
    pub alias: Option<Value>,
}

/// A parameter or buffer: which global it fills and where its box of values lies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    pub global: GlobalId,
    /// The model's own names for it: the canonical one first, then tied ones.
    pub names: Vec<String>,
    pub trainable: bool,
    /// Whether a saved model holds it: parameters and persistent buffers.
    pub saved: bool,
    /// Where the archive keeps the values; absent for archives without weights.
    pub source: Option<Source>,
    pub init: Init,
    pub placement: Placement,
    /// The piece of the rank's box that it updates, where the ranks of an axis share that (ZeRO): the gradient at the
    /// update and the optimizer state are of this piece only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub piece: Option<Split>,
}

impl Parameter {
    /// How the gradient at the update and the optimizer state lie in the global tensor.
    pub fn updated(&self) -> Placement {
        let Placement { global_shape, splits } = self.placement.clone();
        Placement { global_shape, splits: splits.into_iter().chain(self.piece).collect() }
    }
}

/// Stored values inside the archive file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// Byte offset in the archive file of element 0.
    pub offset: u64,
    pub dtype: DType,
    /// Global shape and strides (in elements) as stored.
    pub shape: Vec<i64>,
    pub strides: Vec<i64>,
}

/// How `--init` fills a parameter; random numbers are keyed by the parameter's site and the global element index.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Init {
    Normal {
        std: f64,
        site: u32,
    },
    Constant(f64),
    /// Only the archive's own values will do (buffers).
    Stored,
}

/// How a local tensor lies in the global one; `splits` is empty where the rank has all of it. Splits of one dimension
/// nest in their order: each divides what the one before left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    pub global_shape: Vec<i64>,
    pub splits: Vec<Split>,
}

/// Dimension `dim` of global size N seen as `groups × parts × N/(groups·parts)`, of which one index of the middle
/// factor is here. Of one group N need not divide among ranks: their parts are those of [`piece`]. With `sections` the groups
/// are not of one size: of every section one part is here, and `groups` is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    pub dim: usize,
    pub groups: i64,
    pub parts: i64,
    pub part: Part,
    #[serde(default, skip_serializing_if = "Sections::is_none")]
    pub sections: Sections,
}

impl Split {
    /// In groups of one size.
    pub fn even(dim: usize, groups: i64, parts: i64, part: Part) -> Split {
        Split { dim, groups, parts, part, sections: Sections::default() }
    }

    /// How many of a dimension's `size` elements are here; `None` where they do not divide, and must.
    pub fn length(&self, size: i64) -> Option<i64> {
        let ways = self.groups.checked_mul(self.parts).filter(|n| *n >= 1 && self.parts >= 1)?;
        if !self.sections.is_none() {
            return (self.groups == 1 && self.sections.divide(size, self.parts)).then_some(size / self.parts);
        }
        match self.part {
            _ if size % ways == 0 => Some(size / self.parts),
            Part::Rank(at) if self.groups == 1 && (0..self.parts).contains(&at) => Some(piece(size, self.parts, at).1),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// This rank's coordinate on the axis.
    Rank(i64),
    /// The running micro-batch's number.
    MicroBatch,
}

/// An input of the model. `global` holds the rank's batch of a whole step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    pub name: String,
    pub global: GlobalId,
    /// Exclusive upper bound of legal values where an embedding is indexed by it, or a loss takes it as classes.
    pub limit: Option<i64>,
    /// The one other value that is legal: the class that a loss ignores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Function {
    pub name: String,
    pub kind: FunctionKind,
    pub body: Vec<Instr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FunctionKind {
    /// Constants, once.
    Setup,
    /// What depends on the inputs alone and must be known over all micro-batches: token counts.
    Prologue,
    Forward,
    /// Forward under libtorch's own autograd, for [`Op::Autograd`]: the oracle that programs are checked against.
    Recorded,
    Backward,
    /// What ranks reduce once a step, of what all micro-batches have added up: parameter gradients.
    Reduction,
    /// Clipping and the update; parameter gradients are complete before it runs.
    Optimizer,
}

impl FunctionKind {
    pub const fn name(self) -> &'static str {
        match self {
            FunctionKind::Setup => "setup",
            FunctionKind::Prologue => "prologue",
            FunctionKind::Forward => "forward",
            FunctionKind::Recorded => "recorded forward",
            FunctionKind::Backward => "backward",
            FunctionKind::Reduction => "reduction",
            FunctionKind::Optimizer => "optimizer",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub function: u32,
    pub micro_batch: u32,
}

/// One operation. Results go to `outs`; `free` lists the locals that no later instruction reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instr {
    pub op: Op,
    pub args: Vec<Arg>,
    /// Arguments by the schema's name, after the positional ones.
    pub named: Vec<(String, Arg)>,
    /// One entry per result of the operator; `None` drops it.
    pub outs: Vec<Option<Value>>,
    pub free: Vec<LocalId>,
    pub origin: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// An ATen operator by qualified name and overload (`aten::add.Tensor`; no dot for the default overload), called
    /// below autograd. `args` follow the operator's schema in order, `named` are given by name; what neither names
    /// takes the schema's default (the worker fills it in while preparing the call).
    Aten(String),
    /// The piece of `args[0]` that belongs here: a rank's, or the running micro-batch's rows of an input.
    Part(Split),
    /// `args[0] · mask / (1 − p)`, the mask keyed by (seed, step, site, global element index). Its own derivative.
    Dropout { site: u32, p: f64, placement: Placement },
    /// `outs[0]` from every rank's `args[0]` of one axis: the ranks whose other coordinates are the same. All ranks of a
    /// mesh run the same instructions in the same order. It may be of several tensors of one element type, a bucket: they travel
    /// as one, pieces padded to the longest rank's, and every one has its result. An all-to-all is of one.
    Collective { axis: u32, kind: Collective },
    /// `outs[0] (a global) += args[0]`; the first of a step takes the value as it is. Takes over the slot's storage
    /// where `args[0]` is freed by this instruction.
    Accumulate,
    /// `outs[0] (a global) = args[0]`.
    Store,
    /// Drop the storage of the globals in `args` (gradients after the update).
    Release,
    /// Gradients of `args[0]` with respect to the globals in `args[1..]`, by libtorch's own autograd over what a `Recorded`
    /// function ran; `outs` has one gradient global per argument behind the first.
    Autograd,
    /// Gradients of an operator that has no derivative entry, by running it again under autograd. `args` are one gradient
    /// per result (`None`: zero), `named` the operator's arguments; `outs` has one entry per tensor in `named`, lists
    /// flattened (`None`: not wanted).
    Vjp { op: String, results: u32 },
}

/// What ranks of one axis do together. `groups` as in [`Split`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Collective {
    /// The sum.
    AllReduce,
    /// The largest, element by element.
    AllReduceMax,
    /// The whole tensor from pieces along `dim`.
    AllGather { dim: usize, groups: i64 },
    /// This rank's piece along `dim` of the sum.
    ReduceScatter { dim: usize, groups: i64 },
    /// Whole along `from` (split in `groups` before), split along `to`.
    AllToAll { from: usize, groups: i64, to: usize },
}

impl Collective {
    /// The schedule language's name of it.
    pub fn name(&self) -> &'static str {
        match self {
            Collective::AllReduce => "all_reduce",
            Collective::AllReduceMax => "all_reduce_max",
            Collective::AllGather { .. } => "all_gather",
            Collective::ReduceScatter { .. } => "reduce_scatter",
            Collective::AllToAll { .. } => "all_to_all",
        }
    }
}

/// An argument of an instruction. Types follow the operator's schema; enumerations (layout, device, memory format)
/// are always `None`, the device of the rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Arg {
    None,
    Value(Value),
    Values(Vec<Option<Value>>),
    Int(i64),
    Float(#[serde(with = "number")] f64),
    Bool(bool),
    Ints(Vec<i64>),
    Floats(#[serde(with = "number::list")] Vec<f64>),
    Bools(Vec<bool>),
    DType(DType),
    Str(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Value {
    Global(GlobalId),
    Local(LocalId),
}

/// Offset and length of part `at` when `size` elements are divided among `parts`: where they do not divide, each of the
/// first `size mod parts` parts has one element more. Part `at` of a [`Split`] has this piece of each of its groups.
pub fn piece(size: i64, parts: i64, at: i64) -> (i64, i64) {
    let (share, rest) = (size / parts, size % parts);
    (at * share + at.min(rest), share + i64::from(at < rest))
}

fn check_version(found: u32) -> Result<(), String> {
    if found == VERSION {
        return Ok(());
    }
    Err(format!("program version {found} where this worker runs version {VERSION}; compile it again"))
}

impl Program {
    /// Writes the versioned JSON form.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a program has no maps with odd keys")
    }

    /// Reads the JSON form; refuses other versions before looking at anything else.
    pub fn from_json(text: &str) -> Result<Program, String> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let found: Version = serde_json::from_str(text).map_err(|e| format!("not a program: {e}"))?;
        check_version(found.version)?;
        serde_json::from_str(text).map_err(|e| format!("damaged program: {e}"))
    }

    pub fn ty(&self, value: Value) -> &TensorType {
        match value {
            Value::Global(g) => &self.globals[g as usize].ty,
            Value::Local(l) => &self.locals[l as usize].ty,
        }
    }
}

impl Instr {
    /// Every value the instruction reads, in argument order.
    pub fn reads(&self) -> impl Iterator<Item = Value> + '_ {
        self.args.iter().chain(self.named.iter().map(|(_, arg)| arg)).flat_map(|arg| {
            let (one, many): (Option<Value>, &[Option<Value>]) = match arg {
                Arg::Value(v) => (Some(*v), &[]),
                Arg::Values(vs) => (None, vs),
                _ => (None, &[]),
            };
            one.into_iter().chain(many.iter().copied().flatten())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Part, Split, piece};

    /// Ranks' parts of one group follow [`piece`]; groups and micro-batches divide evenly or not at all.
    #[test]
    fn splits_that_need_not_divide() {
        let split = |groups, parts, part| Split::even(0, groups, parts, part);
        for (at, length) in [(0, 2), (1, 2), (2, 1)] {
            assert_eq!(split(1, 3, Part::Rank(at)).length(5), Some(length));
        }
        assert_eq!(split(2, 3, Part::Rank(2)).length(12), Some(4));
        assert_eq!(split(2, 3, Part::Rank(2)).length(10), None);
        assert_eq!(split(1, 3, Part::MicroBatch).length(5), None);
        assert_eq!(split(1, 3, Part::Rank(3)).length(5), None);
        assert_eq!(split(0, 3, Part::Rank(0)).length(6), None);
    }

    #[test]
    fn pieces_follow_each_other_and_differ_by_one_at_most() {
        for size in 0..10 {
            for parts in 1..10 {
                let mut end = 0;
                for at in 0..parts {
                    let (offset, length) = piece(size, parts, at);
                    assert_eq!(offset, end, "{size} in {parts}, part {at}");
                    assert!((size / parts..=size / parts + 1).contains(&length));
                    end += length;
                }
                assert_eq!(end, size, "{size} in {parts}");
            }
        }
    }
}
