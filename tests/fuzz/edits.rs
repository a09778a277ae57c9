//! Texts to try the compiler on: arbitrary ones, and every schedule of the repository with a few edits.
//!
//! Knows nothing of the compiler; a test includes this file with `#[path]`. What is found shrinks to few edits of one
//! schedule. The numbers are the same in every run; `SLAPO_THOROUGH=1` tries [`FACTOR`] times as many.
//! Read [`try_all`] first.

#![allow(dead_code, clippy::allow_attributes, reason = "each test target uses a part")]

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use std::fmt::Debug;
use std::path::Path;

const FACTOR: u32 = 50;

/// Tries `cases` texts that a strategy makes; what a test panics at is shrunk and shown.
pub fn try_all<T: Debug>(cases: u32, strategy: impl Strategy<Value = T>, test: impl Fn(T)) {
    let factor = if std::env::var_os("SLAPO_THOROUGH").is_some() { FACTOR } else { 1 };
    let config = Config {
        cases: cases * factor,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x51a9),
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let tried = |value| {
        test(value);
        Ok::<(), TestCaseError>(())
    };
    if let Err(error) = TestRunner::new(config).run(&strategy, tried) {
        panic!("{error}");
    }
}

/// Every schedule below the root of the repository, in order of their paths.
pub fn schedules(root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<_> = ["examples", "stdlib", "tests"].iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "slapo") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(root).unwrap().display().to_string(), text));
            }
        }
    }
    found.sort();
    assert!(found.len() > 200, "only {} schedules", found.len());
    found
}

/// Bytes, as a text: what is no UTF-8 is replaced.
pub fn bytes() -> impl Strategy<Value = String> {
    vec(any::<u8>(), 0..300).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Words and signs of the language in any order.
pub fn words() -> impl Strategy<Value = String> {
    vec(piece(), 0..80).prop_map(|pieces| pieces.concat())
}

/// One of `texts` with at most `most` edits.
pub fn edited(texts: Vec<String>, most: usize) -> impl Strategy<Value = String> {
    let edits = vec(edit(texts.clone()), 1..=most);
    (select(texts), edits).prop_map(|(text, edits)| edits.iter().fold(text, |text, edit| edit.of(&text)))
}

/// Places are parts of the whole, so that an edit means something for every text.
#[derive(Clone, Debug)]
enum Edit {
    DeleteTokens(Index, usize),
    DuplicateToken(Index),
    SwapTokens(Index, Index),
    /// The second token's text in place of the first.
    CopyToken(Index, Index),
    InsertToken(Index, String),
    DeleteLine(Index),
    DuplicateLine(Index, Index),
    SwapLines(Index, Index),
    DeleteBytes(Index, usize),
    ChangeByte(Index, u8),
    InsertCharacters(Index, String),
    /// The rest of another text behind the beginning of this one.
    Splice(Index, String, Index),
}

fn edit(texts: Vec<String>) -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    prop_oneof![
        4 => (at(), 1..4usize).prop_map(|(at, count)| Edit::DeleteTokens(at, count)),
        3 => at().prop_map(Edit::DuplicateToken),
        4 => (at(), at()).prop_map(|(a, b)| Edit::SwapTokens(a, b)),
        4 => (at(), at()).prop_map(|(a, b)| Edit::CopyToken(a, b)),
        3 => (at(), piece()).prop_map(|(at, piece)| Edit::InsertToken(at, piece)),
        3 => at().prop_map(Edit::DeleteLine),
        3 => (at(), at()).prop_map(|(from, to)| Edit::DuplicateLine(from, to)),
        3 => (at(), at()).prop_map(|(a, b)| Edit::SwapLines(a, b)),
        2 => (at(), 1..12usize).prop_map(|(at, count)| Edit::DeleteBytes(at, count)),
        1 => (at(), any::<u8>()).prop_map(|(at, byte)| Edit::ChangeByte(at, byte)),
        1 => (at(), "\\PC{1,4}").prop_map(|(at, text)| Edit::InsertCharacters(at, text)),
        1 => (at(), select(texts), at()).prop_map(|(at, other, from)| Edit::Splice(at, other, from)),
    ]
}

