//! `slapoc fmt`: files, folders and standard input in the one style.

use crate::support::{Run, command, run};
use insta::assert_snapshot;
use slapo_core::primitives;
use slapo_syntax::{FileId, format, parse};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;
use tempfile::TempDir;

const WRONG: &str = "mesh{tp=2}\n\n\nschedule main(m: Module) {\n  m.shard( in,over:tp )   # why\n}\n";
const RIGHT: &str = "mesh { tp = 2 }\n\nschedule main(m: Module) {\n    m.shard(in, over: tp)  # why\n}\n";
const BROKEN: &str = "schedule main(m: Module) {\n  m.shard(in;\n}\n";

/// Files in a folder of their own.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("makes it");
        fs::write(path, text).expect("writes");
    }
    folder
}

fn fmt(folder: &TempDir, args: &[&str]) -> Run {
    command(&[&["fmt"], args].concat()).current_dir(folder.path()).output().expect("slapoc starts").into()
}

fn read(folder: &TempDir, name: &str) -> String {
    String::from_utf8(fs::read(folder.path().join(name)).expect("reads")).expect("UTF-8")
}

/// What lies in a folder, in order.
fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).expect("reads");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("reads").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

fn run_on_stdin(text: impl AsRef<[u8]>, args: &[&str]) -> Run {
    let mut child = command(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("slapoc starts");
    child.stdin.take().expect("piped").write_all(text.as_ref()).expect("is read");
    child.wait_with_output().expect("ends").into()
}

#[test]
fn files_are_formatted_in_place() {
    let files =
        [("a.slapo", WRONG), ("b/c.slapo", RIGHT), ("b/d.slapo", WRONG), (".e/f.slapo", WRONG), ("g.txt", WRONG)];
    let folder = folder(&files);
    let c = folder.path().join("b/c.slapo");
    let before = fs::metadata(&c).and_then(|found| found.modified()).expect("has a time");
    let run = fmt(&folder, &[]).expect(0);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", "2 of 3 schedules formatted\n"));
    assert_eq!([read(&folder, "a.slapo"), read(&folder, "b/d.slapo")], [RIGHT, RIGHT]);
    assert_eq!([read(&folder, ".e/f.slapo"), read(&folder, "g.txt")], [WRONG, WRONG], "these are none of its business");
    assert_eq!(fs::metadata(&c).and_then(|found| found.modified()).expect("has a time"), before, "written for nothing");
    assert_eq!(names(&folder), [".e", "a.slapo", "b", "g.txt"], "something is left behind");
    assert_eq!(fmt(&folder, &["."]).expect(0).stderr, "3 schedules: formatted already\n");
    assert_eq!(fmt(&folder, &["a.slapo", "--quiet"]).expect(0).stderr, "");
    let none = fmt(&folder, &["absent.slapo", ".e"]).expect(2);
    assert!(none.stderr.contains("error[S1011]") && read(&folder, ".e/f.slapo") == RIGHT, "{}", none.stderr);
}

#[test]
fn check_names_what_would_change() {
    let folder = folder(&[("a.slapo", WRONG), ("b.slapo", RIGHT), ("c.slapo", WRONG)]);
    assert_snapshot!("fmt-check", fmt(&folder, &["--check"]).expect(1).shown());
    assert_snapshot!("fmt-diff", fmt(&folder, &["--diff"]).expect(0).shown());
    let both = fmt(&folder, &["--check", "--diff"]).expect(1);
    assert_eq!(both.stdout, fmt(&folder, &["--diff"]).stdout);
    let records = fmt(&folder, &["--diff", "--message-format", "json"]).expect(0).stdout;
    let records = records.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let diffs: String = records.filter_map(|record| Some(record.get("diff")?.as_str()?.to_owned())).collect();
    assert_eq!(diffs, both.stdout);
    assert_snapshot!("fmt-json", fmt(&folder, &["--check", "--message-format", "json"]).expect(1).shown());
    assert_snapshot!("fmt-github", fmt(&folder, &["--check", "--message-format", "github"]).expect(1).shown());
    assert_eq!([read(&folder, "a.slapo"), read(&folder, "c.slapo")], [WRONG, WRONG], "nothing is to be written");
    let right = fmt(&folder, &["b.slapo", "--check", "--diff"]).expect(0);
    assert_eq!((right.stdout.as_str(), right.stderr.as_str()), ("", "1 schedule: formatted already\n"));
}

#[test]
fn broken_schedules_stay_and_others_are_formatted() {
    let folder = folder(&[("a.slapo", BROKEN), ("b.slapo", WRONG)]);
    let latin = b"## na\xefve\nmesh{tp=2}\n";
    fs::write(folder.path().join("c.slapo"), latin).expect("writes");
    let run = fmt(&folder, &["--message-format", "short"]).expect(2);
    assert_snapshot!("fmt-broken", run.shown());
    assert_eq!([read(&folder, "a.slapo"), read(&folder, "b.slapo")], [BROKEN, RIGHT]);
    assert_eq!(fs::read(folder.path().join("c.slapo")).expect("reads"), latin);
    assert_eq!(fmt(&folder, &["a.slapo"]).expect(1).stdout, "");
    let records = fmt(&folder, &["a.slapo", "b.slapo", "--message-format", "json"]).expect(1).stdout;
    let kind = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["type"].to_string();
    let kinds: Vec<String> = records.lines().map(kind).collect();
    assert_eq!(kinds, ["\"version\"", "\"diagnostic\"", "\"format\""], "{records}");
}

#[test]
fn standard_input_goes_to_standard_output() {
    let fine = run_on_stdin(WRONG, &["fmt", "-"]).expect(0);
    assert_eq!((fine.stdout.as_str(), fine.stderr.as_str()), (RIGHT, ""));
    assert_eq!(run_on_stdin(RIGHT, &["fmt", "-", "--check"]).expect(0).stdout, "");
    assert_eq!(run_on_stdin(WRONG, &["fmt", "-", "--check"]).expect(1).stdout, "<stdin>\n");
    let named = ["fmt", "-", "--message-format", "short", "--stdin-filename", "x/a.slapo"];
    let broken = run_on_stdin(BROKEN, &named).expect(1);
    assert!(broken.stdout.is_empty() && broken.stderr.starts_with("x/a.slapo:2:"), "{}", broken.shown());
    let latin = run_on_stdin(b"#\xef", &["fmt", "-"]).expect(2);
    assert!(latin.stdout.is_empty() && latin.stderr.contains("byte 0xef on line 1, at offset 1"), "{}", latin.stderr);
    let json = run_on_stdin(WRONG, &["fmt", "-", "--message-format", "json"]).expect(0).stdout;
    let record: serde_json::Value = serde_json::from_str(json.lines().last().expect("a record")).expect("JSON");
    assert_eq!((record["text"].as_str(), record["changed"].as_bool()), (Some(RIGHT), Some(true)));
}

#[test]
fn a_file_keeps_what_is_not_its_text() {
    let windows = format!("\u{feff}{}", WRONG.replace('\n', "\r\n"));
    let folder = folder(&[("a.slapo", WRONG), ("windows.slapo", &windows), ("fixed.slapo", WRONG)]);
    let at = |name: &str| folder.path().join(name);
    let mode = |name: &str| fs::metadata(at(name)).expect("is there").permissions().mode() & 0o777;
    let set = |name: &str, mode: u32| fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).expect("changes");
    set("a.slapo", 0o640);
    set("fixed.slapo", 0o444);
    symlink("a.slapo", at("link.slapo")).expect("links");
    fmt(&folder, &["link.slapo", "windows.slapo"]).expect(0);
    assert_eq!((read(&folder, "a.slapo").as_str(), mode("a.slapo")), (RIGHT, 0o640));
    assert!(fs::symlink_metadata(at("link.slapo")).expect("is there").is_symlink(), "the link was replaced");
    assert_eq!(read(&folder, "windows.slapo"), format!("\u{feff}{}", RIGHT.replace('\n', "\r\n")));
    let fixed = fmt(&folder, &["fixed.slapo"]).expect(2);
    assert!(fixed.stderr.starts_with("error[S1013]: cannot write `fixed.slapo`"), "{}", fixed.stderr);
    assert_eq!((read(&folder, "fixed.slapo").as_str(), mode("fixed.slapo")), (WRONG, 0o444));
    assert_eq!(names(&folder).len(), 4, "{:?}", names(&folder));
}

#[test]
fn what_is_shown_to_users_is_formatted() {
    for args in [["fmt", "--check", "stdlib"], ["fmt", "--check", "examples"]] {
        assert_eq!(run(&args).expect(0).stdout, "");
    }
    for primitive in primitives::ALL {
        let blocks: Vec<&str> = primitive.docs.split("```slapo\n").skip(1).collect();
        assert!(!blocks.is_empty(), "{} has no example", primitive.name);
        for block in blocks.iter().filter_map(|rest| rest.split("```").next()) {
            let parsed = parse(FileId(0), block);
            assert_eq!(format(&parsed).as_deref(), Some(block), "the documentation of {}", primitive.name);
        }
    }
}
