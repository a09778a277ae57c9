//! The formatter: what it makes of texts, and that it changes nothing but their layout.

#[path = "../../../tests/fuzz/clock.rs"]
mod clock;
#[path = "../../../tests/fuzz/edits.rs"]
mod edits;
mod layouts;
mod support;

use std::cell::Cell;
use std::time::Duration;

use clock::grows_with;
use edits::{bytes, edited, try_all, words};
use layouts::{Changes, relaid};
use slapo_syntax::ast::Item;
use slapo_syntax::{Code, FileId, Parse, SyntaxElement, SyntaxKind, SyntaxNode, format, parse};
use support::{Numbers, data, schedules};

/// The one form of a right text, after checking that it is one: it says the same, and is its own form.
fn formatted(text: &str) -> String {
    let before = parse(FileId(0), text);
    let out = format(&before).unwrap_or_else(|| panic!("{:?} in\n{text}", before.diagnostics));
    let after = parse(FileId(0), &out);
    assert!(after.is_ok(), "{:?} after\n{text}\nbecame\n{out}", after.diagnostics);
    assert_eq!(structure(before.root()), structure(after.root()), "the tree of\n{text}\nbecame\n{out}");
    assert_eq!(comments(&before), comments(&after), "the comments of\n{text}\nbecame\n{out}");
    assert_eq!(docs(&before), docs(&after), "the documentation of\n{text}\nbecame\n{out}");
    let again = format(&after).expect("is right");
    assert!(again == out, "formatted twice,\n{text}\nis\n{again}\nbut once\n{out}");
    assert!(out.trim_start_matches('\u{feff}').is_empty() || out.ends_with('\n'), "no line end at the end of\n{out}");
    assert!(!out.contains("\n\n\n") && !out.starts_with('\n') && !out.ends_with("\n\n"), "blank lines in\n{out}");
    assert!(out.lines().all(|line| !line.ends_with([' ', '\t'])), "white space ends a line of\n{out}");
    out
}

/// Nodes and tokens, without trivia, places and the commas behind last elements.
fn structure(node: SyntaxNode<'_>) -> String {
    let mut out = format!("{:?}(", node.kind());
    let mut parts = node.elements().filter(|part| !part.kind().is_trivia()).peekable();
    while let Some(part) = parts.next() {
        let next = parts.peek().map(|next| next.kind());
        match part {
            SyntaxElement::Node(inner) => out.push_str(&structure(inner)),
            SyntaxElement::Token(token) if token.kind() == SyntaxKind::Comma && next.is_some_and(closes) => {}
            SyntaxElement::Token(token) => out.push_str(&format!("{:?} {:?} ", token.kind(), token.text())),
        }
    }
    out + ")"
}

fn closes(kind: SyntaxKind) -> bool {
    matches!(kind, SyntaxKind::RParen | SyntaxKind::RBracket | SyntaxKind::RBrace)
}

fn comments(parsed: &Parse) -> Vec<String> {
    let is_comment = |kind| matches!(kind, SyntaxKind::Comment | SyntaxKind::DocComment);
    let comments = parsed.root().leaves().filter(|leaf| is_comment(leaf.kind()));
    comments.map(|comment| comment.text().trim_end().to_owned()).collect()
}

/// What documents the items, and the file.
fn docs(parsed: &Parse) -> Vec<Option<String>> {
    let items = parsed.file().items();
    let docs = items.map(|item| match item {
        Item::Schedule(item) => item.docs(),
        Item::Pattern(item) => item.docs(),
        Item::Let(item) => item.docs(),
        Item::Knob(item) => item.docs(),
        Item::Type(item) => item.docs(),
        _ => None,
    });
    docs.chain([parsed.file().docs()]).collect()
}

/// Every right schedule of the repository, with its name.
fn all() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for folder in ["good", "format", "../ui", "../../stdlib", "../../examples/gpt2"] {
        all.extend(schedules(folder).into_iter().map(|(name, text)| (format!("{folder}/{name}"), text)));
    }
    for code in Code::ALL {
        all.extend(pages(code.page()).map(|block| (code.id().to_owned(), block.to_owned())));
    }
    all.retain(|(_, text)| parse(FileId(0), text).is_ok());
    assert!(all.len() > 150, "only {} schedules", all.len());
    all
}

/// The blocks of a page that hold schedules.
fn pages(page: &str) -> impl Iterator<Item = &str> {
    let blocks = page.split("\n```slapo").skip(1).filter_map(|rest| rest.split_once('\n'));
    blocks.map(|(_, rest)| rest.split("```").next().unwrap_or(""))
}

#[test]
fn what_is_made_of_texts() {
    for (name, text) in schedules("format") {
        insta::assert_snapshot!(name.trim_end_matches(".slapo"), formatted(&text));
    }
}

