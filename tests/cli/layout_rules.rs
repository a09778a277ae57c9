//! The property that makes layouts sound, tried on every rule: operands held as stated, the local operator run on every
//! part, and the result is held as the rule says.
//!
//! Every distinct node of the joint graphs of six models gets random layouts on axes of 2 and 3 parts, uneven ones among
//! them. Cases that the rule table accepts are executed in float64: the parts are the ranks of a simulated mesh, which
//! leaves each case's difference from the whole operator, added up over the ranks, where a gradient would be.

mod layout_axes;

use safetensors::SafeTensors;
use slapo_core::compile::{Effects, Options, compile};
use slapo_core::ir::{Builder, TABLE, arg};
use slapo_core::layout::{self, Here, Layout, OnAxis, Partial, Replicated, Split};
use slapo_core::lower::{OptimizerSettings, Target, lower};
use slapo_core::passes::autodiff::Joint;
use slapo_core::passes::canonical;
use slapo_model::{
    Arg, Def, Graph, Input, InputSizes, Model, Module, ModuleId, Node, Op, Origin, Parameter, ParameterId, Scope, Type,
    ValueId, import,
};
use slapo_program::{Axis, Collective, DType, Event, Init, Job, Program, Sections, piece};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ARCHIVES: [&str; 6] = [
    "tests/data/gpt2-odd.pt2",
    "tests/data/bert-tiny.pt2",
    "tests/data/opt-tiny.pt2",
    "tests/data/llama-tiny.pt2",
    "tests/data/grouped.pt2",
    "tests/data/operators.pt2",
];

/// Accepted cases to execute, at least.
const WANTED: usize = 2000;

/// Random layouts tried per node and axis size.
const TRIES: usize = 18;

/// Operators that ranks run over a vocabulary together, the operand that is split then, and its dimension.
const VOCABULARY: [(&str, &str, usize); 6] = [
    ("embedding", "weight", 0),
    ("embedding_dense_backward", TABLE, 0),
    ("_log_softmax", "self", 1),
    ("_log_softmax_backward_data", "output", 1),
    ("nll_loss_forward", "self", 1),
    ("nll_loss_backward", "self", 1),
];

/// Cases of one Program.
const BATCH: usize = 250;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// splitmix64: the cases are the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// One node of a joint graph with the types of what it reads and gives.
#[derive(Clone)]
struct Specimen {
    model: &'static str,
    node: Node,
    /// By value number of the graph it comes from.
    types: BTreeMap<ValueId, Type>,
    /// Integer operands: exclusive bound of legal values.
    limits: BTreeMap<ValueId, i64>,
}

/// Every node that differs from the others in operator, arguments or types.
fn specimens() -> Vec<Specimen> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for archive in ARCHIVES {
        let bytes = std::fs::read(root().join(archive)).unwrap_or_else(|e| panic!("{archive}: {e}"));
        let model = import(&bytes).unwrap_or_else(|e| panic!("{archive}: {e:?}"));
        for no_dropout in [false, true] {
            let options =
                Options { model: canonical::Options { no_dropout, dtype: Some(DType::F64) }, ..Options::default() };
            let sizes = InputSizes { batch: 6, seq: Some(6) };
            let compiled = compile(&model, &sizes, &Effects::default(), &options).expect("the archive compiles");
            let graph = compiled.joint.graph;
            let used: BTreeSet<ValueId> =
                graph.nodes.iter().flat_map(Node::reads).chain(graph.outputs.iter().copied()).collect();
            for node in &graph.nodes {
                // Results that nothing reads may not even be computed.
                let mut node = node.clone();
                node.outs.iter_mut().for_each(|out| *out = out.filter(|v| used.contains(v)));
                // Infinities compare with nothing.
                for (_, arg) in &mut node.args {
                    if matches!(arg, Arg::Float(x) if x.is_infinite()) {
                        *arg = Arg::Float(-3.0);
                    }
                }
                for node in &with_ignored_class(node) {
                    let specimen = Specimen {
                        model: archive,
                        node: node.clone(),
                        types: node
                            .reads()
                            .chain(node.outs.iter().copied().flatten())
                            .map(|v| (v, graph.ty(v).clone()))
                            .collect(),
                        limits: limits(&graph, node),
                    };
                    if executable(&specimen) && seen.insert(key(&specimen)) {
                        found.push(specimen);
                    }
                }
            }
        }
    }
    found
}

