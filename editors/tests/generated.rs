//! The tree-sitter command has run since its grammar was edited, and nobody has edited what it wrote.
//!
//! It takes minutes to build, so its files are committed with the sums that they and the grammar had then.

mod support;

use sha2::{Digest, Sha256};
use support::{editors, read};

#[test]
fn generated_files_are_those_of_the_grammar() {
    let folder = editors().join("tree-sitter-slapo");
    let sums = read(&folder.join("src/generated.sha256"));
    let lines: Vec<(&str, &str)> = sums.lines().filter_map(|line| line.split_once("  ")).collect();
    let names: Vec<&str> = lines.iter().map(|(_, name)| *name).collect();
    assert_eq!(names, ["grammar.js", "src/grammar.json", "src/node-types.json", "src/parser.c"]);
    for (sum, name) in lines {
        let found = Sha256::digest(read(&folder.join(name)));
        let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, sum, "{name} has changed: generate the parser anew, as editors/README.md says");
    }
}
