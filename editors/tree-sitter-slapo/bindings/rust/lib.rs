//! The tree-sitter grammar of schedules: the generated parser and its queries.
//!
//! For editors and for tests; the compiler has a grammar of its own. Read `grammar.js` first.

use tree_sitter_language::LanguageFn;

unsafe extern "C" {
    fn tree_sitter_slapo() -> *const ();
}

/// What a tree-sitter parser is set to.
// SAFETY: the generated parser exports this function, and it returns a language.
pub const LANGUAGE: LanguageFn = unsafe { LanguageFn::from_raw(tree_sitter_slapo) };

pub const HIGHLIGHTS_QUERY: &str = include_str!("../../queries/highlights.scm");
pub const INJECTIONS_QUERY: &str = include_str!("../../queries/injections.scm");
pub const LOCALS_QUERY: &str = include_str!("../../queries/locals.scm");
pub const TAGS_QUERY: &str = include_str!("../../queries/tags.scm");
