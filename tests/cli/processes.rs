//! `slapoc train` on meshes of several processes: the same numbers as the simulated mesh, launchers, and every way in which one
//! rank can fail the others.

mod running;
mod support;

use running::{children, end, gone, running, signal};
use safetensors::SafeTensors;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use support::{Run, command, root, run};
use tempfile::TempDir;

const TEXT: &str = "examples/gpt2/corpus.txt";
const SMALL: [&str; 4] = ["--batch", "4", "--seq", "16"];
const LONG: [&str; 2] = ["--steps", "1000000"];
const TP: &str = "examples/gpt2/tensor_parallel.slapo";
const DP: &str = "examples/gpt2/data_parallel.slapo";
const BOTH: &str = "examples/gpt2/tp_dp.slapo";
const ZERO: &str = "examples/gpt2/zero.slapo";

fn arguments<'a>(schedule: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [&["train", schedule, "--data", TEXT], &SMALL[..], args].concat()
}

/// What a run leaves behind.
struct Outcome {
    losses: Vec<f64>,
    norms: Vec<f64>,
    collectives: Value,
    gradients: Vec<u8>,
    parameters: Vec<u8>,
}

fn trained(schedule: &str, args: &[&str]) -> Outcome {
    let folder = TempDir::new().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (gradients, parameters) = (path("gradients.safetensors"), path("parameters.safetensors"));
    let files = ["--dump-gradients", &gradients, "--save", &parameters];
    let common = ["--steps", "2", "--clip", "0.5", "--message-format", "json"];
    let run = run(&arguments(schedule, &[&common[..], &files, args].concat())).expect(0);
    let records: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let steps = || records.iter().filter(|record| record["type"] == "step");
    let numbers = |field: &str| steps().map(|step| step[field].as_f64().expect("a number")).collect::<Vec<_>>();
    let summary = records.last().expect("a summary");
    assert_eq!(summary["type"], "summary");
    Outcome {
        losses: numbers("loss"),
        norms: numbers("grad_norm"),
        collectives: summary["collectives"].clone(),
        gradients: fs::read(gradients).expect("was written"),
        parameters: fs::read(parameters).expect("was written"),
    }
}

/// The largest difference between float32 tensors, relative to the largest number of each.
fn difference(a: &[u8], b: &[u8]) -> f64 {
    let (a, b) = (SafeTensors::deserialize(a).expect("parses"), SafeTensors::deserialize(b).expect("parses"));
    let numbers = |file: &SafeTensors, name: &str| -> Vec<f32> {
        let data = file.tensor(name).expect("is there").data().to_vec();
        data.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four"))).collect()
    };
    assert!(a.len() > 20 && a.len() == b.len());
    let worst = a.names().into_iter().map(|name| {
        let (a, b) = (numbers(&a, name), numbers(&b, name));
        assert_eq!(a.len(), b.len(), "{name}");
        let largest = a.iter().fold(1e-12, |m: f32, x| m.max(x.abs()));
        a.iter().zip(&b).fold(0.0, |m: f32, (x, y)| m.max((x - y).abs())) / largest
    });
    f64::from(worst.fold(0.0, f32::max))
}

#[test]
fn processes_give_the_bits_of_the_simulated_mesh() {
    for (schedule, ranks) in [(TP, "2"), (DP, "2"), (BOTH, "4"), (ZERO, "2")] {
        let processes = trained(schedule, &["--nproc", ranks, "--deterministic"]);
        let simulated = trained(schedule, &["--simulate", "--deterministic"]);
        assert_eq!((&processes.losses, &processes.norms), (&simulated.losses, &simulated.norms), "{schedule}");
        assert_eq!(processes.losses.len(), 2);
        assert!(processes.gradients == simulated.gradients, "{schedule}: gradients differ");
        assert!(processes.parameters == simulated.parameters, "{schedule}: parameters differ");
        assert!(simulated.collectives.as_array().is_some_and(|counts| !counts.is_empty()));
        assert_eq!(processes.collectives, simulated.collectives, "{schedule}");
    }
}

