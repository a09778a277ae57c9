//! The table of diagnostic codes: one row each, appended to by every part of the compiler.
//!
//! A row is `Name = "S0000", "title";` and needs its page `explain/S0000.md`: a title line, two or three sentences, an
//! example that gives exactly this code and a repaired one. Examples are schedules, or commands where the mistake is not
//! in a schedule. Families: S00 syntax, S01 names, S02 paths and patterns
//! against the model, S03 arguments and types, S04 preconditions, S05 conflicts and order, S06 mesh and layouts,
//! S07 pipeline, S08 memory and cost, S09 worker, S10 model and data files, S11 lints.
//! Codes are never reused.

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
    BrokenLine = "S0020", "an `else`, a brace or a dot on a line of its own";
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

    // S01: names
    UnknownName = "S0101", "a name that nothing declares";
    UnknownCallable = "S0102", "a call of something that does not exist";
    UnknownPrimitive = "S0103", "an unknown word with parentheses after a dot";
    UnknownModule = "S0104", "a module that does not exist";
    UnknownImport = "S0105", "a name that a module does not have";
    NameTaken = "S0106", "a name that has a meaning already";
    Recursion = "S0107", "a schedule that calls itself";
    UnknownType = "S0108", "a type that does not exist";
    NoEntry = "S0109", "a schedule without `main`";
    UsedBefore = "S0110", "a name used above its declaration";
    UnknownSize = "S0111", "an unknown size in `input`";
    RepeatedItem = "S0112", "an item or entry that may stand only once";
    WrongEntry = "S0113", "a `main` that does not take the model";
    UnknownKnob = "S0114", "a knob that does not exist";
    UnknownEntry = "S0115", "a schedule to start with that does not exist";
    ModuleCycle = "S0116", "files that use each other";

    // S02: paths against the model
    NoSuchName = "S0201", "a path that leads nowhere";
    NothingMatches = "S0202", "a selector that matches nothing";
    OutOfRange = "S0203", "a position outside of a list";
    WrongCount = "S0204", "a selection of another size than expected";
    NoSuchClass = "S0205", "a class that the model does not have";
    NoSuchDim = "S0206", "a dimension that a parameter does not have";
    NoSuchPort = "S0207", "a point that does not exist or is ambiguous";
    BelowTensor = "S0208", "a path that goes below a parameter";
    NoMatch = "S0210", "a pattern that is found nowhere";

    // S03: arguments and types
    WrongType = "S0301", "a value of the wrong type";
    MissingArgument = "S0302", "a missing argument";
    UnknownArgument = "S0303", "an unknown argument";
    TooManyArguments = "S0304", "too many arguments";
    RepeatedArgument = "S0305", "an argument given twice";
    NotWhole = "S0306", "a fraction where a whole number is wanted";
    BadValue = "S0307", "a value that is not allowed";
    Arithmetic = "S0308", "arithmetic without a result";
    DoesNothing = "S0309", "a line that does nothing";
    NoValue = "S0310", "a value taken from something that gives none";
    TwoSelections = "S0311", "two selections in one call";
    WrongClass = "S0312", "a module of another class";
    NeedsOne = "S0313", "a selection where one thing is wanted";
    MissingType = "S0314", "a parameter without a type";
    TooMuchWork = "S0315", "a schedule that takes too long";
    BadPattern = "S0320", "a pattern that cannot be matched";

    // S04: preconditions
    RequireFailed = "S0401", "a `require` that does not hold";
    NotDivisible = "S0402", "a batch that does not divide";
    NotTheModel = "S0403", "something only the whole model can do";
    NeverRuns = "S0404", "a module that is never called";
    NothingToTrain = "S0405", "nothing left to train";
    NothingToFreeze = "S0406", "nothing there to freeze";
    NotSeparable = "S0407", "an operator that mixes the samples of a batch";
    NotASum = "S0408", "a loss or gradient that is no sum over micro-batches";
    NoDerivative = "S0409", "an operator without a derivative";
    Contract = "S0420", "a replacement that does not fit what it replaces";
    NothingToDecompose = "S0421", "a module without a bias to take apart";
    NoState = "S0431", "no optimizer state to split";

    // S05: conflicts and order
    Repeated = "S0501", "a step that was done before";
    Contradiction = "S0502", "steps that contradict each other";
    Covered = "S0503", "a step that an earlier one includes";

    // S06: mesh and layouts; S0601 and what follows are layouts
    Uneven = "S0601", "a dimension that does not divide into the parts";
    PartialSum = "S0602", "a partial sum that is not reduced";
    LayoutsDiffer = "S0603", "an operator whose operands do not fit each other";
    WrongSync = "S0604", "a sync that does not fit what the ranks hold";
    NoGradient = "S0605", "a sync where no gradient flows";
    PartialLoss = "S0606", "a loss that is not whole";
    GradientLayout = "S0607", "a gradient held otherwise than its parameter";
    SplitsCross = "S0608", "two axes that split one dimension across each other";
    Denied = "S0615", "a conversion that moves more than a limit allows";
    TwoAutos = "S0651", "two axes that are `auto`";
    WorldSize = "S0652", "a mesh that does not fit the number of ranks";
    AxisSize = "S0653", "an axis size that is not allowed";
    RepeatedAxis = "S0654", "two axes of one name";
    AutoAxis = "S0655", "an `auto` axis without a world size";
    MissingSize = "S0656", "a size of the input that is not given";
    IllegalSize = "S0657", "a size of the input that the model does not accept";

    // S09: worker
    OperatorFailed = "S0901", "an operator that failed";
    WorkerDied = "S0902", "a worker that died";
    NoWorker = "S0903", "a worker that is missing or of another version";
    RunFailed = "S0904", "a run that could not go on";
    RankLost = "S0905", "a rank that is gone or does not answer";
    RanksDiffer = "S0906", "ranks that are about to run different things";
    LaunchVariables = "S0907", "a launch whose settings do not fit together";
    UnfitData = "S0910", "data that does not fit the model";

    // S10: model and data files
    NotAnArchive = "S1001", "a file that is no model";
    DamagedArchive = "S1002", "a damaged or edited model file";
    OtherSchema = "S1003", "a model file of another PyTorch version";
    InPlace = "S1004", "an operator that changes its argument";
    UnsupportedModel = "S1005", "something in a model that cannot be compiled";
    MissingWeights = "S1006", "weights that are not in the file";
    ElementType = "S1007", "an element type that is not supported";
    NoLoss = "S1008", "a model that returns no loss";
    IgnoredInput = "S1009", "an input that the model ignores";
    UnreadableModel = "S1010", "a model that cannot be read";
    UnreadableSchedule = "S1011", "a schedule that cannot be read";
    UnreadableData = "S1012", "data that cannot be read";
    UnwritableFile = "S1013", "a file that cannot be written";
    NoModel = "S1014", "a schedule that names no model";

    // S11: lints; each has a name in `lint.rs`
    UnusedImport = "S1101", "an import that is not used";
    UnusedLet = "S1102", "a `let` or `knob` that is not used";
    UnusedParameter = "S1103", "a parameter that is not used";
    UnusedSchedule = "S1104", "a schedule that nothing calls";
    IdleAxis = "S1105", "an axis whose ranks all do the same";
    IdleCheckpoint = "S1106", "a checkpoint of what has no backward";
    SeparateSyncs = "S1107", "syncs that could be one";
    WholeParameters = "S1108", "parameters that are whole on every rank of an axis";
    UnevenPieces = "S1109", "a sync that leaves pieces of different sizes";
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
