//! Reader of the expressions an archive writes: sympy's `srepr`, such as
//! `Mul(Integer(2), Symbol('s72', positive=True, integer=True))`.
//!
//! PyTorch adds functions of its own (`FloorDiv`, `CeilDiv`, `PythonMod`, …). Fractions appear where a division is
//! known to be exact: `Mul(Rational(1, 2), s)` is read as `s // 2`.

use super::{Size, Symbol};
use std::fmt;

/// Deeper expressions are refused: reading, printing and evaluating them recurse.
const MAX_DEPTH: u32 = 64;

/// Why an expression cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// A function without a meaning here.
    Function(String),
    Syntax,
    TooDeep,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::Function(name) => write!(f, "function `{name}` in a size"),
            ParseError::Syntax => f.write_str("a size that is no sympy expression"),
            ParseError::TooDeep => write!(f, "a size nested more than {MAX_DEPTH} deep"),
        }
    }
}

/// Reads one expression.
pub fn parse(text: &str) -> Result<Size, ParseError> {
    let mut parser = Parser { rest: text.trim() };
    let value = parser.expression(0)?;
    if !parser.rest.is_empty() {
        return Err(ParseError::Syntax);
    }
    Ok(value.size())
}

/// A rational expression: `numerator / denominator`, read as a floor division in the end.
#[derive(Clone)]
struct Fraction {
    numerator: Size,
    denominator: Size,
}

impl Fraction {
    fn whole(numerator: Size) -> Fraction {
        Fraction { numerator, denominator: Size::Const(1) }
    }

    fn size(self) -> Size {
        Size::floor_div(self.numerator, self.denominator)
    }

