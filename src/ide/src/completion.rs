//! What may stand at the cursor.
//!
//! The text is parsed once more with a word put in at the cursor, so that there is always something to complete; where
//! brackets around it are still open, they are closed first. Where that word ends up in the tree says what is wanted.
//! Read [`completions`] first.

mod files;

use crate::Snapshot;
use crate::describe;
use crate::scope::{By, Space};
use crate::signatures::{Param, Signature};
use crate::view::View;
use crate::words;
use slapo_core::patterns::operators;
use slapo_core::primitives::{self, Receiver};
use slapo_core::schedule::{Function, Kind, Place, Query, WORDS, WordKind};
use slapo_model::Model;
use slapo_syntax::ast::{self, AstNode};
use slapo_syntax::{Edit, FileId, ITEM_WORDS, Parse, Span, SyntaxKind, SyntaxNode, SyntaxToken, parse};

/// Names no schedule.
const MARKER: &str = "zzCursorzz";

/// One suggestion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    pub label: String,
    pub kind: CompletionKind,
    /// Half a line: a class, a shape, a signature.
    pub detail: String,
    /// Markdown.
    pub docs: String,
    /// What is put in for `replaced`; `$0` is where the cursor goes.
    pub insert: String,
    /// What is typed of the word so far.
    pub replaced: Span,
    /// What is to be changed elsewhere: an import that is missing.
    pub also: Vec<Edit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    Module,
    /// A parameter or a buffer.
    Tensor,
    /// A primitive or what can be asked of a path.
    Method,
    /// A schedule or a function.
    Function,
    /// The label of an argument.
    Label,
    Value,
    Axis,
    /// A word of the language that is a value.
    Word,
    Type,
    Keyword,
    Library,
}

/// What may stand at `offset`, the likeliest first.
pub fn completions(snapshot: &Snapshot, offset: u32) -> Vec<Completion> {
    let text = snapshot.text();
    let Some(before) = text.get(..offset as usize) else { return Vec::new() };
    if let Some(path) = files::model_path(before) {
        return files::archives(snapshot, offset - path.len() as u32..offset);
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let start = before.trim_end_matches(is_word).len();
    let end = before.len() + text[before.len()..].find(|c| !is_word(c)).unwrap_or(text.len() - before.len());
    let Some(marked) = marked(snapshot.file, text, start, end) else { return Vec::new() };
    let view = View::on(&marked, snapshot);
    let Some(word) = view.word(start as u32) else { return Vec::new() };
    let replaced = Span::new(snapshot.file, start as u32, end as u32);
    let mut list = List { replaced, beside: &snapshot.beside.modules, items: Vec::new() };
    list.at(&view, word);
    list.items
}

/// The text with a word at the cursor, parsed: as it is, with the brackets closed that are open on its line, or with a body
/// behind them.
fn marked(file: FileId, text: &str, start: usize, end: usize) -> Option<Parse> {
    let line = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let mut closers = Vec::new();
    for c in text[line..start].chars() {
        match c {
            '(' => closers.push(')'),
            '[' => closers.push(']'),
            '{' if line_uses_braces(&text[line..start]) => closers.push('}'),
            ')' | ']' | '}' => {
                closers.pop();
            }
            _ => {}
        }
    }
    let closed: String = closers.iter().rev().collect();
    let with_body = format!("{closed} {{}}");
    let parsed = |closed: &str| parse(file, &format!("{}{MARKER}{closed}{}", &text[..start], &text[end..]));
    let is_placed = |parse: &Parse| {
        let word = parse.tree.token_at(start as u32);
        word.is_some_and(|word| !word.parent().ancestors().any(|node| node.kind() > SyntaxKind::MissingClose))
    };
    let mut tries = [closed.as_str(), with_body.as_str()].into_iter().map(parsed);
    let open = parsed("");
    if is_placed(&open) { Some(open) } else { tries.find(is_placed).or(Some(open)) }
}

/// Braces of a path or a `use` close on their line; those of blocks do not.
fn line_uses_braces(line: &str) -> bool {
    line.trim_start().starts_with("use ") || line.contains(".{")
}

struct List<'s> {
    replaced: Span,
    /// Modules that can be used.
    beside: &'s [String],
    items: Vec<Completion>,
}

