//! The workers of one run, one for each rank that is started here: their events, and why they end.
//!
//! Ranks wait for each other, so one that fails takes the others with it, and what those say is of no use. The run ends
//! soon after the first failure; its cause is the failure that no other rank can have brought about. Read
//! [`Ranks::follow`] first.

use crate::failure::{Failure, Result};
use crate::launch::{self, Ending, Worker};
use slapo_program::{Event, FailureKind, Job};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How long the others may take to say what they know once a rank has failed by itself.
const AFTER_CAUSE: Duration = Duration::from_millis(300);
/// How long the cause may take to show once a rank has lost another.
const AFTER_LOSS: Duration = Duration::from_secs(3);
/// How long the others may take to end after the first rank here is done.
const AFTER_END: Duration = Duration::from_secs(5);

/// How often, where nothing is heard, ranks are looked at for having been stopped, and how often in a row one may be.
const LOOK: Duration = Duration::from_millis(500);
const STOPPED_LOOKS: u32 = 15;

pub struct Ranks {
    workers: Vec<Worker>,
    /// How often each was seen stopped, up to now.
    stopped: Vec<u32>,
    heard: Receiver<(usize, Heard)>,
}

/// What comes from a worker.
enum Heard {
    Event(Event),
    /// Its output is closed.
    End,
    /// Nothing: its process is stopped.
    Stopped,
    /// It said something that is no event.
    Nonsense(Box<Failure>),
}

/// How a run ended.
pub enum End {
    /// With the last event of the first rank here.
    Done(Event),
    Failed(Cause),
}

/// Why a run failed. Ranks count from 0 among those here.
pub struct Cause {
    pub what: What,
    /// The ranks to which it happened, ascending.
    pub ranks: Vec<usize>,
    /// The last lines of standard error of the first of them.
    pub said: Vec<String>,
}

pub enum What {
    /// In a worker's own words: a failure.
    Told(Event),
    Died(Ending),
    /// Its process is stopped, and all wait for it.
    Stopped,
    /// Nothing was heard of it while others lost it, of whom one says so.
    Silent(Event),
}

/// A rank's failure, in the order in which they become known.
struct Report {
    rank: usize,
    what: What,
}

impl Report {
    fn is_loss(&self) -> bool {
        matches!(&self.what, What::Told(Event::Failed { kind: FailureKind::Peer, .. }))
    }

    fn says(&self, other: &Report) -> bool {
        match (&self.what, &other.what) {
            (What::Told(Event::Failed { message: a, .. }), What::Told(Event::Failed { message: b, .. })) => a == b,
            _ => self.rank == other.rank,
        }
    }
}

impl Ranks {
    /// Starts `count` workers, which wait for their jobs.
    pub fn start(worker: &Path, count: usize) -> Result<Ranks> {
        let mut workers = (0..count).map(|_| Worker::start(worker)).collect::<Result<Vec<_>>>()?;
        let (sender, heard) = mpsc::channel();
        for (rank, worker) in workers.iter_mut().enumerate() {
            if let Some(events) = worker.events() {
                let sender = sender.clone();
                thread::spawn(move || listen(rank, events, &sender));
            }
        }
        Ok(Ranks { workers, stopped: vec![0; count], heard })
    }

    /// Stops them when the user asks for it; see [`launch::stop_on_interrupt`].
    pub fn stop_on_interrupt(&self) -> Result<Arc<AtomicBool>> {
        launch::stop_on_interrupt(&self.workers)
    }