#[test]
fn the_repository_is_formatted() {
    for (name, text) in all() {
        if !name.starts_with("format/") && !name.starts_with("../ui/") {
            assert_eq!(formatted(&text), text, "`slapoc fmt` changes {name}");
        }
    }
}

#[test]
fn nothing_but_the_layout_changes() {
    all().iter().for_each(|(_, text)| drop(formatted(text)));
}

/// Spaces, tabs, line ends and last commas may stand anywhere; the form is the same.
#[test]
fn the_form_does_not_depend_on_the_layout() {
    let mut numbers = Numbers(11);
    for (name, text) in all() {
        for _ in 0..4 {
            let other = relaid(&text, Changes::Spaces, &mut numbers);
            assert_eq!(formatted(&other), formatted(&text), "{name}, laid out as\n{other}");
        }
    }
}

/// The same with comments and blank lines anywhere, which stay.
#[test]
fn comments_can_be_anywhere() {
    let mut numbers = Numbers(12);
    for (_, text) in all() {
        for _ in 0..6 {
            formatted(&relaid(&text, Changes::Comments, &mut numbers));
        }
    }
}

#[test]
fn broken_texts_are_left_alone() {
    for (name, text) in schedules("bad") {
        assert_eq!(format(&parse(FileId(0), &text)), None, "{name}");
    }
}

/// Whether a text is right; broken ones are left alone.
fn is_formatted(text: &str) -> bool {
    let parsed = parse(FileId(0), text);
    match parsed.is_ok() {
        true => drop(formatted(&text.replace('\r', "\n"))),
        false => assert_eq!(format(&parsed), None),
    }
    parsed.is_ok()
}

#[test]
fn arbitrary_texts_are_formatted_or_left_alone() {
    try_all(300, bytes(), |text| {
        is_formatted(&text);
    });
    try_all(300, words(), |text| {
        is_formatted(&text);
    });
}

#[test]
fn edited_schedules_are_formatted_or_left_alone() {
    let texts: Vec<String> = edits::schedules(&data().join("../..")).into_iter().map(|(_, text)| text).collect();
    let (tried, right) = (Cell::new(0), Cell::new(0));
    try_all(700, edited(texts, 3), |text| {
        tried.set(tried.get() + 1);
        right.set(right.get() + usize::from(is_formatted(&text)));
    });
    println!("{} schedules, {} of them right", tried.get(), right.get());
    assert!(right.get() * 10 > tried.get(), "only {} of {} were right", right.get(), tried.get());
}

#[test]
fn marks_and_line_ends_stay() {
    let form = |text: &str| format(&parse(FileId(0), text)).expect("is right");
    assert_eq!(form(""), "");
    assert_eq!(form("\n \n"), "");
    assert_eq!(form("\u{feff}"), "\u{feff}");
    assert_eq!(form("\u{feff}\n\nlet a=1"), "\u{feff}let a = 1\n");
    assert_eq!(form("\u{feff}# c"), "\u{feff}# c\n");
    assert_eq!(form("let a=1\r\n\r\n\r\nlet b=2\n# c"), "let a = 1\r\n\r\nlet b = 2\r\n# c\r\n");
    assert_eq!(form("let a=1\nlet b=2\r\n"), "let a = 1\nlet b = 2\n");
    for (name, text) in all() {
        assert_eq!(form(&text.replace('\n', "\r\n")), form(&text).replace('\n', "\r\n"), "{name}");
    }
}

#[test]
fn lines_have_88_columns_without_their_comments() {
    for (length, lines) in [(88, 1), (89, 2)] {
        let text = format!("let x = f(ä, {})  # not counted\n", "b".repeat(length - "let x = f(ä, )".chars().count()));
        assert_eq!(formatted(&text).lines().count(), lines, "{text}");
    }
}

#[test]
fn deep_nesting_is_formatted() {
    let texts = [
        format!("let x = {}1{}\n", "f(".repeat(250), ")".repeat(250)),
        format!("let x = {}1{}\n", "[-(".repeat(120), ")]".repeat(120)),
        format!("let x = m{}\n", ".h".repeat(500)),
        format!("let x = {}1\n", "2 ^ ".repeat(190)),
        format!("let x = {}1\n", "1 + 2 * ".repeat(200)),
        format!("schedule f(m: M) {{\n{}m.f()\n{}}}\n", "if a {\n".repeat(250), "}\n".repeat(250)),
    ];
    texts.iter().for_each(|text| drop(formatted(text)));
}

#[test]
fn a_long_file_is_formatted_in_time() {
    let all: String = schedules("good").into_iter().map(|(_, text)| text).collect();
    let lines = all.lines().count();
    let parsed = |wanted: usize| parse(FileId(0), &all.repeat(wanted.div_ceil(lines)));
    let work = |parsed: &Parse| format(parsed).expect("is right");
    grows_with(5_000, Duration::from_millis(200), "5000 lines formatted", parsed, work);
}
