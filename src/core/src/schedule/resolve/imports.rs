//! `use`: what the standard library and other files declare.

use super::super::modules::{self, Found, LIBRARY};
use super::super::nearest::{corrected, did_you_mean, nearest, some_of};
use super::functions::library_module_of;
use super::{Named, Names, Resolver, Unit};
use slapo_syntax::ast::{AstNode, Use};
use slapo_syntax::{Code, Diagnostic, Span, SyntaxToken, parse};
use std::rc::Rc;
use std::sync::Arc;

/// A module that is being resolved.
pub(super) struct Open {
    path: String,
    /// What uses it.
    by: Span,
}

impl Unit<'_, '_> {
    pub(super) fn import(&mut self, item: Use<'_>) {
        let (path, wanted) = modules::parts(item);
        let Some(module) = self.module(&path, item) else {
            self.names.excused.extend(wanted.iter().map(|word| word.text().to_string()));
            return;
        };
        let shown = dotted(&path);
        if wanted.is_empty() {
            self.nothing_named(item, &shown, Some(&module));
        }
        for word in wanted {
            self.import_name(&module, word, &shown);
        }
    }

    fn nothing_named(&mut self, item: Use<'_>, module: &str, names: Option<&Names>) {
        let known = names.map(|names| format!("it has {}: ", some_of(names.own())));
        self.error(
            Diagnostic::error(Code::UnknownImport, format!("nothing of `{module}` is named"))
                .primary(item.span(), "names a module, but nothing in it")
                .help(format!("{}`use {module}.{{…}}`", known.unwrap_or_default())),
        );
    }

    /// Takes all that a module declares under a name: a schedule, a value and a type may share it.
    fn import_name(&mut self, module: &Names, word: SyntaxToken<'_>, path: &str) {
        let (name, span) = (word.text(), word.span());
        let callable = module.callables.get(name);
        let value = module.values.get(name).filter(|(named, _)| !matches!(named, Named::Axis(_)));
        let ty = module.types.get(name);
        let is_there = callable.is_some() || value.is_some() || ty.is_some();
        if !is_there || module.imported.contains_key(name) {
            return self.no_import(module, word, path);
        }
        if let Some((id, _)) = callable
            && self.claim_callable(name, span)
        {
            self.names.callables.insert(name.to_string(), (*id, span));
        }
        if let Some((named, _)) = value
            && self.claim(name, span)
        {
            self.names.values.insert(name.to_string(), (*named, span));
        }
        if let Some((want, _)) = ty
            && self.claim_type(name, span)
        {
            self.names.types.insert(name.to_string(), (want.clone(), span));
        }
        self.names.imported.insert(name.to_string(), path.to_string());
    }

    fn no_import(&mut self, module: &Names, word: SyntaxToken<'_>, path: &str) {
        let name = word.text();
        self.names.excused.insert(name.to_string());
        if module.excused.contains(name) {
            return;
        }
        let known = module.own();
        let help = match module.imported.get(name) {
            Some(from) => format!("it takes it from `{from}`: `use {from}.{name}`"),
            None => did_you_mean(name, known.clone()).unwrap_or_else(|| format!("it has {}", some_of(known.clone()))),
        };
        let diagnostic = Diagnostic::error(Code::UnknownImport, format!("`{path}` has no `{name}`"))
            .primary(word.span(), "not there")
            .help(help);
        let diagnostic = corrected(diagnostic, word.span(), name, known);
        self.error(diagnostic);
    }

