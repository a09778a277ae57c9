//! Names of the dimensions of parameters, by the class that owns them.
//!
//! A linear layer stores `[out, in]`, Hugging Face's `Conv1D` `[in, out]`: `out` is right for both. Roles follow the path
//! that was used, so a tied parameter has those of the module it was reached by.

/// Class, parameter, roles of its dimensions in order. Of norms and embeddings the class is the end of a name.
#[rustfmt::skip]
pub const ROLES: &[(&str, &str, &[&str])] = &[
    ("Linear", "weight", &["out", "in"]),
    ("Linear", "bias", &["out"]),
    ("NonDynamicallyQuantizableLinear", "weight", &["out", "in"]),
    ("NonDynamicallyQuantizableLinear", "bias", &["out"]),
    ("Conv1D", "weight", &["in", "out"]),
    ("Conv1D", "bias", &["out"]),
    ("Conv2d", "weight", &["out", "in"]),
    ("Conv2d", "bias", &["out"]),
    ("Embedding", "weight", &["vocab", "hidden"]),
    ("LayerNorm", "weight", &["hidden"]),
    ("LayerNorm", "bias", &["hidden"]),
    ("RMSNorm", "weight", &["hidden"]),
    ("BatchNorm2d", "weight", &["channel"]),
    ("BatchNorm2d", "bias", &["channel"]),
    ("BatchNorm2d", "running_mean", &["channel"]),
    ("BatchNorm2d", "running_var", &["channel"]),
];

/// Classes that hold a linear layer's weight: where a schedule says `Linear`, each of them will do.
const LINEAR: &[&str] = &["Linear", "NonDynamicallyQuantizableLinear", "Conv1D"];

/// Roles of the first dimensions of `parameter` in a module of short class `class`; empty where none are known.
pub fn roles(class: &str, parameter: &str) -> &'static [&'static str] {
    let fits =
        |row: &str| row == class || class.strip_suffix(row).is_some_and(|family| !family.is_empty() && is_family(row));
    ROLES.iter().find(|(row, name, _)| *name == parameter && fits(row)).map_or(&[], |(.., roles)| *roles)
}

/// Whether a module of `class` (qualified, or short) is what a schedule calls `name`.
pub fn is_class(class: &str, name: &str) -> bool {
    let short = class.rsplit('.').next().unwrap_or("");
    !class.is_empty() && (class == name || short == name || name == "Linear" && LINEAR.contains(&short))
}

/// Classes of one kind whose names differ in front: `LlamaRMSNorm`, `OPTLearnedPositionalEmbedding`.
fn is_family(class: &str) -> bool {
    matches!(class, "RMSNorm" | "LayerNorm" | "Embedding")
}
