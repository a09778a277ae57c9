//! The soundness of layouts on two axes at once: as one axis at a time, and a value may be split, or a sum, over both.
//!
//! Each case is a small graph of global values: operands held as stated, the node, and its distance from the same node on
//! whole operands. Many of them are one joint graph, which goes the way of every schedule: typed on both axes, partitioned
//! for each rank, lowered and run. Read [`Sheet::add`] first.

use super::{BATCH, Random, Specimen, difference_of_each, empty_model, execute, positive_operand, random_layout};
use super::{specimens, thorough};
use slapo_core::compile::{Effects, MeshAxis, Shard};
use slapo_core::ir::{Builder, arg};
use slapo_core::layout::{self, Layout, OnAxis, Partial, Replicated, Split, Sync, Typing};
use slapo_core::lower::{OptimizerSettings, Target, lower};
use slapo_core::passes::autodiff::Joint;
use slapo_core::passes::mesh::{self, Check, Meshed};
use slapo_model::{Def, Model, ModuleId, Node, Op, Origin, Parameter, ParameterId, Type, ValueId};
use slapo_program::{Axis, DType, Init, Program, Sections};
use std::collections::{BTreeMap, BTreeSet};

/// Accepted cases to execute, at least.
const WANTED: usize = 1500;

/// Random layouts tried per node and mesh.
const TRIES: usize = 6;

type Layouts = BTreeMap<ValueId, [Layout; 2]>;

/// A layout on each axis; where a dimension is large enough, now and then both split it, one inside the other.
fn random_pair(random: &mut Random, ty: &Type, sizes: [i64; 2], outer: usize) -> [Layout; 2] {
    let both = sizes[0] * sizes[1];
    let dims: Vec<usize> = (0..ty.shape.len()).filter(|d| ty.shape[*d] > 0 && ty.shape[*d] % both == 0).collect();
    if random.below(3) == 0 && !dims.is_empty() {
        let dim = dims[random.below(dims.len())];
        let groups = if ty.shape[dim] % (3 * both) == 0 { [1, 3][random.below(2)] } else { 1 };
        let mut pair = [Split { dim, groups }; 2];
        pair[1 - outer] = Split { dim, groups: groups * sizes[outer] };
        return pair;
    }
    // Nothing nests in sections of different sizes; on one axis they are tried.
    sizes.map(|size| match random_layout(random, ty, size) {
        Layout::Sections { .. } => Replicated,
        layout => layout,
    })
}

/// Every operand for itself, all as one of them as far as they can, or one of them alone: in turn.
fn random_layouts(specimen: &Specimen, mesh: ([i64; 2], usize), attempt: usize, random: &mut Random) -> Layouts {
    let (sizes, outer) = mesh;
    let reads: Vec<ValueId> = specimen.node.reads().collect();
    let chosen = reads[random.below(reads.len())];
    let pair = random_pair(random, &specimen.types[&chosen], sizes, outer);
    let fits = |ty: &Type, layout: Layout, parts: i64| match layout {
        Replicated => true,
        Partial => ty.dtype.is_float(),
        Split { dim, groups } => {
            ty.shape.get(dim).is_some_and(|n| *n > 0 && (groups == 1 || n % (groups * parts) == 0))
        }
        Layout::Sections { .. } => false,
    };
    let mut held = |v: ValueId| {
        let ty = &specimen.types[&v];
        match attempt % 3 {
            0 => random_pair(random, ty, sizes, outer),
            1 => [0, 1].map(|axis| if fits(ty, pair[axis], sizes[axis]) { pair[axis] } else { Replicated }),
            _ if v == chosen => pair,
            _ => [Replicated; 2],
        }
    };
    reads.iter().map(|v| (*v, held(*v))).collect()
}

/// Cases under construction: one joint graph over global values.
struct Sheet {
    b: Builder,
    /// The axis whose pieces hold those of the other, wherever both split one dimension: one order does for all cases.
    outer: usize,
    model: Model,
    effects: Effects,
    syncs: Vec<(usize, Sync)>,
    /// By parameter: parameters of one site begin with the same values.
    sites: Vec<u32>,
    gradients: Vec<(ParameterId, ValueId)>,
    names: Vec<String>,
}

impl Sheet {
    fn new(sizes: [i64; 2], outer: usize) -> Sheet {
        let axes = ["first", "second"].iter().zip(sizes);
        let axes = axes.map(|(name, size)| MeshAxis { name: (*name).to_owned(), size }).collect();
        let mut b = Builder::new();
        b.leaf("input_ids", Type { dtype: DType::I64, shape: vec![1, 1] }, Def::Input(0));
        Sheet {
            b,
            outer,
            model: empty_model(),
            effects: Effects { axes, ..Effects::default() },
            syncs: Vec::new(),
            sites: Vec::new(),
            gradients: Vec::new(),
            names: Vec::new(),
        }
    }

