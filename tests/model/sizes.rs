//! Size expressions: reading, folding, evaluating, printing.

use slapo_model::sym::{ParseError, Size, Symbol, Values, parse};

const S: &str = "Symbol('s', positive=True, integer=True)";

fn read(text: &str) -> Size {
    parse(&text.replace('@', S)).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn expressions_are_read_and_printed() {
    let cases = [
        ("@", "s", 10, 10),
        ("Integer(-3)", "-3", 0, -3),
        ("7", "7", 0, 7),
        ("Add(@, Integer(-1))", "s - 1", 10, 9),
        ("Add(Integer(1), Mul(Integer(2), @))", "2*s + 1", 10, 21),
        ("Add(@, Mul(Integer(-1), @))", "s - s", 10, 0),
        ("Mul(Integer(2), Add(@, Integer(1)))", "2*(s + 1)", 10, 22),
        ("Mul(@, Mul(Integer(2), Integer(3)))", "6*s", 10, 60),
        ("Mul(Integer(0), @)", "0", 10, 0),
        ("FloorDiv(@, Integer(3))", "s//3", 10, 3),
        ("FloorDiv(@, Integer(1))", "s", 10, 10),
        ("FloorDiv(Mul(Integer(-1), @), Integer(3))", "(-s)//3", 10, -4),
        ("CeilDiv(@, Integer(3))", "-((-s)//3)", 10, 4),
        ("ceiling(Mul(Rational(1, 3), @))", "-((-s)//3)", 10, 4),
        ("floor(Mul(Rational(1, 2), @))", "s//2", 11, 5),
        ("Mul(Rational(3, 2), @)", "(3*s)//2", 10, 15),
        ("Mul(@, Pow(Integer(2), Integer(-1)))", "s//2", 10, 5),
        ("Add(Mul(Rational(1, 2), @), Rational(1, 2))", "(s + 1)//2", 11, 6),
        ("TruncToInt(IntTrueDiv(@, Integer(4)))", "s//4", 10, 2),
        ("PythonMod(@, Integer(4))", "s%4", 10, 2),
        ("Mod(@, Integer(-4))", "s%-4", 10, -2),
        ("ModularIndexing(@, Integer(2), Integer(3))", "(s//2)%3", 10, 2),
        ("Pow(@, Integer(2))", "s**2", 10, 100),
        ("PowByNatural(@, Integer(3))", "s**3", 2, 8),
        ("Max(Integer(12), @)", "max(12, s)", 10, 12),
        ("Min(Integer(12), @, Integer(4))", "min(12, s, 4)", 10, 4),
        ("torch.utils._sympy.functions.FloorDiv(@, Integer(2))", "s//2", 10, 5),
        ("Add(@, Integer(2), evaluate=False)", "s + 2", 10, 12),
    ];
    for (text, printed, s, value) in cases {
        let size = read(text);
        assert_eq!(size.to_string(), printed, "{text}");
        let values = Values::from([(Symbol("s".into()), s)]);
        assert_eq!(size.eval(&values), Some(value), "{text}");
    }
}

#[test]
fn what_has_no_value_is_none() {
    let max = i64::MAX;
    for text in [
        "FloorDiv(@, Integer(0))".to_string(),
        "Mod(@, Integer(0))".to_string(),
        format!("Add(@, Integer({max}))"),
        format!("Mul(@, Integer({max}))"),
        "Pow(@, Integer(64))".to_string(),
        "Mul(@, Symbol('t'))".to_string(),
    ] {
        let values = Values::from([(Symbol("s".into()), 10)]);
        assert_eq!(read(&text).eval(&values), None, "{text}");
    }
    let smallest = Size::floor_div(Size::Const(i64::MIN), Size::Const(-1));
    assert_eq!(smallest.constant(), None);
}

#[test]
fn unknown_functions_are_named() {
    assert_eq!(parse("Zeta(Integer(2))"), Err(ParseError::Function("Zeta".into())));
    assert_eq!(parse("Where(Integer(2))"), Err(ParseError::Function("Where".into())));
}

#[test]
fn broken_expressions_are_refused() {
    for text in [
        "",
        "(",
        ")",
        "Integer",
        "Integer(",
        "Integer(x)",
        "Symbol('s",
        "Symbol(s)",
        "Add(",
        "Add(Integer(1)",
        "Integer(1))",
        "Integer(1) Integer(2)",
        "99999999999999999999",
        "Rational(1)",
        "é",
        "Symbol('é",
        "Add(é)",
        "Integer(1),",
    ] {
        assert_eq!(parse(text), Err(ParseError::Syntax), "{text}");
    }
    let deep = format!("{}Integer(1){}", "Add(".repeat(100_000), ")".repeat(100_000));
    assert_eq!(parse(&deep), Err(ParseError::TooDeep));
}
