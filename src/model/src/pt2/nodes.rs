//! Nodes of an archive's graph and their arguments.

use super::argument::Argument;
use super::schema::{Node as Raw, OptionalTensor, dtype, dtype_name};
use super::sizes::Sizes;
use super::{ImportError, Site};
use crate::graph::{Arg, ValueId};
use crate::sym::Size;
use std::collections::HashMap;

/// Operators of a training graph before decomposition that update running statistics in place.
const STATEFUL: [&str; 4] = ["batch_norm", "native_batch_norm", "_native_batch_norm_legit", "instance_norm"];

const GETITEM: &str = "_operator.getitem";

/// The operator's name without `torch.ops.` and `aten.`, and without the default overload.
pub fn operator<'a>(target: &'a str) -> Operator<'a> {
    let Some(name) = target.strip_prefix("torch.ops.") else {
        return if target == GETITEM { Operator::GetItem } else { Operator::Foreign(target) };
    };
    if let Some(name) = name.strip_prefix("higher_order.") {
        return Operator::HigherOrder(name);
    }
    match name.strip_prefix("aten.") {
        Some(name) => Operator::Aten(name.strip_suffix(".default").unwrap_or(name)),
        None => Operator::Foreign(name),
    }
}

pub enum Operator<'a> {
    Aten(&'a str),
    /// Picks one of a list.
    GetItem,
    HigherOrder(&'a str),
    Foreign(&'a str),
}

/// Whether a node writes into one of its arguments.
pub fn is_in_place(name: &str, node: &Raw) -> bool {
    let (base, overload) = name.split_once('.').unwrap_or((name, ""));
    // `__and__` is pure, `__iand__` is not.
    let writes = match base.strip_prefix("__").and_then(|b| b.strip_suffix("__")) {
        Some(inner) => ["iand", "ior", "ixor", "ilshift", "irshift"].contains(&inner),
        None => base.ends_with('_'),
    };
    let out = overload == "out" || overload.ends_with("_out");
    let statistics = STATEFUL.contains(&base)
        && node.inputs.iter().any(|input| &*input.name == "running_mean" && matches!(input.arg, Argument::Tensor(_)));
    writes || out || statistics
}

/// Names of the tensors that a node reads.
pub fn reads<'a, 'b>(node: &'b Raw<'a>) -> impl Iterator<Item = &'b str> {
    node.inputs.iter().flat_map(|input| tensors(&input.arg))
}

/// Names of a node's tensor results, lists flattened; `None` for results that are absent.
pub fn results<'a, 'b>(node: &'b Raw<'a>) -> Vec<Option<&'b str>> {
    let mut names = Vec::new();
    for output in &node.outputs {
        match output {
            Argument::Tensor(name) => names.push(Some(&**name)),
            Argument::Tensors(list) => names.extend(list.iter().map(|n| Some(&*n.name))),
            Argument::OptionalTensors(list) => names.extend(list.iter().map(optional)),
            _ => names.push(None),
        }
    }
    names
}

fn tensors<'b>(argument: &'b Argument) -> Vec<&'b str> {
    match argument {
        Argument::Tensor(name) => vec![&**name],
        Argument::Tensors(list) => list.iter().map(|n| &*n.name).collect(),
        Argument::OptionalTensors(list) => list.iter().filter_map(optional).collect(),
        _ => Vec::new(),
    }
}

fn optional<'b>(tensor: &'b OptionalTensor) -> Option<&'b str> {
    match tensor {
        OptionalTensor::AsTensor(tensor) => Some(&tensor.name),
        OptionalTensor::AsNone(_) => None,
    }
}

/// Values by the archive's names, as far as they are defined.
#[derive(Default)]
pub struct Names<'a>(HashMap<&'a str, ValueId>);

impl<'a> Names<'a> {
    pub fn define(&mut self, name: &'a str, value: ValueId) -> Result<(), ImportError> {
        match self.0.insert(name, value) {
            None => Ok(()),
            Some(_) => Err(ImportError::malformed(format!("`{name}` is defined twice"))),
        }
    }

    pub fn get(&self, name: &str) -> Result<ValueId, ImportError> {
        self.0
            .get(name)
            .copied()
            .ok_or_else(|| ImportError::malformed(format!("`{name}` is read, but nothing before defines it")))
    }
}

