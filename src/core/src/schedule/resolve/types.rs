//! Types as they are written: classes of the model, types of the language, structures.

use super::super::nearest::{corrected, did_you_mean, some_of};
use super::super::types::{Field, Kind, Structure, Want};
use super::Unit;
use slapo_syntax::ast::{self, AstNode, TypeRef};
use slapo_syntax::{Code, Diagnostic, Span};
use std::sync::Arc;

impl Unit<'_, '_> {
    pub(super) fn structure(&mut self, item: ast::TypeDef<'_>) {
        let Some(name) = item.name() else { return };
        let fields = match item.ty() {
            Some(TypeRef::Record(record)) => self.record(record),
            Some(other) => {
                self.error(
                    Diagnostic::error(Code::WrongType, format!("`{}` lists no fields", name.text()))
                        .primary(other.span(), "not a structure")
                        .help(format!("`type {} = {{ weight: param, … }}`", name.text())),
                );
                Vec::new()
            }
            None => Vec::new(),
        };
        self.names.later.remove(name.text());
        if self.claim_type(name.text(), name.span()) {
            let structure = Arc::new(Structure { name: name.text().to_string(), span: name.span(), fields });
            self.names.types.insert(name.text().to_string(), (structure, name.span()));
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
                Want::one(self.named_type(name.text(), name.span()))
            }
            TypeRef::List(list) => match list.element() {
                Some(element) => Want { list: true, ..self.want(element) },
                None => Want { list: true, ..any },
            },
            // A structure in place is explained by the parser.
            TypeRef::Record(_) => any,
        }
    }

    pub(super) fn named_type(&mut self, name: &str, span: Span) -> Kind {
        if let Some(kind) = Kind::named(name) {
            return kind;
        }
        if let Some((structure, declared)) = self.names.types.get(name) {
            self.resolver.read.insert(*declared);
            return Kind::Structure(structure.clone());
        }
        if let Some(below) = self.names.later.get(name).copied() {
            self.error(
                Diagnostic::error(Code::UsedBefore, format!("`{name}` is declared further below"))
                    .primary(span, "used here")
                    .secondary(below, "declared here")
                    .help("move the declaration up"),
            );
        } else if self.is_excused(name) {
            return Kind::Unknown;
        } else if name.starts_with(|c: char| c.is_lowercase()) {
            let known = Kind::NAMED.iter().map(|(name, _)| *name);
            let help = did_you_mean(name, known.clone())
                .unwrap_or_else(|| format!("types are {}, and the classes of the model", some_of(known.clone())));
            let diagnostic = Diagnostic::error(Code::UnknownType, format!("there is no type `{name}`"))
                .primary(span, "unknown type")
                .help(help);
            self.error(corrected(diagnostic, span, name, known));
            return Kind::Unknown;
        }
        Kind::Class(name.to_string())
    }
}
