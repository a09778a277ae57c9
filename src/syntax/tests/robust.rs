//! No text may make the parser panic, lose a byte, take long, or report one edit many times.

#[path = "../../../tests/fuzz/clock.rs"]
mod clock;
#[path = "../../../tests/fuzz/edits.rs"]
mod edits;
mod support;

use std::time::{Duration, Instant};

use clock::{bound, grows_with, in_time, within};
use edits::{bytes, try_all, words};
use slapo_syntax::{Code, FileId, parse};
use support::{checked, data, schedules};

/// One edit in a right file gives at most this many errors.
const WORST: usize = 5;

fn good(name: &str) -> String {
    let found = schedules("good").into_iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("no {name}")).1
}

fn edited(text: &str, what: &dyn Fn() -> String) {
    let started = Instant::now();
    let found = checked(text).diagnostics;
    let taken = started.elapsed();
    let places: Vec<_> = found.iter().map(|error| (error.code.id(), &error.message)).collect();
    assert!(found.len() <= WORST, "{} errors after {}: {places:#?}\n{text}", found.len(), what());
    assert!(taken < Duration::from_secs(4), "{taken:?} after {}", what());
}

#[test]
fn every_prefix_parses() {
    for name in ["knobs.slapo", "by_class.slapo"] {
        let text = good(name);
        for (at, _) in text.char_indices() {
            edited(&text[..at], &|| format!("{name} cut at {at}"));
        }
    }
}

#[test]
fn every_character_can_be_missing() {
    for (name, stride) in [("knobs.slapo", 1), ("by_class.slapo", 1), ("t5.slapo", 5)] {
        let text = good(name);
        for (at, c) in text.char_indices().step_by(stride) {
            let without = format!("{}{}", &text[..at], &text[at + c.len_utf8()..]);
            edited(&without, &|| format!("{name} without {c:?} at {at}"));
        }
    }
}

#[test]
fn anything_can_be_inserted_anywhere() {
    let pieces = ["(", ")", "[", "]", "{", "}", "\"", "'", ".", ",", ";", "\n", "#", "=", "a ", "ü", " in ", "else {"];
    for (name, stride) in [("by_class.slapo", 11), ("knobs.slapo", 13), ("odd_names.slapo", 17)] {
        let text = good(name);
        for piece in pieces {
            for (at, _) in text.char_indices().step_by(stride) {
                let with = format!("{}{piece}{}", &text[..at], &text[at..]);
                edited(&with, &|| format!("{name} with {piece:?} at {at}"));
            }
        }
    }
}

/// A hundred times what is usual: for what should be proportional and is not.
const PER_KILOBYTE: Duration = Duration::from_millis(15);

fn parses(text: &str) {
    drop(in_time(text, PER_KILOBYTE, || checked(text)));
}

#[test]
fn arbitrary_bytes() {
    try_all(500, bytes(), |text| parses(&text));
}

#[test]
fn arbitrary_words() {
    try_all(700, words(), |text| parses(&text));
}

#[test]
fn edited_schedules() {
    let texts: Vec<String> = edits::schedules(&data().join("../..")).into_iter().map(|(_, text)| text).collect();
    try_all(700, edits::edited(texts, 6), |text| parses(&text));
}

/// Shapes that nest: what opens a level, what stands inside, what closes it.
const SHAPES: &[(&str, &str, &str, &str)] = &[
    ("let x = ", "(", "1", ")"),
    ("let x = ", "[", "1", "]"),
    ("let x = ", "f(", "1", ")"),
    ("let x = ", "f(a: ", "1", ")"),
    ("let x = ", "f(a b ", "1", ")"),
    ("let x = ", "m.f(", "1", ")"),
    ("let x = ", "a[", "1", "]"),
    ("let x = ", "a[1 .. ", "1", "]"),
    ("let x = ", "-(", "1", ")"),
    ("let x = ", "(1 + ", "1", ")"),
    ("let x = ", "[a where (", "1", ")]"),
    ("type T = ", "[", "M", "]"),
    ("type T = ", "{ a: ", "M", "}"),
    ("schedule f(m: M) {\n", "if a {\n", "m.f()", "\n}\n"),
    ("schedule f(m: M) {\n", "for a in b {", "m.f()", "}"),
    ("schedule f(m: M) {\n", "if a {} else {", "m.f()", "}"),
    ("schedule f(m: M) {\n", "if a {} else if b {", "m.f()", "} else {}"),
    ("schedule f(m: M) {\n", "for a b {\n", "m f()", "\n} x\n"),
    ("schedule f(m: M) {\n", "{", "m.f()", "}"),
    ("schedule f(m: M) {\n", "while x { f(", "", ") }"),
    ("", "schedule f(m: M) {\n", "", "}\n"),
    ("", "f(m {\n", "", "}\n"),
];

fn nested(shape: &(&str, &str, &str, &str), depth: usize) -> String {
    let (start, open, inside, close) = shape;
    format!("{start}{}{inside}{}\n", open.repeat(depth), close.repeat(depth))
}

/// What two hundred levels may take, tried once and written as broken as can be.
const NESTED: Duration = Duration::from_millis(50);

