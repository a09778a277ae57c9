//! "Did you mean": the names closest to a misspelt one.

use slapo_syntax::{Diagnostic, Fix, Span};

/// At most three names close to `wanted`, closest first; none where nothing is close.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    const SHOWN: usize = 3;
    let length = wanted.chars().count();
    let limit = length.div_ceil(3).min(3);
    let mut close: Vec<(usize, &str)> = Vec::new();
    for name in known {
        let distance = match name.eq_ignore_ascii_case(wanted) {
            true => 0,
            // Short names are all near each other: only two letters in the wrong order count.
            false if length < 3 => {
                if wanted.chars().rev().eq(name.chars()) {
                    1
                } else {
                    continue;
                }
            }
            false => distance(wanted, name, limit),
        };
        if distance <= limit && close.iter().all(|(_, seen)| *seen != name) {
            close.push((distance, name));
        }
    }
    close.sort();
    let best = close.first().map_or(0, |(distance, _)| *distance);
    close.into_iter().filter(|(distance, _)| *distance <= best + 1).take(SHOWN).map(|(_, name)| name).collect()
}

/// Writes the one name that is close in the place of a misspelt one, which is the text at `span`.
pub fn corrected<'a>(
    diagnostic: Diagnostic,
    span: Span,
    wanted: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Diagnostic {
    let is_word = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    match nearest(wanted, known).as_slice() {
        // In quotes, the text is longer than the name.
        [one] if is_word(one) && span.len() as usize == wanted.len() => {
            diagnostic.fix(Fix::safe(format!("write `{one}`")).replace(span, *one))
        }
        _ => diagnostic,
    }
}

/// ``did you mean `a`, `b` or `c`?``
pub fn did_you_mean<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let close = nearest(wanted, known);
    (!close.is_empty()).then(|| format!("did you mean {}?", listed(close, "or")))
}

/// `` `a`, `b` or `c` ``
pub fn listed<S: AsRef<str>>(names: impl IntoIterator<Item = S>, last: &str) -> String {
    let mut names: Vec<String> = names.into_iter().map(|name| format!("`{}`", name.as_ref())).collect();
    match names.pop() {
        Some(end) if !names.is_empty() => format!("{} {last} {end}", names.join(", ")),
        Some(end) => end,
        None => String::new(),
    }
}

/// The first names, and how many there are beside them.
pub fn some_of<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    const SHOWN: usize = 8;
    let names: Vec<String> = names.into_iter().map(|name| format!("`{}`", name.as_ref())).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..SHOWN].join(", ")),
    }
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from `a` to `b`; anything beyond `limit` may be
/// given as `limit + 1`.
fn distance(a: &str, b: &str, limit: usize) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > limit {
        return limit + 1;
    }
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    rows[0].iter_mut().enumerate().for_each(|(j, cell)| *cell = j);
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut cell = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cell = cell.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = cell;
        }
    }
    rows[a.len()][b.len()]
}