/// The node, and of a loss the same with targets among the classes that it ignores.
fn with_ignored_class(node: Node) -> Vec<Node> {
    let mut other = node.clone();
    let ignored = other.args.iter_mut().find(|(name, _)| name == "ignore_index");
    match ignored {
        Some((_, arg)) => *arg = Arg::Int(3),
        None => return vec![node],
    }
    vec![node, other]
}

/// What two nodes have in common that are one case.
fn key(s: &Specimen) -> String {
    let args: Vec<String> = s
        .node
        .args
        .iter()
        .map(|(name, arg)| match arg {
            Arg::Value(v) => format!("{name}: {:?}", s.types[v]),
            Arg::Values(vs) => format!("{name}: {:?}", vs.iter().map(|v| v.map(|v| &s.types[&v])).collect::<Vec<_>>()),
            other => format!("{name}: {other:?}"),
        })
        .collect();
    format!("{} {args:?}", s.node.name())
}

/// Operators of tensors. Dropout's masks are the worker's business, which tests that a part draws what the whole does.
fn executable(s: &Specimen) -> bool {
    matches!(s.node.op, Op::Aten(_)) && s.node.reads().next().is_some() && s.node.outs.iter().any(Option::is_some)
}

fn limits(graph: &Graph, node: &Node) -> BTreeMap<ValueId, i64> {
    let rows = |name: &str| node.tensor(name).map(|v| graph.ty(v).shape.clone()).unwrap_or_default();
    let mut limits = BTreeMap::new();
    if let Some(ids) = node.tensor("indices") {
        let weight = rows("weight").first().copied();
        let backward = match node.arg("num_weights") {
            Some(Arg::Int(n)) => Some(*n),
            _ => None,
        };
        limits.insert(ids, weight.or(backward).unwrap_or(2));
    }
    if let Some(target) = node.tensor("target") {
        limits.insert(target, rows("self").get(1).copied().unwrap_or(2));
    }
    limits
}

/// The operand that must be positive.
fn positive_operand(node: &Node) -> Option<ValueId> {
    let positive = ["log", "rsqrt", "sqrt", "pow.Tensor_Scalar"].contains(&node.name());
    node.tensor("self").filter(|_| positive)
}

/// Whether to try several times as many layouts.
fn thorough() -> bool {
    std::env::var_os("SLAPO_THOROUGH").is_some()
}

/// A layout that the axis allows, any kind alike.
fn random_layout(random: &mut Random, ty: &Type, parts: i64) -> Layout {
    match random.below(3) {
        0 if ty.dtype.is_float() => Partial,
        0 | 1 => Replicated,
        _ if random.below(6) == 0 => random_sections(random, ty, parts),
        _ => {
            let groups = [1, 1, 1, 2, 3][random.below(5)];
            let uneven = groups == 1 && random.below(3) == 0;
            let fits = |n: i64| n > 0 && (uneven || n % (groups * parts) == 0);
            let dims: Vec<usize> = (0..ty.shape.len()).filter(|d| fits(ty.shape[*d])).collect();
            match dims.is_empty() {
                true => Replicated,
                false => Split { dim: dims[random.below(dims.len())], groups },
            }
        }
    }
}

/// Sections of different sizes, of each of which a part has its piece.
fn random_sections(random: &mut Random, ty: &Type, parts: i64) -> Layout {
    let sizes = [&[2, 1][..], &[1, 3], &[2, 1, 1], &[1, 2, 1]][random.below(4)];
    let sections = Sections::new(sizes.iter().copied()).expect("few sections");
    let dims: Vec<usize> = (0..ty.shape.len()).filter(|d| sections.divide(ty.shape[*d], parts)).collect();
    match dims.is_empty() {
        true => Replicated,
        false => Layout::Sections { dim: dims[random.below(dims.len())], sections },
    }
}

