//! Forms of other languages, as `slapoc check --fix` repairs them.

use crate::schedules::folder;
use crate::support::{Run, command};
use std::fs;

/// Statements as they are written elsewhere, and as they are written here.
const FORMS: [(&str, &str, &str); 15] = [
    ("semicolon", "m.accumulate(2);", "m.accumulate(2)"),
    ("semicolon-between", "m.accumulate(2); h[0].checkpoint()", "m.accumulate(2)\n    h[0].checkpoint()"),
    ("power", "m.accumulate(2 ** 2)", "m.accumulate(2 ^ 2)"),
    ("whole-division", "m.accumulate(5 // 2)", "m.accumulate(floor(5 / 2))"),
    ("both", "if len(h) > 1 && true { h.*.checkpoint() }", "if len(h) > 1 and true { h.*.checkpoint() }"),
    ("either", "if len(h) > 9 || true { h.*.checkpoint() }", "if len(h) > 9 or true { h.*.checkpoint() }"),
    ("negation", "if !(len(h) > 9) { h.*.checkpoint() }", "if not (len(h) > 9) { h.*.checkpoint() }"),
    ("single-quotes", "m.annotate('author', 1)", "m.annotate(\"author\", 1)"),
    ("equals", "m.data_parallel(over = dp)", "m.data_parallel(over: dp)"),
    ("type-filter", "for l in m.**: Linear { l.freeze() }", "for l in m.**.only(Linear) { l.freeze() }"),
    (
        "else",
        "if len(h) > 9 {\n    }\n    else {\n        h.*.checkpoint()\n    }",
        "if len(h) > 9 {\n    } else {\n        h.*.checkpoint()\n    }",
    ),
    ("product", "let n = 1\n    m.accumulate(2n)", "let n = 1\n    m.accumulate(2 * n)"),
    ("assignment", "n = 2\n    m.accumulate(n)", "let n = 2\n    m.accumulate(n)"),
    ("path", "h[0]\n        .mlp\n        .checkpoint()", "h[0].mlp.checkpoint()"),
    ("chain", "require 1 < len(h) < 9, \"depth\"", "require 1 < len(h) and len(h) < 9, \"depth\""),
];

fn schedule(statement: &str) -> String {
    format!(
        "model \"model.pt2\"\ninput {{ batch = 8, seq = 64 }}\nmesh {{ dp = 1 }}\n\n\
         schedule main(m: GPT2LMHeadModel) {{\n    let h = m.transformer.h\n    h[1].checkpoint()\n    {statement}\n}}\n"
    )
    .replace("    h[1].checkpoint()\n", if statement.contains("h.*") { "" } else { "    h[1].checkpoint()\n" })
}

#[test]
fn forms_of_other_languages_are_repaired() {
    let folder = folder("");
    fs::remove_file(folder.path().join("main.slapo")).expect("removes");
    let path = |name: &str| folder.path().join(format!("{name}.slapo"));
    for (name, foreign, _) in FORMS {
        fs::write(path(name), schedule(foreign)).expect("writes");
    }
    let check = |args: &[&str]| -> Run {
        let args = [&["check", ".", "--message-format", "short"], args].concat();
        command(&args).current_dir(folder.path()).output().expect("slapoc starts").into()
    };
    let before = check(&[]).expect(1).stderr;
    for (name, ..) in FORMS {
        let errors = before.lines().filter(|line| line.contains(&format!("{name}.slapo:")) && line.contains("error["));
        assert!(
            errors.clone().count() >= 1 && errors.clone().all(|line| line.contains("error[S00")),
            "{name}: {before}"
        );
    }
    check(&["--fix"]).expect(0);
    for (name, _, ours) in FORMS {
        assert_eq!(fs::read_to_string(path(name)).expect("reads"), schedule(ours), "{name}");
    }
}
