//! `slapoc lsp`: what editors are told, over standard input and output.
//!
//! The transport of slapo-ide and nothing more: messages in order, open texts, models, and the protocol's types. One
//! thread reads, this one answers. A text is checked when a question needs it or when nothing waits, so that of many
//! keystrokes only the last is checked. What panics is answered as an error and ends nothing. Read [`Server`] first.

mod answers;
mod capabilities;
mod convert;
mod diagnostics;
mod documents;
mod library;
mod models;
mod places;
mod settings;
#[cfg(test)]
mod tests;
mod wire;

use crate::failure::{Context, Exit, Result};
use capabilities::Client;
use documents::Documents;
use lsp_server::{ErrorCode, Message, Notification, Request, RequestId, Response};
use lsp_types::notification::{
    Cancel, DidChangeConfiguration, DidChangeTextDocument, DidChangeWatchedFiles, DidCloseTextDocument,
    DidOpenTextDocument, DidSaveTextDocument, Exit as ExitNotification, Initialized, LogMessage, Notification as _,
    PublishDiagnostics, ShowMessage,
};
use lsp_types::request::{Initialize, RegisterCapability, Request as _, Shutdown};
use lsp_types::{
    CancelParams, DidChangeConfigurationParams, InitializeParams, LogMessageParams, MessageType, NumberOrString,
    PublishDiagnosticsParams, ShowMessageParams,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use settings::Settings;
use std::collections::VecDeque;
use std::io::{self, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use wire::Incoming;

/// Messages that are read ahead.
const AHEAD: usize = 64;

/// Serves until the client says `exit` or is gone.
pub fn run() -> Result<Exit> {
    let (sender, receiver) = sync_channel(AHEAD);
    thread::spawn(move || {
        let mut input = BufReader::new(io::stdin());
        while let Ok(Some(incoming)) = wire::read(&mut input) {
            if sender.send(incoming).is_err() {
                return;
            }
        }
    });
    let mut server = Server::new(io::stdout());
    server.serve(&receiver).unexpected("write to the editor")?;
    Ok(if server.phase == Phase::ShutDown { Exit::Done } else { Exit::Findings })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Uninitialized,
    Running,
    /// Only `exit` may follow.
    ShutDown,
}

struct Server<W> {
    output: W,
    phase: Phase,
    client: Client,
    documents: Documents,
    /// What is wrong with the settings that came with `initialize`, until the client may be told.
    wrong_settings: Option<String>,
}

/// Why a request has no answer.
struct Refused {
    code: ErrorCode,
    message: String,
}

impl Refused {
    fn new(code: ErrorCode, message: impl Into<String>) -> Refused {
        Refused { code, message: message.into() }
    }
}

impl<W: Write> Server<W> {
    fn new(output: W) -> Server<W> {
        let (client, documents) = (Client::default(), Documents::default());
        Server { output, phase: Phase::Uninitialized, client, documents, wrong_settings: None }
    }

    fn serve(&mut self, input: &Receiver<Incoming>) -> io::Result<()> {
        let mut queue = VecDeque::new();
        loop {
            queue.extend(input.try_iter());
            let next = match queue.pop_front() {
                Some(next) => next,
                None => {
                    self.publish()?;
                    match input.recv() {
                        Ok(next) => next,
                        Err(_) => return Ok(()),
                    }
                }
            };
            match next {
                Incoming::Garbled(answer) => {
                    if let Some(answer) = answer {
                        wire::write_value(&mut self.output, &answer)?;
                    }
                }
                Incoming::Message(Message::Request(request)) => {
                    let answer = match is_cancelled(&request.id, &queue) {
                        true => Err(Refused::new(ErrorCode::RequestCanceled, "cancelled")),
                        false => self.request(&request.method, request.params),
                    };
                    self.send(match answer {
                        Ok(value) => Response::new_ok(request.id, value),
                        Err(Refused { code, message }) => Response::new_err(request.id, code as i32, message),
                    })?;
                }
                Incoming::Message(Message::Notification(told)) if told.method == ExitNotification::METHOD => {
                    return Ok(());
                }
                Incoming::Message(Message::Notification(told)) => self.notification(told)?,
                Incoming::Message(Message::Response(_)) => {}
            }
        }
    }

    fn request(&mut self, method: &str, params: Value) -> std::result::Result<Value, Refused> {
        match (self.phase, method) {
            (Phase::Uninitialized, Initialize::METHOD) => {
                let params: InitializeParams = decoded(params)?;
                self.client = Client::of(&params.capabilities);
                self.documents.root = places::root(&params);
                self.wrong_settings = params.initialization_options.and_then(|sent| self.set(&sent).err());
                self.phase = Phase::Running;
                serde_json::to_value(capabilities::ours(&self.client)).map_err(internal)
            }
            (Phase::Uninitialized, _) => Err(Refused::new(ErrorCode::ServerNotInitialized, "`initialize` comes first")),
            (Phase::ShutDown, _) | (_, Initialize::METHOD) => {
                Err(Refused::new(ErrorCode::InvalidRequest, format!("`{method}` cannot come now")))
            }
            (Phase::Running, Shutdown::METHOD) => {
                self.phase = Phase::ShutDown;
                Ok(Value::Null)
            }
            (Phase::Running, _) => {
                let (documents, client) = (&mut self.documents, &self.client);
                guarded(|| answers::answer(documents, client, method, params))
            }
        }
    }

    fn notification(&mut self, told: Notification) -> io::Result<()> {
        let Notification { method, params } = told;
        let documents = &mut self.documents;
        let read = match method.as_str() {
            _ if self.phase != Phase::Running => Ok(()),
            DidOpenTextDocument::METHOD => decoded(params).map(|params| documents.open(params)),
            DidChangeTextDocument::METHOD => {
                decoded(params).map(|params| documents.change(params, self.client.encoding))
            }
            DidSaveTextDocument::METHOD | DidChangeWatchedFiles::METHOD => {
                documents.recheck();
                Ok(())
            }
            DidCloseTextDocument::METHOD => match decoded::<lsp_types::DidCloseTextDocumentParams>(params) {
                Ok(params) => {
                    let uri = params.text_document.uri;
                    documents.close(&uri);
                    return self.tell::<PublishDiagnostics>(PublishDiagnosticsParams::new(uri, Vec::new(), None));
                }
                Err(refused) => Err(refused),
            },
            DidChangeConfiguration::METHOD => match decoded::<DidChangeConfigurationParams>(params) {
                Ok(params) => match self.set(&params.settings) {
                    Ok(()) => return Ok(()),
                    Err(wrong) => return self.warn(&wrong),
                },
                Err(refused) => Err(refused),
            },
            Initialized::METHOD => {
                if let Some(wrong) = self.wrong_settings.take() {
                    self.warn(&wrong)?;
                }
                return self.watch_files();
            }
            _ => Ok(()),
        };
        match read {
            Ok(()) => Ok(()),
            Err(Refused { message, .. }) => self.log(&format!("`{method}`: {message}")),
        }
    }

    /// Checks what has changed, and says what was found.
    fn publish(&mut self) -> io::Result<()> {
        for uri in self.documents.changed() {
            let checked = catch_unwind(AssertUnwindSafe(|| self.documents.diagnostics(&uri, self.client.encoding)));
            match checked {
                Ok(Some(found)) => self.tell::<PublishDiagnostics>(found)?,
                Ok(None) => {}
                Err(_) => self.log(&format!("slapoc has a bug: it could not check {}", uri.as_str()))?,
            }
        }
        Ok(())
    }

    /// Takes settings, or says what is wrong with them; the earlier ones hold then.
    fn set(&mut self, sent: &Value) -> std::result::Result<(), String> {
        if let Some(settings) = Settings::read(sent)? {
            self.documents.set(settings);
        }
        Ok(())
    }

    /// Tells the user.
    fn warn(&mut self, wrong: &str) -> io::Result<()> {
        let message = format!("settings of slapo: {wrong}");
        self.tell::<ShowMessage>(ShowMessageParams { typ: MessageType::WARNING, message })
    }

    /// Asks to be told when a model is exported anew, or a file that schedules use is written.
    fn watch_files(&mut self) -> io::Result<()> {
        if !self.client.watches_files {
            return Ok(());
        }
        let id = RequestId::from("watch-files".to_owned());
        let request = Request::new(id, RegisterCapability::METHOD.to_owned(), capabilities::files_watched());
        self.send(request)
    }

    fn log(&mut self, message: &str) -> io::Result<()> {
        self.tell::<LogMessage>(LogMessageParams { typ: MessageType::ERROR, message: message.to_owned() })
    }

    fn tell<N: lsp_types::notification::Notification>(&mut self, params: N::Params) -> io::Result<()> {
        self.send(Notification::new(N::METHOD.to_owned(), params))
    }

    fn send(&mut self, message: impl Into<Message>) -> io::Result<()> {
        wire::write(&mut self.output, &message.into())
    }
}

/// An answer, even where finding it panics.
fn guarded(answer: impl FnOnce() -> std::result::Result<Value, Refused>) -> std::result::Result<Value, Refused> {
    catch_unwind(AssertUnwindSafe(answer))
        .unwrap_or_else(|_| Err(Refused::new(ErrorCode::InternalError, "slapoc has a bug: its output says more")))
}

/// Whether a later message takes the request back.
fn is_cancelled(id: &RequestId, later: &VecDeque<Incoming>) -> bool {
    let cancelled = |incoming: &Incoming| match incoming {
        Incoming::Message(Message::Notification(told)) if told.method == Cancel::METHOD => {
            let params = serde_json::from_value::<CancelParams>(told.params.clone());
            params.is_ok_and(|params| match params.id {
                NumberOrString::Number(number) => *id == RequestId::from(number),
                NumberOrString::String(text) => *id == RequestId::from(text),
            })
        }
        _ => false,
    };
    later.iter().any(cancelled)
}

fn decoded<T: DeserializeOwned>(params: Value) -> std::result::Result<T, Refused> {
    serde_json::from_value(params).map_err(|error| Refused::new(ErrorCode::InvalidParams, error.to_string()))
}

fn internal(error: serde_json::Error) -> Refused {
    Refused::new(ErrorCode::InternalError, error.to_string())
}
