//! The counting allocator, and that the executor frees what a program says it frees.
//!
//! Counters belong to the process: tests that read them run one at a time.

mod common;

use common::{Build, id, step, v};
use slapo_program::*;
use slapo_runtime::allocator::{self, Memory};
use slapo_runtime::executor::Executor;
use slapo_runtime::mesh::Mesh;
use slapo_runtime::weights;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tch::{Device, Kind, Tensor};

const F64: (Kind, Device) = (Kind::Double, Device::Cpu);
const MIB: i64 = 1 << 20;

fn alone() -> MutexGuard<'static, ()> {
    static MEASURING: Mutex<()> = Mutex::new(());
    let guard = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    allocator::install();
    guard
}

fn measure<R>(body: impl FnOnce() -> R) -> (Memory, Memory, R) {
    allocator::reset_peak();
    let before = allocator::read();
    let result = body();
    (before, allocator::read(), result)
}

#[test]
fn every_tensor_counts_with_its_bytes() {
    let _alone = alone();
    let (before, during, tensors) = measure(|| (Tensor::zeros([10], F64), Tensor::zeros([MIB], F64)));
    assert_eq!(during.current - before.current, 80 + 8 * MIB as u64);
    drop(tensors);
    assert_eq!(allocator::read().current, before.current);
    assert_eq!(allocator::read().peak, during.current);
    assert_eq!(Tensor::zeros([MIB + 1], F64).data_ptr() as usize % 64, 0);
    assert_eq!(Tensor::zeros([3], F64).data_ptr() as usize % 64, 0);
}

#[test]
fn large_blocks_are_used_again() {
    let _alone = alone();
    allocator::trim();
    drop(Tensor::zeros([MIB], F64));
    let first = allocator::read();
    assert!(first.cached >= 8 * MIB as u64);
    for _ in 0..5 {
        drop(Tensor::zeros([MIB], F64));
    }
    let after = allocator::read();
    assert_eq!((after.mapped, after.reused), (first.mapped, first.reused + 5));
    allocator::trim();
    assert_eq!(allocator::read().cached, 0);
}

#[test]
fn the_cache_never_holds_more_than_was_live_at_once() {
    let _alone = alone();
    allocator::trim();
    // One after the other, in rising sizes: at no time was more than one live.
    for size in 1..20 {
        drop(Tensor::zeros([size * MIB / 8], F64));
    }
    let largest = 19 * MIB as u64;
    let cached = allocator::read().cached;
    assert!(cached <= largest + largest / 8, "{cached} bytes wait");
    allocator::trim();
}

/// `loss = sum(exp(x) · 2)`, where every value is 8 MiB and freed at its last use.
fn chain() -> (Program, Value) {
    let mut b = Build::new();
    let loss = b.global("loss", Role::Scalar, DType::F64, &[]);
    b.program.loss = id(loss);
    let x = b.input("x", DType::F64, &[MIB]);
    b.function("forward", FunctionKind::Forward);
    let exp = b.aten("aten::exp", vec![v(x)], &[MIB]);
    let twice = b.aten("aten::mul.Scalar", vec![v(exp), Arg::Int(2)], &[MIB]);
    let thrice = b.aten("aten::mul.Scalar", vec![v(twice), Arg::Int(3)], &[MIB]);
    let sum = b.aten("aten::sum", vec![v(thrice)], &[]);
    b.instr(Op::Store, vec![v(sum)], vec![Some(loss)]);
    (b.finish(), x)
}

#[test]
fn locals_are_freed_at_their_last_use_and_the_peak_is_exact() {
    let _alone = alone();
    let (program, x) = chain();
    let mut executor = Executor::new(program).expect("prepares");
    executor.set_global(id(x), Tensor::zeros([MIB], F64)).expect("fits");
    tch::set_num_threads(1);
    for number in 0..3 {
        let (before, after, ()) = measure(|| step(&mut executor, number));
        // Two neighbours of the chain live at once; scalars are 8 bytes each: loss, and its sum, which becomes it.
        let peak = after.peak - before.current;
        let expected = 2 * 8 * MIB as u64;
        assert!((expected..=expected + 64).contains(&peak), "{peak} bytes, expected {expected}");
        assert_eq!(after.current, before.current);
    }
}

#[test]
fn accumulation_takes_over_a_value_that_is_freed() {
    let _alone = alone();
    tch::set_num_threads(1);
    let mut b = Build::new();
    b.program.micro_batches = 3;
    let loss = b.global("loss", Role::Scalar, DType::F64, &[]);
    b.program.loss = id(loss);
    let x = b.input("x", DType::F64, &[3 * MIB]);
    let sum = b.global("sum", Role::Gradient, DType::F64, &[MIB]);
    b.function("forward", FunctionKind::Forward);
    let part = b.local(DType::F64, &[MIB]);
    b.rows(x, part);
    let exp = b.aten("aten::exp", vec![v(part)], &[MIB]);
    b.instr(Op::Accumulate, vec![v(exp)], vec![Some(sum)]);
    b.function("optimizer", FunctionKind::Optimizer);
    b.instr(Op::Release, vec![v(sum)], vec![]);
    let mut executor = Executor::new(b.finish()).expect("prepares");
    executor.set_global(id(x), Tensor::zeros([3 * MIB], F64)).expect("fits");
    let (before, after, ()) = measure(|| step(&mut executor, 0));
    // The sum and one micro-batch's value; no third copy, and nothing left.
    assert!(after.peak - before.current <= 2 * 8 * MIB as u64 + 64, "{}", after.peak - before.current);
    assert_eq!(after.current, before.current);
    assert!(executor.global(id(sum)).is_none());
}

