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
mod replacements;
mod schedules;
mod settings;
mod stmts;
mod structures;
mod types;
mod unused;

use super::Overrides;
use super::hir::{GlobalId, Hir, LocalId, ScheduleId};
use super::modules::Modules;
use super::nearest::corrected;
use super::report::Report;
use super::types::{Ty, Want};
use slapo_syntax::ast::{AstNode, Item};
use slapo_syntax::{Code, Diagnostic, Parse, SourceMap, Span, SyntaxKind};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Where a schedule starts, unless the command line says otherwise.
const MAIN: &str = "main";

pub struct Resolved {
    pub hir: Hir,
    pub report: Report,
    /// Names that nothing reads.
    pub unused: Vec<Diagnostic>,
}

/// Resolves a schedule and the modules it uses. Without a model, a file of declarations alone is right as it is.
pub fn resolve(
    files: &mut SourceMap,
    parse: &Parse,
    found: &Modules,
    has_model: bool,
    overrides: &Overrides,
) -> Resolved {
    let mut resolver = Resolver {
        files,
        found,
        entry: overrides.entry.as_deref().unwrap_or(MAIN).to_string(),
        hir: Hir::default(),
        report: Report::default(),
        modules: BTreeMap::new(),
        open: Vec::new(),
        calls: Vec::new(),
        read: BTreeSet::new(),
    };
    let names = Unit::new(&mut resolver, parse, None).items(parse);
    resolver.settings(&names, overrides);
    if has_model || overrides.entry.is_some() || !is_library(parse) {
        resolver.find_entry(&names, parse);
    }
    recursion::refuse(&mut resolver.hir, &resolver.calls, &mut resolver.report);
    let unused = unused::unused(parse, resolver.files.text(parse.tree.file()), &resolver.read);
    Resolved { hir: resolver.hir, report: resolver.report, unused }
}

/// What all files of a run share.
struct Resolver<'f> {
    files: &'f mut SourceMap,
    found: &'f Modules,
    /// The name of the schedule to start with.
    entry: String,
    hir: Hir,
    report: Report,
    /// Modules by their paths; `None` for one that is not there.
    modules: BTreeMap<String, Option<Rc<Names>>>,
    /// Files that are being resolved, each used by the one before it.
    open: Vec<imports::Open>,
    /// Who calls whom, and where.
    calls: Vec<(ScheduleId, ScheduleId, Span)>,
    /// Names where they are declared or imported, of those that something reads.
    read: BTreeSet<Span>,
}

/// The names of one file.
#[derive(Default)]
struct Names {
    callables: BTreeMap<String, (ScheduleId, Span)>,
    values: BTreeMap<String, (Named, Span)>,
    types: BTreeMap<String, (Want, Span)>,
    /// What came in by `use`, and the module it is from.
    imported: BTreeMap<String, String>,
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
    /// The file that is checked, whose `main`, `mesh` and `input` count; not a module.
    is_user: bool,
    /// Of a module its path, such as `blocks.tp`.
    module: Option<String>,
    /// Where the modules are that it names.
    folder: String,
    names: Names,
    /// Where an import may be added.
    imports: Option<Span>,
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
    /// Of a part of the model what it is declared to be.
    want: Option<Want>,
    span: Span,
}

impl<'a, 'f> Unit<'a, 'f> {
    /// `module` is the path of a module, with slashes, and the folder from which it names others.
    fn new(resolver: &'a mut Resolver<'f>, parse: &Parse, module: Option<(&str, &str)>) -> Unit<'a, 'f> {
        let mut names = Names::default();
        if !parse.is_ok() {
            names.excused = words_of_broken_text(parse);
        }
        let is_user = module.is_none();
        let folder = module.map_or(String::new(), |(_, folder)| folder.to_string());
        let module = module.map(|(path, _)| path.replace('/', "."));
        // A comment above another item may be its documentation.
        let first = parse.file().items().next();
        let first = first.filter(|item| matches!(item, Item::Use(_) | Item::Model(_) | Item::Input(_) | Item::Mesh(_)));
        let imports = first.map(|item| item.span().at_start());
        Unit { resolver, is_user, module, folder, names, imports, locals: Vec::new(), slots: 0, current: None }
    }

    fn error(&mut self, diagnostic: Diagnostic) {
        self.resolver.report.push(diagnostic);
    }

    fn is_excused(&self, name: &str) -> bool {
        self.names.excuses_all || self.names.excused.contains(name)
    }
}

/// Whether a file only declares things for others to use.
fn is_library(parse: &Parse) -> bool {
    let mut items = parse.file().items().peekable();
    items.peek().is_some()
        && items.all(|item| match item {
            Item::Model(_) | Item::Input(_) | Item::Mesh(_) => false,
            Item::Schedule(schedule) => schedule.name().is_some_and(|name| name.text() != MAIN),
            _ => true,
        })
}

/// Words that the parser found in text it could not make sense of.
fn words_of_broken_text(parse: &Parse) -> BTreeSet<String> {
    let broken = parse.root().descendants().filter(|node| node.kind().is_error());
    let words = broken.flat_map(|node| node.leaves()).filter(|leaf| leaf.kind() == SyntaxKind::Word);
    words.map(|word| word.text().to_string()).collect()
}

impl Resolver<'_> {
    /// Finds the schedule to start with in the file that is checked.
    fn find_entry(&mut self, names: &Names, parse: &Parse) {
        let own = settings::own_schedules(parse);
        let wanted = self.entry.clone();
        if let (Some((id, _)), true) = (names.callables.get(&wanted), own.iter().any(|(name, _)| *name == wanted)) {
            self.hir.entry = Some(*id);
            return;
        }
        let is_broken =
            |schedule: slapo_syntax::ast::Schedule| schedule.params().is_none() || schedule.name().is_none();
        if names.excused.contains(&wanted) || parse.file().schedules().any(is_broken) {
            return;
        }
        if wanted != MAIN {
            let own: Vec<&str> = own.into_iter().map(|(name, _)| name).collect();
            return self.no_such_entry(&wanted, &own);
        }
        let diagnostic = Diagnostic::error(Code::NoEntry, "the schedule has no `schedule main`");
        let diagnostic = match own.first() {
            Some((name, span)) => diagnostic
                .primary(*span, "nothing calls it")
                .help("what is to be done starts there: `schedule main(m: Module) { … }`")
                .help(format!("`--schedule {name}` starts with another one")),
            None => diagnostic
                .primary(Span::new(parse.tree.file(), 0, 0), "")
                .help("what is to be done starts there: `schedule main(m: Module) { … }`"),
        };
        self.report.push(match own.first() {
            Some((_, span)) => corrected(diagnostic, *span, self.files.slice(*span), [MAIN]),
            None => diagnostic,
        });
    }
}
