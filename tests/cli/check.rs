//! `slapoc check` on schedules right and wrong.

use crate::schedules::{folder, run_on};
use crate::support::{Run, command, root, run};
use insta::assert_snapshot;
use std::fs;
use std::io::Write;
use std::process::Stdio;
use tempfile::TempDir;

const FORMATS: [&str; 4] = ["human", "short", "json", "github"];

/// Names, paths and arguments that are wrong, on several lines.
const BROKEN: &str = "\
model \"model.pt2\"
input { batch = 6, seq = 64 }

schedule main(m: GPT2LMHeadModel) {
    m.transformer.h[0].atn.checkpoint()
    m.transformer.h[0].chekpoint()
    let width = heigth + 1
    m.accumulate(steps: 4)
}
";

#[test]
fn a_right_schedule_is_passed_over_in_one_line() {
    let run = run(&["check", "examples/gpt2/plain.slapo"]).expect(0);
    assert_snapshot!(run.shown());
}

#[test]
fn every_example_is_right() {
    for folder in ["gpt2", "llama"] {
        let files = fs::read_dir(root().join("examples").join(folder)).expect("reads");
        let mut schedules: Vec<String> = files.map(|file| file.expect("reads").path().display().to_string()).collect();
        schedules.retain(|path| path.ends_with(".slapo"));
        assert!(!schedules.is_empty(), "{folder}");
        for path in schedules {
            run(&["check", "-q", &path]).expect(0);
        }
    }
}

#[test]
fn mistakes_are_shown_in_four_formats() {
    let mut settings = insta::Settings::clone_current();
    // A new primitive changes nothing here.
    settings.add_filter("primitives are `[^;]*;", "primitives are …;");
    for format in FORMATS {
        let run = run_on(BROKEN, &["check", "main.slapo", "--message-format", format]).expect(1);
        settings.bind(|| assert_snapshot!(format!("mistakes-{format}"), run.shown()));
    }
}

#[test]
fn json_is_one_object_a_line_with_offsets_of_the_text() {
    let run = run_on(BROKEN, &["check", "main.slapo", "--message-format", "json"]).expect(1);
    assert!(run.stderr.is_empty(), "{}", run.stderr);
    let mut seen = 0;
    let mut records = run.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let version = records.next().expect("a first record");
    assert_eq!((&version["type"], &version["format"]), (&"version".into(), &1.into()));
    assert_eq!(version["slapoc"], env!("CARGO_PKG_VERSION"));
    for record in records {
        assert_eq!(record["type"], "diagnostic");
        for label in record["labels"].as_array().expect("labels") {
            let offset = |name: &str| label[name].as_u64().expect("an offset") as usize;
            let lines: Vec<&str> = BROKEN[..offset("start")].split('\n').collect();
            assert_eq!(label["line"], lines.len());
            assert_eq!(label["column"], lines[lines.len() - 1].chars().count() + 1);
            assert!(offset("end") <= BROKEN.len());
            seen += 1;
        }
    }
    assert!(seen >= 4, "{}", run.stdout);
}

#[test]
fn colours_are_asked_for() {
    let plain = run_on(BROKEN, &["check", "main.slapo"]).expect(1);
    assert!(!plain.stderr.contains('\x1b'));
    let colored = run_on(BROKEN, &["check", "main.slapo", "--color", "always"]).expect(1);
    assert!(colored.stderr.contains("\x1b[31m"), "{}", colored.stderr);
}

#[test]
fn a_schedule_without_a_model_is_checked_for_names_and_types() {
    let run = run_on("schedule main(m: Module) { m.any.checkpoint() }\n", &["check", "main.slapo"]).expect(0);
    assert_snapshot!(run.shown());
}

