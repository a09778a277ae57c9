//! What the whole tree must keep to: who may depend on whom, which crates touch the outside world, how files begin.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which crates of the workspace each one may use. `slapo-` is left out; a crate that is not here may not exist.
const EDGES: &[(&str, &[&str])] = &[
    ("grammar", &[]),
    ("stdlib", &[]),
    ("syntax", &["grammar"]),
    ("program", &[]),
    ("model", &["program"]),
    ("core", &["syntax", "stdlib", "model", "program"]),
    ("ide", &["core", "model", "stdlib", "syntax"]),
    ("runtime", &["program"]),
    ("slapoc", &["grammar", "stdlib", "syntax", "program", "model", "core", "ide"]),
    ("xtask", &[]),
    ("tree-sitter-slapo", &[]),
    ("editors", &["core", "syntax"]),
    ("docs", &["core", "ide", "stdlib", "syntax"]),
];

/// Libraries that belong to some crates only.
const OWNERS: &[(&str, &[&str])] = &[
    ("tch", &["runtime"]),
    ("torch-sys", &["runtime"]),
    ("cudarc", &["runtime"]),
    ("ariadne", &["slapoc"]),
    ("codespan-reporting", &["syntax", "slapoc"]),
    ("lsp-server", &["slapoc"]),
    ("lsp-types", &["slapoc"]),
    ("pest", &["grammar", "syntax"]),
    ("pest_derive", &["grammar"]),
];

/// Folders of the crates that compute and do nothing else.
const PURE: &[&str] = &["grammar", "stdlib", "src/syntax", "src/program", "src/model", "src/core", "src/ide"];
const OUTSIDE: &[&str] = &["fs", "env", "process", "net"];
const PRINTING: &[&str] = &["println!", "print!", "eprintln!", "eprint!", "dbg!"];

const LONGEST: usize = 800;
/// In pieces, so that this file does not hold them.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];
const HOSTS: &[&str] = &[
    concat!("pypi", ".org"),
    concat!("python", "hosted"),
    concat!("download.", "pytorch.org"),
    concat!("crates", ".io"),
    concat!("hugging", "face.co"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two folders down").to_owned()
}

/// All files of the tree below `folder` with one of the extensions, in order.
fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            let skipped = [".git", "target", "node_modules", "__pycache__"].contains(&name.as_str());
            if !skipped && !name.ends_with(".slapo-out") {
                found.extend(files(&path, extensions));
            }
        } else if path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x)) {
            found.push(path);
        }
    }
    found
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Crates of the workspace by short name, with what they depend on outside their tests.
fn dependencies() -> Vec<(String, Vec<String>)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let short = |name: &Value| name.as_str().expect("a name").trim_start_matches("slapo-").to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let listed = package["dependencies"].as_array().expect("dependencies").iter();
            let normal = listed.filter(|d| d["kind"] != "dev").map(|d| {
                let own = !d["path"].is_null();
                if own { short(&d["name"]) } else { format!("registry:{}", d["name"].as_str().expect("a name")) }
            });
            (short(&package["name"]), normal.collect())
        })
        .collect()
}

fn assert_none(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn crates_depend_only_downwards() {
    let mut faults = Vec::new();
    for (name, dependencies) in dependencies() {
        let Some((_, allowed)) = EDGES.iter().find(|(known, _)| *known == name) else {
            faults.push(format!("`{name}` is not in the table of crates"));
            continue;
        };
        for dependency in dependencies {
            match dependency.strip_prefix("registry:") {
                Some(library) => {
                    let owners = OWNERS.iter().find(|(known, _)| *known == library);
                    if owners.is_some_and(|(_, owners)| !owners.contains(&name.as_str())) {
                        faults.push(format!("`{name}` may not depend on `{library}`"));
                    }
                }
                None if !allowed.contains(&dependency.as_str()) => {
                    faults.push(format!("`{name}` may not depend on `{dependency}`"));
                }
                None => {}
            }
        }
    }
    assert_none(faults);
}

/// A source without its tests: those in a `tests.rs` or `tests` folder are gone, those at the end of a file cut off.
fn without_tests(path: &Path) -> Option<String> {
    let in_tests = path.components().any(|c| c.as_os_str() == "tests") || path.ends_with("tests.rs");
    let whole = (!in_tests).then(|| text(path))?;
    Some(whole.split("#[cfg(test)]").next().unwrap_or_default().to_owned())
}

#[test]
fn compiler_crates_touch_nothing_outside() {
    let mut faults = Vec::new();
    for path in PURE.iter().flat_map(|folder| files(&root().join(folder).join("src"), &["rs"])) {
        let Some(source) = without_tests(&path) else { continue };
        for (number, line) in (1..).zip(source.lines()) {
            let code = line.split("//").next().unwrap_or_default();
            let words: Vec<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '!').collect();
            let std = code.contains("std::");
            let reached = OUTSIDE.iter().filter(|name| std && words.contains(name));
            let printed = PRINTING.iter().filter(|name| words.contains(name));
            for name in reached.chain(printed) {
                faults.push(format!("{}:{number}: `{name}` in a compiler crate", shown(&path)));
            }
        }
    }
    assert_none(faults);
}

