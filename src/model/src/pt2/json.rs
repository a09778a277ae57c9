//! The JSON entries of an archive, read and their schema checked.

use super::ImportError;
use super::archive::Archive;
use super::schema::{ExportedProgram, Payloads, SCHEMA, Version};
use serde::Deserialize;

const MODEL: &str = "models/model.json";
const WEIGHTS: &str = "data/weights/model_weights_config.json";
const CONSTANTS: &str = "data/constants/model_constants_config.json";

pub struct Json<'a> {
    pub program: ExportedProgram<'a>,
    pub weights: Payloads<'a>,
    pub constants: Payloads<'a>,
}

impl<'a> Json<'a> {
    pub fn read(archive: &Archive<'a>) -> Result<Json<'a>, ImportError> {
        byte_order(archive)?;
        Ok(Json {
            program: read_program(archive)?,
            weights: read_table(archive, WEIGHTS)?,
            constants: read_table(archive, CONSTANTS)?,
        })
    }
}

fn read_program<'a>(archive: &Archive<'a>) -> Result<ExportedProgram<'a>, ImportError> {
    let json = archive.read(MODEL)?.ok_or_else(|| missing(MODEL))?;
    let version = |found: u64, minor| ImportError::Schema { found: (found, minor), wanted: SCHEMA };
    match serde_json::from_slice::<ExportedProgram>(json) {
        Ok(program) if program.schema_version.major == SCHEMA => Ok(program),
        Ok(program) => Err(version(program.schema_version.major, program.schema_version.minor)),
        Err(error) => match serde_json::from_slice::<Version>(json) {
            // Another schema is why it cannot be read.
            Ok(found) if found.schema_version.major != SCHEMA => {
                Err(version(found.schema_version.major, found.schema_version.minor))
            }
            _ => Err(bad_json(MODEL, &error)),
        },
    }
}

fn read_table<'a, T: Deserialize<'a>>(archive: &Archive<'a>, entry: &str) -> Result<T, ImportError> {
    let json = archive.read(entry)?.ok_or_else(|| missing(entry))?;
    serde_json::from_slice(json).map_err(|error| bad_json(entry, &error))
}

fn byte_order(archive: &Archive) -> Result<(), ImportError> {
    match archive.read("byteorder")? {
        None | Some(b"little") => Ok(()),
        Some(_) => {
            Err(ImportError::unsupported("the archive was written on a big-endian machine, which is not supported"))
        }
    }
}

fn missing(entry: &str) -> ImportError {
    ImportError::MissingEntry { entry: entry.to_string() }
}

fn bad_json(entry: &str, error: &serde_json::Error) -> ImportError {
    let text = error.to_string();
    ImportError::Json {
        entry: entry.to_string(),
        line: error.line(),
        column: error.column(),
        // The place is in the fields.
        error: text.split(" at line ").next().unwrap_or(&text).to_string(),
    }
}
