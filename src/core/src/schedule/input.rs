//! Batch and sequence: from the schedule or the command line, against what the model accepts.

use super::ModelPath;
use super::expand::Expander;
use super::hir::Entry;
use super::number::Number;
use slapo_model::{InputSizes, Legal, LegalSizes, legal_sizes};
use slapo_syntax::{Code, Diagnostic, Span};

/// A size and the place that gives it; none for the command line's.
type Given = Option<(i64, Option<Span>)>;

/// The sizes of a step's inputs. Without a model only the expressions are checked.
pub fn sizes(expander: &mut Expander) -> Option<InputSizes> {
    let hir = expander.hir;
    let batch = given(expander, "batch", hir.batch.as_ref(), expander.overrides.batch);
    let seq = given(expander, "seq", hir.seq.as_ref(), expander.overrides.seq);
    let legal = legal_sizes(expander.model?);
    let batch = legal_size(expander, "batch", batch, &legal, legal.batch);
    let seq = legal_size(expander, "seq", seq, &legal, legal.seq);
    Some(InputSizes { batch: batch?.unwrap_or(1), seq: seq? })
}

/// Warns of inputs that make no difference. `named` is the schedule's model.
pub fn ignored(expander: &mut Expander, named: Option<ModelPath>) {
    let Some(model) = expander.model else { return };
    let names: Vec<String> = model.unused_inputs().iter().map(|input| format!("`{}`", input.name)).collect();
    let subject = match names.as_slice() {
        [] => return,
        [one] => format!("the input {one}"),
        all => format!("the inputs {}", all.join(", ")),
    };
    let diagnostic = Diagnostic::warning(Code::IgnoredInput, format!("nothing in the model reads {subject}"))
        .note("an export ignores an input that was the same tensor as another one")
        .help("export again with distinct tensors, as `examples/gpt2/export.py` does");
    expander.report.push(match named {
        Some(named) => diagnostic.primary(named.span, "exported without it"),
        None => diagnostic,
    });
}

/// The command line's size, else the schedule's; `Err` where that has an error.
fn given(expander: &mut Expander, name: &str, entry: Option<&Entry>, asked: Option<i64>) -> Result<Given, ()> {
    let written = match entry {
        Some(entry) => {
            let number = expander.number(&entry.value).map_err(drop)?;
            Some((whole(expander, name, number, entry.value.span)?, Some(entry.value.span)))
        }
        None => None,
    };
    Ok(asked.map(|size| (size, None)).or(written))
}

fn whole(expander: &mut Expander, name: &str, number: Number, span: Span) -> Result<i64, ()> {
    let size = number.whole().and_then(|size| i64::try_from(size).ok()).filter(|size| *size >= 1);
    size.ok_or_else(|| {
        let message = format!("`{name}` cannot be {number}");
        let diagnostic = Diagnostic::error(Code::IllegalSize, message)
            .primary(span, number.to_string())
            .help("a size is a whole number of at least 1");
        expander.report.push(diagnostic);
    })
}

/// The size if the model accepts it; `Some(None)` where the model needs none.
fn legal_size(
    expander: &mut Expander,
    name: &str,
    given: Result<Given, ()>,
    all: &LegalSizes,
    legal: Legal,
) -> Option<Option<i64>> {
    let given = given.ok()?;
    let what = noun(name);
    let wrong = |size: i64| match legal {
        Legal::Absent => Some(format!("the model has no input with a {name} dimension")),
        Legal::Static(fixed) if fixed != size => {
            Some(format!("the model was exported with a fixed {what} of {fixed}, not {size}"))
        }
        Legal::Range(range) if !range.contains(size) => Some(format!("the model does not accept a {what} of {size}")),
        Legal::Static(_) | Legal::Range(_) => None,
    };
    match (given, legal) {
        (Some((size, span)), _) => match wrong(size) {
            None => Some(Some(size)),
            Some(message) => {
                let diagnostic = Diagnostic::error(Code::IllegalSize, message);
                let diagnostic = match span {
                    Some(span) => diagnostic.primary(span, "not accepted"),
                    None => diagnostic.note(format!("`--{name} {size}` asks for it")),
                };
                expander.report.push(diagnostic.help(format!("legal here: {legal}")));
                None
            }
        },
        (None, Legal::Static(fixed)) => Some(Some(fixed)),
        (None, Legal::Absent) => Some(None),
        (None, Legal::Range(_)) => {
            missing(expander, name, all);
            None
        }
    }
}

fn noun(name: &str) -> &'static str {
    if name == "batch" { "batch size" } else { "sequence length" }
}

fn missing(expander: &mut Expander, name: &str, legal: &LegalSizes) {
    let message = format!("the {} of a step is not given", noun(name));
    let example = match legal.seq {
        Legal::Range(_) => "input { batch = 8, seq = 64 }",
        _ => "input { batch = 8 }",
    };
    let range = if name == "batch" { legal.batch } else { legal.seq };
    let diagnostic = Diagnostic::error(Code::MissingSize, message)
        .help(format!("write `{example}`, or give `--{name}`; legal {name}: {range}"));
    let hir = expander.hir;
    if hir.entry.is_none() || hir.has_unknown_size || hir.input.is_none() && expander.is_broken {
        return;
    }
    let main = hir.entry.map(|id| hir.schedule(id).name_span);
    expander.report.push(match hir.input.or(main) {
        Some(span) => diagnostic.primary(span, format!("no `{name}`")),
        None => diagnostic,
    });
}
