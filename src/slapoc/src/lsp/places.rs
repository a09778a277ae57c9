//! Places as the protocol has them: lines and columns in the negotiated unit, and addresses of files.

use lsp_types::{ClientCapabilities, InitializeParams, Position, PositionEncodingKind, Range, Uri};
use slapo_syntax::{FileId, SourceMap, Span};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What columns count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Bytes.
    Utf8,
    /// Units of UTF-16: what a client means that says nothing.
    Utf16,
}

impl Encoding {
    /// Bytes where the client can count them.
    pub fn negotiated(client: &ClientCapabilities) -> Encoding {
        let offered = client.general.as_ref().and_then(|general| general.position_encodings.as_ref());
        match offered.is_some_and(|offered| offered.contains(&PositionEncodingKind::UTF8)) {
            true => Encoding::Utf8,
            false => Encoding::Utf16,
        }
    }

    pub fn kind(self) -> PositionEncodingKind {
        match self {
            Encoding::Utf8 => PositionEncodingKind::UTF8,
            Encoding::Utf16 => PositionEncodingKind::UTF16,
        }
    }

    /// The length of a text in columns.
    pub fn columns(self, text: &str) -> u32 {
        match self {
            Encoding::Utf8 => text.len() as u32,
            Encoding::Utf16 => text.encode_utf16().count() as u32,
        }
    }

    pub fn position(self, files: &SourceMap, file: FileId, offset: u32) -> Position {
        let line = files.line_column(file, offset).line;
        let start = files.line_start(file, line).unwrap_or(0);
        let before = files.slice(Span::new(file, start, offset.max(start)));
        Position { line: line - 1, character: self.columns(before) }
    }

    pub fn range(self, files: &SourceMap, span: Span) -> Range {
        let at = |offset| self.position(files, span.file, offset);
        Range { start: at(span.start), end: at(span.end) }
    }

    /// The byte of a position; behind the end of a line is its end, behind the last line the end of the text.
    pub fn offset(self, text: &str, position: Position) -> usize {
        let Some(start) = line_start(text, position.line) else { return text.len() };
        let line = text[start..].split('\n').next().unwrap_or("");
        let line = line.strip_suffix('\r').unwrap_or(line);
        let mut column = 0;
        for (at, c) in line.char_indices() {
            let width = match self {
                Encoding::Utf8 => c.len_utf8(),
                Encoding::Utf16 => c.len_utf16(),
            };
            if column + width as u32 > position.character {
                return start + at;
            }
            column += width as u32;
        }
        start + line.len()
    }
}

fn line_start(text: &str, line: u32) -> Option<usize> {
    match line {
        0 => Some(0),
        _ => text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').nth(line as usize - 1).map(|(at, _)| at + 1),
    }
}

/// The folder that is open in the editor: the first of several.
pub fn root(params: &InitializeParams) -> Option<PathBuf> {
    let folders = params.workspace_folders.iter().flatten().map(|folder| &folder.uri);
    #[expect(deprecated, reason = "clients that know no folders say this")]
    let root = params.root_uri.as_ref();
    folders.chain(root).find_map(path)
}

/// Where the model's source may be: the folder that is open, and the packages of Python environments, the active one and
/// those in the folder.
pub fn packages(root: Option<&Path>) -> Vec<PathBuf> {
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let own = root.into_iter().flat_map(|root| [".venv", "venv"].map(|name| root.join(name)));
    let pythons = |environment: PathBuf| fs::read_dir(environment.join("lib")).into_iter().flatten().flatten();
    let packages = active.chain(own).flat_map(pythons).map(|python| python.path().join("site-packages"));
    root.map(Path::to_owned).into_iter().chain(packages).collect()
}

/// The path of a `file:` address.
pub fn path(uri: &Uri) -> Option<PathBuf> {
    let rest = uri.as_str().strip_prefix("file://")?;
    let path = &rest[rest.find('/')?..];
    let mut bytes = Vec::new();
    let mut left = path.as_bytes();
    while let [first, rest @ ..] = left {
        let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let escaped = (*first == b'%').then(|| hex(rest.get(..2)?)).flatten();
        bytes.push(escaped.unwrap_or(*first));
        left = if escaped.is_some() { &rest[2..] } else { rest };
    }
    String::from_utf8(bytes).ok().map(PathBuf::from)
}

/// The `file:` address of an absolute path.
pub fn uri(path: &Path) -> Option<Uri> {
    let mut text = String::from("file://");
    for byte in path.to_str()?.bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => text.push(byte as char),
            byte if byte.is_ascii_alphanumeric() => text.push(byte as char),
            byte => text += &format!("%{byte:02X}"),
        }
    }
    Uri::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_what_was_negotiated() {
        let text = "a\nå𝄞b\r\n";
        let at = |line, character| Position { line, character };
        assert_eq!(Encoding::Utf16.offset(text, at(1, 3)), 8, "`𝄞` takes two units");
        assert_eq!(Encoding::Utf16.offset(text, at(1, 2)), 4, "half of it is its start");
        assert_eq!(Encoding::Utf8.offset(text, at(1, 6)), 8);
        assert_eq!(Encoding::Utf8.offset(text, at(1, 90)), 9, "the end of the line");
        assert_eq!(Encoding::Utf8.offset(text, at(90, 0)), text.len());
        let mut files = SourceMap::new();
        let file = files.add("a", text);
        assert_eq!(Encoding::Utf16.position(&files, file, 8), at(1, 3));
        assert_eq!(Encoding::Utf8.position(&files, file, 8), at(1, 6));
    }

    #[test]
    fn paths_survive_their_address() {
        let strange = Path::new("/tmp/zwei Wörter%20#?.slapo");
        assert_eq!(uri(strange).and_then(|uri| path(&uri)).as_deref(), Some(strange));
        let bad = Uri::from_str("untitled:1").expect("an address");
        assert_eq!(path(&bad), None);
    }
}
