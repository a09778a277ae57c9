//! Names become what they stand for: from the trees of a schedule and of the library it uses to [`Hir`].
//!
//! One name has one meaning: nothing visible may be named again. Callables (schedules, functions) are a name space of
//! their own, told apart by the parenthesis; types are another; what follows a dot is the model's. Types of expressions
//! are inferred on the way, so that both branches of every `if` and schedules that nobody calls are checked too. No model
//! is known here. Read [`resolve`], then [`Unit`].

mod calls;
mod exprs;
mod functions;
mod imports;
mod items;
mod operators;
mod paths;
mod patterns;
mod recursion;
mod schedules;
mod stmts;
mod types;

use super::hir::{GlobalId, Hir, LocalId, ScheduleId};
use super::report::Report;
use super::types::{Structure, Ty};
use slapo_syntax::ast::{AstNode, Item};
use slapo_syntax::{Diagnostic, Parse, SourceMap, Span, SyntaxKind};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

pub struct Resolved {
    pub hir: Hir,
    pub report: Report,
}

/// Resolves a schedule and the library modules it uses.
pub fn resolve(files: &mut SourceMap, parse: &Parse) -> Resolved {
    let mut resolver =
        Resolver { files, hir: Hir::default(), report: Report::default(), library: BTreeMap::new(), calls: Vec::new() };
    let names = Unit::new(&mut resolver, parse, true).items(parse);
    resolver.entry(&names, parse);
    recursion::refuse(&mut resolver.hir, &resolver.calls, &mut resolver.report);
    Resolved { hir: resolver.hir, report: resolver.report }
}

/// What all files of a run share.
struct Resolver<'f> {
    files: &'f mut SourceMap,
    hir: Hir,
    report: Report,
    /// Library modules by name; `None` while one is being resolved.
    library: BTreeMap<String, Option<Rc<Names>>>,
    /// Who calls whom, and where.
    calls: Vec<(ScheduleId, ScheduleId, Span)>,
}

/// The names of one file.
#[derive(Default)]
struct Names {
    callables: BTreeMap<String, (ScheduleId, Span)>,
    values: BTreeMap<String, (Named, Span)>,
    types: BTreeMap<String, (Arc<Structure>, Span)>,
    /// Values and types that a later item declares.
    later: BTreeMap<String, Span>,
    /// Names in broken text, or of imports that failed: they may be declared there, so nothing is said of them.
    excused: BTreeSet<String>,
    /// The head of the schedule at hand is broken: any name may be one of its parameters.
    excuses_all: bool,
}

#[derive(Clone, Copy)]
enum Named {
    Global(GlobalId),
    Axis(u32),
    /// `None` for one with a mistake, which was reported.
    Pattern(Option<u32>),
}

/// One file while it is resolved.
struct Unit<'a, 'f> {
    resolver: &'a mut Resolver<'f>,
    /// The file that is checked, which may have `main`, `mesh` and `input`; not the library.
    is_user: bool,
    names: Names,
    /// Visible names of the schedule at hand, outermost first.
    locals: Vec<Local>,
    /// Slots taken so far in its frame.
    slots: u32,
    /// The schedule at hand.
    current: Option<ScheduleId>,
}

struct Local {
    name: String,
    id: LocalId,
    ty: Ty,
    span: Span,
}

impl<'a, 'f> Unit<'a, 'f> {
    fn new(resolver: &'a mut Resolver<'f>, parse: &Parse, is_user: bool) -> Unit<'a, 'f> {
        let mut names = Names::default();
        if !parse.is_ok() {
            names.excused = words_of_broken_text(parse);
        }
        Unit { resolver, is_user, names, locals: Vec::new(), slots: 0, current: None }
    }

    fn error(&mut self, diagnostic: Diagnostic) {
        self.resolver.report.push(diagnostic);
    }

    fn is_excused(&self, name: &str) -> bool {
        self.names.excuses_all || self.names.excused.contains(name)
    }
}

/// Words that the parser found in text it could not make sense of.
fn words_of_broken_text(parse: &Parse) -> BTreeSet<String> {
    let broken = parse.root().descendants().filter(|node| node.kind().is_error());
    let words = broken.flat_map(|node| node.leaves()).filter(|leaf| leaf.kind() == SyntaxKind::Word);
    words.map(|word| word.text().to_string()).collect()
}

impl Resolver<'_> {
    /// Finds `schedule main` in the file that is checked.
    fn entry(&mut self, names: &Names, parse: &Parse) {
        use slapo_syntax::Code;
        if let Some((id, _)) = names.callables.get("main") {
            self.hir.entry = Some(*id);
            return;
        }
        let is_broken =
            |schedule: slapo_syntax::ast::Schedule| schedule.params().is_none() || schedule.name().is_none();
        if names.excused.contains("main") || parse.file().schedules().any(is_broken) {
            return;
        }
        let first = parse.file().items().find_map(|item| match item {
            Item::Schedule(schedule) => Some(schedule.name().map_or(schedule.span(), |name| name.span())),
            _ => None,
        });
        let place = first.unwrap_or(Span::new(parse.tree.file(), 0, 0));
        let here = if first.is_some() { "nothing calls it" } else { "" };
        let diagnostic = Diagnostic::error(Code::NoEntry, "the schedule has no `schedule main`")
            .primary(place, here)
            .help("what is to be done starts there: `schedule main(m: Module) { … }`");
        self.report.push(diagnostic);
    }
}