/// Every stage of ZeRO takes less memory than the one before, as much as was foretold, and changes no loss.
#[test]
fn what_ranks_share_they_do_not_hold() {
    let summary = |schedule: &str, set: &[&str]| -> Value {
        // Of a batch whose activations are larger than the model.
        let options = ["--steps", "2", "--nproc", "2", "--threads", "1", "--message-format", "json"];
        let run = run(&[&["train", schedule, "--data", TEXT], &options[..], set].concat()).expect(0);
        serde_json::from_str(run.stdout.lines().last().expect("a summary")).expect("JSON")
    };
    let mut known = summary(DP, &[]);
    for stage in ["stage=1", "stage=2", "stage=3"] {
        let own = summary(ZERO, &["--set", stage]);
        let number = |summary: &Value, field: &str| summary[field].as_f64().expect("a number");
        let (measured, predicted) = (number(&own, "measured_memory"), number(&own, "predicted_memory"));
        assert!((measured / predicted - 1.0).abs() < 0.05, "{stage}: {measured} bytes measured, {predicted} predicted");
        let before = number(&known, "measured_memory");
        assert!(measured < before, "{stage}: {measured} bytes, {before} before");
        let (loss, before) = (number(&own, "last_loss"), number(&known, "last_loss"));
        assert!((loss / before - 1.0).abs() < 1e-5, "{stage}: {loss}, {before} before");
        known = own;
    }
}

#[test]
fn sums_in_gloos_order_differ_by_rounding_only() {
    let (free, exact) = (trained(BOTH, &["--nproc-per-node", "4"]), trained(BOTH, &["--simulate", "--deterministic"]));
    for (free, exact) in free.losses.iter().zip(&exact.losses).chain(free.norms.iter().zip(&exact.norms)) {
        assert!((free / exact - 1.0).abs() < 1e-5, "{free}, not {exact}");
    }
    let apart = difference(&free.gradients, &exact.gradients);
    assert!(apart < 1e-4, "gradients are {apart:e} apart");
    assert_eq!(free.collectives, exact.collectives);
}

#[test]
fn an_automatic_axis_takes_the_ranks_that_are_started() {
    let folder = TempDir::new().expect("a folder");
    let schedule = folder.path().join("auto.slapo");
    let text = "mesh { dp = auto }\nschedule main(m: Module) { m.data_parallel(over: dp) }\n";
    fs::write(&schedule, text).expect("writes");
    let schedule = schedule.to_str().expect("UTF-8");
    let model = ["--model", "examples/gpt2/gpt2-tiny.pt2", "--steps", "1", "--self-test"];
    run(&arguments(schedule, &[&model[..], &["--nproc", "2"]].concat())).expect(0);
    let odd = run(&arguments(BOTH, &["--nproc", "3"])).expect(1);
    assert!(odd.stderr.contains("error[S0652]: the mesh has 4 ranks, but the world has 3"), "{}", odd.stderr);
    assert_eq!(odd.stderr.matches("error[").count(), 1, "{}", odd.stderr);
}

/// Eight processes for a mesh of three: one error, before any worker starts, with the meshes that are near.
#[test]
fn b06_a_world_that_is_not_the_mesh() {
    let folder = TempDir::new().expect("a folder");
    let schedule = folder.path().join("three.slapo");
    let text = "input { batch = 9, seq = 16 }\nmesh { tp = 1, pp = 3 }\nschedule main(m: Module) { m.data_parallel(over: pp) }\n";
    fs::write(&schedule, text).expect("writes");
    let schedule = schedule.to_str().expect("UTF-8");
    let args = ["train", schedule, "--data", TEXT, "--model", "examples/gpt2/gpt2-tiny.pt2"];
    for world in [["--nproc", "8"], ["--nproc", "4"]] {
        let refused = run(&[&args[..], &world].concat()).expect(1);
        one_error(&refused.stderr, &["error[S0652]: the mesh has 3 ranks, but the world has"]);
        assert!(refused.stderr.contains("tp = "), "near meshes: {}", refused.stderr);
        assert!(!refused.stderr.contains("panicked") && refused.stdout.is_empty(), "{}", refused.stderr);
    }
    let sizes = ["--batch", "9", "--seq", "16"];
    run(&[&args[..], &sizes, &["--nproc", "3", "--steps", "1"]].concat()).expect(0);
}

/// One error, which has these words.
fn one_error(stderr: &str, words: &[&str]) {
    assert_eq!(stderr.matches("error[").count(), 1, "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "no `{word}` in {stderr}");
    }
}

#[test]
fn a_killed_rank_ends_the_run_with_its_signal() {
    for (rank, options) in [(1, &[][..]), (0, &["--deterministic"])] {
        let args = arguments(BOTH, &[&LONG, &["--nproc", "4"][..], options].concat());
        let (child, mut lines) = running(&args);
        let workers = children(child.id());
        assert_eq!(workers.len(), 4);
        signal("-KILL", workers[rank]);
        let _ = lines.read_to_string(&mut String::new());
        let (code, stderr) = end(child);
        assert_eq!(code, Some(3), "{stderr}");
        let worker = format!("error[S0902]: the worker of rank {rank} was killed by SIGKILL");
        one_error(&stderr, &[&worker, "of 1000000 steps done"]);
        gone(&workers);
    }
}

