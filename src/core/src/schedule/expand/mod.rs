//! Expansion: what a schedule does to one model, step by step.
//!
//! Loops are unrolled, conditions decided, schedules inlined. Every step is found legal and applied before the next
//! statement is looked at. A statement that fails is reported and left out; what depends on it is left out without a
//! word. Read [`Expander`] first; `values` evaluates expressions, `calls` makes steps.

mod branches;
mod calls;
mod coerce;
mod failures;
mod globals;
mod matches;
mod paths;
mod queries;
mod replaced;
mod values;

use super::archives::Archives;
use super::hir::{Block, Domain, Expr, ExprKind, Hir, LocalId, Stmt, StmtKind};
use super::mesh::Mesh;
use super::misfits::Misfit;
use super::points::Ports;
use super::report::Report;
use super::select::{Place, Selector};
use super::steps::{Chain, FrameKind, Site};
use super::value::Value;
use super::{Overrides, Skipped};
use crate::primitives::State;
use globals::Memo;
use slapo_model::{InputSizes, Model, ModuleId};
use slapo_syntax::ast::BinaryOp;
use slapo_syntax::{Code, Diagnostic, FileId, SourceMap, Span};
use std::rc::Rc;

/// Statements, turns of loops and elements that one schedule may take: ample for any model, and reached in a second.
const MOST_WORK: u32 = 1_000_000;
const MOST_STEPS: usize = 200_000;
/// Schedules inside each other.
const DEEPEST_CALL: u32 = 64;

/// The state of one expansion.
pub struct Expander<'a> {
    pub hir: &'a Hir,
    pub model: Option<&'a Model>,
    pub overrides: &'a Overrides,
    /// What replacements come from.
    pub archives: Archives,
    pub report: Report,
    pub mesh: Mesh,
    /// The text has syntax errors: what is missing may be in what could not be read.
    pub is_broken: bool,
    files: &'a SourceMap,
    /// The file that is checked; everything else is library.
    user: FileId,
    selector: Option<Selector<'a>>,
    ports: Option<Rc<Ports<'a>>>,
    globals: Vec<Memo>,
    /// Absent without a model.
    pub state: Option<State<'a>>,
    pub skipped: Vec<Skipped>,
    /// Dimensions that an axis does not divide: said together at the end.
    pub misfits: Vec<Misfit>,
    /// Values of the schedule at hand; `None` where something failed.
    frame: Vec<Option<Value>>,
    /// Calls and iterations around the statement at hand.
    chain: Chain,
    depth: u32,
    /// Under `try`: what is not applicable is no error.
    is_trying: bool,
    not_taken: branches::NotTaken,
    work: u32,
    failures: u32,
}

/// Why evaluation went no further.
#[derive(Clone, Debug)]
pub enum Stop {
    /// Something is wrong, and was said.
    Reported,
    /// A requirement failed: the schedule at hand ends.
    Leave,
    /// A limit was passed: everything ends.
    Exhausted,
    /// Under `try`: nothing would change, for this reason.
    NotApplicable { what: String, reason: String },
}

pub type Eval<T> = Result<T, Stop>;

