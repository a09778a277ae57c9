//! What is wrong with a tree, in our own words.
//!
//! The parser never speaks: it marks places with nodes that exist only for that (*explained* kinds) or leaves text
//! without structure. This walk turns each mark into one diagnostic. One mistake gives one error: nothing inside a
//! marked piece is looked at again, and what merely continues a broken line is left alone (`Broken`).
//! Read `collect` first; `forms`, `tokens`, `blocks` and `lines` hold the messages.

mod blocks;
mod forms;
mod lines;
mod names;
mod tokens;
mod words;

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::kind::SyntaxKind as K;
use crate::span::Span;
use crate::tree::{SyntaxNode, SyntaxToken, Tree};
use names::Names;

/// All diagnostics of a tree, in source order.
pub(crate) fn collect(tree: &Tree) -> Vec<Diagnostic> {
    let mut errors = Errors { out: Vec::new(), broken: None, names: Names::new(tree) };
    errors.walk(tree.root());
    blocks::unclosed(tree, &mut errors.out);
    drop_commas_beside_strings(tree.text(), &mut errors.out);
    errors.out.sort_by_key(Diagnostic::span);
    drop_braces_of_lost_blocks(tree.text(), &mut errors.out);
    errors.out
}

struct Errors<'t> {
    out: Vec<Diagnostic>,
    names: Names<'t>,
    /// The last broken line with the lines that continue it.
    broken: Option<Broken>,
}

impl Errors<'_> {
    fn walk(&mut self, node: SyntaxNode<'_>) {
        let mut stack = vec![node];
        while let Some(node) = stack.pop() {
            if self.visit(node) {
                stack.extend(node.children().rev());
            }
        }
    }

    /// Reports what this node says; whether to look below it.
    fn visit(&mut self, node: SyntaxNode<'_>) -> bool {
        if self.broken.as_mut().is_some_and(|broken| broken.takes(node)) {
            return false;
        }
        match node.kind() {
            K::BadItem | K::BadStmt => {
                self.add(Some(lines::broken_line(node)));
                self.broken = Some(Broken::new(node));
            }
            K::BadHead => self.add(lines::broken_head(node)),
            K::Misplaced => self.add(blocks::misplaced(node, &self.names)),
            K::Junk => self.add(Some(blocks::junk(node))),
            K::TooDeep => self.add_once(crate::parse::depth_error(first_span(node))),
            K::BadFile => {}
            K::BadBlock if words::declares_structure(node) => {
                self.add(node.child(K::BadHead).and_then(lines::broken_head));
            }
            _ => {
                self.add(forms::explain(node, &self.names));
                self.add(blocks::explain(node));
                node.tokens().for_each(|token| tokens::explain(token, &self.names, &mut self.out));
                return true;
            }
        }
        false
    }

    fn add(&mut self, found: Option<Diagnostic>) {
        self.out.extend(found);
    }

    fn add_once(&mut self, found: Diagnostic) {
        if !self.out.iter().any(|earlier| earlier.code == found.code) {
            self.out.push(found);
        }
    }
}

/// A broken line, and where the lines that merely continue it end. Nothing is said about those.
struct Broken {
    end: u32,
    indent: usize,
    leaves_open: bool,
}

impl Broken {
    fn new(node: SyntaxNode<'_>) -> Self {
        let indent = indentation(node.tree().text(), node.start()).len();
        Self { end: node.end(), indent, leaves_open: lines::leaves_open(node) }
    }

    /// Whether the node stands on the next line and continues the broken one: because it is broken as well and
    /// indented deeper, or because a bracket is open and it begins like the rest of a call.
    fn takes(&mut self, node: SyntaxNode<'_>) -> bool {
        let is_bad = matches!(node.kind(), K::BadStmt | K::BadItem | K::Misplaced);
        if node.start() < self.end || !(is_bad || matches!(node.kind(), K::ExprStmt | K::AssignStmt)) {
            return false;
        }
        let text = node.tree().text();
        let continues = match gap_lines(&text[self.end as usize..node.start() as usize]) {
            None => false,
            Some(0) => is_bad,
            Some(_) => {
                let deeper = indentation(text, node.start()).len() > self.indent;
                is_bad && deeper || self.leaves_open && begins_like_arguments(node)
            }
        };
        if continues {
            self.end = node.end();
            self.leaves_open |= lines::leaves_open(node);
        }
        continues
    }
}

