//! What is generated: one function to a name, each from one table of the compiler.

use slapo_core::patterns::operators::{self, Fixed, Operator, Slot};
use slapo_core::primitives::{self, Primitive};
use slapo_core::schedule::{Function, Kind, Query, ROLES, WORDS, WordKind};
use slapo_ide::{Signature, words};
use slapo_syntax::ast::{AstNode, Item, Unit};
use slapo_syntax::{Code, FileId, ITEM_WORDS, Lint, RESERVED};
use std::fmt::Write;

type Part = fn() -> String;

pub const ALL: &[(&str, Part)] = &[
    ("codes", codes),
    ("collectives", collectives),
    ("dimensions", dimensions),
    ("functions", functions),
    ("library", library),
    ("lints", lints),
    ("operators", pattern_operators),
    ("primitives", all_primitives),
    ("queries", queries),
    ("reserved", reserved),
    ("roles", roles),
    ("types", types),
    ("units", units),
];

pub fn find(name: &str) -> Option<Part> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, part)| *part)
}

/// A table in Markdown. Bars inside of cells are escaped.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut out = line(head.map(str::to_owned).to_vec()) + &line(vec!["---".to_owned(); N]);
    for row in rows {
        out += &line(row.map(|cell| cell.replace('|', "\\|").replace('\n', " ")).to_vec());
    }
    out
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn list(words: impl Iterator<Item = &'static str>) -> String {
    words.map(code).collect::<Vec<_>>().join(", ")
}

fn reserved() -> String {
    let items = list(ITEM_WORDS.iter().map(|(word, _)| *word));
    let everywhere = list(RESERVED.iter().map(|(word, _)| *word));
    let idle = list(WORDS.iter().filter(|word| is_idle(word.kind)).map(|word| word.name));
    format!(
        "* Reserved: {everywhere}.\n* Words that begin an item, and are ordinary names elsewhere: {items}.\n\
         * Built-in words that no primitive takes yet: {idle}.\n"
    )
}

/// Whether no primitive takes words of this kind.
fn is_idle(kind: WordKind) -> bool {
    let takes = |wanted: Kind| primitives::ALL.iter().flat_map(|one| one.params).any(|param| param.want.kind == wanted);
    match kind {
        WordKind::DType => !takes(Kind::DType),
        WordKind::Order => !takes(Kind::Order),
        WordKind::Side => true,
        _ => false,
    }
}

fn units() -> String {
    format!("{}.\n", list(Unit::names()))
}

/// All primitives: an overview, then each with its documentation.
fn all_primitives() -> String {
    let rows = primitives::ALL.iter().map(|one| {
        let link = format!("[`{0}`](#{0})", one.name);
        [link, one.receiver.to_string(), first_sentence(one.docs), one.class.name().to_owned()]
    });
    let overview = table(["Primitive", "Asked of", "Does", "Class"], rows);
    primitives::ALL.iter().fold(overview, |text, one| text + "\n" + &primitive(one))
}

fn primitive(primitive: &Primitive) -> String {
    let parameters = primitive.params.iter().map(|parameter| format!("* `{}`: {}\n", parameter.name, parameter.docs));
    let parameters: String = parameters.collect();
    format!("### {}\n\n`{}`\n\n{}\n\n{parameters}", primitive.name, primitive.signature(), checked(primitive.docs))
}

/// Examples in the compiler's own texts are right; here they say so. One that takes files from beside it is only read.
fn checked(docs: &str) -> String {
    let mut parts = docs.trim_end().split("```slapo\n");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let example = part.split("```").next().unwrap_or_default();
        let fence = if example.contains(".pt2\"") { "```slapo\n" } else { "```slapo,ok\n" };
        out.extend([fence, part]);
    }
    out
}

/// Up to the first full stop that ends a sentence.
fn first_sentence(docs: &str) -> String {
    let flat = docs.split_whitespace().collect::<Vec<_>>().join(" ");
    flat.split_once(". ").map_or(flat.clone(), |(first, _)| format!("{first}."))
}

fn queries() -> String {
    let rows = Query::names().filter_map(Query::find).map(|query| {
        let signature = Signature::of_query(query);
        [code(&signature.label), signature.docs]
    });
    table(["Query", "Gives"], rows)
}

fn functions() -> String {
    let rows = Function::names().filter_map(Function::find).map(|function| {
        let signature = Signature::of_function(function);
        [code(&signature.label), signature.docs]
    });
    table(["Function", "Gives"], rows)
}

