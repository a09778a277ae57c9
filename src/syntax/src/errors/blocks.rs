//! Errors in how blocks, branches and items fit together.

use crate::code::Code;
use crate::diagnostic::{Diagnostic, Fix};
use crate::kind::SyntaxKind as K;
use crate::span::Span;
use crate::tree::{SyntaxNode, SyntaxToken, Tree};

use super::names::Names;
use super::words::between;
use super::{first_span, forms, indentation, quoted, token_before, token_behind};

/// The error a node stands for, if any.
pub(super) fn explain(node: SyntaxNode<'_>) -> Option<Diagnostic> {
    match node.kind() {
        K::LineGap if node.parent().is_some_and(|parent| parent.kind().is_expr()) => broken_path(node),
        K::LineGap => broken_line(node),
        K::BadBranch => Some(bad_branch(node)),
        K::NestedItem => Some(nested_item(node)),
        K::BadBlock if node.child(K::BadHead).is_none() => Some(bare_block(node)),
        K::ScheduleItem if node.child(K::BadHead).is_none() && node.child(K::ParamList).is_none() => {
            missing_params(node)
        }
        _ => None,
    }
}

/// An `else` or a `{` that should stand on the line before.
fn broken_line(gap: SyntaxNode<'_>) -> Option<Diagnostic> {
    let before = token_before(gap.tree(), gap.start())?;
    let behind = token_behind(gap.tree(), gap.end())?;
    let word = behind.text();
    let error = Diagnostic::error(Code::BrokenLine, format!("`{word}` stands on a line of its own"))
        .primary(behind.span(), "belongs on the line before")
        .help(match word {
            "{" => "the `{` stands behind the head of its block",
            _ => "write `} else {` on one line",
        });
    let gap = between(before.span(), behind.span());
    let only_blank = behind.tree().text()[gap.range()].trim().is_empty();
    Some(if only_blank { error.fix(Fix::safe("join the lines").replace(gap, " ")) } else { error })
}

/// A path that goes on in the next line, once for all lines that it takes.
fn broken_path(gap: SyntaxNode<'_>) -> Option<Diagnostic> {
    let step = gap.parent()?;
    let receivers = std::iter::successors(step.children().next(), |inner| inner.children().next());
    if receivers.take_while(|inner| inner.kind().is_expr()).any(|inner| inner.child(K::LineGap).is_some()) {
        return None;
    }
    let around = step.ancestors().take_while(|outer| outer.kind().is_expr() && outer.start() == step.start());
    let mut joined = Fix::safe("write it on one line");
    let mut is_bare = true;
    for gap in around.filter_map(|step| step.child(K::LineGap)) {
        let line = between(token_before(gap.tree(), gap.start())?.span(), token_behind(gap.tree(), gap.end())?.span());
        is_bare &= gap.tree().text()[line.range()].trim().is_empty();
        joined = joined.delete(line);
    }
    let dot = token_behind(gap.tree(), gap.end())?;
    let error = Diagnostic::error(Code::BrokenLine, "a path goes on in a line of its own")
        .primary(dot.span(), "belongs on the line before")
        .help("a path stands on one line; its calls may be broken inside their parentheses");
    Some(if is_bare { error.fix(joined) } else { error })
}

fn bad_branch(node: SyntaxNode<'_>) -> Diagnostic {
    let word = node.tokens().next();
    let span = word.map_or(node.span(), SyntaxToken::span);
    let earlier = node.parent().and_then(|parent| parent.child(K::ElseBranch));
    match earlier.filter(|earlier| earlier.start() < node.start()) {
        Some(earlier) => Diagnostic::error(Code::LoneElse, "an `if` ends with its first `else`")
            .primary(span, "a second one")
            .secondary(first_span(earlier), "the first one")
            .help("conditions before the last are written `else if ... { }`"),
        None => Diagnostic::error(Code::LoneElse, "expected `if` or `{` behind `else`")
            .primary(node.child(K::BadHead).map_or(span, |head| first_span(head)), "neither")
            .help("a further condition is written `else if ... { }`"),
    }
}

fn nested_item(node: SyntaxNode<'_>) -> Diagnostic {
    let span = first_span(node);
    let word = node.first_token().map_or("", SyntaxToken::text);
    Diagnostic::error(Code::NestedItem, format!("`{word}` cannot stand inside a schedule"))
        .primary(span, "belongs to the top level of the file")
        .help("move it out of the schedule; perhaps a `}` is missing above")
}

fn bare_block(node: SyntaxNode<'_>) -> Diagnostic {
    Diagnostic::error(Code::Unexpected, "a block needs a head")
        .primary(first_span(node), "belongs to nothing")
        .help("blocks follow `schedule`, `for`, `if` and `else`")
}

fn missing_params(node: SyntaxNode<'_>) -> Option<Diagnostic> {
    let open = node.child(K::Block).map(first_span)?;
    let (message, help) = match node.token(K::Word) {
        Some(name) => (
            format!("expected `(` behind `{}`, found `{{`", name.text()),
            format!("a schedule takes at least a module: `schedule {}(m: Module) {{`", name.text()),
        ),
        None => ("expected a name, found `{`".into(), "a schedule has a name: `schedule main(m: Module) {`".into()),
    };
    Some(Diagnostic::error(Code::Unexpected, message).primary(open, "unexpected").help(help))
}

