//! What `slapoc explain` shows is true: failing examples fail in that way, repaired ones do not, primitives are as
//! documented, and the library is in order.

use crate::support::{Run, run, run_on};
use slapo_core::primitives;
use slapo_syntax::Code;

/// All but the parser's.
fn codes() -> impl Iterator<Item = Code> {
    Code::ALL.iter().copied().filter(|code| code.family() != "S00")
}

/// The command line raises these; their examples are commands, or what it says, and are tested with it.
fn is_of_commands(code: Code) -> bool {
    code.family() == "S09" || block(code.page(), "sh,fail").is_some()
}

/// Codes whose cause is in a model of which no small archive is at hand; their messages are tested in `faults`.
const WITHOUT_EXAMPLE: [Code; 3] = [Code::UnsupportedModel, Code::ElementType, Code::NoLoss];

/// The text of the fenced block with this info string.
fn block<'p>(page: &'p str, info: &str) -> Option<&'p str> {
    let start = page.find(&format!("```{info}\n"))? + info.len() + 4;
    let end = start + page[start..].find("```")?;
    Some(&page[start..end])
}

#[test]
fn examples_are_true() {
    let mut wrong = String::new();
    for code in codes().filter(|code| !WITHOUT_EXAMPLE.contains(code) && !is_of_commands(*code)) {
        let page = code.page();
        let (Some(fail), Some(ok)) = (block(page, "slapo,fail"), block(page, "slapo,ok")) else {
            wrong += &format!("{code} has not both examples\n");
            continue;
        };
        let of_lints = |run: Run| if code.family() == "S11" { run.linted(Some(code)) } else { run };
        let failing = of_lints(run("fail", fail).compiled());
        if failing.codes() != [code.id()] {
            wrong += &format!("the failing example of {code} gives {:?}:\n{}\n", failing.codes(), failing.rendered());
        }
        let repaired = of_lints(run("ok", ok).compiled());
        if !repaired.codes().is_empty() {
            wrong += &format!("the repaired example of {code}:\n{}\n", repaired.rendered());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn pages_have_a_title_and_prose() {
    for code in codes() {
        let mut lines = code.page().lines();
        let title = lines.next().unwrap_or("");
        assert_eq!(title.to_lowercase(), format!("# {}", code.title()).to_lowercase(), "{code}");
        let prose = lines.nth(1).unwrap_or("");
        assert!(prose.len() > 40 && prose.ends_with('.'), "{code} explains nothing");
    }
}

/// Every primitive's documentation has an example that can be checked, and its row is in order.
#[test]
fn primitives_are_documented() {
    let model = crate::support::gpt2();
    let names: Vec<&str> = primitives::ALL.iter().map(|primitive| primitive.name).collect();
    assert!(names.is_sorted(), "{names:?}");
    for primitive in primitives::ALL {
        let example = block(primitive.docs, "slapo").unwrap_or_else(|| panic!("{} has no example", primitive.name));
        let input = "input { batch = 8, seq = 64 }\n";
        let example = if example.contains("input {") { example.to_string() } else { format!("{input}{example}") };
        let run = run_on(&model, &example);
        assert_eq!(run.rendered(), "", "{}", primitive.name);
        assert!(run.checked.steps.iter().any(|step| step.primitive.name == primitive.name));
        assert!(primitive.params.iter().all(|parameter| !parameter.docs.is_empty()));
        assert_eq!(primitives::find(primitive.name), Some(*primitive));
    }
}

/// Library schedules are right by themselves, are documented, and their documented calls work.
#[test]
fn the_library_is_in_order() {
    let model = crate::support::gpt2();
    for module in slapo_stdlib::names() {
        let text = slapo_stdlib::module(module).unwrap();
        let parsed = slapo_syntax::parse(slapo_syntax::FileId(0), text);
        assert!(parsed.diagnostics.is_empty(), "{module}: {:?}", parsed.diagnostics);
        assert!(parsed.file().docs().is_some(), "{module} says nothing of itself");
        for schedule in parsed.file().schedules() {
            let name = schedule.name().unwrap().text();
            let docs = schedule.docs().unwrap_or_else(|| panic!("{module}.{name} is not documented"));
            let call =
                docs.lines().find(|line| line.starts_with("    ")).unwrap_or_else(|| panic!("{name} shows no call"));
            let axis = if call.contains("over: cp") { "cp" } else { "tp" };
            let example = format!(
                "use std.{module}.{name}\ninput {{ batch = 8, seq = 64 }}\nmesh {{ {axis} = 2 }}\nschedule main(m: GPT2LMHeadModel) {{\n{call}\n}}\n"
            );
            let run = run_on(&model, &example);
            assert_eq!(run.rendered(), "", "{module}.{name}");
            assert!(!run.checked.steps.is_empty(), "{module}.{name} does nothing");
        }
    }
}
