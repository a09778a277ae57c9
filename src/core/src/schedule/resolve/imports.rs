//! `use`: schedules of the standard library.

use super::super::nearest::{corrected, did_you_mean, some_of};
use super::{Names, Resolver, Unit};
use slapo_syntax::ast::{AstNode, Use};
use slapo_syntax::{Code, Diagnostic, Span, SyntaxToken, parse};
use std::rc::Rc;

impl Unit<'_, '_> {
    pub(super) fn import(&mut self, item: Use<'_>) {
        let segments: Vec<SyntaxToken> = item.segments().collect();
        let listed: Option<Vec<SyntaxToken>> = item.names().map(Iterator::collect);
        // `use std.memory.every` names one thing, `use std.memory.{a, b}` several.
        let (path, wanted) = match (segments.as_slice(), listed) {
            (path, Some(names)) => (path, names),
            ([path @ .., last], None) if path.len() >= 2 => (path, vec![*last]),
            (path, None) => (path, Vec::new()),
        };
        let Some(module) = self.library(path, item) else {
            self.names.excused.extend(wanted.iter().map(|word| word.text().to_string()));
            return;
        };
        if wanted.is_empty() {
            let names = some_of(module.callables.keys());
            let path: Vec<&str> = path.iter().map(|word| word.text()).collect();
            self.error(
                Diagnostic::error(Code::UnknownImport, format!("nothing of `{}` is named", path.join(".")))
                    .primary(item.span(), "names a module, but nothing in it")
                    .help(format!("it has {names}: `use {}.{{…}}`", path.join("."))),
            );
        }
        for word in wanted {
            self.import_name(&module, word, path);
        }
    }

    fn import_name(&mut self, module: &Names, word: SyntaxToken<'_>, path: &[SyntaxToken<'_>]) {
        let name = word.text();
        if let Some((id, _)) = module.callables.get(name) {
            if self.claim_callable(name, word.span()) {
                self.names.callables.insert(name.to_string(), (*id, word.span()));
            }
            return;
        }
        self.names.excused.insert(name.to_string());
        let path: Vec<&str> = path.iter().map(|word| word.text()).collect();
        let known = module.callables.keys().map(String::as_str);
        let help = did_you_mean(name, known.clone()).unwrap_or_else(|| format!("it has {}", some_of(known.clone())));
        let diagnostic = Diagnostic::error(Code::UnknownImport, format!("`{}` has no `{name}`", path.join(".")))
            .primary(word.span(), "not there")
            .help(help);
        self.error(corrected(diagnostic, word.span(), name, known));
    }

    /// The library module that a path names.
    fn library(&mut self, path: &[SyntaxToken<'_>], item: Use<'_>) -> Option<Rc<Names>> {
        let (at, name) = match path {
            [library, ..] if library.text() != "std" => (library.span(), library.text()),
            [_, module] => match self.resolver.module(module.text()) {
                Some(names) => return Some(names),
                None => (module.span(), module.text()),
            },
            [_, _, below, ..] => (below.span(), below.text()),
            _ => (item.span(), "std"),
        };
        let diagnostic = Diagnostic::error(Code::UnknownModule, format!("`{name}` is no module of the library"));
        self.error(unknown_module(diagnostic, at, name));
        None
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
    /// Resolves a library module when it is first used.
    fn module(&mut self, name: &str) -> Option<Rc<Names>> {
        if let Some(known) = self.library.get(name) {
            return known.clone();
        }
        let text = slapo_stdlib::module(name)?;
        self.library.insert(name.to_string(), None);
        let file = self.files.add(format!("std/{name}.slapo"), text);
        let parsed = parse(file, text);
        let names = Rc::new(Unit::new(self, &parsed, false).items(&parsed));
        self.library.insert(name.to_string(), Some(names.clone()));
        Some(names)
    }
}
