//! From pest's pairs to the tree: the only file that names pest.
//!
//! Pairs give the nodes and the larger tokens; whatever text lies between them is cut by `lex`, so no byte can be lost.
//! Trivia at either end of a node is moved out of it. Read `build` first; `probe` is for messages.

use slapo_grammar::pest::Parser;
use slapo_grammar::pest::error::{ErrorVariant, InputLocation};
use slapo_grammar::pest::iterators::Pair;
use slapo_grammar::{Rule, ScheduleParser};

use crate::green::{Green, GreenNode};
use crate::kind::{ITEM_WORDS, SyntaxKind, SyntaxKind::*};
use crate::lex;
use crate::precedence;

/// Parses a whole text. The grammar accepts everything, so `None` means that pest itself gave up.
pub(crate) fn build(text: &str) -> Option<GreenNode> {
    let pair = ScheduleParser::parse(Rule::file, text).ok()?.next()?;
    let mut builder = Builder { text, at: 0 };
    let mut children = builder.children(pair);
    builder.gap(text.len(), &mut children);
    Some(GreenNode::new(File, children))
}

/// What a rule becomes.
enum Shape {
    /// A leaf of a fixed kind.
    Token(SyntaxKind),
    /// A leaf whose kind follows from its text.
    Mark,
    Node(SyntaxKind),
    /// A node without structure: its text is cut into tokens.
    Text(SyntaxKind),
    /// The children stand for themselves.
    Inline,
    /// Built by a function of its own.
    Expression,
}

#[rustfmt::skip]
fn shape(rule: Rule) -> Shape {
    use Shape::*;
    match rule {
        Rule::word | Rule::bind | Rule::name | Rule::class => Token(Word),
        Rule::number => Token(Number),
        Rule::string => Token(String),
        Rule::single_string => Token(SingleString),
        Rule::unclosed_string => Token(UnclosedString),
        Rule::wrong_use | Rule::wrong_let | Rule::wrong_schedule | Rule::wrong_elif => Token(ForeignKw),
        Rule::kw_where => Token(WhereKw),
        Rule::kw_use | Rule::kw_model | Rule::kw_input | Rule::kw_mesh | Rule::kw_knob | Rule::kw_type
        | Rule::kw_pattern | Rule::kw_schedule | Rule::kw_let | Rule::kw_for | Rule::kw_in | Rule::kw_if
        | Rule::kw_else | Rule::kw_require | Rule::kw_try | Rule::truth | Rule::prefix | Rule::infix
        | Rule::assign_op | Rule::range_op | Rule::optional | Rule::eq | Rule::wrong_eq | Rule::wrong_colon
        | Rule::semicolon => Mark,

        Rule::use_item => Node(UseItem),
        Rule::use_names => Node(UseNames),
        Rule::model_item => Node(ModelItem),
        Rule::input_item => Node(InputItem),
        Rule::mesh_item => Node(MeshItem),
        Rule::entries => Node(Entries),
        Rule::entry => Node(Entry),
        Rule::knob_item => Node(KnobItem),
        Rule::type_item => Node(TypeItem),
        Rule::pattern_item => Node(PatternItem),
        Rule::schedule_item => Node(ScheduleItem),
        Rule::params => Node(ParamList),
        Rule::param => Node(Param),
        Rule::named_type => Node(NamedType),
        Rule::list_type => Node(ListType),
        Rule::record_type => Node(RecordType),
        Rule::field_type => Node(RecordField),

        Rule::block => Node(Block),
        Rule::brace_gap | Rule::else_gap | Rule::path_gap => Node(LineGap),
        Rule::missing_close => Node(MissingClose),
        Rule::nested_item => Node(NestedItem),
        Rule::let_stmt => Node(LetStmt),
        Rule::let_type => Node(LetType),
        Rule::for_stmt => Node(ForStmt),
        Rule::if_stmt => Node(IfStmt),
        Rule::if_branch | Rule::else_if => Node(IfBranch),
        Rule::else_branch => Node(ElseBranch),
        Rule::else_bad | Rule::else_again => Node(BadBranch),
        Rule::require_stmt => Node(RequireStmt),
        Rule::try_stmt => Node(TryStmt),
        Rule::where_clause => Node(WhereClause),

        Rule::brace_name => Node(BraceName),
        Rule::args => Node(ArgList),
        Rule::arg => Node(Arg),
        Rule::missing_value => Node(MissingValue),
        Rule::missing_comma => Node(MissingComma),

        Rule::misplaced => Node(Misplaced),
        Rule::stray_close => Node(StrayClose),
        Rule::bad_item => Text(BadItem),
        Rule::bad_stmt => Text(BadStmt),
        Rule::bad_block | Rule::bad_item_block => Node(BadBlock),
        Rule::bad_head => Text(BadHead),
        Rule::junk => Text(Junk),
        Rule::file | Rule::EOI => Inline,
        _ => Expression,
    }
}

struct Builder<'i> {
    text: &'i str,
    /// Everything before this offset is in the tree.
    at: usize,
}

