//! The corpus of the tree-sitter grammar, without tree-sitter's own command: `test/corpus` in its usual format.

mod support;

use std::path::Path;
use support::{editors, files, parse, read};

/// A named text and what becomes of it.
struct Case<'t> {
    name: &'t str,
    text: &'t str,
    /// Without line breaks; `None` for a text that has to be refused.
    tree: Option<String>,
}

const RULE: &str = "==================\n";
const DIVIDER: &str = "\n---\n";

fn cases(corpus: &str) -> Vec<Case<'_>> {
    let parts: Vec<&str> = corpus.split(RULE).skip(1).collect();
    let pairs = parts.chunks_exact(2);
    assert!(pairs.remainder().is_empty(), "a title without its rules");
    pairs
        .map(|pair| {
            let (name, attributes) = pair[0].split_once('\n').expect("a title");
            let (text, tree) = pair[1].split_once(DIVIDER).unwrap_or_else(|| panic!("{name}: no line of dashes"));
            let fails = attributes.lines().any(|line| line == ":error");
            Case { name, text, tree: (!fails).then(|| one_line(tree)) }
        })
        .collect()
}

fn one_line(tree: &str) -> String {
    tree.split_whitespace().collect::<Vec<_>>().join(" ").replace(" )", ")")
}

fn check(path: &Path) -> usize {
    let corpus = read(path);
    let cases = cases(&corpus);
    for case in &cases {
        let root = parse(case.text);
        let root = root.root_node();
        match &case.tree {
            Some(tree) => assert_eq!(&root.to_sexp(), tree, "{}", case.name),
            None => assert!(root.has_error(), "{} is accepted", case.name),
        }
    }
    cases.len()
}

#[test]
fn every_text_has_its_tree() {
    let corpora = files(&editors().join("tree-sitter-slapo/test/corpus"), &["txt"]);
    let cases: usize = corpora.iter().map(|path| check(path)).sum();
    assert!(cases >= 14, "only {cases} cases");
}
