//! Collectives over sockets, each rank a thread with connections of its own, beside the pure functions that define them.

use slapo_program::{Collective, FailureKind, piece};
use slapo_runtime::collectives::{collective, gather};
use slapo_runtime::gloo::Store;
use slapo_runtime::line::Line;
use slapo_runtime::{Error, Result, collectives};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};
use tch::{Kind, Tensor};

/// What `body` gives on each of the connected ranks.
fn on_ranks<R: Send>(size: usize, timeout: u64, body: impl Fn(Line) -> R + Sync) -> Vec<R> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let mut listeners = vec![Some(listener)];
    listeners.resize_with(size, || None);
    let timeout = Duration::from_secs(timeout);
    let rank = |rank: usize, listener: Option<TcpListener>| {
        let store = match listener {
            Some(listener) => Store::serve(listener, "test", timeout),
            None => Store::connect("127.0.0.1", port, "test", timeout),
        }
        .expect("a store");
        let name = "axis `tp`".to_owned();
        let line = Line::connect(&store, "tp", name, (0..size).collect(), rank, "127.0.0.1").expect("connects");
        let result = body(line);
        // Connections live until all are through.
        store.set(&format!("{rank}"), b"").expect("sets");
        for other in 0..size {
            store.get(&format!("{other}")).expect("is set");
        }
        thread::sleep(Duration::from_millis(100));
        result
    };
    thread::scope(|scope| {
        let threads: Vec<_> =
            listeners.into_iter().enumerate().map(|(r, listener)| scope.spawn(move || rank(r, listener))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank")).collect()
    })
}

/// Numbers that lose bits when they are added, different ones on each rank.
fn numbers(shape: &[i64], kind: Kind, rank: usize) -> Tensor {
    let count = shape.iter().product::<i64>();
    let value = |i: i64| ((i + 1) as f64 * 0.37 + rank as f64 * 1.7).sin() * 10f64.powi((i % 5) as i32 * 2 - 4);
    let numbers: Vec<f64> = (0..count).map(value).collect();
    Tensor::from_slice(&numbers).view(shape).to_kind(kind)
}

const REDUCE: Collective = Collective::AllReduce;

#[test]
fn every_collective_gives_what_the_simulated_one_does() {
    for size in [2, 3] {
        let n = size as i64;
        let cases = [
            (REDUCE, vec![], Kind::Double),
            (REDUCE, vec![5, 7], Kind::Float),
            (REDUCE, vec![11], Kind::Int64),
            (REDUCE, vec![3, 5], Kind::BFloat16),
            // Gloo does not sum these.
            (REDUCE, vec![3, 5], Kind::Int16),
            (Collective::AllReduceMax, vec![13], Kind::Float),
            (Collective::AllGather { dim: 0, groups: 1 }, vec![3, 5], Kind::Float),
            (Collective::AllGather { dim: 1, groups: 3 }, vec![5, 9], Kind::Bool),
            (Collective::AllGather { dim: 2, groups: 1 }, vec![2, 3, 0], Kind::Float),
            (Collective::ReduceScatter { dim: 0, groups: 1 }, vec![n, 7], Kind::Float),
            (Collective::ReduceScatter { dim: 1, groups: 3 }, vec![5, 6 * n], Kind::Half),
            (Collective::AllToAll { from: 0, groups: 1, to: 1 }, vec![5, 3 * n], Kind::Double),
            (Collective::AllToAll { from: 2, groups: 3, to: 0 }, vec![2 * n, 5, 9], Kind::Float),
        ];
        for (kind, shape, element) in cases {
            let brought = |rank| numbers(&shape, element, rank);
            let all: Vec<Tensor> = (0..size).map(brought).collect();
            let expected = collective(kind, &all).expect("is defined");
            let result = expected[0].size();
            let got = on_ranks(size, 30, |line| {
                let own = brought(line.rank());
                let [exact, free] = [true, false].map(|in_order| line.collective(kind, &own, &result, in_order));
                (exact.expect("communicates"), free.expect("communicates"))
            });
            for ((exact, free), expected) in got.iter().zip(&expected) {
                assert!(
                    exact.is_contiguous() && exact.equal(expected),
                    "{kind:?} {element:?}: {exact}, not {expected}"
                );
                let close = free.to_kind(Kind::Double).allclose(&expected.to_kind(Kind::Double), 1e-2, 1e-4, false);
                assert!(close && free.kind() == element, "{kind:?} {element:?}: {free}, not {expected}");
                // Only a sum may differ at all.
                assert!(kind == REDUCE || free.equal(expected), "{kind:?}");
            }
        }
    }
}