impl Builder<'_> {
    fn pair(&mut self, pair: Pair<'_, Rule>, out: &mut Vec<Green>) {
        self.gap(pair.as_span().start(), out);
        match shape(pair.as_rule()) {
            Shape::Token(kind) => self.token(kind, &pair, out),
            Shape::Mark => self.token(mark(pair.as_str()), &pair, out),
            Shape::Text(kind) => {
                let mut children = Vec::new();
                self.gap(pair.as_span().end(), &mut children);
                finish(kind, children, out);
            }
            Shape::Node(kind) => {
                let children = self.children(pair);
                finish(kind, children, out);
            }
            Shape::Inline => out.extend(self.children(pair)),
            Shape::Expression => self.expression(pair, out),
        }
    }

    fn children(&mut self, pair: Pair<'_, Rule>) -> Vec<Green> {
        let end = pair.as_span().end();
        let mut children = Vec::new();
        pair.into_inner().for_each(|inner| self.pair(inner, &mut children));
        self.gap(end, &mut children);
        children
    }

    fn token(&mut self, kind: SyntaxKind, pair: &Pair<'_, Rule>, out: &mut Vec<Green>) {
        let span = pair.as_span();
        out.push(Green::Token(kind, (span.end() - span.start()) as u32));
        self.at = span.end();
    }

    /// Cuts the text up to `end` into tokens.
    fn gap(&mut self, end: usize, out: &mut Vec<Green>) {
        while self.at < end {
            let (kind, length) = lex::token(&self.text[self.at..end]);
            out.push(Green::Token(kind, length as u32));
            self.at += length;
        }
    }

    fn expression(&mut self, pair: Pair<'_, Rule>, out: &mut Vec<Green>) {
        match pair.as_rule() {
            Rule::value => self.value(pair, out),
            Rule::condition => self.joined(BinaryExpr, pair, out),
            Rule::expr => self.flat(pair, out),
            Rule::expr_stmt => {
                let children = self.children(pair);
                let assigns = children.iter().any(|child| matches!(child.kind(), Eq | OpEq));
                finish(if assigns { AssignStmt } else { ExprStmt }, children, out);
            }
            // The rest occurs inside operands only, and is handled there.
            _ => out.extend(self.children(pair)),
        }
    }

    /// One child stays itself; several become a node of this kind.
    fn joined(&mut self, kind: SyntaxKind, pair: Pair<'_, Rule>, out: &mut Vec<Green>) {
        let children = self.children(pair);
        if children.iter().filter(|child| !child.is_trivia()).count() > 1 {
            finish(kind, children, out);
        } else {
            out.extend(children);
        }
    }

    /// A value with its range and its `where`.
    fn value(&mut self, pair: Pair<'_, Rule>, out: &mut Vec<Green>) {
        let mut children = self.children(pair);
        let clause = children.iter().position(|child| child.kind() == WhereClause);
        let tail = clause.map(|at| children.split_off(at));
        let is_range = children.iter().any(|child| matches!(child.kind(), DotDot | DotDotEq));
        let mut inner = Vec::new();
        if is_range {
            finish(RangeExpr, children, &mut inner);
        } else {
            inner = children;
        }
        match tail {
            Some(tail) => {
                inner.extend(tail);
                finish(WhereExpr, inner, out);
            }
            None => out.extend(inner),
        }
    }

    fn flat(&mut self, pair: Pair<'_, Rule>, out: &mut Vec<Green>) {
        let end = pair.as_span().end();
        let mut items = Vec::new();
        for inner in pair.into_inner() {
            self.gap(inner.as_span().start(), &mut items);
            if inner.as_rule() == Rule::operand {
                self.operand(inner, &mut items);
            } else {
                self.pair(inner, &mut items);
            }
        }
        self.gap(end, &mut items);
        let trivia = split_trailing(&mut items);
        out.push(Green::Node(precedence::structure(items)));
        out.extend(trivia);
    }

    /// Prefix operators as tokens, then one node for the primary with its postfix forms around it.
    fn operand(&mut self, pair: Pair<'_, Rule>, items: &mut Vec<Green>) {
        let end = pair.as_span().end();
        for inner in pair.into_inner() {
            self.gap(inner.as_span().start(), items);
            match inner.as_rule() {
                Rule::prefix | Rule::path_gap => self.pair(inner, items),
                Rule::field
                | Rule::star
                | Rule::globstar
                | Rule::braces
                | Rule::index
                | Rule::missing_field
                | Rule::type_filter => self.postfix(inner, items),
                _ => self.primary(inner, items),
            }
        }
        self.gap(end, items);
    }

    fn primary(&mut self, pair: Pair<'_, Rule>, items: &mut Vec<Green>) {
        let rule = pair.as_rule();
        let mut children = Vec::new();
        match shape(rule) {
            Shape::Token(_) | Shape::Mark => self.pair(pair, &mut children),
            _ => children = self.children(pair),
        }
        let kind = match rule {
            Rule::paren => ParenExpr,
            Rule::list => ListExpr,
            Rule::role_in => RoleIn,
            Rule::named if has(&children, ArgList) => CallExpr,
            Rule::named => NameExpr,
            _ => Literal,
        };
        finish_expression(kind, children, items);
    }

    fn postfix(&mut self, pair: Pair<'_, Rule>, items: &mut Vec<Green>) {
        // The operand itself, and the gap behind it if the path goes on in another line.
        let operand = items.iter().rposition(|item| !item.is_trivia() && item.kind() != LineGap).unwrap_or(0);
        let mut children = items.split_off(operand);
        let rule = pair.as_rule();
        let tail = self.children(pair);
        let kind = match rule {
            Rule::field if has(&tail, ArgList) => MethodCall,
            Rule::star => StarExpr,
            Rule::globstar => GlobstarExpr,
            Rule::braces => BraceExpr,
            Rule::index if has(&tail, DotDot) || has(&tail, DotDotEq) => SliceExpr,
            Rule::index => IndexExpr,
            Rule::type_filter => FilterExpr,
            _ => FieldExpr,
        };
        children.extend(tail);
        if rule == Rule::missing_field {
            let trivia = split_trailing(&mut children);
            children.push(Green::Node(GreenNode::new(MissingName, Vec::new())));
            children.extend(trivia);
        }
        finish_expression(kind, children, items);
    }
}

