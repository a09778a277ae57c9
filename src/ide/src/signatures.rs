//! What can be called, and with what: primitives, queries, functions, collectives and schedules in one form.

use crate::words;
use slapo_core::patterns::operators::{Given, Operator};
use slapo_core::primitives::Primitive;
use slapo_core::schedule::{Function, Kind, Query};
use slapo_syntax::ast::{self, AstNode, TypeRef};

/// Something that can be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    pub name: String,
    /// The whole head: `column(l: Linear, over: axis)`.
    pub label: String,
    /// Markdown.
    pub docs: String,
    pub params: Vec<Param>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    pub name: String,
    /// As in the label: `groups: groups = 1`.
    pub label: String,
    pub docs: String,
    /// What is wanted, where that is more than a class.
    pub kind: Option<Kind>,
    pub is_optional: bool,
    /// Whether it can be given by its name.
    pub has_label: bool,
}

impl Signature {
    fn new(name: &str, label: String, docs: String, params: Vec<Param>) -> Signature {
        Signature { name: name.to_owned(), label, docs, params }
    }

    pub fn of_primitive(primitive: &'static Primitive) -> Signature {
        let params = primitive.params.iter().map(|param| Param {
            name: param.name.to_owned(),
            label: match &param.default {
                Some(default) => format!("{}: {} = {default}", param.name, param.want),
                None => format!("{}: {}", param.name, param.want),
            },
            docs: param.docs.to_owned(),
            kind: Some(param.want.kind.clone()),
            is_optional: param.default.is_some(),
            has_label: true,
        });
        let docs = format!("{}\n\n*Numbers: {}*", primitive.docs, primitive.class.name());
        Signature::new(primitive.name, primitive.signature(), docs, params.collect())
    }

    pub fn of_query(query: Query) -> Signature {
        let (args, docs) = words::query(query);
        Signature::new(query.name(), format!("path.{}({args})", query.name()), docs.to_owned(), bare(args))
    }

    pub fn of_function(function: Function) -> Signature {
        let args = function.params().join(", ") + if function.is_variadic() { ", …" } else { "" };
        let label = format!("{}({args})", function.name());
        Signature::new(function.name(), label, words::function(function).to_owned(), bare(&args))
    }

    /// A collective or a layout that takes arguments.
    pub fn of_word(name: &str) -> Option<Signature> {
        let (args, docs) = words::shaped(name)?;
        Some(Signature::new(name, format!("{name}({args})"), docs.to_owned(), bare(args)))
    }

    /// An operator of patterns and replacements.
    pub fn of_operator(operator: &Operator) -> Signature {
        let params = operator.slots.iter().map(|slot| Param {
            name: slot.name.to_owned(),
            label: match (slot.default, slot.usual()) {
                (None, _) => slot.name.to_owned(),
                (Some(_), Given::Absent) => format!("[{}]", slot.name),
                (Some(_), usual) => format!("{} = {usual}", slot.name),
            },
            docs: if slot.is_tensor() { "a tensor".to_owned() } else { "an attribute".to_owned() },
            kind: None,
            is_optional: slot.default.is_some(),
            has_label: true,
        });
        let params: Vec<Param> = params.collect();
        let labels: Vec<&str> = params.iter().map(|param| param.label.as_str()).collect();
        let label = format!("{}({})", operator.name, labels.join(", "));
        Signature::new(operator.name, label, "An operator, in patterns and replacements.".to_owned(), params)
    }

    pub fn of_schedule(schedule: ast::Schedule<'_>) -> Signature {
        let name = schedule.name().map_or("", |name| name.text());
        let params = schedule.params().into_iter().flat_map(ast::ParamList::params).filter_map(|param| {
            Some(Param {
                name: param.name()?.text().to_owned(),
                label: one_line(param.syntax().text()),
                docs: String::new(),
                kind: param.ty().and_then(kind),
                is_optional: param.default().is_some(),
                has_label: true,
            })
        });
        let params: Vec<Param> = params.collect();
        let labels: Vec<&str> = params.iter().map(|param| param.label.as_str()).collect();
        let label = format!("{name}({})", labels.join(", "));
        Signature::new(name, label, schedule.docs().unwrap_or_default(), params)
    }
}

fn bare(args: &str) -> Vec<Param> {
    let args = args.split(", ").filter(|arg| !arg.is_empty());
    let param = |arg: &str| Param {
        name: arg.trim_matches(['[', ']']).to_owned(),
        label: arg.to_owned(),
        docs: String::new(),
        kind: match arg {
            "pattern" => Some(Kind::Pattern),
            _ => arg.starts_with("dim").then_some(Kind::Dim),
        },
        is_optional: true,
        has_label: false,
    };
    args.map(param).collect()
}

/// What a type in a parameter list wants; of a list, what each element is.
fn kind(ty: TypeRef<'_>) -> Option<Kind> {
    match ty {
        TypeRef::Named(named) => Some(Kind::named(named.name()?.text()).unwrap_or(Kind::Module)),
        TypeRef::List(list) => kind(list.element()?),
        TypeRef::Record(_) => Some(Kind::Module),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
