//! What an editor's settings choose: flags of `slapoc check`, for every schedule that is open.

use crate::args;
use crate::levels::Levels;
use serde::Deserialize;
use serde_json::Value;
use slapo_core::schedule::Overrides;
use slapo_syntax::Parse;
use slapo_syntax::ast::Item;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The flags, resolved.
#[derive(Debug, Default)]
pub struct Settings {
    /// Used in place of the schedules' own; relative to the folder that is open.
    pub model: Option<PathBuf>,
    pub levels: Levels,
    batch: Option<i64>,
    seq: Option<i64>,
    world: Option<i64>,
    /// Knobs by name.
    set: BTreeMap<String, String>,
}

/// The flags as they are written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    model: Option<String>,
    batch: Option<i64>,
    seq: Option<i64>,
    world: Option<i64>,
    set: BTreeMap<String, Value>,
    allow: Vec<String>,
    warn: Vec<String>,
    deny: Vec<String>,
}

impl Settings {
    /// Reads `{ "check": { … } }`, also where it stands below `slapo`, as editors send it: `None` where nothing is said
    /// about that, or what is wrong with it.
    pub fn read(sent: &Value) -> Result<Option<Settings>, String> {
        let sent = sent.get("slapo").unwrap_or(sent);
        let Some(check) = sent.get("check").filter(|check| check.is_object()) else { return Ok(None) };
        // What an editor leaves empty, it does not choose.
        let chosen = check.as_object().into_iter().flatten().filter(|(_, value)| !is_empty(value));
        let chosen: Value =
            chosen.map(|(name, value)| (name.clone(), value.clone())).collect::<serde_json::Map<_, _>>().into();
        let written: Written = serde_json::from_value(chosen).map_err(|error| error.to_string())?;
        let Written { model, batch, seq, world, set, allow, warn, deny } = written;
        for (name, value) in [("batch", batch), ("seq", seq), ("world", world)] {
            if value.is_some_and(|value| value < 1) {
                return Err(format!("`{name}` is at least 1"));
            }
        }
        let levels = Levels::new(&args::Levels { allow, warn, deny }).map_err(|failure| failure.message.clone())?;
        let set = set.into_iter().map(|(name, value)| Ok((name.clone(), knob(&name, value)?)));
        let set = set.collect::<Result<_, String>>()?;
        Ok(Some(Settings { model: model.map(PathBuf::from), levels, batch, seq, world, set }))
    }

    /// What they decide for a schedule; knobs that it does not have are those of others.
    pub fn overrides(&self, parse: &Parse) -> Overrides {
        let has_knob = |name: &str| {
            parse
                .file()
                .items()
                .any(|item| matches!(item, Item::Knob(_)) && item.name().is_some_and(|own| own.text() == name))
        };
        let knobs = self.set.iter().filter(|(name, _)| has_knob(name));
        Overrides {
            batch: self.batch,
            seq: self.seq,
            world: self.world,
            knobs: knobs.map(|(name, value)| (name.clone(), value.clone())).collect(),
            ..Overrides::default()
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// A knob's value as a schedule writes it.
fn knob(name: &str, value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => Err(format!("the knob `{name}` is a number, a truth value or a string")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use slapo_syntax::{FileId, parse};

    #[test]
    fn editors_nest_settings_each_in_its_way() {
        let world = |sent: Value| Settings::read(&sent).expect("right").and_then(|settings| settings.world);
        assert_eq!(world(json!({ "check": { "world": 4 } })), Some(4));
        assert_eq!(world(json!({ "slapo": { "check": { "world": 4 } } })), Some(4));
        assert_eq!(world(json!({ "slapo": { "check": { "world": null, "model": "", "deny": [] } } })), None);
        for nothing in [json!(null), json!([]), json!({ "check": [] }), json!({ "slapo": {} })] {
            assert!(Settings::read(&nothing).expect("right").is_none(), "{nothing}");
        }
    }

    #[test]
    fn knobs_are_set_where_a_schedule_has_them() {
        let sent = json!({ "check": { "set": { "ratio": 0.5, "depth": 2, "wide": true, "kind": "a" } } });
        let settings = Settings::read(&sent).expect("right").expect("there");
        let parse = parse(FileId(0), "knob ratio = 1.0\nknob wide = false\n");
        let knobs = settings.overrides(&parse).knobs;
        assert_eq!(
            knobs,
            [("ratio", "0.5"), ("wide", "true")].map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |check: Value| Settings::read(&json!({ "check": check })).expect_err("wrong");
        assert!(wrong(json!({ "wolrd": 4 })).contains("unknown field `wolrd`, expected one of `model`, `batch`"));
        assert_eq!(wrong(json!({ "world": 0 })), "`world` is at least 1");
        assert!(wrong(json!({ "world": "four" })).contains("expected i64"));
        assert_eq!(wrong(json!({ "deny": ["unused-imprt"] })), "there is no lint `unused-imprt`");
        assert!(wrong(json!({ "set": { "ratio": [1] } })).contains("`ratio`"));
    }
}
