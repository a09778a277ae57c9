//! Items: what a file declares, in the order it may be used.

use super::super::builtins::{Function, find_word};
use super::super::hir::{
    AxisDecl, AxisSize, Block, Domain, Entry, Expr, Global, GlobalId, Hir, Knob, Schedule, ScheduleId,
};
use super::super::nearest::{corrected, did_you_mean, some_of};
use super::super::types::Ty;
use super::{Named, Names, Unit};
use slapo_syntax::ast::{self, AstNode, Item};
use slapo_syntax::{Code, Diagnostic, Parse, Span, SyntaxToken};

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
                Item::Mesh(mesh) if self.is_user => self.name_later(mesh.entries().filter_map(ast::Entry::name)),
                item => self.name_later(item.name()),
            }
        }
        self.once(&items);
        for item in &items {
            match item {
                Item::Type(item) => self.type_item(*item),
                Item::Let(item) => {
                    let value = self.expr(item.value(), item.span());
                    self.global(item.name(), value, None);
                }
                Item::Knob(item) => self.knob(*item),
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
            has_broken_head: has_broken_head(schedule),
            is_recursive: false,
        });
        if name.is_some() && self.claim_callable(text, span) {
            self.names.callables.insert(text.to_string(), (id, span));
        }
        Some(id)
    }

    fn knob(&mut self, item: ast::Knob<'_>) {
        let value = self.expr(item.default(), item.span());
        let domain = item.domain().map(|domain| self.domain(Some(domain), item.span()));
        self.knob_type(&value.ty, domain.as_ref(), value.span);
        let module = self.module.clone();
        self.global(item.name(), value, Some(Knob { domain, module }));
    }

    fn global(&mut self, name: Option<SyntaxToken<'_>>, value: Expr, knob: Option<Knob>) {
        let Some(name) = name else { return };
        self.names.later.remove(name.text());
        if !self.claim(name.text(), name.span()) {
            return;
        }
        let globals = &mut self.resolver.hir.globals;
        let id = GlobalId(globals.len() as u32);
        globals.push(Global { name: name.text().to_string(), value, set: None, knob });
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
        let pattern = self.resolved_pattern(item).map(|pattern| {
            let patterns = &mut self.resolver.hir.patterns;
            patterns.push(pattern);
            patterns.len() as u32 - 1
        });
        if self.claim(name.text(), name.span()) {
            self.names.values.insert(name.text().to_string(), (Named::Pattern(pattern), name.span()));
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
        if let Some(ast::Expr::Name(name)) = entry.value()
            && name.text() == "auto"
        {
            return AxisSize::Auto(name.span());
        }
        if let Some(ast::Expr::List(list)) = entry.value() {
            return AxisSize::Factors(self.factors(entry, list));
        }
        AxisSize::Given(self.number(entry.value(), entry.span()))
    }

    fn factors(&mut self, entry: ast::Entry<'_>, list: ast::List<'_>) -> Vec<Expr> {
        let axis = entry.name().map_or(String::new(), |name| name.text().to_string());
        let mut factors = Vec::new();
        for element in list.elements() {
            let is_auto = matches!(&element, ast::Expr::Name(name) if name.text() == "auto");
            if is_auto {
                self.error(
                    Diagnostic::error(Code::AxisSize, format!("a factor of axis `{axis}` cannot be `auto`"))
                        .primary(element.span(), "a factor")
                        .help("only a whole axis can: give the factors their sizes, and let another axis be `auto`"),
                );
                factors.push(Expr::error(element.span()));
            } else {
                factors.push(self.number(Some(element), list.span()));
            }
        }
        if factors.is_empty() {
            self.error(
                Diagnostic::error(Code::AxisSize, format!("axis `{axis}` has no factors"))
                    .primary(list.span(), "an empty list")
                    .help("`[2, 2]` are the sizes of two factors, the outer one first"),
            );
            factors.push(Expr::error(list.span()));
        }
        factors
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
                self.resolver.hir.has_unknown_size = true;
                let help = did_you_mean(name.text(), KNOWN).unwrap_or_else(|| format!("sizes are {}", some_of(KNOWN)));
                let diagnostic = Diagnostic::error(Code::UnknownSize, format!("`input` has no size `{}`", name.text()))
                    .primary(name.span(), "unknown size")
                    .help(help);
                self.error(corrected(diagnostic, name.span(), name.text(), KNOWN));
            } else if let Some(first) = slot(&mut self.resolver.hir, name.text() == "batch") {
                self.error(
                    Diagnostic::error(Code::RepeatedItem, format!("`{}` is given twice", name.text()))
                        .primary(entry.span(), "for the second time")
                        .secondary(first, "first here"),
                );
            }
        }
    }
}

fn has_broken_head(schedule: ast::Schedule<'_>) -> bool {
    let Some(params) = schedule.params() else { return true };
    params.syntax().descendants().any(|node| node.kind().is_error())
}