/// Every operand for itself.
fn at_random(specimen: &Specimen, parts: i64, random: &mut Random) -> BTreeMap<ValueId, Layout> {
    specimen.node.reads().map(|v| (v, random_layout(random, &specimen.types[&v], parts))).collect()
}

/// All operands held as one of them is, as far as they can be: what real schedules do.
fn alike(specimen: &Specimen, parts: i64, random: &mut Random) -> BTreeMap<ValueId, Layout> {
    let reads: Vec<ValueId> = specimen.node.reads().collect();
    let chosen = reads[random.below(reads.len())];
    let layout = random_layout(random, &specimen.types[&chosen], parts);
    let fits = |ty: &Type| match layout {
        Replicated => true,
        Partial => ty.dtype.is_float(),
        Split { dim, groups } => {
            ty.shape.get(dim).is_some_and(|n| *n > 0 && (groups == 1 || n % (groups * parts) == 0))
        }
        Layout::Sections { dim, sections } => ty.shape.get(dim).is_some_and(|n| sections.divide(*n, parts)),
    };
    reads.into_iter().map(|v| (v, if fits(&specimen.types[&v]) { layout } else { Replicated })).collect()
}

/// One operand split or partial, all others whole.
fn one_of_them(specimen: &Specimen, parts: i64, random: &mut Random) -> BTreeMap<ValueId, Layout> {
    let mut layouts: BTreeMap<ValueId, Layout> = specimen.node.reads().map(|v| (v, Replicated)).collect();
    let reads: Vec<ValueId> = specimen.node.reads().collect();
    let chosen = reads[random.below(reads.len())];
    layouts.insert(chosen, random_layout(random, &specimen.types[&chosen], parts));
    layouts
}

/// A model of one module without parameters.
fn empty_model() -> Model {
    let root = Module {
        name: String::new(),
        path: String::new(),
        class: String::new(),
        parent: None,
        children: Vec::new(),
        parameters: Vec::new(),
        buffers: Vec::new(),
    };
    let graph =
        Graph { values: Vec::new(), nodes: Vec::new(), inputs: Vec::new(), outputs: Vec::new(), loss: ValueId(0) };
    let input = Input { name: "input_ids".to_owned(), dtype: DType::I64, shape: Vec::new() };
    Model {
        fingerprint: String::new(),
        modules: vec![root],
        scopes: vec![Scope { module: ModuleId(0), parent: None, call: 0 }],
        parameters: Vec::new(),
        buffers: Vec::new(),
        inputs: vec![input],
        mutations: Vec::new(),
        sources: Vec::new(),
        symbols: Vec::new(),
        graph,
    }
}

/// The vocabulary split, as far as the node runs over one.
fn over_vocabulary(specimen: &Specimen) -> BTreeMap<ValueId, Layout> {
    let node = &specimen.node;
    let known = VOCABULARY.into_iter().find(|(name, ..)| node.is_aten(name));
    let split = known.and_then(|(_, operand, dim)| Some((&specimen.types[&node.tensor(operand)?], dim)));
    let layout = |v: ValueId| match split {
        Some((ty, dim)) if specimen.types[&v] == *ty => Split { dim, groups: 1 },
        _ => Replicated,
    };
    node.reads().map(|v| (v, layout(v))).collect()
}

/// One rank's Program under construction: many cases, each with its own difference.
struct Sheet {
    b: Builder,
    model: Model,
    parts: i64,
    rank: i64,
    gradients: Vec<(ParameterId, ValueId)>,
    names: Vec<String>,
}

impl Sheet {
    fn new(parts: i64, rank: i64) -> Sheet {
        // The trainer wants something to read; no case does.
        let mut b = Builder::new();
        b.leaf("input_ids", Type { dtype: DType::I64, shape: vec![parts, 1] }, Def::Input(0));
        let model = empty_model();
        Sheet { b, model, parts, rank, gradients: Vec::new(), names: Vec::new() }
    }

