//! Views of files, items and declarations.

use super::*;
use crate::kind::SyntaxKind as K;

nodes! {
    /// `use std.parallel.{column, row}`
    Use = UseItem;
    /// `model "gpt2.pt2"`
    Model = ModelItem;
    /// `input { batch = 8, seq = 256 }`
    Input = InputItem;
    /// `mesh { dp = auto, tp = 2 }`
    Mesh = MeshItem;
    /// `name = value` of `input` or `mesh`
    Entry = Entry;
    /// `knob ratio = 0.5 in [0.0, 0.5]`
    Knob = KnobItem;
    /// `type Mlp = { c_fc: Linear }`
    TypeDef = TypeItem;
    /// `pattern gelu(x) = …`
    Pattern = PatternItem;
    /// `schedule main(m: Module) { … }`
    Schedule = ScheduleItem;
    /// `(m: Module, over: axis)`
    ParamList = ParamList;
    /// `name?: type = default`
    Param = Param;
    /// A class, a `type`, or a built-in such as `axis`
    NamedType = NamedType;
    /// `[Module]`
    ListType = ListType;
    /// `{ weight: param, bias?: param }`
    RecordType = RecordType;
    /// `bias?: param`
    RecordField = RecordField;
}

/// A whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File<'t>(SyntaxNode<'t>);

choice! {
    /// What a file consists of.
    Item {
        Use(Use),
        Model(Model),
        Input(Input),
        Mesh(Mesh),
        Knob(Knob),
        Let(Let),
        Type(TypeDef),
        Pattern(Pattern),
        Schedule(Schedule),
    }
}

choice! {
    /// What may follow the colon of a parameter or stand in a `type`.
    TypeRef {
        Named(NamedType),
        List(ListType),
        Record(RecordType),
    }
}

impl<'t> File<'t> {
    pub(crate) fn of(root: SyntaxNode<'t>) -> Self {
        Self(root)
    }

    pub fn syntax(self) -> SyntaxNode<'t> {
        self.0
    }

    /// The items in source order; broken ones that have no structure are left out.
    pub fn items(self) -> impl Iterator<Item = Item<'t>> {
        children(self.0)
    }

    pub fn schedules(self) -> impl Iterator<Item = Schedule<'t>> {
        children(self.0)
    }

    /// The `##` lines at the head of the file, unless they document a declaration right below them.
    pub fn docs(self) -> Option<String> {
        let head = self.0.elements().find(|element| element.node().is_some());
        let head = head.and_then(|element| element.node());
        let is_declaration = head.is_some_and(|node| {
            matches!(node.kind(), K::KnobItem | K::LetStmt | K::TypeItem | K::PatternItem | K::ScheduleItem)
        });
        let mut comments = Vec::new();
        let mut newlines = 0;
        for element in self.0.elements() {
            match element.kind() {
                K::DocComment if newlines <= 1 || comments.is_empty() => {
                    comments.extend(element.token());
                    newlines = 0;
                }
                K::Newline => newlines += 1,
                K::Whitespace | K::ByteOrderMark => {}
                K::Comment if comments.is_empty() => newlines = 0,
                _ => break,
            }
        }
        let belongs_to_item = is_declaration && newlines <= 1;
        let lines: Vec<String> = comments.into_iter().map(doc_line).collect();
        (!lines.is_empty() && !belongs_to_item).then(|| lines.join("\n"))
    }
}

impl<'t> Item<'t> {
    /// The name a declaration gives; `use`, `model`, `input` and `mesh` have none.
    pub fn name(self) -> Option<SyntaxToken<'t>> {
        match self {
            Item::Knob(_) | Item::Let(_) | Item::Type(_) | Item::Pattern(_) | Item::Schedule(_) => name(self.syntax()),
            Item::Use(_) | Item::Model(_) | Item::Input(_) | Item::Mesh(_) => None,
        }
    }

    /// The `##` lines directly above.
    pub fn docs(self) -> Option<String> {
        docs_above(self.syntax())
    }
}