#[test]
fn a_view_is_copied_when_it_is_kept() {
    let _alone = alone();
    let mut b = Build::new();
    let loss = b.global("loss", Role::Scalar, DType::F64, &[]);
    b.program.loss = id(loss);
    let x = b.input("x", DType::F64, &[2, 3]);
    let kept = b.global("kept", Role::Gradient, DType::F64, &[3, 2]);
    b.function("forward", FunctionKind::Forward);
    let turned = b.aten("aten::t", vec![v(x)], &[3, 2]);
    b.instr(Op::Accumulate, vec![v(turned)], vec![Some(kept)]);
    let again = b.aten("aten::t", vec![v(x)], &[3, 2]);
    b.instr(Op::Accumulate, vec![v(again)], vec![Some(kept)]);
    let mut executor = Executor::new(b.finish()).expect("prepares");
    let input = Tensor::arange(6, F64).view([2, 3]);
    executor.set_global(id(x), input.copy()).expect("fits");
    step(&mut executor, 0);
    let kept = executor.global(id(kept)).expect("set");
    assert!(kept.is_contiguous() && kept.equal(&(input.tr() * 2.0)));
    assert!(executor.global(id(x)).expect("set").equal(&input), "the input is untouched");
}

/// `loss = sum(all_reduce(exp(x)) · 2)` on one of two ranks, where every value is 8 MiB.
fn communicating(rank: i64) -> Program {
    let mut b = Build::new();
    let loss = b.global("loss", Role::Scalar, DType::F64, &[]);
    b.program.loss = id(loss);
    b.program.mesh = vec![Axis { name: "tp".to_owned(), size: 2 }];
    b.program.coordinates = vec![rank];
    let x = b.input("x", DType::F64, &[MIB]);
    b.function("forward", FunctionKind::Forward);
    let exp = b.aten("aten::exp", vec![v(x)], &[MIB]);
    let sum = b.local(DType::F64, &[MIB]);
    b.instr(Op::Collective { axis: 0, kind: Collective::AllReduce }, vec![v(exp)], vec![Some(sum)]);
    let twice = b.aten("aten::mul.Scalar", vec![v(sum), Arg::Int(2)], &[MIB]);
    let total = b.aten("aten::sum", vec![v(twice)], &[]);
    b.instr(Op::Store, vec![v(total)], vec![Some(loss)]);
    b.finish()
}

#[test]
fn a_mesh_frees_what_it_communicates() {
    let _alone = alone();
    tch::set_num_threads(1);
    let begin = allocator::read().current;
    let mut mesh = Mesh::new(vec![communicating(0), communicating(1)]).expect("prepares");
    mesh.set_global(mesh.program().inputs[0].global, &Tensor::zeros([MIB], F64)).expect("fits");
    for number in 0..3 {
        let (before, after, ()) = measure(|| {
            mesh.begin_step(number).expect("begins");
            for call in mesh.program().step.clone() {
                mesh.call(call).unwrap_or_else(|e| panic!("{e}"));
            }
            mesh.end_step();
        });
        // On each rank the value and the sum at once.
        let peak = after.peak - before.current;
        let expected = 2 * 2 * 8 * MIB as u64;
        assert!((expected..=expected + 128).contains(&peak), "{peak} bytes, expected {expected}");
        assert_eq!(after.current, before.current);
        assert_eq!(mesh.scalar(mesh.program().loss).expect("the same"), (4 * MIB) as f64);
    }
    drop(mesh);
    assert_eq!(allocator::read().current, begin);
}

/// Nobody could read this archive whole: it is 256 GiB of zeros that were never written.
#[test]
fn a_rank_touches_its_own_box_of_the_archive_only() {
    let _alone = alone();
    let (rows, width, parts) = (1 << 16, 1 << 19, 1 << 16);
    let mut b = Build::new();
    b.program.loss = id(b.global("loss", Role::Scalar, DType::F64, &[]));
    b.program.mesh = vec![Axis { name: "tp".to_owned(), size: parts }];
    b.program.coordinates = vec![parts - 1];
    let weight = b.parameter("weight", &[rows / parts, width]);
    let split = Split::even(0, 1, parts, Part::Rank(parts - 1));
    let parameter = b.program.parameters.last_mut().expect("just made");
    parameter.placement = Placement { global_shape: vec![rows, width], splits: vec![split] };
    let (shape, strides) = (vec![rows, width], vec![width, 1]);
    parameter.source = Some(Source { offset: 0, dtype: DType::F64, shape, strides });
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len((rows * width * 8) as u64).expect("grows");
    let mut executor = Executor::new(b.finish()).expect("prepares");
    let began = Instant::now();
    let (before, after, loaded) = measure(|| weights::load(&mut executor, Some(file.path()), false));
    loaded.expect("loads");
    assert_eq!(executor.global(id(weight)).expect("is filled").size(), [1, width]);
    assert_eq!(after.peak - before.current, 8 * width as u64);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
