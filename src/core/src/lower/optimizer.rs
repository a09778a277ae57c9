//! The optimizer function: gradient norm and clipping, one fused update over all parameters, release of gradients.

use super::{Lower, plain, values};
use slapo_program::{Arg, DType, Function, FunctionKind, Instr, LocalId, Op, Role, Slot, TensorType, Value};

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
    let gradients: Vec<Arg> = lower.gradients.iter().map(|(_, g)| Arg::Value(Value::Global(*g))).collect();
    if !gradients.is_empty() {
        body.push(plain(Op::Release, gradients, Vec::new()));
    }
    Function { name: "optimizer".to_owned(), kind: FunctionKind::Optimizer, body }
}

fn aten(name: &str, args: Vec<Arg>, outs: Vec<Option<Value>>) -> Instr {
    plain(Op::Aten(format!("aten::{name}")), args, outs)
}

/// `torch.nn.utils.clip_grad_norm_`: every gradient times `limit / (norm + 1e-6)`, where that is below 1.
fn clip(lower: &mut Lower, limit: f64, body: &mut Vec<Instr>) {
    let gradients: Vec<Value> = lower.gradients.iter().map(|(_, g)| Value::Global(*g)).collect();
    let dtype = lower.program.ty(gradients[0]).dtype;
    let mut local = |shape: &[i64]| {
        lower.program.locals.push(Slot { ty: TensorType::new(dtype, shape), alias: None });
        lower.program.locals.len() as LocalId - 1
    };
    let norms: Vec<LocalId> = gradients.iter().map(|_| local(&[])).collect();
    let (stacked, total, shifted, inverse, factor, coefficient) =
        (local(&[norms.len() as i64]), local(&[]), local(&[]), local(&[]), local(&[]), local(&[]));
    let norm = lower.global("gradient norm", TensorType::scalar(dtype), Role::Scalar);
    lower.grad_norm = Some(norm);
    let one = |l: LocalId| Arg::Value(Value::Local(l));
    let out = |l: LocalId| vec![Some(Value::Local(l))];
    for (gradient, l) in gradients.iter().zip(&norms) {
        body.push(aten("linalg_vector_norm", vec![Arg::Value(*gradient), Arg::Int(2)], out(*l)));
    }
    let list = Arg::Values(norms.iter().map(|l| Some(Value::Local(*l))).collect());
    body.push(Instr { free: norms.clone(), ..aten("stack", vec![list], out(stacked)) });
    let mut chain = |name: &str, from: LocalId, rest: Vec<Arg>, to: LocalId, last: bool| {
        let args = [vec![one(from)], rest].concat();
        let free = if last { vec![from] } else { Vec::new() };
        body.push(Instr { free, ..aten(name, args, out(to)) });
    };
    chain("linalg_vector_norm", stacked, vec![Arg::Int(2)], total, true);
    chain("add.Scalar", total, vec![Arg::Float(1e-6)], shifted, false);
    chain("reciprocal", shifted, Vec::new(), inverse, true);
    chain("mul.Scalar", inverse, vec![Arg::Float(limit)], factor, true);
    chain("clamp", factor, vec![Arg::None, Arg::Float(1.0)], coefficient, true);
    let store = plain(Op::Store, vec![one(total)], vec![Some(Value::Global(norm))]);
    body.push(Instr { free: vec![total], ..store });
    for (i, gradient) in gradients.iter().enumerate() {
        let free = if i + 1 == gradients.len() { vec![coefficient] } else { Vec::new() };
        body.push(Instr { free, ..aten("mul_.Tensor", vec![Arg::Value(*gradient), one(coefficient)], vec![None]) });
    }
}

fn adamw(lower: &mut Lower, settings: &Settings, body: &mut Vec<Instr>) {
    let pairs = lower.gradients.clone();
    let state = |lower: &mut Lower, what: &str| {
        let ids = pairs.iter().map(|(p, _)| {
            let parameter = &lower.program.globals[*p as usize];
            let (name, ty) = (format!("{}.{what}", parameter.name), parameter.ty.clone());
            lower.global(name, ty, Role::Optimizer)
        });
        ids.collect::<Vec<_>>()
    };
    let (mean, square) = (state(lower, "exp_avg"), state(lower, "exp_avg_sq"));
    let step = lower.global("optimizer step", TensorType::scalar(DType::F32), Role::Optimizer);
    body.push(aten("add_.Scalar", vec![Arg::Value(Value::Global(step)), Arg::Int(1)], vec![None]));
    let (parameters, gradients): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    let steps = vec![step; pairs.len()];
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
}

fn sgd(lower: &mut Lower, settings: &Settings, body: &mut Vec<Instr>) {
    let (parameters, gradients): (Vec<_>, Vec<_>) = lower.gradients.iter().copied().unzip();
    let lists = vec![values(&parameters), values(&gradients), values(&[])];
    let mut update = aten("_fused_sgd_", lists, Vec::new());
    update.named =
        named(&[("weight_decay", settings.weight_decay), ("momentum", 0.0), ("lr", settings.lr), ("dampening", 0.0)]);
    update.named.extend(flags(&["nesterov", "maximize", "is_first_step"]));
    body.push(update);
}

fn named(numbers: &[(&str, f64)]) -> Vec<(String, Arg)> {
    numbers.iter().map(|(name, x)| ((*name).to_owned(), Arg::Float(*x))).collect()
}

fn flags(names: &[&str]) -> Vec<(String, Arg)> {
    names.iter().map(|name| ((*name).to_owned(), Arg::Bool(false))).collect()
}
