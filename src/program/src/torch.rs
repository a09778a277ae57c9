//! A program as PyTorch code, for reading: a Python function per function of the program.
//!
//! The text is valid Python and calls the operators that the worker calls, so that it can be searched, folded and compared
//! by ordinary tools. It is not meant to be run: collectives are written as functions of their operand, and dropout,
//! which is keyed by global element index, has no counterpart in PyTorch. Read [`torch`] first.

use crate::{Arg, Collective, Function, Instr, LocalId, Op, Part, Program, Role, Split, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

/// Lists of more elements stand on a line each.
const SHORT_LIST: usize = 6;

/// The listing of one rank's step.
pub fn torch(program: &Program) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = Torch::new(program).write(&mut text);
    text
}

struct Torch<'p> {
    program: &'p Program,
    axes: Vec<String>,
    functions: Vec<String>,
    /// By local: its name in Python; `f.x` where another function than its own reads it.
    locals: Vec<String>,
}

impl<'p> Torch<'p> {
    fn new(program: &'p Program) -> Torch<'p> {
        let mut names = Names::new();
        let axes = program.mesh.iter().map(|axis| names.fresh(&axis.name)).collect();
        let functions = program.functions.iter().map(|function| names.fresh(&function.name)).collect();
        let crossing = crossing(program);
        let locals = program.locals.iter().enumerate().map(|(l, slot)| {
            let name = if slot.name.is_empty() { names.fresh(&format!("v{l}")) } else { names.fresh(&slot.name) };
            if crossing.contains(&(l as LocalId)) { format!("f.{name}") } else { name }
        });
        let locals = locals.collect();
        Torch { program, axes, functions, locals }
    }

    fn write(&self, text: &mut String) -> fmt::Result {
        self.head(text)?;
        for (name, function) in self.functions.iter().zip(&self.program.functions) {
            self.function(text, name, function)?;
        }
        self.calls(text, "begin", &self.program.setup)?;
        self.calls(text, "step", &self.program.step)
    }

    fn head(&self, text: &mut String) -> fmt::Result {
        let program = self.program;
        writeln!(text, "# For reading: what {} executes, in PyTorch's words.", program.place())?;
        writeln!(
            text,
            "# It is not run, and cannot be: collectives are written as functions that return their result,"
        )?;
        writeln!(text, "# `dropout` draws its mask by global element index, and the first `+=` of a step sets.")?;
        writeln!(text, "# Values named `f.x` live from forward to backward; the others die at their last use.\n")?;
        writeln!(text, "from types import SimpleNamespace\n\nimport torch\nimport torch.distributed as dist\n")?;
        if !self.axes.is_empty() {
            let sizes: Vec<String> = program.mesh.iter().map(|axis| axis.size.to_string()).collect();
            let names: Vec<String> = program.mesh.iter().map(|axis| quoted(&axis.name)).collect();
            // A tuple of one needs its comma.
            let comma = if names.len() == 1 { "," } else { "" };
            let (sizes, names) = (sizes.join(", "), names.join(", "));
            writeln!(text, "mesh = dist.init_device_mesh(\"cpu\", ({sizes}{comma}), mesh_dim_names=({names}{comma}))")?;
            for (name, axis) in self.axes.iter().zip(&program.mesh) {
                writeln!(text, "{name} = mesh.get_group({})", quoted(&axis.name))?;
            }
            writeln!(text)?;
        }
        for (role, name) in ROLES {
            self.dictionary(text, role, name)?;
        }
        Ok(())
    }

    /// What is there before the first step with its types, the rest empty.
    fn dictionary(&self, text: &mut String, role: Role, name: &str) -> fmt::Result {
        let globals: Vec<_> = self.program.globals.iter().enumerate().filter(|(_, g)| g.role == role).collect();
        if globals.is_empty() || !matches!(role, Role::Parameter | Role::Buffer | Role::Input) {
            return writeln!(text, "{name} = {{}}");
        }
        writeln!(text, "{name} = {{")?;
        for (id, global) in globals {
            let (shape, dtype) = (&global.ty.shape, global.ty.dtype.torch_name());
            write!(text, "    {}: torch.empty({shape:?}, dtype=torch.{dtype}),", quoted(&global.name))?;
            let own = self.program.parameters.iter().find(|p| p.global as usize == id);
            match own.map(|p| &p.placement).filter(|placement| !placement.splits.is_empty()) {
                Some(placement) => {
                    let splits: Vec<String> = placement.splits.iter().map(Split::to_string).collect();
                    writeln!(text, "  # of {:?}: {}", placement.global_shape, splits.join("; "))?;
                }
                None => writeln!(text)?,
            }
        }
        writeln!(text, "}}")
    }

    fn function(&self, text: &mut String, name: &str, function: &Function) -> fmt::Result {
        if function.body.is_empty() {
            return Ok(());
        }
        writeln!(text, "\n\ndef {name}(f, micro_batch):")?;
        let mut module = "";
        for instr in &function.body {
            let own = self.program.origins.get(instr.origin as usize).map_or("", |origin| origin.module.as_str());
            if own != module {
                module = own;
                writeln!(text, "    # {}", if own.is_empty() { "the model" } else { own })?;
            }
            self.instruction(text, instr)?;
        }
        Ok(())
    }

    fn instruction(&self, text: &mut String, instr: &Instr) -> fmt::Result {
        let line = match &instr.op {
            Op::Accumulate => format!("{} += {}", self.outs(instr), self.arguments(instr).join(", ")),
            Op::Store => format!("{} = {}", self.outs(instr), self.arguments(instr).join(", ")),
            Op::Release => {
                let released: Vec<String> = instr.reads().map(|v| format!("    del {}", self.value(v))).collect();
                return writeln!(text, "{}", released.join("\n"));
            }
            _ if instr.outs.iter().flatten().next().is_none() => self.call(instr),
            _ => format!("{} = {}", self.outs(instr), self.call(instr)),
        };
        let types: Vec<String> = (instr.outs.iter().flatten())
            .filter(|out| matches!(out, Value::Local(_)))
            .map(|out| self.program.ty(*out).to_string())
            .collect();
        let comment = if types.is_empty() { String::new() } else { format!("  # {}", types.join(", ")) };
        writeln!(text, "    {line}{comment}")
    }

    fn outs(&self, instr: &Instr) -> String {
        let outs: Vec<String> = instr.outs.iter().map(|v| v.map_or("_".to_owned(), |v| self.value(v))).collect();
        if outs.len() > SHORT_LIST { list(outs) } else { outs.join(", ") }
    }

    fn call(&self, instr: &Instr) -> String {
        let args = self.arguments(instr);
        let of = |function: &str| format!("{function}({})", args.join(", "));
        let operand = args.first().map_or("", String::as_str);
        match &instr.op {
            Op::Aten(name) => of(&format!("torch.ops.{}", name.replace("::", "."))),
            Op::Part(split) => piece(operand, split),
            Op::Dropout { site, p, .. } => format!("dropout({operand}, p={}, site={site})", float(*p)),
            Op::Collective { axis, kind } if args.len() > 1 => {
                collective(&list(args), kind, &self.axes[*axis as usize])
            }
            Op::Collective { axis, kind } => collective(operand, kind, &self.axes[*axis as usize]),
            Op::Vjp { op, .. } => {
                let named = format!("torch.ops.{}", op.replace("::", "."));
                let args: Vec<String> = std::iter::once(named).chain(args).collect();
                format!("vjp({})", args.join(", "))
            }
            Op::Autograd => {
                let parameters = list(args.get(1..).unwrap_or_default().to_vec());
                format!("torch.autograd.grad({operand}, {parameters})")
            }
            Op::Accumulate | Op::Store | Op::Release => of("pass"),
        }
    }

    /// Positional ones first. The first of an operator's, its operand, goes without its name.
    fn arguments(&self, instr: &Instr) -> Vec<String> {
        let mut all: Vec<String> = instr.args.iter().map(|arg| self.argument(arg)).collect();
        for (i, (name, arg)) in instr.named.iter().enumerate() {
            let arg = self.argument(arg);
            let is_operand = i == 0 && instr.args.is_empty() && matches!(name.as_str(), "self" | "input");
            all.push(match name {
                _ if is_operand => arg,
                name if KEYWORDS.contains(&name.as_str()) => format!("**{{{}: {arg}}}", quoted(name)),
                name => format!("{name}={arg}"),
            });
        }
        all
    }

    fn argument(&self, arg: &Arg) -> String {
        match arg {
            Arg::None => "None".to_owned(),
            Arg::Value(v) => self.value(*v),
            Arg::Values(vs) => list(vs.iter().map(|v| v.map_or("None".to_owned(), |v| self.value(v))).collect()),
            Arg::Int(i) => i.to_string(),
            Arg::Float(x) => float(*x),
            Arg::Bool(b) => boolean(*b).to_owned(),
            Arg::Ints(v) => format!("{v:?}"),
            Arg::Floats(v) => list(v.iter().map(|x| float(*x)).collect()),
            Arg::Bools(v) => list(v.iter().map(|b| boolean(*b).to_owned()).collect()),
            Arg::DType(d) => format!("torch.{}", d.torch_name()),
            Arg::Str(s) => quoted(s),
        }
    }

    fn value(&self, value: Value) -> String {
        match value {
            Value::Local(l) => self.locals[l as usize].clone(),
            Value::Global(g) => {
                let global = &self.program.globals[g as usize];
                let dictionary = ROLES.iter().find(|(role, _)| *role == global.role).map_or("", |(_, name)| name);
                format!("{dictionary}[{}]", quoted(&global.name))
            }
        }
    }

    fn calls(&self, text: &mut String, name: &str, calls: &[crate::Call]) -> fmt::Result {
        if calls.is_empty() {
            return Ok(());
        }
        let mut names = Names { taken: self.functions.iter().cloned().collect() };
        writeln!(text, "\n\ndef {}():", names.fresh(name))?;
        writeln!(text, "    frames = [SimpleNamespace() for _ in range({})]", self.program.micro_batches)?;
        for call in calls {
            let (function, m) = (call.function as usize, call.micro_batch);
            if !self.program.functions[function].body.is_empty() {
                writeln!(text, "    {}(frames[{m}], {m})", self.functions[function])?;
            }
        }
        Ok(())
    }
}

/// Where globals of each role are kept in the listing.
const ROLES: [(Role, &str); 7] = [
    (Role::Parameter, "parameters"),
    (Role::Buffer, "buffers"),
    (Role::Input, "inputs"),
    (Role::Constant, "constants"),
    (Role::Gradient, "gradients"),
    (Role::Optimizer, "state"),
    (Role::Scalar, "scalars"),
];

/// Locals that another function reads than the one that writes them.
fn crossing(program: &Program) -> BTreeSet<LocalId> {
    let mut writer: BTreeMap<LocalId, usize> = BTreeMap::new();
    let mut crossing = BTreeSet::new();
    for (number, function) in program.functions.iter().enumerate() {
        for instr in &function.body {
            for value in instr.reads() {
                if let Value::Local(l) = value
                    && writer.get(&l).is_some_and(|own| *own != number)
                {
                    crossing.insert(l);
                }
            }
            for out in instr.outs.iter().flatten() {
                if let Value::Local(l) = out {
                    writer.insert(*l, number);
                }
            }
        }
    }
    crossing
}

/// What [`Op::Part`] takes.
fn piece(of: &str, split: &Split) -> String {
    let Split { dim, groups, parts, part, .. } = *split;
    let at = match part {
        Part::Rank(at) => at.to_string(),
        Part::MicroBatch => "micro_batch".to_owned(),
    };
    match groups {
        1 => format!("{of}.tensor_split({parts}, dim={dim})[{at}]"),
        _ => format!(
            "{of}.unflatten({dim}, ({groups}, {parts}, -1)).select({}, {at}).flatten({dim}, {})",
            dim + 1,
            dim + 1
        ),
    }
}

fn collective(of: &str, kind: &Collective, axis: &str) -> String {
    let name = kind.name();
    match kind {
        Collective::AllReduce => format!("dist.{name}({of}, group={axis})"),
        Collective::AllReduceMax => format!("dist.all_reduce({of}, op=dist.ReduceOp.MAX, group={axis})"),
        Collective::AllGather { dim, groups } | Collective::ReduceScatter { dim, groups } => {
            format!("dist.{name}({of}, dim={dim}{}, group={axis})", in_groups(*groups))
        }
        Collective::AllToAll { from, groups, to } => {
            format!("dist.{name}({of}, gather={from}{}, split={to}, group={axis})", in_groups(*groups))
        }
    }
}

fn in_groups(groups: i64) -> String {
    if groups == 1 { String::new() } else { format!(", groups={groups}") }
}

fn list(items: Vec<String>) -> String {
    match items.len() {
        0..=SHORT_LIST => format!("[{}]", items.join(", ")),
        _ => format!("[\n        {},\n    ]", items.join(",\n        ")),
    }
}

fn float(x: f64) -> String {
    match (x.is_finite(), x.is_nan(), x > 0.0) {
        (true, ..) => format!("{x:?}"),
        (_, true, _) => "float(\"nan\")".to_owned(),
        (_, _, true) => "float(\"inf\")".to_owned(),
        _ => "float(\"-inf\")".to_owned(),
    }
}

fn boolean(b: bool) -> &'static str {
    if b { "True" } else { "False" }
}

/// A JSON string is one of Python's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Identifiers that are free.
struct Names {
    taken: BTreeSet<String>,
}

impl Names {
    fn new() -> Names {
        let own =
            ["SimpleNamespace", "_", "dist", "dropout", "f", "frames", "mesh", "micro_batch", "range", "torch", "vjp"];
        let dictionaries = ROLES.iter().map(|(_, name)| *name);
        Names { taken: own.into_iter().chain(dictionaries).chain(KEYWORDS).map(str::to_owned).collect() }
    }

    /// `name` as an identifier, with a number where it is taken.
    fn fresh(&mut self, name: &str) -> String {
        let letters = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
        let mut base: String = letters.collect();
        if base.chars().next().is_none_or(|c| c.is_ascii_digit()) {
            base.insert(0, '_');
        }
        let mut candidate = base.clone();
        for number in 2.. {
            if self.taken.insert(candidate.clone()) {
                break;
            }
            candidate = format!("{base}_{number}");
        }
        candidate
    }
}

/// Python's.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];
