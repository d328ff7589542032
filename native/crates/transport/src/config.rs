//! The table of `BUSBW_NET_*` variables, and their values.

use crate::error::{Error, Kind};

/// One variable: its default is what an empty value means.
pub struct Variable {
    /// After `BUSBW_NET_`.
    pub name: &'static str,
    /// In words, where it is not fixed.
    pub default: &'static str,
    /// One line for a reader.
    pub help: &'static str,
}

const PREFIX: &str = "BUSBW_NET_";

/// All of them.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "IFNAME",
        default: "NCCL_SOCKET_IFNAME",
        help: "interfaces: name prefixes by comma; ^ before them excludes, = means the whole name",
    },
    Variable { name: "FAMILY", default: "any", help: "addresses to use: 4, 6 or any" },
    Variable { name: "STREAMS", default: "4", help: "TCP streams of a connection beside the one for small messages: 1 to 32" },
    Variable { name: "THREADS", default: "by cores and speed", help: "I/O threads of a process: 1 to 64" },
    Variable { name: "CHUNK", default: "by size", help: "bytes of a chunk: 4096 to 67108864" },
    Variable { name: "INLINE", default: "16384", help: "messages up to this many bytes are sent by the calling thread: 0 to 32768" },
    Variable {
        name: "SPIN_US",
        default: "by cores",
        help: "microseconds an I/O thread looks for more work before it sleeps, where that usually comes so soon: 0 to 1000000",
    },
    Variable { name: "SPEED", default: "as found", help: "Mbit/s of one interface: 1 to 10000000" },
    Variable {
        name: "STALL_MS",
        default: "300",
        help: "milliseconds without progress after which a stream's chunks go elsewhere: 10 to 60000",
    },
    Variable {
        name: "CONGESTION",
        default: "auto",
        help: "congestion control of streams: a name that the kernel allows, system for its own, or auto for its own unless that is BBR",
    },
    Variable {
        name: "RTO_MS",
        default: "10",
        help: "milliseconds after which, at the least, what was lost is sent again, where the kernel lets programs say (Linux 6.15 on): 1 to 200; never more than the kernel's own, and the same on all hosts",
    },
    Variable {
        name: "ZEROCOPY",
        default: "1",
        help: "1 gives the kernel the pages of large messages where that is cheaper, as measured; 0 has it copy them always",
    },
    Variable { name: "TIMEOUT", default: "60", help: "seconds without an answer after which a peer is given up: 1 to 86400" },
    Variable {
        name: "TUNE",
        default: "1",
        help: "0 leaves protocol and channels of collectives between hosts to NCCL; the same on all hosts",
    },
    Variable { name: "STATS", default: "none", help: "file, or unix:PATH of a socket, that gets counters as JSON lines" },
];

/// Cores of a rank from which on its threads may look longer before they sleep: waking one costs more than a small message.
const SPIN_CORES: usize = 8;
const LONG_SPIN_US: u64 = 100;
/// A thread that looks keeps others from a core where there are few.
pub(crate) const SHORT_SPIN_US: u64 = 20;

/// What the variables say. Sizes in bytes, times as named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Interfaces, in NCCL's words; empty: all that are no loopback or container bridge.
    pub ifname: String,
    /// IPv4 addresses may be used.
    pub ipv4: bool,
    /// IPv6 addresses may be used.
    pub ipv6: bool,
    /// Streams of a connection for chunks.
    pub streams: usize,
    /// I/O threads, at most where nobody asked for a number.
    pub threads: usize,
    /// Somebody has asked for this number of threads.
    pub threads_asked: bool,
    /// Of a chunk; 0: by the message's size.
    pub chunk: usize,
    /// Messages up to this size go inline.
    pub inline: usize,
    /// Before an I/O thread sleeps.
    pub spin_us: Option<u64>,
    /// Of an interface; 0: as found.
    pub speed_mbps: u32,
    /// Until a stream counts as stalled.
    pub stall_ms: u64,
    /// Congestion control of streams.
    pub congestion: String,
    /// Until what was lost is sent again, at the least.
    pub rto_ms: u64,
    /// Large messages may be sent by reference.
    pub zerocopy: bool,
    /// Until a peer is given up.
    pub timeout_s: u64,
    /// Protocol and channels are chosen for this network.
    pub tune: bool,
    /// Where counters go; empty: nowhere.
    pub stats: String,
    /// This process' number on its host, where its launcher says.
    pub local_rank: Option<u16>,
}

