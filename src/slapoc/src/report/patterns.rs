//! Many paths as few: numbers become ranges, parameters become the modules that hold them all.

use slapo_core::schedule::Place;
use slapo_model::{Model, ModuleId, ParameterId};
use std::collections::BTreeSet;

/// The path with every number replaced, so that equal shapes can be written as one pattern.
pub fn shape(path: &str) -> String {
    let parts: Vec<&str> = path.split('.').map(|part| if number(part).is_some() { "#" } else { part }).collect();
    parts.join(".")
}

/// Paths of one shape become one pattern where their numbers are all combinations of some lists:
/// `h.0`, `h.1`, `h.2` are `h[0..3]`. Order and shapes are kept; repetitions vanish.
pub fn patterns(paths: &[String]) -> Vec<String> {
    let mut shapes: Vec<(String, Vec<&String>)> = Vec::new();
    for path in paths {
        let shape = shape(path);
        match shapes.iter_mut().find(|(known, _)| *known == shape) {
            Some((_, group)) => group.push(path),
            None => shapes.push((shape, vec![path])),
        }
    }
    shapes.into_iter().flat_map(|(_, group)| of_one_shape(&group, 0)).collect()
}

/// Paths that agree in their first `fixed` numbers.
fn of_one_shape(paths: &[&String], fixed: usize) -> Vec<String> {
    let numbers = |path: &str| path.split('.').filter_map(number).collect::<Vec<u64>>();
    let distinct: BTreeSet<Vec<u64>> = paths.iter().map(|path| numbers(path)).collect();
    let (Some(first), Some(path)) = (distinct.first(), paths.first()) else { return Vec::new() };
    let lists: Vec<BTreeSet<u64>> = (0..first.len()).map(|i| distinct.iter().map(|n| n[i]).collect()).collect();
    if lists.iter().map(BTreeSet::len).product::<usize>() == distinct.len() {
        return vec![written(path, &lists)];
    }
    let with = |value: u64| paths.iter().copied().filter(|path| numbers(path)[fixed] == value).collect::<Vec<_>>();
    lists[fixed].iter().flat_map(|value| of_one_shape(&with(*value), fixed + 1)).collect()
}

fn written(path: &str, lists: &[BTreeSet<u64>]) -> String {
    let mut lists = lists.iter();
    let mut text = String::new();
    for part in path.split('.') {
        match number(part).and_then(|_| lists.next()) {
            Some(list) if list.len() > 1 => text.push_str(&format!("[{}]", ranges(list))),
            _ if text.is_empty() => text.push_str(part),
            _ => text.push_str(&format!(".{part}")),
        }
    }
    text
}

/// `0..3`, `0, 2, 5..8`: the end is excluded, as in the language.
fn ranges(list: &BTreeSet<u64>) -> String {
    let values: Vec<u64> = list.iter().copied().collect();
    let runs = values.chunk_by(|a, b| a + 1 == *b);
    let shown = runs.map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}..{}", last + 1),
        [] => String::new(),
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn number(part: &str) -> Option<u64> {
    let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    part.parse().ok().filter(|n| digits && *n < u64::MAX)
}

/// The fewest paths that hold exactly these parameters: modules of which every parameter is among them, and single
/// tensors.
pub fn cover(model: &Model, parameters: &BTreeSet<ParameterId>) -> Vec<String> {
    let mut paths = Vec::new();
    descend(model, ModuleId(0), parameters, &mut BTreeSet::new(), &mut paths);
    paths
}

fn descend(
    model: &Model,
    module: ModuleId,
    wanted: &BTreeSet<ParameterId>,
    done: &mut BTreeSet<ParameterId>,
    paths: &mut Vec<String>,
) {
    let below = Place::Module(module).parameters(model);
    let here = model.module(module);
    if module != ModuleId(0) && !below.is_empty() && below.iter().all(|id| wanted.contains(id)) {
        // What is only tied to something listed before needs no mention.
        if below.iter().any(|id| !done.contains(id)) {
            paths.push(here.path.clone());
        }
        done.extend(below);
        return;
    }
    for (name, id) in &here.parameters {
        if wanted.contains(id) && done.insert(*id) {
            let path = if here.path.is_empty() { name.clone() } else { format!("{}.{name}", here.path) };
            paths.push(path);
        }
    }
    for child in &here.children {
        descend(model, *child, wanted, done, paths);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(paths: &[&str]) -> Vec<String> {
        patterns(&paths.iter().map(|p| p.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn numbers_become_ranges() {
        assert_eq!(of(&["h.0", "h.1", "h.2"]), ["h[0..3]"]);
        assert_eq!(of(&["h.4.attn"]), ["h.4.attn"]);
        assert_eq!(of(&["h.0.attn", "h.2.attn", "h.5.attn", "h.6.attn"]), ["h[0, 2, 5..7].attn"]);
        assert_eq!(of(&["0", "1"]), ["[0..2]"]);
    }

    #[test]
    fn shapes_stay_apart() {
        assert_eq!(of(&["h.0", "wte", "h.1", "wpe"]), ["h[0..2]", "wte", "wpe"]);
        assert_eq!(of(&["", "h.3"]), ["", "h.3"]);
    }

    #[test]
    fn only_complete_combinations_are_one_pattern() {
        assert_eq!(of(&["a.0.b.0", "a.0.b.1", "a.1.b.0", "a.1.b.1"]), ["a[0..2].b[0..2]"]);
        assert_eq!(of(&["a.0.b.0", "a.0.b.1", "a.1.b.0"]), ["a.0.b[0..2]", "a.1.b.0"]);
    }
}