#[test]
fn deep_nesting_parses_in_time() {
    let mut slowest = (Duration::ZERO, String::new());
    for shape in SHAPES {
        let (start, open, inside, close) = *shape;
        let brackets = open.matches(['(', '[', '{']).count() - open.matches([')', ']', '}']).count();
        let depth = 200 / brackets.max(1);
        let full = nested(shape, depth);
        let unclosed = nested(&(start, open, inside, ""), depth);
        let half_closed = format!("{start}{}{inside}{}\n", open.repeat(depth), close.repeat(depth / 2));
        let broken = nested(&(start, &format!("{open}="), inside, close), depth);
        for text in [full, unclosed, half_closed, broken] {
            let (found, taken) = within(bound(NESTED), &format!("{shape:?}"), || {
                let started = Instant::now();
                (parse(FileId(0), &text).diagnostics, started.elapsed())
            });
            checked(&text);
            assert!(found.iter().all(|error| error.code != Code::TooDeep), "{shape:?} is refused");
            assert!(found.iter().all(|error| !error.message.contains("could not be parsed")), "{shape:?} gives up");
            slowest = slowest.max((taken, text.chars().take(40).collect()));
        }
    }
    println!("{} shapes, the slowest {:?} for {:?}", SHAPES.len() * 4, slowest.0, slowest.1);
}

#[test]
fn deeper_nesting_is_one_error() {
    for depth in [10_000, 100_000] {
        for open in ["(", "[", "{", "f(", "a[", "if x {\n", "schedule f(m: M) {\n", "m.{"] {
            for start in ["", "let x = ", "schedule f(m: M) {\n"] {
                let found = checked(&format!("{start}{}", open.repeat(depth))).diagnostics;
                assert_eq!(found.len(), 1, "{open:?} behind {start:?}");
                assert_eq!(found[0].code, Code::TooDeep);
            }
        }
    }
}

#[test]
fn long_chains_are_one_error() {
    let chains = ["-", "not ", "!", "2 ^ ", "1 + ", "a.b + -", "a == ", "a.", "a[0]."];
    for chain in chains {
        let text = format!("let x = {}y\n", chain.repeat(8_000));
        let started = Instant::now();
        let found = checked(&text).diagnostics;
        assert!(started.elapsed() < Duration::from_secs(20), "{:?} for {chain:?}", started.elapsed());
        let deep = found.iter().filter(|error| error.code == Code::TooDeep).count();
        assert_eq!(deep, 1, "{chain:?} gives {deep}");
    }
}

#[test]
fn broken_at_every_level_is_quick() {
    for line in ["for a b {\n", "if a b {\n", "foo bar {\n", "for a in b { x y\n"] {
        let text = format!("schedule f(m: M) {{\n{}m.f()\n{}}}\n", line.repeat(18), "} junk\n".repeat(18));
        let started = Instant::now();
        checked(&text);
        assert!(started.elapsed() < Duration::from_secs(4), "{:?} for {line:?}", started.elapsed());
    }
}

#[test]
fn blank_lines_and_open_brackets_do_not_slow_it_down() {
    let blank = "\n".repeat(20_000);
    let texts = [
        format!("schedule f(m: M) {{\n    m.f(){blank}    if a {{{blank}}}{blank}    m.g({blank}a,{blank})\n}}\n"),
        format!("schedule f(m: M) {{\n{}}}\n", "    f(a,\n".repeat(100)),
        format!("let x = \"{}\n", ")".repeat(20_000)),
        format!("let x = {}\n", "\"a\" ".repeat(5_000)),
        format!("let x = [{}]\n", "a, ".repeat(20_000)),
        format!("schedule f(m: M) {{\n{}}}\n", "x y\n".repeat(2_000)),
    ];
    for text in texts {
        let started = Instant::now();
        checked(&text);
        let start: String = text.chars().take(40).collect();
        assert!(started.elapsed() < Duration::from_secs(10), "{:?} for {start:?}", started.elapsed());
    }
}

#[test]
fn line_endings_and_marks_are_kept() {
    for (name, text) in schedules("good") {
        let windows = text.replace('\n', "\r\n");
        assert!(checked(&windows).is_ok(), "{name} with CRLF");
        let marked = format!("\u{feff}{text}");
        assert!(checked(&marked).is_ok(), "{name} with a byte-order mark");
        assert!(checked(text.trim_end()).is_ok(), "{name} without its last newline");
    }
    assert!(checked("").is_ok());
    assert!(checked("\u{feff}").is_ok());
}

#[test]
fn a_long_file_parses_in_time() {
    let all: String = schedules("good").into_iter().map(|(_, text)| text).collect();
    let lines = all.lines().count();
    let text = |wanted: usize| all.repeat(wanted.div_ceil(lines));
    let work = |text: &String| assert!(parse(FileId(0), text).is_ok());
    grows_with(5_000, Duration::from_millis(200), "5000 lines parsed", text, work);
}

/// The same where nothing is right.
#[test]
fn a_long_broken_file_parses_in_time() {
    let text = |lines: usize| {
        let mut text = String::from("schedule f(m: M) {\n");
        (0..lines / 5).for_each(|_| text += "    m.f(a b)\n    for b m {\n    x y\n    }\n    let = [1, 2]\n");
        text
    };
    let work = |text: &String| assert!(!parse(FileId(0), text).is_ok());
    grows_with(5_000, Duration::from_millis(400), "5000 broken lines parsed", text, work);
}
