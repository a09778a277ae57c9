//! Values at the top of files: each evaluated once, when it is first needed.

use super::super::KnobValue;
use super::super::hir::{Domain, Global, GlobalId};
use super::super::value::Value;
use super::{Eval, Expander, Stop};
use slapo_syntax::{Code, Diagnostic};

/// A `let` or `knob` at the top of a file.
#[derive(Clone, Debug)]
pub enum Memo {
    Open,
    Done(Value),
    Failed,
}

impl Expander<'_> {
    /// Evaluates those that nothing has needed.
    pub fn all_globals(&mut self) {
        for at in 0..self.globals.len() {
            let _ = self.global(GlobalId(at as u32));
        }
    }

    pub(super) fn global(&mut self, id: GlobalId) -> Eval<Value> {
        match &self.globals[id.0 as usize] {
            Memo::Done(value) => return Ok(value.clone()),
            Memo::Failed => return Err(Stop::Reported),
            Memo::Open => {}
        }
        // Names are used behind their declaration only, so this cannot come back to itself.
        let hir = self.hir;
        let global = hir.global(id);
        let result = self.evaluate(global);
        self.globals[id.0 as usize] = match &result {
            Ok(value) => Memo::Done(value.clone()),
            Err(_) => Memo::Failed,
        };
        result
    }

    /// The value that was chosen, else the default. Each must be legal.
    fn evaluate(&mut self, global: &Global) -> Eval<Value> {
        let default = self.value(&global.value)?;
        self.in_domain(global, &default, false)?;
        let Some(set) = &global.set else { return Ok(default) };
        let chosen = self.value(set)?;
        self.in_domain(global, &chosen, true)?;
        Ok(chosen)
    }

    /// The knobs that have a value: those of the modules that are used, then those of the checked file.
    pub fn knobs(&self) -> Vec<KnobValue> {
        let all = self.hir.globals.iter().zip(&self.globals).filter(|(global, _)| global.knob.is_some());
        let known = all.filter_map(|(global, memo)| match memo {
            Memo::Done(value) => {
                let (name, value) = (global.full_name(), self.argument(value));
                Some(KnobValue { name, value, is_set: global.set.is_some() })
            }
            Memo::Open | Memo::Failed => None,
        });
        known.collect()
    }

    fn in_domain(&mut self, global: &Global, value: &Value, is_set: bool) -> Eval<()> {
        let (name, span) = (global.full_name(), global.value.span);
        let (fits, legal) = match global.knob.as_ref().and_then(|knob| knob.domain.as_ref()) {
            None => return Ok(()),
            Some(Domain::Range { start, end, inclusive }) => {
                let (start, end) = (self.number(start)?, self.number(end)?);
                let value = self.number_of(value, span)?;
                let below = if *inclusive { value <= end } else { value < end };
                (start <= value && below, format!("{start}..{}{end}", if *inclusive { "=" } else { "" }))
            }
            Some(Domain::Values(values)) => {
                let list = self.value(values)?;
                let all = self.elements(&list, values.span)?;
                let shown: Vec<String> = all.iter().map(|value| self.show(value)).collect();
                (all.iter().any(|one| self.is_equal(one, value)), shown.join(", "))
            }
        };
        if fits {
            return Ok(());
        }
        let shown = self.show(value);
        let diagnostic = match is_set {
            false => {
                let message = format!("knob `{name}` starts as {shown}, which it may not be");
                Diagnostic::error(Code::BadValue, message).primary(span, "not in its domain")
            }
            true => Diagnostic::error(Code::BadValue, format!("knob `{name}` may not be {shown}"))
                .primary(span, "its default")
                .note(format!("`--set {name}={shown}` asks for it")),
        };
        Err(self.fail(diagnostic.help(format!("legal here: {legal}"))))
    }
}