impl Config {
    /// From the environment.
    ///
    /// # Errors
    /// A value that cannot be meant, or a name that begins with BUSBW_NET_ and is none of the table.
    pub fn from_env() -> Result<Self, Error> {
        Self::read(std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))))
    }

    /// From names and values.
    ///
    /// # Errors
    /// As `from_env`.
    pub fn read(variables: impl Iterator<Item = (String, String)>) -> Result<Self, Error> {
        let mut made = Self { spin_us: None, ..Self::default() };
        let mut nccl_ifname = String::new();
        let mut local_ranks = 1;
        for (name, value) in variables {
            let value = value.trim();
            if let Some(short) = name.strip_prefix(PREFIX) {
                if !value.is_empty() {
                    made.set(short, value)?;
                }
            } else if name == "NCCL_SOCKET_IFNAME" {
                nccl_ifname = value.to_owned();
            } else if ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"]
                .contains(&name.as_str())
            {
                local_ranks = value.parse().unwrap_or(1).max(local_ranks);
            } else if ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"].contains(&name.as_str()) {
                made.local_rank = made.local_rank.or(value.parse().ok());
            }
        }
        if made.ifname.is_empty() {
            made.ifname = nccl_ifname;
        }
        let cores = usable_cores() / local_ranks;
        if !made.threads_asked {
            made.threads = threads_for(cores);
        }
        made.spin_us = made.spin_us.or(Some(if cores >= SPIN_CORES { LONG_SPIN_US } else { SHORT_SPIN_US }));
        Ok(made)
    }

    /// I/O threads for interfaces of `speeds` Mbit/s, of which None is not known: no more than they keep busy. Threads beyond that would
    /// look for work and find none.
    pub fn threads_for_speeds(&self, speeds: impl Iterator<Item = Option<u32>>) -> usize {
        match speeds.sum::<Option<u32>>() {
            Some(mbps) if !self.threads_asked => self.threads.min(mbps.div_ceil(THREAD_MBPS) as usize + 1),
            _ => self.threads,
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        match name {
            "IFNAME" => self.ifname = value.to_owned(),
            "FAMILY" => {
                (self.ipv4, self.ipv6) = match value {
                    "4" => (true, false),
                    "6" => (false, true),
                    "any" => (true, true),
                    _ => return Err(wrong(name, value)),
                }
            }
            "STREAMS" => self.streams = number(name, value, 1, 32)? as usize,
            "THREADS" => (self.threads, self.threads_asked) = (number(name, value, 1, 64)? as usize, true),
            "CHUNK" => self.chunk = number(name, value, 4096, 64 << 20)? as usize,
            "INLINE" => self.inline = number(name, value, 0, 32768)? as usize,
            "SPIN_US" => self.spin_us = Some(number(name, value, 0, 1_000_000)?),
            "SPEED" => self.speed_mbps = number(name, value, 1, 10_000_000)? as u32,
            "STALL_MS" => self.stall_ms = number(name, value, 10, 60_000)?,
            "CONGESTION" => self.congestion = value.to_owned(),
            "RTO_MS" => self.rto_ms = number(name, value, 1, 200)?,
            "ZEROCOPY" => self.zerocopy = number(name, value, 0, 1)? == 1,
            "TIMEOUT" => self.timeout_s = number(name, value, 1, 86_400)?,
            "TUNE" => self.tune = number(name, value, 0, 1)? == 1,
            "STATS" => self.stats = value.to_owned(),
            _ => {
                let known: Vec<_> = VARIABLES.iter().map(|one| one.name).collect();
                return Err(Error::new(
                    Kind::Usage,
                    format!("{PREFIX}{name}: there is no such setting (known after {PREFIX}: {})", known.join(", ")),
                ));
            }
        }
        Ok(())
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ifname: String::new(),
            ipv4: true,
            ipv6: true,
            streams: 4,
            threads: 0,
            threads_asked: false,
            chunk: 0,
            inline: 16384,
            spin_us: Some(SHORT_SPIN_US),
            speed_mbps: 0,
            stall_ms: 300,
            congestion: "auto".to_owned(),
            rto_ms: 10,
            zerocopy: true,
            timeout_s: 60,
            tune: true,
            stats: String::new(),
            local_rank: None,
        }
    }
}

