//! The typed views say what stands in the text.

mod support;

use slapo_syntax::ast::{AstNode, Expr, Item, Literal, LiteralKind, Number, Stmt, Str, TypeRef, Unit};
use slapo_syntax::{FileId, Fix, Parse, SourceMap, Span, SyntaxKind, parse};
use support::checked;

const TEXT: &str = "\
## What this file is for.

use std.parallel.{column, row}
use std.attention.flash
model \"a\\tb.pt2\"
input { batch = 8, seq = 256 }
mesh { dp = auto, tp = 2 }
## How much to recompute.
## In halves.
knob ratio = 0.5 in [0.0, 0.5]
let limit = 10MiB   ## not documentation of what follows
type Mlp = { fc: Linear, act?: [Module] }
pattern twice(x, b?, c: float) = [x + x, b]

## The entry.
schedule main(m: Module, over: axis = tp) {
    let h = m.h
    for i in 0..=3 { h[i].cut(before) }
    if a { m.f() } else if b { m.g() } else { m.k() }
    require a == b, \"too small\"
    try m.fuse()
    column(m.{a, b?}, over: over)
    h[1..].x
}
";

fn item<'t>(parsed: &'t Parse, name: &str) -> Item<'t> {
    let mut items = parsed.file().items();
    items.find(|item| item.name().is_some_and(|token| token.text() == name)).unwrap_or_else(|| panic!("no item {name}"))
}

fn text<'t>(node: Option<impl AstNode<'t>>) -> &'t str {
    node.map_or("", |node| node.syntax().text())
}

#[test]
fn items_and_their_parts() {
    let parsed = checked(TEXT);
    assert!(parsed.is_ok(), "{:?}", parsed.diagnostics);
    let mut kinds = Vec::new();
    for item in parsed.file().items() {
        match item {
            Item::Use(item) => {
                let path: Vec<_> = item.segments().map(|word| word.text()).collect();
                let names = item.names().map(|names| names.map(|name| name.text()).collect::<Vec<_>>());
                kinds.push(format!("use {path:?} {names:?}"));
            }
            Item::Model(item) => kinds.push(format!("model {:?}", item.path().map(Str::value))),
            Item::Input(item) => kinds.push(format!("input {}", item.entries().count())),
            Item::Mesh(item) => {
                let entries = item.entries().map(|entry| (entry.name().map(|name| name.text()), text(entry.value())));
                kinds.push(format!("mesh {:?}", entries.collect::<Vec<_>>()));
            }
            Item::Knob(item) => kinds.push(format!("knob {} in {}", text(item.default()), text(item.domain()))),
            Item::Let(item) => kinds.push(format!("let {}", text(item.value()))),
            Item::Type(item) => match item.ty() {
                Some(TypeRef::Record(record)) => {
                    let fields = record.fields().map(|field| (field.is_optional(), text(field.ty())));
                    kinds.push(format!("type {:?}", fields.collect::<Vec<_>>()));
                }
                other => panic!("{other:?}"),
            },
            Item::Pattern(item) => {
                let params = item.params().expect("parameters").params();
                let params = params.map(|param| (param.is_optional(), text(param.ty())));
                kinds.push(format!("pattern {:?} {}", params.collect::<Vec<_>>(), text(item.body())));
            }
            Item::Schedule(item) => {
                let params = item.params().expect("parameters").params();
                let params = params.map(|param| (text(param.ty()), text(param.default())));
                kinds.push(format!("schedule {:?}", params.collect::<Vec<_>>()));
            }
        }
    }
    insta::assert_snapshot!(kinds.join("\n"));
}

#[test]
fn statements_and_expressions() {
    let parsed = checked(TEXT);
    let schedule = parsed.file().schedules().next().expect("a schedule");
    let mut out = Vec::new();
    for statement in schedule.body().expect("a body").statements() {
        out.push(match statement {
            Stmt::Let(stmt) => format!("let {:?} = {}", stmt.name().map(|name| name.text()), text(stmt.value())),
            Stmt::For(stmt) => format!("for in {} {}", text(stmt.domain()), text(stmt.body())),
            Stmt::If(stmt) => {
                let conditions: Vec<_> = stmt.branches().map(|branch| text(branch.condition())).collect();
                format!("if {conditions:?} else {}", text(stmt.else_body()))
            }
            Stmt::Require(stmt) => format!("require {} {:?}", text(stmt.condition()), stmt.message().map(Str::value)),
            Stmt::Try(stmt) => format!("try {}", text(stmt.call())),
            Stmt::Expr(stmt) => format!("expr {}", text(stmt.expr())),
        });
    }
    insta::assert_snapshot!(out.join("\n"));
}