/// What can stand in a schedule, and what some people think can.
fn piece() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "schedule ",
        "main",
        "(m: Module) ",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        "\n",
        " ",
        "let ",
        "for ",
        " in ",
        "if ",
        "else ",
        "try ",
        "require ",
        "x",
        "m",
        ".",
        "..",
        "..=",
        ".*",
        ".**",
        ".{",
        ",",
        ":",
        "=",
        "==",
        "+",
        "-",
        "*",
        "/",
        "%",
        "not ",
        "and ",
        "or ",
        "^",
        "0",
        "1",
        "-1",
        "2.5",
        "1e9",
        "99999999999999999999",
        "10MiB",
        "\"a\"",
        "\"",
        "#c\n",
        "## d\n",
        "mesh {",
        "input {",
        "pattern ",
        "use ",
        "knob ",
        "type ",
        "model ",
        "?",
        "where ",
        ";",
        "&&",
        "**",
        "//",
        "\r\n",
        "\r",
        "\t",
        "é",
        "\u{feff}",
        "\u{202e}",
        "\0",
        "true",
        "tp",
        "auto",
        "bf16",
        ".grad()",
        ".input()",
        ".output(1)",
        ".find(p)",
        ".weight",
        "len(",
        "all_reduce",
        "over: tp",
        "dim: 0",
    ];
    prop_oneof![9 => select(PIECES).prop_map(str::to_owned), 1 => any::<char>().prop_map(String::from)]
}

impl Edit {
    fn of(&self, text: &str) -> String {
        let mut tokens = tokens(text);
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        if tokens.is_empty() {
            return text.to_owned();
        }
        match self {
            Edit::DeleteTokens(at, count) => {
                let at = at.index(tokens.len());
                tokens.drain(at..(at + count).min(tokens.len()));
            }
            Edit::DuplicateToken(at) => {
                let at = at.index(tokens.len());
                tokens.insert(at, tokens[at]);
            }
            Edit::SwapTokens(a, b) => {
                let (a, b) = (a.index(tokens.len()), b.index(tokens.len()));
                tokens.swap(a, b);
            }
            Edit::CopyToken(to, from) => {
                let (to, from) = (to.index(tokens.len()), from.index(tokens.len()));
                tokens[to] = tokens[from];
            }
            Edit::InsertToken(at, piece) | Edit::InsertCharacters(at, piece) => {
                tokens.insert(at.index(tokens.len()), piece);
            }
            Edit::DeleteLine(at) => {
                lines.remove(at.index(lines.len()));
                return lines.concat();
            }
            Edit::DuplicateLine(from, to) => {
                let (from, to) = (from.index(lines.len()), to.index(lines.len()));
                lines.insert(to, lines[from]);
                return lines.concat();
            }
            Edit::SwapLines(a, b) => {
                let (a, b) = (a.index(lines.len()), b.index(lines.len()));
                lines.swap(a, b);
                return lines.concat();
            }
            Edit::DeleteBytes(at, count) => {
                let at = at.index(text.len());
                let mut bytes = text.as_bytes().to_vec();
                bytes.drain(at..(at + count).min(text.len()));
                return String::from_utf8_lossy(&bytes).into_owned();
            }
            Edit::ChangeByte(at, byte) => {
                let mut bytes = text.as_bytes().to_vec();
                bytes[at.index(text.len())] = *byte;
                return String::from_utf8_lossy(&bytes).into_owned();
            }
            Edit::Splice(at, other, from) => {
                let (at, from) = (at.index(text.len()), from.index(other.len() + 1));
                let (at, from) = (text.floor_char_boundary(at), other.floor_char_boundary(from));
                return [&text[..at], &other[from..]].concat();
            }
        }
        tokens.concat()
    }
}

/// Words, spaces and signs: enough of a lexer to cut where edits mean something.
fn tokens(text: &str) -> Vec<&str> {
    let kind = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 0,
        ' ' | '\t' => 1,
        _ => 2,
    };
    let mut tokens = Vec::new();
    let mut start = 0;
    let mut before = None;
    for (at, c) in text.char_indices() {
        let goes_on = before == Some(kind(c)) && kind(c) != 2;
        if at > start && !goes_on {
            tokens.push(&text[start..at]);
            start = at;
        }
        before = Some(kind(c));
    }
    tokens.extend((start < text.len()).then(|| &text[start..]));
    tokens
}
