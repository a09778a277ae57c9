//! Values at the top of files: each evaluated once, when it is first needed.

use super::super::hir::{Domain, GlobalId};
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
        let result = self.value(&global.value).and_then(|value| {
            self.in_domain(&global.name, &value, global.domain.as_ref(), global.value.span)?;
            Ok(value)
        });
        self.globals[id.0 as usize] = match &result {
            Ok(value) => Memo::Done(value.clone()),
            Err(_) => Memo::Failed,
        };
        result
    }

    fn in_domain(&mut self, name: &str, value: &Value, domain: Option<&Domain>, span: slapo_syntax::Span) -> Eval<()> {
        let (fits, legal) = match domain {
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
        let message = format!("knob `{name}` starts as {}, which it may not be", self.show(value));
        Err(self.fail(
            Diagnostic::error(Code::BadValue, message)
                .primary(span, "not in its domain")
                .help(format!("legal here: {legal}")),
        ))
    }
}
