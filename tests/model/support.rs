//! Archives: the committed ones, and copies with edited JSON.

use serde_json::Value;
use slapo_model::{ImportError, Model, import};
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// Every archive that is a model.
pub const MODELS: [&str; 7] = ["gpt2-tiny", "gpt2-odd", "bert-tiny", "opt-tiny", "llama-tiny", "misc", "counters"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The bytes of an archive by its stem, or of `bad/stem`.
pub fn bytes(name: &str) -> Vec<u8> {
    let folder = match name {
        "gpt2-tiny" => "examples/gpt2",
        _ => "tests/data",
    };
    let file = root().join(folder).join(format!("{name}.pt2"));
    std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

pub fn model(name: &str) -> Model {
    import(&bytes(name)).unwrap_or_else(|errors| panic!("{name}: {errors:?}"))
}

/// The smallest archive, to be edited.
pub struct Edit {
    entries: Vec<(String, Vec<u8>)>,
}

impl Edit {
    pub fn small() -> Edit {
        Edit::of("bad/small")
    }

    pub fn of(name: &str) -> Edit {
        let mut archive = ZipArchive::new(Cursor::new(bytes(name))).unwrap();
        let entries = (0..archive.len())
            .map(|index| {
                let mut file = archive.by_index(index).unwrap();
                let mut content = Vec::new();
                file.read_to_end(&mut content).unwrap();
                (file.name().to_string(), content)
            })
            .collect();
        Edit { entries }
    }

    /// Edits the JSON of the entry whose name ends so.
    pub fn json(mut self, entry: &str, edit: impl FnOnce(&mut Value)) -> Edit {
        let content = self.content(entry);
        let mut value = serde_json::from_slice(content).unwrap();
        edit(&mut value);
        *content = serde_json::to_vec(&value).unwrap();
        self
    }

    pub fn model(self, edit: impl FnOnce(&mut Value)) -> Edit {
        self.json("models/model.json", edit)
    }

    pub fn graph(self, edit: impl FnOnce(&mut Value)) -> Edit {
        self.model(|model| edit(&mut model["graph_module"]["graph"]))
    }

    /// Edits the node of that name.
    pub fn node(self, name: &str, edit: impl FnOnce(&mut Value)) -> Edit {
        self.graph(|graph| {
            let nodes = graph["nodes"].as_array_mut().unwrap();
            let node = nodes.iter_mut().find(|node| node["name"] == name);
            edit(node.unwrap_or_else(|| panic!("no node {name}")));
        })
    }

    pub fn bytes_of(mut self, entry: &str, edit: impl FnOnce(&mut Vec<u8>)) -> Edit {
        edit(self.content(entry));
        self
    }

    pub fn without(mut self, entry: &str) -> Edit {
        let before = self.entries.len();
        self.entries.retain(|(name, _)| !name.ends_with(entry));
        assert!(self.entries.len() < before, "no entry {entry}");
        self
    }

    fn content(&mut self, entry: &str) -> &mut Vec<u8> {
        let found = self.entries.iter_mut().find(|(name, _)| name.ends_with(entry));
        &mut found.unwrap_or_else(|| panic!("no entry {entry}")).1
    }

    pub fn write(self) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        for (name, content) in self.entries {
            writer.start_file(name, options).unwrap();
            writer.write_all(&content).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    pub fn import(self) -> Result<Model, Vec<ImportError>> {
        import(&self.write())
    }
}
