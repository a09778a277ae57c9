//! One rank of a mesh whose others are processes of their own: how they meet, and what they do together.
//!
//! One line connects all ranks, for what is not part of the program, and one for each axis of several ranks this rank's
//! neighbours along it. A job that asks for equal bits sums in rank order, as a simulated mesh does. Read
//! [`Processes::join`] first.

use crate::agreement::{self, Facts};
use crate::backend::{Backend, Share};
use crate::error::{Error, Result};
use crate::gloo::{Lost, Store};
use crate::line::Line;
use crate::logical::{Held, assemble};
use crate::{geometry, libtorch, mesh};
use slapo_program::{Collective, Event, Part, Peers, Placement, Program};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, ToSocketAddrs, UdpSocket};
use std::time::Duration;
use tch::{Device, Tensor};

pub struct Processes {
    rank: usize,
    world: Line,
    /// None for an axis that this rank is alone on.
    axes: Vec<Option<Line>>,
    /// Whether sums are taken in rank order.
    in_order: bool,
    store: Store,
}

impl Processes {
    /// Meets the other ranks, makes sure that all are about to run the same `facts`, and connects with them. Where the
    /// job leaves the port open, `emit` is told which it is.
    pub fn join(
        peers: &Peers,
        program: &Program,
        facts: &Facts,
        in_order: bool,
        emit: &mut dyn FnMut(&Event) -> Result<()>,
    ) -> Result<Processes> {
        let rank = peers.rank as usize;
        fits(peers, program)?;
        let store = meet(peers, emit)?;
        agree(peers, &store, facts)?;
        let address = own_address(peers);
        let connect = |key: &str, name: String, ranks| Line::connect(&store, key, name, ranks, rank, &address);
        let world = connect("world", "the mesh".to_owned(), (0..peers.world as usize).collect())?;
        let neighbours = |axis| {
            let groups = mesh::groups(&program.mesh, axis).into_iter().enumerate();
            groups.into_iter().find(|(_, ranks)| ranks.contains(&rank) && ranks.len() > 1)
        };
        let axis = |axis: usize| {
            let name = format!("axis `{}`", program.mesh[axis].name);
            neighbours(axis).map(|(group, ranks)| connect(&format!("{axis}/{group}"), name, ranks)).transpose()
        };
        let axes = (0..program.mesh.len()).map(axis).collect::<Result<_>>()?;
        Ok(Processes { rank, world, axes, in_order, store })
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    /// This rank's neighbours on an axis.
    pub fn line(&self, axis: usize) -> Option<&Line> {
        self.axes[axis].as_ref()
    }
}

/// Whether the job is that of this rank.
fn fits(peers: &Peers, program: &Program) -> Result<()> {
    let Peers { rank, world, .. } = peers;
    let ranks: i64 = program.mesh.iter().map(|axis| axis.size).product();
    if ranks != i64::from(*world) || rank >= world {
        return Err(Error::run(format!("rank {rank} of {world} was given the program of a mesh of {ranks} ranks")));
    }
    let (found, expected) = (&program.coordinates, mesh::coordinates(&program.mesh, i64::from(*rank)));
    if *found != expected {
        return Err(Error::run(format!("rank {rank} lies at {expected:?}, and was given the program of {found:?}")));
    }
    Ok(())
}

/// The store that ranks meet at: rank 0 serves it, unless a launcher does.
fn meet(peers: &Peers, emit: &mut dyn FnMut(&Event) -> Result<()>) -> Result<Store> {
    let Peers { rank, host, port, prefix, timeout, .. } = peers;
    let patience = Duration::from_secs(*timeout);
    if *rank > 0 || !peers.serve {
        return Store::connect(host, *port, prefix, patience).map_err(|_| {
            Error::peer(format!("rank {rank} waited {timeout} s for rank 0, and nobody answers at {host}:{port}"))
        });
    }
    let refused = |e: std::io::Error| Error::input(format!("cannot listen on port {port} of {host}: {e}"));
    let listener = match is_local(host) {
        true => TcpListener::bind((host.as_str(), *port)),
        false => TcpListener::bind((Ipv6Addr::UNSPECIFIED, *port))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port))),
    }
    .map_err(refused)?;
    let port = listener.local_addr().map_err(refused)?.port();
    let store = Store::serve(listener, prefix, patience);
    let store = store.map_err(|lost| Error::run(format!("cannot serve the ranks' store: {}", lost.text)))?;
    emit(&Event::Listening { port })?;
    Ok(store)
}

/// Rank 0 compares what the others are about to run with its own, and all hear what came of it.
fn agree(peers: &Peers, store: &Store, facts: &Facts) -> Result<()> {
    let rank = peers.rank;
    let waited = |whom: u32, lost: Lost| match lost.silent {
        true => Error::peer(format!("rank {rank} waited {} s for rank {whom} to begin", peers.timeout)),
        false => Error::peer(format!("rank {rank} lost rank {whom} before it began: {}", lost.text)),
    };
    let get = |key: &str, whom: u32| store.get(key).map_err(|lost| waited(whom, lost));
    let set = |key: &str, value: &[u8]| store.set(key, value).map_err(|lost| waited(0, lost));
    let verdict = if rank == 0 {
        let mut verdict = Vec::new();
        for other in 1..peers.world {
            let theirs = get(&format!("facts/{other}"), other)?;
            if verdict.is_empty() {
                verdict = agreement::difference(facts, &theirs, other).unwrap_or_default().into_bytes();
            }
        }
        set("verdict", &verdict)?;
        if !verdict.is_empty() {
            // Rank 0 ends with this, and what it serves with it: first all hear.
            (1..peers.world).try_for_each(|other| get(&format!("heard/{other}"), other).map(drop))?;
        }
        verdict
    } else {
        set(&format!("facts/{rank}"), &agreement::to_bytes(facts))?;
        let verdict = get("verdict", 0)?;
        if !verdict.is_empty() {
            set(&format!("heard/{rank}"), b"")?;
        }
        verdict
    };
    if verdict.is_empty() { Ok(()) } else { Err(Error::input(String::from_utf8_lossy(&verdict))) }
}

