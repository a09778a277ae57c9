//! Right schedules parse without a word, and the tree has the structure the grammar promises.

mod support;

use slapo_syntax::ast::{AstNode, BinaryOp, Expr, PrefixOp, Range};
use slapo_syntax::{FileId, parse};
use support::{checked, rendered, schedules};

#[test]
fn right_schedules_have_no_errors() {
    for (name, text) in schedules("good") {
        assert_eq!(rendered(&name, &text), "", "{name}");
        let parsed = checked(&text);
        let marks: Vec<_> = parsed.root().descendants().filter(|node| node.kind().is_error()).collect();
        assert!(marks.is_empty(), "{name}: {marks:?}");
    }
}

#[test]
fn a_tree_in_full() {
    let text = "\
# a comment
## The entry.
schedule main(m: Module, over: axis = tp) {
    for b in m.h[..n / 2] {   # behind a brace
        b.{weight, bias?}.shard(in, over: over)
    }
    if not tp == 1 { m.fuse() } else { m.**.only(Linear).freeze() }
}
";
    insta::assert_snapshot!(checked(text).tree.dump());
}

/// The grouping of an expression, by parentheses around every operation.
fn grouped(expr: Option<Expr<'_>>) -> String {
    match expr {
        Some(Expr::Binary(binary)) => {
            let op = binary.op().map_or("?", BinaryOp::symbol);
            format!("({} {op} {})", grouped(binary.left()), grouped(binary.right()))
        }
        Some(Expr::Prefix(prefix)) => {
            let op = if prefix.op() == Some(PrefixOp::Neg) { "-" } else { "not " };
            format!("({op}{})", grouped(prefix.operand()))
        }
        Some(other) => other.syntax().text().to_string(),
        None => "?".to_string(),
    }
}

#[test]
fn precedence() {
    let cases = [
        "-x ^ 2",
        "2 ^ 3 ^ 2",
        "x ^ -2",
        "x ^ -y ^ 2",
        "not a == b and c",
        "a or b and not c or d",
        "a + b * c - d / e % f",
        "a - b - c",
        "-a * -b",
        "- -a.b[0] + 1",
        "a < b + 1 and b + 1 != c",
        "a + not b == c",
        "not not a",
        "1 - -1",
        "m.h.* * 2",
        "a.b ^ c.d()",
    ];
    let mut out = String::new();
    for case in cases {
        let parsed = parse(FileId(0), &format!("let x = {case}"));
        assert!(parsed.is_ok(), "{case}: {:?}", parsed.diagnostics);
        let value = parsed.root().children().next().and_then(|stmt| stmt.children().find_map(Expr::cast));
        out.push_str(&format!("{case:24} {}\n", grouped(value)));
    }
    insta::assert_snapshot!(out);
}

#[test]
fn a_range_reaches_over_sums() {
    let parsed = parse(FileId(0), "schedule f(m: M) { for i in 0..n + 1 { m.g(i) } }");
    assert!(parsed.is_ok());
    let range = parsed.root().descendants().find_map(Range::cast).expect("a range");
    assert_eq!(range.start().map(|start| start.syntax().text()), Some("0"));
    assert_eq!(range.end().map(|end| end.syntax().text()), Some("n + 1"));
}

#[test]
fn newlines_end_statements_outside_of_brackets_only() {
    let right = [
        "let x = a +\n    b\n",
        "let x =\n    a\n",
        "schedule f(\n    m: Module,\n    over: axis,\n) {\n    m.g(\n        a,  # why\n\n        b,\n    )\n}\n",
        "schedule f(m: M) {\n    require a == b,\n        \"text\"\n}\n",
        "mesh {\n    dp = 2,\n\n    # why\n    tp = 2,\n}\n",
        "use std.parallel.{\n    column,\n    row,\n}\n",
        "type T = {\n    a: M,\n    b?: [N],\n}\n",
        "schedule f(m: M) { m.g() }",
        "schedule f(m: M) {}",
        "mesh { }",
        "\n\n# only a comment",
    ];
    for text in right {
        assert_eq!(rendered("right", text), "", "{text}");
    }
    for text in ["let x = a\n    + b\n", "let x = m\n    .h\n", "use std\n.parallel\n"] {
        assert!(!parse(FileId(0), text).is_ok(), "{text}");
    }
}
