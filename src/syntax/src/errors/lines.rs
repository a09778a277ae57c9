//! Lines that have no structure: where they stop making sense, and what to say about it.

use crate::code::Code;
use crate::diagnostic::{Diagnostic, Fix};
use crate::kind::{ITEM_WORDS, SyntaxKind as K};
use crate::pest_tree::{Expected, Failure, probe};
use crate::tree::{SyntaxNode, SyntaxToken};

use super::{forms, quoted, token_behind, tokens, words};

/// Stands for an expectation that has no name.
const UNKNOWN: &str = "something else";

/// The error of a broken line.
pub(super) fn broken_line(node: SyntaxNode<'_>) -> Diagnostic {
    let line = Line::new(node);
    let failure = probe(node.text(), line.is_item());
    line.explain(failure)
}

/// The error of a head whose block is intact.
pub(super) fn broken_head(node: SyntaxNode<'_>) -> Option<Diagnostic> {
    let parent = node.parent()?;
    if parent.kind() == K::BadBranch {
        return None;
    }
    let start = parent.start();
    let piece = format!("{} {{", &node.tree().text()[start as usize..node.end() as usize]);
    let mut line = Line::new(node);
    if parent.kind() == K::ScheduleItem {
        line.start = start;
        line.tokens = parent.tokens().chain(line.tokens.drain(..)).filter(|token| token.end() <= node.end()).collect();
    }
    let failure = probe(&piece, line.is_item());
    Some(line.explain(failure))
}

/// Whether a broken line leaves a bracket open.
pub(super) fn leaves_open(node: SyntaxNode<'_>) -> bool {
    matches!(node.kind(), K::BadStmt | K::BadItem) && matches!(Line::new(node).brackets(), Brackets::Open(_))
}

enum Brackets<'t> {
    Balanced,
    /// The innermost bracket that stays open.
    Open(SyntaxToken<'t>),
    /// An opening bracket and the closing one of another kind.
    Crossed(SyntaxToken<'t>, SyntaxToken<'t>),
    /// A closing bracket with nothing to close.
    Stray(SyntaxToken<'t>),
}

/// A broken line as tokens.
struct Line<'t> {
    node: SyntaxNode<'t>,
    /// Where the text begins that was parsed again.
    start: u32,
    tokens: Vec<SyntaxToken<'t>>,
}

impl<'t> Line<'t> {
    fn new(node: SyntaxNode<'t>) -> Self {
        Self { node, start: node.start(), tokens: node.tokens().collect() }
    }

    fn kind_at(&self, index: usize) -> Option<K> {
        self.tokens.get(index).map(|token| token.kind())
    }

    /// Whether the line is meant as an item: by its first word.
    fn is_item(&self) -> bool {
        let first = self.tokens.first();
        let is_item_word = |token: &&SyntaxToken<'_>| ITEM_WORDS.iter().any(|(word, _)| *word == token.text());
        let stands_alone = !matches!(self.kind_at(1), Some(K::Dot | K::LParen | K::LBracket | K::Eq));
        first.filter(is_item_word).is_some() && stands_alone
    }

    fn explain(&self, failure: Option<Failure>) -> Diagnostic {
        let failure = failure.unwrap_or(Failure { offset: 0, expected: Vec::new() });
        let known = self.string().or_else(|| self.bracket()).or_else(|| self.comment(&failure));
        let known = known.or_else(|| self.first_word()).or_else(|| self.character(&failure));
        known
            .or_else(|| self.head(&failure))
            .or_else(|| self.special(&failure))
            .unwrap_or_else(|| self.fallback(&failure))
    }

    fn string(&self) -> Option<Diagnostic> {
        let open = self.tokens.iter().find(|token| token.kind() == K::UnclosedString)?;
        Some(tokens::unclosed_string(*open))
    }

