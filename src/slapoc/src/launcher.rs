//! Which rank of which run this process is, as torchrun, MPI and Slurm say it by variables.
//!
//! Reads the environment through a function, starts nothing. Read [`place`] first.

use crate::failure::{Failure, Result};
use slapo_syntax::Code;

/// This process's place in a run that a launcher started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub rank: u32,
    /// Number of ranks.
    pub world: u32,
    /// How many of them are on this machine, where the launcher says so.
    pub local: Option<u32>,
    /// Where ranks meet.
    pub host: String,
    pub port: u16,
    /// Whether rank 0 opens that place; torchrun has one of its own.
    pub serve: bool,
    /// Tells the names of this attempt from those of others at the same place.
    pub prefix: String,
    /// The variable that says the rank.
    pub by: &'static str,
}

/// A launcher's variables.
struct Launcher {
    rank: &'static str,
    world: &'static str,
    local_rank: &'static str,
    local_world: &'static str,
}

/// Where several are set, the first is nearest to the process: torchrun starts under Slurm, not the other way round.
const LAUNCHERS: [Launcher; 4] = [
    Launcher { rank: "RANK", world: "WORLD_SIZE", local_rank: "LOCAL_RANK", local_world: "LOCAL_WORLD_SIZE" },
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        world: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_world: "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    Launcher { rank: "PMI_RANK", world: "PMI_SIZE", local_rank: "MPI_LOCALRANKID", local_world: "MPI_LOCALNRANKS" },
    Launcher {
        rank: SLURM_RANK,
        world: "SLURM_NTASKS",
        local_rank: "SLURM_LOCALID",
        local_world: "SLURM_NTASKS_PER_NODE",
    },
];

const SLURM_RANK: &str = "SLURM_PROCID";

/// Ports that Slurm's jobs meet at.
const SLURM_PORTS: std::ops::Range<u64> = 15_000..25_000;

impl Place {
    /// Whether a batch script of Slurm, which is no rank itself, has the same variables.
    pub fn may_be_script(&self) -> bool {
        self.by == SLURM_RANK && self.rank == 0
    }
}

/// The place in a run of several ranks; none where no launcher started one. `variable` reads the environment.
pub fn place(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Place>> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let found = LAUNCHERS.iter().find(|launcher| match launcher.rank {
        // A batch script without `--ntasks` has the one without the other.
        SLURM_RANK => set(launcher.rank).is_some() && set(launcher.world).is_some(),
        rank => set(rank).is_some() || set(launcher.world).is_some(),
    });
    let Some(launcher) = found else { return Ok(None) };
    let number = |name, other| number(name, &set, other);
    let world = number(launcher.world, launcher.rank)?;
    let rank = number(launcher.rank, launcher.world)?;
    if world == 0 {
        return Err(wrong(format!("`{}` is 0: legal values are 1 and more", launcher.world)));
    }
    below(launcher.rank, rank, launcher.world, world)?;
    let optional = |name| set(name).map(|_| number(name, launcher.rank)).transpose();
    // Slurm has this one only where the user asked for so many on each node.
    let (local_rank, local) = (optional(launcher.local_rank)?, optional(launcher.local_world)?);
    if let Some(local_rank) = local_rank {
        below(launcher.local_rank, local_rank, launcher.world, world)?;
        local.map_or(Ok(()), |local| below(launcher.local_rank, local_rank, launcher.local_world, local))?;
    }
    if world == 1 {
        return Ok(None);
    }
    let agent = set("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True") && launcher.rank == "RANK";
    let attempt = set("TORCHELASTIC_RESTART_COUNT").unwrap_or_else(|| "0".to_owned());
    Ok(Some(Place {
        rank,
        world,
        local,
        host: host(&set, launcher)?,
        port: port(&set, launcher)?,
        serve: !agent,
        prefix: format!("slapo/{attempt}"),
        by: launcher.rank,
    }))
}

fn number(name: &'static str, set: &impl Fn(&str) -> Option<String>, other: &str) -> Result<u32> {
    let Some(value) = set(name) else {
        return Err(wrong(format!("`{other}` is set and `{name}` is not: a launcher sets both"))
            .help(format!("set `{name}`, or unset `{other}` and let `slapoc train --nproc N` start the ranks")));
    };
    value.parse().map_err(|_| wrong(format!("`{name}` is `{value}`: legal values are whole numbers from 0 on")))
}

fn below(name: &str, value: u32, limit_name: &str, limit: u32) -> Result<()> {
    if value < limit {
        return Ok(());
    }
    let legal = if limit == 1 { "0".to_owned() } else { format!("0 to {}", limit.saturating_sub(1)) };
    Err(wrong(format!("`{name}` is {value} and `{limit_name}` is {limit}: legal values of `{name}` are {legal}")))
}

fn host(set: &impl Fn(&str) -> Option<String>, launcher: &Launcher) -> Result<String> {
    let of_slurm = || set("SLURM_JOB_NODELIST").map(|nodes| first_node(&nodes));
    set("MASTER_ADDR").or_else(of_slurm).ok_or_else(|| {
        wrong(format!("`{}` is set and `MASTER_ADDR` is not: ranks do not know where to meet", launcher.rank))
            .help("set `MASTER_ADDR` to the machine of rank 0, such as `node1` or 127.0.0.1")
    })
}

