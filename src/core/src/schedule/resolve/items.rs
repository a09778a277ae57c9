//! Items: what a file declares, in the order it may be used.

use super::super::builtins::{Function, find_word};
use super::super::hir::{AxisDecl, AxisSize, Block, Domain, Entry, Global, GlobalId, Hir, LocalId, Param, Schedule, ScheduleId};
use super::super::nearest::{did_you_mean, some_of};
use super::super::types::{Field, Kind, Structure, Ty, Want};
use super::{Local, Named, Names, Unit};
use slapo_syntax::ast::{self, AstNode, Item, TypeRef};
use slapo_syntax::{Code, Diagnostic, Parse, Span, SyntaxToken};
use std::sync::Arc;

impl Unit<'_, '_> {
    /// Everything in a file. Schedules see all of it; other items what stands above them.
    pub(super) fn items(mut self, parse: &Parse) -> Names {
        let items: Vec<Item> = parse.file().items().collect();
        for item in &items {
            if let Item::Use(item) = item {
                self.import(*item);
            }
        }
        let mut schedules = Vec::new();
        for item in &items {
            match item {
                Item::Schedule(schedule) => schedules.extend(self.declare(*schedule).map(|id| (id, *schedule))),
                Item::Mesh(mesh) => self.name_later(mesh.entries().filter_map(ast::Entry::name)),
                item => self.name_later(item.name()),
            }
        }
        self.once(&items);
        for item in &items {
            match item {
                Item::Type(item) => self.structure(*item),
                Item::Let(item) => self.global(item.name(), item.value(), None, item.span()),
                Item::Knob(item) => self.global(item.name(), item.default(), item.domain(), item.span()),
                Item::Pattern(item) => self.pattern(*item),
                Item::Mesh(item) if self.is_user => self.mesh(*item),
                Item::Input(item) if self.is_user => self.input(*item),
                _ => {}
            }
        }
        for (id, schedule) in &schedules {
            self.signature(*id, *schedule);
        }
        for (id, schedule) in schedules {
            self.body(id, schedule);
        }
        self.names
    }