    /// A tensor of normal numbers.
    fn noise(&mut self, shape: Vec<i64>) -> ValueId {
        let id = ParameterId(self.model.parameters.len() as u32);
        let name = format!("case.{}.x{}", self.names.len(), id.0);
        self.model.parameters.push(Parameter {
            names: vec![name.clone()],
            dtype: DType::F64,
            shape: shape.clone(),
            trainable: false,
            module: ModuleId(0),
            stored: None,
        });
        self.b.leaf(&name, Type { dtype: DType::F64, shape }, Def::Parameter(id))
    }

    fn opaque(&mut self, op: &str, args: Vec<(String, Arg)>, ty: Type) -> ValueId {
        let node = Node { op: Op::Aten(op.to_owned()), args, outs: Vec::new(), origin: Origin::default() };
        self.b.push(node, vec![Some((None, ty))])[0].expect("one result")
    }

    /// A random value of that type, and what one part holds of it.
    fn operand(&mut self, ty: &Type, layout: Layout, limit: Option<i64>) -> (ValueId, ValueId) {
        if layout == Partial {
            let stacked = [&[self.parts][..], &ty.shape].concat();
            let summands = self.noise(stacked);
            let whole = self.b.sum_dims(summands, vec![0], false);
            let summand = self.part(summands, 0, 1);
            let own = self.b.reshape(summand, ty.shape.clone());
            return (whole, own);
        }
        let noise = self.noise(ty.shape.clone());
        let value = match ty.dtype {
            DType::F64 => noise,
            DType::Bool => self.opaque("gt.Scalar", vec![arg("self", noise), arg("other", 0.0)], ty.clone()),
            dtype => {
                let scaled = self.b.scale(noise, 1e4);
                let whole = self.opaque("to.dtype", vec![arg("self", scaled), arg("dtype", dtype)], ty.clone());
                let limit = limit.unwrap_or(2);
                self.opaque("remainder.Scalar", vec![arg("self", whole), arg("other", limit)], ty.clone())
            }
        };
        match layout {
            Layout::Sections { dim, sections } => (value, self.pieces(value, dim, sections)),
            _ => (value, value),
        }
    }

    /// The part's pieces of all sections.
    fn pieces(&mut self, whole: ValueId, dim: usize, sections: Sections) -> ValueId {
        let lengths = sections.lengths(self.b.ty(whole).shape[dim]).expect("sections divide");
        let (mut start, mut pieces) = (0, Vec::new());
        for length in lengths {
            let (at, end) = (arg("start", start), arg("end", start + length));
            let args = vec![arg("self", whole), arg("dim", dim as i64), at, end, arg("step", 1)];
            let section = self.b.one("slice.Tensor", args);
            pieces.push(Some(self.part(section, dim, 1)));
            start += length;
        }
        self.b.one("cat", vec![arg("tensors", Arg::Values(pieces)), arg("dim", dim as i64)])
    }

    fn part(&mut self, whole: ValueId, dim: usize, groups: i64) -> ValueId {
        let mut ty = self.b.ty(whole).clone();
        ty.shape[dim] = piece(ty.shape[dim] / groups, self.parts, self.rank).1 * groups;
        let op = Op::Part { dim, groups, parts: self.parts, part: Some(self.rank) };
        let node = Node { op, args: vec![arg("self", whole)], outs: Vec::new(), origin: Origin::default() };
        self.b.push(node, vec![Some((None, ty))])[0].expect("one result")
    }

    fn all_reduce(&mut self, x: ValueId) -> ValueId {
        let ty = self.b.ty(x).clone();
        let op = Op::Collective { axis: 0, kind: Collective::AllReduce };
        let node = Node { op, args: vec![arg("self", x)], outs: Vec::new(), origin: Origin::default() };
        self.b.push(node, vec![Some((None, ty))])[0].expect("one result")
    }

