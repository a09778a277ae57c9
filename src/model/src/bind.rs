//! Binding of a model's sizes: from symbolic shapes to concrete ones.
//!
//! Dimension 0 of every input is the batch, 1 the sequence. The sizes of the inputs decide the archive's symbols, and
//! the symbols every other size of the graph; values, nodes and their ids stay as they are. `-1` in the size of a view
//! becomes the real size.

use crate::graph::{Arg, Graph, Node, Type, Value, ValueId};
use crate::model::{Input, Model};
use crate::sym::{Range, Size, Symbol, Values};
use std::fmt;

/// The sizes that a schedule chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputSizes {
    pub batch: i64,
    /// `None` leaves static sizes as they are; a dynamic sequence needs a size.
    pub seq: Option<i64>,
}

/// The sizes that a model accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegalSizes {
    pub batch: Legal,
    pub seq: Legal,
}

/// Legal values of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legal {
    /// No input has such a dimension.
    Absent,
    /// The archive accepts this value alone.
    Static(i64),
    Range(Range),
}

/// Why sizes do not fit a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindError {
    /// A dimension of fixed size was asked to have another.
    Static { input: String, dim: usize, size: i64, asked: i64 },
    /// A size outside of the model's range.
    OutOfRange { input: String, dim: usize, asked: i64, legal: Range },
    /// The model's sequence is dynamic, but no size was given.
    NoSequence { input: String, legal: Range },
    /// A dynamic dimension that neither batch nor sequence decides.
    Undetermined { input: String, dim: usize },
    /// Inputs ask for different values of one size.
    Contradiction { input: String, dim: usize, size: i64, asked: i64 },
    /// A size of the graph that does not come out as a whole number ≥ 0.
    NoSize { value: String, size: String },
    /// A view that does not keep the number of elements: the model needs sizes with a common factor.
    Uneven { value: String, from: Vec<i64>, to: Vec<i64> },
}

/// The model's graph with every size concrete.
pub fn bind(model: &Model, sizes: &InputSizes) -> Result<Graph, BindError> {
    bind_graph(model, &model.graph, sizes)
}

/// A graph over the model's symbols, such as what a schedule has made of its own, with every size concrete.
pub fn bind_graph(model: &Model, graph: &Graph<Size>, sizes: &InputSizes) -> Result<Graph, BindError> {
    let symbols = solve(model, sizes)?;
    let graph = concrete(graph, &symbols)?;
    for node in &graph.nodes {
        whole_view(&graph, node)?;
    }
    Ok(graph)
}

/// What `bind` accepts. PyTorch's lower bound of 2 is an artefact of exporting and not kept: 1 is legal.
pub fn legal_sizes(model: &Model) -> LegalSizes {
    let legal = |dim: usize| {
        let mut legal = Legal::Absent;
        for size in model.inputs.iter().filter_map(|i| i.shape.get(dim)) {
            legal = match (legal, size) {
                (_, Size::Const(value)) => Legal::Static(*value),
                (Legal::Static(value), _) => Legal::Static(value),
                (Legal::Absent, size) => Legal::Range(range(model, size)),
                (Legal::Range(known), size) => Legal::Range(known.intersect(range(model, size))),
            };
        }
        legal
    };
    LegalSizes { batch: legal(0), seq: legal(1) }
}

/// The range of a dimension, from that of its only symbol; of several symbols nothing is known.
fn range(model: &Model, size: &Size) -> Range {
    let symbols = size.symbols();
    let (Some(symbol), 1) = (symbols.first(), symbols.len()) else {
        return Range::default();
    };
    let known = model.symbols.iter().find(|(known, _)| known == *symbol);
    let known = known.map(|(_, range)| *range).unwrap_or_default();
    let at = |value: i64| size.eval(&Values::from([((*symbol).clone(), value)]));
    let min = known.min.filter(|min| *min > 2).unwrap_or(1);
    Range { min: at(min), max: known.max.and_then(at) }
}

/// The value of every symbol that the inputs' shapes decide.
fn solve(model: &Model, sizes: &InputSizes) -> Result<Values, BindError> {
    let mut solver = Solver { model, values: Values::new() };
    // Plain symbols first: they may decide a sum or a product elsewhere.
    for plain in [true, false] {
        for input in &model.inputs {
            for (dim, size) in input.shape.iter().enumerate() {
                if matches!(size, Size::Symbol(_)) == plain {
                    let asked = match dim {
                        0 => Some(sizes.batch),
                        1 => sizes.seq,
                        _ => None,
                    };
                    solver.dimension(input, dim, size, asked)?;
                }
            }
        }
    }
    for input in &model.inputs {
        for (dim, size) in input.shape.iter().enumerate() {
            if size.eval(&solver.values).is_none() {
                return Err(BindError::Undetermined { input: input.name.clone(), dim });
            }
        }
    }
    Ok(solver.values)
}