#[test]
fn a_rank_that_does_not_answer_is_found_out() {
    let (child, mut lines) = running(&arguments(BOTH, &[&LONG[..], &["--nproc", "4", "--timeout", "3"]].concat()));
    let workers = children(child.id());
    signal("-STOP", workers[3]);
    let began = Instant::now();
    let _ = lines.read_to_string(&mut String::new());
    let (code, stderr) = end(child);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(code, Some(3), "{stderr}");
    one_error(&stderr, &["error[S0905]: rank 3 does not answer", "waited 3 s for", "over axis `", "in instruction "]);
    gone(&workers);
}

#[test]
fn a_stopped_rank_is_seen_long_before_its_time_is_over() {
    let (child, mut lines) = running(&arguments(TP, &[&LONG[..], &["--nproc", "2"]].concat()));
    let workers = children(child.id());
    signal("-STOP", workers[1]);
    let began = Instant::now();
    let _ = lines.read_to_string(&mut String::new());
    let (code, stderr) = end(child);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(code, Some(3), "{stderr}");
    one_error(&stderr, &["error[S0905]: rank 1 does not answer", "its process is stopped"]);
    gone(&workers);
}

#[test]
fn an_interrupt_stops_all_workers() {
    let (child, mut lines) = running(&arguments(TP, &[&LONG[..], &["--nproc", "2"]].concat()));
    let workers = children(child.id());
    signal("-INT", child.id());
    let _ = lines.read_to_string(&mut String::new());
    let (code, stderr) = end(child);
    assert_eq!(code, Some(130), "{stderr}");
    assert!(stderr.contains("interrupted: the workers are stopped"), "{stderr}");
    gone(&workers);
}

#[test]
fn workers_do_not_outlive_slapoc() {
    let (mut child, _lines) = running(&arguments(TP, &[&LONG[..], &["--nproc", "2"]].concat()));
    let workers = children(child.id());
    signal("-KILL", child.id());
    child.wait().expect("ends");
    gone(&workers);
}

/// The worker that slapoc would find.
fn worker() -> PathBuf {
    let beside = || PathBuf::from(env!("CARGO_BIN_EXE_slapoc")).with_file_name("slapo-worker");
    std::env::var_os("SLAPO_WORKER").map_or_else(beside, PathBuf::from)
}

/// A run of two ranks, of which rank 1 gets another job.
fn with_other_job(edit: &str) -> Run {
    let folder = TempDir::new().expect("a folder");
    let output = command(&arguments(DP, &["--steps", "2", "--nproc", "2"]))
        .env("SLAPO_WORKER", root().join("tests/cli/other-rank.sh"))
        .env("REAL_WORKER", worker())
        .env("FOLDER", folder.path())
        .env("EDIT", edit)
        .output()
        .expect("slapoc starts");
    output.into()
}

#[test]
fn what_one_rank_cannot_do_is_told_once_with_its_number() {
    let began = Instant::now();
    with_other_job("").expect(0);
    let absent = with_other_job("s/corpus.txt/absent.txt/").expect(2);
    one_error(&absent.stderr, &["error[S1012]: rank 1: cannot read `", "absent.txt`"]);
    let absent = with_other_job("s/gpt2-tiny.pt2/absent.pt2/").expect(2);
    one_error(&absent.stderr, &["rank 1: cannot read `", "absent.pt2`"]);
    // Two rows of a rank, seen as of another length.
    let wrong = with_other_job("s/\"Ints\":\\[2,16,/\"Ints\":[2,17,/g").expect(3);
    one_error(&wrong.stderr, &["error[S0901]: rank 1: `aten::reshape` failed: ", "of `forward`"]);
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn ranks_that_would_run_different_things_do_not_begin() {
    for (edit, words) in [
        ("s/corpus.txt/README.md/", "the data is "),
        ("s/\"seed\":0/\"seed\":1/", "the seed is 0 on rank 0, 1 on rank 1"),
        ("s/\"steps\":2/\"steps\":3/", "the number of steps is 2 on rank 0, 3 on rank 1"),
        ("s/\"schedule\":\"/\"schedule\":\"f/", "the schedule is "),
        ("s/aten::gelu\"/aten::relu\"/g; s/aten::tanh/aten::sinh/", "the function `forward` is "),
        ("s/\"Float\":0.999/\"Float\":0.99/g", "the function `optimizer` is "),
    ] {
        let run = with_other_job(edit).expect(2);
        one_error(&run.stderr, &["error[S0906]: ranks 0 and 1 do not run the same: ", words]);
    }
}

/// Two slapoc processes, each a rank by its variables; `args` are those of each.
fn launched(variables: [&str; 2], others: &[(&str, &str)], args: [&[&str]; 2]) -> [Run; 2] {
    let start = |rank: usize| {
        let mut command = command(&arguments(TP, args[rank]));
        command.env(variables[0], rank.to_string()).env(variables[1], "2").envs(others.iter().copied());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("slapoc starts")
    };
    let children = [1, 0].map(start);
    let [one, zero] = children.map(|child| child.wait_with_output().expect("ends"));
    [zero, one].map(|output: Output| output.into())
}

fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port().to_string()
}