fn number(name: &str, value: &str, least: u64, most: u64) -> Result<u64, Error> {
    value.parse().ok().filter(|parsed| (least..=most).contains(parsed)).ok_or_else(|| wrong(name, value))
}

fn wrong(name: &str, value: &str) -> Error {
    let help = VARIABLES.iter().find(|one| one.name == name).map_or("", |one| one.help);
    Error::new(Kind::Usage, format!("{PREFIX}{name}={value} cannot be meant: {help}"))
}

/// Cores this process may run on.
fn usable_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What one thread sends and receives at once, with room to spare: 12 Gbit/s each way were measured.
const THREAD_MBPS: u32 = 5_000;

/// Three of four of a rank's cores: the others drive the GPU and the messages.
fn threads_for(cores: usize) -> usize {
    (cores * 3 / 4).clamp(2, 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Config, Error> {
        Config::read(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn every_variable_of_the_table_is_read() {
        for one in VARIABLES {
            let value = if one.name == "FAMILY" { "6" } else { "4096" };
            let made = read(&[(&format!("BUSBW_NET_{}", one.name), value)]);
            let rejected = made.as_ref().is_err_and(|error| error.message.contains("no such setting"));
            assert!(!rejected, "{}", one.name);
        }
    }

    #[test]
    fn values_that_cannot_be_meant_are_named() {
        for (name, value) in [("STREAMS", "0"), ("STREAMS", "many"), ("FAMILY", "5"), ("INLINE", "32769"), ("TIMEOUT", "-1")] {
            let error = read(&[(&format!("BUSBW_NET_{name}"), value)]).unwrap_err();
            assert!(error.message.starts_with(&format!("BUSBW_NET_{name}={value} cannot be meant")), "{error}");
        }
        assert!(read(&[("BUSBW_NET_STREAM", "4")]).unwrap_err().message.contains("no such setting"));
    }

    #[test]
    fn interfaces_are_ncclss_unless_told_otherwise() {
        assert_eq!(read(&[("NCCL_SOCKET_IFNAME", "eth")]).unwrap().ifname, "eth");
        assert_eq!(read(&[("NCCL_SOCKET_IFNAME", "eth"), ("BUSBW_NET_IFNAME", "^lo")]).unwrap().ifname, "^lo");
        assert_eq!(read(&[("BUSBW_NET_STREAMS", " ")]).unwrap().streams, 4);
    }

    #[test]
    fn the_launcher_says_which_rank_of_its_host_this_is() {
        assert_eq!(read(&[]).unwrap().local_rank, None);
        assert_eq!(read(&[("OMPI_COMM_WORLD_LOCAL_RANK", "3")]).unwrap().local_rank, Some(3));
        assert_eq!(read(&[("LOCAL_RANK", "?"), ("SLURM_LOCALID", "1")]).unwrap().local_rank, Some(1));
    }

    #[test]
    fn a_slow_link_gets_fewer_threads_unless_somebody_asks() {
        let mut config = Config { threads: 12, ..Config::default() };
        let of = |config: &Config, speeds: &[Option<u32>]| config.threads_for_speeds(speeds.iter().copied());
        assert_eq!([of(&config, &[Some(1_000)]), of(&config, &[Some(25_000)]), of(&config, &[Some(25_000); 2])], [2, 6, 11]);
        assert_eq!([of(&config, &[Some(400_000)]), of(&config, &[Some(1_000), None])], [12, 12]);
        config.threads_asked = true;
        assert_eq!(of(&config, &[Some(1_000)]), 12);
    }

    #[test]
    fn threads_follow_the_cores_of_a_rank() {
        assert_eq!([threads_for(1), threads_for(2), threads_for(16), threads_for(128)], [2, 2, 12, 16]);
    }
}
