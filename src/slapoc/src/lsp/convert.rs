//! The answers of slapo-ide in the protocol's types; diagnostics have a file of their own.

use super::answers::changes;
use super::diagnostics::diagnostic;
use super::library;
use super::places::{self, Encoding};
use lsp_types::{
    CodeAction, CodeActionKind, CompletionItem, CompletionItemKind, CompletionTextEdit, DocumentSymbol, Documentation,
    InlayHint, InlayHintLabel, InsertTextFormat, Location, MarkupContent, MarkupKind, ParameterInformation,
    ParameterLabel, Position, Range, SelectionRange, SemanticToken, SemanticTokenModifier, SemanticTokenType,
    SemanticTokensLegend, SignatureHelp, SignatureInformation, SymbolKind, TextEdit, Uri,
};
use similar::{ChangeTag, TextDiff};
use slapo_ide::{Action, Completion, CompletionKind, Hint, Snapshot, Symbol, Token, TokenKind};
use slapo_model::SourceLine;
use slapo_syntax::{Edit, Span};
use std::path::{Path, PathBuf};

pub fn markdown(value: String) -> MarkupContent {
    MarkupContent { kind: MarkupKind::Markdown, value }
}

fn documentation(text: String) -> Option<Documentation> {
    (!text.is_empty()).then(|| Documentation::MarkupContent(markdown(text)))
}

/// A place in the schedule, or in a file that it uses; `None` where there is no such file.
pub fn location(snapshot: &Snapshot, uri: &Uri, span: Span, encoding: Encoding) -> Option<Location> {
    let uri = match span.file == snapshot.file {
        true => uri.clone(),
        false => {
            let name = snapshot.files.name(span.file);
            let beside = || Path::new(name).is_absolute().then(|| places::uri(Path::new(name))).flatten();
            library::uri(name).or_else(beside)?
        }
    };
    Some(Location { uri, range: encoding.range(&snapshot.files, span) })
}

/// A line of the model's source, where its file is on this machine: archives name it from the folder of its package on.
pub fn source_line(line: &SourceLine, folders: &[PathBuf]) -> Option<Location> {
    let path = folders.iter().find_map(|folder| folder.join(&line.file).canonicalize().ok())?;
    let uri = places::uri(&path)?;
    let at = Position { line: line.line.saturating_sub(1), character: 0 };
    Some(Location { uri, range: Range { start: at, end: at } })
}

/// `rank` keeps the order; without `has_snippets` what comes behind the cursor's place is left to be typed.
pub fn completion(
    snapshot: &Snapshot,
    rank: usize,
    found: Completion,
    encoding: Encoding,
    has_snippets: bool,
) -> CompletionItem {
    let new_text = match found.insert.split_once("$0") {
        Some((before, _)) if !has_snippets => before.to_owned(),
        _ => found.insert,
    };
    let is_snippet = new_text.contains("$0");
    let also: Vec<TextEdit> = found.also.iter().map(|one| self::edit(snapshot, one, encoding)).collect();
    let edit = TextEdit { range: encoding.range(&snapshot.files, found.replaced), new_text };
    CompletionItem {
        // Neovim takes what has an edit and no such text to fit whatever was typed.
        filter_text: Some(found.label.clone()),
        label: found.label,
        kind: Some(match found.kind {
            CompletionKind::Module => CompletionItemKind::MODULE,
            CompletionKind::Tensor => CompletionItemKind::FIELD,
            CompletionKind::Method => CompletionItemKind::METHOD,
            CompletionKind::Function => CompletionItemKind::FUNCTION,
            CompletionKind::Label => CompletionItemKind::PROPERTY,
            CompletionKind::Value => CompletionItemKind::VARIABLE,
            CompletionKind::Axis => CompletionItemKind::CONSTANT,
            CompletionKind::Word => CompletionItemKind::ENUM_MEMBER,
            CompletionKind::Type => CompletionItemKind::CLASS,
            CompletionKind::Keyword => CompletionItemKind::KEYWORD,
            CompletionKind::Library => CompletionItemKind::FILE,
        }),
        detail: (!found.detail.is_empty()).then_some(found.detail),
        documentation: documentation(found.docs),
        sort_text: Some(format!("{rank:05}")),
        insert_text_format: Some(if is_snippet { InsertTextFormat::SNIPPET } else { InsertTextFormat::PLAIN_TEXT }),
        text_edit: Some(CompletionTextEdit::Edit(edit)),
        additional_text_edits: (!also.is_empty()).then_some(also),
        ..CompletionItem::default()
    }
}

pub fn signature_help(found: slapo_ide::SignatureHelp) -> SignatureHelp {
    let active_parameter = found.active.map(|at| at as u32);
    let parameters = found.signature.params.into_iter().map(|param| ParameterInformation {
        label: ParameterLabel::Simple(param.label),
        documentation: documentation(param.docs),
    });
    let signature = SignatureInformation {
        label: found.signature.label,
        documentation: documentation(found.signature.docs),
        parameters: Some(parameters.collect()),
        active_parameter,
    };
    SignatureHelp { signatures: vec![signature], active_signature: Some(0), active_parameter }
}

