//! `slapoc explain`: the page of a diagnostic's code or of a primitive.

use crate::args::Explain;
use crate::failure::{Exit, Failure, Result};
use crate::output::Output;
use serde::Serialize;
use slapo_core::primitives::{self, Primitive};
use slapo_syntax::Code;
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
            for page in topics.filter_map(page) {
                out.record("page", &page)?;
            }
        }
        None => out.result(&list())?,
    }
    Ok(Exit::Done)
}

fn page(topic: &str) -> Option<Page> {
    if let Some(code) = Code::parse(topic) {
        let text = ended(code.page());
        return Some(Page { topic: code.id().to_owned(), title: code.title().to_owned(), text });
    }
    let primitive = primitives::find(topic)?;
    let text = ended(&of_primitive(primitive));
    Some(Page { topic: primitive.name.to_owned(), title: primitive.signature(), text })
}

fn of_primitive(primitive: &Primitive) -> String {
    let mut text = format!("# `{}`\n\n{}\n", primitive.signature(), primitive.docs.trim_end());
    // Writing into a string cannot fail.
    for (i, parameter) in primitive.params.iter().enumerate() {
        let gap = if i == 0 { "\n" } else { "" };
        let _ = writeln!(text, "{gap}* `{}`: {}", parameter.name, parameter.docs);
    }
    let _ = writeln!(text, "\nNumeric class: {}.", primitive.class.name());
    text
}

fn ended(text: &str) -> String {
    format!("{}\n", text.trim_end())
}

fn list() -> String {
    let mut text = "Primitives\n".to_owned();
    for primitive in primitives::ALL {
        let _ = writeln!(text, "    {:<12} {}", primitive.name, primitive.signature());
    }
    text.push_str("\nDiagnostics\n");
    for code in Code::ALL {
        let _ = writeln!(text, "    {:<12} {}", code.id(), code.title());
    }
    text
}

fn unknown(topic: &str) -> Box<Failure> {
    let failure = Failure::not_done(format!("there is no code and no primitive `{topic}`"));
    let names: Vec<&str> = primitives::ALL.iter().map(|p| p.name).collect();
    failure
        .help(format!("primitives are {}", names.join(", ")))
        .help("`slapoc explain` without an argument lists everything")
}
