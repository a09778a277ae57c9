//! Floating-point numbers in JSON, which has none for infinities and "not a number": these are written as the strings
//! `"inf"`, `"-inf"` and `"nan"`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number on its way through JSON.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Finite(f64),
    Named(String),
}

impl From<f64> for Written {
    fn from(x: f64) -> Written {
        if x.is_finite() {
            return Written::Finite(x);
        }
        let name = match (x.is_nan(), x > 0.0) {
            (true, _) => "nan",
            (false, true) => "inf",
            (false, false) => "-inf",
        };
        Written::Named(name.to_owned())
    }
}

impl TryFrom<Written> for f64 {
    type Error = String;

    fn try_from(written: Written) -> Result<f64, String> {
        match written {
            Written::Finite(x) => Ok(x),
            Written::Named(name) => match name.as_str() {
                "nan" => Ok(f64::NAN),
                "inf" => Ok(f64::INFINITY),
                "-inf" => Ok(f64::NEG_INFINITY),
                _ => Err(format!("`{name}` is no number")),
            },
        }
    }
}

pub fn serialize<S: Serializer>(x: &f64, to: S) -> Result<S::Ok, S::Error> {
    Written::from(*x).serialize(to)
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    f64::try_from(Written::deserialize(from)?).map_err(de::Error::custom)
}

/// The same for lists.
pub mod list {
    use super::*;

    pub fn serialize<S: Serializer>(list: &[f64], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(|x| Written::from(*x)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
        let list = Vec::<Written>::deserialize(from)?;
        let numbers: Result<Vec<f64>, String> = list.into_iter().map(f64::try_from).collect();
        numbers.map_err(de::Error::custom)
    }
}

/// The same for what may be absent.
pub mod optional {
    use super::*;

    pub fn serialize<S: Serializer>(x: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
        x.map(Written::from).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
        let found = Option::<Written>::deserialize(from)?;
        found.map(f64::try_from).transpose().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Arg, Event, MemoryReport};

    #[test]
    fn every_number_survives_json() {
        let numbers = [0.1, -0.0, 1e300, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE];
        for arg in numbers.map(Arg::Float).into_iter().chain([Arg::Floats(numbers.to_vec())]) {
            let text = serde_json::to_string(&arg).expect("writes");
            assert_eq!(serde_json::from_str::<Arg>(&text).expect("reads"), arg, "{text}");
        }
    }

    #[test]
    fn a_diverged_step_can_be_reported() {
        let event = Event::Step {
            step: 1,
            loss: f64::NAN,
            grad_norm: Some(f64::INFINITY),
            seconds: 0.5,
            memory: MemoryReport::default(),
        };
        let text = serde_json::to_string(&event).expect("writes");
        let Event::Step { loss, grad_norm, .. } = serde_json::from_str(&text).expect("reads") else {
            panic!("another event")
        };
        assert!(loss.is_nan() && grad_norm == Some(f64::INFINITY));
    }
}