impl<'t> Use<'t> {
    /// The words of the path before any braces: `std`, `parallel`.
    pub fn segments(self) -> impl Iterator<Item = SyntaxToken<'t>> {
        words(self.0)
    }

    /// The names in braces; `None` where the path ends without them.
    pub fn names(self) -> Option<impl Iterator<Item = SyntaxToken<'t>>> {
        self.0.child(K::UseNames).map(words)
    }
}

impl<'t> Model<'t> {
    pub fn path(self) -> Option<Str<'t>> {
        Str::in_node(self.0)
    }
}

impl<'t> Input<'t> {
    pub fn entries(self) -> impl Iterator<Item = Entry<'t>> {
        self.0.child(K::Entries).into_iter().flat_map(children)
    }
}

impl<'t> Mesh<'t> {
    pub fn entries(self) -> impl Iterator<Item = Entry<'t>> {
        self.0.child(K::Entries).into_iter().flat_map(children)
    }
}

impl<'t> Entry<'t> {
    pub fn name(self) -> Option<SyntaxToken<'t>> {
        name(self.0)
    }

    pub fn value(self) -> Option<Expr<'t>> {
        child(self.0)
    }
}

impl<'t> Knob<'t> {
    pub fn name(self) -> Option<SyntaxToken<'t>> {
        name(self.0)
    }

    pub fn default(self) -> Option<Expr<'t>> {
        child_before(self.0, &[K::InKw])
    }

    /// What the knob may be: a list or a range.
    pub fn domain(self) -> Option<Expr<'t>> {
        child_behind(self.0, &[K::InKw])
    }

    pub fn docs(self) -> Option<String> {
        docs_above(self.0)
    }
}

impl<'t> TypeDef<'t> {
    pub fn name(self) -> Option<SyntaxToken<'t>> {
        name(self.0)
    }

    pub fn ty(self) -> Option<TypeRef<'t>> {
        child(self.0)
    }

    pub fn docs(self) -> Option<String> {
        docs_above(self.0)
    }
}

impl<'t> Pattern<'t> {
    pub fn name(self) -> Option<SyntaxToken<'t>> {
        name(self.0)
    }

    pub fn params(self) -> Option<ParamList<'t>> {
        child(self.0)
    }

    /// What is matched; a list for several results.
    pub fn body(self) -> Option<Expr<'t>> {
        child(self.0)
    }

    pub fn docs(self) -> Option<String> {
        docs_above(self.0)
    }
}

impl<'t> Schedule<'t> {
    pub fn name(self) -> Option<SyntaxToken<'t>> {
        name(self.0)
    }

    pub fn params(self) -> Option<ParamList<'t>> {
        child(self.0)
    }

    pub fn body(self) -> Option<Block<'t>> {
        child(self.0)
    }

    pub fn docs(self) -> Option<String> {
        docs_above(self.0)
    }
}

impl<'t> ParamList<'t> {
    pub fn params(self) -> impl Iterator<Item = Param<'t>> {
        children(self.0)
    }
}

impl<'t> Param<'t> {
    pub fn name(self) -> Option<SyntaxToken<'t>> {
        name(self.0)
    }

    /// `x?` of a pattern.
    pub fn is_optional(self) -> bool {
        self.0.token(K::Question).is_some()
    }

    pub fn ty(self) -> Option<TypeRef<'t>> {
        child(self.0)
    }

    pub fn default(self) -> Option<Expr<'t>> {
        child(self.0)
    }
}

impl<'t> NamedType<'t> {
    pub fn name(self) -> Option<SyntaxToken<'t>> {
        name(self.0)
    }
}

impl<'t> ListType<'t> {
    pub fn element(self) -> Option<TypeRef<'t>> {
        child(self.0)
    }
}

impl<'t> RecordType<'t> {
    pub fn fields(self) -> impl Iterator<Item = RecordField<'t>> {
        children(self.0)
    }
}

impl<'t> RecordField<'t> {
    pub fn name(self) -> Option<SyntaxToken<'t>> {
        name(self.0)
    }

    pub fn is_optional(self) -> bool {
        self.0.token(K::Question).is_some()
    }

    pub fn ty(self) -> Option<TypeRef<'t>> {
        child(self.0)
    }
}
