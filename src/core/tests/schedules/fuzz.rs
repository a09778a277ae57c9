//! Arbitrary and edited schedules: checking and compiling end, in time, with places inside the text; a formatted schedule
//! means what it meant before.

use crate::clock::{bound, within};
use crate::edits::{bytes, edited, schedules, try_all, words};
use crate::robust::sound;
use crate::support::{Run, imported, root};
use slapo_core::schedule::{Step, head};
use slapo_model::Model;
use slapo_syntax::{FileId, format, parse};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// Expansion stops after so much work, however short the text.
const LONGEST: Duration = Duration::from_secs(1);

const ARCHIVES: &[&str] =
    &["gpt2-tiny.pt2", "bert-tiny.pt2", "opt-tiny.pt2", "llama-tiny.pt2", "grouped.pt2", "misc.pt2", "counters.pt2"];

/// The schedules below a folder of the repository.
fn texts(folder: &str) -> Vec<String> {
    let all = schedules(&root()).into_iter().filter(|(path, _)| path.starts_with(folder));
    all.map(|(_, text)| text).collect()
}

/// The archive that a text names, or the first one.
fn model(text: &str) -> Arc<Model> {
    let named = head(&parse(FileId(0), text)).model;
    let known = ARCHIVES.iter().find(|name| named.as_ref().is_some_and(|model| model.path == **name));
    imported(known.unwrap_or(&ARCHIVES[0])).unwrap()
}

fn run(text: &str) -> Run {
    within(bound(LONGEST), text, || sound(&model(text), text).compiled())
}

#[test]
fn arbitrary_bytes() {
    try_all(300, bytes(), |text| drop(run(&text)));
}

#[test]
fn arbitrary_words() {
    try_all(300, words(), |text| drop(run(&text)));
}

#[test]
fn edited_schedules() {
    try_all(800, edited(texts(""), 4), |text| drop(run(&text)));
}

/// What was right and is edited little is often right again, and compiled.
#[test]
fn edited_examples() {
    let (tried, right) = (Cell::new(0), Cell::new(0));
    try_all(400, edited(texts("examples/"), 2), |text| {
        tried.set(tried.get() + 1);
        right.set(right.get() + usize::from(run(&text).diagnostics.is_empty()));
    });
    println!("{} schedules, {} of them right", tried.get(), right.get());
    assert!(right.get() * 20 > tried.get(), "only {} of {} are right", right.get(), tried.get());
}

/// Codes of what is found, and steps without their places.
fn meaning(run: &Run) -> (Vec<&'static str>, Vec<String>) {
    let step = |step: &Step| format!("{} {} {:?}", step.primitive.name, step.target.path, step.args);
    let skipped = run.checked.skipped.iter().map(|skipped| format!("{}: {}", skipped.what, skipped.reason));
    let mut codes = run.codes();
    codes.extend(run.checked.lints.iter().map(|lint| lint.code.id()));
    (codes, run.checked.steps.iter().map(step).chain(skipped).collect())
}

#[test]
fn formatted_schedules_mean_the_same() {
    let (formatted, with_steps) = (Cell::new(0), Cell::new(0));
    try_all(800, edited(texts(""), 2), |text| {
        let Some(form) = format(&parse(FileId(0), &text)) else { return };
        let (before, after) = (meaning(&run(&text)), meaning(&run(&form)));
        assert_eq!(before, after, "{text}\nbecame\n{form}");
        formatted.set(formatted.get() + 1);
        with_steps.set(with_steps.get() + usize::from(!before.1.is_empty()));
    });
    println!("{} formatted, {} of them with steps", formatted.get(), with_steps.get());
    assert!(with_steps.get() > 30, "only {} have steps", with_steps.get());
}
