//! A tree with its names and the model: what most answers are made from.

use crate::Snapshot;
use crate::imports::{self, Source};
use crate::scope::{By, Declaration, Scope, Space};
use crate::select::{Known, Paths, Selected};
use crate::signatures::Signature;
use slapo_core::compile::Compiled;
use slapo_core::patterns::operators;
use slapo_core::primitives;
use slapo_core::schedule::{Checked, Function, Modules, Query};
use slapo_model::Model;
use slapo_syntax::ast::{self, AstNode, Expr, Item};
use slapo_syntax::{Parse, SyntaxKind, SyntaxToken};

pub struct View<'a> {
    pub parse: &'a Parse,
    pub scope: Scope<'a>,
    pub model: Option<&'a Model>,
    pub checked: &'a Checked,
    pub modules: &'a Modules,
    pub compiled: Option<&'a Compiled>,
    known: Known,
}

impl<'a> View<'a> {
    pub fn of(snapshot: &'a Snapshot) -> View<'a> {
        View::on(&snapshot.parse, snapshot)
    }

    /// The view of a text that differs a little from the snapshot's.
    pub fn on(parse: &'a Parse, snapshot: &'a Snapshot) -> View<'a> {
        let Snapshot { checked, modules, .. } = snapshot;
        let (model, scope) = (snapshot.model.as_deref(), Scope::new(parse, modules));
        let compiled = snapshot.compiled.as_ref();
        View { parse, scope, model, checked, modules, compiled, known: Known::default() }
    }

    /// What an expression leads to on the model.
    pub fn select<'v>(&'v self, expr: Expr<'v>) -> Option<Selected> {
        Paths { model: self.model?, scope: &self.scope, known: &self.known }.select(expr)
    }

    /// What a word behind a dot or in braces leads to on the model.
    pub fn places<'v>(&'v self, word: SyntaxToken<'v>) -> Option<Selected> {
        let parent = word.parent();
        match parent.kind() {
            SyntaxKind::FieldExpr => self.select(Expr::cast(parent)?),
            SyntaxKind::BraceName => {
                let brace = ast::Brace::cast(parent.parent()?)?;
                let from = self.select(brace.receiver()?)?;
                let model = self.model?;
                let places = from.places.iter().filter_map(|place| place.named(model, word.text())).collect();
                Some(Selected { places, ..from })
            }
            _ => None,
        }
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
            None => {
                let word = Function::find(text).map(Signature::of_function).or_else(|| Signature::of_word(text));
                let operator = || operators::find(text).map(Signature::of_operator);
                // What is not imported yet is explained all the same.
                let library = || slapo_stdlib::names().find_map(|module| imports::schedule(module, text));
                word.or_else(operator).or_else(library)
            }
        }
    }

    /// The signature of a schedule, or of one that is imported.
    pub fn declared(&self, declaration: &Declaration<'_>) -> Option<Signature> {
        match declaration.by {
            By::Schedule(schedule) => Some(Signature::of_schedule(schedule)),
            By::Import(..) => self.imported(declaration, |item| match item {
                Item::Schedule(schedule) => Some(Signature::of_schedule(schedule)),
                _ => None,
            })?,
            _ => None,
        }
    }

    /// The module that a `use` reads from.
    pub fn source(&self, used: ast::Use<'_>) -> Option<Source<'a>> {
        imports::source(self.modules, used)
    }

    /// Does something with what another module declares under an imported name.
    pub fn imported<T>(&self, declaration: &Declaration<'_>, work: impl FnOnce(Item<'_>) -> T) -> Option<T> {
        let By::Import(used, space) = declaration.by else { return None };
        imports::with_item(self.source(used)?.text, declaration.name.text(), space, work)
    }
}
