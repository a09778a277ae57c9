//! Arguments and results of nodes: unions of about thirty kinds, of which a graph of tensors needs half.

use super::schema::{Name, OptionalTensor, SymIntArgument, Text};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

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
        struct Kinds<'a>(PhantomData<&'a ()>);
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
        deserializer.deserialize_map(Kinds(PhantomData))
    }
}

fn skip<'de, M: MapAccess<'de>, T>(map: &mut M, value: T) -> Result<T, M::Error> {
    map.next_value::<IgnoredAny>()?;
    Ok(value)
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
