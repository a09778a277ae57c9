//! How tightly operators bind: one table, and the algorithm that gives a flat run of operands its structure.
//!
//! Knows tokens and green nodes only. Operators that are merely explained stand in the row of what they mean. Read
//! `LEVELS` first.

use crate::green::{Green, GreenNode};
use crate::kind::{SyntaxKind, SyntaxKind::*};

/// No expression nests deeper than this, so that nothing that walks a tree runs out of stack.
pub(crate) const MAX_LEVELS: u32 = 512;

/// Chains that the algorithm below takes recursively.
const MAX_CHAIN: usize = 200;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fixity {
    Prefix,
    Left,
    Right,
}

struct Level {
    fixity: Fixity,
    operators: &'static [SyntaxKind],
}

const fn level(fixity: Fixity, operators: &'static [SyntaxKind]) -> Level {
    Level { fixity, operators }
}

/// Loosest first. Comparisons do not chain: they are parsed as if they associated to the left and refused later.
/// Postfix forms bind tighter than everything here.
const LEVELS: &[Level] = &[
    level(Fixity::Left, &[OrKw, PipePipe]),
    level(Fixity::Left, &[AndKw, AmpAmp]),
    level(Fixity::Prefix, &[NotKw, Bang]),
    level(Fixity::Left, &[EqEq, BangEq, Less, LessEq, Greater, GreaterEq]),
    level(Fixity::Left, &[Plus, Minus]),
    level(Fixity::Left, &[Star, Slash, Percent, SlashSlash]),
    level(Fixity::Prefix, &[Minus]),
    level(Fixity::Right, &[Caret, StarStar]),
];

/// Structures a flat run: operands (nodes), operators (tokens) and the trivia between them. It neither begins nor ends
/// with trivia, and operands and operators alternate as the grammar says.
pub(crate) fn structure(items: Vec<Green>) -> GreenNode {
    let recursive = |item: &&Green| matches!(item.kind(), NotKw | Bang | Minus | Caret | StarStar);
    let mut before_is_operand = false;
    let mut chain = 0;
    for item in &items {
        let is_operator = matches!(item, Green::Token(..)) && !item.is_trivia();
        let is_infix_minus = item.kind() == Minus && before_is_operand;
        chain += usize::from(is_operator && recursive(&item) && !is_infix_minus);
        if !item.is_trivia() {
            before_is_operand = !is_operator;
        }
    }
    if chain > MAX_CHAIN {
        return flat(items);
    }
    let mut run = Run { items: items.into_iter().peekable(), pending: Vec::new() };
    let mut parsed = run.expression(0);
    if run.items.peek().is_some() {
        // Unreachable by the grammar; kept lossless all the same.
        let mut rest = vec![Green::Node(parsed)];
        rest.append(&mut run.pending);
        rest.extend(run.items);
        parsed = flat(rest);
    }
    parsed
}

/// A node of an expression, or `TooDeep` with flat tokens where it would pass the limit.
pub(crate) fn expression(kind: SyntaxKind, mut children: Vec<Green>) -> GreenNode {
    let grows = matches!(&children[..], [Green::Node(first), ..] if first.kind == TooDeep);
    if grows {
        let rest = children.split_off(1);
        if let Some(Green::Node(mut first)) = children.pop() {
            rest.into_iter().for_each(|child| flatten(child, &mut first.children));
            return first;
        }
        return flat(rest);
    }
    let node = GreenNode::new(kind, children);
    if node.depth > MAX_LEVELS { flat(node.children) } else { node }
}

fn flat(items: Vec<Green>) -> GreenNode {
    let mut tokens = Vec::new();
    items.into_iter().for_each(|item| flatten(item, &mut tokens));
    GreenNode::new(TooDeep, tokens)
}

fn flatten(item: Green, out: &mut Vec<Green>) {
    match item {
        Green::Token(..) => out.push(item),
        Green::Node(node) => node.children.into_iter().for_each(|child| flatten(child, out)),
    }
}

struct Run {
    items: std::iter::Peekable<std::vec::IntoIter<Green>>,
    /// Trivia already taken, to go before the next operator.
    pending: Vec<Green>,
}

impl Run {
    /// An expression whose infix operators all stand at `min` or tighter.
    fn expression(&mut self, min: usize) -> GreenNode {
        let mut left = self.operand();
        while let Some((level, fixity)) = self.infix().filter(|(level, _)| *level >= min) {
            let mut children = vec![Green::Node(left)];
            self.operator(&mut children);
            let right = self.expression(if fixity == Fixity::Right { level } else { level + 1 });
            children.push(Green::Node(right));
            left = expression(BinaryExpr, children);
        }
        left
    }

    fn operand(&mut self) -> GreenNode {
        let prefix = self.items.peek().and_then(|item| find(item.kind(), true));
        if let Some((level, _)) = prefix {
            let mut children = Vec::new();
            self.operator(&mut children);
            children.push(Green::Node(self.expression(level + 1)));
            return expression(PrefixExpr, children);
        }
        match self.items.next() {
            Some(Green::Node(node)) => node,
            Some(token) => GreenNode::new(TooDeep, vec![token]),
            None => GreenNode::new(TooDeep, Vec::new()),
        }
    }

    fn infix(&mut self) -> Option<(usize, Fixity)> {
        self.trivia();
        let item = self.items.peek()?;
        find(item.kind(), false)
    }

    /// Moves the next operator and the trivia on both its sides.
    fn operator(&mut self, into: &mut Vec<Green>) {
        into.append(&mut self.pending);
        into.extend(self.items.next());
        self.trivia();
        into.append(&mut self.pending);
    }

    fn trivia(&mut self) {
        while let Some(item) = self.items.next_if(Green::is_trivia) {
            self.pending.push(item);
        }
    }
}

/// The row of an operator between operands.
pub(crate) fn infix_level(operator: SyntaxKind) -> Option<usize> {
    find(operator, false).map(|(level, _)| level)
}

fn find(operator: SyntaxKind, prefix: bool) -> Option<(usize, Fixity)> {
    let rows = LEVELS.iter().enumerate();
    let mut rows = rows.filter(|(_, level)| (level.fixity == Fixity::Prefix) == prefix);
    let (index, level) = rows.find(|(_, level)| level.operators.contains(&operator))?;
    Some((index, level.fixity))
}