    /// Copies `node` with its operands replaced; results typed by `types`.
    fn copy(
        &mut self,
        node: &Node,
        operands: &BTreeMap<ValueId, ValueId>,
        types: &[Option<Type>],
    ) -> Vec<Option<ValueId>> {
        let args = node.args.iter().map(|(name, arg)| {
            let arg = match arg {
                Arg::Value(v) => Arg::Value(operands[v]),
                Arg::Values(vs) => Arg::Values(vs.iter().map(|v| v.map(|v| operands[&v])).collect()),
                other => other.clone(),
            };
            (name.clone(), arg)
        });
        let copied = Node { op: node.op.clone(), args: args.collect(), outs: Vec::new(), origin: Origin::default() };
        self.b.push(copied, types.iter().map(|ty| ty.clone().map(|ty| (None, ty))).collect())
    }

    /// Adds one case, if the rules accept it.
    fn add(&mut self, specimen: &Specimen, layouts: &BTreeMap<ValueId, Layout>) -> bool {
        let Some((local, results)) = self.typed(specimen, layouts) else { return false };
        let mut whole = BTreeMap::new();
        let mut held = BTreeMap::new();
        for (v, layout) in layouts {
            let limit = specimen.limits.get(v).copied();
            let (value, own) = self.operand(&specimen.types[v], *layout, limit);
            whole.insert(*v, value);
            held.insert(*v, own);
        }
        self.settle(specimen, layouts, &mut whole, &mut held);
        let types: Vec<Option<Type>> =
            specimen.node.outs.iter().map(|v| v.map(|v| specimen.types[&v].clone())).collect();
        let expected = self.copy(&specimen.node, &whole, &types);
        let own = self.splice(&local, layouts, &held);
        let expected = expected.into_iter().zip(results).filter_map(|(v, layout)| Some((v?, layout)));
        for ((expected, layout), own) in expected.zip(own) {
            self.compare(expected, own, layout);
        }
        let described: Vec<String> =
            layouts.iter().map(|(v, l)| format!("{:?} {l}", specimen.types[v].shape)).collect();
        self.names.push(format!("{} in {}: {}", specimen.node.name(), specimen.model, described.join(", ")));
        true
    }

    /// Operands that are results of a forward operator must be such, or its backward means nothing.
    fn settle(
        &mut self,
        specimen: &Specimen,
        layouts: &BTreeMap<ValueId, Layout>,
        whole: &mut BTreeMap<ValueId, ValueId>,
        held: &mut BTreeMap<ValueId, ValueId>,
    ) {
        if let Some(x) = positive_operand(&specimen.node)
            && layouts[&x] != Partial
        {
            let positive = self.opaque("abs", vec![arg("self", whole[&x])], specimen.types[&x].clone());
            let shifted = self.b.one("add.Scalar", vec![arg("self", positive), arg("other", 0.5)]);
            whole.insert(x, shifted);
            held.insert(x, shifted);
        }
    }

    /// The node's own part of the axis and the layouts of its results; `None` where the rules refuse.
    fn typed(&self, specimen: &Specimen, layouts: &BTreeMap<ValueId, Layout>) -> Option<(Graph, Vec<Layout>)> {
        let mut b = Builder::new();
        let mut operands = BTreeMap::new();
        let mut held = Vec::new();
        for (i, (v, layout)) in layouts.iter().enumerate() {
            // A whole input is read through its part; what is replicated or partial is held as it is.
            let def = match layout {
                Split { .. } => Def::Input(i as u32),
                Replicated | Partial | Layout::Sections { .. } => Def::Parameter(ParameterId(i as u32)),
            };
            operands.insert(*v, b.leaf(&format!("x{i}"), specimen.types[v].clone(), def));
            held.push(*layout);
        }
        let mut sheet = Sheet { b, ..Sheet::new(self.parts, self.rank) };
        let types: Vec<Option<Type>> =
            specimen.node.outs.iter().map(|v| v.map(|v| specimen.types[&v].clone())).collect();
        let outs = sheet.copy(&specimen.node, &operands, &types);
        let mut graph = sheet.b.graph;
        graph.outputs = outs.iter().copied().flatten().collect();
        graph.loss = *graph.outputs.first()?;
        let leaf = |def: Def| match def {
            Def::Input(i) | Def::Parameter(ParameterId(i)) => held[i as usize],
            _ => Replicated,
        };
        let on = OnAxis { parts: self.parts, axis: Some(0), syncs: &[] };
        let typing = layout::infer_on(&graph, on, leaf).ok()?;
        let results = outs.iter().map(|v| v.map_or(Replicated, |v| typing.of(v))).collect();
        let here = Here::Rank { axis: 0, coordinate: self.rank, syncs: &[] };
        Some((layout::partition(&graph, &typing, 0, here).0, results))
    }

