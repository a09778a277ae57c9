//! What later stages and the importer found, as diagnostics with the schedule's lines.

use super::layouts::{in_words, layout_diagnostic, misfit};
use super::redundant::Redundant;
use super::report::{Report, located};
use super::wrong_axis::{WrongAxis, wrong_axis};
use super::{Checked, Step, mend, misfits};
use crate::compile::{Denial, Fault, Total};
use crate::layout::{Layout, Refusal};
use crate::passes::conversions::Conversion;
use crate::primitives::{Problem, indivisible as indivisible_batch};
use slapo_model::{BindError, ImportError, Model, Node, Site};
use slapo_syntax::{Code, Diagnostic, FileId, Label};

/// The faults of [`crate::compile::compile`]; what one statement does again and again is said once.
pub fn fault_diagnostics(faults: &[Fault], model: &Model, checked: &Checked) -> Vec<Diagnostic> {
    let mut report = Report::default();
    let wrong = wrong_axis(faults, model, checked);
    let mut misfits = Vec::new();
    let mut redundant = Redundant::new(faults.len(), model, checked);
    for fault in faults {
        let diagnostic = || fault_diagnostic(fault, model, checked);
        match (&wrong, fault) {
            // The other axis only lacks what is asked of this one.
            (Some(wrong), Fault::Layout(fault)) if fault.axis == wrong.right => {}
            (Some(wrong), _) => report.push(over_another(diagnostic(), wrong, checked)),
            (None, Fault::Layout(fault)) => match misfit(fault, model, checked) {
                Some(misfit) => misfits.push(misfit),
                None => {
                    let fix = redundant.fix(fault);
                    report.push(fix.into_iter().fold(diagnostic(), Diagnostic::fix));
                }
            },
            (None, _) => report.push(diagnostic()),
        }
    }
    misfits::told(misfits, &checked.mesh).into_iter().for_each(|diagnostic| report.push(diagnostic));
    report.finish(checked.entry.map_or(FileId(0), |span| span.file), &[])
}

/// At the statement that is over the wrong axis.
fn over_another(mut diagnostic: Diagnostic, wrong: &WrongAxis, checked: &Checked) -> Diagnostic {
    let name = |axis: usize| checked.effects.axes.get(axis).map_or("", |axis| axis.name.as_str());
    let known = diagnostic.secondary.iter().position(|label| label.span == wrong.statement);
    let statement = match (&diagnostic.primary, known) {
        (Some(primary), _) if primary.span == wrong.statement => None,
        (_, Some(at)) => Some(diagnostic.secondary.remove(at)),
        _ => Some(Label { span: wrong.statement, text: format!("is over `{}`", name(wrong.axis)) }),
    };
    if let Some(statement) = statement {
        diagnostic.secondary.extend(diagnostic.primary.replace(statement));
    }
    diagnostic.helps = vec![format!("everything fits with `over: {}` here", name(wrong.right))];
    diagnostic.fixes.clear();
    diagnostic.fixes.extend(mend::over(wrong.statement, name(wrong.axis), name(wrong.right), checked));
    diagnostic
}

