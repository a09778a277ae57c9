//! The kinds of tokens and nodes in a tree.
//!
//! Tokens are the leaves and cover the whole text; nodes group them. Kinds whose comment says *explained* exist only
//! to carry an error: the parser accepts the form so that the rest of the statement stays intact.

/// What a token or node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[rustfmt::skip]
pub enum SyntaxKind {
    // ---- trivia
    Whitespace, Newline, Comment, DocComment, ByteOrderMark,

    // ---- words and literals
    /// A word: a name, a path step (`0` in `m.h.0` too), an argument label.
    Word,
    Number, String,
    /// *Explained*: `'…'`.
    SingleString,
    /// *Explained*: `"…` up to the end of the line.
    UnclosedString,

    // ---- keywords; the item words are such only at the start of an item
    UseKw, ModelKw, InputKw, MeshKw, KnobKw, TypeKw, PatternKw, ScheduleKw,
    LetKw, ForKw, InKw, IfKw, ElseKw, RequireKw, TryKw, AndKw, OrKw, NotKw, TrueKw, FalseKw,
    /// *Explained*: `where`.
    WhereKw,
    /// *Explained*: `def`, `fn`, `const`, `import`, `elif`, …
    ForeignKw,

    // ---- punctuation
    LParen, RParen, LBracket, RBracket, LBrace, RBrace,
    Comma, Colon, Semicolon, Dot, DotDot, DotDotEq, Question,
    Eq, EqEq, BangEq, Less, LessEq, Greater, GreaterEq,
    Plus, Minus, Star, Slash, Percent, Caret,
    /// *Explained*: `**` as an operator; part of `.**` otherwise.
    StarStar,
    /// *Explained*: `//`, `&&`, `||`, `!`, `+=` and the like.
    SlashSlash, AmpAmp, PipePipe, Bang, OpEq,
    /// A character that starts no token.
    Unknown,

    // ---- items
    File,
    UseItem, UseNames, ModelItem, InputItem, MeshItem, KnobItem, TypeItem, PatternItem, ScheduleItem,
    Entries, Entry, ParamList, Param, NamedType, ListType, RecordType, RecordField,

    // ---- statements; `LetStmt` is an item too
    Block, LetStmt, ForStmt, IfStmt, IfBranch, ElseBranch, RequireStmt, TryStmt, ExprStmt,

    // ---- expressions
    NameExpr, CallExpr, Literal, RoleIn, ParenExpr, ListExpr, PrefixExpr, BinaryExpr,
    FieldExpr, MethodCall, StarExpr, GlobstarExpr, BraceExpr, BraceName, IndexExpr, SliceExpr, RangeExpr,
    ArgList, Arg,

    // ---- explained forms
    /// `x = 3` as a statement.
    AssignStmt,
    /// An item inside a block.
    NestedItem,
    /// `path: Class`.
    FilterExpr,
    /// `expression where condition`; the clause is a `WhereClause`.
    WhereExpr, WhereClause,
    /// `let x: int = 3`: the part from the colon.
    LetType,
    /// A path that ends in a dot: stands for the name that is missing.
    MissingName,
    /// An argument without a value.
    MissingValue,
    /// An empty node where a comma is missing.
    MissingComma,
    /// An empty node where the `}` of a block is missing.
    MissingClose,
    /// An empty node before an `else`, a `{` or the `.` of a path that stands on its own line.
    LineGap,
    /// A second `else`, or one with something between it and its brace.
    BadBranch,
    /// Text on the line behind a block.
    Junk,
    /// An expression nested deeper than the limit; its tokens lie flat inside.
    TooDeep,

    // ---- text that has no structure
    /// A line at the top level.
    BadItem,
    /// A line in a block.
    BadStmt,
    /// A block with a head that makes no sense, its body intact.
    BadBlock, BadHead,
    /// A run of statements and closing braces outside of every schedule.
    Misplaced, StrayClose,
    /// A file whose brackets are nested too deeply to be looked at.
    BadFile,
}

use SyntaxKind::*;

/// Words that can never be names, with their kinds.
pub const RESERVED: &[(&str, SyntaxKind)] = &[
    ("let", LetKw),
    ("for", ForKw),
    ("in", InKw),
    ("if", IfKw),
    ("else", ElseKw),
    ("require", RequireKw),
    ("try", TryKw),
    ("and", AndKw),
    ("or", OrKw),
    ("not", NotKw),
    ("true", TrueKw),
    ("false", FalseKw),
];

/// Words that begin an item, and are ordinary names everywhere else.
pub const ITEM_WORDS: &[(&str, SyntaxKind)] = &[
    ("use", UseKw),
    ("model", ModelKw),
    ("input", InputKw),
    ("mesh", MeshKw),
    ("knob", KnobKw),
    ("type", TypeKw),
    ("pattern", PatternKw),
    ("schedule", ScheduleKw),
];

impl SyntaxKind {
    /// White space, newlines, comments: no node begins or ends with one, except the file.
    pub fn is_trivia(self) -> bool {
        matches!(self, Whitespace | Newline | Comment | DocComment | ByteOrderMark)
    }

    pub fn is_token(self) -> bool {
        self <= Unknown
    }

    pub fn is_keyword(self) -> bool {
        UseKw <= self && self <= ForeignKw
    }

    pub fn is_expr(self) -> bool {
        (NameExpr <= self && self <= MethodCall)
            || matches!(self, StarExpr | GlobstarExpr | BraceExpr | IndexExpr | SliceExpr | RangeExpr)
            || matches!(self, FilterExpr | WhereExpr | MissingValue | TooDeep)
    }

    pub fn is_item(self) -> bool {
        matches!(
            self,
            UseItem | ModelItem | InputItem | MeshItem | KnobItem | LetStmt | TypeItem | PatternItem | ScheduleItem
        )
    }

    pub fn is_stmt(self) -> bool {
        matches!(self, LetStmt | ForStmt | IfStmt | RequireStmt | TryStmt | ExprStmt | AssignStmt)
    }

    /// Whether the node says by its mere presence that the text is wrong.
    pub fn is_error(self) -> bool {
        self >= AssignStmt || matches!(self, SingleString | UnclosedString | ForeignKw | Unknown)
    }
}

/// Whether a word is reserved.
pub fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|(reserved, _)| *reserved == word)
}