struct Solver<'a> {
    model: &'a Model,
    values: Values,
}

impl Solver<'_> {
    fn dimension(&mut self, input: &Input, dim: usize, size: &Size, asked: Option<i64>) -> Result<(), BindError> {
        let name = || input.name.clone();
        let Some(asked) = asked else {
            return match size {
                Size::Symbol(symbol) if dim == 1 && !self.values.contains_key(symbol) => {
                    Err(BindError::NoSequence { input: name(), legal: range(self.model, size) })
                }
                _ => Ok(()),
            };
        };
        if let Size::Const(value) = size {
            return match *value == asked {
                true => Ok(()),
                false => Err(BindError::Static { input: name(), dim, size: *value, asked }),
            };
        }
        let legal = range(self.model, size);
        if !legal.contains(asked) {
            return Err(BindError::OutOfRange { input: name(), dim, asked, legal });
        }
        if let Some((symbol, value)) = unknown(size, &self.values, asked) {
            self.values.insert(symbol, value);
        }
        match size.eval(&self.values) {
            Some(value) if value != asked => Err(BindError::Contradiction { input: name(), dim, size: value, asked }),
            _ => Ok(()),
        }
    }
}

/// Solves `size = asked` for the only symbol without a value, taking `size` as linear in it.
fn unknown(size: &Size, values: &Values, asked: i64) -> Option<(Symbol, i64)> {
    let mut open = size.symbols().into_iter().filter(|s| !values.contains_key(s));
    let (symbol, None) = (open.next()?, open.next()) else {
        return None;
    };
    let mut trial = values.clone();
    let mut at = |value| {
        trial.insert(symbol.clone(), value);
        size.eval(&trial)
    };
    let (zero, one) = (at(0)?, at(1)?);
    let value = asked.checked_sub(zero)?.checked_div(one.checked_sub(zero)?)?;
    Some((symbol.clone(), value))
}

fn concrete(graph: &Graph<Size>, symbols: &Values) -> Result<Graph, BindError> {
    let mut values = Vec::with_capacity(graph.values.len());
    for value in &graph.values {
        let size = |size: &Size| match size.eval(symbols) {
            Some(size) if size >= 0 => Ok(size),
            _ => Err(no_size(&value.name, size)),
        };
        values.push(Value {
            name: value.name.clone(),
            ty: Type { dtype: value.ty.dtype, shape: value.ty.shape.iter().map(size).collect::<Result<_, _>>()? },
            def: value.def,
        });
    }
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        nodes.push(concrete_node(node, graph, &values, symbols)?);
    }
    Ok(Graph { values, nodes, inputs: graph.inputs.clone(), outputs: graph.outputs.clone(), loss: graph.loss })
}

fn concrete_node(
    node: &Node<Size>,
    graph: &Graph<Size>,
    values: &[Value],
    symbols: &Values,
) -> Result<Node, BindError> {
    let result = node.outs.first().copied().flatten();
    let mut args = Vec::with_capacity(node.args.len());
    for (name, arg) in &node.args {
        let arg = match arg {
            Arg::None => Arg::None,
            Arg::Value(value) => Arg::Value(*value),
            Arg::Values(values) => Arg::Values(values.clone()),
            Arg::Int(value) => Arg::Int(eval(value, symbols, graph, result)?),
            Arg::Ints(sizes) => Arg::Ints(match result {
                Some(id) if is_view(node, name, sizes.len(), &values[id.0 as usize]) => {
                    values[id.0 as usize].ty.shape.clone()
                }
                _ => sizes.iter().map(|size| eval(size, symbols, graph, result)).collect::<Result<_, _>>()?,
            }),
            Arg::Float(value) => Arg::Float(*value),
            Arg::Floats(values) => Arg::Floats(values.clone()),
            Arg::Bool(value) => Arg::Bool(*value),
            Arg::Bools(values) => Arg::Bools(values.clone()),
            Arg::DType(dtype) => Arg::DType(*dtype),
            Arg::Str(text) => Arg::Str(text.clone()),
        };
        args.push((name.clone(), arg));
    }
    Ok(Node { op: node.op.clone(), args, outs: node.outs.clone(), origin: node.origin })
}

