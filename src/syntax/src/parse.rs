//! Text in, tree and diagnostics out.
//!
//! Never fails, never panics, never loses a byte. What is too large or too deeply nested for the parser is kept as one
//! flat piece with one error. Read `parse` first.

use crate::ast;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::errors;
use crate::green::{Green, GreenNode};
use crate::kind::SyntaxKind;
use crate::lex;
use crate::pest_tree;
use crate::span::{FileId, Span};
use crate::tree::{SyntaxNode, Tree};

/// Brackets nested deeper than this are refused before parsing.
pub const MAX_BRACKETS: usize = 256;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// A parsed file: its tree and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Parse {
    pub tree: Tree,
    /// In source order; all of family S00.
    pub diagnostics: Vec<Diagnostic>,
}

impl Parse {
    pub fn root(&self) -> SyntaxNode<'_> {
        self.tree.root()
    }

    /// The typed view of the whole file.
    pub fn file(&self) -> ast::File<'_> {
        ast::File::of(self.root())
    }

    pub fn is_ok(&self) -> bool {
        !self.diagnostics.iter().any(Diagnostic::is_error)
    }
}

/// Parses one file. Texts of 4 GiB and more do not fit the offsets and are cut there.
pub fn parse(file: FileId, text: &str) -> Parse {
    let text = &text[..text.floor_char_boundary(u32::MAX as usize)];
    let mark = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 };
    let body = &text[mark..];
    match bracket_depth(body) {
        Err(at) => {
            let at = (mark + at) as u32;
            let tree = Tree::new(file, text, with_mark(mark, flat(body)));
            Parse { tree, diagnostics: vec![depth_error(Span::new(file, at, at + 1))] }
        }
        Ok(depth) => on_stack_for(depth, || grown(file, text, mark)),
    }
}

fn grown(file: FileId, text: &str, mark: usize) -> Parse {
    let body = &text[mark..];
    let Some(root) = pest_tree::build(body) else {
        let tree = Tree::new(file, text, with_mark(mark, flat(body)));
        let start = Span::new(file, 0, 0);
        let error = Diagnostic::error(Code::Unexpected, "this file could not be parsed").primary(start, "");
        return Parse { tree, diagnostics: vec![error] };
    };
    let tree = Tree::new(file, text, with_mark(mark, root));
    let diagnostics = errors::collect(&tree);
    Parse { tree, diagnostics }
}

/// The generated parser recurses, and an unoptimised build of it needs tens of kilobytes for each bracket. Text that
/// nests more than usual is parsed on a thread whose stack is large enough for the deepest text allowed.
fn on_stack_for<T: Send>(depth: usize, work: impl Fn() -> T + Send + Sync) -> T {
    const USUAL_DEPTH: usize = 16;
    const STACK: usize = 128 << 20;
    if depth <= USUAL_DEPTH {
        return work();
    }
    std::thread::scope(|scope| match std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, &work) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        Err(_) => work(),
    })
}

pub(crate) fn depth_error(span: Span) -> Diagnostic {
    Diagnostic::error(Code::TooDeep, "nested too deeply")
        .primary(
            span,
            format!("brackets nest at most {MAX_BRACKETS} levels, expressions {}", crate::precedence::MAX_LEVELS),
        )
        .help("name a part with `let`, or move it to a schedule of its own")
}

/// How deep brackets nest, or the offset of the first one beyond the limit.
fn bracket_depth(text: &str) -> Result<usize, usize> {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut at = 0;
    while at < text.len() {
        match text.as_bytes()[at] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'#' | b'"' => at += lex::token(&text[at..]).1 - 1,
            _ => {}
        }
        if depth > MAX_BRACKETS {
            return Err(at);
        }
        deepest = deepest.max(depth);
        at += 1;
    }
    Ok(deepest)
}

/// The whole text as one node of flat tokens.
fn flat(text: &str) -> GreenNode {
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let (kind, length) = lex::token(&text[at..]);
        tokens.push(Green::Token(kind, length as u32));
        at += length;
    }
    let keep = tokens.iter().rposition(|token| !token.is_trivia()).map_or(0, |last| last + 1);
    let trailing = tokens.split_off(keep);
    let leading = tokens.iter().take_while(|token| token.is_trivia()).count();
    let bad = tokens.split_off(leading);
    tokens.push(Green::Node(GreenNode::new(SyntaxKind::BadFile, bad)));
    tokens.extend(trailing);
    GreenNode::new(SyntaxKind::File, tokens)
}

fn with_mark(mark: usize, mut root: GreenNode) -> GreenNode {
    if mark > 0 {
        root.children.insert(0, Green::Token(SyntaxKind::ByteOrderMark, mark as u32));
    }
    root
}
