//! A match as a recorded step keeps it: by the numbers of values, which belong to one archive.

use crate::patterns::operators::Given;
use crate::patterns::{Match, Param, Pattern};
use serde::{Deserialize, Serialize};
use slapo_model::{Model, ModuleId, ValueId};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedMatch {
    /// Dotted; `transformer.h.0.mlp.act.find(gelu_tanh)`.
    path: String,
    pattern: String,
    within: u32,
    number: Option<u32>,
    age: usize,
    values: Vec<u32>,
    results: Vec<u32>,
    params: Vec<RecordedParam>,
}

/// What a parameter of the pattern stands for: a value, a number, or nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RecordedParam {
    name: String,
    value: Option<u32>,
    number: Option<f64>,
}

impl RecordedMatch {
    pub fn new(found: &Match, path: &str) -> RecordedMatch {
        let numbers = |values: &[ValueId]| values.iter().map(|value| value.0).collect();
        let params = found.pattern.params.iter().zip(&found.bound);
        RecordedMatch {
            path: path.to_string(),
            pattern: found.pattern.name.clone(),
            within: found.within.0,
            number: found.number,
            age: found.age,
            values: numbers(&found.values),
            results: numbers(&found.results),
            params: params
                .map(|(param, given)| RecordedParam {
                    name: param.name.clone(),
                    value: if let Given::Value(value) = given { Some(value.0) } else { None },
                    number: if let Given::Number(number) = given { Some(*number) } else { None },
                })
                .collect(),
        }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// The match, if the model's graph, which has that many values by now, has what it names.
    pub fn restored(&self, model: &Model, values: usize) -> Option<Match> {
        let known = |number: &u32| ((*number as usize) < values).then_some(ValueId(*number));
        let all = |numbers: &[u32]| numbers.iter().map(known).collect::<Option<Vec<ValueId>>>();
        let mut params = Vec::new();
        let mut bound = Vec::new();
        for param in &self.params {
            params.push(Param { name: param.name.clone(), is_number: param.number.is_some(), is_optional: false });
            bound.push(match (&param.value, param.number) {
                (Some(value), _) => Given::Value(known(value)?),
                (None, Some(number)) => Given::Number(number),
                (None, None) => Given::Absent,
            });
        }
        model.modules.get(self.within as usize)?;
        Some(Match {
            pattern: Arc::new(Pattern { name: self.pattern.clone(), params, variants: Vec::new() }),
            within: ModuleId(self.within),
            values: all(&self.values)?,
            results: all(&self.results)?,
            bound,
            number: self.number,
            variant: 0,
            age: self.age,
        })
    }
}
