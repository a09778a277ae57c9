//! The words of the language, gathered from the tables that the compiler itself reads.

use slapo_core::primitives;
use slapo_core::schedule::{Function, Kind, Query, WORDS};
use slapo_syntax::ast::Unit;
use slapo_syntax::{ITEM_WORDS, RESERVED, SyntaxKind};

/// Lists by the names that templates have for them.
pub struct Words(Vec<(&'static str, Vec<&'static str>)>);

impl Words {
    pub fn of_the_language() -> Words {
        let reserved = |wanted: fn(SyntaxKind) -> bool| {
            RESERVED.iter().filter(move |(_, kind)| wanted(*kind)).map(|(word, _)| *word).collect()
        };
        // `in` is a keyword and the role of a dimension: where it is which is for the grammars to say.
        let constants = WORDS.iter().map(|word| word.name).filter(|name| !slapo_syntax::is_reserved(name));
        Words(vec![
            ("items", ITEM_WORDS.iter().map(|(word, _)| *word).collect()),
            ("statements", reserved(|kind| !is_operator(kind) && !is_truth(kind))),
            ("operators", reserved(is_operator)),
            ("truths", reserved(is_truth)),
            ("types", Kind::NAMED.iter().map(|(name, _)| *name).collect()),
            ("constants", constants.collect()),
            ("functions", Function::names().collect()),
            ("queries", Query::names().collect()),
            ("primitives", primitives::ALL.iter().map(|primitive| primitive.name).collect()),
            ("units", Unit::names().collect()),
        ])
    }

    pub fn lists(&self) -> impl Iterator<Item = (&'static str, &[&'static str])> {
        self.0.iter().map(|(name, list)| (*name, &list[..]))
    }
}

fn is_operator(kind: SyntaxKind) -> bool {
    matches!(kind, SyntaxKind::AndKw | SyntaxKind::OrKw | SyntaxKind::NotKw)
}

fn is_truth(kind: SyntaxKind) -> bool {
    matches!(kind, SyntaxKind::TrueKw | SyntaxKind::FalseKw)
}