/// A fault of [`crate::compile::compile`], at the statement that asked for what cannot be done.
pub fn fault_diagnostic(fault: &Fault, model: &Model, checked: &Checked) -> Diagnostic {
    let asked = asked_to_accumulate(checked);
    match fault {
        Fault::Bind(error) => bind_diagnostic(error, checked),
        Fault::Batch { batch, micro_batches } => {
            at_step(indivisible(*batch, i64::from(*micro_batches), 1), asked, "asks for them")
        }
        Fault::NotSeparable { refusal, node } => {
            at_step(not_separable(refusal, node, model), asked, "asks for micro-batches")
        }
        Fault::NotASum { what, layout } => at_step(not_a_sum(*what, *layout, model), asked, "asks for micro-batches"),
        Fault::Derivative(error) => {
            let message = format!(
                "operator `{}`{} has no derivative: {}",
                error.node.name(),
                inside(&error.node, model),
                error.reason
            );
            let help = "freeze the parameters before it, or write the model without this operator";
            let diagnostic = Diagnostic::error(Code::NoDerivative, message).help(help);
            let diagnostic = match checked.entry {
                Some(entry) => diagnostic.primary(entry, "trains parameters before it"),
                None => diagnostic,
            };
            with_source(diagnostic, &error.node, model, "computed here")
        }
        Fault::Layout(fault) => layout_diagnostic(fault, model, checked),
        Fault::Denied { denial, conversion, step } => denied(denial, conversion, *step, checked),
        Fault::NothingToTrain => {
            let last = checked.steps.iter().rev().find(|step| step.primitive.name == "freeze");
            let diagnostic =
                Diagnostic::error(Code::NothingToTrain, "the loss depends on no parameter that is trained");
            at_step(diagnostic, last, "freezes the last one that it depended on")
        }
    }
}

/// Sizes that do not fit the model.
pub fn bind_diagnostic(error: &BindError, checked: &Checked) -> Diagnostic {
    let code = match error {
        BindError::NoSequence { .. } => Code::MissingSize,
        BindError::Undetermined { .. } => Code::UnsupportedModel,
        _ => Code::IllegalSize,
    };
    let diagnostic = Diagnostic::error(code, error.to_string());
    let diagnostic = match checked.input.or(checked.entry) {
        Some(span) => diagnostic.primary(span, "with these sizes"),
        None => diagnostic,
    };
    error.advice().into_iter().fold(diagnostic, Diagnostic::help)
}

/// A model file that cannot be used.
pub fn import_diagnostic(error: &ImportError) -> Diagnostic {
    let code = match error {
        ImportError::Empty | ImportError::NotAnArchive | ImportError::Truncated => Code::NotAnArchive,
        ImportError::Compressed { .. }
        | ImportError::MissingEntry { .. }
        | ImportError::Json { .. }
        | ImportError::ShortWeight { .. }
        | ImportError::Malformed { .. } => Code::DamagedArchive,
        ImportError::Schema { .. } => Code::OtherSchema,
        ImportError::InPlace { .. } => Code::InPlace,
        ImportError::HigherOrder { .. } | ImportError::Foreign { .. } | ImportError::Unsupported { .. } => {
            Code::UnsupportedModel
        }
        ImportError::MissingWeights { .. } => Code::MissingWeights,
        ImportError::DType { .. } => Code::ElementType,
        ImportError::NoLoss { .. } => Code::NoLoss,
    };
    let diagnostic = Diagnostic::error(code, error.to_string());
    let diagnostic = error.advice().into_iter().fold(diagnostic, Diagnostic::help);
    match error.site() {
        Some(Site { source: Some(line), .. }) => {
            diagnostic.excerpt(&line.file, line.line, line.text.trim(), "written here")
        }
        _ => diagnostic,
    }
}

/// A batch that cannot be split evenly.
pub(super) fn indivisible(batch: i64, micro_batches: i64, ranks: i64) -> Diagnostic {
    let Problem { code, message, help, .. } = indivisible_batch(batch, micro_batches, ranks);
    help.into_iter().fold(Diagnostic::error(code, message), Diagnostic::help)
}

fn asked_to_accumulate(checked: &Checked) -> Option<&Step> {
    checked.steps.iter().find(|step| step.primitive.name == "accumulate")
}

fn at_step(diagnostic: Diagnostic, step: Option<&Step>, here: &str) -> Diagnostic {
    match step {
        Some(step) => diagnostic.primary(step.site.span, here),
        None => diagnostic,
    }
}