    /// Hands out the jobs and follows the run to its end; `on_event` gets what the first rank here reports on the way.
    /// Whatever is left of the workers is stopped.
    pub fn follow(mut self, mut jobs: Vec<Job>, on_event: &mut dyn FnMut(&Event) -> Result<()>) -> Result<End> {
        let count = self.workers.len();
        let mut done = None;
        let mut open = vec![true; count];
        let mut told = vec![false; count];
        let mut reports: Vec<Report> = Vec::new();
        let mut deadline: Option<Instant> = None;
        self.workers[0].give(&jobs[0])?;
        while open.contains(&true) {
            let Some((rank, heard)) = self.next(deadline) else { break };
            match heard {
                Heard::Event(Event::Listening { port }) => {
                    for (worker, job) in self.workers.iter_mut().zip(&mut jobs).skip(1) {
                        job.peers.iter_mut().for_each(|peers| peers.port = port);
                        worker.give(job)?;
                    }
                }
                Heard::Event(event @ Event::Failed { .. }) => {
                    told[rank] = true;
                    reports.push(Report { rank, what: What::Told(event) });
                }
                Heard::Event(event @ Event::Done { .. }) => {
                    told[rank] = true;
                    if rank == 0 {
                        deadline = Some(Instant::now() + AFTER_END);
                        done = Some(event);
                    }
                }
                Heard::Event(event) if rank == 0 => on_event(&event)?,
                Heard::Event(_) => {}
                Heard::End => {
                    open[rank] = false;
                    let ending = self.workers[rank].wait()?;
                    if !told[rank] {
                        reports.push(Report { rank, what: What::Died(ending) });
                    }
                }
                Heard::Stopped => {
                    told[rank] = true;
                    reports.push(Report { rank, what: What::Stopped });
                }
                Heard::Nonsense(failure) => return Err(failure),
            }
            if done.is_none() && !reports.is_empty() {
                let found = reports.iter().any(|report| !report.is_loss());
                let patience = Instant::now() + if found { AFTER_CAUSE } else { AFTER_LOSS };
                deadline = Some(deadline.map_or(patience, |known| known.min(patience)));
            }
        }
        self.workers.iter().for_each(Worker::kill);
        match done {
            Some(event) => Ok(End::Done(event)),
            None => Ok(End::Failed(self.cause(reports, &open))),
        }
    }

    /// What comes next; nothing where all are gone or it is too late.
    fn next(&mut self, deadline: Option<Instant>) -> Option<(usize, Heard)> {
        loop {
            let left = deadline.map_or(LOOK, |deadline| deadline.saturating_duration_since(Instant::now()));
            match self.heard.recv_timeout(left.min(LOOK)) {
                Ok(heard) => return Some(heard),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if left <= LOOK && deadline.is_some() => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(rank) = self.stopped() {
                return Some((rank, Heard::Stopped));
            }
        }
    }

    /// The rank that has been stopped for too long by now. A lone rank keeps nobody waiting.
    fn stopped(&mut self) -> Option<usize> {
        for (worker, looks) in self.workers.iter().zip(&mut self.stopped) {
            *looks = if worker.is_stopped() { *looks + 1 } else { 0 };
        }
        let several = self.workers.len() > 1;
        self.stopped.iter().position(|looks| several && *looks == STOPPED_LOOKS)
    }

    /// The first failure that is a rank's own; else what is silent; else the first loss.
    fn cause(mut self, mut reports: Vec<Report>, open: &[bool]) -> Cause {
        let first = reports.iter().position(|report| !report.is_loss()).unwrap_or(0);
        let own = !reports[first].is_loss();
        let silent: Vec<usize> = (0..open.len())
            .filter(|rank| !own && open[*rank] && reports.iter().all(|report| report.rank != *rank))
            .collect();
        let mut ranks: Vec<usize> =
            reports.iter().filter(|report| report.says(&reports[first])).map(|report| report.rank).collect();
        let mut what = reports.swap_remove(first).what;
        if let (false, What::Told(witness)) = (silent.is_empty(), &what) {
            what = What::Silent(witness.clone());
            ranks = silent;
        }
        ranks.sort_unstable();
        let said = self.workers[ranks[0]].last_words();
        Cause { what, ranks, said }
    }
}

fn listen(rank: usize, mut events: launch::Events, sender: &Sender<(usize, Heard)>) {
    loop {
        let heard = match events.next() {
            Ok(Some(event)) => Heard::Event(event),
            Ok(None) => Heard::End,
            Err(failure) => Heard::Nonsense(failure),
        };
        let last = !matches!(heard, Heard::Event(_));
        // Nobody listens any more where the run is over.
        if sender.send((rank, heard)).is_err() || last {
            return;
        }
    }
}