/// A node's arguments in the archive's order, which is the schema's. Where a tensor lies (device, memory format) is
/// dropped.
pub fn arguments<'a>(
    node: &Raw<'a>,
    names: &Names<'a>,
    sizes: &mut Sizes<'a>,
    site: impl Fn() -> Site,
) -> Result<Vec<(String, Arg<Size>)>, ImportError> {
    let mut arguments = Vec::with_capacity(node.inputs.len());
    for input in &node.inputs {
        if let Some(arg) =
            argument(&input.arg, names, sizes).map_err(|fault| fault.error(&node.target, &input.name, site()))?
        {
            arguments.push((input.name.to_string(), arg));
        }
    }
    Ok(arguments)
}

/// The value that a `getitem` node picks.
pub fn picked<'a>(node: &Raw<'a>, names: &Names<'a>) -> Result<ValueId, ImportError> {
    let mut list = None;
    let mut index = None;
    for input in &node.inputs {
        match &input.arg {
            Argument::Tensors(tensors) => list = Some(tensors),
            Argument::Int(value) => index = usize::try_from(*value).ok(),
            _ => {}
        }
    }
    list.zip(index)
        .and_then(|(list, index)| list.get(index))
        .ok_or_else(|| ImportError::malformed("a `getitem` picks nothing"))
        .and_then(|picked| names.get(&picked.name))
}

/// Why an argument cannot be taken.
enum Fault {
    Error(ImportError),
    DType(u32),
    Sparse,
    Kind(String),
}

impl From<ImportError> for Fault {
    fn from(error: ImportError) -> Fault {
        Fault::Error(error)
    }
}

impl Fault {
    fn error(self, target: &str, name: &str, site: Site) -> ImportError {
        let what = match self {
            Fault::Error(error) => return error,
            Fault::DType(number) => format!("the element type {}", dtype_name(number)),
            Fault::Sparse => "a sparse layout".to_string(),
            Fault::Kind(kind) => match kind.as_str() {
                "as_sym_float" | "as_sym_floats" => "a fraction computed from the input's sizes".to_string(),
                "as_sym_bool" | "as_sym_bools" => "a truth value that depends on the input's sizes".to_string(),
                "as_complex" => "a complex number".to_string(),
                kind => format!("of kind `{kind}`"),
            },
        };
        let operator = match operator(target) {
            Operator::Aten(name) => name,
            _ => target,
        };
        ImportError::Unsupported {
            what: format!("argument `{name}` of `{operator}` {site}is {what}, which is not supported"),
            site,
        }
    }
}

/// `None` for arguments that are not kept.
fn argument<'a>(argument: &Argument<'a>, names: &Names<'a>, sizes: &mut Sizes<'a>) -> Result<Option<Arg<Size>>, Fault> {
    const STRIDED: u32 = 7;
    Ok(Some(match argument {
        Argument::None => Arg::None,
        Argument::Tensor(name) => Arg::Value(names.get(name)?),
        Argument::Tensors(list) => {
            Arg::Values(list.iter().map(|tensor| names.get(&tensor.name).map(Some)).collect::<Result<_, _>>()?)
        }
        Argument::OptionalTensors(list) => Arg::Values(
            list.iter()
                .map(|tensor| optional(tensor).map(|name| names.get(name)).transpose())
                .collect::<Result<_, _>>()?,
        ),
        Argument::Int(value) => Arg::Int(Size::Const(*value)),
        Argument::Ints(values) => Arg::Ints(values.iter().map(|v| Size::Const(*v)).collect()),
        Argument::SymInt(value) => Arg::Int(sizes.argument(value)?),
        Argument::SymInts(values) => {
            Arg::Ints(values.iter().map(|value| sizes.argument(value)).collect::<Result<_, _>>()?)
        }
        Argument::Float(value) => Arg::Float(*value),
        Argument::Floats(values) => Arg::Floats(values.iter().map(|value| value.0).collect()),
        Argument::Bool(value) => Arg::Bool(*value),
        Argument::Bools(values) => Arg::Bools(values.clone()),
        Argument::ScalarType(number) => Arg::DType(dtype(*number).ok_or(Fault::DType(*number))?),
        Argument::Layout(STRIDED) | Argument::Placement => return Ok(None),
        Argument::Layout(_) => return Err(Fault::Sparse),
        Argument::String(text) => Arg::Str(text.to_string()),
        Argument::Other(kind) => return Err(Fault::Kind(kind.to_string())),
    }))
}
