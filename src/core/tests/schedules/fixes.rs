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
        let count = |run: &Run| (run.diagnostics.iter().filter(|one| one.is_error()).count(), run.diagnostics.len());
        if count(&after) >= count(&before) {
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

const HEAD: &str = "use std.parallel.{column, row}\nmodel \"gpt2-tiny.pt2\"\ninput { batch = 8, seq = 64 }\n";

fn on_mesh(mesh: &str, body: &str) -> String {
    format!("{HEAD}mesh {{ {mesh} }}\n\nschedule main(m: GPT2LMHeadModel) {{\n{body}}}\n")
}

/// The text after all turns of fixes; it must be right, and formatted.
fn repaired(text: &str) -> String {
    let mut now = text.to_owned();
    for _ in 0..4 {
        let (next, count) = fixed(&check("case", &now), &now);
        if count == 0 {
            break;
        }
        now = next;
    }
    let after = check("case", &now);
    assert_eq!(after.rendered(), "", "{now}");
    assert_eq!(format(&parse(FileId(0), &now)).as_deref(), Some(now.as_str()));
    now
}

/// What is missing behind a statement about a selection is one statement about a selection.
#[test]
fn a_missing_sync_is_written_for_a_selection() {
    let row = "    m.transformer.h.*.mlp.c_proj.weight.shard(in, over: tp)\n";
    let column = "    column(m.transformer.h.*.mlp.c_fc, over: tp)\n";
    let sync = "    m.transformer.h.*.mlp.c_proj.output().sync(all_reduce, over: tp)\n";
    let text = on_mesh("tp = 2", &format!("{column}{row}")).replace("{column, row}", "column");
    assert_eq!(repaired(&text), text.replace(row, &format!("{row}{sync}")));
    let loose = "    m.transformer.h.*.mlp.c_fc.{weight, bias}.shard(out, over: tp)\n";
    let gradient = "    m.transformer.h.*.mlp.c_fc.input().grad().sync(all_reduce, over: tp)\n";
    let text = on_mesh("tp = 2", &format!("{loose}{row}{sync}")).replace("use std.parallel.{column, row}\n", "");
    assert_eq!(repaired(&text), text.replace(loose, &format!("{loose}{gradient}")));
}

/// Where one of the selected has its sync, a statement for all would give it a second one.
#[test]
fn no_line_is_written_for_a_selection_that_has_it_in_part() {
    let text = on_mesh(
        "tp = 2",
        "    column(m.transformer.h.*.mlp.c_fc, over: tp)\n    \
         m.transformer.h.*.mlp.c_proj.weight.shard(in, over: tp)\n    \
         m.transformer.h[1].mlp.c_proj.output().sync(all_reduce, over: tp)\n",
    )
    .replace("{column, row}", "column");
    let run = check("selection", &text);
    assert_eq!(run.codes(), ["S0602"], "{}", run.rendered());
    assert_eq!(fixed(&run, &text), (text, 0));
}

/// A sync of what is whole goes, with its line; one that belongs to a library stays.
#[test]
fn a_redundant_sync_is_left_out() {
    let pair = "        column(b.mlp.c_fc, over: tp)\n        row(b.mlp.c_proj, over: tp)\n";
    let again = "        b.mlp.output().sync(all_reduce, over: tp)\n";
    let text = |again: &str| on_mesh("tp = 2", &format!("    for b in m.transformer.h {{\n{pair}{again}    }}\n"));
    assert_eq!(repaired(&text(again)), text(""));
    let in_library = on_mesh("tp = 2", "    row(m.transformer.h[0].mlp, over: tp)\n");
    let run = check("library", &in_library);
    assert!(run.diagnostics.iter().all(|found| found.fixes.is_empty()), "{}", run.rendered());
}

/// A removal that would leave another error is not made.
#[test]
fn a_sync_that_is_only_misplaced_is_not_left_out() {
    let text = on_mesh(
        "tp = 2",
        "    let mlp = m.transformer.h[0].mlp\n    column(mlp.c_fc, over: tp)\n    \
         mlp.c_proj.weight.shard(in, over: tp)\n    mlp.c_fc.output().sync(all_reduce, over: tp)\n",
    )
    .replace("{column, row}", "column");
    let run = check("misplaced", &text);
    assert!(run.codes().contains(&"S0604"), "{}", run.rendered());
    let sync = run.diagnostics.iter().find(|found| found.code.id() == "S0604").expect("the misplaced sync");
    assert!(sync.fixes.is_empty(), "{}", run.rendered());
}

#[test]
fn the_axis_that_fits_is_written() {
    let body = |axis: &str| {
        format!(
            "    for b in m.transformer.h {{\n        column(b.mlp.c_fc, over: tp)\n        \
             row(b.mlp.c_proj, over: {axis})\n    }}\n    m.data_parallel(over: dp)\n"
        )
    };
    let text = on_mesh("dp = 2, tp = 2", &body("dp"));
    assert_eq!(repaired(&text), on_mesh("dp = 2, tp = 2", &body("tp")));
}