fn port(set: &impl Fn(&str) -> Option<String>, launcher: &Launcher) -> Result<u16> {
    if let Some(value) = set("MASTER_PORT") {
        let port = value.parse().ok().filter(|port| *port > 0);
        return port.ok_or_else(|| wrong(format!("`MASTER_PORT` is `{value}`: legal values are 1 to 65535")));
    }
    let job = set("SLURM_JOB_ID").and_then(|id| id.parse::<u64>().ok());
    let of_slurm = job.map(|id| SLURM_PORTS.start + id % (SLURM_PORTS.end - SLURM_PORTS.start));
    of_slurm.and_then(|port| u16::try_from(port).ok()).ok_or_else(|| {
        wrong(format!("`{}` is set and `MASTER_PORT` is not: ranks do not know where to meet", launcher.rank))
            .help("set `MASTER_PORT` to a free port of rank 0's machine, such as 29500")
    })
}

/// `gpu` of `gpu`, `gpu07` of `gpu[07-09,12]` and `a1-ib` of `a[1,3]-ib,b2`.
fn first_node(nodes: &str) -> String {
    let Some((start, rest)) = nodes.split_once('[').filter(|(start, _)| !start.contains(',')) else {
        return nodes.split(',').next().unwrap_or_default().to_owned();
    };
    let (numbers, rest) = rest.split_once(']').unwrap_or((rest, ""));
    let number = numbers.split([',', '-']).next().unwrap_or_default();
    format!("{start}{number}{}", rest.split(',').next().unwrap_or_default())
}

fn wrong(message: String) -> Box<Failure> {
    Failure::not_done(Code::LaunchVariables, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(variables: &[(&str, &str)]) -> std::result::Result<Option<Place>, String> {
        let read = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        place(read).map_err(|failure| failure.message)
    }

    const MASTER: [(&str, &str); 2] = [("MASTER_ADDR", "node1"), ("MASTER_PORT", "29500")];

    fn with_master(variables: &[(&'static str, &'static str)]) -> Place {
        placed(&[variables, &MASTER].concat()).expect("fits").expect("several ranks")
    }

    #[test]
    fn every_launcher_says_the_rank() {
        let torch = with_master(&[("RANK", "3"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")]);
        assert_eq!((torch.rank, torch.world, torch.local, torch.serve), (3, 4, Some(2), true));
        assert_eq!((torch.host.as_str(), torch.port), ("node1", 29500));
        let mpi = with_master(&[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2"), ("SLURM_PROCID", "0")]);
        assert_eq!((mpi.rank, mpi.world, mpi.local), (1, 2, None));
        let pmi = with_master(&[("PMI_RANK", "1"), ("PMI_SIZE", "3")]);
        assert_eq!((pmi.rank, pmi.world), (1, 3));
        let slurm = [
            ("SLURM_PROCID", "5"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_JOB_NODELIST", "gpu[07-08,11]"),
            ("SLURM_JOB_ID", "123456"),
        ];
        let slurm = placed(&slurm).expect("fits").expect("several ranks");
        assert_eq!((slurm.rank, slurm.world, slurm.host.as_str(), slurm.port), (5, 8, "gpu07", 18456));
    }

    #[test]
    fn the_store_of_torchrun_is_used() {
        let agent = with_master(&[
            ("RANK", "0"),
            ("WORLD_SIZE", "2"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
        ]);
        assert_eq!((agent.serve, agent.prefix.as_str()), (false, "slapo/2"));
    }

    #[test]
    fn without_a_launcher_or_with_one_rank_there_is_no_place() {
        assert_eq!(placed(&MASTER), Ok(None));
        assert_eq!(placed(&[("RANK", "0"), ("WORLD_SIZE", "1")]), Ok(None));
        assert_eq!(placed(&[("SLURM_PROCID", "0"), ("SLURM_JOB_NODELIST", "a")]), Ok(None));
        assert_eq!(placed(&[("RANK", ""), ("WORLD_SIZE", "")]), Ok(None));
    }

    #[test]
    fn what_is_missing_or_contradicts_is_named_with_legal_values() {
        let refused = |variables: &[(&str, &str)]| placed(variables).expect_err("refused");
        for (variables, words) in [
            (vec![("RANK", "1")], "`RANK` is set and `WORLD_SIZE` is not"),
            (vec![("WORLD_SIZE", "2")], "`WORLD_SIZE` is set and `RANK` is not"),
            (vec![("RANK", "2"), ("WORLD_SIZE", "2")], "legal values of `RANK` are 0 to 1"),
            (vec![("RANK", "x"), ("WORLD_SIZE", "2")], "`RANK` is `x`: legal values are whole numbers"),
            (vec![("RANK", "0"), ("WORLD_SIZE", "0")], "`WORLD_SIZE` is 0: legal values are 1 and more"),
            (vec![("RANK", "0"), ("WORLD_SIZE", "2")], "`MASTER_ADDR` is not"),
            (vec![("RANK", "0"), ("WORLD_SIZE", "2"), MASTER[0]], "`MASTER_PORT` is not"),
            (vec![("RANK", "0"), ("WORLD_SIZE", "2"), MASTER[0], ("MASTER_PORT", "0")], "legal values are 1 to 65535"),
            (
                vec![("RANK", "0"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "2"), ("LOCAL_WORLD_SIZE", "2")],
                "`LOCAL_RANK` is 2 and `LOCAL_WORLD_SIZE` is 2: legal values of `LOCAL_RANK` are 0 to 1",
            ),
            (vec![("OMPI_COMM_WORLD_SIZE", "2")], "`OMPI_COMM_WORLD_RANK` is not"),
        ] {
            let message = refused(&variables);
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn the_first_of_slurms_nodes() {
        for (nodes, first) in [
            ("gpu", "gpu"),
            ("gpu1,gpu2", "gpu1"),
            ("gpu[07-09,12]", "gpu07"),
            ("gpu[3,5]", "gpu3"),
            ("a[1,3]-ib,b2", "a1-ib"),
            ("login,gpu[1-2]", "login"),
        ] {
            assert_eq!(first_node(nodes), first);
        }
    }
}
