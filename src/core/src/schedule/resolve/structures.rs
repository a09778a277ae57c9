//! Paths through structural types: below a parameter whose type lists its parts there is what the type lists, so that a
//! schedule can be checked without a model.

use super::super::builtins::Query;
use super::super::hir::{Expr, ExprKind, PathName};
use super::super::nearest::{did_you_mean, some_of};
use super::super::types::{Field, Kind, Structure, Ty, Want};
use super::Unit;
use slapo_syntax::{Code, Diagnostic, Span};

impl Unit<'_, '_> {
    /// What an expression, or every element of a selection, is declared to be, as far as its path leads through declared
    /// types. A list is a module whose children are such.
    pub(super) fn declared(&self, expr: &Expr) -> Option<Want> {
        match &expr.kind {
            ExprKind::Local(id) => self.locals.iter().find(|local| local.id == *id)?.want.clone(),
            ExprKind::Names(receiver, names) => match self.declared(receiver)? {
                Want { list: true, kind } => {
                    let is_position = |name: &PathName| name.name.bytes().all(|byte| byte.is_ascii_digit());
                    names.iter().all(is_position).then(|| Want::one(kind))
                }
                Want { kind: Kind::Structure(structure), .. } => {
                    let mut wants = names.iter().map(|name| structure.field(&name.name).map(|field| &field.want));
                    let first = wants.next()??;
                    wants.all(|want| want == Some(first)).then(|| first.clone())
                }
                _ => None,
            },
            ExprKind::Children(receiver) => child(self.declared(receiver)?),
            ExprKind::Index(_, position) if position.ty == Ty::Text => None,
            ExprKind::Index(receiver, _)
            | ExprKind::Slice(receiver, ..)
            | ExprKind::Query(Query::Except | Query::Expect, receiver, _) => self.element(receiver),
            _ => None,
        }
    }

    /// What the elements of a selection, or the children of a module, are declared to be.
    pub(super) fn element(&self, list: &Expr) -> Option<Want> {
        let want = self.declared(list)?;
        if list.ty.is_selection() { Some(want) } else { child(want) }
    }

    /// Whether the type of `receiver`, if it is a structure, lists these names; says which it does not. The type of the
    /// only one is given.
    pub(super) fn fields(&mut self, receiver: &Expr, names: &[PathName]) -> Result<Option<Want>, ()> {
        let Some(Want { kind: Kind::Structure(structure), list: false }) = self.declared(receiver) else {
            return Ok(None);
        };
        for name in names {
            let diagnostic = match structure.field(&name.name) {
                Some(field) if !field.is_optional || name.is_optional => continue,
                Some(Field { name: field, span, .. }) => {
                    let message = format!("`{}` may be without `{field}`", structure.name);
                    Diagnostic::error(Code::NoSuchName, message)
                        .primary(name.span, "may be absent")
                        .secondary(*span, "optional")
                        .help(format!("`{field}?` takes it where it is there"))
                }
                None => {
                    let known = structure.fields.iter().map(|field| field.name.as_str());
                    let help = did_you_mean(&name.name, known.clone())
                        .unwrap_or_else(|| format!("it lists {}", some_of(known)));
                    Diagnostic::error(Code::NoSuchName, format!("type `{}` lists no `{}`", structure.name, name.name))
                        .primary(name.span, "not part of the type")
                        .secondary(structure.span, "declared here")
                        .help(help)
                }
            };
            self.error(diagnostic);
            return Err(());
        }
        match names {
            [name] => Ok(structure.field(&name.name).map(|field| field.want.clone())),
            _ => Ok(None),
        }
    }

    /// Whether a value whose type is a structure has all that the structure wanted here lists; says what it lacks.
    pub(super) fn covers(&mut self, wanted: &Want, value: &Expr) -> bool {
        let given = if wanted.list { self.element(value) } else { self.declared(value) };
        let (Kind::Structure(wanted), Some(Want { kind: Kind::Structure(given), list: false })) = (&wanted.kind, given)
        else {
            return true;
        };
        let Some((field, message)) = lacks(&given, wanted) else { return true };
        self.error(
            Diagnostic::error(Code::WrongClass, message)
                .primary(value.span, format!("a `{}`", given.name))
                .secondary(field, "wanted here")
                .secondary(given.span, "declared here"),
        );
        false
    }
}

/// What the children of a module are declared to be.
fn child(want: Want) -> Option<Want> {
    want.list.then(|| Want::one(want.kind))
}

/// The first field that a type wants and another does not promise, with what to say of it.
fn lacks(given: &Structure, wanted: &Structure) -> Option<(Span, String)> {
    wanted.fields.iter().find_map(|field| {
        let Some(own) = given.field(&field.name) else {
            let message = format!("`{}` wants `{}`, which `{}` does not list", wanted.name, field.name, given.name);
            return (!field.is_optional).then_some((field.span, message));
        };
        if own.is_optional && !field.is_optional {
            let message = format!("`{}` wants `{}`, which `{}` may be without", wanted.name, field.name, given.name);
            return Some((field.span, message));
        }
        match (&own.want.kind, &field.want.kind) {
            (Kind::Structure(own), Kind::Structure(wanted)) => lacks(own, wanted),
            (Kind::Tensor, kind) | (kind, Kind::Tensor) if *kind != Kind::Tensor => {
                let message = format!(
                    "`{}` of `{}` is {}, but {} in `{}`",
                    field.name, wanted.name, field.want, own.want, given.name
                );
                Some((field.span, message))
            }
            _ => None,
        }
    })
}
