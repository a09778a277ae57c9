//! What `replace` is given: an operator or an archive, and pairs that say which name of the archive is what in the model.

use super::super::hir::{Expr, ExprKind};
use super::super::types::{Kind, PlaceKind, Ty, Want};
use super::Unit;
use crate::patterns::operators;
use slapo_syntax::ast::{self, AstNode, LiteralKind};
use slapo_syntax::{Code, Diagnostic, Span};

impl Unit<'_, '_> {
    /// An operator, or a string that is the path of an archive.
    pub(super) fn replacement(&mut self, value: Option<ast::Expr<'_>>, at: Span, name: &str) -> Expr {
        let given = match value {
            Some(ast::Expr::Literal(literal)) if matches!(literal.kind(), Some(LiteralKind::Str(_))) => {
                return self.expr(value, at);
            }
            // An operator goes before a name that happens to be the same.
            Some(ast::Expr::Name(word)) if operators::find(word.text()).is_none() => {
                match self.visible(word.text(), word.span()) {
                    Some(known) => known,
                    None => return self.operator(value, at, name),
                }
            }
            _ => return self.operator(value, at, name),
        };
        let fits = |ty: &Ty| matches!(ty, Ty::Text | Ty::Any);
        self.expect_type(given, fits, &format!("`{name}` takes an operator or the path of an archive"))
    }

    /// `[["up.weight", m.mlp.c_fc.weight]]`; or, for weights, a word.
    pub(super) fn pairs(&mut self, want: &Want, value: Option<ast::Expr<'_>>, at: Span, name: &str) -> Expr {
        let list = match value {
            Some(ast::Expr::List(list)) => list,
            Some(ast::Expr::Paren(paren)) => return self.pairs(want, paren.inner(), at, name),
            Some(ast::Expr::Error(_)) | None => return Expr::error(at),
            _ => {
                let value = self.expr(value, at);
                let fits = |ty: &Ty| !matches!(ty, Ty::List(_)) && want.accepts(ty);
                return self.expect_type(value, fits, &format!("`{name}` takes {want}"));
            }
        };
        let pairs: Vec<Expr> = list.elements().map(|element| self.pair(want, element, name)).collect();
        let kind = if pairs.iter().any(Expr::is_error) { ExprKind::Error } else { ExprKind::List(pairs) };
        Expr { span: list.span(), ty: Ty::List(Box::new(Ty::Any)), kind }
    }

    fn pair(&mut self, want: &Want, element: ast::Expr<'_>, name: &str) -> Expr {
        let span = element.span();
        let parts: Vec<ast::Expr<'_>> = match element {
            ast::Expr::List(list) => list.elements().collect(),
            ast::Expr::Error(_) => return Expr::error(span),
            _ => Vec::new(),
        };
        let (noun, example) = match want.kind {
            Kind::Ports => ("a point", "[\"hidden\", m.mlp.input()]"),
            _ => ("a parameter, or a list of them,", "[\"up.weight\", m.mlp.c_fc.weight]"),
        };
        let [word, place] = parts.as_slice() else {
            let diagnostic = Diagnostic::error(Code::WrongType, format!("`{name}` is made of pairs"))
                .primary(span, "no pair")
                .help(format!("a name of the archive and {noun} of the model: `{example}`"));
            self.error(diagnostic);
            return Expr::error(span);
        };
        let word = self.expr(Some(*word), span);
        let word = self.expect_type(word, |ty| matches!(ty, Ty::Text | Ty::Any), "the first of a pair is a name");
        let fits = |ty: &Ty| match (&want.kind, ty) {
            (_, Ty::Any) | (Kind::Ports, Ty::Point) => true,
            (Kind::Weights, Ty::Place(kind)) => *kind != PlaceKind::Module,
            _ => false,
        };
        let mut second = |place: ast::Expr<'_>| {
            let place = self.expr(Some(place), span);
            self.expect_type(place, fits, &format!("the second of a pair is {noun}"))
        };
        let place = match place {
            // Not a selection, which would be in the model's order.
            ast::Expr::List(list) if want.kind == Kind::Weights => {
                let span = list.span();
                let parts: Vec<Expr> = list.elements().map(second).collect();
                let kind = if parts.iter().any(Expr::is_error) { ExprKind::Error } else { ExprKind::List(parts) };
                Expr { span, ty: Ty::List(Box::new(Ty::Any)), kind }
            }
            one => second(*one),
        };
        if word.is_error() || place.is_error() {
            return Expr::error(span);
        }
        Expr { span, ty: Ty::List(Box::new(Ty::Any)), kind: ExprKind::List(vec![word, place]) }
    }
}
