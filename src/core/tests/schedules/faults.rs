//! What later stages find, said at the schedule's lines: faults of the compiler, of binding and of importing.

use crate::support::{gpt2, run};
use slapo_core::compile::{Fault, Total};
use slapo_core::layout::Layout;
use slapo_core::passes::autodiff::NoDerivative;
use slapo_core::schedule::{bind_diagnostic, fault_diagnostic, import_diagnostic};
use slapo_model::{BindError, ImportError, ParameterId, Site, SourceLine, sym};
use slapo_syntax::Code;

const SCHEDULE: &str = "model \"gpt2-tiny.pt2\"\ninput { batch = 8, seq = 64 }\n\nschedule main(m: Module) {\n    \
    m.transformer.h.*.freeze()\n    m.accumulate(steps: 2)\n}\n";

#[test]
fn batch_norm_by_micro_batches() {
    let text = "model \"counters.pt2\"\ninput { batch = 8, seq = 6 }\n\nschedule main(m: Module) {\n    m.accumulate(steps: 2)\n}\n";
    insta::assert_snapshot!("batch-norm", run("counters", text).compiled().rendered());
    let text = text.replace("counters.pt2", "misc.pt2");
    insta::assert_snapshot!("running-sum", run("misc", &text).compiled().rendered());
}

/// Faults that no committed archive has, made by hand.
#[test]
fn faults_made_by_hand() {
    let mut run = run("made", SCHEDULE);
    let model = gpt2();
    let bound = slapo_model::bind(&model, &run.checked.sizes.unwrap()).unwrap();
    let node = bound.nodes.iter().find(|node| node.is_aten("layer_norm")).unwrap().clone();
    let range = sym::Range { min: Some(1), max: Some(128) };
    let faults = [
        Fault::Batch { batch: 8, micro_batches: 3 },
        Fault::NotASum { what: Total::Loss, layout: Layout::Replicated },
        Fault::NotASum { what: Total::Gradient(ParameterId(0)), layout: Layout::Split { dim: 0, groups: 1 } },
        Fault::Derivative(NoDerivative { node, reason: "it gives whole numbers" }),
        Fault::NothingToTrain,
        Fault::Bind(BindError::OutOfRange { input: "input_ids".into(), dim: 1, asked: 200, legal: range }),
    ];
    run.diagnostics = faults.iter().map(|fault| fault_diagnostic(fault, &model, &run.checked)).collect();
    let range = BindError::NoSequence { input: "input_ids".into(), legal: range };
    run.diagnostics.push(bind_diagnostic(&range, &run.checked));
    insta::assert_snapshot!("made-by-hand", run.rendered());
}

#[test]
fn import_errors_keep_their_advice_and_their_line() {
    let line = SourceLine { file: "model.py".into(), line: 12, text: "    x = fold(x)".into() };
    let site = Site { module: "blocks.0".into(), source: Some(line) };
    let cases = [
        (ImportError::Empty, Code::NotAnArchive),
        (ImportError::Truncated, Code::NotAnArchive),
        (ImportError::MissingEntry { entry: "models/model.json".into() }, Code::DamagedArchive),
        (ImportError::Malformed { what: "two values have one name".into() }, Code::DamagedArchive),
        (ImportError::Schema { found: (9, 1), wanted: 8 }, Code::OtherSchema),
        (ImportError::InPlace { operator: "aten.add_.Tensor".into(), site: site.clone() }, Code::InPlace),
        (ImportError::Foreign { operator: "mylib.fold".into(), site: site.clone() }, Code::UnsupportedModel),
        (ImportError::HigherOrder { operator: "cond".into(), site }, Code::UnsupportedModel),
        (ImportError::MissingWeights { names: vec!["a.weight".into()] }, Code::MissingWeights),
        (ImportError::DType { tensor: "a.weight".into(), dtype: "complex64".into() }, Code::ElementType),
        (ImportError::NoLoss { outputs: vec!["logits".into()] }, Code::NoLoss),
    ];
    for (error, code) in cases {
        let diagnostic = import_diagnostic(&error);
        assert_eq!(diagnostic.code, code, "{error}");
        assert_eq!(diagnostic.message, error.to_string());
        assert_eq!(diagnostic.helps, Vec::from_iter(error.advice()));
        assert_eq!(diagnostic.excerpt.len(), usize::from(error.site().is_some()), "{error}");
    }
}
