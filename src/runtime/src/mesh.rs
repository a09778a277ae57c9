//! The ranks of a mesh, in lock step: all of them in this process, for checking programs, or one here and the others in
//! processes of their own, for training.
//!
//! Every rank has an executor of its own and the same instructions in the same order; what differs is which box of a
//! tensor is here. Instruction by instruction all ranks run it, rank 0 first; a collective takes what the ranks of an
//! axis bring and gives each its result. How it reaches those that are not here is the backend's business. A mesh of one
//! rank is the plain executor. Read [`Mesh::call`] first.

use crate::backend::{Backend, Share, Simulated};
use crate::error::{Error, Result};
use crate::executor::Executor;
use crate::processes::Processes;
use crate::trace::Tracer;
use crate::{libtorch, weights};
use slapo_program::{
    Axis, Call, Collective, CollectiveCount, FunctionKind, GlobalId, Op, Parameter, Part, Placement, Program, Role,
    Split, Trace,
};
use std::collections::BTreeMap;
use std::path::Path;
use tch::Tensor;

/// More ranks than this are more than a check needs.
pub const MAX_RANKS: usize = 64;

pub struct Mesh {
    /// Those that are here.
    ranks: Vec<Executor>,
    /// The first of them in the whole mesh.
    first: usize,
    /// Per axis: of the ranks that are here, those that differ in this coordinate only, in its order.
    groups: Vec<Vec<Vec<usize>>>,
    backend: Box<dyn Backend>,
    /// What the first rank here has communicated since the step began: calls and bytes.
    counts: BTreeMap<(u32, &'static str, FunctionKind), (u64, u64)>,
    /// Where a step is written down value by value.
    tracer: Option<Tracer>,
}

impl Mesh {
    /// One executor per program; programs are those of ranks 0, 1, … and must fit together.
    pub fn new(programs: Vec<Program>) -> Result<Mesh> {
        fit_together(&programs)?;
        let mesh = programs.first().map(|p| p.mesh.clone()).ok_or_else(|| Error::run("the job has no programs"))?;
        let alone = programs.len() == 1;
        let executor = |(rank, program)| Executor::new(program).map_err(|e| if alone { e } else { e.of_rank(rank) });
        let ranks = programs.into_iter().enumerate().map(executor).collect::<Result<_>>()?;
        let groups = (0..mesh.len()).map(|axis| groups(&mesh, axis)).collect();
        Ok(Mesh { ranks, first: 0, groups, backend: Box::new(Simulated), counts: BTreeMap::new(), tracer: None })
    }

    /// One rank, which the others are reached from.
    pub fn of_process(program: Program, others: Processes) -> Result<Mesh> {
        let groups = vec![vec![vec![0]]; program.mesh.len()];
        let ranks = vec![Executor::new(program)?];
        Ok(Mesh {
            ranks,
            first: others.rank(),
            groups,
            backend: Box::new(others),
            counts: BTreeMap::new(),
            tracer: None,
        })
    }

    /// Whether rank 0 is here, who writes files.
    pub fn has_first(&self) -> bool {
        self.first == 0
    }

    /// The program of the first rank here.
    pub fn program(&self) -> &Program {
        self.ranks[0].program()
    }

    pub fn ranks(&self) -> &[Executor] {
        &self.ranks
    }

    /// Fills every rank's boxes of parameters and buffers; see [`weights::load`].
    pub fn load(&mut self, archive: Option<&Path>, init: bool) -> Result<()> {
        self.each(|executor| weights::load(executor, archive, init))
    }

    /// Gives every rank the same tensor.
    pub fn set_global(&mut self, id: GlobalId, tensor: &Tensor) -> Result<()> {
        self.each(|executor| executor.set_global(id, tensor.shallow_clone()))
    }

    /// Runs the setup functions, once, when parameters and buffers are there.
    pub fn setup(&mut self) -> Result<()> {
        for call in self.program().setup.clone() {
            self.call(call)?;
        }
        self.end_step();
        Ok(())
    }

