//! Times what the worker does itself, beside libtorch's own: `cargo bench -p slapo-runtime`.
//!
//! Every figure is the median of several rounds; pairs that are compared take turns.

use slapo_program::{Arg, Placement, Value};
use slapo_runtime::allocator;
use slapo_runtime::dropout::dropout;
use slapo_runtime::geometry::Geometry;
use slapo_runtime::libtorch;
use slapo_runtime::operator::PreparedCall;
use slapo_runtime::random::Stream;
use std::time::Instant;
use tch::{Device, Kind, Tensor};

const ROUNDS: usize = 15;

fn main() {
    println!("threads: {}", libtorch::threads());
    blocks_of_libtorch();
    allocator::install();
    blocks();
    dropouts();
    calls();
}

/// Median seconds of each body, in turns.
fn medians<const N: usize>(mut bodies: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut times = vec![Vec::new(); N];
    for _ in 0..ROUNDS {
        for (body, times) in bodies.iter_mut().zip(&mut times) {
            let began = Instant::now();
            body();
            times.push(began.elapsed().as_secs_f64());
        }
    }
    std::array::from_fn(|i| {
        times[i].sort_by(f64::total_cmp);
        times[i][ROUNDS / 2]
    })
}

fn dropouts() {
    for kind in [Kind::Float, Kind::Double, Kind::BFloat16] {
        for elements in [1 << 18, 1 << 24] {
            let x = Tensor::ones([elements], (kind, Device::Cpu));
            let geometry = Geometry::new(&Placement::default(), &x.size(), 0).expect("whole");
            let stream = Stream::dropout(1, 2, 3);
            let [own, torch, copy] = medians([
                &mut || drop(dropout(&x, 0.1, stream, &geometry).expect("runs")),
                &mut || drop(x.dropout(0.1, true)),
                &mut || drop(x.copy()),
            ]);
            let each = |seconds: f64| seconds / elements as f64 * 1e9;
            println!(
                "dropout {kind:?}, {elements} elements: {:.3} ns each, at::dropout {:.3} ({:.1} times), copy {:.3}",
                each(own),
                each(torch),
                torch / own,
                each(copy)
            );
        }
    }
}

/// A step's worth of large tensors, made, written and dropped.
fn large_tensors() {
    let mut live: Vec<Tensor> = (1..=8).map(|i| Tensor::ones([i << 20], (Kind::Float, Device::Cpu))).collect();
    while live.pop().is_some() {}
}

/// Before the worker's allocator is there.
fn blocks_of_libtorch() {
    let [seconds] = medians([&mut large_tensors]);
    println!("writing 144 MiB in 8 tensors: {:.2} ms with libtorch's own allocator", seconds * 1e3);
}

fn blocks() {
    let new = || {
        allocator::trim();
        large_tensors();
    };
    let [reused, new] = medians([&mut large_tensors, &mut { new }]);
    println!("the same in cached blocks {:.2} ms, in new ones {:.2} ms", reused * 1e3, new * 1e3);
}

fn calls() {
    let value = || Arg::Value(Value::Local(0));
    let call = PreparedCall::new("aten::t", &[value()], &[]).expect("prepares");
    let x = Tensor::ones([2, 3], (Kind::Float, Device::Cpu));
    let count = 100_000;
    let [boxed] = medians([&mut || {
        for _ in 0..count {
            drop(call.run(&[&x], false).expect("runs"));
        }
    }]);
    println!("a boxed call of `aten::t`: {:.2} µs", boxed / f64::from(count) * 1e6);
}
