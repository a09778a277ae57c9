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
            Some(TypeRef::Record(record)) => record.fields().filter_map(|field| self.field(field)).collect(),
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
        let taken = self.names.types.get(name.text()).map(|(_, span)| *span);
        if let Some(first) = taken {
            self.error(
                Diagnostic::error(Code::NameTaken, format!("there is a type `{}` already", name.text()))
                    .primary(name.span(), "declared again")
                    .secondary(first, "declared here"),
            );
        } else if Kind::named(name.text()).is_some() {
            self.error(
                Diagnostic::error(Code::NameTaken, format!("`{}` is a type of the language", name.text()))
                    .primary(name.span(), "cannot be declared"),
            );
        } else {
            let structure = Arc::new(Structure { name: name.text().to_string(), fields });
            self.names.types.insert(name.text().to_string(), (structure, name.span()));
        }
    }

    fn field(&mut self, field: ast::RecordField<'_>) -> Option<Field> {
        let name = field.name()?.text().to_string();
        Some(Field { name, is_optional: field.is_optional(), want: self.want(field.ty()?) })
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
        if let Some((structure, _)) = self.names.types.get(name) {
            return Kind::Structure(structure.clone());
        }
        if let Some(below) = self.names.later.get(name).copied() {
            self.error(
                Diagnostic::error(Code::UsedBefore, format!("`{name}` is declared further below"))
                    .primary(span, "used here")
                    .secondary(below, "declared here")
                    .help("move the declaration up"),
            );
        } else if name.starts_with(|c: char| c.is_lowercase()) && !self.is_excused(name) {
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