#[test]
fn postfix_forms() {
    let parsed = checked("let x = f(a.b?.*.**.{c, d?}[0][1 .. 2][..3].g(k: 1, in))\n");
    assert!(parsed.is_ok(), "{:?}", parsed.diagnostics);
    let call = parsed.root().descendants().find_map(Expr::cast);
    let Some(Expr::Call(call)) = call else { panic!("{call:?}") };
    let mut at = call.args().and_then(|args| args.args().next()).and_then(|arg| arg.value());
    let mut out = Vec::new();
    while let Some(expr) = at {
        let (shown, receiver) = match expr {
            Expr::Method(method) => {
                let args = method.args().expect("arguments").args();
                let args = args.map(|arg| (arg.label().map(|label| label.text()), text(arg.value())));
                (
                    format!("method {:?} {:?}", method.name().map(|name| name.text()), args.collect::<Vec<_>>()),
                    method.receiver(),
                )
            }
            Expr::Slice(slice) => (format!("slice {} to {}", text(slice.start()), text(slice.end())), slice.receiver()),
            Expr::Index(index) => (format!("index {}", text(index.index())), index.receiver()),
            Expr::Brace(brace) => {
                let names = brace.names().map(|name| (name.name().map(|word| word.text()), name.is_optional()));
                (format!("braces {:?}", names.collect::<Vec<_>>()), brace.receiver())
            }
            Expr::Globstar(star) => ("globstar".to_string(), star.receiver()),
            Expr::Star(star) => ("star".to_string(), star.receiver()),
            Expr::Field(field) => {
                (format!("field {:?} {}", field.name().map(|name| name.text()), field.is_optional()), field.receiver())
            }
            other => (format!("{:?}", other.syntax().kind()), None),
        };
        out.push(shown);
        at = receiver;
    }
    insta::assert_snapshot!(out.join("\n"));
}

#[test]
fn documentation_stands_directly_above() {
    let parsed = checked(TEXT);
    assert_eq!(parsed.file().docs().as_deref(), Some("What this file is for."));
    assert_eq!(item(&parsed, "ratio").docs().as_deref(), Some("How much to recompute.\nIn halves."));
    assert_eq!(item(&parsed, "main").docs().as_deref(), Some("The entry."));
    assert_eq!(item(&parsed, "Mlp").docs(), None);
    assert_eq!(item(&parsed, "limit").docs(), None);
    let first = checked("## Belongs to the schedule.\nschedule f(m: M) {}\n");
    assert_eq!(first.file().docs(), None);
    assert_eq!(item(&first, "f").docs().as_deref(), Some("Belongs to the schedule."));
    let head = checked("## Of the file.\nuse std.parallel.row\n");
    assert_eq!(head.file().docs().as_deref(), Some("Of the file."));
    let apart = checked("## Of the file.\n\n## Of the item.\nlet x = 1\n");
    assert_eq!(apart.file().docs().as_deref(), Some("Of the file."));
    assert_eq!(item(&apart, "x").docs().as_deref(), Some("Of the item."));
}

