//! What the language's own words mean, in a line or two each.

use slapo_core::schedule::{Function, Query, WordKind};

/// Arguments and meaning of what can be asked of a path.
pub fn query(query: Query) -> (&'static str, &'static str) {
    match query.name() {
        "input" => ("port", "The value as it enters the module; a number or name where there are several."),
        "output" => ("port", "The value as it leaves the module; a number or name where there are several."),
        "grad" => ("", "The gradient at a point or of a parameter."),
        "size" => ("dim", "The size of a dimension of a parameter, by its role or number."),
        "only" => ("class, …", "Keeps what is of one of the classes or types."),
        "except" => ("class, …", "Keeps what is of none of the classes or types."),
        "expect" => ("count", "The same selection; an error if it has another size."),
        "find" => ("pattern", "What the pattern matches in the module; an error if that is nothing."),
        "is" => ("class", "Whether it is of the class or type."),
        _ => ("", ""),
    }
}

pub fn function(function: Function) -> &'static str {
    match function.name() {
        "len" => "The number of elements; of a module, of its children.",
        "floor" => "The largest whole number that is not above.",
        "ceil" => "The smallest whole number that is not below.",
        "min" => "The smallest.",
        "max" => "The largest.",
        "abs" => "The number without its sign.",
        "choose" => "The second if the condition holds, else the third.",
        _ => "",
    }
}

/// Arguments and meaning of the collectives and layouts that take arguments.
pub fn shaped(name: &str) -> Option<(&'static str, &'static str)> {
    Some(match name {
        "all_gather" => ("dim", "Puts the pieces along a dimension together on every rank."),
        "reduce_scatter" => ("dim, [groups]", "Adds the ranks' values up and leaves each its piece of a dimension."),
        "all_to_all" => ("from, to, [groups]", "Gathers one dimension and splits another."),
        "slice" => ("dim, [groups]", "Leaves each rank its piece of a dimension; nothing is sent."),
        "shard" => ("dim, [groups]", "Split along a dimension."),
        _ => return None,
    })
}

/// Meaning of a built-in word.
pub fn word(name: &str, kind: WordKind) -> &'static str {
    match (name, kind) {
        ("in", _) => "The input features of a linear layer's weight.",
        ("out", _) => "The output features of a linear layer's weight or bias, however they are stored.",
        ("vocab", _) => "The entries of an embedding.",
        ("hidden", _) => "The features of an embedding, a norm or an activation.",
        ("channel", _) => "The channels of a normalisation.",
        ("head", _) => "The heads of attention.",
        ("expert", _) => "The experts of a mixture.",
        ("batch", _) => "The rows of a step: the first dimension of an activation.",
        ("seq", _) => "The positions of a sequence: the second dimension of an activation.",
        ("token", _) => "Batch and sequence taken together.",
        ("all_reduce", _) => "Adds the ranks' values up, on every rank.",
        ("replicate", _) => "Whole on every rank.",
        ("auto", _) => "As many ranks as the other axes leave: the world size divided by theirs.",
        ("by_name", _) => "Every weight of a replacement is the weight of that name in the module.",
        ("before", _) => "Before the module.",
        ("after", _) => "Behind the module.",
        (name, _) if shaped(name).is_some() => shaped(name).map_or("", |(_, docs)| docs),
        (_, WordKind::DType) => "An element type.",
        (_, WordKind::Order) => "An order of a pipeline's micro-batches.",
        _ => "A word of the language.",
    }
}

/// A half-line for lists of suggestions.
pub fn noun(kind: WordKind) -> &'static str {
    match kind {
        WordKind::Dim => "dimension",
        WordKind::DType => "element type",
        WordKind::Order => "pipeline order",
        WordKind::Side => "side",
        WordKind::Collective => "collective",
        WordKind::Layout => "layout",
        _ => "word",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slapo_core::schedule::WORDS;

    #[test]
    fn everything_of_the_language_is_explained() {
        let queries = Query::names().filter_map(Query::find);
        let silent: Vec<&str> = queries.filter(|query| super::query(*query).1.is_empty()).map(Query::name).collect();
        assert_eq!(silent, [""; 0]);
        let functions = Function::names().filter_map(Function::find);
        let silent: Vec<&str> = functions.filter(|one| function(*one).is_empty()).map(Function::name).collect();
        assert_eq!(silent, [""; 0]);
        let fallback = word("no such word", WordKind::Auto);
        let silent: Vec<&str> =
            WORDS.iter().filter(|one| word(one.name, one.kind) == fallback).map(|one| one.name).collect();
        assert_eq!(silent, [""; 0]);
    }
}