fn types() -> String {
    table(["Type", "Takes"], Kind::NAMED.iter().map(|(name, kind)| [code(name), taken(kind)]))
}

/// What a parameter of that type takes.
fn taken(kind: &Kind) -> String {
    let text = match kind {
        Kind::Module => "a module of any class; the name of a class takes that class only",
        Kind::Tensor => "a parameter or a buffer",
        Kind::Point => "a value on the border of a module, or a gradient",
        Kind::Pattern => "a pattern",
        Kind::Match => "a place where a pattern was found",
        Kind::Axis => "an axis of the mesh, a factor of one, or a list of them",
        Kind::Dim => "a dimension: a role or a number",
        Kind::Int => "a whole number; an axis is its size",
        Kind::Float => "a number; an axis is its size",
        Kind::Bool => "`true` or `false`",
        Kind::Text => "a string",
        Kind::DType => "an element type",
        Kind::Order => "an order of a pipeline",
        Kind::Groups => "a number of equal sections, or a list of their sizes",
        _ => return "see `slapoc explain`".to_owned(),
    };
    text.to_owned()
}

/// The built-in words of a kind, with their meaning.
fn of_kind(kind: WordKind) -> impl Iterator<Item = [String; 2]> {
    let words = WORDS.iter().filter(move |word| word.kind == kind);
    words.map(|word| [code(word.name), words::word(word.name, word.kind).to_owned()])
}

fn dimensions() -> String {
    table(["Role", "Which dimension"], of_kind(WordKind::Dim))
}

/// Which dimension of which parameter has which role, parameters of one shape together.
fn roles() -> String {
    let mut rows: Vec<[String; 3]> = Vec::new();
    for (class, parameter, roles) in ROLES {
        let dimensions = format!("[{}]", roles.join(", "));
        match rows.last_mut().filter(|row| row[0] == code(class) && row[2] == code(&dimensions)) {
            Some(row) => row[1] += &format!(", {}", code(parameter)),
            None => rows.push([code(class), code(parameter), code(&dimensions)]),
        }
    }
    table(["Class", "Parameter", "Dimensions"], rows)
}

/// Collectives and layouts: with their arguments, where they take any.
fn collectives() -> String {
    let rows = WORDS.iter().filter(|word| matches!(word.kind, WordKind::Collective | WordKind::Layout)).map(|word| {
        let signature = Signature::of_word(word.name).map_or(word.name.to_owned(), |signature| signature.label);
        let used_in = if word.kind == WordKind::Collective { "sync" } else { "layout" };
        [code(&signature), code(used_in), words::word(word.name, word.kind).to_owned()]
    });
    table(["Word", "Given to", "Meaning"], rows)
}

/// What patterns are made of, with the ATen operator that a replacement becomes.
fn pattern_operators() -> String {
    let rows = operators::names().filter_map(operators::find).map(|operator| {
        let slots: Vec<String> = operator.slots.iter().map(slot).collect();
        let call = code(&format!("{}({})", operator.name, slots.join(", ")));
        [call, code(&format!("aten.{}", operator.written().0)), either_way(operator)]
    });
    table(["Operator", "Written as", ""], rows)
}

fn either_way(operator: &Operator) -> String {
    if operator.commutes { "operands may change places".to_owned() } else { String::new() }
}

fn slot(slot: &Slot) -> String {
    match slot.default {
        None => slot.name.to_owned(),
        Some(Fixed::Absent) => format!("{}?", slot.name),
        Some(Fixed::Number(number)) => format!("{}: {number}", slot.name),
        Some(Fixed::Bool(value)) => format!("{}: {value}", slot.name),
        Some(Fixed::Text(text)) => format!("{}: {text:?}", slot.name),
    }
}

/// The standard library by module: what each item is, and how a schedule is called.
fn library() -> String {
    slapo_stdlib::names().filter_map(|name| Some(module(name, slapo_stdlib::module(name)?))).collect()
}

/// Schedules by their heads, patterns and types as they are written.
fn module(name: &str, text: &str) -> String {
    let parsed = slapo_syntax::parse(FileId(0), text);
    let mut out = format!("### std.{name}\n\n{}\n", parsed.file().docs().unwrap_or_default());
    for item in parsed.file().items() {
        let (name, shown, docs) = match item {
            Item::Schedule(item) => (item.name(), code(&Signature::of_schedule(item).label), item.docs()),
            Item::Pattern(item) => (item.name(), written(item.syntax().text()), item.docs()),
            Item::Type(item) => (item.name(), written(item.syntax().text()), item.docs()),
            _ => continue,
        };
        let name = name.map_or("", |name| name.text());
        let shown = shown.replace("( ", "(").replace(",)", ")").replace(", )", ")");
        // Writing into a string cannot fail.
        let _ = write!(out, "\n#### {name}\n\n{shown}\n\n{}\n", fenced(&docs.unwrap_or_default()));
    }
    out + "\n"
}

