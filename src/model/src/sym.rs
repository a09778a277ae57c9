//! Symbolic sizes: integer expressions over the archive's size symbols.
//!
//! Expressions are made by [`parse`] or by the constructors, which fold constants; arithmetic is checked, so a value
//! that does not fit is `None` and never wraps.

mod parse;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub use parse::{ParseError, parse};

/// A size symbol of the archive, such as `s72`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(pub String);

/// Inclusive bounds; `None` is unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub min: Option<i64>,
    pub max: Option<i64>,
}

/// An integer expression over symbols.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    Const(i64),
    Symbol(Symbol),
    Add(Vec<Size>),
    Mul(Vec<Size>),
    FloorDiv(Box<Size>, Box<Size>),
    Mod(Box<Size>, Box<Size>),
    Max(Vec<Size>),
    Min(Vec<Size>),
    Pow(Box<Size>, Box<Size>),
}

/// Values of symbols.
pub type Values = BTreeMap<Symbol, i64>;

impl Range {
    pub fn contains(&self, value: i64) -> bool {
        self.min.is_none_or(|min| min <= value) && self.max.is_none_or(|max| value <= max)
    }

    /// The values in both ranges.
    pub fn intersect(self, other: Range) -> Range {
        let min = match (self.min, other.min) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        let max = match (self.max, other.max) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Range { min, max }
    }
}

impl Size {
    pub fn symbol(name: &str) -> Size {
        Size::Symbol(Symbol(name.to_string()))
    }

    /// A sum; constants are added up, nested sums flattened.
    pub fn add(terms: Vec<Size>) -> Size {
        let terms = flatten(terms, |size| match size {
            Size::Add(inner) => Ok(inner),
            other => Err(other),
        });
        fold(terms, 0, i64::checked_add, Size::Add)
    }

    /// A product; constants are multiplied, nested products flattened.
    pub fn mul(factors: Vec<Size>) -> Size {
        let factors = flatten(factors, |size| match size {
            Size::Mul(inner) => Ok(inner),
            other => Err(other),
        });
        if factors.contains(&Size::Const(0)) {
            return Size::Const(0);
        }
        fold(factors, 1, i64::checked_mul, Size::Mul)
    }

    pub fn floor_div(numerator: Size, denominator: Size) -> Size {
        if denominator == Size::Const(1) {
            return numerator;
        }
        Size::FloorDiv(Box::new(numerator), Box::new(denominator)).folded()
    }

    pub fn modulo(value: Size, divisor: Size) -> Size {
        Size::Mod(Box::new(value), Box::new(divisor)).folded()
    }

    pub fn max(sizes: Vec<Size>) -> Size {
        one_or(sizes, Size::Max)
    }

    pub fn min(sizes: Vec<Size>) -> Size {
        one_or(sizes, Size::Min)
    }

    pub fn pow(base: Size, exponent: Size) -> Size {
        if exponent == Size::Const(1) {
            return base;
        }
        Size::Pow(Box::new(base), Box::new(exponent)).folded()
    }

    /// The value of a size without symbols.
    pub fn constant(&self) -> Option<i64> {
        match self {
            Size::Const(value) => Some(*value),
            Size::Symbol(_) => None,
            _ => self.eval(&Values::new()),
        }
    }

    /// The value under `values`; `None` where a symbol is missing, a divisor is 0 or a result does not fit.
    pub fn eval(&self, values: &Values) -> Option<i64> {
        let each = |sizes: &[Size], pick: fn(i64, i64) -> Option<i64>| {
            let mut values = sizes.iter().map(|size| size.eval(values));
            let first = values.next()??;
            values.try_fold(first, |acc, next| pick(acc, next?))
        };
        match self {
            Size::Const(value) => Some(*value),
            Size::Symbol(symbol) => values.get(symbol).copied(),
            Size::Add(terms) => each(terms, i64::checked_add),
            Size::Mul(factors) => each(factors, i64::checked_mul),
            Size::Max(sizes) => each(sizes, |a, b| Some(a.max(b))),
            Size::Min(sizes) => each(sizes, |a, b| Some(a.min(b))),
            Size::FloorDiv(a, b) => floor_div(a.eval(values)?, b.eval(values)?),
            Size::Mod(a, b) => {
                let (a, b) = (a.eval(values)?, b.eval(values)?);
                a.checked_sub(floor_div(a, b)?.checked_mul(b)?)
            }
            Size::Pow(base, exponent) => {
                let exponent = u32::try_from(exponent.eval(values)?).ok()?;
                base.eval(values)?.checked_pow(exponent)
            }
        }
    }

