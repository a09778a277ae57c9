//! Requests about open texts: parameters in, the answer of slapo-ide in the protocol's types out.

use super::capabilities::Client;
use super::documents::Documents;
use super::places::{self, Encoding};
use super::{Refused, convert, decoded, internal};
use lsp_server::ErrorCode;
use lsp_types::request::{
    CodeActionRequest, Completion, DocumentHighlightRequest, DocumentSymbolRequest, FoldingRangeRequest, Formatting,
    GotoDefinition, HoverRequest, InlayHintRequest, PrepareRenameRequest, References, Rename, Request,
    SelectionRangeRequest, SemanticTokensFullRequest, SignatureHelpRequest,
};
use lsp_types::{
    CompletionResponse, DocumentHighlight, DocumentSymbolResponse, FoldingRange, FoldingRangeKind,
    GotoDefinitionResponse, Hover, HoverContents, Location, PrepareRenameResponse, Range, SemanticTokens,
    SemanticTokensResult, TextDocumentPositionParams, Uri, WorkspaceEdit,
};
use serde_json::Value;
use slapo_ide::{Definition, Snapshot};
use slapo_syntax::Span;
use std::collections::HashMap;

type Answer = Result<Value, Refused>;

/// Answers a request; of a text that is not open, nothing is known.
pub fn answer(documents: &mut Documents, client: &Client, method: &str, params: Value) -> Answer {
    let Client { encoding, has_snippets, .. } = *client;
    let mut open = Open { documents, encoding };
    match method {
        Completion::METHOD => given::<Completion>(params, |params| {
            let (snapshot, offset) = open.at(&params.text_document_position)?;
            let found = slapo_ide::completions(snapshot, offset).into_iter().enumerate();
            let items =
                found.map(|(rank, one)| convert::completion(snapshot, rank, one, encoding, has_snippets)).collect();
            Some(CompletionResponse::Array(items))
        }),
        HoverRequest::METHOD => given::<HoverRequest>(params, |params| {
            let (snapshot, offset) = open.compiled_at(&params.text_document_position_params)?;
            let found = slapo_ide::hover(snapshot, offset)?;
            let range = Some(encoding.range(&snapshot.files, found.span));
            Some(Hover { contents: HoverContents::Markup(convert::markdown(found.text)), range })
        }),
        SignatureHelpRequest::METHOD => given::<SignatureHelpRequest>(params, |params| {
            let (snapshot, offset) = open.at(&params.text_document_position_params)?;
            slapo_ide::signature_help(snapshot, offset).map(convert::signature_help)
        }),
        GotoDefinition::METHOD => given::<GotoDefinition>(params, |params| {
            let place = params.text_document_position_params;
            let packages = places::packages(open.documents.root.as_deref());
            let (snapshot, offset) = open.at(&place)?;
            let found = match slapo_ide::definition(snapshot, offset)? {
                Definition::Schedule(span) => convert::location(snapshot, &place.text_document.uri, span, encoding)?,
                Definition::Model(line) => convert::source_line(&line, &packages)?,
            };
            Some(GotoDefinitionResponse::Scalar(found))
        }),
        References::METHOD => given::<References>(params, |params| {
            let place = params.text_document_position;
            let (snapshot, offset) = open.at(&place)?;
            let declared = slapo_ide::definition(snapshot, offset);
            let found = slapo_ide::references(snapshot, offset).into_iter();
            let is_declared = |span: &Span| declared.as_ref() == Some(&Definition::Schedule(*span));
            let wanted = found.filter(|span| params.context.include_declaration || !is_declared(span));
            let location =
                |span| Location { uri: place.text_document.uri.clone(), range: encoding.range(&snapshot.files, span) };
            Some(wanted.map(location).collect())
        }),
        DocumentHighlightRequest::METHOD => given::<DocumentHighlightRequest>(params, |params| {
            let (snapshot, offset) = open.at(&params.text_document_position_params)?;
            let found = slapo_ide::references(snapshot, offset).into_iter();
            let highlight = |span| DocumentHighlight { range: encoding.range(&snapshot.files, span), kind: None };
            Some(found.map(highlight).collect())
        }),
        PrepareRenameRequest::METHOD => given::<PrepareRenameRequest>(params, |params| {
            let (snapshot, offset) = open.at(&params)?;
            let span = slapo_ide::renamable(snapshot, offset)?;
            Some(PrepareRenameResponse::Range(encoding.range(&snapshot.files, span)))
        }),
        Rename::METHOD => {
            let params: lsp_types::RenameParams = decoded(params)?;
            let place = params.text_document_position;
            let Some((snapshot, offset)) = open.at(&place) else { return Ok(Value::Null) };
            let edits = slapo_ide::rename(snapshot, offset, &params.new_name);
            let edits = edits.map_err(|reason| Refused::new(ErrorCode::RequestFailed, reason))?;
            let edits = edits.iter().map(|edit| convert::edit(snapshot, edit, encoding)).collect();
            serde_json::to_value(changes(place.text_document.uri, edits)).map_err(internal)
        }
        DocumentSymbolRequest::METHOD => given::<DocumentSymbolRequest>(params, |params| {
            let snapshot = open.snapshot(&params.text_document.uri)?;
            let found = slapo_ide::symbols(snapshot).into_iter();
            Some(DocumentSymbolResponse::Nested(found.map(|one| convert::symbol(snapshot, one, encoding)).collect()))
        }),
        FoldingRangeRequest::METHOD => given::<FoldingRangeRequest>(params, |params| {
            let snapshot = open.snapshot(&params.text_document.uri)?;
            let fold = |found: slapo_ide::Fold| {
                let Range { start, end } = encoding.range(&snapshot.files, found.span);
                let kind = found.is_comment.then_some(FoldingRangeKind::Comment);
                FoldingRange { start_line: start.line, end_line: end.line, kind, ..FoldingRange::default() }
            };
            Some(slapo_ide::folds(snapshot).into_iter().map(fold).collect())
        }),
        SelectionRangeRequest::METHOD => given::<SelectionRangeRequest>(params, |params| {
            let snapshot = open.snapshot(&params.text_document.uri)?;
            let one = |position| {
                let offset = encoding.offset(snapshot.text(), position) as u32;
                convert::selection(snapshot, &slapo_ide::around(snapshot, offset), position, encoding)
            };
            Some(params.positions.into_iter().map(one).collect())
        }),
        SemanticTokensFullRequest::METHOD => given::<SemanticTokensFullRequest>(params, |params| {
            let snapshot = open.snapshot(&params.text_document.uri)?;
            let data = convert::tokens(snapshot, &slapo_ide::tokens(snapshot), encoding);
            Some(SemanticTokensResult::Tokens(SemanticTokens { result_id: None, data }))
        }),
        InlayHintRequest::METHOD => given::<InlayHintRequest>(params, |params| {
            let (snapshot, span) = open.span(&params.text_document.uri, params.range)?;
            let found = slapo_ide::hints(snapshot).into_iter();
            let seen = found.filter(|hint| span.start <= hint.offset && hint.offset <= span.end);
            Some(seen.map(|hint| convert::hint(snapshot, hint, encoding)).collect())
        }),
        CodeActionRequest::METHOD => given::<CodeActionRequest>(params, |params| {
            let uri = params.text_document.uri;
            let (snapshot, span) = open.span(&uri, params.range)?;
            let found = slapo_ide::actions(snapshot, span).into_iter();
            Some(found.map(|action| convert::action(snapshot, &uri, action, encoding).into()).collect())
        }),
        Formatting::METHOD => given::<Formatting>(params, |params| {
            let snapshot = open.snapshot(&params.text_document.uri)?;
            Some(convert::edits(snapshot, &snapshot.formatted()?, encoding))
        }),
        _ => Err(Refused::new(ErrorCode::MethodNotFound, format!("there is no `{method}` here"))),
    }
}