/// How many newlines a gap between two lines of code has; none if it holds code or an empty line.
fn gap_lines(gap: &str) -> Option<usize> {
    let newlines = gap.matches('\n').count();
    let mut lines = gap.split('\n').map(str::trim).enumerate();
    let is_bare = lines.all(|(index, line)| match line {
        "" => index == 0 || index == newlines,
        ";" => true,
        _ => line.starts_with('#'),
    });
    is_bare.then_some(newlines)
}

/// `over: tp`, or a closing bracket.
fn begins_like_arguments(node: SyntaxNode<'_>) -> bool {
    let mut leaves = node.leaves().filter(|token| !token.kind().is_trivia()).map(SyntaxToken::kind);
    let (first, second) = (leaves.next(), leaves.next());
    let is_label = first == Some(K::Word) && second == Some(K::Colon);
    is_label || matches!(first, Some(K::RParen | K::RBracket | K::RBrace))
}

/// A quote too many turns text into strings and strings into text; the commas that then seem to be missing on its line
/// say nothing.
fn drop_commas_beside_strings(text: &str, out: &mut Vec<Diagnostic>) {
    let line = |error: &Diagnostic| {
        let start = error.span().map_or(0, |span| span.start as usize);
        text[..start].rfind('\n')
    };
    let unclosed: Vec<_> = out.iter().filter(|error| error.code == Code::UnclosedString).map(line).collect();
    if unclosed.is_empty() {
        return;
    }
    out.retain(|error| error.code != Code::MissingComma || !unclosed.contains(&line(error)));
}

/// A head that lost its `{` leaves a `}` over, which then closes an outer block: neither that brace nor what follows
/// it is another mistake. Heads that end in a colon never had braces.
fn drop_braces_of_lost_blocks(text: &str, out: &mut Vec<Diagnostic>) {
    let mut left_over = 0_usize;
    out.retain(|error| match error.code {
        Code::MissingBlock => {
            let at_colon = error.span().is_some_and(|span| &text[span.range()] == ":");
            left_over += usize::from(!at_colon);
            true
        }
        Code::ExtraBrace | Code::OutsideSchedule if left_over > 0 => {
            left_over -= 1;
            false
        }
        Code::TextAfterBlock => left_over == 0,
        _ => true,
    });
}

/// The first token of a node, for errors about all of it.
fn first_span(node: SyntaxNode<'_>) -> Span {
    node.first_token().map_or(node.span(), SyntaxToken::span)
}

/// The token before a place that is not trivia.
fn token_before(tree: &Tree, offset: u32) -> Option<SyntaxToken<'_>> {
    let mut at = offset.checked_sub(1)?;
    loop {
        let token = tree.token_at(at)?;
        if !token.kind().is_trivia() {
            return Some(token);
        }
        at = token.start().checked_sub(1)?;
    }
}

/// The token at or behind a place that is not trivia.
fn token_behind(tree: &Tree, offset: u32) -> Option<SyntaxToken<'_>> {
    let mut at = offset;
    while (at as usize) < tree.text().len() {
        let token = tree.token_at(at)?;
        if !token.kind().is_trivia() && token.start() >= offset {
            return Some(token);
        }
        at = token.end();
    }
    None
}

/// The white space that the line around a place begins with.
fn indentation(text: &str, offset: u32) -> &str {
    let start = text[..offset as usize].rfind(['\n', '\r']).map_or(0, |newline| newline + 1);
    let line = &text[start..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// A piece of text as messages quote it: in back-ticks, cut when long.
fn quoted(text: &str) -> String {
    const LIMIT: usize = 30;
    let text = text.lines().next().unwrap_or("");
    if text.chars().count() <= LIMIT {
        return format!("`{text}`");
    }
    let cut: String = text.chars().take(LIMIT - 3).collect();
    format!("`{cut}...`")
}
