//! Requests about open texts: parameters in, the answer of slapo-ide in the protocol's types out.

use super::documents::Documents;
use super::places::Encoding;
use super::{Refused, convert, decoded, internal};
use lsp_server::ErrorCode;
use lsp_types::request::{Formatting, Request};
use serde_json::Value;

type Answer = Result<Value, Refused>;

/// Answers a request; of a text that is not open, nothing is known.
pub fn answer(documents: &mut Documents, encoding: Encoding, method: &str, params: Value) -> Answer {
    match method {
        Formatting::METHOD => given::<Formatting>(params, |params| {
            let snapshot = documents.snapshot(&params.text_document.uri)?;
            Some(convert::edits(snapshot, &snapshot.formatted()?, encoding))
        }),
        _ => Err(Refused::new(ErrorCode::MethodNotFound, format!("there is no `{method}` here"))),
    }
}

fn given<R: Request>(params: Value, answer: impl FnOnce(R::Params) -> R::Result) -> Answer {
    serde_json::to_value(answer(decoded(params)?)).map_err(internal)
}