    /// `⌈a/b⌉ = -⌊-a/b⌋`
    fn ceiling(self) -> Fraction {
        let negative = |size| Size::mul(vec![Size::Const(-1), size]);
        let floor = Size::floor_div(negative(self.numerator), self.denominator);
        Fraction::whole(negative(floor))
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn expression(&mut self, depth: u32) -> Result<Fraction, ParseError> {
        if depth > MAX_DEPTH {
            return Err(ParseError::TooDeep);
        }
        if let Some(value) = self.number() {
            return Ok(Fraction::whole(Size::Const(value)));
        }
        let path = self.take(|c| c.is_alphanumeric() || c == '_' || c == '.');
        let name = path.rsplit('.').next().unwrap_or(path);
        self.expect("(")?;
        match name {
            "" => Err(ParseError::Syntax),
            "Symbol" => self.symbol(),
            "Integer" => {
                let value = self.number().ok_or(ParseError::Syntax)?;
                self.expect(")")?;
                Ok(Fraction::whole(Size::Const(value)))
            }
            "Rational" | "Half" => self.rational(),
            _ => {
                let arguments = self.arguments(depth + 1)?;
                apply(name, arguments)
            }
        }
    }

    /// `Symbol('s72', positive=True, integer=True)`, after the parenthesis.
    fn symbol(&mut self) -> Result<Fraction, ParseError> {
        let quote = if self.rest.starts_with('"') { '"' } else { '\'' };
        self.expect(if quote == '"' { "\"" } else { "'" })?;
        let name = self.take(|c| c != quote);
        self.rest = self.rest.get(1..).ok_or(ParseError::Syntax)?;
        self.take(|c| c != ')');
        self.expect(")")?;
        Ok(Fraction::whole(Size::Symbol(Symbol(name.to_string()))))
    }

    /// `Rational(1, 2)`, after the parenthesis.
    fn rational(&mut self) -> Result<Fraction, ParseError> {
        let numerator = self.number().ok_or(ParseError::Syntax)?;
        self.expect(",")?;
        let denominator = self.number().ok_or(ParseError::Syntax)?;
        self.expect(")")?;
        Ok(Fraction { numerator: Size::Const(numerator), denominator: Size::Const(denominator) })
    }

    /// Positional arguments up to the closing parenthesis; keywords such as `evaluate=False` are skipped.
    fn arguments(&mut self, depth: u32) -> Result<Vec<Fraction>, ParseError> {
        let mut arguments = Vec::new();
        loop {
            self.skip_keyword();
            if self.eat(")") {
                return Ok(arguments);
            }
            arguments.push(self.expression(depth)?);
            if !self.eat(",") {
                self.expect(")")?;
                return Ok(arguments);
            }
        }
    }

    fn skip_keyword(&mut self) {
        let trimmed = self.rest.trim_start();
        let end = trimmed.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        if let Some(end) = end
            && end > 0
            && trimmed[end..].starts_with('=')
        {
            self.rest = &trimmed[end..];
            self.take(|c| c != ',' && c != ')');
            self.eat(",");
        }
    }

    fn number(&mut self) -> Option<i64> {
        let trimmed = self.rest.trim_start();
        let digits = trimmed.strip_prefix('-').unwrap_or(trimmed);
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        let length = trimmed.len() - digits.len() + count;
        let value = trimmed[..length].parse().ok()?;
        self.rest = &trimmed[length..];
        Some(value)
    }

    fn take(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let trimmed = self.rest.trim_start();
        let end = trimmed.find(|c| !keep(c)).unwrap_or(trimmed.len());
        self.rest = &trimmed[end..];
        &trimmed[..end]
    }

    fn eat(&mut self, token: &str) -> bool {
        match self.rest.trim_start().strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), ParseError> {
        if self.eat(token) { Ok(()) } else { Err(ParseError::Syntax) }
    }
}

/// Functions with a meaning; sizes are not negative, so truncation is rounding down.
fn apply(name: &str, arguments: Vec<Fraction>) -> Result<Fraction, ParseError> {
    match name {
        "Add" => return Ok(total(arguments)),
        "Mul" => return Ok(product(arguments)),
        _ => {}
    }
    if let Ok([a, b]) = <[Fraction; 2]>::try_from(arguments.clone()) {
        match name {
            "Pow" => return power(a, b),
            "IntTrueDiv" => return Ok(quotient(a, b)),
            "FloorDiv" | "CleanDiv" => return Ok(Fraction::whole(quotient(a, b).size())),
            "CeilDiv" => return Ok(quotient(a, b).ceiling()),
            _ => {}
        }
    }
    if let Ok([value]) = <[Fraction; 1]>::try_from(arguments.clone()) {
        match name {
            "Identity" => return Ok(value),
            "floor" | "FloorToInt" | "TruncToInt" => return Ok(Fraction::whole(value.size())),
            "ceiling" | "CeilToInt" => return Ok(value.ceiling()),
            _ => {}
        }
    }
    let sizes: Vec<Size> = arguments.into_iter().map(Fraction::size).collect();
    let size = match (name, sizes.as_slice()) {
        ("Max", [_, ..]) => Size::max(sizes),
        ("Min", [_, ..]) => Size::min(sizes),
        ("Mod" | "PythonMod", [a, b]) => Size::modulo(a.clone(), b.clone()),
        ("PowByNatural", [a, b]) => Size::pow(a.clone(), b.clone()),
        ("ModularIndexing", [a, b, modulus]) => Size::modulo(Size::floor_div(a.clone(), b.clone()), modulus.clone()),
        _ => return Err(ParseError::Function(name.to_string())),
    };
    Ok(Fraction::whole(size))
}

/// `a/b + c/d = (a·d + c·b) / (b·d)`
fn total(terms: Vec<Fraction>) -> Fraction {
    let zero = Fraction::whole(Size::Const(0));
    terms.into_iter().fold(zero, |a, b| {
        if a.denominator == b.denominator {
            return Fraction { numerator: Size::add(vec![a.numerator, b.numerator]), ..a };
        }
        Fraction {
            numerator: Size::add(vec![
                Size::mul(vec![a.numerator, b.denominator.clone()]),
                Size::mul(vec![b.numerator, a.denominator.clone()]),
            ]),
            denominator: Size::mul(vec![a.denominator, b.denominator]),
        }
    })
}

fn product(factors: Vec<Fraction>) -> Fraction {
    let (numerators, denominators) = factors.into_iter().map(|f| (f.numerator, f.denominator)).unzip();
    Fraction { numerator: Size::mul(numerators), denominator: Size::mul(denominators) }
}

fn quotient(a: Fraction, b: Fraction) -> Fraction {
    Fraction {
        numerator: Size::mul(vec![a.numerator, b.denominator]),
        denominator: Size::mul(vec![a.denominator, b.numerator]),
    }
}

/// `Pow(x, Integer(-1))` is how sympy writes a division.
fn power(base: Fraction, exponent: Fraction) -> Result<Fraction, ParseError> {
    match exponent.size() {
        Size::Const(n) if n < 0 => {
            let exponent = Size::Const(n.checked_neg().ok_or(ParseError::Syntax)?);
            Ok(Fraction {
                numerator: Size::pow(base.denominator, exponent.clone()),
                denominator: Size::pow(base.numerator, exponent),
            })
        }
        exponent => Ok(Fraction::whole(Size::pow(base.size(), exponent))),
    }
}
