//! The table of diagnostic codes: one row each, appended to by every part of the compiler.
//!
//! A row is `Name = "S0000", "title";` and needs its page `explain/S0000.md`: a title line, two or three sentences, an
//! example that gives exactly this code and a repaired one. Families: S00 syntax, S01 names, S02 paths and patterns
//! against the model, S03 arguments and types, S04 preconditions, S05 conflicts and order, S06 mesh and layouts,
//! S07 pipeline, S08 memory and cost, S09 worker, S10 model and data files. Codes are never reused.

macro_rules! codes {
    ($($name:ident = $id:literal, $title:literal;)*) => {
        /// What kind of problem a diagnostic reports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $title] $name,)*
        }

        const ROWS: &[Row] = &[
            $(Row { id: $id, title: $title, page: include_str!(concat!("../explain/", $id, ".md")) },)*
        ];

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &[Code] = &[$(Code::$name,)*];
        }
    };
}

struct Row {
    id: &'static str,
    title: &'static str,
    page: &'static str,
}

codes! {
    // S00: syntax
    Unexpected = "S0001", "text that does not fit the grammar";
    UnclosedString = "S0002", "a string that does not end on its line";
    SingleQuotes = "S0003", "a string in single quotes";
    BadEscape = "S0004", "an unknown escape in a string";
    BadNumber = "S0005", "a number with something attached to it";
    UnclosedBracket = "S0006", "a bracket that is never closed";
    WrongBracket = "S0007", "a bracket closed by one of another kind";
    UnclosedBlock = "S0008", "a block that is never closed";
    ExtraBrace = "S0009", "a closing brace too many";
    OutsideSchedule = "S0010", "a statement outside of every schedule";
    NestedItem = "S0011", "an item inside a schedule";
    Semicolon = "S0012", "a semicolon";
    ForeignOperator = "S0013", "an operator of another language";
    ForeignComment = "S0014", "a comment of another language";
    EqualsInArgument = "S0015", "an argument named with `=`";
    ColonInEntry = "S0016", "an entry written with `:`";
    MissingComma = "S0017", "a missing comma";
    TypeFilter = "S0018", "a type written behind a path";
    WhereClause = "S0019", "a `where` clause";
    BrokenLine = "S0020", "an `else` or a brace on a line of its own";
    LoneElse = "S0021", "an `else` without an `if`";
    Assignment = "S0022", "an assignment";
    EqualsInCondition = "S0023", "a comparison written with `=`";
    ComparisonChain = "S0024", "a chain of comparisons";
    MisplacedRange = "S0025", "a range where none can stand";
    DoubledDot = "S0026", "a doubled dot in a path";
    EmptyBraces = "S0027", "empty braces or brackets in a path";
    ReservedWord = "S0028", "a reserved word as a name";
    UnfinishedPath = "S0029", "a path that ends in a dot";
    ForeignWord = "S0030", "a word of another language";
    TooDeep = "S0031", "nesting that is too deep";
    MisplacedMark = "S0032", "a `?` where it means nothing";
    InlineStructure = "S0033", "a structure written inside a parameter list";
    MissingValue = "S0034", "an argument without a value";
    TextAfterBlock = "S0035", "text behind a closing brace";
    UnknownCharacter = "S0036", "a character that is not part of the language";
    MissingBlock = "S0037", "a head without its block";
    AnnotatedLet = "S0038", "a `let` with a type";
}

impl Code {
    /// The code as users see it: `S0001`.
    pub fn id(self) -> &'static str {
        self.row().id
    }

    /// The kind of problem in half a line.
    pub fn title(self) -> &'static str {
        self.row().title
    }

    /// The page shown by `slapoc explain`, Markdown.
    pub fn page(self) -> &'static str {
        self.row().page
    }

    /// The first three characters: `S00` for syntax.
    pub fn family(self) -> &'static str {
        &self.id()[..3]
    }

    /// Finds a code by its id, in either case.
    pub fn parse(id: &str) -> Option<Code> {
        Self::ALL.iter().copied().find(|code| code.id().eq_ignore_ascii_case(id))
    }

    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id())
    }
}