/// Closes a node; trivia at its ends goes to the parent.
fn finish(kind: SyntaxKind, mut children: Vec<Green>, out: &mut Vec<Green>) {
    let leading = children.iter().take_while(|child| child.is_trivia()).count();
    out.extend(children.drain(..leading));
    let trailing = split_trailing(&mut children);
    let node = if kind.is_expr() { precedence::expression(kind, children) } else { GreenNode::new(kind, children) };
    out.push(Green::Node(node));
    out.extend(trailing);
}

/// As `finish`, for nodes that begin with a token or node already.
fn finish_expression(kind: SyntaxKind, mut children: Vec<Green>, out: &mut Vec<Green>) {
    let trailing = split_trailing(&mut children);
    out.push(Green::Node(precedence::expression(kind, children)));
    out.extend(trailing);
}

fn split_trailing(children: &mut Vec<Green>) -> Vec<Green> {
    let keep = children.iter().rposition(|child| !child.is_trivia()).map_or(0, |last| last + 1);
    children.split_off(keep)
}

fn has(children: &[Green], kind: SyntaxKind) -> bool {
    children.iter().any(|child| child.kind() == kind)
}

/// The kind of a keyword or an operator.
fn mark(text: &str) -> SyntaxKind {
    let item_word = ITEM_WORDS.iter().find(|(word, _)| *word == text);
    match (item_word, lex::word_kind(text)) {
        (Some((_, kind)), _) => *kind,
        (None, Word) => lex::mark(text),
        (None, keyword) => keyword,
    }
}

/// Where a broken piece of text stops making sense, and what could have stood there.
#[derive(Debug)]
pub(crate) struct Failure {
    pub offset: usize,
    pub expected: Vec<Expected>,
}

/// Classes of what the grammar would have taken, most telling first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Expected {
    Equals,
    In,
    Params,
    Type,
    Text,
    Name,
    Expression,
    Brace,
    Entries,
    Continuation,
    End,
}

/// Parses a piece again, alone and to its end, to learn how far it makes sense.
pub(crate) fn probe(piece: &str, is_item: bool) -> Option<Failure> {
    let rule = if is_item { Rule::probe_item } else { Rule::probe_stmt };
    let error = ScheduleParser::parse(rule, piece).err()?;
    let offset = match error.location {
        InputLocation::Pos(at) => at,
        InputLocation::Span((start, _)) => start,
    };
    let mut expected = match error.variant {
        ErrorVariant::ParsingError { positives, .. } => positives.into_iter().filter_map(class).collect(),
        ErrorVariant::CustomError { .. } => Vec::new(),
    };
    expected.sort();
    expected.dedup();
    Some(Failure { offset, expected })
}

#[rustfmt::skip]
fn class(rule: Rule) -> Option<Expected> {
    Some(match rule {
        Rule::eq => Expected::Equals,
        Rule::kw_in => Expected::In,
        Rule::params => Expected::Params,
        Rule::named_type | Rule::list_type | Rule::record_type => Expected::Type,
        Rule::bind | Rule::word | Rule::param | Rule::entry | Rule::brace_name | Rule::use_names => Expected::Name,
        Rule::value | Rule::expr | Rule::operand | Rule::prefix | Rule::number | Rule::named | Rule::name
        | Rule::paren | Rule::list | Rule::truth | Rule::condition | Rule::arg => Expected::Expression,
        Rule::string | Rule::single_string | Rule::unclosed_string => Expected::Text,
        Rule::brace_open => Expected::Brace,
        Rule::entries => Expected::Entries,
        Rule::infix | Rule::field | Rule::star | Rule::globstar | Rule::braces | Rule::index => Expected::Continuation,
        Rule::EOI => Expected::End,
        _ => return None,
    })
}