pub(super) fn junk(node: SyntaxNode<'_>) -> Diagnostic {
    Diagnostic::error(Code::TextAfterBlock, format!("unexpected {} behind a block", quoted(node.text())))
        .primary(first_span(node), "expected the end of the line")
        .help("what follows a block starts on a new line")
}

/// Statements outside of every schedule, most often because an earlier `}` closed it too soon.
pub(super) fn misplaced(node: SyntaxNode<'_>, names: &Names<'_>) -> Option<Diagnostic> {
    if continues_earlier(node) {
        return None;
    }
    let first = node.children().next()?;
    let closes = node.children().filter(|child| child.kind() == K::StrayClose).collect::<Vec<_>>();
    if first.kind() == K::AssignStmt && node.children().count() == 1 {
        return forms::explain(first, names);
    }
    if first.kind() == K::StrayClose {
        let fix = Fix::maybe("remove it").delete(first.span());
        return Some(
            Diagnostic::error(Code::ExtraBrace, "this `}` closes nothing")
                .primary(first.span(), "no block is open here")
                .help("remove it, or look for a `}` too many above")
                .fix(fix),
        );
    }
    let error = Diagnostic::error(Code::OutsideSchedule, "a statement stands outside of every schedule")
        .primary(first_span(first), "not inside a schedule");
    Some(match closes.last() {
        Some(close) => error
            .secondary(close.span(), "this `}` closes nothing")
            .help("perhaps a `}` above closes the schedule too soon"),
        None => error.help("statements stand inside `schedule name(m: Module) { ... }`"),
    })
}

/// Follows another run, with nothing but `let` items between.
fn continues_earlier(node: SyntaxNode<'_>) -> bool {
    let mut at = node.previous();
    while let Some(element) = at {
        match element.node().map(SyntaxNode::kind) {
            None | Some(K::LetStmt) => at = element.previous(),
            Some(kind) => return kind == K::Misplaced,
        }
    }
    false
}

/// Blocks that the end of the file or the next item ends. All that end at one place are one error.
pub(super) fn unclosed(tree: &Tree, out: &mut Vec<Diagnostic>) {
    let ends = tree.root().descendants().filter(|node| node.kind() == K::MissingClose);
    let mut blocks: Vec<SyntaxNode<'_>> = ends.filter_map(SyntaxNode::parent).collect();
    blocks.sort_by_key(|block| (block.end(), block.start()));
    for group in blocks.chunk_by(|a, b| a.end() == b.end()) {
        let within_broken = group[0].ancestors().any(|around| around.kind() == K::Misplaced);
        if !within_broken {
            out.push(unclosed_block(tree, group));
        }
    }
}

/// `group` holds the blocks open at one place, the outermost first.
fn unclosed_block(tree: &Tree, group: &[SyntaxNode<'_>]) -> Diagnostic {
    let outer = group[0];
    let message = "a block is never closed";
    let below = outer.descendants().filter(|node| node.kind() == K::Block);
    let wrong = below.filter_map(|block| Some((block, closing_at_odds(tree, block)?))).next();
    if let Some((block, close)) = wrong {
        let indent = indentation(tree.text(), block_start(block));
        let line = close.start() - indentation(tree.text(), close.start()).len() as u32;
        let at = Span::new(tree.file(), line, line);
        return Diagnostic::error(Code::UnclosedBlock, message)
            .primary(open_brace(block), "opened here")
            .secondary(close.span(), "this `}` closes it, but is indented like the end of an outer block")
            .help("add a `}` where the block ends")
            .fix(Fix::maybe("close the block").insert(at, format!("{indent}}}\n")));
    }
    let inner = group[group.len() - 1];
    let error = Diagnostic::error(Code::UnclosedBlock, message).primary(open_brace(inner), "opened here");
    let error = match token_behind(tree, inner.end()) {
        Some(next) => error.secondary(next.span(), "a `}` is missing before this"),
        None => error.note("the file ends inside the block"),
    };
    match group.len() {
        1 => error.help("add a `}` where the block ends"),
        open => error.help(format!("add a `}}` where the block ends; {open} blocks are open at this place")),
    }
}

/// The closing brace of a block if it begins its line with another indentation than the line of the head.
fn closing_at_odds<'t>(tree: &'t Tree, block: SyntaxNode<'t>) -> Option<SyntaxToken<'t>> {
    let close = block.token(K::RBrace)?;
    let before = tree.text()[..close.start() as usize].trim_end_matches([' ', '\t']);
    let begins_line = before.ends_with(['\n', '\r']);
    let differs = || indentation(tree.text(), close.start()) != indentation(tree.text(), block_start(block));
    (begins_line && differs()).then_some(close)
}

/// Where the head of a block begins.
fn block_start(block: SyntaxNode<'_>) -> u32 {
    block.parent().map_or(block.start(), |parent| match parent.kind() {
        K::File | K::Block => block.start(),
        _ => parent.start(),
    })
}

fn open_brace(block: SyntaxNode<'_>) -> Span {
    block.token(K::LBrace).map_or(block.span(), SyntaxToken::span)
}