#[test]
fn the_command_line_decides_model_and_sizes() {
    let text = "schedule main(m: Module) {}\n";
    let run_with = |args: &[&str]| run_on(text, &[&["check", "main.slapo", "--model", "model.pt2"], args].concat());
    let fits = run_with(&["--batch", "3", "--seq", "5"]).expect(0);
    assert!(fits.stderr.contains("batch 3, seq 5"), "{}", fits.stderr);
    let long = run_with(&["--batch", "3", "--seq", "129"]).expect(1);
    assert!(long.stderr.contains("128") && long.stderr.contains("`--seq 129` asks for it"), "{}", long.shown());
}

#[test]
fn a_model_alone_is_the_empty_schedule() {
    let run = run(&["check", "examples/gpt2/gpt2-tiny.pt2"]).expect(0);
    assert_snapshot!(run.shown());
}

#[test]
fn a_mistake_in_text_with_odd_characters_is_shown_at_its_place() {
    let text = "schedule main(m: Module) {\n    # naïve \u{1f980}\t\u{2028}\n    m.é\u{1b}[31m.nothing().x\r\n}\n";
    let run = run_on(text, &["check", "main.slapo"]).expect(1);
    assert!(!run.stderr.contains('\u{1b}'), "{:?}", run.stderr);
    let short = run_on(text, &["check", "main.slapo", "--message-format", "short"]).expect(1);
    assert!(short.stderr.starts_with("main.slapo:3:"), "{}", short.stderr);
}

#[test]
fn random_bytes_are_an_error_and_no_crash() {
    // Any fixed sequence will do: a linear congruential generator, constants of Numerical Recipes.
    let mut state = 7u32;
    let mut noise = |length: usize| -> Vec<u8> {
        let byte = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length).map(byte).collect()
    };
    for length in [1, 40, 4000] {
        let bytes = noise(length);
        let ascii: Vec<u8> = bytes.iter().map(|b| b % 95 + 32).collect();
        let run = run_on(&ascii, &["check", "main.slapo"]);
        assert_eq!(run.code, Some(1), "{}", run.stderr);
        let raw = run_on(&bytes, &["check", "main.slapo"]);
        assert!(matches!(raw.code, Some(1 | 2)), "{}", raw.stderr);
    }
}

#[test]
fn deep_nesting_is_an_error_and_no_crash() {
    for (open, close) in [("(", ")"), ("[", "]"), ("-", ""), ("if true {", "}"), ("not ", "")] {
        let text = format!("schedule main(m: Module) {{ let x = {}1{} }}\n", open.repeat(10_000), close.repeat(10_000));
        for format in ["human", "json"] {
            let run = run_on(&text, &["check", "main.slapo", "--message-format", format]);
            assert_eq!(run.code, Some(1), "{open}: {}", &run.stderr[..run.stderr.len().min(2000)]);
        }
    }
}

/// Runs on a text that comes in on standard input, beside a model of the name `model.pt2`.
fn run_on_stdin(text: &str, args: &[&str]) -> Run {
    let folder = folder("");
    fs::remove_file(folder.path().join("main.slapo")).expect("was there");
    let mut child = command(args)
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("slapoc starts");
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("is read");
    child.wait_with_output().expect("ends").into()
}

#[test]
fn a_schedule_comes_in_on_standard_input() {
    let right =
        "model \"model.pt2\"\ninput { batch = 2, seq = 8 }\nschedule main(m: Module) { m.annotate(\"a\", 1) }\n";
    let fine = run_on_stdin(right, &["check", "-"]).expect(0);
    assert!(fine.stderr.starts_with("<stdin>: no errors, 1 step "), "{}", fine.stderr);
    let steps = run_on_stdin(right, &["apply", "-", "--emit", "steps"]).expect(0);
    assert!(steps.stdout.contains("annotate"), "{}", steps.stdout);
    let unnamed = run_on_stdin(BROKEN, &["check", "-", "--message-format", "short"]).expect(1);
    assert!(unnamed.stderr.starts_with("<stdin>:5:"), "{}", unnamed.stderr);
    let named = ["check", "-", "--message-format", "short", "--stdin-filename", "./gpt2.slapo"];
    assert!(run_on_stdin(BROKEN, &named).expect(1).stderr.starts_with("./gpt2.slapo:5:"));
    // The name decides where the model is looked for.
    let elsewhere = run_on_stdin(right, &["check", "-", "--stdin-filename", "other/gpt2.slapo"]).expect(2);
    assert!(elsewhere.stderr.contains("error[S1010]") && elsewhere.stderr.contains("other/model.pt2"));
}