/// The address at which the others reach this rank.
fn own_address(peers: &Peers) -> String {
    // The one that leads to rank 0; nothing is sent.
    let towards = |any: IpAddr| {
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((peers.host.as_str(), peers.port)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let anywhere = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let remote = if is_local(&peers.host) { None } else { anywhere.into_iter().find_map(towards) };
    remote.unwrap_or(Ipv4Addr::LOCALHOST.into()).to_string()
}

fn is_local(host: &str) -> bool {
    (host, 0).to_socket_addrs().is_ok_and(|mut all| all.all(|address| address.ip().is_loopback()))
}

impl Backend for Processes {
    fn collective(&self, axis: usize, kind: Collective, brought: &[Tensor], result: &[i64]) -> Result<Vec<Tensor>> {
        match (&self.axes[axis], brought) {
            (Some(line), [own]) => Ok(vec![line.collective(kind, own, result, self.in_order)?]),
            _ => Err(Error::run(format!("{} of a rank that has no neighbours on the axis", kind.name()))),
        }
    }

    fn words(&self, own: &[u64]) -> Result<Vec<u64>> {
        let own: Vec<i64> = own.iter().map(|word| word.cast_signed()).collect();
        let all = self.world.words("a comparison", &own)?;
        Ok(all.into_iter().flatten().map(i64::cast_unsigned).collect())
    }

    /// Ranks that hold the same box compare digests of it, and the first of them sends it to rank 0.
    fn whole(&self, label: &str, own: &[Share]) -> Result<Option<Tensor>> {
        let [Share { tensor, placement }] = own else { return Ok(None) };
        let what = format!("collecting {label}");
        let part = |split: &slapo_program::Split| match split.part {
            Part::Rank(at) => at,
            Part::MicroBatch => -1,
        };
        let mut words = vec![i64::from(tensor.is_some()), tensor.map_or(Ok(0), digest)?];
        words.extend(placement.splits.iter().map(part));
        let all = self.world.words(&what, &words)?;
        let Some(own) = tensor else { return Ok(None) };
        let mut senders: BTreeMap<&[i64], usize> = BTreeMap::new();
        for (rank, words) in all.iter().enumerate() {
            let sender = *senders.entry(&words[2..]).or_insert(rank);
            if all[sender][..2] != words[..2] {
                return Err(Error::run(format!(
                    "{label} differs between ranks {sender} and {rank}, which should hold the same values"
                )));
            }
        }
        let placements: Vec<Placement> = all.iter().map(|words| placed(placement, &words[2..])).collect();
        let senders: Vec<usize> = senders.into_values().collect();
        let boxes = self.sent_to_first(&what, own, &senders, &placements)?;
        if self.rank != 0 {
            return Ok(None);
        }
        let held =
            senders.iter().map(|rank| Held { rank: *rank, tensor: &boxes[*rank], placement: &placements[*rank] });
        let whole = assemble(&held.collect::<Vec<_>>());
        whole.map(Some).map_err(|message| Error::ranks(format!("{label} {message}")))
    }

    fn leave(&self) -> Result<()> {
        let failed = |lost: Lost| self.world.lost("the end", &lost);
        let all = |what: &str| {
            (1..self.world.size())
                .try_for_each(|rank| self.store.get(&format!("{what}/{rank}")).map(drop))
                .map_err(failed)
        };
        if self.rank > 0 {
            self.store.set(&format!("done/{}", self.rank), b"").map_err(failed)?;
            self.store.get("done").map_err(failed)?;
            return self.store.set(&format!("left/{}", self.rank), b"").map_err(failed);
        }
        all("done")?;
        self.store.set("done", b"").map_err(failed)?;
        // The store may end with this rank, so it is the last to go.
        all("left")
    }
}

impl Processes {
    /// On rank 0, per rank, the box that it sends; of no elements from those that send none.
    fn sent_to_first(
        &self,
        what: &str,
        own: &Tensor,
        senders: &[usize],
        placements: &[Placement],
    ) -> Result<Vec<Tensor>> {
        let nothing = || Tensor::f_empty([0], (own.kind(), Device::Cpu)).map_err(|e| Error::run(libtorch::message(&e)));
        let mut sent: Vec<Tensor> = (0..self.world.size()).map(|_| nothing()).collect::<Result<_>>()?;
        if senders.contains(&self.rank) {
            sent[0] = own.shallow_clone();
        }
        let mut shapes = vec![vec![0]; self.world.size()];
        for rank in senders.iter().filter(|_| self.rank == 0) {
            let splits = !placements[*rank].splits.is_empty();
            shapes[*rank] =
                if splits { geometry::local_shape(&placements[*rank]).map_err(Error::run)? } else { own.size() };
        }
        self.world.exchanged(what, sent, |rank| shapes[rank].clone())
    }
}

/// Where the box lies whose parts along the splits are these.
fn placed(like: &Placement, parts: &[i64]) -> Placement {
    let mut placement = like.clone();
    for (split, at) in placement.splits.iter_mut().zip(parts) {
        split.part = Part::Rank(*at);
    }
    placement
}

fn digest(tensor: &Tensor) -> Result<i64> {
    let dense = tensor.f_contiguous().map_err(|e| Error::run(libtorch::message(&e)))?;
    let mut hasher = DefaultHasher::new();
    hasher.write(libtorch::bytes(&dense));
    Ok(hasher.finish().cast_signed())
}
