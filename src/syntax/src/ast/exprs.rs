//! Views of expressions.

use super::*;
use crate::kind::SyntaxKind as K;

nodes! {
    /// `m`
    Name = NameExpr;
    /// `column(l, over: tp)`
    Call = CallExpr;
    /// The role `in`, as in `shard(in)`
    RoleIn = RoleIn;
    /// `(x)`
    Paren = ParenExpr;
    /// `[a, b]`
    List = ListExpr;
    /// `-x`, `not x`
    Prefix = PrefixExpr;
    /// `a + b`
    Binary = BinaryExpr;
    /// `m.h`, `m.bias?`: a child, parameter or buffer
    Field = FieldExpr;
    /// `m.fuse()`: something of the language
    Method = MethodCall;
    /// `m.*`
    Star = StarExpr;
    /// `m.**`
    Globstar = GlobstarExpr;
    /// `m.{a, b?}`
    Brace = BraceExpr;
    /// `a` or `b?` in braces
    BraceName = BraceName;
    /// `m[0]`, `m["zh-cn"]`
    Index = IndexExpr;
    /// `m[2..6]`, `m[..n]`
    Slice = SliceExpr;
    /// `0..n`, `0.0..=1.0`
    Range = RangeExpr;
    /// `(a, over: tp)`
    ArgList = ArgList;
    /// `over: tp`
    Arg = Arg;
}

/// Any expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expr<'t> {
    Name(Name<'t>),
    Call(Call<'t>),
    Literal(Literal<'t>),
    RoleIn(RoleIn<'t>),
    Paren(Paren<'t>),
    List(List<'t>),
    Prefix(Prefix<'t>),
    Binary(Binary<'t>),
    Field(Field<'t>),
    Method(Method<'t>),
    Star(Star<'t>),
    Globstar(Globstar<'t>),
    Brace(Brace<'t>),
    Index(Index<'t>),
    Slice(Slice<'t>),
    Range(Range<'t>),
    /// A form that exists only to be explained; an error was reported.
    Error(SyntaxNode<'t>),
}

impl<'t> AstNode<'t> for Expr<'t> {
    fn cast(node: SyntaxNode<'t>) -> Option<Self> {
        Some(match node.kind() {
            K::NameExpr => Expr::Name(Name(node)),
            K::CallExpr => Expr::Call(Call(node)),
            K::Literal => Expr::Literal(Literal(node)),
            K::RoleIn => Expr::RoleIn(RoleIn(node)),
            K::ParenExpr => Expr::Paren(Paren(node)),
            K::ListExpr => Expr::List(List(node)),
            K::PrefixExpr => Expr::Prefix(Prefix(node)),
            K::BinaryExpr => Expr::Binary(Binary(node)),
            K::FieldExpr => Expr::Field(Field(node)),
            K::MethodCall => Expr::Method(Method(node)),
            K::StarExpr => Expr::Star(Star(node)),
            K::GlobstarExpr => Expr::Globstar(Globstar(node)),
            K::BraceExpr => Expr::Brace(Brace(node)),
            K::IndexExpr => Expr::Index(Index(node)),
            K::SliceExpr => Expr::Slice(Slice(node)),
            K::RangeExpr => Expr::Range(Range(node)),
            K::FilterExpr | K::WhereExpr | K::MissingValue | K::TooDeep => Expr::Error(node),
            _ => return None,
        })
    }

    fn syntax(self) -> SyntaxNode<'t> {
        match self {
            Expr::Name(Name(node))
            | Expr::Call(Call(node))
            | Expr::Literal(Literal(node))
            | Expr::RoleIn(RoleIn(node))
            | Expr::Paren(Paren(node))
            | Expr::List(List(node))
            | Expr::Prefix(Prefix(node))
            | Expr::Binary(Binary(node))
            | Expr::Field(Field(node))
            | Expr::Method(Method(node))
            | Expr::Star(Star(node))
            | Expr::Globstar(Globstar(node))
            | Expr::Brace(Brace(node))
            | Expr::Index(Index(node))
            | Expr::Slice(Slice(node))
            | Expr::Range(Range(node))
            | Expr::Error(node) => node,
        }
    }
}

/// An operator between two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[rustfmt::skip]
pub enum BinaryOp { Or, And, Eq, Ne, Lt, Le, Gt, Ge, Add, Sub, Mul, Div, Rem, Pow }

/// An operator before its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PrefixOp {
    Neg,
    Not,
}

impl BinaryOp {
    /// What a token means between operands; operators of other languages mean what they mean there.
    fn of(kind: SyntaxKind) -> Option<Self> {
        Some(match kind {
            K::OrKw | K::PipePipe => Self::Or,
            K::AndKw | K::AmpAmp => Self::And,
            K::EqEq | K::Eq => Self::Eq,
            K::BangEq => Self::Ne,
            K::Less => Self::Lt,
            K::LessEq => Self::Le,
            K::Greater => Self::Gt,
            K::GreaterEq => Self::Ge,
            K::Plus => Self::Add,
            K::Minus => Self::Sub,
            K::Star => Self::Mul,
            K::Slash | K::SlashSlash => Self::Div,
            K::Percent => Self::Rem,
            K::Caret | K::StarStar => Self::Pow,
            _ => return None,
        })
    }

    pub fn symbol(self) -> &'static str {
        match self {
            Self::Or => "or",
            Self::And => "and",
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Rem => "%",
            Self::Pow => "^",
        }
    }

    pub fn is_comparison(self) -> bool {
        Self::Eq <= self && self <= Self::Ge
    }
}

impl<'t> Name<'t> {
    pub fn token(self) -> Option<SyntaxToken<'t>> {
        name(self.0)
    }

    pub fn text(self) -> &'t str {
        self.0.text()
    }
}

impl<'t> Call<'t> {
    pub fn name(self) -> Option<SyntaxToken<'t>> {
        name(self.0)
    }

    pub fn args(self) -> Option<ArgList<'t>> {
        child(self.0)
    }
}

impl<'t> Paren<'t> {
    pub fn inner(self) -> Option<Expr<'t>> {
        child(self.0)
    }
}

impl<'t> List<'t> {
    pub fn elements(self) -> impl Iterator<Item = Expr<'t>> {
        children(self.0)
    }
}

impl<'t> Prefix<'t> {
    pub fn op(self) -> Option<PrefixOp> {
        match self.0.tokens().next()?.kind() {
            K::Minus => Some(PrefixOp::Neg),
            K::NotKw | K::Bang => Some(PrefixOp::Not),
            _ => None,
        }
    }

    pub fn operand(self) -> Option<Expr<'t>> {
        child(self.0)
    }
}

impl<'t> Binary<'t> {
    pub fn left(self) -> Option<Expr<'t>> {
        child(self.0)
    }

    pub fn op(self) -> Option<BinaryOp> {
        self.op_token().and_then(|token| BinaryOp::of(token.kind()))
    }

    pub fn op_token(self) -> Option<SyntaxToken<'t>> {
        self.0.tokens().next()
    }

    pub fn right(self) -> Option<Expr<'t>> {
        children(self.0).nth(1)
    }
}

/// The expression a postfix form is applied to.
macro_rules! receivers {
    ($($view:ident)*) => {$(
        impl<'t> $view<'t> {
            pub fn receiver(self) -> Option<Expr<'t>> {
                child(self.0)
            }
        }
    )*};
}

receivers!(Field Method Star Globstar Brace Index Slice);

impl<'t> Field<'t> {
    pub fn name(self) -> Option<SyntaxToken<'t>> {
        name(self.0)
    }

    /// `m.bias?`: may be absent.
    pub fn is_optional(self) -> bool {
        self.0.token(K::Question).is_some()
    }
}