    pub fn begin_step(&mut self, step: u64) -> Result<()> {
        self.counts.clear();
        self.each(|executor| executor.begin_step(step))
    }

    pub fn end_step(&mut self) {
        self.ranks.iter_mut().for_each(Executor::end_step);
    }

    /// Runs one function for one micro-batch on all ranks.
    pub fn call(&mut self, call: Call) -> Result<()> {
        let length = self.program().functions[call.function as usize].body.len();
        for i in 0..length {
            match self.ranks[0].collective(call.function, i) {
                Some((axis, kind)) => self.collective(call, i, axis, kind)?,
                None => self.each(|executor| executor.instruction(call, i))?,
            }
            if let Some(tracer) = &mut self.tracer {
                tracer.after(&self.ranks, call, i)?;
            }
        }
        Ok(())
    }

    /// From here on values are written down, until [`Mesh::traced`].
    pub fn trace(&mut self, trace: &Trace) {
        self.tracer = Some(Tracer::new(trace));
    }

    /// What was written down.
    pub fn traced(&mut self) -> Result<Vec<(String, Tensor)>> {
        self.tracer.take().map_or_else(|| Ok(Vec::new()), |tracer| tracer.finish(&self.ranks))
    }

    fn collective(&mut self, call: Call, i: usize, axis: u32, kind: Collective) -> Result<()> {
        for g in 0..self.groups[axis as usize].len() {
            let group = self.groups[axis as usize][g].clone();
            let brought: Vec<Tensor> =
                group.iter().map(|rank| self.on(*rank, |e| e.contribution(call, i))).collect::<Result<_>>()?;
            if group[0] == 0 {
                self.count(call, axis, kind, &brought[0]);
            }
            let shape = self.ranks[group[0]].result_shape(call.function, i);
            let results = self.backend.collective(axis as usize, kind, &brought, &shape);
            drop(brought);
            let results = results.or_else(|error| self.on(group[0], |e| Err(e.failed(call, i, error))))?;
            for (rank, result) in group.iter().zip(results) {
                self.on(*rank, |e| e.receive(call, i, result))?;
            }
        }
        Ok(())
    }

    fn count(&mut self, call: Call, axis: u32, kind: Collective, brought: &Tensor) {
        let function = self.program().functions[call.function as usize].kind;
        let (calls, bytes) = self.counts.entry((axis, kind.name(), function)).or_default();
        *calls += 1;
        *bytes += (brought.numel() * brought.kind().elt_size_in_bytes()) as u64;
    }

    /// No rank needs another any more: what follows is this process's own.
    pub fn leave(&self) -> Result<()> {
        self.backend.leave()
    }

    /// What the first rank here has communicated since the step began.
    pub fn collectives(&self) -> Vec<CollectiveCount> {
        let count = |(&(axis, kind, function), &(calls, bytes)): (&(u32, &str, FunctionKind), &(u64, u64))| {
            let axis = self.program().mesh[axis as usize].name.clone();
            CollectiveCount { axis, kind: kind.to_owned(), function: function.name().to_owned(), calls, bytes }
        };
        self.counts.iter().map(count).collect()
    }

    /// A scalar that all ranks must agree on, bit by bit.
    pub fn scalar(&self, id: GlobalId) -> Result<f64> {
        let name = &self.program().globals[id as usize].name;
        let value = |executor: &Executor| {
            let tensor = executor.global(id).ok_or_else(|| Error::run(format!("`{name}` has no value")))?;
            let failed = |e: tch::TchError| Error::run(format!("`{name}`: {}", libtorch::message(&e)));
            Ok(tensor.f_double_value(&[]).map_err(failed)?.to_bits())
        };
        let own: Vec<u64> = self.ranks.iter().map(value).collect::<Result<_>>()?;
        let all: Vec<f64> = self.backend.words(&own)?.into_iter().map(f64::from_bits).collect();
        let first = all[0];
        match all.iter().enumerate().find(|(_, other)| other.to_bits() != first.to_bits()) {
            None => Ok(first),
            Some((rank, other)) => Err(Error::ranks(format!(
                "`{name}` differs between ranks: {first:e} on rank 0, {other:e} on rank {rank}; it should be the same on \
                 all"
            ))),
        }
    }

