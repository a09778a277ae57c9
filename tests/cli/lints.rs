//! Lints at their levels, and `slapoc check --fix`.

use crate::schedules::{folder, run_on};
use crate::support::{Run, block, command, root, run};
use insta::assert_snapshot;
use slapo_syntax::Lint;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Right, with a name that nothing reads and an axis that does nothing.
const IDLE: &str = "\
model \"model.pt2\"
input { batch = 8, seq = 64 }
mesh { dp = 2 }

schedule main(m: GPT2LMHeadModel) {
    let blocks = m.transformer.h
    m.accumulate(steps: 2)
}
";

/// Two slips, a reduction that is missing behind them, and one that only its author can settle.
const BROKEN: &str = "\
model \"model.pt2\"
input { batch = 8, seq = 64 }
mesh { tp = 2 }

schedule main(m: GPT2LMHeadModel) {
    for b in m.transformer.h {
        column(b.mlp.c_fc, over: pt)
        b.mlp.c_prj.weight.shard(in, over: tp)
    }
}
";

const FIXED: &str = "\
use std.parallel.column
model \"model.pt2\"
input { batch = 8, seq = 64 }
mesh { tp = 2 }

schedule main(m: GPT2LMHeadModel) {
    for b in m.transformer.h {
        column(b.mlp.c_fc, over: tp)
        b.mlp.c_proj.weight.shard(in, over: tp)
        b.mlp.c_proj.output().sync(all_reduce, over: tp)
    }
}
";

fn check(args: &[&str]) -> Run {
    run_on(IDLE, &[&["check", "main.slapo", "--message-format", "short"], args].concat())
}

/// The codes of what was said, by severity.
fn said(run: &Run) -> Vec<String> {
    let kinds = run.stderr.lines().filter_map(|line| line.split_once("]: ").map(|(head, _)| head));
    kinds.filter_map(|head| Some(head.rsplit_once(' ')?.1.replace('[', " "))).collect()
}

#[test]
fn warnings_are_shown_and_no_failure() {
    assert_snapshot!(run_on(IDLE, &["check", "main.slapo"]).expect(0).shown());
    assert_eq!(said(&check(&[]).expect(0)), ["warning S1105", "warning S1102"]);
    assert_eq!(said(&check(&["-q"]).expect(0)), [""; 0]);
}

#[test]
fn levels_go_by_name_by_code_and_for_all() {
    assert_eq!(said(&check(&["-A", "unused-let"]).expect(0)), ["warning S1105"]);
    assert_eq!(said(&check(&["-A", "s1102", "--allow=idle-axis"]).expect(0)), [""; 0]);
    assert_eq!(said(&check(&["-A", "warnings"]).expect(0)), [""; 0]);
    assert_eq!(said(&check(&["-D", "S1105"]).expect(1)), ["error S1105", "warning S1102"]);
    assert_eq!(said(&check(&["-D", "warnings"]).expect(1)), ["error S1105", "error S1102"]);
    // What names a lint goes before what names all, in any order.
    for args in
        [["-D", "warnings", "-A", "idle-axis", "-W", "S1102"], ["-W", "S1102", "-A", "idle-axis", "-D", "warnings"]]
    {
        assert_eq!(said(&check(&args).expect(0)), ["warning S1102"]);
    }
}

/// A lint that is off is not among `warnings`.
#[test]
fn a_lint_that_is_off_is_asked_for_by_its_name() {
    let check = |args: &[&str]| run_on(FIXED, &[&["check", "main.slapo", "--message-format", "short"], args].concat());
    assert_eq!(said(&check(&["-D", "warnings"]).expect(0)), [""; 0]);
    assert_eq!(said(&check(&["-W", "whole-parameters"]).expect(0)), ["warning S1108"]);
    assert_eq!(said(&check(&["-D", "whole-parameters"]).expect(1)), ["error S1108"]);
}

/// Every lint at every level, by the example of its page.
#[test]
fn every_lint_obeys_its_levels() {
    for lint in Lint::ALL {
        let folder = folder(block(lint.code.page(), "slapo,fail").expect("an example"));
        for archive in ["examples/gpt2/gpt2-tiny.pt2", "tests/data/bad/ignored.pt2"].map(|path| root().join(path)) {
            let name = archive.file_name().expect("a name");
            fs::copy(&archive, folder.path().join(name)).expect("copies");
        }
        let said_at = |args: &[&str], code: i32| {
            let args = [&["check", "main.slapo", "--message-format", "short"], args].concat();
            let run = Run::from(command(&args).current_dir(folder.path()).output().expect("slapoc starts"));
            said(&run.expect(code)).into_iter().filter(|found| found.ends_with(lint.code.id())).collect::<BTreeSet<_>>()
        };
        let at = |severity: &str| BTreeSet::from([format!("{severity} {}", lint.code)]);
        let by_itself = if lint.is_on { at("warning") } else { BTreeSet::new() };
        assert_eq!(said_at(&[], 0), by_itself, "{}", lint.name);
        assert_eq!(said_at(&["-A", lint.name], 0), BTreeSet::new(), "{}", lint.name);
        assert_eq!(said_at(&["-W", lint.name, "-A", "warnings"], 0), at("warning"), "{}", lint.name);
        assert_eq!(said_at(&["-D", lint.name], 1), at("error"), "{}", lint.name);
    }
}

#[test]
fn levels_that_mean_nothing_are_usage_errors() {
    assert_snapshot!(check(&["-A", "unused-lte"]).expect(2).stderr);
    assert!(check(&["-A", "S0601"]).expect(2).stderr.contains("no lint `S0601`"));
    assert!(check(&["-A", "S1102", "-D", "S1102"]).expect(2).stderr.contains("two levels"));
}

