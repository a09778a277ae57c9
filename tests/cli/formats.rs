//! What other programs read: every ui test in the formats for them, and the page that documents those.

use crate::schedules::run_on;
use crate::support::{Run, command, root};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// The ui tests that name one of the models beside them; they are checked in a folder with those.
fn check_all(format: &str) -> Run {
    let folder = tempfile::TempDir::new().expect("a folder");
    for source in ["tests/data", "tests/data/bad", "examples/gpt2", "tests/ui"] {
        for entry in fs::read_dir(root().join(source)).expect("reads") {
            let path: PathBuf = entry.expect("an entry").path();
            if path.extension().is_some_and(|ending| ending == "pt2" || ending == "slapo" && source == "tests/ui") {
                fs::copy(&path, folder.path().join(path.file_name().expect("a name"))).expect("copies");
            }
        }
    }
    let args = ["check", ".", "-W", "whole-parameters", "--message-format", format];
    command(&args).current_dir(folder.path()).output().expect("slapoc starts").into()
}

/// `main.slapo:12:9: error[S0601]: …`, which editors and `grep` split at the colons.
#[test]
fn short_is_one_line_each() {
    let run = check_all("short").expect(1);
    let (mut placed, mut lines) = (0, run.stderr.lines().collect::<Vec<_>>());
    let closing = lines.pop().expect("a closing line");
    assert!(closing.contains(" errors, ") && closing.contains(" schedules; `slapoc explain"), "{closing}");
    for line in lines {
        let (head, message) = line.split_once("]: ").unwrap_or_else(|| panic!("not of the form: {line}"));
        let (place, kind) = head.rsplit_once(' ').unwrap_or(("", head));
        let (severity, code) = kind.split_once('[').unwrap_or_else(|| panic!("no code: {line}"));
        assert!(["error", "warning", "note"].contains(&severity), "{line}");
        assert!(code.len() == 5 && code.starts_with('S') && !message.is_empty(), "{line}");
        if let Some((file, place)) = place.strip_suffix(':').and_then(|place| place.split_once(".slapo:")) {
            let numbers: Vec<u32> = place.split(':').map(|number| number.parse().expect("a number")).collect();
            assert!(numbers.len() == 2 && numbers.iter().all(|number| *number > 0) && !file.is_empty(), "{line}");
            placed += 1;
        }
    }
    assert!(placed > 250, "only {placed} lines with a place");
}

/// One annotation a line, whose text has no line ends of its own.
#[test]
fn github_is_one_annotation_a_line() {
    let run = check_all("github").expect(1);
    for line in run.stdout.lines() {
        let (head, text) = line.strip_prefix("::").and_then(|line| line.split_once("::")).expect("an annotation");
        let (command, properties) = head.split_once(' ').expect("properties");
        assert!(["error", "warning", "notice"].contains(&command) && !text.is_empty(), "{line}");
        let names: Vec<&str> =
            properties.split(',').filter_map(|property| property.split_once('=')).map(|p| p.0).collect();
        assert!(names == ["title"] || names == ["file", "line", "col", "endLine", "endColumn", "title"], "{line}");
    }
    assert!(run.stdout.lines().count() > 250);
}

/// Every field of every record is in `docs/messages.md`, and that names no other.
#[test]
fn json_is_as_documented() {
    let page = fs::read_to_string(root().join("docs/messages.md")).expect("reads");
    let mut fields = BTreeSet::new();
    for line in check_all("json").expect(1).stdout.lines() {
        collect(&serde_json::from_str(line).expect("JSON"), &mut fields);
    }
    let fixed = ["check", "--fix", "--diff", "main.slapo", "--message-format", "json"];
    let text = "schedule main(m: Module) {\n    let spare = 1\n}\n";
    for line in run_on(text, &fixed).expect(0).stdout.lines() {
        collect(&serde_json::from_str(line).expect("JSON"), &mut fields);
    }
    let json = page.split_once("\n## JSON\n").expect("the part on JSON").1;
    let quoted = json.split('`').skip(1).step_by(2);
    let named: BTreeSet<String> = quoted.filter_map(|name| name.rsplit('.').next()).map(str::to_owned).collect();
    let undocumented: Vec<&String> = fields.iter().filter(|field| !named.contains(*field)).collect();
    assert!(undocumented.is_empty(), "not in docs/messages.md: {undocumented:?}");
    let rows = json.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    for name in rows.flat_map(|(names, _)| names.split("`, `")) {
        let name = name.rsplit('.').next().unwrap_or(name);
        assert!(fields.contains(name), "no record has the field `{name}` of docs/messages.md");
    }
}

fn collect(value: &Value, fields: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object.iter().filter(|(name, _)| *name != "type") {
                fields.insert(name.clone());
                collect(value, fields);
            }
        }
        Value::Array(all) => all.iter().for_each(|value| collect(value, fields)),
        _ => {}
    }
}