    /// Writes a partitioned case behind the sheet; leaves become the operands as held.
    fn splice(
        &mut self,
        local: &Graph,
        layouts: &BTreeMap<ValueId, Layout>,
        held: &BTreeMap<ValueId, ValueId>,
    ) -> Vec<ValueId> {
        let leaves: Vec<ValueId> = layouts.keys().map(|v| held[v]).collect();
        let mut map = BTreeMap::new();
        for (i, value) in local.values.iter().enumerate() {
            if let Def::Input(at) | Def::Parameter(ParameterId(at)) = value.def {
                map.insert(ValueId(i as u32), leaves[at as usize]);
            }
        }
        for node in &local.nodes {
            let types: Vec<Option<Type>> = node.outs.iter().map(|v| v.map(|v| local.ty(v).clone())).collect();
            for (old, new) in node.outs.iter().zip(self.copy(node, &map, &types)) {
                if let (Some(old), Some(new)) = (old, new) {
                    map.insert(*old, new);
                }
            }
        }
        local.outputs.iter().map(|v| map[v]).collect()
    }

    /// Leaves what must vanish, added up over the ranks, as the gradient of a parameter of its own.
    fn compare(&mut self, expected: ValueId, own: ValueId, layout: Layout) {
        let (expected, own) = (self.b.cast(expected, DType::F64), self.b.cast(own, DType::F64));
        let share = match layout {
            Replicated => expected,
            Split { dim, groups } => self.part(expected, dim, groups),
            Layout::Sections { dim, sections } => self.pieces(expected, dim, sections),
            Partial => self.b.scale(expected, 1.0 / self.parts as f64),
        };
        let difference = self.b.binary("sub.Tensor", own, share);
        let ty = self.b.ty(difference).clone();
        // Summands differ, their sum must not; elsewhere no rank may be wrong.
        let difference = if layout == Partial { self.all_reduce(difference) } else { difference };
        let size = self.opaque("abs", vec![arg("self", difference)], ty);
        let size = self.b.unary("sum", size);
        let measured = self.all_reduce(size);
        let id = ParameterId(self.model.parameters.len() as u32);
        self.model.parameters.push(Parameter {
            names: vec![format!("result.{}.{}", self.names.len(), self.gradients.len())],
            dtype: DType::F64,
            shape: Vec::new(),
            trainable: true,
            module: ModuleId(0),
            stored: None,
        });
        self.b.leaf("result", Type { dtype: DType::F64, shape: Vec::new() }, Def::Parameter(id));
        self.gradients.push((id, measured));
    }

