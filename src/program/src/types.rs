//! Element types and tensor types, shared by the model, the compiler and the worker.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    Bool,
    U8,
    I8,
    I16,
    I32,
    I64,
    F16,
    BF16,
    F32,
    F64,
}

/// One row per element type: our name, PyTorch's name, bytes, libtorch's `ScalarType` number.
const DTYPES: [(DType, &str, &str, u64, i8); 10] = [
    (DType::Bool, "bool", "bool", 1, 11),
    (DType::U8, "u8", "uint8", 1, 0),
    (DType::I8, "i8", "int8", 1, 1),
    (DType::I16, "i16", "int16", 2, 2),
    (DType::I32, "i32", "int32", 4, 3),
    (DType::I64, "i64", "int64", 8, 4),
    (DType::F16, "f16", "float16", 2, 5),
    (DType::BF16, "bf16", "bfloat16", 2, 15),
    (DType::F32, "f32", "float32", 4, 6),
    (DType::F64, "f64", "float64", 8, 7),
];

impl DType {
    fn row(self) -> &'static (DType, &'static str, &'static str, u64, i8) {
        &DTYPES[self as usize]
    }

    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// PyTorch's name, as in `torch.float32`.
    pub fn torch_name(self) -> &'static str {
        self.row().2
    }

    pub fn bytes(self) -> u64 {
        self.row().3
    }

    /// libtorch's `c10::ScalarType` number.
    pub fn scalar_type(self) -> i8 {
        self.row().4
    }

    pub fn is_float(self) -> bool {
        self >= DType::F16
    }

    /// From our own name or PyTorch's.
    pub fn parse(name: &str) -> Option<DType> {
        DTYPES.iter().find(|row| row.1 == name || row.2 == name).map(|row| row.0)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Element type and concrete shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorType {
    pub dtype: DType,
    pub shape: Vec<i64>,
}

impl TensorType {
    pub fn new(dtype: DType, shape: impl Into<Vec<i64>>) -> TensorType {
        TensorType { dtype, shape: shape.into() }
    }

    pub fn scalar(dtype: DType) -> TensorType {
        TensorType { dtype, shape: Vec::new() }
    }

    pub fn elements(&self) -> i64 {
        self.shape.iter().product()
    }

    /// Bytes of a dense tensor of this type.
    pub fn bytes(&self) -> u64 {
        self.elements() as u64 * self.dtype.bytes()
    }
}

/// `f32[8, 64, 256]`
impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_sits_in_its_own_row() {
        for (i, row) in DTYPES.iter().enumerate() {
            assert_eq!(row.0 as usize, i);
            assert_eq!(DType::parse(row.1), Some(row.0));
            assert_eq!(DType::parse(row.2), Some(row.0));
        }
    }
}
