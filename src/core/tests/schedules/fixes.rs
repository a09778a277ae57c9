//! Fixes that are surely right: they settle what they are of, and leave text that can be read.

use crate::support::{Run, run, schedules};
use slapo_syntax::{FileId, apply_fixes, format, parse, safe_fixes};

/// A schedule with its errors and lints, as the command line sees it.
fn check(stem: &str, text: &str) -> Run {
    run(stem, text).compiled().linted(None)
}

/// The text after one turn of fixes, and how many those were.
fn fixed(run: &Run, text: &str) -> (String, usize) {
    let fixes = safe_fixes(&run.diagnostics, run.file);
    (apply_fixes(fixes.iter().map(|(_, fix)| *fix), run.file, text), fixes.len())
}

#[test]
fn every_fix_settles_its_mistake() {
    let (mut files, mut made, mut wrong) = (0, 0, String::new());
    for (stem, text) in schedules("tests/ui") {
        let before = check(&stem, &text);
        let (repaired, count) = fixed(&before, &text);
        if count == 0 {
            continue;
        }
        (files, made) = (files + 1, made + count);
        let after = check(&stem, &repaired);
        let parses = after.parsed.diagnostics.len() <= before.parsed.diagnostics.len();
        let left = |run: &Run, message: &str| run.diagnostics.iter().filter(|one| one.message == message).count();
        let settled = safe_fixes(&before.diagnostics, before.file)
            .iter()
            .all(|(one, _)| left(&after, &one.message) < left(&before, &one.message));
        if !parses || !settled {
            wrong += &format!("{stem}:\n{repaired}\n{}\n", after.rendered());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(files >= 20 && made >= 36, "only {made} fixes in {files} files");
}

/// Turn by turn until there is nothing to fix: every file is then right or has fewer errors.
#[test]
fn fixed_files_have_fewer_errors() {
    let mut wrong = String::new();
    let mut clean = 0;
    for (stem, text) in schedules("tests/ui") {
        let before = check(&stem, &text);
        let (mut now, mut count) = fixed(&before, &text);
        if count == 0 {
            continue;
        }
        for _ in 0..16 {
            (now, count) = fixed(&check(&stem, &now), &now);
            if count == 0 {
                break;
            }
        }
        let after = check(&stem, &now);
        clean += usize::from(after.diagnostics.is_empty());
        if after.diagnostics.len() >= before.diagnostics.len() {
            wrong += &format!("{stem}:\n{now}\n{}\n", after.rendered());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(clean >= 10, "only {clean} files are right after their fixes");
}

/// The line that is missing is written in the words of its loop, and once.
#[test]
fn a_missing_sync_is_written_behind_the_shard() {
    let text = "use std.parallel.column\nmodel \"gpt2-tiny.pt2\"\ninput { batch = 8, seq = 64 }\nmesh { tp = 2 }\n\n\
        schedule main(gpt: GPT2LMHeadModel) {\n    for b in gpt.transformer.h {\n        column(b.mlp.c_fc, over: tp)\n        \
        b.mlp.c_proj.weight.shard(in, over: tp)\n    }\n}\n";
    let run = check("loop", text);
    assert_eq!(run.codes(), ["S0602"], "{}", run.rendered());
    let (repaired, count) = fixed(&run, text);
    assert_eq!(count, 1);
    let line = "        b.mlp.c_proj.weight.shard(in, over: tp)\n";
    let sync = "        b.mlp.c_proj.output().sync(all_reduce, over: tp)\n";
    assert_eq!(repaired, text.replace(line, &format!("{line}{sync}")));
    assert_eq!(check("loop", &repaired).rendered(), "");
    assert_eq!(format(&parse(FileId(0), &repaired)).as_deref(), Some(repaired.as_str()));
}

/// What is asked of a selection would need a statement for each of its parts.
#[test]
fn no_line_is_written_for_a_selection() {
    let text = "use std.parallel.column\nmodel \"gpt2-tiny.pt2\"\ninput { batch = 8, seq = 64 }\nmesh { tp = 2 }\n\n\
        schedule main(m: GPT2LMHeadModel) {\n    column(m.transformer.h.*.mlp.c_fc, over: tp)\n    \
        m.transformer.h.*.mlp.c_proj.weight.shard(in, over: tp)\n}\n";
    let run = check("selection", text);
    assert_eq!(run.codes(), ["S0602"], "{}", run.rendered());
    assert_eq!(fixed(&run, text), (text.to_owned(), 0));
}
