//! The texts that are open in the editor, and their snapshots.

use super::diagnostics::diagnostic;
use super::library;
use super::models::Models;
use super::places::{self, Encoding};
use super::settings::Settings;
use crate::load;
use lsp_types::{
    DidChangeTextDocumentParams, DidOpenTextDocumentParams, PublishDiagnosticsParams, TextDocumentContentChangeEvent,
    Uri,
};
use slapo_core::schedule::ModelPath;
use slapo_ide::{Beside, Found, Snapshot};
use slapo_model::Model;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Default)]
pub struct Documents {
    open: BTreeMap<Uri, Document>,
    models: Models,
    settings: Settings,
    /// The folder that is open.
    pub root: Option<PathBuf>,
}

struct Document {
    /// Where it is kept, or what stands for that.
    path: PathBuf,
    text: String,
    version: i32,
    state: State,
    /// The model of the last snapshot: its answers hold while the `model` line is being edited.
    model: Option<Arc<Model>>,
    /// Whether the editor knows what is wrong with it.
    is_published: bool,
}

enum State {
    Changed,
    Checked(Box<Snapshot>),
    /// Checking it panics.
    Uncheckable,
}

impl Documents {
    pub fn open(&mut self, params: DidOpenTextDocumentParams) {
        let document = params.text_document;
        let path = places::path(&document.uri).unwrap_or_else(|| PathBuf::from(document.uri.as_str()));
        let (text, version) = (document.text, document.version);
        let opened = Document { path, text, version, state: State::Changed, model: None, is_published: false };
        self.open.insert(document.uri, opened);
    }

    pub fn change(&mut self, params: DidChangeTextDocumentParams, encoding: Encoding) {
        let Some(document) = self.open.get_mut(&params.text_document.uri) else { return };
        for change in params.content_changes {
            edit(&mut document.text, change, encoding);
        }
        document.version = params.text_document.version;
        document.renew();
    }

    pub fn close(&mut self, uri: &Uri) {
        self.open.remove(uri);
    }

    /// Has everything checked again, as when a model may have changed.
    pub fn recheck(&mut self) {
        self.open.values_mut().for_each(Document::renew);
    }

    /// Has everything checked again, as the settings say.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
        self.recheck();
    }

    /// Those of which the editor does not know what is wrong.
    pub fn changed(&self) -> Vec<Uri> {
        self.open.iter().filter(|(_, document)| !document.is_published).map(|(uri, _)| uri.clone()).collect()
    }

    /// What is wrong with a text, for the editor to show.
    pub fn diagnostics(&mut self, uri: &Uri, encoding: Encoding) -> Option<PublishDiagnosticsParams> {
        let document = self.open.get_mut(uri)?;
        document.is_published = true;
        let (version, is_library) = (document.version, library::holds(&document.path));
        let snapshot = self.checked(uri)?;
        snapshot.check_layouts();
        let snapshot = &*snapshot;
        // A module of the library is no schedule of its own.
        let found = match is_library {
            true => Vec::new(),
            false => snapshot.diagnostics.iter().map(|one| diagnostic(snapshot, uri, one, encoding)).collect(),
        };
        Some(PublishDiagnosticsParams::new(uri.clone(), found, Some(version)))
    }

    /// The text as it is now, checked; layouts may not be.
    pub fn snapshot(&mut self, uri: &Uri) -> Option<&Snapshot> {
        self.checked(uri).map(|snapshot| &*snapshot)
    }

    /// The text as it is now, layouts and all.
    pub fn compiled(&mut self, uri: &Uri) -> Option<&Snapshot> {
        let snapshot = self.checked(uri)?;
        snapshot.check_layouts();
        Some(snapshot)
    }

    fn checked(&mut self, uri: &Uri) -> Option<&mut Snapshot> {
        let document = self.open.get_mut(uri)?;
        if matches!(document.state, State::Changed) {
            document.state = State::Uncheckable;
            document.check(&mut self.models, &self.settings, self.root.as_deref());
        }
        match &mut document.state {
            State::Checked(snapshot) => Some(snapshot),
            State::Changed | State::Uncheckable => None,
        }
    }
}

impl Document {
    fn renew(&mut self) {
        (self.state, self.is_published) = (State::Changed, false);
    }

    /// Knobs and a model of the settings go before the schedule's own.
    fn check(&mut self, models: &mut Models, settings: &Settings, root: Option<&Path>) {
        let name = self.path.display().to_string();
        let models = RefCell::new(models);
        let model = |named: Option<&ModelPath>| match (&settings.model, named) {
            (Some(model), _) => {
                models.borrow_mut().find(&root.unwrap_or(Path::new("")).join(model), &model.display().to_string(), None)
            }
            (None, Some(model)) => {
                models.borrow_mut().find(&load::model_path(&self.path, &model.path), &model.path, Some(model.span))
            }
            (None, None) => Found { last: self.model.clone(), ..Found::default() },
        };
        let mut snapshot = Snapshot::new(
            &name,
            &self.text,
            model,
            |parse| {
                let archive = |name: &str| models.borrow_mut().replacement(&self.path, name);
                load::modules(&self.path, parse).with_archives(parse, std::iter::empty(), archive)
            },
            |parse| settings.overrides(parse),
            |found| settings.levels.applied(found),
        );
        let (modules, archives) = (load::modules_beside(&self.path), load::archives_beside(&self.path));
        snapshot.beside = Beside { modules, archives };
        self.model = snapshot.model.clone().or(self.model.take());
        self.state = State::Checked(Box::new(snapshot));
    }
}

fn edit(text: &mut String, change: TextDocumentContentChangeEvent, encoding: Encoding) {
    match change.range {
        Some(range) => {
            let start = encoding.offset(text, range.start);
            let end = encoding.offset(text, range.end).max(start);
            text.replace_range(start..end, &change.text);
        }
        None => *text = change.text,
    }
}
