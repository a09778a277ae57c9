//! What can be wrong with an archive, as data. How it is shown is decided elsewhere.

use crate::model::SourceLine;
use std::fmt;

/// Why an archive was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportError {
    Empty,
    NotAnArchive,
    Truncated,
    Compressed {
        entry: String,
    },
    MissingEntry {
        entry: String,
    },
    Json {
        entry: String,
        line: usize,
        column: usize,
        error: String,
    },
    /// Major and minor version of the archive's schema, and the major version that can be read.
    Schema {
        found: (u64, u64),
        wanted: u64,
    },
    /// An operator that writes into its argument.
    InPlace {
        operator: String,
        site: Site,
    },
    /// Control flow with graphs inside.
    HigherOrder {
        operator: String,
        site: Site,
    },
    /// An operator of another name space than `aten`.
    Foreign {
        operator: String,
        site: Site,
    },
    /// Parameters and buffers whose values the archive does not hold.
    MissingWeights {
        names: Vec<String>,
    },
    /// An entry that ends before its tensor does; sizes in bytes.
    ShortWeight {
        name: String,
        needed: u64,
        found: u64,
    },
    DType {
        tensor: String,
        dtype: String,
    },
    /// No scalar floating output.
    NoLoss {
        outputs: Vec<String>,
    },
    /// What the archive says is possible, but not here.
    Unsupported {
        what: String,
        site: Site,
    },
    /// What the archive says contradicts itself.
    Malformed {
        what: String,
    },
}

/// Where in the model something stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Dotted path; empty for the root or where no module is known.
    pub module: String,
    pub source: Option<SourceLine>,
}

const EXPORT: &str = "export again: `torch.export.export(…).run_decompositions({})`, as `examples/gpt2/export.py` does";

impl ImportError {
    pub(crate) fn malformed(what: impl Into<String>) -> ImportError {
        ImportError::Malformed { what: what.into() }
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> ImportError {
        ImportError::Unsupported { what: what.into(), site: Site::default() }
    }

    /// Where in the model, for faults of one operator.
    pub fn site(&self) -> Option<&Site> {
        match self {
            ImportError::InPlace { site, .. }
            | ImportError::HigherOrder { site, .. }
            | ImportError::Foreign { site, .. }
            | ImportError::Unsupported { site, .. } => Some(site),
            _ => None,
        }
    }

    /// What to do about it.
    pub fn advice(&self) -> Option<String> {
        let text = match self {
            ImportError::Empty | ImportError::NotAnArchive => {
                "a model is the file that `torch.export.save` writes".to_string()
            }
            ImportError::Truncated => "copy or export the file again".to_string(),
            ImportError::Compressed { .. } => {
                "weights are read in place: keep the file as `torch.export.save` wrote it".to_string()
            }
            ImportError::MissingEntry { .. } => {
                "a model is the file that `torch.export.save` of PyTorch 2.9 or later writes; \
                 checkpoints of `torch.save` hold no graph"
                    .to_string()
            }
            ImportError::Json { .. } | ImportError::Malformed { .. } => {
                "the archive is damaged or was edited: export it again".to_string()
            }
            ImportError::Schema { .. } => "export with PyTorch 2.11, which this version was made for".to_string(),
            ImportError::InPlace { .. } => EXPORT.to_string(),
            ImportError::HigherOrder { .. } => {
                "the graph must be one straight line: replace the control flow by tensor operators".to_string()
            }
            ImportError::Foreign { .. } => {
                "write it in PyTorch's own operators, or register a decomposition before the export".to_string()
            }
            ImportError::MissingWeights { .. } => {
                "export from a model whose parameters are allocated (not on the `meta` device), and keep all \
                 entries of the archive"
                    .to_string()
            }
            ImportError::ShortWeight { .. } => "the archive was edited: export it again".to_string(),
            ImportError::DType { .. } => {
                "supported are bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32 and float64"
                    .to_string()
            }
            ImportError::NoLoss { .. } => {
                "export in training mode with `labels` as an input, so that the model returns its loss".to_string()
            }
            ImportError::Unsupported { .. } => return None,
        };
        Some(text)
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Empty => f.write_str("the file is empty"),
            ImportError::NotAnArchive => f.write_str("not an archive: the file has no zip directory"),
            ImportError::Truncated => f.write_str("the archive is cut: its end is missing"),
            ImportError::Compressed { entry } => write!(f, "entry `{entry}` is compressed"),
            ImportError::MissingEntry { entry } => write!(f, "the archive has no entry `{entry}`"),
            ImportError::Json { entry, line, column, error } => {
                write!(f, "cannot read `{entry}`, line {line}, column {column}: {error}")
            }
            ImportError::Schema { found, wanted } => {
                write!(f, "the archive has schema {}.{}, but only {wanted} can be read", found.0, found.1)
            }
            ImportError::InPlace { operator, site } => {
                write!(f, "operator `{operator}` {site}changes its argument in place")
            }
            ImportError::HigherOrder { operator, site } => {
                write!(f, "operator `{operator}` {site}holds graphs of its own")
            }
            ImportError::Foreign { operator, site } => {
                write!(f, "operator `{operator}` {site}is not one of PyTorch's own (`aten`)")
            }
            ImportError::MissingWeights { names } => match names.as_slice() {
                [name] => write!(f, "the archive has no values for `{name}`"),
                _ => write!(f, "the archive has no values for {} tensors: {}", names.len(), some_of(names)),
            },
            ImportError::ShortWeight { name, needed, found } => {
                write!(f, "`{name}` needs {needed} bytes, but its entry ends after {found}")
            }
            ImportError::DType { tensor, dtype } => {
                write!(f, "`{tensor}` has element type {dtype}, which is not supported")
            }
            ImportError::NoLoss { outputs } => match outputs.as_slice() {
                [] => f.write_str("the model returns no loss: it has no outputs"),
                _ => write!(
                    f,
                    "the model returns no loss: none of its outputs ({}) is a floating scalar",
                    outputs.join(", ")
                ),
            },
            ImportError::Unsupported { what, .. } => f.write_str(what),
            ImportError::Malformed { what } => write!(f, "the archive contradicts itself: {what}"),
        }
    }
}

impl std::error::Error for ImportError {}

/// `` in `transformer.h.0` `` and a space, or nothing for the root.
impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.module.as_str() {
            "" => Ok(()),
            module => write!(f, "in `{module}` "),
        }
    }
}

/// The first names, and how many follow.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|n| format!("`{n}`")).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
