//! The compiler's grammar and the editors' grammar agree: on what is a schedule, and on its tree.

mod support;

use slapo_syntax::{Code, FileId, SyntaxKind};
use std::fmt::Write;
use support::{below, parse, schedules};

/// A tree as both grammars see it: nodes with their extents, and the extents of tokens.
#[derive(Debug, PartialEq)]
struct Shape {
    nodes: Vec<(String, usize, usize)>,
    tokens: Vec<(usize, usize)>,
}

/// The compiler wraps names and literals in nodes of their own; the file begins with its trivia.
fn ours(parsed: &slapo_syntax::Parse) -> Shape {
    let wraps = |kind| matches!(kind, SyntaxKind::File | SyntaxKind::NameExpr | SyntaxKind::Literal);
    let nodes = parsed.root().descendants().filter(|node| !wraps(node.kind()));
    let comments = [SyntaxKind::Comment, SyntaxKind::DocComment];
    let tokens = parsed.root().leaves().filter(|token| !token.kind().is_trivia() || comments.contains(&token.kind()));
    Shape {
        nodes: nodes.map(|n| (snake_case(&format!("{:?}", n.kind())), n.start() as usize, n.end() as usize)).collect(),
        tokens: tokens.map(|token| (token.start() as usize, token.end() as usize)).collect(),
    }
}

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for (at, c) in name.char_indices() {
        if c.is_uppercase() && at > 0 {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

const TOKENS: &[&str] = &["identifier", "number", "string", "true", "false", "comment", "doc_comment"];

/// A token is one, whatever it holds: a string has parts.
fn theirs(tree: &tree_sitter::Tree) -> Shape {
    let mut shape = Shape { nodes: Vec::new(), tokens: Vec::new() };
    for node in below(tree.root_node()).into_iter().skip(1) {
        if node.parent().is_some_and(|parent| TOKENS.contains(&parent.kind())) {
            continue;
        }
        let is_token = TOKENS.contains(&node.kind());
        if node.is_named() && !is_token {
            shape.nodes.push((node.kind().to_owned(), node.start_byte(), node.end_byte()));
        }
        if is_token || node.child_count() == 0 {
            shape.tokens.push((node.start_byte(), node.end_byte()));
        }
    }
    shape
}

/// The first difference between the trees of a right text, if there is one.
fn difference(text: &str, parsed: &slapo_syntax::Parse) -> Option<String> {
    let tree = parse(text);
    if tree.root_node().has_error() {
        return Some(format!("refused by tree-sitter:\n{}", tree.root_node()));
    }
    let (ours, theirs) = (ours(parsed), theirs(&tree));
    let differs =
        |ours: &dyn std::fmt::Debug, theirs: &dyn std::fmt::Debug| format!("{ours:?} is {theirs:?} to tree-sitter");
    let nodes = ours.nodes.iter().zip(&theirs.nodes).find(|(a, b)| a != b).map(|(a, b)| differs(a, b));
    let tokens = ours.tokens.iter().zip(&theirs.tokens).find(|(a, b)| a != b).map(|(a, b)| differs(a, b));
    let counts = || (ours != theirs).then(|| "one tree ends early".to_owned());
    nodes.or(tokens).or_else(counts)
}

#[test]
fn right_schedules_have_the_same_tree() {
    let mut faults = String::new();
    let mut right = 0;
    for (path, text) in schedules() {
        let parsed = slapo_syntax::parse(FileId(0), &text);
        if parsed.diagnostics.is_empty() {
            right += 1;
            difference(&text, &parsed).into_iter().for_each(|found| writeln!(faults, "{path}: {found}").unwrap());
        }
    }
    assert_eq!(faults, "");
    assert!(right > 80, "only {right} schedules are right");
}

/// Mistakes that are none to an editor's grammar.
const TOLERATED: &[(Code, &str)] = &[
    (Code::BadNumber, "units and other letters behind digits are one token in both"),
    (Code::TooDeep, "tree-sitter has no limit"),
];

/// A text that tree-sitter takes, on as few lines as its tree allows: newlines that ended nothing are spaces.
fn unbroken(text: &str, tree: &tree_sitter::Tree) -> String {
    let mut out = String::new();
    let mut last: Option<tree_sitter::Node<'_>> = None;
    let is_comment = |node: &tree_sitter::Node<'_>| node.kind().ends_with("comment");
    for leaf in below(tree.root_node()).into_iter().filter(|node| node.child_count() == 0 && !is_comment(node)) {
        let from = last.map_or(0, |last| last.end_byte());
        let gap = &text[from..leaf.start_byte()];
        let between = last.and_then(|last| common_ancestor(last, leaf)).map_or("file", |node| node.kind());
        let ends = ["file", "block"].contains(&between);
        out.push_str(if !gap.contains(['\n', '\r']) {
            gap
        } else if ends {
            "\n"
        } else {
            " "
        });
        out.push_str(&text[leaf.byte_range()]);
        last = Some(leaf);
    }
    out
}

fn common_ancestor<'t>(a: tree_sitter::Node<'t>, b: tree_sitter::Node<'t>) -> Option<tree_sitter::Node<'t>> {
    let mut above = a.parent();
    while let Some(node) = above {
        if node.end_byte() >= b.end_byte() {
            return Some(node);
        }
        above = node.parent();
    }
    None
}

/// How the two grammars disagree on a text, right or wrong, if they do.
fn disagreement(text: &str) -> Option<String> {
    let parsed = slapo_syntax::parse(FileId(0), text);
    if parsed.diagnostics.is_empty() {
        return difference(text, &parsed);
    }
    let tree = parse(text);
    if tree.root_node().has_error() {
        return None;
    }
    let unbroken = slapo_syntax::parse(FileId(0), &unbroken(text, &tree));
    let found = unbroken.diagnostics.iter().find(|found| TOLERATED.iter().all(|(code, _)| *code != found.code))?;
    Some(format!("tree-sitter accepts {}: {}\n{}", found.code.id(), found.message, tree.root_node()))
}

#[test]
fn broken_schedules_are_refused_by_both() {
    let mut faults = String::new();
    for (path, text) in schedules() {
        disagreement(&text).into_iter().for_each(|found| writeln!(faults, "{path}: {found}").unwrap());
    }
    for code in Code::ALL.iter().filter(|code| code.family() == "S00") {
        for text in code.page().split("```slapo,").skip(1).filter_map(|rest| rest.split("```").next()) {
            let text = text.split_once('\n').map_or("", |(_, text)| text);
            disagreement(text).into_iter().for_each(|found| writeln!(faults, "{}: {found}", code.id()).unwrap());
        }
    }
    assert_eq!(faults, "");
}

/// Every tolerance is needed.
#[test]
fn tolerated_mistakes_are_accepted() {
    for (code, why) in TOLERATED {
        let page = code.page().split("```slapo,fail\n").nth(1).and_then(|rest| rest.split("```").next());
        let text = page.unwrap_or_else(|| panic!("no example on the page of {}", code.id()));
        assert!(!parse(text).root_node().has_error(), "{} is refused, although {why}", code.id());
    }
}

const PIECES: &[&str] = &[
    "(", ")", "[", "]", "{", "}", "\"", "'", ".", ",", ";", "\n", "#", "=", "a ", "ü", " in ", "else {", "-", " 3 ",
    "not ", "?", ":", "..", "\r\n", "let ", "\\",
];

#[test]
fn one_edit_changes_both_alike() {
    const STRIDE: usize = 7;
    let mut faults = Vec::new();
    let (mut right, mut wrong) = (0, 0);
    for (path, text) in schedules().into_iter().filter(|(path, _)| path.starts_with("tests/syntax/good")) {
        for (turn, (at, c)) in text.char_indices().step_by(STRIDE).enumerate() {
            let (before, after) = text.split_at(at);
            let without = format!("{before}{}", &after[c.len_utf8()..]);
            let with = format!("{before}{}{after}", PIECES[turn % PIECES.len()]);
            for edited in [without, with] {
                let is_right = !parse(&edited).root_node().has_error();
                *(if is_right { &mut right } else { &mut wrong }) += 1;
                faults.extend(disagreement(&edited).map(|found| format!("{path} at {at}: {found}\n{edited}")));
            }
        }
    }
    assert!(faults.is_empty(), "{} of {}, the first:\n{}", faults.len(), right + wrong, faults[0]);
    assert!(right > 300 && wrong > 300, "{right} right and {wrong} wrong texts: one side is hardly tested");
}