    fn program(mut self) -> Program {
        let loss =
            self.b.one("full", vec![arg("size", Vec::<i64>::new()), arg("fill_value", 0.0), arg("dtype", DType::F64)]);
        self.b.graph.loss = loss;
        self.b.graph.outputs = vec![loss];
        let forward = self.b.graph.nodes.len();
        let joint = Joint {
            graph: self.b.graph,
            forward,
            mutations: Vec::new(),
            gradients: self.gradients,
            rerun: BTreeMap::new(),
        };
        let target = Target {
            seed: 1,
            micro_batches: 1,
            optimizer: OptimizerSettings::default(),
            schedule: String::new(),
            placements: BTreeMap::new(),
            limits: BTreeMap::new(),
            mesh: vec![Axis { name: "parts".to_owned(), size: self.parts }],
            coordinates: vec![self.rank],
            boxes: BTreeMap::new(),
            zero: BTreeMap::new(),
        };
        let mut program = lower(&self.model, &joint, &target);
        for parameter in &mut program.parameters {
            if let Init::Normal { std, .. } = &mut parameter.init {
                *std = 1.0;
            }
        }
        // Nothing is trained: the gradients are read, then released.
        let optimizer = program.functions.iter_mut().find(|f| f.name == "optimizer").expect("an optimizer");
        optimizer.body.retain(|i| i.op == slapo_program::Op::Release);
        let faults = slapo_program::validate(&program);
        assert!(faults.is_empty(), "{faults:?}");
        program
    }
}

/// The cases of all ranks.
struct Ranks(Vec<Sheet>);

impl Ranks {
    fn new(parts: i64) -> Ranks {
        Ranks((0..parts).map(|rank| Sheet::new(parts, rank)).collect())
    }

    /// Adds one case, if the rules accept it.
    fn add(&mut self, specimen: &Specimen, layouts: &BTreeMap<ValueId, Layout>) -> bool {
        self.0.iter_mut().all(|sheet| sheet.add(specimen, layouts))
    }

    /// Runs all cases and returns the difference of each.
    fn run(self) -> Vec<(String, f64)> {
        let names = self.0[0].names.clone();
        difference_of_each(names, execute(self.0.into_iter().map(Sheet::program).collect()))
    }
}

/// The largest of the differences that belong to each case.
fn difference_of_each(names: Vec<String>, found: Vec<(String, f64)>) -> Vec<(String, f64)> {
    let mut worst = vec![0.0f64; names.len()];
    for (name, largest) in found {
        let case = name.split('.').nth(1).and_then(|n| n.parse::<usize>().ok()).expect("a case number");
        worst[case] = if largest.is_nan() { f64::NAN } else { worst[case].max(largest) };
    }
    names.into_iter().zip(worst).collect()
}

/// Runs one step of the ranks' programs in the worker; the largest absolute value of each gradient.
fn execute(mut programs: Vec<Program>) -> Vec<(String, f64)> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (data, dump) = (folder.path().join("data.txt"), folder.path().join("gradients.safetensors"));
    std::fs::write(&data, "no input reads this").expect("writing the data");
    let job = Job {
        program: programs.remove(0),
        simulated: programs,
        peers: None,
        archive: None,
        data,
        steps: 1,
        init: true,
        threads: Some(1),
        deterministic: true,
        dump_gradients: Some(dump.clone()),
        save: None,
        trace: None,
    };
    let worker =
        std::env::var_os("SLAPO_WORKER").map_or_else(|| root().join("target/debug/slapo-worker"), PathBuf::from);
    let mut child = Command::new(&worker)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{}: {e}; build it with `cargo build -p slapo-runtime`", worker.display()));
    let text = serde_json::to_string(&job).expect("a job");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("writing the job");
    let output = child.wait_with_output().expect("the worker ends");
    let events = String::from_utf8_lossy(&output.stdout);
    let failed = events.lines().find(|l| matches!(serde_json::from_str(l), Ok(Event::Failed { .. })));
    assert!(output.status.success() && failed.is_none(), "{failed:?}");
    let bytes = std::fs::read(&dump).expect("the gradients");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let largest = |view: safetensors::tensor::TensorView| {
        let numbers = view.data().chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes")));
        numbers.fold(0.0f64, |m, x| if x.is_nan() || m.is_nan() { f64::NAN } else { m.max(x.abs()) })
    };
    file.tensors().into_iter().map(|(name, view)| (name, largest(view))).collect()
}

