//! The part of `models/model.json` and of the weights' tables that an importer needs (schema 8 of PyTorch's
//! `torch/_export/serde/schema.py`). Everything else in the JSON is skipped.

use super::argument::Argument;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

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
