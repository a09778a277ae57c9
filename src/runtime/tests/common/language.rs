//! A language model of two matrices, trained on bytes: the smallest program with tokens, labels and a loss.

use super::{Build, aten, id, v};
use slapo_program::*;

pub const BATCH: i64 = 4;
pub const SEQUENCE: i64 = 8;
pub const VOCABULARY: i64 = 128;
const WIDTH: i64 = 6;

/// `mean cross entropy(embedding(input_ids) · head, labels)`, plain SGD. `mask` adds an `attention_mask` input.
pub fn model(mask: bool) -> Program {
    let tokens = BATCH * SEQUENCE;
    let mut b = Build::new();
    let loss = b.global("loss", Role::Scalar, DType::F64, &[]);
    b.program.loss = id(loss);
    let norm = b.global("norm", Role::Scalar, DType::F64, &[]);
    b.program.grad_norm = Some(id(norm));
    let ids = b.input("input_ids", DType::I64, &[BATCH, SEQUENCE]);
    let labels = b.input("labels", DType::I64, &[BATCH, SEQUENCE]);
    b.program.inputs[0].limit = Some(VOCABULARY);
    if mask {
        b.input("attention_mask", DType::I64, &[BATCH, SEQUENCE]);
    }
    let table = b.parameter("wte.weight", &[VOCABULARY, WIDTH]);
    let head = b.parameter("head.weight", &[WIDTH, VOCABULARY]);
    let dtable = b.global("wte.weight", Role::Gradient, DType::F64, &[VOCABULARY, WIDTH]);
    let dhead = b.global("head.weight", Role::Gradient, DType::F64, &[WIDTH, VOCABULARY]);
    b.program.parameters[0].names.push("tied.weight".to_owned());

    b.function("forward", FunctionKind::Forward);
    let own = |b: &mut Build, input: Value| {
        let part = b.local(DType::I64, &[BATCH, SEQUENCE]);
        b.rows(input, part);
        let flat = b.local(DType::I64, &[tokens]);
        let shape = Arg::Ints(vec![-1]);
        b.instr(aten("view"), vec![v(part), shape], vec![Some(flat)]);
        flat
    };
    let (ids, labels) = (own(&mut b, ids), own(&mut b, labels));
    let x = b.aten("aten::embedding", vec![v(table), v(ids)], &[tokens, WIDTH]);
    let logits = b.aten("aten::mm", vec![v(x), v(head)], &[tokens, VOCABULARY]);
    let log = b.aten("aten::_log_softmax", vec![v(logits), Arg::Int(1), Arg::Bool(false)], &[tokens, VOCABULARY]);
    let (value, weight) = (b.local(DType::F64, &[]), b.local(DType::F64, &[]));
    let args = |extra: &[Arg]| [&[v(log), v(labels), Arg::None, Arg::Int(1), Arg::Int(-100)], extra].concat();
    b.instr(aten("nll_loss_forward"), args(&[]), vec![Some(value), Some(weight)]);
    b.instr(Op::Accumulate, vec![v(value)], vec![Some(loss)]);

    b.function("backward", FunctionKind::Backward);
    let one = b.aten("aten::ones_like", vec![v(weight)], &[]);
    let backward = [vec![v(one)], args(&[v(weight)])].concat();
    let dlog = b.aten("aten::nll_loss_backward", backward, &[tokens, VOCABULARY]);
    let softmax = vec![v(dlog), v(log), Arg::Int(1), Arg::DType(DType::F64)];
    let dlogits = b.aten("aten::_log_softmax_backward_data", softmax, &[tokens, VOCABULARY]);
    let xt = b.aten("aten::t", vec![v(x)], &[WIDTH, tokens]);
    let gradient = b.aten("aten::mm", vec![v(xt), v(dlogits)], &[WIDTH, VOCABULARY]);
    b.instr(Op::Accumulate, vec![v(gradient)], vec![Some(dhead)]);
    let ht = b.aten("aten::t", vec![v(head)], &[VOCABULARY, WIDTH]);
    let dx = b.aten("aten::mm", vec![v(dlogits), v(ht)], &[tokens, WIDTH]);
    let embedding = vec![v(dx), v(ids), Arg::Int(VOCABULARY), Arg::Int(-1), Arg::Bool(false)];
    let gradient = b.aten("aten::embedding_dense_backward", embedding, &[VOCABULARY, WIDTH]);
    b.instr(Op::Accumulate, vec![v(gradient)], vec![Some(dtable)]);

    b.function("optimizer", FunctionKind::Optimizer);
    let length = b.aten("aten::linalg_vector_norm", vec![v(dhead)], &[]);
    b.instr(Op::Store, vec![v(length)], vec![Some(norm)]);
    for (parameter, gradient) in [(table, dtable), (head, dhead)] {
        let args = vec![v(parameter), v(gradient)];
        let alpha = vec![("alpha".to_owned(), Arg::Float(0.5))];
        b.named(aten("sub_.Tensor"), args, alpha, vec![None]);
    }
    b.instr(Op::Release, vec![v(dtable), v(dhead)], vec![]);
    b.finish()
}
