//! The word lists of the editors' grammars, written from the compiler's own tables.
//!
//! A template holds everything that a person writes; `{{primitives}}` and the like in it become lists of words, spelled
//! as the language of the file wants them. Knows nothing of what an editor does with a file. Read [`files`] first.

mod words;

use words::Words;

/// How lists are spelled in a file.
#[derive(Clone, Copy)]
enum Spelling {
    /// `a|b`, in a regular expression.
    Alternatives,
    /// `a b`, of Vim's `syntax keyword`.
    Spaces,
    /// `"a" "b"`, in a query.
    Strings,
}

/// A file that is written, by its path below `editors`.
struct Target {
    path: &'static str,
    template: &'static str,
    spelling: Spelling,
    /// What the captures of the template's queries are called there, where the name differs.
    captures: &'static [(&'static str, &'static str)],
}

const HIGHLIGHTS: &str = include_str!("../templates/highlights.scm");

#[rustfmt::skip]
const TARGETS: &[Target] = &[
    Target {
        path: "vscode/syntaxes/slapo.tmLanguage.json",
        template: include_str!("../templates/slapo.tmLanguage.json"),
        spelling: Spelling::Alternatives,
        captures: &[],
    },
    Target {
        path: "vim/syntax/slapo.vim",
        template: include_str!("../templates/slapo.vim"),
        spelling: Spelling::Spaces,
        captures: &[],
    },
    Target { path: "vim/queries/slapo/highlights.scm", template: HIGHLIGHTS, spelling: Spelling::Strings, captures: &[] },
    Target {
        path: "tree-sitter-slapo/queries/highlights.scm",
        template: HIGHLIGHTS,
        spelling: Spelling::Strings,
        captures: STANDARD,
    },
    Target { path: "helix/queries/slapo/highlights.scm", template: HIGHLIGHTS, spelling: Spelling::Strings, captures: HELIX },
    Target { path: "zed/languages/slapo/highlights.scm", template: HIGHLIGHTS, spelling: Spelling::Strings, captures: ZED },
];

/// The template has Neovim's names; these are tree-sitter's own.
#[rustfmt::skip]
const STANDARD: &[(&str, &str)] = &[
    ("boolean", "constant.builtin"),
    ("character.special", "operator"),
    ("function.call", "function"),
    ("function.method.call", "function.method"),
    ("label", "property"),
    ("variable.member", "property"),
];

#[rustfmt::skip]
const HELIX: &[(&str, &str)] = &[
    ("boolean", "constant.builtin.boolean"),
    ("character.special", "special"),
    ("comment.documentation", "comment.block.documentation"),
    ("function.call", "function"),
    ("function.method.call", "function.method"),
    ("keyword.conditional", "keyword.control.conditional"),
    ("keyword.exception", "keyword.control.exception"),
    ("keyword.import", "keyword.control.import"),
    ("keyword.repeat", "keyword.control.repeat"),
    ("keyword.type", "keyword.storage.type"),
    ("label", "variable.parameter"),
    ("module", "namespace"),
    ("number", "constant.numeric"),
    ("property", "variable.other.member"),
    ("variable.member", "variable.other.member"),
];

#[rustfmt::skip]
const ZED: &[(&str, &str)] = &[
    ("character.special", "string.special"),
    ("comment.documentation", "comment.doc"),
    ("function.call", "function"),
    ("function.method.call", "function.method"),
    ("keyword.operator", "operator"),
    ("label", "variable.parameter"),
    ("module", "namespace"),
    ("variable.member", "property"),
];

/// Every file that is written: its path below `editors`, and its text.
pub fn files() -> Vec<(&'static str, String)> {
    let words = Words::of_the_language();
    TARGETS.iter().map(|target| (target.path, target.text(&words))).collect()
}

impl Target {
    fn text(&self, words: &Words) -> String {
        let text = words.lists().fold(self.template.to_owned(), |text, (name, list)| {
            text.replace(&format!("{{{{{name}}}}}"), &self.spelling.list(list))
        });
        rename(&text, self.captures)
    }
}

impl Spelling {
    fn list(self, words: &[&str]) -> String {
        match self {
            Spelling::Alternatives => words.join("|"),
            Spelling::Spaces => words.join(" "),
            Spelling::Strings => words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" "),
        }
    }
}

/// Gives captures their other names; only whole names are replaced.
fn rename(text: &str, captures: &[(&str, &str)]) -> String {
    let mut pieces = text.split('@');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '_').unwrap_or(piece.len());
        let (name, rest) = piece.split_at(end);
        let other = captures.iter().find(|(known, _)| *known == name).map_or(name, |(_, other)| other);
        out.extend(["@", other, rest]);
    }
    out
}
