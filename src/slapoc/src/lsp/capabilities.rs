//! What the client can do, what this server can do, and what it asks of the client.

use super::convert;
use super::places::Encoding;
use lsp_types::{
    ClientCapabilities, CodeActionKind, CodeActionOptions, CodeActionProviderCapability, CompletionOptions,
    DidChangeWatchedFilesRegistrationOptions, FileSystemWatcher, FoldingRangeProviderCapability, GlobPattern,
    HoverProviderCapability, InitializeResult, OneOf, Registration, RegistrationParams, RenameOptions, SaveOptions,
    SelectionRangeProviderCapability, SemanticTokensFullOptions, SemanticTokensOptions, ServerCapabilities, ServerInfo,
    SignatureHelpOptions, TextDocumentSyncCapability, TextDocumentSyncKind, TextDocumentSyncOptions,
    TextDocumentSyncSaveOptions,
};

/// What matters of what a client can do.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    pub encoding: Encoding,
    /// Whether completions may say where the cursor goes.
    pub has_snippets: bool,
    /// Whether it can be asked to watch files.
    pub watches_files: bool,
}

impl Default for Client {
    fn default() -> Client {
        Client { encoding: Encoding::Utf16, has_snippets: false, watches_files: false }
    }
}

impl Client {
    pub fn of(client: &ClientCapabilities) -> Client {
        let item = client.text_document.as_ref().and_then(|text| text.completion.as_ref()?.completion_item.as_ref());
        let watched = client.workspace.as_ref().and_then(|workspace| workspace.did_change_watched_files);
        Client {
            encoding: Encoding::negotiated(client),
            has_snippets: item.and_then(|item| item.snippet_support) == Some(true),
            watches_files: watched.and_then(|watched| watched.dynamic_registration) == Some(true),
        }
    }
}

pub fn ours(client: &Client) -> InitializeResult {
    let on = |characters: &[&str]| Some(characters.iter().map(|one| (*one).to_owned()).collect());
    InitializeResult {
        capabilities: ServerCapabilities {
            position_encoding: Some(client.encoding.kind()),
            text_document_sync: Some(TextDocumentSyncCapability::Options(TextDocumentSyncOptions {
                open_close: Some(true),
                change: Some(TextDocumentSyncKind::INCREMENTAL),
                save: Some(TextDocumentSyncSaveOptions::SaveOptions(SaveOptions { include_text: Some(false) })),
                ..TextDocumentSyncOptions::default()
            })),
            completion_provider: Some(CompletionOptions {
                trigger_characters: on(&[".", "{", ":", "\""]),
                ..CompletionOptions::default()
            }),
            hover_provider: Some(HoverProviderCapability::Simple(true)),
            signature_help_provider: Some(SignatureHelpOptions {
                trigger_characters: on(&["(", ","]),
                ..SignatureHelpOptions::default()
            }),
            definition_provider: Some(OneOf::Left(true)),
            references_provider: Some(OneOf::Left(true)),
            document_highlight_provider: Some(OneOf::Left(true)),
            rename_provider: Some(OneOf::Right(RenameOptions {
                prepare_provider: Some(true),
                work_done_progress_options: Default::default(),
            })),
            document_symbol_provider: Some(OneOf::Left(true)),
            folding_range_provider: Some(FoldingRangeProviderCapability::Simple(true)),
            selection_range_provider: Some(SelectionRangeProviderCapability::Simple(true)),
            semantic_tokens_provider: Some(
                SemanticTokensOptions {
                    legend: convert::legend(),
                    full: Some(SemanticTokensFullOptions::Bool(true)),
                    ..SemanticTokensOptions::default()
                }
                .into(),
            ),
            inlay_hint_provider: Some(OneOf::Left(true)),
            code_action_provider: Some(CodeActionProviderCapability::Options(CodeActionOptions {
                code_action_kinds: Some(vec![CodeActionKind::QUICKFIX]),
                ..CodeActionOptions::default()
            })),
            document_formatting_provider: Some(OneOf::Left(true)),
            ..ServerCapabilities::default()
        },
        server_info: Some(ServerInfo {
            name: "slapoc".to_owned(),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        }),
    }
}

/// A request to be told of every change of a model's file, or of a schedule's.
pub fn files_watched() -> RegistrationParams {
    let watched = |glob: &str| FileSystemWatcher { glob_pattern: GlobPattern::String(glob.to_owned()), kind: None };
    let watchers = vec![watched("**/*.pt2"), watched("**/*.slapo")];
    let options = DidChangeWatchedFilesRegistrationOptions { watchers };
    RegistrationParams {
        registrations: vec![Registration {
            id: "files".to_owned(),
            method: "workspace/didChangeWatchedFiles".to_owned(),
            register_options: serde_json::to_value(options).ok(),
        }],
    }
}