fn literals(text: &str, check: impl Fn(Vec<LiteralKind<'_>>)) {
    let parsed = parse(FileId(0), &format!("let x = [{text}]\n"));
    check(parsed.root().descendants().filter_map(Literal::cast).filter_map(Literal::kind).collect());
}

fn numbers(text: &str, check: impl Fn(Vec<Number<'_>>)) {
    literals(text, |found| {
        let numbers = found.into_iter().filter_map(|kind| match kind {
            LiteralKind::Number(number) => Some(number),
            _ => None,
        });
        check(numbers.collect());
    });
}

#[test]
fn numbers_have_values_and_units() {
    numbers("12, 1_000, 0.5, 1e-5, 2.5e3, 10MiB, 1.5KB, 3TiB", |found| {
        let values: Vec<_> = found.iter().map(|number| number.value()).collect();
        let expected = [12.0, 1000.0, 0.5, 1e-5, 2500.0, 10_485_760.0, 1500.0, 3_298_534_883_328.0];
        assert_eq!(values, expected.map(Some));
        let whole: Vec<_> = found.iter().map(|number| number.integer()).collect();
        let none = None;
        assert_eq!(whole, [Some(12), Some(1000), none, none, none, Some(10_485_760), none, Some(3_298_534_883_328)]);
        assert_eq!(found[5].unit(), Some(Unit::MiB));
        assert_eq!((found[5].digits(), found[5].suffix()), ("10", "MiB"));
        assert_eq!(found[3].digits(), "1e-5");
    });
    numbers("2x, 1__0, 1e, 18446744073709551616, 20000000TiB", |found| {
        assert_eq!(found[0].value(), None);
        assert_eq!(found[1].value(), None);
        assert_eq!(found[2].value(), None);
        assert_eq!((found[3].integer(), found[3].value()), (None, Some(18446744073709551616.0)));
        assert_eq!(found[4].integer(), None);
    });
}

#[test]
fn units_have_names() {
    for name in Unit::names() {
        assert_eq!(Unit::parse(name).map(Unit::name), Some(name));
    }
    assert_eq!(Unit::GB.bytes(), 1_000_000_000);
    assert_eq!(Unit::GiB.bytes(), 1 << 30);
}

#[test]
fn strings_have_values() {
    literals(r#""a\"b\\c\n\t", "", "ü", "\q""#, |found| {
        let strings = found.into_iter().filter_map(|kind| match kind {
            LiteralKind::Str(string) => Some(string),
            _ => None,
        });
        let strings: Vec<_> = strings.collect();
        let values: Vec<_> = strings.iter().map(|string| string.value()).collect();
        assert_eq!(values, ["a\"b\\c\n\t", "", "ü", "\\q"]);
        assert_eq!(strings[0].bad_escapes(), []);
        assert_eq!(strings[3].bad_escapes().len(), 1);
    });
    literals("true, false", |found| assert_eq!(found, [LiteralKind::Bool(true), LiteralKind::Bool(false)]));
}

#[test]
fn spans_leave_out_the_trivia() {
    let parsed = checked("  let x = ( a )  # end\n");
    let value = parsed.root().descendants().find_map(Expr::cast).expect("a value");
    assert_eq!(value.span(), Span::new(FileId(0), 10, 15));
    assert_eq!(item(&parsed, "x").span(), Span::new(FileId(0), 2, 15));
}

#[test]
fn the_tree_can_be_walked() {
    let parsed = checked("let x = a + b\n");
    let tree = &parsed.tree;
    let token = tree.token_at(12).expect("a token");
    assert_eq!((token.text(), token.parent().kind()), ("b", SyntaxKind::NameExpr));
    let path: Vec<_> = token.parent().ancestors().map(|node| node.kind()).collect();
    assert_eq!(path, [SyntaxKind::NameExpr, SyntaxKind::BinaryExpr, SyntaxKind::LetStmt, SyntaxKind::File]);
    assert_eq!(tree.node_at(10).kind(), SyntaxKind::BinaryExpr);
    let plus = tree.token_at(10).expect("a plus");
    assert_eq!(
        plus.previous().and_then(|space| space.token()?.previous()).map(|left| left.kind()),
        Some(SyntaxKind::NameExpr)
    );
    assert_eq!(tree.root().next(), None);
    assert_eq!(tree.token_at(99).map(|last| last.kind()), Some(SyntaxKind::Newline));
}

#[test]
fn the_source_map_knows_lines() {
    let mut sources = SourceMap::new();
    let first = sources.add("a.slapo", "let x = 1\r\n\nlet ü = 2");
    let second = sources.add("b.slapo", "");
    assert_eq!((sources.name(second), sources.line_count(first), sources.line_count(second)), ("b.slapo", 3, 1));
    let at = sources.line_column(first, 18);
    assert_eq!((at.line, at.column), (3, 6));
    assert_eq!(sources.place(Span::new(first, 12, 15)), "a.slapo:3:1");
    assert_eq!(sources.line_text(first, 1), "let x = 1");
    assert_eq!(sources.slice(Span::new(first, 16, 18)), "ü");
    assert_eq!(sources.line_column(first, 9_999).line, 3);
    assert_eq!(sources.slice(Span::new(first, 17, 99)), "");
    assert_eq!(sources.text(FileId(7)), "");
}

#[test]
fn fixes_can_be_applied() {
    let file = FileId(0);
    let fix = Fix::safe("both").replace(Span::new(file, 4, 5), "y").insert(Span::new(file, 0, 3), "# ");
    assert_eq!(fix.apply(file, "let x = 1"), "# let y = 1");
}