fn eval(size: &Size, symbols: &Values, graph: &Graph<Size>, result: Option<ValueId>) -> Result<i64, BindError> {
    size.eval(symbols).ok_or_else(|| no_size(result.map_or("", |id| &graph.value(id).name), size))
}

fn no_size(value: &str, size: &Size) -> BindError {
    BindError::NoSize { value: value.to_string(), size: size.to_string() }
}

/// Operators whose size argument is the shape of the result; the flag: and which keep the number of elements.
const SHAPED: [(&str, &str, bool); 5] = [
    ("view", "size", true),
    ("reshape", "shape", true),
    ("_unsafe_view", "size", true),
    ("view_copy", "size", true),
    ("expand", "size", false),
];

fn is_view(node: &Node<Size>, arg: &str, rank: usize, result: &Value) -> bool {
    let row = SHAPED.iter().find(|(op, ..)| node.is_aten(op));
    row.is_some_and(|(_, name, _)| *name == arg) && result.ty.shape.len() == rank
}

/// A guard of the export that this does not read shows itself here.
fn whole_view(graph: &Graph, node: &Node) -> Result<(), BindError> {
    let row = SHAPED.iter().find(|(op, ..)| node.is_aten(op));
    let (Some((_, _, true)), Some(from), Some(Some(to))) = (row, node.tensor("self"), node.outs.first()) else {
        return Ok(());
    };
    let (from, to) = (graph.value(from), graph.value(*to));
    let elements = |value: &Value| {
        let sizes = value.ty.shape.iter();
        sizes.fold(1i128, |all, size| all.saturating_mul(i128::from(*size)))
    };
    match elements(from) == elements(to) {
        true => Ok(()),
        false => {
            Err(BindError::Uneven { value: to.name.clone(), from: from.ty.shape.clone(), to: to.ty.shape.clone() })
        }
    }
}

impl BindError {
    /// What to do about it.
    pub fn advice(&self) -> Option<String> {
        match self {
            BindError::Static { dim, size, .. } => {
                Some(format!("legal here: {size} alone; export with a dynamic {} for others", dim_name(*dim)))
            }
            BindError::OutOfRange { legal, .. } => Some(format!("legal here: {legal}")),
            BindError::NoSequence { legal, .. } => Some(format!("give `seq` in `input`; legal here: {legal}")),
            BindError::Undetermined { .. } => Some("export with a fixed size in this dimension".to_string()),
            _ => None,
        }
    }
}

/// `batch`, `seq` or `dimension 2`
fn dim_name(dim: usize) -> String {
    match dim {
        0 => "batch".to_string(),
        1 => "seq".to_string(),
        dim => format!("dimension {dim}"),
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindError::Static { input, dim, size, asked } => {
                write!(f, "{} {asked} does not fit: `{input}` was exported with a fixed size of {size}", dim_name(*dim))
            }
            BindError::OutOfRange { dim, asked, legal, .. } => match (legal.min, legal.max) {
                (_, Some(max)) if *asked > max => {
                    write!(f, "{} {asked} is over the model's limit {max}", dim_name(*dim))
                }
                (min, _) => {
                    write!(f, "{} {asked} is under the model's limit {}", dim_name(*dim), min.unwrap_or_default())
                }
            },
            BindError::NoSequence { input, .. } => {
                write!(f, "the sequence length of `{input}` is not given")
            }
            BindError::Undetermined { input, dim } => {
                write!(f, "dimension {dim} of `{input}` is dynamic, and neither batch nor seq decides it")
            }
            BindError::Contradiction { input, dim, size, asked } => {
                write!(f, "{} {asked} does not fit: the model computes {size} for `{input}`", dim_name(*dim))
            }
            BindError::NoSize { value, size } => {
                write!(f, "size `{size}` of `{value}` is not a whole number for these sizes")
            }
            BindError::Uneven { value, from, to } => {
                write!(f, "these sizes do not divide as the model needs: `{value}` views {from:?} as {to:?}")
            }
        }
    }
}

impl std::error::Error for BindError {}

/// `1..=128`, `16`
impl fmt::Display for Legal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Legal::Absent => f.write_str("none"),
            Legal::Static(value) => write!(f, "{value}"),
            Legal::Range(range) => write!(f, "{range}"),
        }
    }
}