fn not_separable(refusal: &Refusal, node: &Node, model: &Model) -> Diagnostic {
    let message = format!("operator `{}`{} cannot be computed by micro-batches", node.name(), inside(node, model));
    let (reason, operands) = in_words(&refusal.reason, &refusal.operands);
    let mut diagnostic = Diagnostic::error(Code::NotSeparable, message).note(reason);
    let split: Vec<String> =
        operands.iter().filter_map(|(name, layout)| held(*layout).map(|how| format!("{name} is {how}"))).collect();
    if !split.is_empty() {
        diagnostic = diagnostic.note(split.join(", "));
    }
    if !refusal.legal.is_empty() {
        let legal: Vec<String> = refusal.legal.iter().map(i64::to_string).collect();
        diagnostic = diagnostic.help(format!("numbers of micro-batches that are legal here: {}", legal.join(", ")));
    }
    with_source(diagnostic, node, model, "it mixes the samples of a batch")
}

fn not_a_sum(what: Total, layout: Layout, model: &Model) -> Diagnostic {
    let how = held(layout).unwrap_or("the same in each");
    let summed = |what: &str| {
        Diagnostic::error(Code::NotASum, format!("{what} is not a sum over micro-batches: it is {how}"))
            .help("a loss that is summed or averaged over samples can be accumulated; others only with one micro-batch")
    };
    match what {
        Total::Loss => summed("the loss"),
        Total::Gradient(id) => summed(&format!("the gradient of `{}`", model.parameter(id).names[0])),
        Total::Buffer(id) => {
            let name = &model.buffers[id.0 as usize].name;
            let message =
                format!("what a step writes into the buffer `{name}` is not known by micro-batches: it is {how}");
            Diagnostic::error(Code::NotASum, message)
                .help("train with one micro-batch, or write into the buffer what does not depend on the batch")
        }
    }
}

/// At the statement that asks for the conversion, with the one that limits it.
fn denied(denial: &Denial, conversion: &Conversion, step: u32, checked: &Checked) -> Diagnostic {
    let Conversion { axis, collective, bytes, .. } = conversion;
    let axis = checked.effects.axes.get(*axis).map_or("", |axis| axis.name.as_str());
    let step = checked.step(step);
    let path = step.map_or("", |step| step.target.path.as_str());
    let message = format!(
        "`{collective}` of the value at `{path}` over `{axis}` moves {bytes} bytes, more than the {} allowed",
        denial.bytes
    );
    let diagnostic = Diagnostic::error(Code::Denied, message)
        .help("leave the value in pieces for longer, or allow more")
        .note("one call on one rank; gradients that `data_parallel` reduces are not counted");
    let user = checked.entry.map_or(FileId(0), |span| span.file);
    let diagnostic = match step {
        Some(step) => located(diagnostic.primary(step.site.span, format!("moves {bytes} bytes")), &step.chain, user),
        None => diagnostic,
    };
    match checked.step(denial.step) {
        Some(limit) => diagnostic.secondary(limit.site.span, format!("allows {} bytes", denial.bytes)),
        None => diagnostic,
    }
}

/// How micro-batches hold a value, unless each has all of it.
fn held(layout: Layout) -> Option<&'static str> {
    match layout {
        Layout::Replicated => None,
        Layout::Split { .. } | Layout::Sections { .. } => Some("split over the micro-batches"),
        Layout::Partial => Some("a sum over the micro-batches"),
    }
}

/// `` in `transformer.h.0` ``, or nothing for the model itself.
fn inside(node: &Node, model: &Model) -> String {
    match model.scope_path(node.origin.scope) {
        "" => String::new(),
        path => format!(" in `{path}`"),
    }
}

/// Adds the line of the model's own source.
fn with_source(diagnostic: Diagnostic, node: &Node, model: &Model, label: &str) -> Diagnostic {
    let line = node.origin.source.and_then(|id| model.sources.get(id.0 as usize));
    match line {
        Some(line) => diagnostic.excerpt(&line.file, line.line, line.text.trim(), label),
        None => diagnostic,
    }
}