    fn name_later<'t>(&mut self, names: impl IntoIterator<Item = SyntaxToken<'t>>) {
        for name in names {
            self.names.later.entry(name.text().to_string()).or_insert(name.span());
        }
    }

    /// `model`, `input` and `mesh` may stand in a file once each.
    fn once(&mut self, items: &[Item<'_>]) {
        type Is = fn(&Item) -> bool;
        let kinds: [(&str, Is); 3] = [
            ("model", |item| matches!(item, Item::Model(_))),
            ("input", |item| matches!(item, Item::Input(_))),
            ("mesh", |item| matches!(item, Item::Mesh(_))),
        ];
        for (word, is) in kinds {
            let mut found = items.iter().filter(|item| is(item));
            let Some(first) = found.next() else { continue };
            for again in found {
                self.error(
                    Diagnostic::error(Code::RepeatedItem, format!("a schedule has one `{word}`, not several"))
                        .primary(again.span(), "for the second time")
                        .secondary(first.span(), "first here"),
                );
            }
        }
    }

    /// Whether a name may be given to a value; says so if not.
    pub(super) fn claim(&mut self, name: &str, span: Span) -> bool {
        let taken = self.locals.iter().find(|local| local.name == name).map(|local| local.span);
        let taken = taken.or_else(|| self.names.values.get(name).map(|(_, span)| *span));
        let diagnostic = match taken {
            Some(first) => Diagnostic::error(Code::NameTaken, format!("`{name}` has a meaning here already"))
                .primary(span, "declared again")
                .secondary(first, "declared here"),
            None if find_word(name).is_some() => {
                Diagnostic::error(Code::NameTaken, format!("`{name}` is a word of the language"))
                    .primary(span, "cannot be declared")
            }
            None => return true,
        };
        self.error(diagnostic.help("one name has one meaning wherever it is visible: choose another"));
        false
    }

    /// Whether a name may be given to a schedule; says so if not.
    pub(super) fn claim_callable(&mut self, name: &str, span: Span) -> bool {
        let diagnostic = match self.names.callables.get(name) {
            Some((_, first)) => Diagnostic::error(Code::NameTaken, format!("there is a schedule `{name}` already"))
                .primary(span, "declared again")
                .secondary(*first, "declared here"),
            None if Function::find(name).is_some() => {
                Diagnostic::error(Code::NameTaken, format!("`{name}` is a function of the language"))
                    .primary(span, "cannot be declared")
            }
            None => return true,
        };
        self.error(diagnostic.help("one name has one meaning wherever it is visible: choose another"));
        false
    }

    fn declare(&mut self, schedule: ast::Schedule<'_>) -> Option<ScheduleId> {
        let name = schedule.name();
        let (text, span) = name.map_or(("", schedule.span()), |name| (name.text(), name.span()));
        let hir = &mut self.resolver.hir;
        let id = ScheduleId(hir.schedules.len() as u32);
        hir.schedules.push(Schedule {
            name: text.to_string(),
            name_span: span,
            params: Vec::new(),
            body: Block::default(),
            locals: 0,
            is_recursive: false,
        });
        if name.is_some() && self.claim_callable(text, span) {
            self.names.callables.insert(text.to_string(), (id, span));
        }
        Some(id)
    }

    fn global(
        &mut self,
        name: Option<SyntaxToken<'_>>,
        value: Option<ast::Expr<'_>>,
        domain: Option<ast::Expr<'_>>,
        span: Span,
    ) {
        let value = self.expr(value, span);
        let domain = domain.map(|domain| self.domain(Some(domain), span));
        self.knob_type(&value.ty, domain.as_ref(), value.span);
        let Some(name) = name else { return };
        self.names.later.remove(name.text());
        if !self.claim(name.text(), name.span()) {
            return;
        }
        let globals = &mut self.resolver.hir.globals;
        let id = GlobalId(globals.len() as u32);
        globals.push(Global { name: name.text().to_string(), value, domain });
        self.names.values.insert(name.text().to_string(), (Named::Global(id), name.span()));
    }

    fn knob_type(&mut self, value: &Ty, domain: Option<&Domain>, span: Span) {
        let element = match domain {
            Some(Domain::Range { .. }) => Ty::Number,
            Some(Domain::Values(values)) => values.ty.element().unwrap_or(Ty::Any),
            None => return,
        };
        if value.join(&element).is_none() {
            self.error(
                Diagnostic::error(Code::WrongType, format!("the knob starts as {value}, but may be {element}"))
                    .primary(span, value.to_string()),
            );
        }
    }

    fn pattern(&mut self, item: ast::Pattern<'_>) {
        let Some(name) = item.name() else { return };
        self.names.later.remove(name.text());
        if self.claim(name.text(), name.span()) {
            self.names.values.insert(name.text().to_string(), (Named::Pattern, name.span()));
        }
    }

    fn mesh(&mut self, item: ast::Mesh<'_>) {
        if self.resolver.hir.mesh.is_some() {
            return;
        }
        self.resolver.hir.mesh = Some(item.span());
        let mut axes: Vec<AxisDecl> = Vec::new();
        for entry in item.entries() {
            let Some(name) = entry.name() else { continue };
            let size = self.axis_size(entry);
            axes.push(AxisDecl { name: name.text().to_string(), span: name.span(), size });
        }
        for axis in axes {
            self.names.later.remove(&axis.name);
            let axes = &self.resolver.hir.axes;
            if let Some(first) = axes.iter().find(|known| known.name == axis.name).map(|first| first.span) {
                self.error(
                    Diagnostic::error(Code::RepeatedAxis, format!("the mesh has two axes named `{}`", axis.name))
                        .primary(axis.span, "for the second time")
                        .secondary(first, "first here"),
                );
            } else if self.claim(&axis.name, axis.span) {
                let at = self.resolver.hir.axes.len() as u32;
                self.names.values.insert(axis.name.clone(), (Named::Axis(at), axis.span));
                self.resolver.hir.axes.push(axis);
            }
        }
    }

    fn axis_size(&mut self, entry: ast::Entry<'_>) -> AxisSize {
        if let Some(ast::Expr::Name(name)) = entry.value() {
            if name.text() == "auto" {
                return AxisSize::Auto(name.span());
            }
        }
        AxisSize::Given(self.number(entry.value(), entry.span()))
    }

    fn input(&mut self, item: ast::Input<'_>) {
        const KNOWN: [&str; 2] = ["batch", "seq"];
        if self.resolver.hir.input.is_some() {
            return;
        }
        self.resolver.hir.input = Some(item.span());
        for entry in item.entries() {
            let Some(name) = entry.name() else { continue };
            let value = Entry { span: entry.span(), value: self.number(entry.value(), entry.span()) };
            let slot = |hir: &mut Hir, is_batch: bool| -> Option<Span> {
                let slot = if is_batch { &mut hir.batch } else { &mut hir.seq };
                match slot {
                    Some(first) => Some(first.span),
                    None => {
                        *slot = Some(value);
                        None
                    }
                }
            };
            if !KNOWN.contains(&name.text()) {
                let help = did_you_mean(name.text(), KNOWN).unwrap_or_else(|| format!("sizes are {}", some_of(KNOWN)));
                self.error(
                    Diagnostic::error(Code::UnknownSize, format!("`input` has no size `{}`", name.text()))
                        .primary(name.span(), "unknown size")
                        .help(help),
                );
            } else if let Some(first) = slot(&mut self.resolver.hir, name.text() == "batch") {
                self.error(
                    Diagnostic::error(Code::RepeatedItem, format!("`{}` is given twice", name.text()))
                        .primary(entry.span(), "for the second time")
                        .secondary(first, "first here"),
                );
            }
        }
    }

    // ---- types

    fn structure(&mut self, item: ast::TypeDef<'_>) {
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
            let help = did_you_mean(name, known.clone()).unwrap_or_else(|| format!("types are {}, and the classes of the model", some_of(known)));
            self.error(
                Diagnostic::error(Code::UnknownType, format!("there is no type `{name}`"))
                    .primary(span, "unknown type")
                    .help(help),
            );
            return Kind::Unknown;
        }
        Kind::Class(name.to_string())
    }

    // ---- schedules

    fn signature(&mut self, id: ScheduleId, schedule: ast::Schedule<'_>) {
        let mut params: Vec<Param> = Vec::new();
        let is_broken = schedule.params().is_some_and(|list| list.syntax().descendants().any(|node| node.kind().is_error()));
        for param in schedule.params().into_iter().flat_map(ast::ParamList::params) {
            let Some(name) = param.name() else { continue };
            let want = match param.ty() {
                Some(ty) => self.want(ty),
                None => {
                    if !is_broken {
                        self.untyped(name);
                    }
                    Want::one(Kind::Unknown)
                }
            };
            let default = param.default().map(|value| self.given(&want, Some(value), param.span(), name.text()));
            params.push(Param { name: name.text().to_string(), span: name.span(), want, default });
        }
        let is_entry = self.is_user && self.names.callables.get("main").is_some_and(|(main, _)| *main == id);
        if is_entry && !is_broken {
            self.entry_signature(&params, schedule);
        }
        self.resolver.hir.schedules[id.0 as usize].params = params;
    }

    fn untyped(&mut self, name: SyntaxToken<'_>) {
        self.error(
            Diagnostic::error(Code::MissingType, format!("parameter `{}` has no type", name.text()))
                .primary(name.span(), "what may be given here?")
                .help(format!("write `{}: Module`, or another type: {}", name.text(), some_of(Kind::NAMED.iter().map(|(name, _)| *name)))),
        );
    }

    fn entry_signature(&mut self, params: &[Param], schedule: ast::Schedule<'_>) {
        let is_module = |param: &Param| !param.want.list && matches!(param.want.kind, Kind::Module | Kind::Class(_) | Kind::Structure(_) | Kind::Unknown);
        if matches!(params, [only] if is_module(only)) || schedule.params().is_none() {
            return;
        }
        let span = schedule.params().map_or(schedule.span(), AstNode::span);
        self.error(
            Diagnostic::error(Code::WrongEntry, "`main` takes one parameter: the model")
                .primary(span, "not one module")
                .help("write `schedule main(m: Module)`; numbers to choose go into `knob`"),
        );
    }

    fn body(&mut self, id: ScheduleId, schedule: ast::Schedule<'_>) {
        let params = self.resolver.hir.schedule(id).params.clone();
        self.locals.clear();
        self.slots = 0;
        self.current = Some(id);
        self.names.excuses_all = schedule.params().is_none();
        for param in params {
            self.local(&param.name, param.span, param.want.ty());
        }
        let body = schedule.body().map(|body| self.block(body)).unwrap_or_default();
        let known = &mut self.resolver.hir.schedules[id.0 as usize];
        known.body = body;
        known.locals = self.slots;
        self.locals.clear();
        self.current = None;
        self.names.excuses_all = false;
    }

    /// Declares a name of the schedule at hand. Its slot exists even where the name may not be used.
    pub(super) fn local(&mut self, name: &str, span: Span, ty: Ty) -> LocalId {
        let id = LocalId(self.slots);
        self.slots += 1;
        if self.claim(name, span) {
            self.locals.push(Local { name: name.to_string(), id, ty, span });
        }
        id
    }
}
