//! Types as they are written: classes of the model, types of the language, structures.

use super::super::nearest::{corrected, did_you_mean, some_of};
use super::super::types::{Field, Kind, Structure, Want};
use super::Unit;
use slapo_syntax::ast::{self, AstNode, TypeRef};
use slapo_syntax::{Code, Diagnostic, Span};
use std::sync::Arc;

impl Unit<'_, '_> {
    /// `type Mlp = { c_fc: Linear }`, or another name for a type: `type Blocks = [Block]`.
    pub(super) fn type_item(&mut self, item: ast::TypeDef<'_>) {
        let Some(name) = item.name() else { return };
        let text = name.text().to_string();
        let want = match item.ty() {
            Some(TypeRef::Record(record)) => {
                let fields = self.record(record);
                Want::one(Kind::Structure(Arc::new(Structure { name: text.clone(), span: name.span(), fields })))
            }
            Some(other) if names_itself(other, &text) => {
                self.error(
                    Diagnostic::error(Code::WrongType, format!("the type `{text}` names itself"))
                        .primary(other.syntax().span(), "says nothing")
                        .help(format!("give it another name than the class: `type My{text} = {text}`")),
                );
                Want::one(Kind::Unknown)
            }
            Some(other) => self.want(other),
            None => Want::one(Kind::Unknown),
        };
        self.names.later.remove(&text);
        if self.claim_type(&text, name.span()) {
            self.names.types.insert(text, (want, name.span()));
        }
    }

    /// Whether a name may be given to a type; says so if not.
    pub(super) fn claim_type(&mut self, name: &str, span: Span) -> bool {
        let diagnostic = match self.names.types.get(name) {
            Some((_, first)) => Diagnostic::error(Code::NameTaken, format!("there is a type `{name}` already"))
                .primary(span, "declared again")
                .secondary(*first, "declared here"),
            None if Kind::named(name).is_some() => {
                Diagnostic::error(Code::NameTaken, format!("`{name}` is a type of the language"))
                    .primary(span, "cannot be declared")
            }
            None => return true,
        };
        self.error(diagnostic);
        false
    }

    fn record(&mut self, record: ast::RecordType<'_>) -> Vec<Field> {
        let mut fields: Vec<Field> = Vec::new();
        for field in record.fields() {
            let Some(field) = self.field(field) else { continue };
            match fields.iter().find(|known| known.name == field.name) {
                Some(first) => {
                    let first = first.span;
                    self.error(
                        Diagnostic::error(Code::NameTaken, format!("the type lists `{}` twice", field.name))
                            .primary(field.span, "for the second time")
                            .secondary(first, "first here"),
                    );
                }
                None => fields.push(field),
            }
        }
        fields
    }

    fn field(&mut self, field: ast::RecordField<'_>) -> Option<Field> {
        let name = field.name()?;
        let want = self.want(field.ty()?);
        Some(Field { name: name.text().to_string(), span: name.span(), is_optional: field.is_optional(), want })
    }

    /// What a written type says. An unknown name is a class of the model, unless it looks like a type of the language.
    pub(super) fn want(&mut self, ty: TypeRef<'_>) -> Want {
        let any = Want::one(Kind::Module);
        match ty {
            TypeRef::Named(named) => {
                let Some(name) = named.name() else { return any };
                self.named_type(name.text(), name.span())
            }
            TypeRef::List(list) => match list.element() {
                Some(element) => match self.want(element) {
                    Want { list: true, kind } => {
                        let message = format!("a list has elements of one kind, not {}", Want { list: true, kind });
                        let span = element.syntax().span();
                        self.error(Diagnostic::error(Code::WrongType, message).primary(span, "a list already"));
                        Want { list: true, kind: Kind::Unknown }
                    }
                    one => Want { list: true, ..one },
                },
                None => Want { list: true, ..any },
            },
            // A structure in place is explained by the parser.
            TypeRef::Record(_) => any,
        }
    }

    fn named_type(&mut self, name: &str, span: Span) -> Want {
        if let Some(kind) = Kind::named(name) {
            return Want::one(kind);
        }
        if let Some((want, declared)) = self.names.types.get(name) {
            self.resolver.read.insert(*declared);
            return want.clone();
        }
        if let Some(below) = self.names.later.get(name).copied() {
            self.error(
                Diagnostic::error(Code::UsedBefore, format!("`{name}` is declared further below"))
                    .primary(span, "used here")
                    .secondary(below, "declared here")
                    .help("move the declaration up"),
            );
        } else if self.is_excused(name) {
            return Want::one(Kind::Unknown);
        } else if name.starts_with(|c: char| c.is_lowercase()) {
            let known = Kind::NAMED.iter().map(|(name, _)| *name);
            let help = did_you_mean(name, known.clone())
                .unwrap_or_else(|| format!("types are {}, and the classes of the model", some_of(known.clone())));
            let diagnostic = Diagnostic::error(Code::UnknownType, format!("there is no type `{name}`"))
                .primary(span, "unknown type")
                .help(help);
            self.error(corrected(diagnostic, span, name, known));
            return Want::one(Kind::Unknown);
        }
        Want::one(Kind::Class(name.to_string()))
    }
}

fn names_itself(ty: TypeRef<'_>, own: &str) -> bool {
    match ty {
        TypeRef::Named(named) => named.name().is_some_and(|name| name.text() == own),
        TypeRef::List(list) => list.element().is_some_and(|element| names_itself(element, own)),
        TypeRef::Record(_) => false,
    }
}