    /// The module that a path names.
    fn module(&mut self, path: &[SyntaxToken<'_>], item: Use<'_>) -> Option<Rc<Names>> {
        let (at, name) = match path {
            [first, .., last] | [first @ last] if first.text() != LIBRARY => {
                let key = modules::path_of(&self.folder, path);
                let whole: Vec<SyntaxToken> = item.segments().collect();
                let found = self.resolver.found;
                if !found.has(&key) && found.has(&modules::path_of(&self.folder, &whole)) {
                    self.nothing_named(item, &dotted(&whole), None);
                    return None;
                }
                return self.resolver.file(&key, first.span().to(last.span()), &dotted(path));
            }
            [_, module] => match self.resolver.library(module.text()) {
                Some(names) => return Some(names),
                None => (module.span(), module.text()),
            },
            [_, _, below, ..] => (below.span(), below.text()),
            _ => (item.span(), LIBRARY),
        };
        let diagnostic = Diagnostic::error(Code::UnknownModule, format!("`{name}` is no module of the library"));
        self.error(unknown_module(diagnostic, at, name));
        None
    }
}

fn dotted(path: &[SyntaxToken<'_>]) -> String {
    path.iter().map(|word| word.text()).collect::<Vec<_>>().join(".")
}

impl Names {
    /// What the module declares itself, each name once.
    fn own(&self) -> impl Iterator<Item = &str> + Clone {
        let callables = self.callables.keys();
        let values = self.values.keys().filter(|name| !self.callables.contains_key(*name));
        let types = self.types.keys().filter(|name| !self.callables.contains_key(*name));
        let all = callables.chain(values).chain(types.filter(|name| !self.values.contains_key(*name)));
        all.filter(|name| !self.imported.contains_key(*name)).map(String::as_str)
    }
}

fn unknown_module(diagnostic: Diagnostic, at: Span, name: &str) -> Diagnostic {
    let modules = slapo_stdlib::names();
    let help = did_you_mean(name, modules.clone());
    let help =
        help.unwrap_or_else(|| format!("modules are {}, as in `use std.memory.{{…}}`", some_of(modules.clone())));
    corrected(diagnostic.primary(at, "unknown module").help(help), at, name, modules)
}

impl Resolver<'_> {
    /// Resolves a module of the library when it is first used.
    fn library(&mut self, name: &str) -> Option<Rc<Names>> {
        let text = slapo_stdlib::module(name)?;
        let key = format!("{LIBRARY}/{name}");
        if let Some(known) = self.modules.get(&key) {
            return known.clone();
        }
        Some(self.resolve(key.clone(), format!("{key}.slapo"), Arc::from(text), LIBRARY))
    }

    /// Resolves a file when it is first used, at `by`.
    fn file(&mut self, key: &str, by: Span, shown: &str) -> Option<Rc<Names>> {
        let in_itself = self.found.own() == Some(key) || self.open.iter().any(|open| open.path == key);
        if in_itself {
            self.cycle(key, by, shown);
            return None;
        }
        if let Some(known) = self.modules.get(key) {
            return known.clone();
        }
        match self.found.get(key) {
            Some(Found::Text { name, text }) => {
                let (name, text) = (name.clone(), text.clone());
                self.open.push(Open { path: key.to_string(), by });
                let names = self.resolve(key.to_string(), name, text, modules::folder(key));
                self.open.pop();
                Some(names)
            }
            found => {
                let (reason, beside) = match found {
                    Some(Found::Nothing { reason, beside }) => (reason.as_deref(), beside.as_slice()),
                    _ => (None, [].as_slice()),
                };
                let diagnostic = no_file(key, shown, reason, beside).primary(by, "unknown module");
                self.report.push(diagnostic);
                self.modules.insert(key.to_string(), None);
                None
            }
        }
    }

    fn resolve(&mut self, key: String, name: String, text: Arc<str>, folder: &str) -> Rc<Names> {
        let file = self.files.add(name, text.clone());
        let parsed = parse(file, &text);
        parsed.diagnostics.iter().for_each(|diagnostic| self.report.push(diagnostic.clone()));
        let names = Rc::new(Unit::new(self, &parsed, Some((&key, folder))).items(&parsed));
        self.modules.insert(key, Some(names.clone()));
        names
    }

    /// Files that use each other have no order in which they could be understood.
    fn cycle(&mut self, key: &str, by: Span, shown: &str) {
        let from = self.open.iter().position(|open| open.path == key).map_or(0, |at| at + 1);
        let around = &self.open[from..];
        let message = match around {
            [] => format!("`{shown}` uses itself"),
            _ => format!("`{shown}` uses itself through other files"),
        };
        let diagnostic = Diagnostic::error(Code::ModuleCycle, message)
            .primary(by, "back to where it began")
            .help("put what both need into a file of its own");
        let diagnostic = around.iter().fold(diagnostic, |diagnostic, open| {
            diagnostic.secondary(open.by, format!("uses `{}`", open.path.replace('/', ".")))
        });
        self.report.push(diagnostic);
    }
}

fn no_file(key: &str, shown: &str, reason: Option<&str>, beside: &[String]) -> Diagnostic {
    let message = match reason {
        Some(reason) => format!("cannot read `{key}.slapo`: {reason}"),
        None => format!("there is no module `{shown}`"),
    };
    let diagnostic = Diagnostic::error(Code::UnknownModule, message);
    if reason.is_some() {
        return diagnostic;
    }
    let (above, last) = shown.rsplit_once('.').map_or(("", shown), |(above, last)| (above, last));
    let library = did_you_mean(shown.split('.').next().unwrap_or(shown), [LIBRARY]);
    match (nearest(last, beside.iter().map(String::as_str)).first(), library_module_of(shown)) {
        (Some(near), _) if above.is_empty() => diagnostic.help(format!("did you mean `{near}`?")),
        (Some(near), _) => diagnostic.help(format!("did you mean `{above}.{near}`?")),
        (None, Some(module)) => diagnostic.help(format!("`{shown}` is in the library: `use std.{module}.{shown}`")),
        (None, None) => diagnostic.help(library.unwrap_or_else(|| {
            let file = shown.replace('.', "/");
            format!("a module is a file beside this one, here `{file}.slapo`, or of the library, as `std.memory` is")
        })),
    }
}
