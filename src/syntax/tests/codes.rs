//! Every code has a page whose examples are true, and messages that are looked at.

mod support;

use std::collections::BTreeSet;

use slapo_syntax::{Applicability, Code, Diagnostic, FileId, parse};
use support::{checked, rendered, schedules};

/// The text of the fenced block with this info string.
fn block<'p>(page: &'p str, info: &str) -> Option<&'p str> {
    let start = page.find(&format!("```{info}\n"))? + info.len() + 4;
    let end = start + page[start..].find("```")?;
    Some(&page[start..end])
}

fn syntax_codes() -> impl Iterator<Item = Code> {
    Code::ALL.iter().copied().filter(|code| code.family() == "S00")
}

fn codes(found: &[Diagnostic]) -> Vec<&'static str> {
    found.iter().map(|error| error.code.id()).collect()
}

#[test]
fn pages_say_the_truth() {
    for code in syntax_codes() {
        let page = code.page();
        let fail = block(page, "slapo,fail").unwrap_or_else(|| panic!("{code} has no failing example"));
        let ok = block(page, "slapo,ok").unwrap_or_else(|| panic!("{code} has no repaired example"));
        assert_eq!(codes(&checked(fail).diagnostics), [code.id()], "the failing example of {code}");
        assert_eq!(rendered("ok", ok), "", "the repaired example of {code}");
    }
}

#[test]
fn pages_have_a_title_and_prose() {
    for code in syntax_codes() {
        let mut lines = code.page().lines();
        let title = lines.next().unwrap_or("");
        assert_eq!(title.to_lowercase(), format!("# {}", code.title()).to_lowercase(), "{code}");
        let prose = lines.nth(1).unwrap_or("");
        assert!(prose.len() > 20 && prose.ends_with('.'), "{code} explains nothing");
    }
}

#[test]
fn codes_are_unique_and_in_order() {
    let ids: Vec<_> = Code::ALL.iter().map(|code| code.id()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    for code in Code::ALL {
        assert_eq!(Code::parse(code.id()), Some(*code));
        assert_eq!(Code::parse(&code.id().to_lowercase()), Some(*code));
    }
    assert_eq!(Code::parse("S9999"), None);
}

/// One file for each code, with several forms of the mistake where there are such.
#[test]
fn messages() {
    let mut seen = BTreeSet::new();
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for (name, text) in schedules("bad") {
        let stem = name.trim_end_matches(".slapo");
        let found = checked(&text).diagnostics;
        if stem.starts_with("S00") {
            let others: Vec<_> = found.iter().filter(|error| error.code.id() != stem).collect();
            assert!(others.is_empty(), "{name} gives other codes as well: {others:#?}");
            seen.insert(stem.to_string());
        }
        let marked = text.lines().filter(|line| line.contains("#!")).count();
        assert!(marked > 0, "{name} marks no line");
        settings.bind(|| insta::assert_snapshot!(stem, rendered(&name, &text)));
        lines_are_right(&name, &text, &found);
    }
    let expected: BTreeSet<_> = syntax_codes().map(|code| code.id().to_string()).collect();
    assert_eq!(seen, expected, "every code has a file");
}

/// Lines that hold a mistake are marked with `#!`; each must have one error, and no other line any.
fn lines_are_right(name: &str, text: &str, found: &[Diagnostic]) {
    let line = |offset: u32| text[..offset as usize].matches('\n').count() + 1;
    let errors: Vec<_> = found.iter().filter_map(Diagnostic::span).map(|span| line(span.start)).collect();
    let marked: Vec<_> =
        text.lines().enumerate().filter(|(_, line)| line.contains("#!")).map(|(index, _)| index + 1).collect();
    assert_eq!(errors, marked, "the lines with errors in {name}:\n{}", rendered(name, text));
}

/// One error for a path over several lines, whose fix joins them all.
#[test]
fn a_path_over_several_lines_is_one_mistake() {
    let text = "schedule main(m: Module) {\n    m.h[0]\n        .mlp\n        .{a, b}\n        .fuse()\n}\n";
    let found = parse(FileId(0), text).diagnostics;
    assert_eq!(codes(&found), ["S0020"]);
    let repaired = found[0].fixes[0].apply(FileId(0), text);
    assert_eq!(repaired, "schedule main(m: Module) {\n    m.h[0].mlp.{a, b}.fuse()\n}\n");
}

/// A fix that is surely right removes its error and brings no other.
#[test]
fn safe_fixes_repair() {
    let mut applied = 0;
    for (name, text) in schedules("bad") {
        let found = parse(FileId(0), &text).diagnostics;
        for (index, diagnostic) in found.iter().enumerate() {
            for fix in diagnostic.fixes.iter().filter(|fix| fix.applicability == Applicability::MachineApplicable) {
                let repaired = fix.apply(FileId(0), &text);
                let left = checked(&repaired).diagnostics;
                let mut expected = codes(&found);
                expected.remove(index);
                assert_eq!(codes(&left), expected, "{name}: {} by {fix:?}", diagnostic.message);
                applied += 1;
            }
        }
    }
    assert!(applied > 20, "only {applied} fixes");
}
