//! Views of blocks and statements.

use super::*;
use crate::kind::SyntaxKind as K;

nodes! {
    /// `{ … }`
    Block = Block;
    /// `let name = value`; an item as well
    Let = LetStmt;
    /// `for name in domain { … }`
    For = ForStmt;
    /// `if … { … } else if … { … } else { … }`
    If = IfStmt;
    /// One condition of an `if` with its block
    IfBranch = IfBranch;
    /// `require condition, "message"`
    Require = RequireStmt;
    /// `try call`
    Try = TryStmt;
    /// A call; the grammar lets any expression stand here
    ExprStmt = ExprStmt;
}

choice! {
    /// What a block consists of.
    Stmt {
        Let(Let),
        For(For),
        If(If),
        Require(Require),
        Try(Try),
        Expr(ExprStmt),
    }
}

impl<'t> Block<'t> {
    /// The statements in source order; broken ones are left out.
    pub fn statements(self) -> impl Iterator<Item = Stmt<'t>> {
        children(self.0)
    }
}

impl<'t> Let<'t> {
    pub fn name(self) -> Option<SyntaxToken<'t>> {
        name(self.0)
    }

    pub fn value(self) -> Option<Expr<'t>> {
        child(self.0)
    }

    pub fn docs(self) -> Option<String> {
        docs_above(self.0)
    }
}

impl<'t> For<'t> {
    pub fn name(self) -> Option<SyntaxToken<'t>> {
        name(self.0)
    }

    /// A list, a selection, a module or a range.
    pub fn domain(self) -> Option<Expr<'t>> {
        child(self.0)
    }

    pub fn body(self) -> Option<Block<'t>> {
        child(self.0)
    }
}

impl<'t> If<'t> {
    /// The `if` and every `else if`, in order.
    pub fn branches(self) -> impl Iterator<Item = IfBranch<'t>> {
        children(self.0)
    }

    /// The block of the final `else`.
    pub fn else_body(self) -> Option<Block<'t>> {
        self.0.child(K::ElseBranch).and_then(child)
    }
}

impl<'t> IfBranch<'t> {
    pub fn condition(self) -> Option<Expr<'t>> {
        child(self.0)
    }

    pub fn body(self) -> Option<Block<'t>> {
        child(self.0)
    }
}

impl<'t> Require<'t> {
    pub fn condition(self) -> Option<Expr<'t>> {
        child(self.0)
    }

    pub fn message(self) -> Option<Str<'t>> {
        Str::in_node(self.0)
    }
}

impl<'t> Try<'t> {
    /// Should be a call; the checker says so where it is not.
    pub fn call(self) -> Option<Expr<'t>> {
        child(self.0)
    }
}

impl<'t> ExprStmt<'t> {
    pub fn expr(self) -> Option<Expr<'t>> {
        child(self.0)
    }
}
