//! The text form of a program: one line an instruction, for people and snapshots.

use crate::{Arg, Collective, Function, Instr, Op, Part, Program, Split, Value};
use std::fmt::{self, Display, Formatter, Write};

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "program version {}, seed {}, {} micro-batches", self.version, self.seed, self.micro_batches)?;
        if !self.mesh.is_empty() {
            writeln!(f, "{}", self.place())?;
        }
        for (i, global) in self.globals.iter().enumerate() {
            writeln!(f, "@{i}: {} {:?} {}", global.ty, global.role, global.name)?;
        }
        for function in &self.functions {
            writeln!(f, "\n{}: {:?}", function.name, function.kind)?;
            self.write_body(function, f)?;
        }
        writeln!(f, "\nsetup: {}", self.calls(&self.setup))?;
        writeln!(f, "step: {}", self.calls(&self.step))
    }
}

impl Program {
    /// The rank's place in the mesh: `rank 3 of 4: dp 1 of 2, tp 1 of 2`.
    pub fn place(&self) -> String {
        let axes = self.mesh.iter().zip(&self.coordinates);
        let (rank, ranks) =
            axes.clone().fold((0, 1), |(rank, ranks), (axis, at)| (rank * axis.size + at, ranks * axis.size));
        let at: Vec<String> = axes.map(|(axis, at)| format!("{} {at} of {}", axis.name, axis.size)).collect();
        match at.is_empty() {
            true => "the only rank".to_owned(),
            false => format!("rank {rank} of {ranks}: {}", at.join(", ")),
        }
    }

    /// The operator, with the axis by its name.
    fn operator(&self, op: &Op) -> String {
        match op {
            Op::Collective { axis, kind } => match self.mesh.get(*axis as usize) {
                Some(axis) => format!("{kind} over {}", axis.name),
                None => op.to_string(),
            },
            op => op.to_string(),
        }
    }

    fn write_body(&self, function: &Function, f: &mut Formatter<'_>) -> fmt::Result {
        for instr in &function.body {
            writeln!(f, "    {}", self.line(instr))?;
        }
        Ok(())
    }

    /// One instruction as a line: results and types, operator, arguments, frees, module.
    pub fn line(&self, instr: &Instr) -> String {
        let mut line = String::new();
        for (i, out) in instr.outs.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            match out {
                Some(v @ Value::Local(_)) => write!(line, "{comma}{v}: {}", self.ty(*v)),
                Some(v) => write!(line, "{comma}{v}"),
                None => write!(line, "{comma}_"),
            }
            .expect("writing to a string");
        }
        if !instr.outs.is_empty() {
            line.push_str(" = ");
        }
        let named = instr.named.iter().map(|(name, arg)| format!("{name}: {arg}"));
        let args: Vec<String> = instr.args.iter().map(ToString::to_string).chain(named).collect();
        write!(line, "{}({})", self.operator(&instr.op), args.join(", ")).expect("writing to a string");
        if !instr.free.is_empty() {
            let free: Vec<String> = instr.free.iter().map(|l| format!("%{l}")).collect();
            write!(line, " free {}", free.join(" ")).expect("writing to a string");
        }
        let module = self.origins.get(instr.origin as usize).map_or("", |o| o.module.as_str());
        if !module.is_empty() {
            write!(line, "  # {module}").expect("writing to a string");
        }
        line
    }

    fn calls(&self, calls: &[crate::Call]) -> String {
        let names: Vec<String> =
            calls.iter().map(|c| format!("{}({})", self.functions[c.function as usize].name, c.micro_batch)).collect();
        names.join(" ")
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Value::Global(g) => write!(f, "@{g}"),
            Value::Local(l) => write!(f, "%{l}"),
        }
    }
}

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Op::Aten(name) => f.write_str(name.strip_prefix("aten::").unwrap_or(name)),
            Op::Part(split) => write!(f, "part[{split}]"),
            Op::Dropout { site, p, .. } => write!(f, "dropout[site {site}, p {p}]"),
            Op::Collective { axis, kind } => write!(f, "{kind} over axis {axis}"),
            Op::Autograd => f.write_str("autograd"),
            Op::Accumulate => f.write_str("accumulate"),
            Op::Store => f.write_str("store"),
            Op::Release => f.write_str("release"),
            Op::Vjp { op, .. } => write!(f, "vjp[{op}]"),
        }
    }
}

/// `all_gather[dim 1, groups 3]`
impl Display for Collective {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let (dims, groups) = match self {
            Collective::AllReduce | Collective::AllReduceMax => return Ok(()),
            Collective::AllGather { dim, groups } | Collective::ReduceScatter { dim, groups } => {
                (format!("dim {dim}"), *groups)
            }
            Collective::AllToAll { from, groups, to } => (format!("dim {from} to {to}"), *groups),
        };
        match groups {
            1 => write!(f, "[{dims}]"),
            groups => write!(f, "[{dims}, groups {groups}]"),
        }
    }
}

/// `dim 0, micro-batch of 4`
impl Display for Split {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "dim {}, ", self.dim)?;
        if self.groups != 1 {
            write!(f, "groups {}, ", self.groups)?;
        }
        if !self.sections.is_none() {
            write!(f, "sections {:?}, ", self.sections)?;
        }
        match self.part {
            Part::Rank(rank) => write!(f, "rank {rank} of {}", self.parts),
            Part::MicroBatch => write!(f, "micro-batch of {}", self.parts),
        }
    }
}

impl Display for Arg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Arg::None => f.write_str("none"),
            Arg::Value(v) => write!(f, "{v}"),
            Arg::Values(vs) => {
                let parts: Vec<String> =
                    vs.iter().map(|v| v.map_or_else(|| "none".to_owned(), |v| v.to_string())).collect();
                write!(f, "[{}]", parts.join(", "))
            }
            Arg::Int(i) => write!(f, "{i}"),
            Arg::Float(x) => write!(f, "{x:?}"),
            Arg::Bool(b) => write!(f, "{b}"),
            Arg::Ints(v) => write!(f, "{v:?}"),
            Arg::Floats(v) => write!(f, "{v:?}"),
            Arg::Bools(v) => write!(f, "{v:?}"),
            Arg::DType(d) => write!(f, "{d}"),
            Arg::Str(s) => write!(f, "{s:?}"),
        }
    }
}
