//! The identity of a model: what is computed, on parameters of which names, shapes and types.
//!
//! Weights' values, source lines and the place of tensors in the file do not enter. The text below is hashed; changing
//! it changes every fingerprint.

use crate::listing::Listing;
use crate::model::Model;
use sha2::{Digest, Sha256};
use std::fmt::{self, Write};

/// 32 hexadecimal digits.
pub fn fingerprint(model: &Model) -> String {
    let mut hash = Hash(Sha256::new());
    // Writing into a hash cannot fail.
    let _ = describe(model, &mut hash);
    let digest = hash.0.finalize();
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn describe(model: &Model, out: &mut impl Write) -> fmt::Result {
    for parameter in &model.parameters {
        let names = parameter.names.join(" = ");
        writeln!(out, "{names}: {}{:?}", parameter.dtype, parameter.shape)?;
    }
    for buffer in &model.buffers {
        writeln!(out, "{}: {}{:?}", buffer.name, buffer.dtype, buffer.shape)?;
    }
    for (symbol, range) in &model.symbols {
        writeln!(out, "{symbol} in {range}")?;
    }
    write!(out, "{}", Listing::of(model))
}

struct Hash(Sha256);

impl Write for Hash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text);
        Ok(())
    }
}