    fn sizes(&self) -> [i64; 2] {
        [self.effects.axes[0].size, self.effects.axes[1].size]
    }

    fn parameter(&mut self, ty: Type, site: Option<u32>, trainable: bool) -> (ParameterId, ValueId) {
        let id = ParameterId(self.model.parameters.len() as u32);
        let name = match trainable {
            true => format!("result.{}.{}", self.names.len(), id.0),
            false => format!("case.{}.x{}", self.names.len(), id.0),
        };
        self.model.parameters.push(Parameter {
            names: vec![name.clone()],
            dtype: ty.dtype,
            shape: ty.shape.clone(),
            trainable,
            module: ModuleId(0),
            stored: None,
        });
        self.sites.push(site.unwrap_or(id.0));
        (id, self.b.leaf(&name, ty, Def::Parameter(id)))
    }

    /// A random value of that type, whole and as it is held: a sum over an axis is that of a stack with a slice per rank.
    fn operand(&mut self, ty: &Type, held: [Layout; 2], limit: Option<i64>) -> (ValueId, ValueId) {
        let summed: Vec<usize> = (0..2).filter(|axis| held[*axis] == Partial).collect();
        let stack: Vec<i64> = summed.iter().map(|axis| self.sizes()[*axis]).collect();
        let noise = Type { dtype: DType::F64, shape: [&stack[..], &ty.shape].concat() };
        let (first, whole) = self.parameter(noise.clone(), None, false);
        let (parameter, own) = self.parameter(noise, Some(first.0), false);
        for (axis, layout) in held.into_iter().enumerate() {
            let (dim, groups) = match layout {
                Replicated | Layout::Sections { .. } => continue,
                Partial => (summed.iter().position(|a| *a == axis).unwrap_or(0), 1),
                Split { dim, groups } => (stack.len() + dim, groups),
            };
            self.effects.shards.push(Shard {
                parameter,
                dim,
                groups,
                axis,
                gathered: None,
                sections: Sections::default(),
                uneven: true,
                step: 0,
            });
        }
        let dims: Vec<i64> = (0..stack.len() as i64).collect();
        let both = [whole, own].map(|x| self.typed(x, ty, &dims, limit));
        (both[0], both[1])
    }

    fn typed(&mut self, x: ValueId, ty: &Type, summed: &[i64], limit: Option<i64>) -> ValueId {
        if !summed.is_empty() {
            return self.b.sum_dims(x, summed.to_vec(), false);
        }
        let of = |sheet: &mut Sheet, op: &str, args| sheet.push(op, args, ty.clone());
        match ty.dtype {
            DType::F64 => x,
            DType::Bool => of(self, "gt.Scalar", vec![arg("self", x), arg("other", 0.0)]),
            dtype => {
                let scaled = self.b.scale(x, 1e4);
                let rounded = of(self, "to.dtype", vec![arg("self", scaled), arg("dtype", dtype)]);
                of(self, "remainder.Scalar", vec![arg("self", rounded), arg("other", limit.unwrap_or(2))])
            }
        }
    }

    fn push(&mut self, op: &str, args: Vec<(String, slapo_model::Arg)>, ty: Type) -> ValueId {
        let node = Node { op: Op::Aten(op.to_owned()), args, outs: Vec::new(), origin: Origin::default() };
        self.b.push(node, vec![Some((None, ty))])[0].expect("one result")
    }

    /// The node on whole operands and on operands as held.
    fn both(&mut self, specimen: &Specimen, layouts: &Layouts) -> [Vec<Option<ValueId>>; 2] {
        let mut operands: [BTreeMap<ValueId, ValueId>; 2] = Default::default();
        for (v, held) in layouts {
            let ty = &specimen.types[v];
            let (whole, own) = self.operand(ty, *held, specimen.limits.get(v).copied());
            let settled =
                [whole, own].map(|x| match positive_operand(&specimen.node) == Some(*v) && !held.contains(&Partial) {
                    true => {
                        let positive = self.push("abs", vec![arg("self", x)], ty.clone());
                        self.b.one("add.Scalar", vec![arg("self", positive), arg("other", 0.5)])
                    }
                    false => x,
                });
            operands.iter_mut().zip(settled).for_each(|(operands, x)| operands.extend([(*v, x)]));
        }
        let types = specimen.node.outs.iter().map(|v| v.map(|v| (None, specimen.types[&v].clone())));
        let types: Vec<_> = types.collect();
        operands.map(|operands| {
            let args = specimen.node.args.iter().map(|(name, arg)| (name.clone(), arg.reading(|v| operands[&v])));
            let op = specimen.node.op.clone();
            let node = Node { op, args: args.collect(), outs: Vec::new(), origin: Origin::default() };
            self.b.push(node, types.clone())
        })
    }