    /// The expression with other names for its symbols, terms and factors ordered by them.
    pub fn rename(&self, names: &BTreeMap<Symbol, Symbol>) -> Size {
        let all = |sizes: &[Size]| {
            let mut renamed: Vec<Size> = sizes.iter().map(|size| size.rename(names)).collect();
            renamed.sort_by_key(Size::to_string);
            renamed
        };
        let one = |size: &Size| Box::new(size.rename(names));
        match self {
            Size::Const(value) => Size::Const(*value),
            Size::Symbol(symbol) => Size::Symbol(names.get(symbol).unwrap_or(symbol).clone()),
            Size::Add(sizes) => Size::Add(all(sizes)),
            Size::Mul(sizes) => Size::Mul(all(sizes)),
            Size::Max(sizes) => Size::Max(all(sizes)),
            Size::Min(sizes) => Size::Min(all(sizes)),
            Size::FloorDiv(a, b) => Size::FloorDiv(one(a), one(b)),
            Size::Mod(a, b) => Size::Mod(one(a), one(b)),
            Size::Pow(a, b) => Size::Pow(one(a), one(b)),
        }
    }

    /// The expression with other expressions in place of symbols; `None` where a symbol has none.
    pub fn substitute(&self, sizes: &BTreeMap<Symbol, Size>) -> Option<Size> {
        let all = |list: &[Size]| list.iter().map(|size| size.substitute(sizes)).collect::<Option<Vec<Size>>>();
        Some(match self {
            Size::Const(value) => Size::Const(*value),
            Size::Symbol(symbol) => sizes.get(symbol)?.clone(),
            Size::Add(terms) => Size::add(all(terms)?),
            Size::Mul(factors) => Size::mul(all(factors)?),
            Size::Max(list) => Size::max(all(list)?),
            Size::Min(list) => Size::min(all(list)?),
            Size::FloorDiv(a, b) => Size::floor_div(a.substitute(sizes)?, b.substitute(sizes)?),
            Size::Mod(a, b) => Size::modulo(a.substitute(sizes)?, b.substitute(sizes)?),
            Size::Pow(a, b) => Size::pow(a.substitute(sizes)?, b.substitute(sizes)?),
        })
    }

    /// Every symbol of the expression.
    pub fn symbols(&self) -> BTreeSet<&Symbol> {
        let mut found = BTreeSet::new();
        self.collect(&mut found);
        found
    }

    fn collect<'a>(&'a self, found: &mut BTreeSet<&'a Symbol>) {
        match self {
            Size::Const(_) => {}
            Size::Symbol(symbol) => {
                found.insert(symbol);
            }
            Size::Add(sizes) | Size::Mul(sizes) | Size::Max(sizes) | Size::Min(sizes) => {
                sizes.iter().for_each(|size| size.collect(found));
            }
            Size::FloorDiv(a, b) | Size::Mod(a, b) | Size::Pow(a, b) => {
                a.collect(found);
                b.collect(found);
            }
        }
    }

    fn folded(self) -> Size {
        match self.constant() {
            Some(value) => Size::Const(value),
            None => self,
        }
    }
}

fn flatten(sizes: Vec<Size>, open: fn(Size) -> Result<Vec<Size>, Size>) -> Vec<Size> {
    let mut flat = Vec::with_capacity(sizes.len());
    for size in sizes {
        match open(size) {
            Ok(inner) => flat.extend(inner),
            Err(size) => flat.push(size),
        }
    }
    flat
}

