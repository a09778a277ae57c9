//! The optimizer function: gradient norm and clipping, one fused update over all parameters, release of gradients.

use super::{Gradient, Lower, Scattered, buckets, plain, values};
use slapo_program::{
    Arg, Collective, DType, Function, FunctionKind, GlobalId, Instr, LocalId, Op, Role, TensorType, Value,
};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Kind {
    /// Loshchilov and Hutter, arXiv 1711.05101; libtorch's fused kernel.
    #[default]
    AdamW,
    Sgd,
}

/// Hyperparameters; defaults are those of `torch.optim`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub kind: Kind,
    pub lr: f64,
    pub betas: (f64, f64),
    pub eps: f64,
    pub weight_decay: f64,
    /// Largest global norm of all gradients together.
    pub clip: Option<f64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { kind: Kind::AdamW, lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 1e-2, clip: None }
    }
}

pub fn lower(lower: &mut Lower, settings: &Settings) -> Function {
    let mut body = Vec::new();
    if let (Some(limit), false) = (settings.clip, lower.gradients.is_empty()) {
        clip(lower, limit, &mut body);
    }
    if !lower.gradients.is_empty() {
        match settings.kind {
            Kind::AdamW => adamw(lower, settings, &mut body),
            Kind::Sgd => sgd(lower, settings, &mut body),
        }
    }
    let gradients: Vec<Arg> = lower.gradients.iter().map(|g| Arg::Value(Value::Global(g.gradient))).collect();
    if !gradients.is_empty() {
        body.push(plain(Op::Release, gradients, Vec::new()));
    }
    let body = buckets::joined(&lower.program, body);
    Function { name: "optimizer".to_owned(), kind: FunctionKind::Optimizer, body }
}

fn aten(name: &str, args: Vec<Arg>, outs: Vec<Option<Value>>) -> Instr {
    plain(Op::Aten(format!("aten::{name}")), args, outs)
}

/// `torch.nn.utils.clip_grad_norm_`: every gradient times `limit / (norm + 1e-6)`, where that is below 1. Of gradients that
/// are split over an axis the squares are summed over its ranks.
fn clip(lower: &mut Lower, limit: f64, body: &mut Vec<Instr>) {
    let gradients: Vec<Value> = lower.gradients.iter().map(|g| Value::Global(g.gradient)).collect();
    let dtype = lower.program.ty(gradients[0]).dtype;
    let norm = lower.global("gradient norm", TensorType::scalar(dtype), Role::Scalar);
    lower.grad_norm = Some(norm);
    let mut groups: BTreeMap<Vec<usize>, Vec<Value>> = BTreeMap::new();
    for gradient in &lower.gradients {
        groups.entry(gradient.axes.clone()).or_default().push(Value::Global(gradient.gradient));
    }
    let mut chain = Chain { lower, dtype, body };
    let mut norms = Vec::new();
    for (axes, group) in groups {
        let own: Vec<LocalId> = group.iter().map(|g| chain.norm(*g)).collect();
        if axes.is_empty() {
            norms.extend(own);
            continue;
        }
        let total = chain.norm_of_all(own);
        let mut square = chain.then("mul.Tensor", total, vec![Arg::Value(Value::Local(total))], true);
        for axis in axes {
            square = chain.all_reduce(square, axis);
        }
        norms.push(chain.then("sqrt", square, Vec::new(), true));
    }
    let total = chain.norm_of_all(norms);
    let shifted = chain.then("add.Scalar", total, vec![Arg::Float(1e-6)], false);
    let inverse = chain.then("reciprocal", shifted, Vec::new(), true);
    let factor = chain.then("mul.Scalar", inverse, vec![Arg::Float(limit)], true);
    let coefficient = chain.then("clamp", factor, vec![Arg::None, Arg::Float(1.0)], true);
    let store = plain(Op::Store, vec![Arg::Value(Value::Local(total))], vec![Some(Value::Global(norm))]);
    body.push(Instr { free: vec![total], ..store });
    let last = gradients.len() - 1;
    for (i, gradient) in gradients.into_iter().enumerate() {
        let args = vec![Arg::Value(gradient), Arg::Value(Value::Local(coefficient))];
        let free = if i == last { vec![coefficient] } else { Vec::new() };
        body.push(Instr { free, ..aten("mul_.Tensor", args, vec![None]) });
    }
}

/// Scalar arithmetic, one local after the other.
struct Chain<'l, 'a> {
    lower: &'l mut Lower<'a>,
    dtype: DType,
    body: &'l mut Vec<Instr>,
}

impl Chain<'_, '_> {
    fn local(&mut self, shape: &[i64]) -> LocalId {
        self.lower.local(TensorType::new(self.dtype, shape), None)
    }

    fn norm(&mut self, of: Value) -> LocalId {
        let out = self.local(&[]);
        let args = vec![Arg::Value(of), Arg::Int(2)];
        self.body.push(aten("linalg_vector_norm", args, vec![Some(Value::Local(out))]));
        out
    }

    /// The norm of norms.
    fn norm_of_all(&mut self, norms: Vec<LocalId>) -> LocalId {
        let stacked = self.local(&[norms.len() as i64]);
        let list = Arg::Values(norms.iter().map(|l| Some(Value::Local(*l))).collect());
        let stack = aten("stack", vec![list], vec![Some(Value::Local(stacked))]);
        self.body.push(Instr { free: norms, ..stack });
        self.then("linalg_vector_norm", stacked, vec![Arg::Int(2)], true)
    }

