//! One pattern looked for in a whole model, without a schedule: what `slapoc inspect --find` asks.

use super::expand::Expander;
use super::modules::Modules;
use super::{Overrides, on_large_stack, resolve};
use crate::patterns::Match;
use slapo_model::Model;
use slapo_syntax::ast::Item;
use slapo_syntax::{Diagnostic, SourceMap, parse};
use std::sync::Arc;

/// All matches of `wanted` in `model`: the name of a pattern of `std.fusion`, a pattern such as `square(x) = x * x`, or an
/// expression alone, whose unknown names are tensors. Else what is wrong with it, or how close the model comes; places are in
/// a file that is added to `files`.
pub fn search(files: &mut SourceMap, model: &Model, wanted: &str) -> Result<Vec<Arc<Match>>, Vec<Diagnostic>> {
    on_large_stack(move || {
        let (name, item) = item(wanted.trim());
        let text = format!("{item}\nschedule main(m: Module) {{\n    m.find({name}).checkpoint()\n}}\n");
        let file = files.add("--find", text.as_str());
        let parsed = parse(file, &text);
        let overrides = Overrides::default();
        let resolved = resolve::resolve(files, &parsed, &Modules::default(), true, &overrides);
        let mut expander = Expander::new(files, file, &resolved.hir, Some(model), &overrides, resolved.report);
        expander.is_broken = !parsed.is_ok();
        expander.entry(None);
        let Expander { report, state, .. } = expander;
        let diagnostics = report.finish(file, &parsed.diagnostics);
        if diagnostics.iter().any(Diagnostic::is_error) {
            return Err(diagnostics);
        }
        Ok(state.into_iter().flat_map(|state| state.steps).filter_map(|step| step.target.found).collect())
    })
}

/// The name of the pattern, and the item that makes it known.
fn item(wanted: &str) -> (String, String) {
    let is_name = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_');
    if is_name(wanted) {
        return (wanted.to_string(), format!("use std.fusion.{wanted}"));
    }
    let item = match wanted.strip_prefix("pattern ") {
        Some(_) => wanted.to_string(),
        None if wanted.contains('=') => format!("pattern {wanted}"),
        None => format!("pattern expression({}) = {wanted}", tensors(wanted).join(", ")),
    };
    let mut files = SourceMap::new();
    let file = files.add("", item.as_str());
    let parsed = parse(file, &item);
    let names = parsed.file().items().filter_map(|item| match item {
        Item::Pattern(pattern) => pattern.name().map(|name| name.text().to_string()),
        _ => None,
    });
    let name = names.last().unwrap_or_else(|| "expression".to_string());
    (name, item)
}

/// The names in an expression that are neither operators nor labels nor constants, each once.
fn tensors(expression: &str) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    // What stands in quotes is text.
    for part in expression.split('"').step_by(2) {
        words(part, &mut names);
    }
    names
}

fn words<'t>(text: &'t str, names: &mut Vec<&'t str>) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text;
    while let Some(start) = rest.find(is_word) {
        let from = &rest[start..];
        let end = from.find(|c| !is_word(c)).unwrap_or(from.len());
        let (word, behind) = from.split_at(end);
        let is_name = word.starts_with(|c: char| !c.is_ascii_digit()) && !matches!(word, "pi" | "true" | "false");
        if is_name && !behind.trim_start().starts_with(['(', ':']) && !names.contains(&word) {
            names.push(word);
        }
        rest = behind;
    }
}
