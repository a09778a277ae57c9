//! The queries of every editor: they fit the grammar, and highlighting takes every token exactly once.

mod support;

use slapo_syntax::RESERVED;
use std::collections::BTreeMap;
use support::{below, editors, files, language, parse, read, schedules};
use tree_sitter::{Query, QueryCursor, StreamingIterator, Tree};

#[test]
fn every_query_fits_the_grammar() {
    let templates = editors().join("templates");
    let paths: Vec<_> = files(editors(), &["scm"]).into_iter().filter(|path| !path.starts_with(&templates)).collect();
    assert!(paths.len() > 15, "only {} queries found", paths.len());
    for path in paths {
        let query = Query::new(&language(), &read(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(query.pattern_count() > 0, "{} is empty", path.display());
    }
}

fn highlights(editor: &str) -> Query {
    Query::new(&language(), &read(&editors().join(editor).join("highlights.scm"))).expect("tested above")
}

/// What highlighting makes of a text: extents of nodes, with the names of all captures that take them.
fn captures(query: &Query, tree: &Tree, text: &str) -> BTreeMap<(usize, usize), Vec<String>> {
    let mut found: BTreeMap<_, Vec<String>> = BTreeMap::new();
    let mut cursor = QueryCursor::new();
    let mut matches = cursor.matches(query, tree.root_node(), text.as_bytes());
    while let Some(one) = matches.next() {
        for capture in one.captures() {
            let name = query.capture_names()[capture.index as usize].to_owned();
            found.entry((capture.node.start_byte(), capture.node.end_byte())).or_default().push(name);
        }
    }
    found
}

#[test]
fn every_token_is_highlighted_once() {
    for editor in ["tree-sitter-slapo/queries", "vim/queries/slapo", "helix/queries/slapo", "zed/languages/slapo"] {
        let query = highlights(editor);
        for (path, text) in schedules() {
            let tree = parse(&text);
            if tree.root_node().has_error() {
                continue;
            }
            let found = captures(&query, &tree, &text);
            for node in below(tree.root_node()).into_iter().skip(1).filter(|node| node.child_count() == 0) {
                let place = (node.start_byte(), node.end_byte());
                let names = found.get(&place).map_or(&[][..], |names| names);
                let shown = || format!("{editor}: `{}` of {path} at {}", &text[node.byte_range()], node.start_byte());
                assert!(names.len() == 1, "{}: {names:?}", shown());
            }
        }
    }
}

#[test]
fn words_are_highlighted_by_what_they_are() {
    let text = "\
schedule main(m: Linear, over: axis) {
    m.shard.weight.shard(in, over: tp)
    require len(m.h) > size(out), \"few\"
    m.grad().layout(replicate)
    column(m.*, groups: 3)
}
";
    let tree = parse(text);
    let found = captures(&highlights("vim/queries/slapo"), &tree, text);
    let name = |after: &str, word: &str| {
        let start = text.find(after).expect("in the text") + after.len();
        assert!(text[start..].starts_with(word), "`{word}` does not follow `{after}`");
        found[&(start, start + word.len())].join(" ")
    };
    let cases = [
        ("", "schedule", "keyword.function"),
        ("schedule ", "main", "function"),
        ("main(", "m", "variable.parameter"),
        ("m: ", "Linear", "type"),
        ("over: ", "axis", "type.builtin"),
        ("m.", "shard", "variable.member"),
        ("weight.", "shard", "function.builtin"),
        ("weight.shard(", "in", "constant.builtin"),
        ("shard(in, ", "over", "label"),
        ("shard(in, over: ", "tp", "variable"),
        ("require ", "len", "function.builtin"),
        ("> ", "size", "function.call"),
        ("size(", "out", "constant.builtin"),
        ("out), ", "\"few\"", "string"),
        ("grad().", "layout", "function.builtin"),
        ("layout(", "replicate", "constant.builtin"),
        ("column(m.", "*", "character.special"),
        ("groups: ", "3", "number"),
    ];
    for (after, word, expected) in cases {
        assert_eq!(name(after, word), expected, "`{word}` after `{after}`");
    }
}

#[test]
fn the_grammar_reserves_the_words_of_the_language() {
    let grammar: serde_json::Value =
        serde_json::from_str(&read(&editors().join("tree-sitter-slapo/src/grammar.json"))).expect("JSON");
    let reserved = grammar["reserved"]["words"].as_array().expect("a set of words").iter();
    let reserved: Vec<_> = reserved.map(|word| word["value"].as_str().expect("a string")).collect();
    assert_eq!(reserved, RESERVED.iter().map(|(word, _)| *word).collect::<Vec<_>>());
}