/// A mean is a sum that is scaled, in either order of adding: Gloo's own mean gives other numbers.
#[test]
fn b38_the_mean_of_unequal_tensors() {
    for size in [2, 3] {
        let own = |rank: usize| Tensor::from_slice(&[1.0 + rank as f64, 10f64.powi(rank as i32), -4.0 * rank as f64]);
        let all: Vec<Tensor> = (0..size).map(own).collect();
        let mean = Tensor::stack(&all, 0).mean_dim(0, false, Kind::Double);
        let got = on_ranks(size, 30, |line| {
            let brought = own(line.rank());
            let sum = |in_order| line.collective(REDUCE, &brought, &[3], in_order).expect("adds up");
            [sum(true), sum(false)].map(|sum| sum / size as f64)
        });
        for found in got.iter().flatten() {
            assert!(found.allclose(&mean, 1e-15, 0.0, false), "{found}, not {mean}");
        }
    }
}

#[test]
fn pieces_may_be_of_different_lengths() {
    let whole = || numbers(&[8, 2], Kind::Float, 0);
    let kind = Collective::AllGather { dim: 0, groups: 1 };
    let got = on_ranks(3, 30, |line| {
        let (start, length) = piece(8, 3, line.rank() as i64);
        line.collective(kind, &whole().narrow(0, start, length), &[8, 2], true).expect("gathers")
    });
    assert_eq!(got.len(), 3);
    for tensor in got {
        assert!(tensor.equal(&whole()), "{tensor}");
    }
    // From uneven rows to even columns.
    let whole = || numbers(&[4, 6], Kind::Float, 0);
    let kind = Collective::AllToAll { from: 0, groups: 1, to: 1 };
    let got = on_ranks(3, 30, |line| {
        let (start, length) = piece(4, 3, line.rank() as i64);
        line.collective(kind, &whole().narrow(0, start, length), &[4, 2], true).expect("exchanges")
    });
    assert!(gather(&got, 1, 1).expect("gathers").equal(&whole()));
}

#[test]
fn what_is_not_a_number_stays_so() {
    let got = on_ranks(2, 30, |line| {
        let own = Tensor::from_slice(&[[1.0, f64::NAN], [f64::NAN, 2.0]][line.rank()]);
        line.collective(Collective::AllReduceMax, &own, &[2], false).expect("compares")
    });
    assert!(got.iter().all(|largest| bool::try_from(largest.isnan().all()).expect("a flag")), "{got:?}");
}

fn failed(result: &Result<Tensor>) -> (FailureKind, String) {
    result.as_ref().map(|_| ()).map_err(|e: &Error| (e.kind(), e.to_string())).expect_err("fails")
}

fn waited_for(kind: Collective, in_order: bool) {
    let began = Instant::now();
    let got = on_ranks(2, 2, |line| match line.rank() {
        0 => Some(failed(&line.collective(kind, &numbers(&[3], Kind::Float, 0), &[6], in_order))),
        _ => {
            thread::sleep(Duration::from_millis(2500));
            None
        }
    });
    let text = format!("rank 0 waited 2 s for rank 1 in {} over axis `tp`", kind.name());
    assert_eq!(got[0], Some((FailureKind::Peer, text)));
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[test]
fn a_rank_that_does_not_come_to_a_sum_is_named() {
    waited_for(REDUCE, false);
}

#[test]
fn a_rank_that_does_not_come_to_an_exchange_is_named() {
    waited_for(Collective::AllGather { dim: 0, groups: 1 }, true);
}

#[test]
fn a_rank_that_is_gone_is_told_from_one_that_is_late() {
    let got = on_ranks(2, 5, |line| match line.rank() {
        0 => Some(failed(&line.collective(REDUCE, &numbers(&[3], Kind::Float, 0), &[3], true))),
        _ => {
            drop(line);
            None
        }
    });
    let (kind, text) = got[0].clone().expect("rank 0");
    assert_eq!(kind, FailureKind::Peer);
    assert!(text.starts_with("rank 0 lost rank 1 in all_reduce over axis `tp`: "), "{text}");
}

#[test]
fn what_a_rank_does_wrong_by_itself_is_its_own_fault() {
    let kind = Collective::AllToAll { from: 0, groups: 1, to: 0 };
    let got = on_ranks(2, 5, |line| failed(&line.collective(kind, &numbers(&[4], Kind::Float, 0), &[4], true)));
    let expected = collectives::collective(kind, &[numbers(&[4], Kind::Float, 0)]).expect_err("refused");
    assert_eq!(got, vec![(FailureKind::Run, expected); 2]);
}