    /// The layouts of all values on both axes; `None` where a rule refuses, or the two do not go together.
    fn infer(&self) -> Option<[Typing; 2]> {
        let typing = |axis: usize| {
            let on = OnAxis { parts: self.effects.axes[axis].size, axis: Some(axis), syncs: &self.syncs };
            let held = |p| self.effects.shards.iter().find(|s| s.parameter == p && s.axis == axis);
            layout::infer_on(&self.b.graph, on, |def| match def {
                Def::Parameter(p) => held(p).map_or(Replicated, |s| Split { dim: s.dim, groups: s.groups }),
                _ => Replicated,
            })
        };
        let typings = [typing(0).ok()?, typing(1).ok()?];
        let order = layout::nesting(&self.b.graph, &typings).ok()?;
        (order[0] == self.outer).then_some(typings)
    }

    /// Adds one case, if the rules accept it.
    fn add(&mut self, specimen: &Specimen, layouts: &Layouts) -> bool {
        let mut alone = Sheet::new(self.sizes(), self.outer);
        let [_, own] = alone.both(specimen, layouts);
        let Some(typings) = alone.infer() else { return false };
        let found: Vec<Option<[Layout; 2]>> =
            own.into_iter().map(|v| v.map(|v| [0, 1].map(|axis| typings[axis].of(v)))).collect();
        // The difference below does not take sections of different sizes, which joining pieces can make.
        if found.iter().flatten().flatten().any(|layout| matches!(layout, Layout::Sections { .. })) {
            return false;
        }
        let [expected, own] = self.both(specimen, layouts);
        for ((expected, own), found) in expected.into_iter().zip(own).zip(found) {
            if let (Some(expected), Some(own), Some(found)) = (expected, own, found) {
                self.compare(expected, own, found);
            }
        }
        let held = layouts.iter().map(|(v, [a, b])| format!("{:?} {a}, {b}", specimen.types[v].shape));
        let held: Vec<String> = held.collect();
        self.names.push(format!("{} in {}: {}", specimen.node.name(), specimen.model, held.join("; ")));
        true
    }

    /// Leaves what must vanish, added up over the ranks, as the gradient of a parameter of its own.
    fn compare(&mut self, expected: ValueId, own: ValueId, found: [Layout; 2]) {
        let mut own = self.b.cast(own, DType::F64);
        for axis in (0..2).filter(|axis| found[*axis] == Partial) {
            own = self.all_reduce(own, axis);
        }
        let expected = self.b.cast(expected, DType::F64);
        let difference = self.b.binary("sub.Tensor", own, expected);
        let ty = self.b.ty(difference).clone();
        let size = self.push("abs", vec![arg("self", difference)], ty);
        let mut measured = self.b.unary("sum", size);
        for (axis, layout) in found.into_iter().enumerate() {
            if !matches!(layout, Split { .. }) {
                // No replica may be wrong: each counts with a positive factor of its own.
                let factors = Type { dtype: DType::F64, shape: vec![self.sizes()[axis]] };
                let (parameter, factors) = self.parameter(factors, None, false);
                self.effects.shards.push(Shard {
                    parameter,
                    dim: 0,
                    groups: 1,
                    axis,
                    gathered: None,
                    sections: Sections::default(),
                    uneven: false,
                    step: 0,
                });
                let ty = self.b.ty(factors).clone();
                let positive = self.push("abs", vec![arg("self", factors)], ty);
                let spread = self.b.unary("sum", positive);
                measured = self.b.binary("mul.Tensor", measured, spread);
            }
            measured = self.all_reduce(measured, axis);
        }
        let (id, _) = self.parameter(Type { dtype: DType::F64, shape: Vec::new() }, None, true);
        self.gradients.push((id, measured));
    }

    fn all_reduce(&mut self, x: ValueId, axis: usize) -> ValueId {
        self.syncs.push((axis, Sync::AllReduce));
        self.b.sync(x, self.syncs.len() as u32 - 1)
    }