impl List<'_> {
    fn push(&mut self, label: &str, kind: CompletionKind, detail: &str, docs: &str) {
        self.push_as(label, kind, detail, docs, label.to_owned());
    }

    fn push_as(&mut self, label: &str, kind: CompletionKind, detail: &str, docs: &str, insert: String) {
        if self.items.iter().any(|item| item.label == label && item.kind == kind) {
            return;
        }
        let (detail, docs) = (detail.to_owned(), docs.to_owned());
        let (replaced, also) = (self.replaced, Vec::new());
        self.items.push(Completion { label: label.to_owned(), kind, detail, docs, insert, replaced, also });
    }

    fn call(&mut self, kind: CompletionKind, signature: &Signature) {
        let insert = match signature.params.iter().any(|param| !param.is_optional) || kind == CompletionKind::Function {
            true => format!("{}($0)", signature.name),
            false => format!("{}()", signature.name),
        };
        self.push_as(&signature.name, kind, &signature.label, &signature.docs, insert);
    }

    fn at<'v>(&mut self, view: &'v View<'_>, word: SyntaxToken<'v>) {
        let parent = word.parent();
        match parent.kind() {
            SyntaxKind::FieldExpr | SyntaxKind::MethodCall | SyntaxKind::BraceName => self.below(view, parent),
            SyntaxKind::UseItem | SyntaxKind::UseNames => self.library(view, word),
            SyntaxKind::NamedType => self.types(view),
            SyntaxKind::Arg => self.labels(view, parent),
            SyntaxKind::Entry if inside(parent, SyntaxKind::InputItem) => self.sizes(),
            SyntaxKind::BadItem if parent.text().starts_with("input") && parent.start() < word.start() => self.sizes(),
            SyntaxKind::NameExpr | SyntaxKind::CallExpr | SyntaxKind::Literal => self.value(view, parent),
            SyntaxKind::BadItem | SyntaxKind::File | SyntaxKind::Misplaced => self.items(),
            _ if in_block(parent) => self.statement(view, word.start()),
            _ => self.items(),
        }
    }

    /// Behind a dot: names of the model, then words with parentheses.
    fn below<'v>(&mut self, view: &'v View<'_>, node: SyntaxNode<'v>) {
        let is_brace = node.kind() == SyntaxKind::BraceName;
        let node = if is_brace { node.parent().unwrap_or(node) } else { node };
        let receiver = node.children().find_map(ast::Expr::cast);
        let selected = receiver.and_then(|receiver| view.select(receiver));
        let mut is_point = receiver.is_some_and(is_point);
        let mut places = Vec::new();
        if let (Some(model), Some(selected)) = (view.model, selected) {
            is_point = false;
            for name in selected.places.iter().flat_map(|place| place.names(model)) {
                let found = selected.places.iter().find_map(|place| place.named(model, name));
                if let Some(place) = found.filter(|_| name.chars().all(|c| c.is_alphanumeric() || c == '_')) {
                    let is_module = place.module().is_some();
                    let kind = if is_module { CompletionKind::Module } else { CompletionKind::Tensor };
                    let detail = describe::tensor(model, place).unwrap_or_else(|| describe::class(model, place));
                    self.push(name, kind, &detail, "");
                }
            }
            places = selected.places;
        }
        if is_brace {
            return;
        }
        if selected_is_container(view.model, &places) {
            self.push("*", CompletionKind::Module, &describe::counted(&children(view.model, &places)), "");
        }
        if receiver.is_some_and(|receiver| is_match(view, receiver)) {
            let takes = |receiver| matches!(receiver, Receiver::Match | Receiver::ModuleOrMatch);
            for primitive in primitives::ALL.iter().filter(|primitive| takes(primitive.receiver)) {
                self.call(CompletionKind::Method, &Signature::of_primitive(primitive));
            }
            return;
        }
        let fits = |receiver: Receiver| match places.as_slice() {
            [] if is_point => receiver.takes_points(),
            [] => receiver != Receiver::Point,
            all => all.iter().any(|place| receiver.takes(*place, is_point, false)),
        };
        for primitive in primitives::ALL.iter().filter(|primitive| fits(primitive.receiver)) {
            self.call(CompletionKind::Method, &Signature::of_primitive(primitive));
        }
        for query in Query::names().filter_map(Query::find).filter(|query| asked(*query, &places, is_point)) {
            self.call(CompletionKind::Method, &Signature::of_query(query));
        }
    }

    fn types(&mut self, view: &View<'_>) {
        for (name, _) in Kind::NAMED {
            self.push(name, CompletionKind::Type, "type", "");
        }
        for declaration in view.scope.declarations.iter().filter(|one| matches!(one.by, By::Type(_))) {
            let docs = declaration.by.docs().unwrap_or_default();
            self.push(declaration.name.text(), CompletionKind::Type, "type of this file", &docs);
        }
        self.classes(view);
    }

    fn classes(&mut self, view: &View<'_>) {
        for module in view.model.into_iter().flat_map(|model| &model.modules) {
            if !module.short_class().is_empty() {
                self.push(module.short_class(), CompletionKind::Type, &module.class, "");
            }
        }
    }

    /// The label of an argument that has a value.
    fn labels(&mut self, view: &View<'_>, arg: SyntaxNode<'_>) {
        let Some((signature, given)) = call_around(view, arg) else { return };
        self.missing_labels(&signature, &given, "");
    }

    fn missing_labels(&mut self, signature: &Signature, given: &Given, colon: &str) {
        for (at, param) in signature.params.iter().enumerate() {
            if param.has_label && at >= given.bare && !given.labels.contains(&param.name) {
                let insert = format!("{}{colon}", param.name);
                self.push_as(&format!("{}:", param.name), CompletionKind::Label, &param.label, &param.docs, insert);
            }
        }
    }

    fn sizes(&mut self) {
        self.push_as("batch", CompletionKind::Label, "rows of one step", "", "batch = $0".to_owned());
        self.push_as("seq", CompletionKind::Label, "length of the sequence", "", "seq = $0".to_owned());
    }

    /// An expression, or the start of a statement.
    fn value(&mut self, view: &View<'_>, node: SyntaxNode<'_>) {
        let at = node.start();
        let Some(parent) = node.parent() else { return };
        if matches!(parent.kind(), SyntaxKind::ExprStmt | SyntaxKind::TryStmt) {
            return if in_block(parent) { self.statement(view, at) } else { self.items() };
        }
        if let Some(knob) = ast::Knob::cast(parent) {
            // The default comes before the domain.
            let domain = knob.domain().filter(|domain| at < domain.syntax().start());
            return self.domain(domain);
        }
        if parent.kind() == SyntaxKind::BinaryExpr {
            let other = parent.children().find(|other| *other != node).and_then(ast::Name::cast);
            let declared = other.and_then(|name| view.scope.find(Space::Value, name.text(), at));
            if let Some(By::Knob(knob)) = declared.map(|declared| declared.by) {
                self.domain(knob.domain());
            }
        }
        if parent.kind() == SyntaxKind::Entry {
            if inside(parent, SyntaxKind::MeshItem) {
                self.words(|kind| kind == WordKind::Auto);
            }
            return self.names(view, at, |by| matches!(by, By::Let(_) | By::Knob(_)));
        }
        let Some(arg) = ast::Arg::cast(parent) else { return self.anything(view, at) };
        if let Some(asked) = parent.parent().and_then(SyntaxNode::parent).and_then(ast::Method::cast)
            && asked.name().is_some_and(|name| matches!(name.text(), "only" | "except" | "is"))
        {
            return self.types(view);
        }
        let Some((signature, given)) = call_around(view, parent) else { return self.anything(view, at) };
        match arg.label() {
            Some(label) => {
                let param = signature.params.iter().find(|param| param.name == label.text());
                self.wanted(view, at, param);
            }
            None => {
                self.wanted(view, at, signature.params.get(given.bare_before));
                self.missing_labels(&signature, &given, ": ");
            }
        }
    }

    fn wanted(&mut self, view: &View<'_>, at: u32, param: Option<&Param>) {
        match param.and_then(|param| param.kind.as_ref()) {
            Some(Kind::Axis) => self.names(view, at, |by| match by {
                By::Axis(_) => true,
                By::Param(_, param) => may_be_axis(param),
                _ => false,
            }),
            Some(Kind::Dim) => self.words(|kind| kind == WordKind::Dim),
            Some(Kind::DType) => self.words(|kind| kind == WordKind::DType),
            Some(Kind::Order) => self.words(|kind| kind == WordKind::Order),
            Some(Kind::Collective) => self.words(|kind| kind == WordKind::Collective),
            Some(Kind::Weights) => self.words(|kind| kind == WordKind::Naming),
            Some(Kind::Layout) => self.words(|kind| kind == WordKind::Layout),
            Some(Kind::Bool) => {
                self.push("true", CompletionKind::Keyword, "", "");
                self.push("false", CompletionKind::Keyword, "", "");
                self.names(view, at, |by| !matches!(by, By::Axis(_)));
            }
            Some(kind) if kind.is_place() => {
                self.names(view, at, |by| matches!(by, By::Let(_) | By::For(_) | By::Param(..)))
            }
            Some(Kind::Pattern) => self.names(view, at, |by| matches!(by, By::Pattern(_) | By::Import(..))),
            Some(Kind::Operator | Kind::Replacement) => self.operators(),
            _ => self.anything(view, at),
        }
    }

    /// The values of a knob.
    fn domain(&mut self, domain: Option<ast::Expr<'_>>) {
        let Some(ast::Expr::List(list)) = domain else { return };
        for element in list.elements() {
            self.push(element.syntax().text(), CompletionKind::Value, "of the knob's values", "");
        }
    }

    fn operators(&mut self) {
        for operator in operators::names().filter_map(operators::find) {
            self.call(CompletionKind::Function, &Signature::of_operator(operator));
        }
    }

    fn anything(&mut self, view: &View<'_>, at: u32) {
        self.names(view, at, |_| true);
        if view.parse.tree.node_at(at).ancestors().any(|node| node.kind() == SyntaxKind::PatternItem) {
            return self.operators();
        }
        for function in Function::names().filter_map(Function::find) {
            self.call(CompletionKind::Function, &Signature::of_function(function));
        }
        for word in ["true", "false", "not"] {
            self.push(word, CompletionKind::Keyword, "", "");
        }
    }

    /// Visible values.
    fn names(&mut self, view: &View<'_>, at: u32, fits: impl Fn(By<'_>) -> bool) {
        let values = view.scope.visible(at).filter(|one| one.by.space() == Space::Value && fits(one.by));
        for declaration in values.filter(|one| one.name.text() != MARKER) {
            let docs = declaration.by.docs().unwrap_or_default();
            let (kind, detail) = match declaration.by {
                By::Axis(entry) => (CompletionKind::Axis, entry.syntax().text().to_owned()),
                By::Param(_, param) | By::Operand(param) => (CompletionKind::Value, param.syntax().text().to_owned()),
                By::Let(bound) => {
                    let value = bound.value().map_or("", |value| value.syntax().text());
                    (CompletionKind::Value, value.lines().next().unwrap_or("").to_owned())
                }
                By::Knob(knob) => (CompletionKind::Value, knob.syntax().text().to_owned()),
                By::For(turn) => {
                    let domain = turn.domain().map_or("", |domain| domain.syntax().text());
                    (CompletionKind::Value, format!("in {domain}"))
                }
                _ => (CompletionKind::Value, String::new()),
            };
            let imported = view.imported(declaration, |item| item.docs().unwrap_or_default());
            let docs = imported.unwrap_or(docs);
            self.push(declaration.name.text(), kind, &detail, &docs);
        }
    }

    fn words(&mut self, fits: impl Fn(WordKind) -> bool) {
        for word in WORDS.iter().filter(|word| fits(word.kind)) {
            let docs = words::word(word.name, word.kind);
            let insert = match words::shaped(word.name) {
                Some(_) if word.kind != WordKind::Dim => format!("{}($0)", word.name),
                _ => word.name.to_owned(),
            };
            self.push_as(word.name, CompletionKind::Word, words::noun(word.kind), docs, insert);
        }
    }

    fn statement(&mut self, view: &View<'_>, at: u32) {
        self.names(view, at, |by| matches!(by, By::Let(_) | By::For(_) | By::Param(..)));
        let callables = view.scope.visible(at).filter(|one| one.by.space() == Space::Callable);
        for declaration in callables.filter(|one| one.name.text() != "main") {
            if let Some(signature) = view.declared(declaration) {
                self.call(CompletionKind::Function, &signature);
            }
        }
        self.library_schedules(view);
        for (word, insert) in [
            ("for", "for $0 in "),
            ("let", "let $0 = "),
            ("if", "if $0 {}"),
            ("require", "require $0"),
            ("try", "try $0"),
        ] {
            self.push_as(word, CompletionKind::Keyword, "statement", "", insert.to_owned());
        }
    }

    fn items(&mut self) {
        for (word, _) in ITEM_WORDS {
            let insert = match *word {
                "use" => "use std.$0",
                "model" => "model \"$0\"",
                "input" => "input { batch = $0 }",
                "mesh" => "mesh { $0 }",
                "schedule" => "schedule $0(m: Module) {\n}",
                _ => "",
            };
            let insert = if insert.is_empty() { format!("{word} $0") } else { insert.to_owned() };
            self.push_as(word, CompletionKind::Keyword, "item", "", insert);
        }
        self.push_as("let", CompletionKind::Keyword, "item", "", "let $0 = ".to_owned());
    }
}