impl<'a> Expander<'a> {
    pub fn new(
        files: &'a SourceMap,
        user: FileId,
        hir: &'a Hir,
        model: Option<&'a Model>,
        overrides: &'a Overrides,
        report: Report,
    ) -> Expander<'a> {
        Expander {
            hir,
            model,
            overrides,
            archives: Archives::default(),
            report,
            mesh: Mesh::default(),
            is_broken: false,
            files,
            user,
            selector: model.map(Selector::new),
            ports: model.map(|model| Rc::new(Ports::new(model))),
            globals: hir.globals.iter().map(|_| Memo::Open).collect(),
            state: None,
            skipped: Vec::new(),
            misfits: Vec::new(),
            frame: Vec::new(),
            chain: Chain::default(),
            depth: 0,
            is_trying: false,
            not_taken: branches::NotTaken::default(),
            work: 0,
            failures: 0,
        }
    }

    /// Runs `main` on the model.
    pub fn entry(&mut self, sizes: Option<InputSizes>) {
        let (Some(ports), Some(main)) = (self.ports.clone(), self.hir.entry) else { return };
        self.state = Some(State::new(ports, sizes, self.mesh.effects()).with(self.archives.clone()));
        let main = self.hir.schedule(main);
        let ([param], false) = (main.params.as_slice(), main.is_recursive) else { return };
        let root = Place::Module(ModuleId(0));
        let Ok(root) = self.coerce(Value::Place(root), &param.want, param.span, &main.name, &param.name) else {
            return;
        };
        self.frame = vec![None; main.locals as usize];
        self.frame[0] = Some(root);
        // Whatever stops it was reported.
        let _ = self.block(&main.body);
    }

    /// The command line's number of micro-batches, in place of the schedule's.
    pub fn micro_batches(&mut self) {
        let (Some(asked), Some(state)) = (self.overrides.micro_batches, &mut self.state) else { return };
        state.effects.micro_batches = asked;
        let batch = state.sizes.map_or(0, |sizes| sizes.batch);
        let parts = state.data_parts();
        if asked == 0 || batch % i64::from(asked).saturating_mul(parts) != 0 {
            self.report.push(super::faults::indivisible(batch, i64::from(asked), parts));
        }
    }

    pub(super) fn block(&mut self, block: &'a Block) -> Eval<()> {
        for stmt in &block.0 {
            if self.is_behind_the_end(stmt) {
                continue;
            }
            match self.stmt(stmt) {
                Err(Stop::Reported) | Ok(()) => {}
                stop => return stop,
            }
        }
        Ok(())
    }

    /// Whether `--until` leaves a statement of the entry out.
    fn is_behind_the_end(&self, stmt: &Stmt) -> bool {
        let Some(until) = self.overrides.until.filter(|_| self.depth == 0) else { return false };
        self.files.line_column(stmt.span.file, stmt.span.start).line > until
    }

    fn stmt(&mut self, stmt: &'a Stmt) -> Eval<()> {
        self.work(stmt.span)?;
        match &stmt.kind {
            StmtKind::Let { local, value } => {
                self.set(*local, None);
                let value = self.value(value)?;
                self.set(*local, Some(value));
                Ok(())
            }
            StmtKind::For { local, name, head, domain, body } => self.for_stmt(*local, name, *head, domain, body),
            StmtKind::If { branches, otherwise } => {
                let mut taken = None;
                for (at, (condition, _)) in branches.iter().enumerate() {
                    if self.truth(condition)? {
                        taken = Some(at);
                        break;
                    }
                }
                self.not_taken(branches, otherwise, taken);
                self.block(taken.map_or(otherwise, |at| &branches[at].1))
            }
            StmtKind::Require { condition, message } => self.require(condition, message.as_deref()),
            StmtKind::Call { call, is_tried } => self.call(call, *is_tried),
        }
    }

    fn for_stmt(&mut self, local: LocalId, name: &str, head: Span, domain: &'a Domain, body: &'a Block) -> Eval<()> {
        let around = self.chain.clone();
        let site = self.site(head);
        let mut turns = self.turns(domain)?;
        let mut result = Ok(());
        while let Some(value) = turns.next() {
            self.work(head)?;
            let shown = self.show(&value);
            self.set(local, Some(value));
            let turn = FrameKind::Iteration { variable: name.to_string(), value: shown };
            self.chain = around.push(turn, site.clone());
            result = self.block(body);
            if result.is_err() {
                break;
            }
        }
        self.chain = around;
        result
    }

    fn require(&mut self, condition: &'a Expr, message: Option<&str>) -> Eval<()> {
        if self.truth(condition)? {
            return Ok(());
        }
        let text = self.files.slice(condition.span).to_string();
        let said = message.map_or_else(|| format!("`{text}` does not hold"), str::to_string);
        let mut diagnostic = Diagnostic::error(Code::RequireFailed, said).primary(condition.span, "does not hold");
        let mut operands = Vec::new();
        operands_of(condition, &mut operands);
        let mut shown = Vec::new();
        for operand in operands {
            let value = self.value(operand)?;
            let value = match value {
                Value::Axis(_) => self.number_of(&value, operand.span)?.to_string(),
                value => self.show(&value),
            };
            let line = format!("`{}` is {value}", self.files.slice(operand.span));
            if !shown.contains(&line) {
                shown.push(line);
            }
        }
        diagnostic.notes = shown;
        self.fail(diagnostic);
        Err(Stop::Leave)
    }

    // ---- small things

    fn set(&mut self, local: LocalId, value: Option<Value>) {
        if let Some(slot) = self.frame.get_mut(local.0 as usize) {
            *slot = value;
        }
    }

    fn site(&self, span: Span) -> Site {
        Site::new(self.files, span)
    }

    fn show(&self, value: &Value) -> String {
        value.show(self.model, &self.mesh.axes)
    }

    /// Path of a place as messages name it.
    fn path(&self, place: Place) -> String {
        match self.model.map(|model| place.path(model)) {
            Some(path) if path.is_empty() => "the model".to_string(),
            path => format!("`{}`", path.unwrap_or_default()),
        }
    }

    fn model(&self) -> Eval<&'a Model> {
        self.model.ok_or(Stop::Reported)
    }

    /// Counts one unit of work.
    fn work(&mut self, span: Span) -> Eval<()> {
        if self.not_taken.is_here {
            return self.not_taken.work();
        }
        self.work += 1;
        let steps = self.state.as_ref().map_or(0, |state| state.steps.len());
        if self.work <= MOST_WORK && steps <= MOST_STEPS {
            return Ok(());
        }
        let (count, what) = match steps > MOST_STEPS {
            true => (MOST_STEPS.to_string(), "steps"),
            false => (MOST_WORK.to_string(), "statements"),
        };
        let message = format!("the schedule takes more than {count} {what}");
        self.fail(Diagnostic::error(Code::TooMuchWork, message).primary(span, "stopped here"));
        Err(Stop::Exhausted)
    }

    /// The values of a loop's variable.
    fn turns(&mut self, domain: &'a Domain) -> Eval<Turns> {
        match domain {
            Domain::Range { start, end, inclusive } => {
                let (next, last) = (self.whole(start)?, self.whole(end)?);
                Ok(Turns::Range { next, end: if *inclusive { last.saturating_add(1) } else { last } })
            }
            Domain::Values(expr) => {
                let value = self.filled(expr)?;
                Ok(Turns::Values(self.elements(&value, expr.span)?.into_iter()))
            }
        }
    }
}

