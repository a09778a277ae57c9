//! What is shown without being asked for: outline, folds, colours, hints, fixes.

use super::{main_of, snapshot};
use slapo_ide::{Symbol, TokenKind, actions, folds, hints, symbols, tokens};
use slapo_syntax::Span;

#[test]
fn the_outline_has_every_declaration() {
    let snapshot = snapshot(&format!("knob ratio = 0.5 in [0.0, 0.5]\n{}", main_of("let blocks = m.transformer.h")));
    let shown = |symbol: &Symbol| format!("{} {}", symbol.name, symbol.detail).trim().to_owned();
    let all = symbols(&snapshot);
    let names: Vec<String> = all.iter().map(shown).collect();
    assert_eq!(names, ["ratio 0.5", "model gpt2-tiny.pt2", "input", "mesh", "main (m: GPT2LMHeadModel)"]);
    assert_eq!(all[3].children.iter().map(shown).collect::<Vec<_>>(), ["dp 2", "tp 2"]);
    assert_eq!(all[4].children.iter().map(shown).collect::<Vec<_>>(), ["blocks m.transformer.h"]);
}

#[test]
fn blocks_and_comments_fold() {
    let snapshot = snapshot(&format!(
        "# one\n# two\n\n# alone\n{}",
        main_of("for b in m.transformer.h {\n        b.freeze()\n    }")
    ));
    let lines = |span: Span| {
        let line = |offset| snapshot.files.line_column(span.file, offset).line;
        (line(span.start), line(span.end))
    };
    let found: Vec<_> = folds(&snapshot).into_iter().map(|fold| (lines(fold.span), fold.is_comment)).collect();
    assert_eq!(found, [((11, 15), false), ((12, 14), false), ((1, 2), true)]);
}

#[test]
fn words_are_coloured_by_meaning() {
    let snapshot = snapshot(&main_of("column(m.lm_head, over: tp)\n    m.lm_head.weight.shard(in, over: tp)"));
    let all = tokens(&snapshot);
    let kinds = |word: &str| {
        let of = all.iter().filter(|token| snapshot.files.slice(token.span) == word);
        of.map(|token| (token.kind, token.is_declaration)).collect::<Vec<_>>()
    };
    assert_eq!(kinds("column"), [(TokenKind::Schedule, true), (TokenKind::Schedule, false)]);
    assert_eq!(kinds("tp"), [(TokenKind::Axis, true), (TokenKind::Axis, false), (TokenKind::Axis, false)]);
    assert_eq!(kinds("lm_head"), [(TokenKind::Path, false), (TokenKind::Path, false)]);
    assert_eq!(kinds("shard"), [(TokenKind::Method, false)]);
    assert_eq!(kinds("in"), [(TokenKind::Word, false)]);
    assert_eq!(kinds("GPT2LMHeadModel"), [(TokenKind::Type, false)]);
    assert_eq!(kinds("schedule"), [(TokenKind::Keyword, false)]);
    assert!(all.windows(2).all(|pair| pair[0].span.end <= pair[1].span.start));
}

#[test]
fn hints_count_matches_and_show_local_shapes() {
    let shown = |statements: &str| {
        let snapshot = snapshot(&main_of(statements));
        let hints = hints(&snapshot);
        hints
            .into_iter()
            .map(|hint| {
                let at = snapshot.files.line_column(snapshot.file, hint.offset);
                format!("{}:{} {}", at.line, at.column, hint.text)
            })
            .collect::<Vec<_>>()
    };
    let mesh = "5:24 4 ranks, 682.2 KiB of parameters on each";
    assert_eq!(shown("m.transformer.h.*.checkpoint()"), [mesh, "8:22 3 modules"]);
    assert_eq!(shown("m.**.only(Conv1D).{weight, bias}.freeze()"), [mesh, "8:37 24 parameters"]);
    assert_eq!(
        shown("for b in m.transformer.h {\n        column(b.mlp.c_fc, over: tp)\n    }"),
        [
            "5:24 4 ranks, 584.8 KiB of parameters on each",
            "9:37 weight [64, 256] → [64, 128], bias [256] → [128]: 97.5 KiB on each rank"
        ]
    );
    assert_eq!(shown("m.transformer.h[0].checkpoint()"), [mesh]);
}

#[test]
fn fixes_are_offered_where_the_mistake_is() {
    let text = main_of("m.data_parallel(over = dp)");
    let snapshot = snapshot(&text);
    let place = text.find("over =").expect("there") as u32;
    let found = actions(&snapshot, Span::new(snapshot.file, place, place + 6));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].is_safe);
    assert_eq!(found[0].title, "Write `:`");
    assert_eq!(snapshot.diagnostics[found[0].diagnostic].code.id(), "S0015");
    let mut fixed = text.clone();
    fixed.replace_range(found[0].edits[0].span.range(), &found[0].edits[0].replacement);
    assert!(fixed.contains("(over: dp)"), "{fixed}");
    assert_eq!(actions(&snapshot, Span::new(snapshot.file, 0, 1)), []);
    let end = text.find("= dp)").expect("there") as u32 + 5;
    assert_eq!(actions(&snapshot, Span::new(snapshot.file, end, end)), found, "at the end of the line");
}
