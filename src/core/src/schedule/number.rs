//! The language's one number type: exact fractions.
//!
//! Every operation is checked; what does not fit 128 bits is an error, never a wrong or a rounded value.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;

/// A fraction in lowest terms; the denominator is positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Number {
    numerator: i128,
    denominator: i128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArithmeticError {
    Overflow,
    DivisionByZero,
    /// `2 ^ 0.5` is no fraction.
    FractionalExponent,
}

use ArithmeticError::*;

type Result = std::result::Result<Number, ArithmeticError>;

impl Number {
    pub const ZERO: Number = Number { numerator: 0, denominator: 1 };
    pub const ONE: Number = Number { numerator: 1, denominator: 1 };

    pub fn new(numerator: i128, denominator: i128) -> Result {
        if denominator == 0 {
            return Err(DivisionByZero);
        }
        if numerator == i128::MIN || denominator == i128::MIN {
            return Err(Overflow);
        }
        let divisor = gcd(numerator, denominator);
        let sign = if denominator < 0 { -1 } else { 1 };
        Ok(Number { numerator: sign * numerator / divisor, denominator: sign * denominator / divisor })
    }

    /// Reads `12`, `1_000`, `0.5`, `1e-5`.
    pub fn parse(text: &str) -> Result {
        let text = text.replace('_', "");
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits: i128 = format!("{whole}{fraction}").parse().map_err(|_| Overflow)?;
        let exponent: i128 = exponent.parse().map_err(|_| Overflow)?;
        let power = exponent.checked_sub(fraction.len() as i128).ok_or(Overflow)?;
        Number::from(digits).checked_mul(Number::from(10_i128).checked_pow(Number::from(power))?)
    }

    /// The nearest float64, or one of the two nearest where numerator and denominator are both beyond 2⁵³.
    pub fn to_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }

    pub fn is_whole(self) -> bool {
        self.denominator == 1
    }

    /// The value, if it is whole.
    pub fn whole(self) -> Option<i128> {
        self.is_whole().then_some(self.numerator)
    }

    pub fn checked_add(self, other: Number) -> Result {
        let left = times(self.numerator, other.denominator)?;
        let right = times(other.numerator, self.denominator)?;
        Number::new(left.checked_add(right).ok_or(Overflow)?, times(self.denominator, other.denominator)?)
    }

    pub fn checked_sub(self, other: Number) -> Result {
        self.checked_add(-other)
    }

    pub fn checked_mul(self, other: Number) -> Result {
        Number::new(times(self.numerator, other.numerator)?, times(self.denominator, other.denominator)?)
    }

    pub fn checked_div(self, other: Number) -> Result {
        self.checked_mul(Number::new(other.denominator, other.numerator)?)
    }

    /// The remainder, with the divisor's sign.
    pub fn checked_rem(self, other: Number) -> Result {
        let quotient = self.checked_div(other)?.floor();
        self.checked_sub(quotient.checked_mul(other)?)
    }

    pub fn checked_pow(self, exponent: Number) -> Result {
        let mut exponent = exponent.whole().ok_or(FractionalExponent)?;
        let mut base = self;
        if exponent < 0 {
            base = Number::ONE.checked_div(self)?;
            exponent = exponent.checked_neg().ok_or(Overflow)?;
        }
        if base.is_whole() && base.numerator.abs() <= 1 {
            exponent = if exponent == 0 { 0 } else { 2 - exponent % 2 };
        }
        let mut result = Number::ONE;
        while exponent > 0 {
            if exponent % 2 == 1 {
                result = result.checked_mul(base)?;
            }
            exponent /= 2;
            if exponent > 0 {
                base = base.checked_mul(base)?;
            }
        }
        Ok(result)
    }

    pub fn floor(self) -> Number {
        Number { numerator: self.numerator.div_euclid(self.denominator), denominator: 1 }
    }

    pub fn ceil(self) -> Number {
        -(-self).floor()
    }

    pub fn abs(self) -> Number {
        Number { numerator: self.numerator.abs(), ..self }
    }
}

impl std::ops::Neg for Number {
    type Output = Number;

    fn neg(self) -> Number {
        Number { numerator: -self.numerator, ..self }
    }
}

/// Whole numbers; `i128::MIN` has no negative and becomes the number next to it.
impl From<i128> for Number {
    fn from(value: i128) -> Number {
        Number { numerator: value.max(-i128::MAX), denominator: 1 }
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Number {
        Number::from(i128::from(value))
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Number {
        Number::from(value as i128)
    }
}

impl Ord for Number {
    /// Without products, which might overflow: whole parts first, then the inverted rests.
    fn cmp(&self, other: &Number) -> Ordering {
        let (mut a, mut b) = (*self, *other);
        let mut inverted = false;
        let order = loop {
            let (whole_a, whole_b) = (a.floor().numerator, b.floor().numerator);
            if whole_a != whole_b {
                break whole_a.cmp(&whole_b);
            }
            let rest_a = a.numerator.rem_euclid(a.denominator);
            let rest_b = b.numerator.rem_euclid(b.denominator);
            if rest_a == 0 || rest_b == 0 {
                break rest_a.cmp(&rest_b);
            }
            a = Number { numerator: a.denominator, denominator: rest_a };
            b = Number { numerator: b.denominator, denominator: rest_b };
            inverted = !inverted;
        };
        if inverted { order.reverse() } else { order }
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Number) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn times(a: i128, b: i128) -> std::result::Result<i128, ArithmeticError> {
    a.checked_mul(b).ok_or(Overflow)
}

/// Positive for arguments other than two zeros.
fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// `12`, `0.5`; `1/3` where decimals do not end or grow long.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DECIMALS: u32 = 12;
        let scale = (0..=DECIMALS).map(|n| 10_i128.pow(n)).find(|scale| scale % self.denominator == 0);
        let scaled = scale.and_then(|scale| self.numerator.checked_mul(scale / self.denominator).zip(Some(scale)));
        match scaled {
            _ if self.denominator == 1 => write!(f, "{}", self.numerator),
            Some((scaled, scale)) => {
                let width = scale.ilog10() as usize;
                let sign = if scaled < 0 { "-" } else { "" };
                write!(f, "{sign}{}.{:0width$}", scaled.abs() / scale, scaled.abs() % scale)
            }
            None => write!(f, "{}/{}", self.numerator, self.denominator),
        }
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.numerator, self.denominator)
    }
}

impl fmt::Display for ArithmeticError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Overflow => "the result does not fit 128 bits",
            DivisionByZero => "division by zero",
            FractionalExponent => "the exponent must be a whole number",
        })
    }
}

/// As `numerator/denominator`.
impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self:?}"))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Number, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parts = text.split_once('/').and_then(|(n, d)| n.parse().ok().zip(d.parse().ok()));
        parts.and_then(|(n, d)| Number::new(n, d).ok()).ok_or_else(|| serde::de::Error::custom("not a fraction"))
    }
}