enum Turns {
    Range { next: i128, end: i128 },
    Values(std::vec::IntoIter<Value>),
}

impl Turns {
    fn next(&mut self) -> Option<Value> {
        match self {
            Turns::Range { next, end } => (*next < *end).then(|| {
                *next += 1;
                Value::Number((*next - 1).into())
            }),
            Turns::Values(values) => values.next(),
        }
    }
}

/// The parts of a condition whose values say why it is false: what is compared, or a truth value itself.
fn operands_of<'e>(condition: &'e Expr, operands: &mut Vec<&'e Expr>) {
    match &condition.kind {
        ExprKind::Binary(BinaryOp::And | BinaryOp::Or, left, right) => {
            operands_of(left, operands);
            operands_of(right, operands);
        }
        ExprKind::Not(inner) => operands_of(inner, operands),
        ExprKind::Binary(op, left, right) if op.is_comparison() => {
            operands_of(left, operands);
            operands_of(right, operands);
        }
        ExprKind::Number(_) | ExprKind::Bool(_) | ExprKind::Text(_) | ExprKind::Word(_) | ExprKind::Class(_) => {}
        // What a computed operand is made of.
        ExprKind::Binary(_, left, right) => {
            operands_of(left, operands);
            operands_of(right, operands);
        }
        ExprKind::Neg(inner) => operands_of(inner, operands),
        _ => operands.push(condition),
    }
}

/// A list that is not a selection.
fn list(values: Vec<Value>) -> Value {
    Value::List(Rc::new(values))
}
