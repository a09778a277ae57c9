//! Prepared calls: conversion of arguments by the operator's schema, and gradients by running an operator again.

mod common;

use common::{assert_close, values};
use slapo_program::{Arg, DType, Value};
use slapo_runtime::operator::PreparedCall;
use tch::{Device, Kind, Tensor};

const F64: (Kind, Device) = (Kind::Double, Device::Cpu);

fn tensor() -> Arg {
    Arg::Value(Value::Local(0))
}

fn call(name: &str, args: &[Arg], tensors: &[&Tensor]) -> Vec<Option<Tensor>> {
    let call = PreparedCall::new(name, args, &[]).unwrap_or_else(|e| panic!("{name}: {e}"));
    call.run(tensors, false).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn single(name: &str, args: &[Arg], tensors: &[&Tensor]) -> Tensor {
    call(name, args, tensors).pop().flatten().expect("one result")
}

fn refused(name: &str, args: &[Arg]) -> String {
    PreparedCall::new(name, args, &[]).err().expect("refused")
}

#[test]
fn numbers_take_the_type_of_the_schema() {
    let x = Tensor::from_slice(&[1.0, 2.0, 3.0]);
    let ints = Tensor::from_slice(&[1i64, 2, 3]);
    // `Scalar` keeps integers integers, so that an integer tensor stays one.
    assert_eq!(single("aten::add.Scalar", &[tensor(), Arg::Int(1)], &[&ints]).kind(), Kind::Int64);
    assert_eq!(single("aten::add.Scalar", &[tensor(), Arg::Float(0.5)], &[&ints]).kind(), Kind::Float);
    assert_eq!(values(&single("aten::add.Scalar", &[tensor(), Arg::Bool(true)], &[&x])), [2.0, 3.0, 4.0]);
    // `float`, given an integer.
    let args = [tensor(), Arg::Int(0), Arg::Bool(false)];
    assert_eq!(values(&single("aten::dropout", &args, &[&x])), [1.0, 2.0, 3.0]);
    // `Tensor`, given a number: no promotion to its own type.
    let floats = x.to_kind(Kind::Float);
    let product = single("aten::mul.Tensor", &[tensor(), Arg::Float(2.0)], &[&floats]);
    assert_eq!((product.kind(), values(&product)), (Kind::Float, vec![2.0, 4.0, 6.0]));
}

#[test]
fn lists_options_and_element_types() {
    let x = Tensor::arange(12, F64).view([3, 4]);
    // `int[1]? dim`, given one integer, a list, none.
    for (dim, size) in [(Arg::Int(0), vec![4]), (Arg::Ints(vec![0, 1]), vec![]), (Arg::None, vec![])] {
        let sum = single("aten::sum.dim_IntList", &[tensor(), dim, Arg::Bool(false), Arg::DType(DType::F32)], &[&x]);
        assert_eq!((sum.kind(), sum.size()), (Kind::Float, size));
    }
    // `int[2] padding`, given one integer for both.
    let image = Tensor::ones([1, 1, 4, 4], F64);
    let pooled = single("aten::avg_pool2d", &[tensor(), Arg::Int(2)], &[&image]);
    assert_eq!(pooled.size(), [1, 1, 2, 2]);
    // `SymInt[] size`, `Layout?`, `Device?`.
    let options = [Arg::None, Arg::None, Arg::None];
    let args = [vec![Arg::Ints(vec![2, 5]), Arg::Int(3), Arg::DType(DType::I64)], options.to_vec()].concat();
    let full = single("aten::full", &args, &[]);
    assert_eq!((full.kind(), full.size()), (Kind::Int64, vec![2, 5]));
    // Strings.
    let einsum = [Arg::Str("ij,kj->ik".to_owned()), Arg::Values(vec![Some(Value::Local(0)); 2])];
    assert_close(&single("aten::einsum", &einsum, &[&x, &x]), &x.matmul(&x.tr()), 1e-14);
}

#[test]
fn lists_of_tensors_and_of_optional_tensors() {
    let x = Tensor::arange(6, F64).view([2, 3]);
    let some = Some(Value::Local(0));
    let cat = single("aten::cat", &[Arg::Values(vec![some, some]), Arg::Int(1)], &[&x, &x]);
    assert_eq!(cat.size(), [2, 6]);
    let index = Tensor::from_slice(&[2i64, 0]);
    let picked = single("aten::index.Tensor", &[tensor(), Arg::Values(vec![None, some])], &[&x, &index]);
    assert_eq!(values(&picked), [2.0, 0.0, 5.0, 3.0]);
    let error = refused("aten::cat", &[Arg::Values(vec![some, None]), Arg::Int(0)]);
    assert_eq!(error, "entry 1 of `tensors` may not be none");
}

#[test]
fn list_results_are_flattened_and_undefined_ones_absent() {
    let x = Tensor::arange(10, F64).view([2, 5]);
    let parts = call("aten::split.Tensor", &[tensor(), Arg::Int(2), Arg::Int(1)], &[&x]);
    let sizes: Vec<Vec<i64>> = parts.iter().map(|p| p.as_ref().expect("defined").size()).collect();
    assert_eq!(sizes, [[2, 2], [2, 2], [2, 1]]);
    let args = [
        tensor(),
        tensor(),
        Arg::Ints(vec![5]),
        tensor(),
        tensor(),
        Arg::None,
        Arg::None,
        Arg::Bools(vec![true, false, false]),
    ];
    let (mean, rstd) = (Tensor::zeros([2, 1], F64), Tensor::ones([2, 1], F64));
    let gradients = call("aten::native_layer_norm_backward", &args, &[&x, &x, &mean, &rstd]);
    let defined: Vec<bool> = gradients.iter().map(Option::is_some).collect();
    assert_eq!(defined, [true, false, false]);
}

#[test]
fn names_and_defaults_complete_a_call() {
    let x = Tensor::ones([2], F64);
    let named = [("alpha".to_owned(), Arg::Int(3)), ("other".to_owned(), tensor())];
    let call = PreparedCall::new("aten::add.Tensor", &[tensor()], &named).expect("prepares");
    assert_eq!(values(&call.run(&[&x, &x], false).expect("runs")[0].take_result()), [4.0, 4.0]);
    let twice = [("self".to_owned(), tensor())];
    let error = PreparedCall::new("aten::add.Tensor", &[tensor(), tensor()], &twice).err();
    assert_eq!(error.as_deref(), Some("argument `self` is given twice"));
    let unknown = [("beta".to_owned(), Arg::Int(1))];
    let error = PreparedCall::new("aten::add.Tensor", &[tensor(), tensor()], &unknown).err();
    assert_eq!(error.as_deref(), Some("has no argument `beta`"));
}

trait TakeResult {
    fn take_result(&self) -> Tensor;
}

impl TakeResult for Option<Tensor> {
    fn take_result(&self) -> Tensor {
        self.as_ref().expect("defined").shallow_clone()
    }
}

#[test]
fn arguments_of_the_wrong_type_are_named() {
    for (name, args, message) in [
        ("aten::relu", vec![Arg::Str("x".to_owned())], "argument `self` is of type Tensor, given a string"),
        ("aten::relu", vec![Arg::None], "argument `self` is of type Tensor, given none"),
        ("aten::t", vec![], "argument `self` is missing"),
        (
            "aten::transpose.int",
            vec![tensor(), Arg::Float(0.5), Arg::Int(1)],
            "argument `dim0` is of type int, given the number 0.500000",
        ),
        ("aten::sum", vec![tensor(), Arg::Int(6)], "argument `dtype` is of type ScalarType?, given the integer 6"),
        (
            "aten::transpose.int",
            vec![tensor(), Arg::DType(DType::F32), Arg::Int(1)],
            "argument `dim0` is of type int, given an element type",
        ),
    ] {
        assert_eq!(refused(name, &args), message);
    }
}

#[test]
fn calls_run_below_autograd() {
    let x = Tensor::ones([2], F64).set_requires_grad(true);
    assert!(!single("aten::exp", &[tensor()], &[&x]).requires_grad());
}

fn gradient_by_autograd(x: &Tensor, seed: &Tensor, f: impl Fn(&Tensor) -> Tensor) -> Tensor {
    let leaf = x.detach().set_requires_grad(true);
    let product = (f(&leaf) * seed).sum(Kind::Double);
    Tensor::run_backward(&[product], &[leaf], false, false).pop().expect("one")
}

#[test]
fn vjp_equals_autograd() {
    tch::manual_seed(1);
    let x = Tensor::randn([3, 5], F64);
    let (column, whole) = (Tensor::randn([3], F64), Tensor::randn([3, 5], F64));
    let call = PreparedCall::new("aten::logsumexp", &[tensor(), Arg::Int(1)], &[]).expect("prepares");
    let found = call.vjp(&[&x], &[true], &[Some(&column)]).expect("runs");
    assert_close(&found[0].take_result(), &gradient_by_autograd(&x, &column, |x| x.logsumexp(1, false)), 1e-12);
    let call = PreparedCall::new("aten::cumsum", &[tensor(), Arg::Int(1)], &[]).expect("prepares");
    let found = call.vjp(&[&x], &[true], &[Some(&whole)]).expect("runs");
    assert_close(&found[0].take_result(), &gradient_by_autograd(&x, &whole, |x| x.cumsum(1, Kind::Double)), 1e-12);
}

#[test]
fn vjp_gives_zeros_where_nothing_flows_and_only_what_is_wanted() {
    let x = Tensor::randn([3, 5], F64);
    let call = PreparedCall::new("aten::topk", &[tensor(), Arg::Int(2)], &[]).expect("prepares");
    let found = call.vjp(&[&x], &[true], &[None, None]).expect("runs");
    assert!(found[0].take_result().equal(&x.zeros_like()));
    let call = PreparedCall::new("aten::mul.Tensor", &[tensor(), tensor()], &[]).expect("prepares");
    let found = call.vjp(&[&x, &x], &[false, true], &[Some(&x)]).expect("runs");
    assert_eq!(found.len(), 1);
    assert_close(&found[0].take_result(), &x.square(), 1e-14);
}

#[test]
fn vjp_refuses_random_operators_and_mutation() {
    let x = Tensor::randn([3], F64);
    let vjp = |name: &str, args: &[Arg]| {
        PreparedCall::new(name, args, &[]).expect("prepares").vjp(&[&x], &[true], &[Some(&x)]).map(|_| ())
    };
    let random = "is random: running it again would not give the same values";
    assert_eq!(vjp("aten::bernoulli", &[tensor()]), Err(random.to_owned()));
    assert_eq!(vjp("aten::dropout", &[tensor(), Arg::Float(0.5), Arg::Bool(true)]), Err(random.to_owned()));
    assert_eq!(vjp("aten::dropout", &[tensor(), Arg::Float(0.5), Arg::Bool(false)]), Ok(()));
    assert_eq!(vjp("aten::dropout", &[tensor(), Arg::Float(0.0), Arg::Bool(true)]), Ok(()));
    let mutation = vjp("aten::exp_", &[tensor()]).expect_err("refused");
    assert_eq!(mutation, "changes its arguments: it has no derivative by running it again");
}
