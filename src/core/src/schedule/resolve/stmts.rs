//! Statements of schedules.

use super::super::hir::{Block, Domain, Expr, Stmt, StmtKind};
use super::super::types::{PlaceKind, Ty};
use super::Unit;
use slapo_syntax::ast::{self, AstNode};
use slapo_syntax::{Code, Diagnostic, Span};

impl Unit<'_, '_> {
    /// A block; its names end with it.
    pub(super) fn block(&mut self, block: ast::Block<'_>) -> Block {
        let visible = self.locals.len();
        let statements = block.statements().filter_map(|stmt| self.stmt(stmt)).collect();
        self.locals.truncate(visible);
        Block(statements)
    }

    fn stmt(&mut self, stmt: ast::Stmt<'_>) -> Option<Stmt> {
        let span = stmt.span();
        let kind = match stmt {
            ast::Stmt::Let(item) => self.let_stmt(item)?,
            ast::Stmt::For(item) => self.for_stmt(item)?,
            ast::Stmt::If(item) => self.if_stmt(item),
            ast::Stmt::Require(item) => StmtKind::Require {
                condition: self.condition(item.condition(), span),
                message: item.message().map(|text| text.value()),
            },
            ast::Stmt::Try(item) => StmtKind::Call { call: self.call_stmt(item.call()?, true)?, is_tried: true },
            ast::Stmt::Expr(item) => StmtKind::Call { call: self.call_stmt(item.expr()?, false)?, is_tried: false },
        };
        Some(Stmt { span, kind })
    }

    fn let_stmt(&mut self, item: ast::Let<'_>) -> Option<StmtKind> {
        let value = self.expr(item.value(), item.span());
        let name = item.name()?;
        let local = self.local(name.text(), name.span(), value.ty.clone(), self.declared(&value));
        Some(StmtKind::Let { local, value })
    }

    fn for_stmt(&mut self, item: ast::For<'_>) -> Option<StmtKind> {
        let domain = self.domain(item.domain(), item.span());
        let (domain, ty) = match domain {
            Domain::Values(values) => {
                let ty = self.turn(&values);
                match ty {
                    Some(ty) => (Domain::Values(values), ty),
                    None => (Domain::Values(Expr::error(values.span)), Ty::Any),
                }
            }
            range => (range, Ty::Number),
        };
        let name = item.name()?;
        let visible = self.locals.len();
        let want = match &domain {
            Domain::Values(values) => self.element(values),
            Domain::Range { .. } => None,
        };
        let local = self.local(name.text(), name.span(), ty, want);
        let body = item.body().map(|body| self.block(body)).unwrap_or_default();
        self.locals.truncate(visible);
        let head = item.domain().map_or(name.span(), |domain| name.span().to(domain.span()));
        Some(StmtKind::For { local, name: name.text().to_string(), head, domain, body })
    }

    /// What the variable of a loop over `values` is.
    fn turn(&mut self, values: &Expr) -> Option<Ty> {
        match &values.ty {
            // A module used as a list is its children.
            Ty::Place(PlaceKind::Module | PlaceKind::Either) => return Some(Ty::Place(PlaceKind::Module)),
            Ty::Any => return Some(Ty::Any),
            ty if ty.element().is_some() => return ty.element(),
            _ => {}
        }
        self.error(
            Diagnostic::error(Code::WrongType, format!("cannot go through {} one by one", values.ty))
                .primary(values.span, values.ty.to_string())
                .help("a loop goes over a list, a selection, the children of a module, or a range such as `0..4`"),
        );
        None
    }

    /// What stands behind `in`.
    pub(super) fn domain(&mut self, domain: Option<ast::Expr<'_>>, at: Span) -> Domain {
        match domain {
            Some(ast::Expr::Range(range)) => Domain::Range {
                start: self.number(range.start(), range.span()),
                end: self.number(range.end(), range.span()),
                inclusive: range.is_inclusive(),
            },
            other => Domain::Values(self.expr(other, at)),
        }
    }

    fn if_stmt(&mut self, item: ast::If<'_>) -> StmtKind {
        let mut branches = Vec::new();
        for branch in item.branches() {
            let condition = self.condition(branch.condition(), branch.span());
            branches.push((condition, branch.body().map(|body| self.block(body)).unwrap_or_default()));
        }
        let otherwise = item.else_body().map(|body| self.block(body)).unwrap_or_default();
        StmtKind::If { branches, otherwise }
    }

    fn condition(&mut self, expr: Option<ast::Expr<'_>>, at: Span) -> Expr {
        let expr = self.expr(expr, at);
        self.expect_type(expr, Ty::is_bool, "a condition is true or false")
    }
}