/// What a call was given already, the argument at the cursor aside.
struct Given {
    labels: Vec<String>,
    /// Arguments without a label.
    bare: usize,
    /// Those before the cursor.
    bare_before: usize,
}

fn call_around(view: &View<'_>, arg: SyntaxNode<'_>) -> Option<(Signature, Given)> {
    let list = ast::ArgList::cast(arg.parent()?)?;
    let name = list.syntax().parent()?.token(SyntaxKind::Word)?;
    let others = || list.args().filter(|other| other.syntax() != arg);
    let bare = || others().filter(|other| other.label().is_none());
    let given = Given {
        labels: others().filter_map(|other| Some(other.label()?.text().to_owned())).collect(),
        bare: bare().count(),
        bare_before: bare().filter(|other| other.syntax().end() <= arg.start()).count(),
    };
    Some((view.signature(name)?, given))
}

fn inside(node: SyntaxNode<'_>, kind: SyntaxKind) -> bool {
    node.ancestors().any(|node| node.kind() == kind)
}

fn in_block(node: SyntaxNode<'_>) -> bool {
    inside(node, SyntaxKind::Block)
}

/// Whether a parameter of a schedule can be an axis: by its type, or because it has none.
fn may_be_axis(param: ast::Param<'_>) -> bool {
    let ty = match param.ty() {
        Some(ast::TypeRef::List(list)) => list.element(),
        ty => ty,
    };
    match ty {
        Some(ast::TypeRef::Named(named)) => {
            named.name().is_some_and(|name| Kind::named(name.text()) == Some(Kind::Axis))
        }
        Some(_) => false,
        None => true,
    }
}

