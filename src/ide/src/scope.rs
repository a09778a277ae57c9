//! Names: what declares them, where they are visible, and who uses them.
//!
//! Follows the tree alone, so that it has answers for text that is broken elsewhere. One name has one meaning wherever
//! it is visible, so what a word stands for is the declaration of that name around it. Read [`Scope`] first.

use crate::imports;
use slapo_core::schedule::Modules;
use slapo_syntax::ast::{self, AstNode, Item, Stmt};
use slapo_syntax::{Parse, SyntaxKind, SyntaxNode, SyntaxToken};
use std::collections::BTreeMap;
use std::ops::Range;

/// All declarations of one file.
#[derive(Default)]
pub struct Scope<'t> {
    /// In the order of the text, but for those of a schedule, which follow its own.
    pub declarations: Vec<Declaration<'t>>,
    /// Their positions, by name.
    named: BTreeMap<&'t str, Vec<usize>>,
    calls: BTreeMap<&'t str, Vec<ast::Call<'t>>>,
}

/// What declares a name.
#[derive(Clone, Debug)]
pub struct Declaration<'t> {
    pub name: SyntaxToken<'t>,
    pub by: By<'t>,
    /// Where the name means this.
    pub visible: Range<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By<'t> {
    /// In a schedule, or at the top of the file.
    Let(ast::Let<'t>),
    For(ast::For<'t>),
    Param(ast::Schedule<'t>, ast::Param<'t>),
    /// What a pattern is about.
    Operand(ast::Param<'t>),
    Knob(ast::Knob<'t>),
    Axis(ast::Entry<'t>),
    Schedule(ast::Schedule<'t>),
    Type(ast::TypeDef<'t>),
    Pattern(ast::Pattern<'t>),
    /// A name of another module, where it means something of that space.
    Import(ast::Use<'t>, Space),
}

/// Name spaces: a schedule and a value may share a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Value,
    Callable,
    Type,
}

impl By<'_> {
    pub fn space(self) -> Space {
        match self {
            By::Let(_) | By::For(_) | By::Param(..) | By::Operand(_) => Space::Value,
            By::Knob(_) | By::Axis(_) | By::Pattern(_) => Space::Value,
            By::Schedule(_) => Space::Callable,
            By::Type(_) => Space::Type,
            By::Import(_, space) => space,
        }
    }

    /// The `##` lines above the declaration.
    pub fn docs(self) -> Option<String> {
        match self {
            By::Let(item) => item.docs(),
            By::Knob(item) => item.docs(),
            By::Schedule(item) => item.docs(),
            By::Type(item) => item.docs(),
            By::Pattern(item) => item.docs(),
            By::For(_) | By::Param(..) | By::Operand(_) | By::Axis(_) | By::Import(..) => None,
        }
    }
}

impl<'t> Scope<'t> {
    /// The names of a schedule that uses these modules.
    pub fn new(parse: &'t Parse, modules: &Modules) -> Scope<'t> {
        let mut scope = Scope::default();
        let whole = 0..parse.root().end() + 1;
        for item in parse.file().items() {
            match item {
                Item::Use(used) => {
                    for (name, space) in imports::names(modules, used) {
                        scope.add(Some(name), By::Import(used, space), whole.clone());
                    }
                }
                Item::Mesh(mesh) => {
                    for entry in mesh.entries() {
                        scope.add(entry.name(), By::Axis(entry), whole.clone());
                    }
                }
                Item::Knob(knob) => scope.add(knob.name(), By::Knob(knob), whole.clone()),
                Item::Let(bound) => scope.add(bound.name(), By::Let(bound), whole.clone()),
                Item::Type(item) => scope.add(item.name(), By::Type(item), whole.clone()),
                Item::Pattern(item) => {
                    scope.add(item.name(), By::Pattern(item), whole.clone());
                    let node = item.syntax();
                    for param in item.params().into_iter().flat_map(ast::ParamList::params) {
                        scope.add(param.name(), By::Operand(param), node.start()..node.end());
                    }
                }
                Item::Schedule(schedule) => {
                    scope.add(schedule.name(), By::Schedule(schedule), whole.clone());
                    scope.schedule(schedule);
                }
                Item::Model(_) | Item::Input(_) => {}
            }
        }
        for call in parse.root().descendants().filter_map(ast::Call::cast) {
            if let Some(name) = call.name() {
                scope.calls.entry(name.text()).or_default().push(call);
            }
        }
        scope
    }

    /// Every call of a schedule or function.
    pub fn calls(&self, name: &str) -> impl Iterator<Item = ast::Call<'t>> {
        self.calls.get(name).into_iter().flatten().copied()
    }

    fn add(&mut self, name: Option<SyntaxToken<'t>>, by: By<'t>, visible: Range<u32>) {
        if let Some(name) = name {
            self.named.entry(name.text()).or_default().push(self.declarations.len());
            self.declarations.push(Declaration { name, by, visible });
        }
    }

    fn schedule(&mut self, schedule: ast::Schedule<'t>) {
        let node = schedule.syntax();
        for param in schedule.params().into_iter().flat_map(ast::ParamList::params) {
            self.add(param.name(), By::Param(schedule, param), node.start()..node.end());
        }
        for inner in node.descendants() {
            let Some(block) = ast::Block::cast(inner) else { continue };
            for statement in block.statements() {
                match statement {
                    Stmt::Let(bound) => {
                        self.add(bound.name(), By::Let(bound), bound.syntax().end()..inner.end());
                    }
                    Stmt::For(turn) => {
                        let body = turn.body().map_or(turn.syntax(), AstNode::syntax);
                        self.add(turn.name(), By::For(turn), body.start()..body.end());
                    }
                    _ => {}
                }
            }
        }
    }

    /// What a name means at a place.
    pub fn find(&self, space: Space, name: &str, at: u32) -> Option<&Declaration<'t>> {
        let means =
            |declaration: &&Declaration<'t>| declaration.by.space() == space && declaration.visible.contains(&at);
        self.named(name).filter(means).last()
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &Declaration<'t>> {
        self.named.get(name).into_iter().flatten().map(|at| &self.declarations[*at])
    }

    /// Everything that may be named at a place.
    pub fn visible(&self, at: u32) -> impl Iterator<Item = &Declaration<'t>> {
        self.declarations.iter().filter(move |declaration| declaration.visible.contains(&at))
    }

    /// What a word declares or stands for; `None` for what the model or the language names.
    pub fn of(&self, word: SyntaxToken<'t>) -> Option<&Declaration<'t>> {
        if let Some(own) = self.named(word.text()).find(|declaration| declaration.name == word) {
            return Some(own);
        }
        let at = word.start();
        match word.parent().kind() {
            SyntaxKind::NameExpr => {
                let (value, ty) = (self.find(Space::Value, word.text(), at), self.find(Space::Type, word.text(), at));
                value.or(ty)
            }
            SyntaxKind::CallExpr => self.find(Space::Callable, word.text(), at),
            SyntaxKind::NamedType => self.find(Space::Type, word.text(), at),
            SyntaxKind::Arg => self.labelled(word),
            _ => None,
        }
    }

    /// The parameter that a label gives a value to.
    fn labelled(&self, label: SyntaxToken<'t>) -> Option<&Declaration<'t>> {
        let call = callee(label.parent())?;
        let By::Schedule(schedule) = self.find(Space::Callable, call.name()?.text(), label.start())?.by else {
            return None;
        };
        let is_param = |declaration: &&Declaration<'t>| matches!(declaration.by, By::Param(of, _) if of == schedule);
        self.named(label.text()).find(is_param)
    }

    /// Every word that means what `declaration` declares, its own included, in the order of the text.
    pub fn uses(&self, parse: &'t Parse, declaration: &Declaration<'t>) -> Vec<SyntaxToken<'t>> {
        let words = parse.root().leaves().filter(|leaf| leaf.kind() == SyntaxKind::Word);
        let same = words.filter(|word| word.text() == declaration.name.text());
        same.filter(|word| self.of(*word).is_some_and(|found| found.name == declaration.name)).collect()
    }
}

/// The call whose argument a node is.
pub fn callee<'t>(arg: SyntaxNode<'t>) -> Option<ast::Call<'t>> {
    ast::Call::cast(arg.parent()?.parent()?)
}