fn given<R: Request>(params: Value, answer: impl FnOnce(R::Params) -> R::Result) -> Answer {
    serde_json::to_value(answer(decoded(params)?)).map_err(internal)
}

pub fn changes(uri: Uri, edits: Vec<lsp_types::TextEdit>) -> WorkspaceEdit {
    WorkspaceEdit { changes: Some(HashMap::from([(uri, edits)])), ..WorkspaceEdit::default() }
}

/// The open texts, asked by the protocol's places.
struct Open<'d> {
    documents: &'d mut Documents,
    encoding: Encoding,
}

impl Open<'_> {
    fn snapshot(&mut self, uri: &Uri) -> Option<&Snapshot> {
        self.documents.snapshot(uri)
    }

    fn at(&mut self, place: &TextDocumentPositionParams) -> Option<(&Snapshot, u32)> {
        let encoding = self.encoding;
        let snapshot = self.snapshot(&place.text_document.uri)?;
        Some((snapshot, encoding.offset(snapshot.text(), place.position) as u32))
    }

    /// With layouts checked, which takes longer.
    fn compiled_at(&mut self, place: &TextDocumentPositionParams) -> Option<(&Snapshot, u32)> {
        let encoding = self.encoding;
        let snapshot = self.documents.compiled(&place.text_document.uri)?;
        Some((snapshot, encoding.offset(snapshot.text(), place.position) as u32))
    }

    fn span(&mut self, uri: &Uri, range: Range) -> Option<(&Snapshot, Span)> {
        let encoding = self.encoding;
        let snapshot = self.snapshot(uri)?;
        let offset = |position| encoding.offset(snapshot.text(), position) as u32;
        let (start, end) = (offset(range.start), offset(range.end));
        Some((snapshot, Span::new(snapshot.file, start, end.max(start))))
    }
}
