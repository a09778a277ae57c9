//! The files of the editors: written lists are current, data files are valid, and what a manifest names is there.

mod support;

use serde_json::Value;
use std::path::Path;
use support::{editors, files, read};

#[test]
fn written_files_are_current() {
    for (path, text) in slapo_editors::files() {
        assert!(!text.contains("{{"), "{path} has a list that is not filled in");
        assert_eq!(read(&editors().join(path)), text, "{path} is old: run `cargo xtask codegen`");
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&read(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn data_files_are_valid() {
    let paths = files(editors(), &["json"]);
    assert!(paths.len() >= 8, "only {} JSON files found", paths.len());
    paths.iter().for_each(|path| assert!(!json(path).is_null()));
    for path in files(editors(), &["toml"]) {
        let parsed = read(&path).parse::<toml::Table>();
        parsed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

#[test]
fn the_extension_has_what_its_manifest_names() {
    let folder = editors().join("vscode");
    let manifest = json(&folder.join("package.json"));
    let parts = &manifest["contributes"];
    let mut named = vec![&parts["languages"][0]["configuration"]];
    for list in ["grammars", "snippets"] {
        named.extend(parts[list].as_array().expect("a list").iter().map(|entry| &entry["path"]));
    }
    for path in named {
        let path = path.as_str().expect("a path");
        assert!(folder.join(path).is_file(), "{path} is not there");
    }
    let grammar = &parts["grammars"][0];
    assert_eq!(grammar["scopeName"], json(&folder.join(grammar["path"].as_str().expect("a path")))["scopeName"]);
    // The library that speaks to the server reads that one itself; all of `check` is sent as it is.
    let of_the_library = "trace.server";
    let client = read(&folder.join("src/extension.js"));
    let readme = read(&editors().join("README.md"));
    for setting in parts["configuration"]["properties"].as_object().expect("settings").keys() {
        let name = setting.strip_prefix("slapo.").expect("a name of ours");
        match name.strip_prefix("check.") {
            Some(flag) => assert!(readme.contains(&format!("| `{flag}` |")), "`{setting}` is in no table"),
            None => {
                assert!(name == of_the_library || client.contains(&format!("'{name}'")), "nothing reads `{setting}`")
            }
        }
    }
}

/// A snippet is a schedule that parses, once its placeholders are filled with what they propose.
#[test]
fn snippets_parse() {
    let snippets = json(&editors().join("vscode/snippets/slapo.json"));
    for (name, snippet) in snippets.as_object().expect("snippets") {
        let lines = snippet["body"].as_array().expect("lines").iter().map(|line| line.as_str().expect("a line"));
        let text = filled(&lines.collect::<Vec<_>>().join("\n"));
        let is_item = text.starts_with("##") || ["mesh", "input", "knob"].iter().any(|word| text.starts_with(word));
        let whole = if is_item { text } else { format!("schedule f(m: Module) {{\n{text}\n}}\n") };
        let parsed = slapo_syntax::parse(slapo_syntax::FileId(0), &whole);
        assert!(parsed.diagnostics.is_empty(), "{name}: {:?}\n{whole}", parsed.diagnostics);
    }
}

/// `${1:name}` becomes `name`, `$0` nothing.
fn filled(body: &str) -> String {
    let mut out = String::new();
    let mut rest = body;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        rest = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((placeholder, after)) => {
                out.push_str(placeholder.split_once(':').map_or("", |(_, text)| text));
                after
            }
            None => after.trim_start_matches(|c: char| c.is_ascii_digit()),
        };
    }
    out + rest
}