/// A declaration without the comments above it.
fn written(item: &str) -> String {
    let lines: Vec<&str> = item.trim().lines().skip_while(|line| line.starts_with('#')).collect();
    format!("```slapo\n{}\n```", lines.join("\n"))
}

/// Documentation with its indented example in a fence. Half of a pair is not right alone: the library's own tests call it.
fn fenced(docs: &str) -> String {
    let (example, prose): (Vec<&str>, Vec<&str>) = docs.lines().partition(|line| line.starts_with("    "));
    let prose = prose.join("\n");
    if example.is_empty() {
        return prose.trim_end().to_owned();
    }
    let example: Vec<&str> = example.iter().map(|line| &line[4..]).collect();
    format!("{}\n\n```slapo\n{}\n```", prose.trim_end(), example.join("\n"))
}

fn codes() -> String {
    let mut out = String::new();
    for family in FAMILIES {
        let rows = Code::ALL.iter().filter(|code| code.family() == family.0).map(|code| {
            let page = format!("../src/syntax/explain/{}.md", code.id());
            [format!("[{}]({page})", code.id()), code.title().to_owned()]
        });
        let rows: Vec<[String; 2]> = rows.collect();
        if !rows.is_empty() {
            let _ = writeln!(out, "**{}: {}**\n\n{}", family.0, family.1, table(["Code", "Is about"], rows));
        }
    }
    out
}

const FAMILIES: &[(&str, &str)] = &[
    ("S00", "syntax"),
    ("S01", "names"),
    ("S02", "paths and patterns against the model"),
    ("S03", "arguments and types"),
    ("S04", "preconditions"),
    ("S05", "conflicts and order"),
    ("S06", "mesh and layouts"),
    ("S07", "pipeline"),
    ("S08", "memory and cost"),
    ("S09", "worker"),
    ("S10", "model and data files"),
    ("S11", "lints"),
];

fn lints() -> String {
    let rows = Lint::ALL.iter().map(|lint| {
        let default = if lint.is_on { "warns" } else { "off" };
        [code(lint.name), lint.code.id().to_owned(), lint.code.title().to_owned(), default.to_owned()]
    });
    table(["Lint", "Code", "Is about", "By default"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_codes_all_have_a_family() {
        assert!(ALL.is_sorted_by_key(|(name, _)| *name));
        let text = codes();
        assert!(Code::ALL.iter().all(|code| text.contains(&format!("[{}]", code.id()))), "{text}");
    }

    #[test]
    fn every_named_type_is_explained() {
        let silent = Kind::NAMED.iter().filter(|(_, kind)| taken(kind).starts_with("see "));
        assert_eq!(silent.map(|(name, _)| *name).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn items_of_a_library_are_listed() {
        let text = "## Of all.\n\n## Two.\n##\n##     f(m)\nschedule f(\n    m: Module,\n) {\n}\n\n## Three.\npattern p(x) = tanh(x)\n\n\
                    ## Four.\ntype T = { a: Linear }\n";
        let listed = module("some", text);
        let wanted = "### std.some\n\nOf all.\n\n#### f\n\n`f(m: Module)`\n\nTwo.\n\n```slapo\nf(m)\n```\n\n#### p\n\n\
                      ```slapo\npattern p(x) = tanh(x)\n```\n\nThree.\n\n#### T\n\n```slapo\ntype T = { a: Linear }\n```\n\nFour.\n\n";
        assert_eq!(listed, wanted);
    }

    #[test]
    fn examples_that_take_files_are_only_read() {
        assert_eq!(
            checked("A\n```slapo\na\n```\nB\n```slapo\nf(\"x.pt2\")\n```\n"),
            "A\n```slapo,ok\na\n```\nB\n```slapo\nf(\"x.pt2\")\n```"
        );
    }

    #[test]
    fn sentences_end_at_a_full_stop() {
        assert_eq!(first_sentence("One\ntwo. Three."), "One two.");
        assert_eq!(first_sentence("One two."), "One two.");
    }
}