#[test]
fn every_accepted_layout_is_right() {
    let specimens = specimens();
    let mut random = Random(7);
    let (mut accepted, mut refused) = (0, 0);
    // Operators that took sections of different sizes.
    let mut sectioned: BTreeSet<&str> = BTreeSet::new();
    let mut rules: BTreeMap<String, usize> = BTreeMap::new();
    let mut vocabulary = BTreeSet::new();
    let mut wrong = Vec::new();
    for parts in [2, 3] {
        let mut ranks = Ranks::new(parts);
        for (i, specimen) in specimens.iter().enumerate() {
            let mut tried = BTreeSet::new();
            for attempt in 0..if thorough() { 3 * TRIES } else { TRIES } {
                let layouts = match attempt % 3 {
                    _ if attempt == 0 => over_vocabulary(specimen),
                    0 => at_random(specimen, parts, &mut random),
                    1 => alike(specimen, parts, &mut random),
                    _ => one_of_them(specimen, parts, &mut random),
                };
                if !tried.insert(format!("{layouts:?}")) {
                    continue;
                }
                if ranks.add(specimen, &layouts) {
                    accepted += 1;
                    vocabulary.extend(over_uneven_vocabulary(specimen, &layouts, parts));
                    if layouts.values().any(|layout| matches!(layout, Layout::Sections { .. })) {
                        sectioned.insert(specimen.node.name());
                    }
                    *rules.entry(specimen.node.name().to_owned()).or_default() += 1;
                } else {
                    refused += 1;
                }
            }
            if ranks.0[0].names.len() >= BATCH || i + 1 == specimens.len() {
                let full = std::mem::replace(&mut ranks, Ranks::new(parts));
                wrong.extend(
                    full.run()
                        .into_iter()
                        .filter(|(_, d)| d.is_nan() || *d > 1e-9)
                        .map(|(n, d)| format!("{n}, {parts} parts: {d:e}")),
                );
            }
        }
    }
    println!("{} nodes, {accepted} cases accepted, {refused} refused: {rules:?}", specimens.len());
    for name in ["linear", "mm", "reshape", "slice.Tensor", "sum.dim_IntList"] {
        assert!(sectioned.contains(name), "{name} took no sections: {sectioned:?}");
    }
    assert!(wrong.is_empty(), "{} of {accepted} accepted cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(accepted >= WANTED, "only {accepted} cases were accepted");
    assert_eq!(vocabulary.len(), VOCABULARY.len(), "uneven pieces of a vocabulary: {vocabulary:?}");
}

/// The operator, if its vocabulary is in uneven pieces here.
fn over_uneven_vocabulary(
    specimen: &Specimen,
    layouts: &BTreeMap<ValueId, Layout>,
    parts: i64,
) -> Option<&'static str> {
    let (name, operand, dim) = VOCABULARY.into_iter().find(|(name, ..)| specimen.node.is_aten(name))?;
    let v = specimen.node.tensor(operand)?;
    (layouts[&v] == Split { dim, groups: 1 } && specimen.types[&v].shape[dim] % parts != 0).then_some(name)
}

/// The harness notices a rule that is wrong: a partial sum through a function that is not linear.
#[test]
fn a_wrong_rule_would_be_noticed() {
    let mut ranks = Ranks::new(2);
    let ty = Type { dtype: DType::F64, shape: vec![4, 6] };
    for sheet in &mut ranks.0 {
        let (whole, held) = sheet.operand(&ty, Partial, None);
        let (expected, own) = (sheet.b.unary("tanh", whole), sheet.b.unary("tanh", held));
        sheet.compare(expected, own, Partial);
        sheet.names.push("tanh of a partial sum".to_owned());
    }
    let [(_, difference)] = &ranks.run()[..] else { panic!("one case") };
    assert!(*difference > 1e-3);
}

#[test]
fn specimens_cover_forward_and_backward() {
    let names: BTreeSet<String> = specimens().iter().map(|s| s.node.name().to_owned()).collect();
    for name in ["linear", "addmm", "mm", "native_layer_norm_backward", "_softmax_backward_data", "nll_loss_backward"] {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
}