/// Schedules in several folders; two of four have mistakes.
fn tree() -> TempDir {
    let folder = folder("model \"model.pt2\"\ninput { batch = 2, seq = 8 }\nschedule main(m: Module) {}\n");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("makes it");
        fs::write(path, text).expect("writes");
    };
    let unnamed = "schedule main(m: Module) {}\n";
    write("b/one.slapo", unnamed);
    write("b/c/two.slapo", "schedule main(m: Module) { x }\n");
    write("b/three.slapo", "schedule main(m: Module) { y; }\n");
    write("b/notes.txt", "no schedule");
    write(".hidden/four.slapo", "}");
    write("cache/CACHEDIR.TAG", "");
    write("cache/five.slapo", "}");
    write("none/readme.txt", "");
    std::os::unix::fs::symlink(folder.path(), folder.path().join("b/back")).expect("links");
    folder
}

#[test]
fn folders_are_searched_for_schedules() {
    let tree = tree();
    let check = |args: &[&str]| -> Run {
        let args = [&["check", "--message-format", "short"], args].concat();
        command(&args).current_dir(tree.path()).output().expect("starts").into()
    };
    assert_snapshot!("folder", check(&[]).expect(1).shown());
    assert_eq!(check(&["."]).expect(1).stderr, check(&[]).stderr);
    let several = check(&["main.slapo", "b/one.slapo", "main.slapo", "b/c"]).expect(1);
    assert!(several.stderr.contains("in 1 of 3 schedules"), "{}", several.stderr);
    assert!(check(&["main.slapo", "b/one.slapo"]).expect(0).stderr.ends_with("2 schedules: no errors\n"));
    let missing = check(&["absent.slapo", "b/c"]).expect(2);
    assert!(missing.stderr.contains("error[S1011]") && missing.stderr.contains("two.slapo:1:"), "{}", missing.stderr);
    let none = check(&["none"]).expect(2);
    assert!(none.stderr.contains("there is no schedule in `none`"), "{}", none.stderr);
}

#[test]
fn warnings_are_annotations_too() {
    let run = run(&["check", "tests/data/bad/ignored.pt2", "--message-format", "github"]).expect(0);
    assert!(run.stdout.starts_with("::warning title=S1009::") && run.stdout.contains("`input_ids`"), "{}", run.stdout);
    let failure = run_on("", &["check", "absent,1.slapo", "--message-format", "github"]).expect(2);
    assert!(failure.stdout.starts_with("::error title=S1011::cannot read `absent,1.slapo`"), "{}", failure.stdout);
}

/// Labels on several lines, before and behind the place of the mistake, and wide characters.
#[test]
fn labels_are_drawn_in_the_order_of_the_text() {
    let text = "model \"model.pt2\"\ninput { batch = 8, seq = 64 }\nschedule 部分(b: GPT2Block) {\n    b.attn.c_atn.freeze()   # 日本語 🦀\n}\n\
        schedule main(m: GPT2LMHeadModel) {\n    m.accumulate(\n        steps: 2\n    )\n    m.accumulate(\n        steps: 4\n    )\n    \
        部分(m.transformer.h[0])\n    let x = \"日本語\" + 3\n    m.transformer.h[7].freeze()\n}\n";
    assert_snapshot!("labels", run_on(text, &["check", "main.slapo"]).expect(1).shown());
}

