//! One small file per kind of mistake: what is said, and where. A line with a mistake is marked `#!` and has one error.

use crate::support::{Run, run, schedules};
use slapo_syntax::{Code, Diagnostic};
use std::collections::{BTreeMap, BTreeSet};

/// A file of the ui tests as the command line checks it; lints are shown only in those that are about one.
fn check(stem: &str, text: &str) -> Run {
    let run = run(stem, text).compiled();
    if stem.starts_with("S11") { run.linted(Code::parse(&stem[..5])) } else { run }
}

#[test]
fn messages() {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_snapshot_path("../../../../tests/ui/snapshots");
    let mut failures = String::new();
    for (stem, text) in schedules("tests/ui") {
        let run = check(&stem, &text);
        settings.bind(|| insta::assert_snapshot!(stem.as_str(), run.rendered()));
        let marks = text.lines().enumerate().filter(|(_, line)| line.contains("#!"));
        let marked: Vec<u32> =
            marks.flat_map(|(at, line)| vec![at as u32 + 1; if line.ends_with("twice") { 2 } else { 1 }]).collect();
        // What an option of the command line causes has no place.
        let is_placed = run.diagnostics.iter().all(|diagnostic| diagnostic.primary.is_some());
        // Mistakes in a module beside the file are marked nowhere; the snapshot has them.
        let beside = |diagnostic: &&Diagnostic| {
            let span = diagnostic.span().filter(|span| span.file != run.file);
            span.is_some_and(|span| !run.files.name(span.file).starts_with("std/"))
        };
        let count = run.diagnostics.len() - run.diagnostics.iter().filter(beside).count();
        if run.lines() != marked || is_placed && count != marked.len() {
            failures +=
                &format!("{stem}: errors in lines {:?}, marked are {marked:?}\n{}\n", run.lines(), run.rendered());
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// A file named after a code gives that code, and others only on lines that name them.
#[test]
fn files_are_about_their_code() {
    for (stem, text) in schedules("tests/ui") {
        let Some(code) = stem.get(..5).filter(|code| code.starts_with('S')) else { continue };
        let named: BTreeSet<&str> =
            text.lines().filter_map(|line| line.split_once("#! S")).map(|(_, rest)| &rest[..4]).collect();
        let run = check(&stem, &text);
        let others: Vec<&str> =
            run.codes().into_iter().filter(|found| *found != code && !named.contains(&found[1..])).collect();
        assert!(others.is_empty(), "{stem} gives {others:?}:\n{}", run.rendered());
        assert!(run.codes().contains(&code), "{stem} does not give its code");
    }
}

/// Messages keep to the house style: one line, lower case, no full stop; every error has a place or is about an option.
#[test]
fn messages_have_the_house_style() {
    for (stem, text) in schedules("tests/ui") {
        for diagnostic in &check(&stem, &text).diagnostics {
            let message = &diagnostic.message;
            assert!(!message.contains('\n') && !message.ends_with('.'), "{stem}: {message}");
            assert!(!message.starts_with(|c: char| c.is_uppercase()), "{stem}: {message}");
            assert!(diagnostic.primary.is_some() || text.contains("# slapoc check"), "{stem}: no place for {message}");
            for text in diagnostic.helps.iter().chain(&diagnostic.notes) {
                assert!(!text.ends_with('.') || text.ends_with(".."), "{stem}: {text}");
            }
        }
    }
}

/// Every code of the checker is given for at least two causes: what is said differs in more than names and numbers, or a
/// file is named after the cause.
#[test]
fn every_code_has_two_causes() {
    let mut causes: BTreeMap<Code, BTreeSet<String>> = BTreeMap::new();
    let mut files: BTreeMap<Code, usize> = BTreeMap::new();
    let all = schedules("tests/ui");
    for (stem, text) in &all {
        if let Some(code) = stem.get(..5).and_then(Code::parse) {
            *files.entry(code).or_default() += 1;
        }
        for diagnostic in check(stem, text).diagnostics {
            causes.entry(diagnostic.code).or_default().insert(cause(&diagnostic));
        }
    }
    let mut table = String::new();
    let mut few = Vec::new();
    for code in Code::ALL.iter().filter(|code| is_of_schedules(**code)) {
        let said = causes.get(code).map_or(0, BTreeSet::len);
        let count = said.max(files.get(code).copied().unwrap_or(0));
        table += &format!("{code}  {count:>2}  {}\n", code.title());
        if count < 2 {
            few.push(code.id());
        }
    }
    println!("{table}");
    assert!(few.is_empty(), "with fewer than two causes: {few:?}\n{table}");
    assert!(all.len() >= 120, "{} files", all.len());
}

/// What is wrong and what would be right, without the names and numbers of the case.
fn cause(diagnostic: &Diagnostic) -> String {
    let label = diagnostic.primary.as_ref().map_or("", |label| label.text.as_str());
    let help = diagnostic.helps.first().map_or("", String::as_str);
    let text = format!("{}; {label}; {help}", diagnostic.message);
    let words = text.split('`').step_by(2).collect::<Vec<_>>().join("_");
    words.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
}

/// Codes that a schedule can give on one of the small models.
fn is_of_schedules(code: Code) -> bool {
    matches!(code.family(), "S01" | "S02" | "S03" | "S04" | "S05" | "S06" | "S11")
}