impl<'t> Method<'t> {
    pub fn name(self) -> Option<SyntaxToken<'t>> {
        name(self.0)
    }

    pub fn args(self) -> Option<ArgList<'t>> {
        child(self.0)
    }
}

impl<'t> Brace<'t> {
    pub fn names(self) -> impl Iterator<Item = BraceName<'t>> {
        children(self.0)
    }
}

impl<'t> BraceName<'t> {
    pub fn name(self) -> Option<SyntaxToken<'t>> {
        name(self.0)
    }

    pub fn is_optional(self) -> bool {
        self.0.token(K::Question).is_some()
    }
}

impl<'t> Index<'t> {
    /// A position or a name.
    pub fn index(self) -> Option<Expr<'t>> {
        child_behind(self.0, &[K::LBracket])
    }
}

impl<'t> Slice<'t> {
    pub fn start(self) -> Option<Expr<'t>> {
        let start: Expr<'t> = child_behind(self.0, &[K::LBracket])?;
        let dots = self.0.tokens().find(|token| matches!(token.kind(), K::DotDot | K::DotDotEq))?;
        (start.syntax().end() <= dots.start()).then_some(start)
    }

    pub fn end(self) -> Option<Expr<'t>> {
        child_behind(self.0, &[K::DotDot, K::DotDotEq])
    }
}

impl<'t> Range<'t> {
    pub fn start(self) -> Option<Expr<'t>> {
        child_before(self.0, &[K::DotDot, K::DotDotEq])
    }

    pub fn end(self) -> Option<Expr<'t>> {
        child_behind(self.0, &[K::DotDot, K::DotDotEq])
    }

    /// `..=`
    pub fn is_inclusive(self) -> bool {
        self.0.token(K::DotDotEq).is_some()
    }
}

impl<'t> ArgList<'t> {
    pub fn args(self) -> impl Iterator<Item = Arg<'t>> {
        children(self.0)
    }
}

impl<'t> Arg<'t> {
    /// The name before the colon; a keyword is an ordinary label.
    pub fn label(self) -> Option<SyntaxToken<'t>> {
        name(self.0)
    }

    pub fn value(self) -> Option<Expr<'t>> {
        child(self.0)
    }
}