#[test]
fn a_mistake_that_a_library_finds_is_shown_there_too() {
    let text = "use std.memory.checkpoint_every\nmodel \"model.pt2\"\ninput { batch = 8, seq = 64 }\n\
        schedule main(m: GPT2LMHeadModel) {\n    checkpoint_every(m.transformer.h, n: 0)\n    \
        checkpoint_every(m.transformer.h, n: 1)\n    m.transformer.h[1].checkpoint()\n}\n";
    assert_snapshot!("library", run_on(text, &["check", "main.slapo"]).expect(1).shown());
}

/// `main.slapo` uses `blocks/tp.slapo`, which uses `blocks/shapes.slapo` and the library.
fn with_modules() -> TempDir {
    let folder = folder(
        "use blocks.tp.{mlp, Mlps}\nmodel \"model.pt2\"\ninput { batch = 8, seq = 64 }\nmesh { tp = 2 }\n\n\
         schedule each(b: Mlps, over: axis) { mlp(b.mlp, over: over) }\n\n\
         schedule main(m: GPT2LMHeadModel) { each(m.transformer.h.*, over: tp) }\n",
    );
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("writes");
    fs::create_dir(folder.path().join("blocks")).expect("makes it");
    write("blocks/shapes.slapo", "type Mlp = { c_fc: Linear, c_proj: Linear }\n");
    write(
        "blocks/tp.slapo",
        "use std.parallel.{column, row}\nuse shapes.Mlp\n\ntype Mlps = { mlp: Mlp }\n\n\
         schedule mlp(m: Mlp, over: axis) {\n    column(m.c_fc, over: over)\n    row(m.c_proj, over: over)\n}\n",
    );
    folder
}

#[test]
fn modules_are_read_from_files_beside_the_schedule() {
    let tree = with_modules();
    let slapoc = |args: &[&str]| -> Run { command(args).current_dir(tree.path()).output().expect("starts").into() };
    let steps = slapoc(&["apply", "main.slapo", "--emit", "steps"]).expect(0).stdout;
    assert_eq!(steps.lines().count(), 3 * 5, "{steps}");
    // Each file is right on its own, from wherever it is looked at.
    let all = slapoc(&["check"]).expect(0);
    assert!(all.stderr.ends_with("3 schedules: no errors\n"), "{}", all.stderr);
    assert!(slapoc(&["check", "blocks/tp.slapo"]).expect(0).stderr.contains("names and types are right"));
    let elsewhere = command(&["check", &tree.path().join("main.slapo").display().to_string()]).output();
    Run::from(elsewhere.expect("starts")).expect(0);
    // On a model, a file of declarations has nothing to start with.
    let library = slapoc(&["check", "blocks/tp.slapo", "--model", "model.pt2", "--batch", "8", "--seq", "64"]);
    assert!(library.expect(1).stderr.contains("error[S0109]"));
}

#[test]
fn modules_that_cannot_be_read_are_errors() {
    let tree = with_modules();
    let slapoc = |args: &[&str]| -> Run { command(args).current_dir(tree.path()).output().expect("starts").into() };
    let shapes = tree.path().join("blocks/shapes.slapo");
    fs::rename(&shapes, tree.path().join("blocks/shape.slapo")).expect("moves it");
    let missing = slapoc(&["check", "main.slapo", "--message-format", "short"]).expect(1).stderr;
    let said = "blocks/tp.slapo:2:5: error[S0104]: there is no module `shapes`";
    assert!(missing.contains(said) && missing.contains("1 error;"), "{missing}");
    fs::create_dir(&shapes).expect("makes it");
    let a_folder = slapoc(&["check", "main.slapo"]).expect(1).stderr;
    assert!(a_folder.contains("error[S0104]") && a_folder.contains("is a folder"), "{a_folder}");
    fs::remove_dir(&shapes).expect("removes it");
    fs::write(&shapes, "type Mlp = { c_fc: Linear }\n").expect("writes");
    let fewer = slapoc(&["check", "main.slapo", "--message-format", "short"]).expect(1).stderr;
    assert!(fewer.contains("blocks/tp.slapo:8:11: error[S0201]: type `Mlp` lists no `c_proj`"), "{fewer}");
}
