//! Schedules: their parameters, then their bodies, once every name of the file is known.

use super::super::hir::{LocalId, Param, ScheduleId};
use super::super::nearest::some_of;
use super::super::types::{Kind, Ty, Want};
use super::{Local, Unit};
use slapo_syntax::ast::{self, AstNode};
use slapo_syntax::{Code, Diagnostic, Span, SyntaxToken};

impl Unit<'_, '_> {
    pub(super) fn signature(&mut self, id: ScheduleId, schedule: ast::Schedule<'_>) {
        let mut params: Vec<Param> = Vec::new();
        let is_broken = self.resolver.hir.schedule(id).has_broken_head;
        for param in schedule.params().into_iter().flat_map(ast::ParamList::params) {
            let Some(name) = param.name() else { continue };
            let want = match param.ty() {
                Some(ty) => self.want(ty),
                None => {
                    if !is_broken {
                        self.untyped(name);
                    }
                    Want::one(Kind::Unknown)
                }
            };
            let default = param.default().map(|value| self.given(&want, Some(value), param.span(), name.text()));
            params.push(Param { name: name.text().to_string(), span: name.span(), want, default });
        }
        let entry = self.names.callables.get(&self.resolver.entry);
        let is_entry = self.is_user && entry.is_some_and(|(entry, _)| *entry == id);
        if is_entry && !is_broken {
            self.entry_signature(&params, schedule);
        }
        self.resolver.hir.schedules[id.0 as usize].params = params;
    }

    fn untyped(&mut self, name: SyntaxToken<'_>) {
        self.error(
            Diagnostic::error(Code::MissingType, format!("parameter `{}` has no type", name.text()))
                .primary(name.span(), "what may be given here?")
                .help(format!(
                    "write `{}: Module`, or another type: {}",
                    name.text(),
                    some_of(Kind::NAMED.iter().map(|(name, _)| *name))
                )),
        );
    }

    fn entry_signature(&mut self, params: &[Param], schedule: ast::Schedule<'_>) {
        let is_module = |param: &Param| {
            !param.want.list
                && matches!(param.want.kind, Kind::Module | Kind::Class(_) | Kind::Structure(_) | Kind::Unknown)
        };
        if matches!(params, [only] if is_module(only)) || schedule.params().is_none() {
            return;
        }
        let span = schedule.params().map_or(schedule.span(), AstNode::span);
        let name = self.resolver.entry.clone();
        self.error(
            Diagnostic::error(Code::WrongEntry, format!("`{name}` takes one parameter: the model"))
                .primary(span, "not one module")
                .help(format!("write `schedule {name}(m: Module)`; numbers to choose go into `knob`")),
        );
    }

    pub(super) fn body(&mut self, id: ScheduleId, schedule: ast::Schedule<'_>) {
        let params = self.resolver.hir.schedule(id).params.clone();
        self.locals.clear();
        self.slots = 0;
        self.current = Some(id);
        self.names.excuses_all = schedule.params().is_none();
        for param in params {
            self.local(&param.name, param.span, param.want.ty(), Some(Want::one(param.want.kind.clone())));
        }
        let body = schedule.body().map(|body| self.block(body)).unwrap_or_default();
        let known = &mut self.resolver.hir.schedules[id.0 as usize];
        known.body = body;
        known.locals = self.slots;
        self.locals.clear();
        self.current = None;
        self.names.excuses_all = false;
    }

    /// Declares a name of the schedule at hand. Its slot exists even where the name may not be used.
    pub(super) fn local(&mut self, name: &str, span: Span, ty: Ty, want: Option<Want>) -> LocalId {
        let id = LocalId(self.slots);
        self.slots += 1;
        if self.claim(name, span) {
            self.locals.push(Local { name: name.to_string(), id, ty, want, span });
        }
        id
    }
}