    /// Parameters and persistent buffers, trained and frozen, whole, under their canonical names; where rank 0 is.
    pub fn parameters(&self) -> Result<Vec<(String, Tensor)>> {
        let parameters = self.program().parameters.iter().enumerate();
        let mut named = Vec::new();
        for (i, parameter) in parameters.filter(|(_, p)| p.saved) {
            let placement = |program: &Program| program.parameters[i].placement.clone();
            let whole = self.whole(&format!("`{}`", canonical(parameter)), parameter.global, &placement)?;
            named.extend(whole.map(|tensor| (canonical(parameter).to_owned(), tensor)));
        }
        Ok(named)
    }

    /// Gradients, whole, where rank 0 is. A gradient global carries its parameter's canonical name and lies as what the rank
    /// updates of the parameter.
    pub fn gradients(&self) -> Result<Vec<(String, Tensor)>> {
        let globals = self.program().globals.iter().enumerate();
        let mut named = Vec::new();
        for (i, global) in globals.filter(|(_, global)| global.role == Role::Gradient) {
            let parameter = self.program().parameters.iter().position(|p| canonical(p) == global.name);
            let placement = |program: &Program| match parameter {
                Some(p) => program.parameters[p].updated(),
                None => Placement::default(),
            };
            let whole = self.whole(&format!("gradient of `{}`", global.name), i as u32, &placement)?;
            named.extend(whole.map(|tensor| (global.name.clone(), tensor)));
        }
        Ok(named)
    }

    /// A tensor from all ranks' boxes; nothing where no rank has a value.
    fn whole(&self, label: &str, id: GlobalId, placement: &dyn Fn(&Program) -> Placement) -> Result<Option<Tensor>> {
        let shares = self.ranks.iter().map(|e| Share { tensor: e.global(id), placement: placement(e.program()) });
        self.backend.whole(label, &shares.collect::<Vec<_>>())
    }

    fn each(&mut self, mut body: impl FnMut(&mut Executor) -> Result<()>) -> Result<()> {
        (0..self.ranks.len()).try_for_each(|rank| self.on(rank, &mut body))
    }

