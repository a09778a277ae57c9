//! A tree with its names and the model: what most answers are made from.

use crate::Snapshot;
use crate::scope::{By, Declaration, Scope, Space, library};
use crate::select::{Known, Paths, Selected};
use crate::signatures::Signature;
use slapo_core::primitives;
use slapo_core::schedule::{Checked, Function, Query};
use slapo_model::Model;
use slapo_syntax::ast::{self, Expr};
use slapo_syntax::{FileId, Parse, SyntaxKind, SyntaxToken, parse};

pub struct View<'a> {
    pub parse: &'a Parse,
    pub scope: Scope<'a>,
    pub model: Option<&'a Model>,
    pub checked: &'a Checked,
    known: Known,
}

impl<'a> View<'a> {
    pub fn of(snapshot: &'a Snapshot) -> View<'a> {
        View::on(&snapshot.parse, snapshot)
    }

    /// The view of a text that differs a little from the snapshot's.
    pub fn on(parse: &'a Parse, snapshot: &'a Snapshot) -> View<'a> {
        let (model, checked) = (snapshot.model.as_deref(), &snapshot.checked);
        View { parse, scope: Scope::new(parse), model, checked, known: Known::default() }
    }

    /// What an expression leads to on the model.
    pub fn select<'v>(&'v self, expr: Expr<'v>) -> Option<Selected> {
        Paths { model: self.model?, scope: &self.scope, known: &self.known }.select(expr)
    }

    /// The word at an offset, or the one that ends there.
    pub fn word(&self, offset: u32) -> Option<SyntaxToken<'a>> {
        let is_word = |token: &SyntaxToken| token.kind() == SyntaxKind::Word || token.kind().is_keyword();
        let tree = &self.parse.tree;
        let before = || tree.token_at(offset.checked_sub(1)?).filter(|token| token.end() == offset);
        let here = tree.token_at(offset).filter(|token| token.span().contains(offset) && is_word(token));
        here.or_else(|| before().filter(is_word))
    }

    /// What stands before a parenthesis.
    pub fn signature(&self, name: SyntaxToken<'_>) -> Option<Signature> {
        self.signature_of(name, name.parent().kind() == SyntaxKind::MethodCall)
    }

    /// A primitive or query behind a dot, else a schedule or a function.
    pub fn signature_of(&self, name: SyntaxToken<'_>, is_method: bool) -> Option<Signature> {
        let text = name.text();
        if is_method {
            let primitive = primitives::find(text).map(Signature::of_primitive);
            return primitive.or_else(|| Query::find(text).map(Signature::of_query));
        }
        match self.scope.find(Space::Callable, text, name.start()) {
            Some(declaration) => self.declared(declaration),
            None => Function::find(text).map(Signature::of_function).or_else(|| Signature::of_word(text)),
        }
    }

    /// The signature of a schedule, or of one that is imported.
    pub fn declared(&self, declaration: &Declaration<'_>) -> Option<Signature> {
        match declaration.by {
            By::Schedule(schedule) => Some(Signature::of_schedule(schedule)),
            By::Import(used) => {
                let text = library(used)?;
                with_schedule(text, declaration.name.text(), Signature::of_schedule)
            }
            _ => None,
        }
    }
}

/// Does something with the schedule of that name in a library module's text.
pub fn with_schedule<T>(text: &str, name: &str, work: impl FnOnce(ast::Schedule<'_>) -> T) -> Option<T> {
    let parse = parse(FileId(0), text);
    let found = parse.file().schedules().find(|schedule| schedule.name().is_some_and(|own| own.text() == name));
    found.map(work)
}
