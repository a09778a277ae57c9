//! Names of the checked file that nothing reads. A name that begins with `_` may be left unread.

use super::super::mend::whole_lines;
use slapo_syntax::ast::{AstNode, Item, Knob, Let, ParamList, Schedule, Use};
use slapo_syntax::{Code, Diagnostic, Fix, Parse, Span, SyntaxToken};
use std::collections::BTreeSet;

/// `read` holds the places of the names that something reads. What a file without `main` declares is for others to use.
pub fn unused(parse: &Parse, text: &str, read: &BTreeSet<Span>) -> Vec<Diagnostic> {
    let is_main = |schedule: Schedule| schedule.name().is_some_and(|name| name.text() == "main");
    let is_module = !parse.file().schedules().any(is_main);
    let unread = |name: &SyntaxToken| !name.text().starts_with('_') && !read.contains(&name.span());
    let mut found = Vec::new();
    for item in parse.file().items() {
        match item {
            Item::Use(item) => imports(item, text, &unread, &mut found),
            Item::Schedule(schedule) => of_schedule(schedule, is_module, &unread, &mut found),
            _ => {}
        }
    }
    for node in parse.root().descendants() {
        let name = Let::cast(node).map(|item| ("let", item.name()));
        let Some((word, Some(name))) = name.or_else(|| Knob::cast(node).map(|item| ("knob", item.name()))) else {
            continue;
        };
        let is_item = || parse.file().items().any(|item| item.span() == node.span());
        if unread(&name) && !(is_module && is_item()) {
            found.push(
                Diagnostic::warning(Code::UnusedLet, format!("nothing reads `{}`", name.text()))
                    .primary(name.span(), format!("this `{word}` changes nothing"))
                    .fix(Fix::safe("leave the line out").delete(whole_lines(node.span(), text))),
            );
        }
    }
    found
}

fn imports<'t>(item: Use<'t>, text: &str, unread: &dyn Fn(&SyntaxToken<'t>) -> bool, found: &mut Vec<Diagnostic>) {
    let names: Vec<SyntaxToken> = match item.names() {
        Some(names) => names.collect(),
        None => item.segments().last().into_iter().collect(),
    };
    let all = names.iter().all(unread);
    for (at, name) in names.iter().enumerate().filter(|(_, name)| unread(name)) {
        let others = |at: Option<usize>| at.and_then(|at| names.get(at)).map(|name| name.span());
        let edit = match (others(at.checked_sub(1)), others(at.checked_add(1))) {
            // The first one takes the whole line with it.
            _ if all && at == 0 => Some(whole_lines(item.span(), text)),
            _ if all => None,
            (_, Some(next)) => Some(Span::new(next.file, name.span().start, next.start)),
            (Some(before), None) => Some(Span::new(before.file, before.end, name.span().end)),
            (None, None) => None,
        };
        let diagnostic = Diagnostic::warning(Code::UnusedImport, format!("nothing calls `{}`", name.text()))
            .primary(name.span(), "imported for nothing");
        found.push(match edit {
            Some(edit) => diagnostic.fix(Fix::safe("leave the import out").delete(edit)),
            None => diagnostic,
        });
    }
}

fn of_schedule<'t>(
    schedule: Schedule<'t>,
    is_for_others: bool,
    unread: &dyn Fn(&SyntaxToken<'t>) -> bool,
    found: &mut Vec<Diagnostic>,
) {
    let Some(name) = schedule.name() else { return };
    // `main` takes the model, whatever it does with it.
    if name.text() == "main" {
        return;
    }
    if unread(&name) && !is_for_others {
        found.push(
            Diagnostic::warning(Code::UnusedSchedule, format!("nothing calls `{}`", name.text()))
                .primary(name.span(), "never called")
                .help(format!("call it in `main`, or name it `_{}` to keep it", name.text())),
        );
    }
    for param in schedule.params().into_iter().flat_map(ParamList::params).filter_map(|param| param.name()) {
        if unread(&param) {
            let message = format!("`{}` does nothing with its parameter `{}`", name.text(), param.text());
            found.push(
                Diagnostic::warning(Code::UnusedParameter, message)
                    .primary(param.span(), "not used in the schedule")
                    .help("leave it out here and in the calls"),
            );
        }
    }
}