#[test]
fn every_source_says_what_it_is_and_stays_readable() {
    let mut faults = Vec::new();
    let generated = root().join("editors/tree-sitter-slapo/src");
    for path in files(&root(), &["rs", "cpp", "h"]) {
        if path.starts_with(&generated) {
            continue;
        }
        let source = text(&path);
        if !source.starts_with("//") {
            faults.push(format!("{}: does not begin with a comment that says what it owns", shown(&path)));
        }
        let lines = source.lines().count();
        if lines > LONGEST {
            faults.push(format!("{}: {lines} lines, at most {LONGEST}", shown(&path)));
        }
    }
    assert_none(faults);
}

#[test]
fn nothing_is_left_for_later_and_no_host_is_named() {
    let mut faults = Vec::new();
    for path in files(&root(), &["rs", "cpp", "h", "py", "toml", "md", "sh", "slapo", "pest", "yml"]) {
        for (number, line) in (1..).zip(text(&path).lines()) {
            for word in UNFINISHED.iter().chain(HOSTS).filter(|word| line.contains(**word)) {
                faults.push(format!("{}:{number}: `{word}`", shown(&path)));
            }
        }
    }
    assert_none(faults);
}

/// Links of a page that lead to files of the tree: what they show, and where they lead.
fn links(page: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (at, _) in page.match_indices("](") {
        let target = page[at + 2..].split(')').next().unwrap_or_default();
        let shown = page[..at].rsplit('[').next().unwrap_or_default();
        if !target.is_empty() && !target.contains("://") && !target.starts_with('#') {
            found.push((shown, target.split('#').next().unwrap_or_default()));
        }
    }
    found
}

/// The name of a test, where a link shows one: lower case, several words, in a source.
fn named_test<'p>((shown, target): (&'p str, &str)) -> Option<&'p str> {
    let name = shown.strip_prefix('`')?.strip_suffix('`')?;
    let is_name = name.contains('_') && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    (target.ends_with(".rs") && is_name).then_some(name)
}

/// What is wrong with a page's links: a file that is not there, or one without the test that the link shows.
fn broken_links(page: &str, folder: &Path) -> Vec<String> {
    let fault = |link: (&str, &str)| {
        let path = folder.join(link.1);
        if !path.exists() {
            return Some(format!("there is no `{}`", link.1));
        }
        let name = named_test(link)?;
        let is_there = text(&path).contains(&format!("#[test]\nfn {name}()"));
        (!is_there).then(|| format!("`{}` has no test `{name}`", link.1))
    };
    links(page).into_iter().filter_map(fault).collect()
}

/// `docs/from-slapo.md` goes through what another project's tests ask, and names tests of ours: they are there.
#[test]
fn links_of_pages_lead_somewhere() {
    let mut faults = Vec::new();
    let mut tests = 0;
    for path in files(&root(), &["md"]) {
        let page = text(&path);
        tests += links(&page).into_iter().filter_map(named_test).count();
        let broken = broken_links(&page, path.parent().expect("a folder"));
        faults.extend(broken.iter().map(|fault| format!("{}: {fault}", shown(&path))));
    }
    assert_none(faults);
    assert!(tests > 50, "only {tests} tests are named");
    let here = root().join("src/xtask/tests");
    assert_eq!(broken_links("[`links_of_pages_lead_somewhere`](tidy.rs) and [it](tidy.rs)", &here), [""; 0]);
    assert_eq!(broken_links("[`links_of_pages`](tidy.rs)", &here), ["`tidy.rs` has no test `links_of_pages`"]);
    assert_eq!(broken_links("[it](tidy.md)", &here), ["there is no `tidy.md`"]);
}