#[expect(deprecated, reason = "the field `deprecated` must be given")]
pub fn symbol(snapshot: &Snapshot, found: Symbol, encoding: Encoding) -> DocumentSymbol {
    let children: Vec<DocumentSymbol> =
        found.children.into_iter().map(|child| symbol(snapshot, child, encoding)).collect();
    DocumentSymbol {
        name: found.name,
        detail: (!found.detail.is_empty()).then_some(found.detail),
        kind: match found.kind {
            slapo_ide::SymbolKind::Model => SymbolKind::FILE,
            slapo_ide::SymbolKind::Input | slapo_ide::SymbolKind::Mesh => SymbolKind::NAMESPACE,
            slapo_ide::SymbolKind::Axis | slapo_ide::SymbolKind::Knob => SymbolKind::CONSTANT,
            slapo_ide::SymbolKind::Value => SymbolKind::VARIABLE,
            slapo_ide::SymbolKind::Type => SymbolKind::STRUCT,
            slapo_ide::SymbolKind::Pattern | slapo_ide::SymbolKind::Schedule => SymbolKind::FUNCTION,
        },
        tags: None,
        deprecated: None,
        range: encoding.range(&snapshot.files, found.span),
        selection_range: encoding.range(&snapshot.files, found.name_span),
        children: (!children.is_empty()).then_some(children),
    }
}

/// What a selection at `position` grows to; `around` is innermost first.
pub fn selection(snapshot: &Snapshot, around: &[Span], position: Position, encoding: Encoding) -> SelectionRange {
    let outer = around.iter().rev().fold(None, |parent, span| {
        let range = encoding.range(&snapshot.files, *span);
        Some(SelectionRange { range, parent: parent.map(Box::new) })
    });
    outer.unwrap_or(SelectionRange { range: Range { start: position, end: position }, parent: None })
}

/// What the numbers of [`tokens`] stand for.
pub fn legend() -> SemanticTokensLegend {
    let name = |kind: &TokenKind| match kind {
        TokenKind::Keyword => SemanticTokenType::KEYWORD,
        TokenKind::Comment => SemanticTokenType::COMMENT,
        TokenKind::String => SemanticTokenType::STRING,
        TokenKind::Number => SemanticTokenType::NUMBER,
        TokenKind::Library => SemanticTokenType::NAMESPACE,
        TokenKind::Schedule => SemanticTokenType::FUNCTION,
        TokenKind::Method => SemanticTokenType::METHOD,
        TokenKind::Path => SemanticTokenType::PROPERTY,
        TokenKind::Parameter => SemanticTokenType::PARAMETER,
        TokenKind::Variable => SemanticTokenType::VARIABLE,
        TokenKind::Axis => SemanticTokenType::TYPE_PARAMETER,
        TokenKind::Type => SemanticTokenType::TYPE,
        TokenKind::Word => SemanticTokenType::ENUM_MEMBER,
    };
    SemanticTokensLegend {
        token_types: TokenKind::ALL.iter().map(name).collect(),
        token_modifiers: vec![SemanticTokenModifier::DECLARATION],
    }
}

/// Every token relative to the one before.
pub fn tokens(snapshot: &Snapshot, found: &[Token], encoding: Encoding) -> Vec<SemanticToken> {
    let mut before = Position::default();
    let encode = |token: &Token| {
        let at = encoding.position(&snapshot.files, snapshot.file, token.span.start);
        let same_line = at.line == before.line;
        let encoded = SemanticToken {
            delta_line: at.line - before.line,
            delta_start: if same_line { at.character - before.character } else { at.character },
            length: encoding.columns(snapshot.files.slice(token.span)),
            token_type: TokenKind::ALL.iter().position(|kind| *kind == token.kind).unwrap_or(0) as u32,
            token_modifiers_bitset: u32::from(token.is_declaration),
        };
        before = at;
        encoded
    };
    found.iter().map(encode).collect()
}

pub fn hint(snapshot: &Snapshot, found: Hint, encoding: Encoding) -> InlayHint {
    InlayHint {
        position: encoding.position(&snapshot.files, snapshot.file, found.offset),
        label: InlayHintLabel::String(found.text),
        kind: None,
        text_edits: None,
        tooltip: None,
        padding_left: Some(true),
        padding_right: None,
        data: None,
    }
}

pub fn action(snapshot: &Snapshot, uri: &Uri, found: Action, encoding: Encoding) -> CodeAction {
    let settled = snapshot.diagnostics.get(found.diagnostic);
    let edits = found.edits.iter().map(|one| edit(snapshot, one, encoding)).collect();
    CodeAction {
        title: found.title,
        kind: Some(CodeActionKind::QUICKFIX),
        diagnostics: settled.map(|settled| vec![diagnostic(snapshot, uri, settled, encoding)]),
        edit: Some(changes(uri.clone(), edits)),
        is_preferred: Some(found.is_safe),
        ..CodeAction::default()
    }
}

pub fn edit(snapshot: &Snapshot, found: &Edit, encoding: Encoding) -> TextEdit {
    TextEdit { range: encoding.range(&snapshot.files, found.span), new_text: found.replacement.clone() }
}

/// The edits that lead from the schedule's text to another, line by line, so that the rest keeps its place.
pub fn edits(snapshot: &Snapshot, new: &str, encoding: Encoding) -> Vec<TextEdit> {
    let (mut edits, mut at) = (Vec::new(), 0);
    let mut open: Option<(u32, String)> = None;
    let mut close = |open: &mut Option<(u32, String)>, end: u32| {
        if let Some((start, new_text)) = open.take() {
            let range = encoding.range(&snapshot.files, Span::new(snapshot.file, start, end));
            edits.push(TextEdit { range, new_text });
        }
    };
    for change in TextDiff::from_lines(snapshot.text(), new).iter_all_changes() {
        let length = change.value().len() as u32;
        match change.tag() {
            ChangeTag::Equal => {
                close(&mut open, at);
                at += length;
            }
            ChangeTag::Delete => {
                open.get_or_insert((at, String::new()));
                at += length;
            }
            ChangeTag::Insert => open.get_or_insert((at, String::new())).1 += change.value(),
        }
    }
    close(&mut open, at);
    edits
}