#[test]
fn what_is_denied_is_not_applied_either() {
    let apply = |args: &[&str]| run_on(IDLE, &[&["apply", "main.slapo"], args].concat());
    let warned = apply(&[]).expect(0);
    assert!(warned.stderr.contains("warning[S1105]") && !warned.stdout.is_empty(), "{}", warned.shown());
    let denied = apply(&["-D", "idle-axis"]).expect(1);
    assert!(denied.stderr.contains("error[S1105]") && denied.stdout.is_empty(), "{}", denied.shown());
    // Of a part of the entry nothing is said.
    assert_eq!(apply(&["--until", "6", "-D", "warnings"]).expect(0).stderr, "");
}

#[test]
fn lints_are_explained_by_their_names() {
    for lint in Lint::ALL {
        let by_name = run(&["explain", lint.name]).expect(0).stdout;
        assert_eq!(by_name, run(&["explain", lint.code.id()]).expect(0).stdout);
        assert!(by_name.contains(&format!("`{}`", lint.name)), "{by_name}");
        assert_eq!(Lint::find(lint.name), Some(*lint));
    }
}

#[test]
fn json_names_the_lint_and_carries_the_edits() {
    let run = run_on(IDLE, &["check", "main.slapo", "--message-format", "json"]).expect(0);
    let records: Vec<serde_json::Value> =
        run.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let unused = records.iter().find(|record| record["code"] == "S1102").expect("the unused name");
    assert_eq!((&unused["lint"], &unused["severity"]), (&"unused-let".into(), &"warning".into()));
    let edit = &unused["fixes"][0]["edits"][0];
    let offset = |name: &str| edit[name].as_u64().expect("an offset") as usize;
    assert_eq!(&IDLE[offset("start")..offset("end")], "    let blocks = m.transformer.h\n");
    assert_eq!((&edit["replacement"], &edit["file"]), (&"".into(), &"main.slapo".into()));
    assert_eq!(unused["fixes"][0]["applicability"], "machine_applicable");
}

#[test]
fn fixes_are_made_until_there_are_none() {
    let folder = folder(BROKEN);
    let path = folder.path().join("main.slapo");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("sets");
    let fix = |args: &[&str]| -> Run {
        let args = [&["check", "--fix", "main.slapo"], args].concat();
        command(&args).current_dir(folder.path()).output().expect("slapoc starts").into()
    };
    let shown = fix(&["--diff"]).expect(1);
    assert_snapshot!(shown.shown());
    assert_eq!(fs::read_to_string(&path).expect("reads"), BROKEN, "a diff writes nothing");
    let fixed = fix(&[]).expect(0);
    assert!(fixed.stderr.starts_with("main.slapo: fixed 4 of 4\n"), "{}", fixed.stderr);
    assert_eq!(fs::read_to_string(&path).expect("reads"), FIXED);
    assert_eq!(fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o640);
    assert_eq!(fs::read_dir(folder.path()).expect("reads").count(), 2, "nothing is left beside it");
    let again = fix(&[]).expect(0);
    assert!(again.stderr.starts_with("main.slapo: no errors"), "{}", again.stderr);
}

/// What cannot be fixed is shown with the places of the new text.
#[test]
fn what_is_left_is_shown_in_the_fixed_text() {
    let text = BROKEN.replace("    for b in", "    m.accumulate(steps: 3)\n    for b in");
    let folder = folder(&text);
    let args = ["check", "--fix", "main.slapo", "--message-format", "short"];
    let run = Run::from(command(&args).current_dir(folder.path()).output().expect("slapoc starts")).expect(1);
    assert_snapshot!(run.stderr);
    let fixed = fs::read_to_string(folder.path().join("main.slapo")).expect("reads");
    assert!(fixed.contains("over: tp)\n        b.mlp.c_proj.weight"), "{fixed}");
    let json = ["check", "--fix", "main.slapo", "--message-format", "json"];
    let run = Run::from(command(&json).current_dir(folder.path()).output().expect("slapoc starts")).expect(1);
    let record: serde_json::Value = serde_json::from_str(run.stdout.lines().nth(1).expect("a record")).expect("JSON");
    assert_eq!(
        record,
        serde_json::json!({"type": "fix", "file": "main.slapo", "fixed": 0, "left": 1, "written": false})
    );
}

/// A text that was not in the one style is not put into it.
#[test]
fn a_fix_keeps_the_rest_of_the_text() {
    let text = "use std.memory.checkpoint_every\nmodel   \"model.pt2\"\ninput{batch=8,seq=64}\nschedule main(m: GPT2LMHeadModel) {m.accumulat(2)}\n";
    let folder = folder(text);
    let args = ["check", "--fix", "main.slapo"];
    Run::from(command(&args).current_dir(folder.path()).output().expect("slapoc starts")).expect(0);
    let fixed = fs::read_to_string(folder.path().join("main.slapo")).expect("reads");
    let wanted = text.replace("accumulat(", "accumulate(").replace("use std.memory.checkpoint_every\n", "");
    assert_eq!(fixed, wanted);
}

#[test]
fn what_cannot_be_written_is_said() {
    assert!(run(&["check", "--fix", "-"]).expect(2).stderr.contains("standard input"));
    assert!(run(&["check", "--diff", "examples"]).expect(2).stderr.contains("--fix"));
    let folder = folder(BROKEN);
    let path = folder.path().join("main.slapo");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).expect("sets");
    let args = ["check", "--fix", "main.slapo"];
    let run = Run::from(command(&args).current_dir(folder.path()).output().expect("slapoc starts")).expect(2);
    assert!(run.stderr.contains("error[S1013]: cannot write `main.slapo`"), "{}", run.stderr);
    assert_eq!(fs::read_to_string(&path).expect("reads"), BROKEN);
}