/// Whether places are one container, whose children a `*` is.
fn selected_is_container(model: Option<&Model>, places: &[Place]) -> bool {
    let is_container = |place: &Place| match (model, place.module()) {
        (Some(model), Some(id)) => model.module(id).class.is_empty(),
        _ => false,
    };
    !places.is_empty() && places.iter().all(is_container)
}

fn children(model: Option<&Model>, places: &[Place]) -> Vec<Place> {
    model.into_iter().flat_map(|model| places.iter().flat_map(|place| place.children(model))).collect()
}

/// `m.find(gelu)`, or a name of that.
fn is_match(view: &View<'_>, expr: ast::Expr<'_>) -> bool {
    match expr {
        ast::Expr::Method(method) => method.name().is_some_and(|name| Query::find(name.text()) == Some(Query::Find)),
        ast::Expr::Name(name) => match view.scope.find(Space::Value, name.text(), name.syntax().start()) {
            Some(found) => match found.by {
                By::Let(bound) => {
                    bound.value().is_some_and(|value| !matches!(value, ast::Expr::Name(_)) && is_match(view, value))
                }
                _ => false,
            },
            None => false,
        },
        _ => false,
    }
}

/// `l.input()`, `l.output()`, `w.grad()`
fn is_point(expr: ast::Expr<'_>) -> bool {
    let ast::Expr::Method(method) = expr else { return false };
    let query = method.name().and_then(|name| Query::find(name.text()));
    matches!(query, Some(Query::Input | Query::Output | Query::Grad))
}

/// Whether something can be asked of what stands before the dot.
fn asked(query: Query, places: &[Place], is_point: bool) -> bool {
    let has = |is_module: bool| places.is_empty() || places.iter().any(|place| place.module().is_some() == is_module);
    match query {
        Query::Input | Query::Output => has(true) && !is_point,
        Query::Grad => has(false) || is_point,
        Query::Size => has(false) && !is_point,
        _ => !is_point,
    }
}
