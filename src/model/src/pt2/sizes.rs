//! Sizes of an archive's tensors and integers, each distinct expression read once.

use super::ImportError;
use super::schema::{SymInt, SymIntArgument, Text};
use crate::sym::{self, Size};
use std::collections::{BTreeMap, HashMap};

pub struct Sizes<'a> {
    expressions: HashMap<&'a str, Size>,
    /// Integers that nodes compute from sizes; their nodes vanish.
    names: &'a BTreeMap<Text<'a>, SymInt<'a>>,
}

impl<'a> Sizes<'a> {
    pub fn new(names: &'a BTreeMap<Text<'a>, SymInt<'a>>) -> Sizes<'a> {
        Sizes { expressions: HashMap::new(), names }
    }

    pub fn size(&mut self, size: &'a SymInt<'a>) -> Result<Size, ImportError> {
        match size {
            SymInt::AsInt(value) => Ok(Size::Const(*value)),
            SymInt::AsExpr(expression) => {
                let text: &str = &expression.expr_str;
                if let Some(known) = self.expressions.get(text) {
                    return Ok(known.clone());
                }
                let size = sym::parse(text)
                    .map_err(|error| ImportError::unsupported(format!("{error}: `{text}` is not supported")))?;
                self.expressions.insert(text, size.clone());
                Ok(size)
            }
        }
    }

    pub fn shape(&mut self, sizes: &'a [SymInt<'a>]) -> Result<Vec<Size>, ImportError> {
        sizes.iter().map(|size| self.size(size)).collect()
    }

    pub fn argument(&mut self, argument: &SymIntArgument) -> Result<Size, ImportError> {
        match argument {
            SymIntArgument::AsInt(value) => Ok(Size::Const(*value)),
            SymIntArgument::AsName(name) => match self.names.get(&**name) {
                Some(size) => self.size(size),
                None => Err(ImportError::malformed(format!("nothing says what the integer `{}` is", &**name))),
            },
        }
    }
}

/// Sizes that hold no symbols, as those of weights.
pub fn constants(sizes: &[SymInt]) -> Option<Vec<i64>> {
    sizes.iter().map(constant).collect()
}

pub fn constant(size: &SymInt) -> Option<i64> {
    match size {
        SymInt::AsInt(value) => Some(*value),
        SymInt::AsExpr(_) => None,
    }
}
