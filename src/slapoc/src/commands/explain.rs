//! `slapoc explain`: the page of a diagnostic's code, of a primitive or of a schedule of the library.

use crate::args::Explain;
use crate::failure::{Exit, Failure, Result};
use crate::output::Output;
use serde::Serialize;
use slapo_core::primitives::{self, Class, Primitive};
use slapo_ide::Signature;
use slapo_syntax::{Code, FileId, Lint, parse};
use std::fmt::Write;

#[derive(Serialize)]
struct Page {
    topic: String,
    title: String,
    /// Markdown.
    text: String,
}

pub fn run(args: &Explain, out: &Output) -> Result<Exit> {
    match &args.topic {
        Some(topic) => {
            let page = page(topic).ok_or_else(|| unknown(topic))?;
            if out.is_json() { out.record("page", &page)? } else { out.result(&page.text)? }
        }
        None if out.is_json() => {
            let topics = Code::ALL.iter().map(|code| code.id()).chain(primitives::ALL.iter().map(|p| p.name));
            let pages = topics.filter_map(page).chain(library().iter().map(of_schedule).collect::<Vec<_>>());
            for page in pages {
                out.record("page", &page)?;
            }
        }
        None => out.result(&list())?,
    }
    Ok(Exit::Done)
}

fn page(topic: &str) -> Option<Page> {
    if let Some(code) = Code::parse(topic).or_else(|| Lint::find(topic).map(|lint| lint.code)) {
        let text = ended(&for_people(code.page()));
        return Some(Page { topic: code.id().to_owned(), title: code.title().to_owned(), text });
    }
    if let Some(primitive) = primitives::find(topic) {
        let text = ended(&of_primitive(primitive));
        return Some(Page { topic: primitive.name.to_owned(), title: primitive.signature(), text });
    }
    library().iter().find(|schedule| schedule.signature.name == topic).map(of_schedule)
}

/// A schedule of the library.
struct Listed {
    module: &'static str,
    signature: Signature,
}

fn library() -> Vec<Listed> {
    let texts = slapo_stdlib::names().filter_map(|module| Some((module, slapo_stdlib::module(module)?)));
    let listed = |(module, text)| {
        let signatures = parse(FileId(0), text).file().schedules().map(Signature::of_schedule).collect::<Vec<_>>();
        signatures.into_iter().map(move |signature| Listed { module, signature })
    };
    texts.flat_map(listed).collect()
}

/// Signature, meaning, and how it is imported.
fn of_schedule(schedule: &Listed) -> Page {
    let Listed { module, signature: Signature { name, label, docs, .. } } = schedule;
    let text = format!("# `{label}`\n\n{}\n\nIt is in the library: `use std.{module}.{name}`.\n", docs.trim_end());
    Page { topic: name.clone(), title: label.clone(), text }
}

/// Signature, meaning, example, arguments, what it does to numbers, and how it can go wrong.
fn of_primitive(primitive: &Primitive) -> String {
    let mut text = format!("# `{}`\n\n{}\n", primitive.signature(), primitive.docs.trim_end());
    // Writing into a string cannot fail.
    if !primitive.params.is_empty() {
        text.push_str("\nArguments:\n\n");
    }
    for parameter in primitive.params {
        let _ = writeln!(text, "* `{}`: {}", parameter.name, parameter.docs);
    }
    let class = primitive.class;
    let _ = writeln!(text, "\nNumeric class: {}. {}.", class.name(), consequence(class));
    text.push_str("\nErrors, each with a page of its own:\n\n");
    for code in Code::ALL.iter().filter(|code| is_about(**code, primitive)) {
        let _ = writeln!(text, "* {code}: {}", code.title());
    }
    text
}

fn consequence(class: Class) -> &'static str {
    match class {
        Class::Exact => "The numbers are bit-equal to those without it",
        Class::Reassociating => "Sums are taken in another order: the numbers agree up to rounding",
        Class::Lossy => "The numbers are less precise than those without it",
        Class::ChangesTraining => "It is another training than the one without it",
    }
}

/// Whether a step of this primitive can give that error: any can be repeated, and pages on steps show the primitives that
/// they are about.
fn is_about(code: Code, primitive: &Primitive) -> bool {
    const ON_STEPS: [&str; 5] = ["S04", "S05", "S06", "S07", "S08"];
    let shows = || {
        let fails = code.page().split("```slapo,fail").nth(1).and_then(|rest| rest.split("```").next());
        fails.is_some_and(|example| example.contains(&format!(".{}(", primitive.name)))
    };
    // Behind S0650 are those of the `mesh` item.
    let is_on_steps = ON_STEPS.contains(&code.family()) && !code.id().starts_with("S065");
    code == Code::Repeated || code != Code::RequireFailed && is_on_steps && shows()
}

/// The marks of examples are for the tests that run them.
fn for_people(page: &str) -> String {
    let marks = [",fail\n", ",ok\n"];
    marks.iter().fold(page.to_owned(), |page, mark| page.replace(mark, "\n"))
}

fn ended(text: &str) -> String {
    format!("{}\n", text.trim_end())
}

fn list() -> String {
    let mut text = "Primitives\n".to_owned();
    for primitive in primitives::ALL {
        let _ = writeln!(text, "    {:<12} {}", primitive.name, primitive.signature());
    }
    text.push_str("\nSchedules of the library\n");
    for Listed { module, signature } in library() {
        let _ = writeln!(text, "    {:<16} std.{module}: {}", signature.name, signature.label);
    }
    text.push_str("\nDiagnostics\n");
    for code in Code::ALL {
        let _ = writeln!(text, "    {:<12} {}", code.id(), code.title());
    }
    text
}

fn unknown(topic: &str) -> Box<Failure> {
    let failure = Failure::usage(format!("there is no code, no primitive and no schedule `{topic}`"));
    let names: Vec<&str> = primitives::ALL.iter().map(|p| p.name).collect();
    failure
        .help(format!("primitives are {}", names.join(", ")))
        .help("`slapoc explain` without an argument lists everything")
}
