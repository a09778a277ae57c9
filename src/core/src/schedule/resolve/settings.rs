//! What the command line chooses in a schedule's place: the values of knobs, and the schedule to start with.

use super::super::Overrides;
use super::super::builtins::{WORDS, find_word};
use super::super::hir::{Expr, ExprKind, GlobalId};
use super::super::nearest::{did_you_mean, some_of};
use super::super::number::Number;
use super::super::types::Ty;
use super::{Named, Names, Resolver};
use slapo_syntax::ast::{Expr as Tree, Item, LiteralKind, PrefixOp};
use slapo_syntax::{Code, Diagnostic, FileId, Parse, Span};
use std::sync::Arc;

impl Resolver<'_> {
    /// Gives knobs the values that the command line chooses: those of the checked file, those it imports, and by
    /// `blocks.tp.ratio` those of any module that is used. Of several for one knob the last counts.
    pub(super) fn settings(&mut self, names: &Names, overrides: &Overrides) {
        for (name, text) in &overrides.knobs {
            let visible = match names.values.get(name) {
                Some((Named::Global(id), _)) => Some(*id).filter(|id| self.hir.global(*id).knob.is_some()),
                _ => None,
            };
            match visible.or_else(|| self.knobs().find(|(_, known)| known == name).map(|(id, _)| id)) {
                Some(id) => self.set(names, id, name, text),
                None => self.no_knob(names, name, text),
            }
        }
    }

    /// All knobs, with their full names.
    fn knobs(&self) -> impl Iterator<Item = (GlobalId, String)> {
        let globals = self.hir.globals.iter().enumerate();
        globals
            .filter(|(_, global)| global.knob.is_some())
            .map(|(at, global)| (GlobalId(at as u32), global.full_name()))
    }

    fn set(&mut self, names: &Names, global: GlobalId, name: &str, text: &str) {
        let declared = self.hir.global(global);
        let (wanted, span) = (declared.value.ty.clone(), declared.value.span);
        let given = match &wanted {
            // A shell has taken the quotes away.
            Ty::Text => {
                let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
                Some((Ty::Text, ExprKind::Text(Arc::from(bare))))
            }
            Ty::Pattern => match names.values.get(text) {
                Some((Named::Pattern(Some(at)), _)) => Some((Ty::Pattern, ExprKind::Pattern(*at))),
                _ => None,
            },
            _ => value(text),
        };
        let wrong = match given {
            Some((ty, kind)) if wanted.join(&ty).is_some() => {
                self.hir.globals[global.0 as usize].set = Some(Expr { span, ty, kind });
                return;
            }
            Some((ty, _)) => format!("knob `{name}` is {wanted}, not {ty}"),
            None => format!("knob `{name}` is {wanted}, which `{text}` is not"),
        };
        self.report.push(
            Diagnostic::error(Code::WrongType, wrong)
                .primary(span, wanted.to_string())
                .note(format!("`--set {name}={text}` asks for it")),
        );
    }

    fn no_knob(&mut self, names: &Names, name: &str, text: &str) {
        if names.excused.contains(name) {
            return;
        }
        let diagnostic = Diagnostic::error(Code::UnknownKnob, format!("the schedule has no knob `{name}`"));
        let diagnostic = match names.values.get(name) {
            Some((Named::Global(id), span)) if self.hir.global(*id).knob.is_none() => {
                diagnostic.primary(*span, "declared with `let`")
            }
            _ => diagnostic,
        };
        let mut knobs: Vec<String> = self.knobs().map(|(_, name)| name).collect();
        knobs.sort();
        let known: Vec<&str> = knobs.iter().map(String::as_str).collect();
        let help = did_you_mean(name, known.iter().copied()).unwrap_or_else(|| match known.as_slice() {
            [] => format!("it has none: `knob {name} = {text}` declares one"),
            known => format!("its knobs are {}", some_of(known)),
        });
        self.report.push(diagnostic.help(help).note(format!("`--set {name}={text}` asks for it")));
    }

    /// The command line asks for a schedule that the file does not have.
    pub(super) fn no_such_entry(&mut self, wanted: &str, own: &[&str]) {
        let help = did_you_mean(wanted, own.iter().copied()).unwrap_or_else(|| match own {
            [] => "it has no schedules".to_string(),
            own => format!("its schedules are {}", some_of(own)),
        });
        self.report.push(
            Diagnostic::error(Code::UnknownEntry, format!("the file has no schedule `{wanted}`"))
                .help(help)
                .note(format!("`--schedule {wanted}` asks for it")),
        );
    }
}

/// A number, a truth value or a word of the language.
fn value(text: &str) -> Option<(Ty, ExprKind)> {
    let parse = slapo_syntax::parse(FileId(u32::MAX), &format!("let value = {text}"));
    let mut items = parse.file().items();
    let (Some(Item::Let(item)), None, true) = (items.next(), items.next(), parse.is_ok()) else { return None };
    simple(item.value()?)
}

fn simple(expr: Tree<'_>) -> Option<(Ty, ExprKind)> {
    match expr {
        Tree::Literal(literal) => match literal.kind()? {
            LiteralKind::Bool(value) => Some((Ty::Bool, ExprKind::Bool(value))),
            LiteralKind::Str(text) => Some((Ty::Text, ExprKind::Text(Arc::from(text.value())))),
            LiteralKind::Number(number) => {
                let unit = number.unit().map_or(Number::ONE, |unit| Number::from(i128::from(unit.bytes())));
                let value = Number::parse(number.digits()).and_then(|value| value.checked_mul(unit)).ok()?;
                Some((Ty::Number, ExprKind::Number(value)))
            }
        },
        Tree::Prefix(prefix) if prefix.op() == Some(PrefixOp::Neg) => match simple(prefix.operand()?)? {
            (Ty::Number, ExprKind::Number(number)) => Some((Ty::Number, ExprKind::Number(-number))),
            _ => None,
        },
        Tree::Name(name) => {
            let word = find_word(name.text())?;
            Some((Ty::Word(WORDS[word].kind), ExprKind::Word(word as u32)))
        }
        _ => None,
    }
}

/// Names of the schedules that a file declares itself.
pub(super) fn own_schedules(parse: &Parse) -> Vec<(&str, Span)> {
    let names = parse.file().schedules().filter_map(|schedule| schedule.name());
    names.map(|name| (name.text(), name.span())).collect()
}
