//! The generated parts of the documentation, written from the compiler's own tables.
//!
//! A page is written by a person; between `<!-- generated: NAME -->` and `<!-- end -->` stands what [`tables`] has under
//! that name. Knows nothing of files. Read [`filled`] first.

mod tables;

/// The pages that have generated parts, by their path in this folder.
pub const PAGES: &[&str] = &["language.md"];

const BEGIN: &str = "<!-- generated: ";
const END: &str = "<!-- end -->";

/// The page with its generated parts as they are now; what is wrong with its markers otherwise.
pub fn filled(page: &str) -> Result<String, String> {
    let mut out = String::with_capacity(page.len());
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, body) = after.split_once(" -->\n").ok_or("a marker that does not end its line")?;
        let part = tables::find(name).ok_or_else(|| format!("nothing is generated under the name `{name}`"))?;
        let (old, after) = body.split_once(END).ok_or_else(|| format!("`{name}` has no end"))?;
        if old.contains(BEGIN) {
            return Err(format!("`{name}` has no end"));
        }
        out.extend([before, BEGIN, name, " -->\n\n", part().trim_end(), "\n\n", END]);
        rest = after;
    }
    Ok(out + rest)
}

/// The names of everything that can be generated.
pub fn names() -> impl Iterator<Item = &'static str> {
    tables::ALL.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_markers_is_replaced_and_nothing_else() {
        let page = "one\n<!-- generated: lints -->\nold\n<!-- end -->\ntwo\n";
        let once = filled(page).expect("its markers are right");
        assert!(
            once.starts_with("one\n<!-- generated: lints -->\n\n|") && once.ends_with("<!-- end -->\ntwo\n"),
            "{once}"
        );
        assert!(!once.contains("old"));
        assert_eq!(filled(&once), Ok(once.clone()));
    }

    #[test]
    fn broken_markers_are_refused() {
        for broken in [
            "<!-- generated: lints -->\n",
            "<!-- generated: lints -->\n<!-- generated: codes -->\n<!-- end -->\n",
            "<!-- generated: nothing -->\n<!-- end -->\n",
            "<!-- generated: lints --> and\n<!-- end -->\n",
        ] {
            assert!(filled(broken).is_err(), "{broken}");
        }
    }
}
