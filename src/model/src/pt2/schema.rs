//! The part of `models/model.json` and of the weights' tables that an importer needs (schema 8 of PyTorch's
//! `torch/_export/serde/schema.py`). Everything else in the JSON is skipped.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// The major version that these types read.
pub const SCHEMA: u64 = 8;

/// A string that is borrowed from the JSON where it has no escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[derive(Deserialize)]
pub struct ExportedProgram<'a> {
    #[serde(borrow)]
    pub graph_module: GraphModule<'a>,
    #[serde(borrow, default)]
    pub range_constraints: BTreeMap<Text<'a>, RangeConstraint>,
    pub schema_version: SchemaVersion,
}

/// Enough to see why the rest cannot be read.
#[derive(Deserialize)]
pub struct Version {
    pub schema_version: SchemaVersion,
}

#[derive(Deserialize)]
pub struct SchemaVersion {
    pub major: u64,
    pub minor: u64,
}

#[derive(Deserialize)]
pub struct RangeConstraint {
    pub min_val: Option<i64>,
    pub max_val: Option<i64>,
}

#[derive(Deserialize)]
pub struct GraphModule<'a> {
    #[serde(borrow)]
    pub graph: GraphBody<'a>,
    #[serde(borrow)]
    pub signature: Signature<'a>,
    #[serde(borrow, default)]
    pub module_call_graph: Vec<ModuleCall<'a>>,
}

#[derive(Deserialize)]
pub struct ModuleCall<'a> {
    #[serde(borrow)]
    pub fqn: Text<'a>,
}

#[derive(Deserialize)]
pub struct GraphBody<'a> {
    #[serde(borrow)]
    pub nodes: Vec<Node<'a>>,
    /// Looked up by name only; the order carries no meaning.
    #[serde(borrow)]
    pub tensor_values: HashMap<Text<'a>, TensorMeta<'a>>,
    #[serde(borrow, default)]
    pub sym_int_values: BTreeMap<Text<'a>, SymInt<'a>>,
}

#[derive(Deserialize)]
pub struct Signature<'a> {
    #[serde(borrow)]
    pub input_specs: Vec<InputSpec<'a>>,
    #[serde(borrow)]
    pub output_specs: Vec<OutputSpec<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputSpec<'a> {
    UserInput {
        #[serde(borrow)]
        arg: Argument<'a>,
    },
    Parameter {
        #[serde(borrow)]
        arg: Name<'a>,
        #[serde(borrow)]
        parameter_name: Text<'a>,
    },
    Buffer {
        #[serde(borrow)]
        arg: Name<'a>,
        #[serde(borrow)]
        buffer_name: Text<'a>,
        persistent: bool,
    },
    TensorConstant {
        #[serde(borrow)]
        arg: Name<'a>,
        #[serde(borrow)]
        tensor_constant_name: Text<'a>,
    },
    CustomObj {
        #[serde(borrow)]
        custom_obj_name: Text<'a>,
    },
    Token(IgnoredAny),
    ConstantInput(IgnoredAny),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputSpec<'a> {
    UserOutput {
        #[serde(borrow)]
        arg: Argument<'a>,
    },
    LossOutput {
        #[serde(borrow)]
        arg: Name<'a>,
    },
    BufferMutation {
        #[serde(borrow)]
        arg: Name<'a>,
        #[serde(borrow)]
        buffer_name: Text<'a>,
    },
    ParameterMutation {
        #[serde(borrow)]
        parameter_name: Text<'a>,
    },
    UserInputMutation {
        #[serde(borrow)]
        user_input_name: Text<'a>,
    },
    GradientToParameter(IgnoredAny),
    GradientToUserInput(IgnoredAny),
    Token(IgnoredAny),
}

#[derive(Deserialize)]
pub struct Name<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
}

#[derive(Deserialize)]
pub struct Node<'a> {
    #[serde(borrow)]
    pub target: Text<'a>,
    #[serde(borrow)]
    pub inputs: Vec<NamedArgument<'a>>,
    #[serde(borrow)]
    pub outputs: Vec<Argument<'a>>,
    #[serde(borrow, default)]
    pub metadata: Metadata<'a>,
}

#[derive(Default, Deserialize)]
pub struct Metadata<'a> {
    #[serde(borrow, default)]
    pub nn_module_stack: Text<'a>,
    #[serde(borrow, default)]
    pub stack_trace: Text<'a>,
}

#[derive(Deserialize)]
pub struct NamedArgument<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    #[serde(borrow)]
    pub arg: Argument<'a>,
}

#[derive(Deserialize)]
pub struct TensorMeta<'a> {
    pub dtype: u32,
    #[serde(borrow)]
    pub sizes: Vec<SymInt<'a>>,
    #[serde(default)]
    pub requires_grad: bool,
    #[serde(borrow)]
    pub strides: Vec<SymInt<'a>>,
    #[serde(borrow)]
    pub storage_offset: SymInt<'a>,
    pub layout: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SymInt<'a> {
    AsInt(i64),
    #[serde(borrow)]
    AsExpr(SymExpr<'a>),
}