    fn then(&mut self, op: &str, from: LocalId, rest: Vec<Arg>, last_use: bool) -> LocalId {
        let out = self.local(&[]);
        let args = [vec![Arg::Value(Value::Local(from))], rest].concat();
        let free = if last_use { vec![from] } else { Vec::new() };
        self.body.push(Instr { free, ..aten(op, args, vec![Some(Value::Local(out))]) });
        out
    }

    fn all_reduce(&mut self, from: LocalId, axis: usize) -> LocalId {
        let out = self.local(&[]);
        let op = Op::Collective { axis: axis as u32, kind: Collective::AllReduce };
        let reduce = plain(op, vec![Arg::Value(Value::Local(from))], vec![Some(Value::Local(out))]);
        self.body.push(Instr { free: vec![from], ..reduce });
        out
    }
}

fn adamw(lower: &mut Lower, settings: &Settings, body: &mut Vec<Instr>) {
    let (parameters, gradients) = updated(lower, body);
    let state = |lower: &mut Lower, what: &str| {
        let owners: Vec<(GlobalId, GlobalId)> = lower.gradients.iter().map(|g| (g.parameter, g.gradient)).collect();
        let state = |(parameter, gradient): (GlobalId, GlobalId)| {
            let globals = &lower.program.globals;
            let name = format!("{}.{what}", globals[parameter as usize].name);
            Value::Global(lower.global(name, globals[gradient as usize].ty.clone(), Role::Optimizer))
        };
        owners.into_iter().map(state).collect::<Vec<Value>>()
    };
    let (mean, square) = (state(lower, "exp_avg"), state(lower, "exp_avg_sq"));
    let step = lower.global("optimizer step", TensorType::scalar(DType::F32), Role::Optimizer);
    body.push(aten("add_.Scalar", vec![Arg::Value(Value::Global(step)), Arg::Int(1)], vec![None]));
    let steps = vec![Value::Global(step); parameters.len()];
    let lists = [&parameters, &gradients, &mean, &square, &Vec::new(), &steps].map(|list| values(list));
    let mut update = aten("_fused_adamw_", lists.to_vec(), Vec::new());
    update.named = named(&[
        ("lr", settings.lr),
        ("beta1", settings.betas.0),
        ("beta2", settings.betas.1),
        ("weight_decay", settings.weight_decay),
        ("eps", settings.eps),
    ]);
    update.named.extend(flags(&["amsgrad", "maximize"]));
    body.push(update);
    gather(lower, &parameters, body);
}

/// What this rank updates, trained parameters or its pieces of them, and their gradients. The update is in place, and a piece is
/// a view.
fn updated(lower: &mut Lower, body: &mut Vec<Instr>) -> (Vec<Value>, Vec<Value>) {
    let count = lower.gradients.len();
    let own = |at: usize| {
        let Gradient { parameter, gradient, scattered, .. } = lower.gradients[at];
        let whole = Value::Global(parameter);
        let Some(Scattered { piece, .. }) = scattered else { return (whole, Value::Global(gradient)) };
        let ty = lower.program.ty(Value::Global(gradient)).clone();
        let view = Value::Local(lower.local(ty, Some(whole)));
        body.push(plain(Op::Part(piece), vec![Arg::Value(whole)], vec![Some(view)]));
        (view, Value::Global(gradient))
    };
    (0..count).map(own).unzip()
}

/// Behind the update every rank gets the pieces of the others.
fn gather(lower: &Lower, parameters: &[Value], body: &mut Vec<Instr>) {
    for (gradient, updated) in lower.gradients.iter().zip(parameters) {
        let (Some(scattered), Value::Local(piece)) = (&gradient.scattered, *updated) else { continue };
        let kind = Collective::AllGather { dim: scattered.piece.dim, groups: scattered.piece.groups };
        let op = Op::Collective { axis: scattered.axis, kind };
        let gather = plain(op, vec![Arg::Value(*updated)], vec![Some(Value::Global(gradient.parameter))]);
        body.push(Instr { free: vec![piece], ..gather });
    }
}

fn sgd(lower: &mut Lower, settings: &Settings, body: &mut Vec<Instr>) {
    let (parameters, gradients) = updated(lower, body);
    let lists = vec![values(&parameters), values(&gradients), values(&[])];
    let mut update = aten("_fused_sgd_", lists, Vec::new());
    update.named =
        named(&[("weight_decay", settings.weight_decay), ("momentum", 0.0), ("lr", settings.lr), ("dampening", 0.0)]);
    update.named.extend(flags(&["nesterov", "maximize", "is_first_step"]));
    body.push(update);
    gather(lower, &parameters, body);
}

fn named(numbers: &[(&str, f64)]) -> Vec<(String, Arg)> {
    numbers.iter().map(|(name, x)| ((*name).to_owned(), Arg::Float(*x))).collect()
}

fn flags(names: &[&str]) -> Vec<(String, Arg)> {
    names.iter().map(|name| ((*name).to_owned(), Arg::Bool(false))).collect()
}
