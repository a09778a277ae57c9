//! What the tests of this folder share: the repository's files, and texts parsed by tree-sitter.

#![allow(dead_code, clippy::allow_attributes, reason = "each test target uses a part")]

use std::fs;
use std::path::{Path, PathBuf};
use tree_sitter::{Language, Node, Parser, Tree};

/// The folder `editors`.
pub fn editors() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below a folder with one of these extensions, in order; what was built or installed is left out.
pub fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            let skipped = ["target", "node_modules", "dist"].contains(&&*name) || name.starts_with('.');
            if !skipped && !name.ends_with(".slapo-out") {
                found.extend(files(&path, extensions));
            }
        } else if path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x)) {
            found.push(path);
        }
    }
    found
}

/// Every schedule of the repository, broken ones too, with its path.
pub fn schedules() -> Vec<(String, String)> {
    let root = editors().parent().expect("a folder above");
    let paths = files(root, &["slapo"]);
    assert!(paths.len() > 100, "only {} schedules found", paths.len());
    let shown = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
    paths.iter().map(|path| (shown(path), read(path))).collect()
}

pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn language() -> Language {
    Language::new(tree_sitter_slapo::LANGUAGE)
}

pub fn parse(text: &str) -> Tree {
    let mut parser = Parser::new();
    parser.set_language(&language()).expect("a version that this library reads");
    parser.parse(text, None).expect("a language is set and nothing cancels")
}

/// A node and everything below it, parents first.
pub fn below(node: Node<'_>) -> Vec<Node<'_>> {
    let mut found = Vec::new();
    let mut stack = vec![node];
    while let Some(node) = stack.pop() {
        found.push(node);
        stack.extend((0..node.child_count()).rev().filter_map(|at| node.child(at)));
    }
    found
}