#[derive(Deserialize)]
pub struct SymExpr<'a> {
    #[serde(borrow)]
    pub expr_str: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SymIntArgument<'a> {
    AsInt(i64),
    #[serde(borrow)]
    AsName(Text<'a>),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptionalTensor<'a> {
    #[serde(borrow)]
    AsTensor(Name<'a>),
    AsNone(IgnoredAny),
}

/// `data/weights/model_weights_config.json` and `data/constants/model_constants_config.json`.
#[derive(Default, Deserialize)]
pub struct Payloads<'a> {
    #[serde(borrow)]
    pub config: BTreeMap<Text<'a>, Payload<'a>>,
}

#[derive(Deserialize)]
pub struct Payload<'a> {
    #[serde(borrow)]
    pub path_name: Text<'a>,
    pub is_param: bool,
    pub use_pickle: bool,
    #[serde(borrow)]
    pub tensor_meta: Option<TensorMeta<'a>>,
}

/// Python writes numbers that JSON lacks as strings.
pub struct Float(pub f64);

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Float, D::Error> {
        struct Numbers;
        impl Visitor<'_> for Numbers {
            type Value = Float;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, \"Infinity\", \"-Infinity\" or \"NaN\"")
            }

            fn visit_f64<E>(self, value: f64) -> Result<Float, E> {
                Ok(Float(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Float, E> {
                Ok(Float(value as f64))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Float, E> {
                Ok(Float(value as f64))
            }

            fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Float, E> {
                match value {
                    "Infinity" => Ok(Float(f64::INFINITY)),
                    "-Infinity" => Ok(Float(f64::NEG_INFINITY)),
                    "NaN" => Ok(Float(f64::NAN)),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(value), &self)),
                }
            }
        }
        deserializer.deserialize_any(Numbers)
    }
}

/// An argument or a result of a node: an object with one key that names its kind.
pub enum Argument<'a> {
    None,
    Tensor(Text<'a>),
    Tensors(Vec<Name<'a>>),
    OptionalTensors(Vec<OptionalTensor<'a>>),
    Int(i64),
    Ints(Vec<i64>),
    SymInt(SymIntArgument<'a>),
    SymInts(Vec<SymIntArgument<'a>>),
    Float(f64),
    Floats(Vec<Float>),
    Bool(bool),
    Bools(Vec<bool>),
    ScalarType(u32),
    Layout(u32),
    String(Text<'a>),
    /// Where a tensor lies and how: not a property of the value.
    Placement,
    /// Symbolic truth values and floats, graphs, custom objects, complex numbers: by their kind.
    Other(Text<'a>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Argument<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Argument<'a>, D::Error> {
        struct Kinds<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Kinds<'a> {
            type Value = Argument<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with one key")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Argument<'a>, M::Error> {
                let kind: Text =
                    map.next_key()?.ok_or_else(|| serde::de::Error::custom("an argument without a kind"))?;
                let argument = match &*kind {
                    "as_none" => skip(&mut map, Argument::None)?,
                    "as_tensor" => Argument::Tensor(map.next_value::<Name>()?.name),
                    "as_tensors" => Argument::Tensors(map.next_value()?),
                    "as_optional_tensor" => match map.next_value()? {
                        OptionalTensor::AsTensor(tensor) => Argument::Tensor(tensor.name),
                        OptionalTensor::AsNone(_) => Argument::None,
                    },
                    "as_optional_tensors" => Argument::OptionalTensors(map.next_value()?),
                    "as_int" => Argument::Int(map.next_value()?),
                    "as_ints" => Argument::Ints(map.next_value()?),
                    "as_sym_int" => Argument::SymInt(map.next_value()?),
                    "as_sym_ints" => Argument::SymInts(map.next_value()?),
                    "as_float" => Argument::Float(map.next_value::<Float>()?.0),
                    "as_floats" => Argument::Floats(map.next_value()?),
                    "as_bool" => Argument::Bool(map.next_value()?),
                    "as_bools" => Argument::Bools(map.next_value()?),
                    "as_scalar_type" => Argument::ScalarType(map.next_value()?),
                    "as_layout" => Argument::Layout(map.next_value()?),
                    "as_string" => Argument::String(map.next_value()?),
                    "as_device" | "as_memory_format" => skip(&mut map, Argument::Placement)?,
                    _ => skip(&mut map, Argument::Other(kind.clone()))?,
                };
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(argument)
            }
        }
        deserializer.deserialize_map(Kinds(std::marker::PhantomData))
    }
}

fn skip<'de, M: MapAccess<'de>, T>(map: &mut M, value: T) -> Result<T, M::Error> {
    map.next_value::<IgnoredAny>()?;
    Ok(value)
}

/// Element types by their numbers in an archive; `None` for those that are not supported.
pub fn dtype(number: u32) -> Option<slapo_program::DType> {
    use slapo_program::DType::*;
    Some(match number {
        1 => U8,
        2 => I8,
        3 => I16,
        4 => I32,
        5 => I64,
        6 => F16,
        7 => F32,
        8 => F64,
        12 => Bool,
        13 => BF16,
        _ => return None,
    })
}

/// Names of the element types that are not supported.
pub fn dtype_name(number: u32) -> String {
    match number {
        9 => "complex32".to_string(),
        10 => "complex64".to_string(),
        11 => "complex128".to_string(),
        28 => "uint16".to_string(),
        29 => "float8_e4m3fn".to_string(),
        30 => "float8_e5m2".to_string(),
        31 => "float8_e4m3fnuz".to_string(),
        32 => "float8_e5m2fnuz".to_string(),
        other => format!("number {other}"),
    }
}