/// Folds the constants of `sizes` into one, which stands first; a sum that does not fit stays unfolded.
fn fold(sizes: Vec<Size>, neutral: i64, op: fn(i64, i64) -> Option<i64>, build: fn(Vec<Size>) -> Size) -> Size {
    let total = sizes.iter().try_fold(neutral, |acc, size| match size {
        Size::Const(value) => op(acc, *value),
        _ => Some(acc),
    });
    let Some(total) = total else {
        return build(sizes);
    };
    let mut rest: Vec<Size> = sizes.into_iter().filter(|size| !matches!(size, Size::Const(_))).collect();
    if rest.is_empty() {
        return Size::Const(total);
    }
    if total != neutral {
        rest.insert(0, Size::Const(total));
    }
    one_or(rest, build)
}

fn one_or(mut sizes: Vec<Size>, build: fn(Vec<Size>) -> Size) -> Size {
    match sizes.len() {
        1 => sizes.remove(0),
        _ => build(sizes).folded(),
    }
}

/// Division rounding towards minus infinity.
fn floor_div(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    let exact = a.checked_rem(b)? == 0;
    Some(if exact || (a < 0) == (b < 0) { quotient } else { quotient - 1 })
}

/// `2*s72*(s70 - 1)`
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Const(value) => write!(f, "{value}"),
            Size::Symbol(symbol) => f.write_str(&symbol.0),
            Size::Add(terms) => sum(f, terms),
            Size::Mul(factors) => product(f, factors),
            Size::FloorDiv(a, b) => pair(f, a, "//", b),
            Size::Mod(a, b) => pair(f, a, "%", b),
            Size::Pow(a, b) => pair(f, a, "**", b),
            Size::Max(sizes) => call(f, "max", sizes),
            Size::Min(sizes) => call(f, "min", sizes),
        }
    }
}

/// `2*s70`, `-s70`
fn product(f: &mut fmt::Formatter<'_>, factors: &[Size]) -> fmt::Result {
    let factors = match factors {
        [Size::Const(-1), rest @ ..] if !rest.is_empty() => {
            f.write_str("-")?;
            rest
        }
        factors => factors,
    };
    for (i, factor) in factors.iter().enumerate() {
        if i > 0 {
            f.write_str("*")?;
        }
        tight(f, factor)?;
    }
    Ok(())
}

/// Symbolic terms first: `s70 - 1`.
fn sum(f: &mut fmt::Formatter<'_>, terms: &[Size]) -> fmt::Result {
    let constant = |size: &&Size| matches!(size, Size::Const(_));
    let ordered = terms.iter().filter(|t| !constant(t)).chain(terms.iter().filter(constant));
    for (i, term) in ordered.enumerate() {
        let text = term.to_string();
        match (i, text.strip_prefix('-')) {
            (0, _) => f.write_str(&text)?,
            (_, Some(positive)) => write!(f, " - {positive}")?,
            (_, None) => write!(f, " + {text}")?,
        }
    }
    Ok(())
}

fn pair(f: &mut fmt::Formatter<'_>, a: &Size, op: &str, b: &Size) -> fmt::Result {
    tight(f, a)?;
    f.write_str(op)?;
    tight(f, b)
}

fn tight(f: &mut fmt::Formatter<'_>, size: &Size) -> fmt::Result {
    match size {
        Size::Add(_) | Size::FloorDiv(..) | Size::Mod(..) | Size::Pow(..) | Size::Mul(_) => {
            write!(f, "({size})")
        }
        _ => write!(f, "{size}"),
    }
}

fn call(f: &mut fmt::Formatter<'_>, name: &str, sizes: &[Size]) -> fmt::Result {
    let sizes: Vec<String> = sizes.iter().map(Size::to_string).collect();
    write!(f, "{name}({})", sizes.join(", "))
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `2..=128`, `2..`, `..=7`
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(min) = self.min {
            write!(f, "{min}")?;
        }
        f.write_str("..")?;
        match self.max {
            Some(max) => write!(f, "={max}"),
            None => Ok(()),
        }
    }
}