    /// Runs all cases and returns the difference of each.
    fn run(mut self) -> Vec<(String, f64)> {
        let nothing = vec![arg("size", Vec::<i64>::new()), arg("fill_value", 0.0), arg("dtype", DType::F64)];
        self.b.graph.loss = self.b.one("full", nothing);
        let values = self.gradients.iter().map(|(_, v)| *v);
        self.b.graph.outputs = std::iter::once(self.b.graph.loss).chain(values).collect();
        let forward = self.b.graph.nodes.len();
        let Sheet { b, model, effects, syncs, sites, gradients, names, .. } = self;
        let joint = Joint { graph: b.graph, forward, mutations: Vec::new(), gradients, rerun: BTreeMap::new() };
        let meshed = Meshed { joint, syncs, asked: Vec::new(), choices: Vec::new(), typings: Vec::new() };
        let layouts = mesh::layouts(&model, &meshed, &effects, Check::Held).expect("each case is accepted");
        let [outer, inner] = [effects.axes[0].size, effects.axes[1].size];
        let program = |rank: i64| {
            let at = vec![rank / inner, rank % inner];
            let local = mesh::local(&model, &meshed, &effects, &layouts, Check::Held, &at);
            let (local, placements) = local.unwrap_or_else(|e| panic!("accepted, but not as the ranks' own: {e:#?}"));
            let target = Target {
                seed: 1,
                micro_batches: 1,
                optimizer: OptimizerSettings::default(),
                schedule: String::new(),
                placements,
                limits: BTreeMap::new(),
                mesh: effects.axes.iter().map(|a| Axis { name: a.name.clone(), size: a.size }).collect(),
                boxes: mesh::boxes(&effects, &at),
                zero: BTreeMap::new(),
                coordinates: at,
            };
            with_noise(lower(&model, &local, &target), &model, &sites)
        };
        let found = execute((0..outer * inner).map(program).collect());
        difference_of_each(names, found)
    }
}

/// Parameters of one site begin with the same normal numbers; nothing is trained: gradients are read, then released.
fn with_noise(mut program: Program, model: &Model, sites: &[u32]) -> Program {
    for parameter in &mut program.parameters {
        let at = model.parameters.iter().position(|p| p.names == parameter.names).expect("a parameter of the sheet");
        parameter.init = Init::Normal { std: 1.0, site: sites[at] };
    }
    let optimizer = program.functions.iter_mut().find(|f| f.name == "optimizer").expect("an optimizer");
    optimizer.body.retain(|i| i.op == slapo_program::Op::Release);
    assert_eq!(slapo_program::validate(&program), []);
    program
}

#[test]
fn every_accepted_layout_on_two_axes_is_right() {
    let specimens = specimens();
    let mut random = Random(11);
    let (mut accepted, mut refused, mut nested) = (0, 0, 0);
    let mut rules: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    let meshes: &[[i64; 2]] = if thorough() { &[[2, 2], [2, 3], [3, 2]] } else { &[[2, 2]] };
    for (sizes, outer) in meshes.iter().flat_map(|sizes| [(*sizes, 0), (*sizes, 1)]) {
        let mut sheet = Sheet::new(sizes, outer);
        for (i, specimen) in specimens.iter().enumerate() {
            let mut tried = BTreeSet::new();
            for attempt in 0..if thorough() { 3 * TRIES } else { TRIES } {
                let layouts = random_layouts(specimen, (sizes, outer), attempt, &mut random);
                if !tried.insert(format!("{layouts:?}")) {
                    continue;
                }
                if !sheet.add(specimen, &layouts) {
                    refused += 1;
                    continue;
                }
                accepted += 1;
                let split = |layout: Layout| if let Split { dim, .. } = layout { Some(dim) } else { None };
                nested += usize::from(layouts.values().any(|[a, b]| split(*a).is_some() && split(*a) == split(*b)));
                *rules.entry(specimen.node.name().to_owned()).or_default() += 1;
            }
            if sheet.names.len() >= BATCH || i + 1 == specimens.len() {
                let differences = std::mem::replace(&mut sheet, Sheet::new(sizes, outer)).run().into_iter();
                let wrongs = differences.filter(|(_, d)| d.is_nan() || *d > 1e-9);
                wrong.extend(wrongs.map(|(name, d)| format!("{name} on {sizes:?}: {d:e}")));
            }
        }
    }
    println!("{} nodes, {accepted} cases on two axes accepted, {refused} refused: {rules:?}", specimens.len());
    println!("in {nested} of them both axes split one dimension");
    assert!(wrong.is_empty(), "{} of {accepted} accepted cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(accepted >= WANTED && nested >= 200, "only {accepted} cases were accepted, {nested} of them nested");
}

/// The harness notices a difference on one rank alone, and of a sum.
#[test]
fn a_wrong_result_on_two_axes_would_be_noticed() {
    let ty = Type { dtype: DType::F64, shape: vec![4, 6] };
    for held in [[Replicated, Split { dim: 0, groups: 1 }], [Partial, Split { dim: 1, groups: 3 }], [Partial; 2]] {
        let mut sheet = Sheet::new([2, 2], 0);
        let (whole, own) = sheet.operand(&ty, held, None);
        sheet.compare(whole, own, held);
        sheet.names.push("right".to_owned());
        let expected = sheet.b.scale(whole, 1.0 + 1e-6);
        sheet.compare(expected, own, held);
        sheet.names.push("wrong".to_owned());
        let [(_, right), (_, wrong)] = &sheet.run()[..] else { panic!("two cases") };
        assert!(*right < 1e-12 && *wrong > 1e-7, "{held:?}: {right:e}, {wrong:e}");
    }
}
