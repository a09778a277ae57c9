//! Which comments belong to which token, and where blank lines stand.
//!
//! A comment behind a token on its line stands *beside* it; every other one stands *above* the token that follows. Each
//! comment is handed out once, so that whoever writes the outermost construct decides where it goes. Read [`Tokens`]
//! first.

use crate::kind::SyntaxKind;
use crate::tree::SyntaxNode;

pub(super) struct Tokens<'t> {
    /// In the order of the text, ended by one that is empty.
    all: Vec<Token<'t>>,
}

struct Token<'t> {
    start: u32,
    lead: Lead<'t>,
    beside: Option<&'t str>,
}

/// What stands above a token.
#[derive(Default)]
pub(super) struct Lead<'t> {
    pub comments: Vec<Comment<'t>>,
    /// A blank line right above the token.
    pub blank: bool,
}

pub(super) struct Comment<'t> {
    pub text: &'t str,
    /// A blank line above it.
    pub blank: bool,
}

impl<'t> Tokens<'t> {
    pub fn new(root: SyntaxNode<'t>) -> Self {
        let mut all: Vec<Token<'t>> = Vec::new();
        let mut comments = Vec::new();
        // Line ends since the last token or comment.
        let mut ends = 0;
        for leaf in root.leaves() {
            match leaf.kind() {
                SyntaxKind::Newline => ends += 1,
                SyntaxKind::Whitespace | SyntaxKind::ByteOrderMark => {}
                SyntaxKind::Comment | SyntaxKind::DocComment => {
                    let text = leaf.text().trim_end_matches([' ', '\t']);
                    match all.last_mut() {
                        Some(token) if ends == 0 => token.beside = Some(text),
                        _ => comments.push(Comment { text, blank: ends > 1 }),
                    }
                    ends = 0;
                }
                _ => {
                    let lead = Lead { comments: std::mem::take(&mut comments), blank: ends > 1 };
                    all.push(Token { start: leaf.start(), lead, beside: None });
                    ends = 0;
                }
            }
        }
        let lead = Lead { comments, blank: false };
        all.push(Token { start: root.end(), lead, beside: None });
        Self { all }
    }

    /// What stands above the token that starts here, if nobody has taken it.
    pub fn take_lead(&mut self, start: u32) -> Lead<'t> {
        self.starting(start).map(|token| std::mem::take(&mut token.lead)).unwrap_or_default()
    }

    /// The comment beside the last token before this offset, if nobody has taken it.
    pub fn take_beside(&mut self, end: u32) -> Option<&'t str> {
        let behind = self.all.partition_point(|token| token.start < end);
        self.all.get_mut(behind.checked_sub(1)?)?.beside.take()
    }

    pub fn has_comment_above(&self, start: u32) -> bool {
        self.position(start).is_some_and(|at| !self.all[at].lead.comments.is_empty())
    }

    fn starting(&mut self, start: u32) -> Option<&mut Token<'t>> {
        self.position(start).map(|at| &mut self.all[at])
    }

    fn position(&self, start: u32) -> Option<usize> {
        self.all.binary_search_by_key(&start, |token| token.start).ok()
    }
}