    fn brackets(&self) -> Brackets<'t> {
        let mut open: Vec<SyntaxToken<'t>> = Vec::new();
        for token in &self.tokens {
            let opener = match token.kind() {
                K::LParen | K::LBracket | K::LBrace => {
                    open.push(*token);
                    continue;
                }
                K::RParen => K::LParen,
                K::RBracket => K::LBracket,
                K::RBrace => K::LBrace,
                _ => continue,
            };
            match open.pop() {
                Some(last) if last.kind() == opener => {}
                Some(last) => return Brackets::Crossed(last, *token),
                None => return Brackets::Stray(*token),
            }
        }
        open.pop().map_or(Brackets::Balanced, Brackets::Open)
    }

    fn bracket(&self) -> Option<Diagnostic> {
        match self.brackets() {
            Brackets::Balanced => None,
            Brackets::Open(open) => Some(
                Diagnostic::error(Code::UnclosedBracket, format!("this `{}` is never closed", open.text()))
                    .primary(open.span(), format!("`{}` is missing", closer(open)))
                    .help(format!("add the `{}`", closer(open))),
            ),
            Brackets::Crossed(open, close) => Some(
                Diagnostic::error(Code::WrongBracket, format!("expected `{}`, found `{}`", closer(open), close.text()))
                    .primary(close.span(), "closes another kind of bracket")
                    .secondary(open.span(), "opened here")
                    .fix(Fix::maybe(format!("write `{}`", closer(open))).replace(close.span(), closer(open))),
            ),
            Brackets::Stray(close) => Some(
                Diagnostic::error(Code::WrongBracket, format!("this `{}` closes nothing", close.text()))
                    .primary(close.span(), "no bracket is open here")
                    .fix(Fix::maybe("remove it").delete(close.span())),
            ),
        }
    }

    /// `// text` and `/* text */`.
    fn comment(&self, failure: &Failure) -> Option<Diagnostic> {
        let failed = self.start + failure.offset as u32;
        let pairs = self.tokens.windows(2);
        let mut starred = pairs.filter(|pair| pair[0].kind() == K::Slash && pair[1].kind() == K::Star);
        let starred =
            starred.find(|pair| pair[0].end() == pair[1].start()).map(|pair| pair[0].span().to(pair[1].span()));
        let mut slashes = self.tokens.iter().filter(|token| token.kind() == K::SlashSlash);
        let slashes = slashes.find(|token| token.start() <= failed).map(|token| token.span());
        let span = slashes.or(starred)?;
        let error = Diagnostic::error(Code::ForeignComment, "comments begin with `#`")
            .primary(span, "not a comment")
            .help("a comment runs from `#` to the end of the line");
        Some(match slashes {
            Some(span) => error.fix(Fix::safe("write `#`").replace(span, "#")),
            None => error,
        })
    }

    /// A first word that other languages have, or that nearly begins an item.
    fn first_word(&self) -> Option<Diagnostic> {
        let first = self.tokens.first().filter(|token| token.kind() == K::Word)?;
        let names = matches!(self.kind_at(1), Some(K::Dot | K::LParen | K::LBracket));
        let foreign = words::foreign_word(*first).filter(|_| !names || first.text() == "print");
        if foreign.is_some() || names {
            return foreign;
        }
        let at_top = self.node.parent()?.kind() == K::File
            || self.node.parent()?.kind() == K::BadBlock && self.node.parent()?.parent()?.kind() == K::File;
        let is_item_word = ITEM_WORDS.iter().any(|(word, _)| *word == first.text());
        if !at_top || is_item_word {
            return None;
        }
        let error = Diagnostic::error(Code::Unexpected, format!("expected an item, found {}", quoted(first.text())))
            .primary(first.span(), "no item begins like this");
        Some(match words::near_item_word(first.text()) {
            Some(near) => error
                .help(format!("did you mean `{near}`?"))
                .fix(Fix::maybe(format!("write `{near}`")).replace(first.span(), near)),
            None => error.help(
                "items begin with `use`, `model`, `input`, `mesh`, `knob`, `let`, `type`, `pattern` or `schedule`",
            ),
        })
    }

    fn character(&self, failure: &Failure) -> Option<Diagnostic> {
        let failed = self.start + failure.offset as u32;
        let unknown = self.tokens.iter().find(|token| token.kind() == K::Unknown && token.start() <= failed)?;
        Some(words::unknown_character(*unknown))
    }

    /// Heads without a block, an `else` without its `if`.
    fn head(&self, failure: &Failure) -> Option<Diagnostic> {
        let first = *self.tokens.first()?;
        let heads = matches!(first.kind(), K::ForKw | K::IfKw | K::ElseKw) || first.text() == "schedule";
        let last = *self.tokens.last()?;
        let failed = self.start + failure.offset as u32;
        let colon = (last.kind() == K::Colon).then_some(last);
        let at_colon = colon.is_some_and(|colon| colon.start() <= failed);
        if first.kind() == K::ElseKw {
            return Some(
                Diagnostic::error(Code::LoneElse, "an `else` without an `if`")
                    .primary(first.span(), "nothing to be the alternative of")
                    .help("write `} else {` behind the block of an `if`"),
            );
        }
        let ends = failed >= last.end() || at_colon;
        let wants_block = failure.expected.contains(&Expected::Brace) || at_colon;
        if !(heads && ends && wants_block && self.node.kind() != K::BadHead || heads && at_colon) {
            return None;
        }
        let error = Diagnostic::error(Code::MissingBlock, format!("`{}` needs a block in braces", first.text()))
            .primary(colon.unwrap_or(last).span(), "expected `{`")
            .help("write the statements between `{` and `}`");
        Some(match colon {
            Some(colon) if self.node.kind() == K::BadHead => {
                error.fix(Fix::safe("remove the colon").delete(colon.span()))
            }
            _ => error,
        })
    }

    /// Mistakes known by what stands at the place and before it.
    fn special(&self, failure: &Failure) -> Option<Diagnostic> {
        if let Some(word) = self.reserved_value(failure) {
            return Some(
                Diagnostic::error(Code::ReservedWord, format!("`{}` is a reserved word", word.text()))
                    .primary(word.span(), "expected an expression"),
            );
        }
        let found = self.found(failure)?;
        let index = self.tokens.iter().position(|token| *token == found)?;
        let before = |steps: usize| index.checked_sub(steps).and_then(|at| self.kind_at(at));
        let wants_name = failure.expected.first() == Some(&Expected::Name);
        let is_keyword = found.kind().is_keyword();
        match found.kind() {
            _ if before(1) == Some(K::Star) && before(2) == Some(K::Dot) && before(3) == Some(K::Number) => {
                Some(forms::dotted_product(self.tokens[index - 2], self.tokens[index - 1], found))
            }
            K::InKw if failure.expected.contains(&Expected::Continuation) => Some(
                Diagnostic::error(Code::Unexpected, "there is no test for membership")
                    .primary(found.span(), "`in` belongs to `for` and `knob`")
                    .help("compare with `==`, or test a class with `x.is(Class)`"),
            ),
            _ if is_keyword && (wants_name || failure.expected.contains(&Expected::Expression)) => Some(
                Diagnostic::error(Code::ReservedWord, format!("`{}` is a reserved word", found.text()))
                    .primary(found.span(), format!("expected {}", self.wanted(failure))),
            ),
            K::Minus if self.kind_at(index + 1) == Some(K::Greater) => Some(
                Diagnostic::error(Code::Unexpected, "a schedule has no result type")
                    .primary(found.span().to(self.tokens[index + 1].span()), "unexpected")
                    .help("a schedule gives nothing back; what it does to the model stays done"),
            ),
            K::Comma if matches!(before(1), Some(K::Comma | K::LParen | K::LBracket)) => Some(
                Diagnostic::error(Code::Unexpected, "nothing stands before this comma")
                    .primary(found.span(), format!("expected {}", self.wanted(failure)))
                    .fix(Fix::maybe("remove the comma").delete(found.span())),
            ),
            _ => None,
        }
    }

    /// A reserved word right before the place, where only an argument's name could have been read as a word.
    fn reserved_value(&self, failure: &Failure) -> Option<SyntaxToken<'t>> {
        let failed = self.start + failure.offset as u32;
        let before = self.tokens.iter().skip(1).take_while(|token| token.end() <= failed).last()?;
        let reserved = matches!(before.kind(), K::ForKw | K::IfKw | K::ElseKw | K::LetKw | K::RequireKw | K::TryKw);
        (reserved && self.open_at(failed).is_some()).then_some(*before)
    }

    fn fallback(&self, failure: &Failure) -> Diagnostic {
        let wanted = self.wanted(failure);
        match self.found(failure) {
            Some(found) if wanted == UNKNOWN || wanted == format!("`{}`", found.text()) => {
                Diagnostic::error(Code::Unexpected, format!("unexpected {}", quoted(found.text())))
                    .primary(found.span(), "does not fit here")
            }
            Some(found) => {
                let message = format!("expected {wanted}, found {}", quoted(found.text()));
                Diagnostic::error(Code::Unexpected, message).primary(found.span(), "unexpected")
            }
            None => {
                let last = self.tokens.last().map_or(self.node.span(), |token| token.span());
                Diagnostic::error(Code::Unexpected, format!("expected {wanted}, found the end of the line"))
                    .primary(last, "something is missing behind this")
            }
        }
    }

    /// The token at which the text stops making sense; none at its end.
    fn found(&self, failure: &Failure) -> Option<SyntaxToken<'t>> {
        let failed = self.start + failure.offset as u32;
        let inside = self.tokens.iter().find(|token| token.end() > failed).copied();
        let is_head = self.node.kind() == K::BadHead;
        inside.or_else(|| token_behind(self.node.tree(), self.node.end()).filter(|_| is_head))
    }

    /// What could have stood at the place.
    fn wanted(&self, failure: &Failure) -> String {
        let expected = &failure.expected;
        let failed = self.start + failure.offset as u32;
        if expected.contains(&Expected::Continuation) {
            return match self.open_at(failed) {
                Some(open) => format!("`,` or `{}`", closer(open)),
                None if expected.contains(&Expected::Equals) => "`=`".into(),
                None if expected.contains(&Expected::Brace) => "`{`".into(),
                None => "the end of the line".into(),
            };
        }
        let wanted = match expected.first() {
            Some(Expected::Equals) => "`=`",
            Some(Expected::In) => "`in`",
            Some(Expected::Params) => "`(`",
            Some(Expected::Type) => "a type",
            Some(Expected::Text) => "a string",
            Some(Expected::Name) => "a name",
            Some(Expected::Expression) => "an expression",
            Some(Expected::Brace | Expected::Entries) => "`{`",
            Some(Expected::End) => "the end of the line",
            Some(Expected::Continuation) | None => match self.open_at(failed) {
                Some(open) => return format!("`{}`", closer(open)),
                None => UNKNOWN,
            },
        };
        wanted.into()
    }

    /// The innermost bracket open at a place.
    fn open_at(&self, offset: u32) -> Option<SyntaxToken<'t>> {
        let mut open = Vec::new();
        for token in self.tokens.iter().filter(|token| token.end() <= offset) {
            match token.kind() {
                K::LParen | K::LBracket | K::LBrace => open.push(*token),
                K::RParen | K::RBracket | K::RBrace => {
                    open.pop();
                }
                _ => {}
            }
        }
        open.pop()
    }
}

fn closer(open: SyntaxToken<'_>) -> &'static str {
    match open.kind() {
        K::LParen => ")",
        K::LBracket => "]",
        _ => "}",
    }
}