#[test]
fn under_a_launcher_every_slapoc_is_a_rank_and_the_first_one_speaks() {
    let simulated = trained(TP, &["--simulate", "--deterministic"]);
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("parameters.safetensors");
    let args = ["--steps", "2", "--clip", "0.5", "--deterministic", "--save", path.to_str().expect("UTF-8")];
    let meet = free_port();
    let torchrun = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &meet), ("LOCAL_WORLD_SIZE", "2")];
    let [zero, one] = launched(["RANK", "WORLD_SIZE"], &torchrun, [&args; 2]).map(|run| run.expect(0));
    assert!(zero.stdout.contains("2 steps in ") && zero.stderr.contains("training "), "{zero:?}");
    assert_eq!((one.stdout.as_str(), one.stderr.as_str()), ("", ""));
    assert!(fs::read(&path).expect("was written") == simulated.parameters, "parameters differ");

    let slurm = [("SLURM_JOB_NODELIST", "localhost"), ("SLURM_JOB_ID", &std::process::id().to_string())];
    let seeds: [&[&str]; 2] = [&["--seed", "0"], &["--seed", "1"]];
    let [zero, one] = launched(["SLURM_PROCID", "SLURM_NTASKS"], &slurm, seeds).map(|run| run.expect(2));
    one_error(&zero.stderr, &["error[S0906]: ranks 0 and 1 do not run the same: the seed is 0 on rank 0"]);
    assert_eq!((one.stdout.as_str(), one.stderr.as_str()), ("", ""));
}

#[test]
fn a_lost_rank_of_a_launcher_is_told_by_those_that_lost_it() {
    let meet = free_port();
    let others = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", meet.as_str())];
    let alone = command(&arguments(TP, &["--timeout", "1"]))
        .envs([("RANK", "0"), ("WORLD_SIZE", "2")])
        .envs(others)
        .output()
        .expect("slapoc starts");
    let alone = Run::from(alone).expect(3);
    one_error(&alone.stderr, &["error[S0905]: rank 0 waited 1 s for rank 1 to begin"]);
}

#[test]
fn the_page_on_launches_says_the_truth() {
    support::try_page(slapo_syntax::Code::LaunchVariables, None);
}

#[test]
fn launchers_and_options_that_contradict_each_other_are_refused() {
    let with = |variables: &[(&str, &str)], args: &[&str]| {
        let output = command(&arguments(TP, args)).envs(variables.iter().copied()).output();
        Run::from(output.expect("slapoc starts"))
    };
    let torchrun = [("RANK", "0"), ("WORLD_SIZE", "8"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")];
    one_error(&with(&torchrun[..1], &[]).expect(2).stderr, &["error[S0907]: `RANK` is set and `WORLD_SIZE` is not"]);
    one_error(&with(&torchrun, &["--nproc", "2"]).expect(2).stderr, &["error[S0907]: `--nproc 2` starts all ranks"]);
    let large = with(&torchrun, &[]).expect(1);
    one_error(&large.stderr, &["error[S0652]: the mesh has 2 ranks, but the world has 8", "`tp = 8`"]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let taken_port = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port)];
    let refused = with(&taken_port, &[]).expect(2);
    one_error(&refused.stderr, &["error[S0907]: rank 0: cannot listen on port "]);
    let unequal = with(&[], &["--nproc", "2", "--world", "4"]).expect(2);
    assert!(unequal.stderr.contains("leave `--world` out"), "{}", unequal.stderr);
}
