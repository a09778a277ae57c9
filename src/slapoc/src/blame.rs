//! A failed run in words: whose failure it is, what kind of mistake, and where in the model.
//!
//! Knows workers by their events and endings only. Read [`blame`] first.

use crate::failure::Failure;
use crate::launch;
use crate::ranks::{Cause, What};
use slapo_model::Model;
use slapo_program::{Event, FailureKind};
use slapo_syntax::{Code, ModelExcerpt};

/// The ranks that this process starts workers for.
pub struct Started {
    /// The first, in the whole mesh.
    pub first: u32,
    pub count: u32,
    pub world: u32,
}

/// Why the run failed, with the rank where there are several and not all tell the same. `done` says how far it came.
pub fn blame(cause: &Cause, started: &Started, done: &str, model: &Model) -> Box<Failure> {
    let ranks: Vec<String> = cause.ranks.iter().map(|rank| (started.first + *rank as u32).to_string()).collect();
    let ranks = format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, ranks.join(", "));
    let several = started.world > 1;
    match &cause.what {
        What::Told(event) => {
            let mut failure = failure(event, model, &cause.said);
            // Who lost or differs from whom is in the words already.
            let named = matches!(failure.code, Some(Code::RankLost | Code::RanksDiffer));
            if several && !named && (started.count == 1 || cause.ranks.len() < started.count as usize) {
                failure.message = format!("{ranks}: {}", failure.message);
            }
            failure
        }
        What::Died(ending) => {
            let worker = if several { format!("the worker of {ranks}") } else { "the worker".to_owned() };
            let message = format!("{worker} {ending}, {done}");
            let failure = with_last_words(Failure::worker(Code::WorkerDied, message), &cause.said);
            match ending.hint() {
                Some(hint) => failure.help(hint),
                None => failure,
            }
        }
        What::Stopped => {
            let message = format!("{ranks} does not answer, {done}");
            Failure::worker(Code::RankLost, message)
                .note("its process is stopped, as `kill -STOP` does, and all wait for it")
        }
        What::Silent(witness) => {
            let answers = if cause.ranks.len() == 1 { "does" } else { "do" };
            let message = format!("{ranks} {answers} not answer, {done}");
            let told = failure(witness, model, &[]);
            let mut failure = Failure::worker(Code::RankLost, message).note(told.message);
            failure.notes.extend(told.notes);
            failure.help("`--timeout SECONDS` sets how long a rank waits for another")
        }
    }
}

/// Where the worker's message decides what kind of mistake it is.
const SAID: [(&str, Code); 5] = [
    ("ranks 0 and ", Code::RanksDiffer),
    ("cannot listen on ", Code::LaunchVariables),
    ("cannot write ", Code::UnwritableFile),
    ("cannot read ", Code::UnreadableData),
    ("cannot run the job ", Code::NoWorker),
];

/// The worker's own account, with the model's line where it is known.
pub fn failure(event: &Event, model: &Model, said: &[String]) -> Box<Failure> {
    let Event::Failed { kind, message, function, instruction, operator, shapes, module, source } = event else {
        return Failure::worker(Code::RunFailed, "the worker failed");
    };
    let message = without_error_number(message);
    let code = SAID.iter().find(|(start, _)| message.starts_with(start)).map(|(_, code)| *code);
    let mut failure = match (kind, operator) {
        (FailureKind::Input, _) => Failure::not_done(code.unwrap_or(Code::UnfitData), message),
        (FailureKind::Peer, _) => Failure::worker(Code::RankLost, message),
        (FailureKind::Run | FailureKind::Ranks, Some(operator)) => {
            let message = format!("`{operator}` failed: {}", message.trim_end_matches('.'));
            Failure::worker(Code::OperatorFailed, message)
        }
        (FailureKind::Run | FailureKind::Ranks, None) => Failure::worker(code.unwrap_or(Code::RunFailed), message),
    };
    if failure.code == Some(Code::NoWorker) {
        failure = failure.help(launch::ONE_VERSION);
    }
    if !shapes.is_empty() {
        failure = failure.note(format!("its tensors are {}", shapes.join(", ")));
    }
    if let Some(function) = function {
        let number = instruction.map(|n| format!("instruction {n} of ")).unwrap_or_default();
        failure = failure.note(format!("in {number}`{function}`"));
    }
    if let Some(module) = module.as_ref().filter(|module| !module.is_empty()) {
        failure = failure.note(format!("in module `{module}`"));
    }
    failure.excerpt = source.as_deref().and_then(|place| excerpt(model, place));
    match kind {
        // What libtorch prints of a lost connection helps nobody.
        FailureKind::Input | FailureKind::Peer => failure,
        FailureKind::Run | FailureKind::Ranks => with_last_words(failure, said),
    }
}

/// `No space left on device (os error 28)` without its number.
fn without_error_number(message: &str) -> String {
    let Some(start) = message.find(" (os error ") else { return message.to_owned() };
    let end = message[start..].find(')').map_or(message.len(), |at| start + at + 1);
    format!("{}{}", &message[..start], &message[end..])
}

/// The line at `file:line` as the archive carries it.
fn excerpt(model: &Model, place: &str) -> Option<ModelExcerpt> {
    let (file, line) = place.rsplit_once(':')?;
    let line: u32 = line.parse().ok()?;
    let known = model.sources.iter().find(|source| source.file == file && source.line == line);
    let source = known.map(|source| source.text.clone()).unwrap_or_default();
    Some(ModelExcerpt { file: file.to_owned(), line, source, label: String::new() })
}

fn with_last_words(failure: Box<Failure>, said: &[String]) -> Box<Failure> {
    if said.is_empty() {
        return failure;
    }
    failure.note(format!("the worker's last words:\n{}", said.join("\n")))
}