    /// Runs something on one rank; an error says on which, where there are several.
    fn on<R>(&mut self, rank: usize, body: impl FnOnce(&mut Executor) -> Result<R>) -> Result<R> {
        let alone = self.ranks.len() == 1;
        body(&mut self.ranks[rank]).map_err(|e| if alone { e } else { e.of_rank(rank) })
    }
}

fn canonical(parameter: &Parameter) -> &str {
    parameter.names.first().map_or("", String::as_str)
}

/// The ranks of an axis that run collectives together. Ranks count row-major.
pub(crate) fn groups(mesh: &[Axis], axis: usize) -> Vec<Vec<usize>> {
    let size = mesh[axis].size as usize;
    let inner: usize = mesh[axis + 1..].iter().map(|a| a.size as usize).product();
    let outer: usize = mesh[..axis].iter().map(|a| a.size as usize).product();
    let group = |o: usize, i: usize| (0..size).map(|k| (o * size + k) * inner + i).collect();
    (0..outer).flat_map(|o| (0..inner).map(move |i| group(o, i))).collect()
}

/// Refuses programs that are not those of all ranks of one mesh, in order, with the same instructions.
fn fit_together(programs: &[Program]) -> Result<()> {
    let Some(first) = programs.first() else { return Ok(()) };
    let needed = first.mesh.iter().try_fold(1i64, |n, axis| n.checked_mul(axis.size)).unwrap_or(i64::MAX);
    if needed != programs.len() as i64 {
        let axes: Vec<String> = first.mesh.iter().map(|axis| format!("{} = {}", axis.name, axis.size)).collect();
        let mesh = if axes.is_empty() { "no axes".to_owned() } else { axes.join(", ") };
        let given = programs.len();
        return Err(Error::run(format!("a mesh of {mesh} has {needed} ranks, the job brings programs of {given}")));
    }
    if programs.len() > MAX_RANKS {
        return Err(Error::run(format!("{needed} ranks are simulated at most {MAX_RANKS} at a time")));
    }
    for (rank, program) in programs.iter().enumerate() {
        alike(first, program, rank).map_err(|message| Error::run(message).of_rank(rank))?;
    }
    Ok(())
}

/// What of `program` keeps it from running in lock step with rank 0's, in words that follow the rank.
fn alike(first: &Program, program: &Program, rank: usize) -> std::result::Result<(), String> {
    if program.mesh != first.mesh {
        return Err("its mesh is not that of rank 0".to_owned());
    }
    let expected = coordinates(&first.mesh, rank as i64);
    if program.coordinates != expected {
        return Err(format!("its coordinates are {:?}, and those of this rank {expected:?}", program.coordinates));
    }
    let settings = |p: &Program| (p.seed, p.micro_batches, p.setup.clone(), p.step.clone(), p.loss, p.grad_norm);
    if settings(program) != settings(first) {
        return Err("its seed, micro-batches or order of calls are not those of rank 0".to_owned());
    }
    let globals = |p: &Program| p.globals.iter().map(|g| (g.name.clone(), g.role)).collect::<Vec<_>>();
    let names = |p: &Program| p.parameters.iter().map(|p| (p.global, p.names.clone(), p.saved)).collect::<Vec<_>>();
    let inputs = |p: &Program| p.inputs.iter().map(|i| (i.global, i.name.clone())).collect::<Vec<_>>();
    if globals(program) != globals(first) || names(program) != names(first) || inputs(program) != inputs(first) {
        return Err("its globals, parameters or inputs are not those of rank 0".to_owned());
    }
    same_instructions(first, program)
}

/// Where a rank lies on the axes.
pub(crate) fn coordinates(mesh: &[Axis], rank: i64) -> Vec<i64> {
    let mut rest = rank;
    let mut found = Vec::new();
    for axis in mesh.iter().rev() {
        found.push(rest % axis.size);
        rest /= axis.size;
    }
    found.reverse();
    found
}

fn same_instructions(first: &Program, program: &Program) -> std::result::Result<(), String> {
    if program.functions.len() != first.functions.len() {
        return Err(format!("it has {} functions, rank 0 has {}", program.functions.len(), first.functions.len()));
    }
    for (one, other) in program.functions.iter().zip(&first.functions) {
        if (&one.name, one.kind) != (&other.name, other.kind) {
            return Err(format!("it has the function `{}` where rank 0 has `{}`", one.name, other.name));
        }
        let different = one.body.iter().zip(&other.body).position(|(a, b)| !same_operator(&a.op, &b.op));
        if let Some(i) = different {
            let (a, b) = (&one.body[i].op, &other.body[i].op);
            return Err(format!("instruction {i} of `{}` is `{a}` where rank 0 has `{b}`", one.name));
        }
        if one.body.len() != other.body.len() {
            return Err(format!(
                "`{}` has {} instructions, on rank 0 it has {}",
                one.name,
                one.body.len(),
                other.body.len()
            ));
        }
    }
    Ok(())
}

fn same_operator(a: &Op, b: &Op) -> bool {
    common(a) == common(b)
}

/// The operator without what differs between ranks: the part that is theirs.
pub(crate) fn common(op: &Op) -> Op {
    match op {
        Op::Part(split @ Split { part: Part::Rank(_), .. }) => Op::Part(Split { part: Part::Rank(0), ..*split }),
        Op::Dropout { site, p, .. } => Op::Dropout { site: *site, p: *p, placement: Placement::default() },
        other => other.clone(),
    }
}
