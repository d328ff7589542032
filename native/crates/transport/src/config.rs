//! The table of `BUSBW_NET_*` variables, and their values.

use crate::error::{Error, Kind};

/// A variable. An empty value means its default.
pub struct Variable {
    /// After `BUSBW_NET_`.
    pub name: &'static str,
    /// A description if the default is not fixed.
    pub default: &'static str,
    /// One line for the reference.
    pub help: &'static str,
}

const PREFIX: &str = "BUSBW_NET_";

/// All variables.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "IFNAME",
        default: "NCCL_SOCKET_IFNAME",
        help: "interfaces: comma-separated name prefixes; a leading ^ excludes, = requires whole names",
    },
    Variable {
        name: "MERGE",
        default: "0",
        help: "1 shows all interfaces as one device, and each connection uses all of them; use the same value on all hosts",
    },
    Variable { name: "FAMILY", default: "any", help: "address family to use: 4, 6 or any" },
    Variable {
        name: "STREAMS",
        default: "4",
        help: "chunk streams of a connection, besides the inline stream: 1 to 32",
    },
    Variable {
        name: "THREADS",
        default: "by cores and speed",
        help: "I/O threads of a process: 1 to 64",
    },
    Variable { name: "CHUNK", default: "by size", help: "chunk size in bytes: 4096 to 67108864" },
    Variable {
        name: "INLINE",
        default: "16384",
        help: "largest message in bytes that the calling thread sends on the inline stream: 0 to 32768",
    },
    Variable {
        name: "INLINE_IDLE",
        default: "24576",
        help: "largest message in bytes that the calling thread sends itself while the connection sends nothing else: 0 to 131072",
    },
    Variable {
        name: "SPIN_US",
        default: "by cores",
        help: "microseconds that an I/O thread spins before it sleeps, if work usually arrives in that time: 0 to 1000000",
    },
    Variable {
        name: "SPEED",
        default: "as found",
        help: "speed of each interface in Mbit/s: 1 to 10000000",
    },
    Variable {
        name: "STALL_MS",
        default: "300",
        help: "milliseconds without progress after which other streams resend a stream's chunks: 10 to 60000",
    },
    Variable {
        name: "CONGESTION",
        default: "auto",
        help: "congestion control of streams: a name that the kernel allows, system for its default, or auto to avoid BBR",
    },
    Variable {
        name: "RTO_MS",
        default: "10",
        help: "minimum milliseconds before a retransmission, at most the kernel's default (Linux 6.15): 1 to 200; same on all hosts",
    },
    Variable {
        name: "ZEROCOPY",
        default: "1",
        help: "1 sends the pages of large messages by reference if measured to be cheaper; 0 always copies",
    },
    Variable {
        name: "TIMEOUT",
        default: "60",
        help: "seconds without an answer after which a connection fails: 1 to 86400",
    },
    Variable {
        name: "TUNE",
        default: "1",
        help: "0 leaves protocol and channels of collectives between hosts to NCCL; use the same value on all hosts",
    },
    Variable {
        name: "STATS",
        default: "none",
        help: "file, or unix:PATH of a socket, that receives counters as JSON lines",
    },
];

/// Largest message in bytes that any setting sends on the inline stream.
pub const LARGEST_INLINE: usize = 128 << 10;
/// Larger messages of a connection that sends nothing else go to an I/O thread: between two
/// processes 128 KiB would gain, but under NCCL, whose thread serves several connections,
/// all_reduce takes longer (benchmarks/net_rails_2xh200_202611).
const INLINE_IDLE: usize = 24 << 10;
/// From this many cores per rank on, threads may spin for long: waking one costs more than a small
/// message.
const SPIN_CORES: usize = 8;
const LONG_SPIN_US: u64 = 100;
/// With few cores a spinning thread keeps others from running.
pub(crate) const SHORT_SPIN_US: u64 = 20;

/// The values of the variables. Sizes are in bytes, times in the unit of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Interfaces in NCCL's format. Empty: all except loopback and container bridges.
    pub ifname: String,
    /// All interfaces are one device.
    pub merge: bool,
    /// IPv4 addresses may be used.
    pub ipv4: bool,
    /// IPv6 addresses may be used.
    pub ipv6: bool,
    /// Chunk streams of a connection.
    pub streams: usize,
    /// I/O threads; an upper limit unless `threads_asked`.
    pub threads: usize,
    /// The number of threads was set by the user.
    pub threads_asked: bool,
    /// Chunk size; 0: by the size of the message.
    pub chunk: usize,
    /// Largest message on the inline stream.
    pub inline: usize,
    /// The same while nothing else is being sent.
    pub inline_idle: usize,
    /// Spin time of an I/O thread.
    pub spin_us: Option<u64>,
    /// Speed of each interface; 0: as found.
    pub speed_mbps: u32,
    /// Time without progress until a stream counts as stalled.
    pub stall_ms: u64,
    /// Congestion control of streams.
    pub congestion: String,
    /// Minimum time before a retransmission.
    pub rto_ms: u64,
    /// Large messages may be sent by reference.
    pub zerocopy: bool,
    /// Time without an answer until a connection fails.
    pub timeout_s: u64,
    /// The tuner chooses protocol and channels.
    pub tune: bool,
    /// Where counters are written; empty: nowhere.
    pub stats: String,
    /// The rank of this process on its host, if its launcher says.
    pub local_rank: Option<u16>,
}

impl Config {
    /// Read the environment.
    ///
    /// # Errors
    /// A value is invalid, or a name that starts with BUSBW_NET_ is not in the table.
    pub fn from_env() -> Result<Self, Error> {
        Self::read(std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        }))
    }

    /// Read names and values.
    ///
    /// # Errors
    /// As for `from_env`.
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
            } else if [
                "LOCAL_WORLD_SIZE",
                "OMPI_COMM_WORLD_LOCAL_SIZE",
                "MPI_LOCALNRANKS",
                "SLURM_NTASKS_PER_NODE",
            ]
            .contains(&name.as_str())
            {
                local_ranks = value.parse().unwrap_or(1).max(local_ranks);
            } else if [
                "LOCAL_RANK",
                "OMPI_COMM_WORLD_LOCAL_RANK",
                "MPI_LOCALRANKID",
                "SLURM_LOCALID",
            ]
            .contains(&name.as_str())
            {
                made.local_rank = made.local_rank.or(value.parse().ok());
            }
        }
        if made.ifname.is_empty() {
            made.ifname = nccl_ifname;
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from) / local_ranks;
        if !made.threads_asked {
            made.threads = threads_for(cores);
        }
        made.spin_us =
            made.spin_us.or(Some(if cores >= SPIN_CORES { LONG_SPIN_US } else { SHORT_SPIN_US }));
        Ok(made)
    }

    /// The number of I/O threads for interfaces of these speeds in Mbit/s (None if unknown): no
    /// more than can be kept busy. More would only spin.
    pub fn threads_for_speeds(&self, speeds: impl Iterator<Item = Option<u32>>) -> usize {
        match speeds.sum::<Option<u32>>() {
            Some(mbps) if !self.threads_asked => {
                self.threads.min(mbps.div_ceil(THREAD_MBPS) as usize + 1)
            }
            _ => self.threads,
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        match name {
            "IFNAME" => self.ifname = value.to_owned(),
            "MERGE" => self.merge = number(name, value, 0, 1)? == 1,
            "FAMILY" => {
                (self.ipv4, self.ipv6) = match value {
                    "4" => (true, false),
                    "6" => (false, true),
                    "any" => (true, true),
                    _ => return Err(wrong(name, value)),
                }
            }
            "STREAMS" => self.streams = number(name, value, 1, 32)? as usize,
            "THREADS" => {
                (self.threads, self.threads_asked) = (number(name, value, 1, 64)? as usize, true)
            }
            "CHUNK" => self.chunk = number(name, value, 4096, 64 << 20)? as usize,
            "INLINE" => self.inline = number(name, value, 0, 32768)? as usize,
            "INLINE_IDLE" => {
                self.inline_idle = number(name, value, 0, LARGEST_INLINE as u64)? as usize
            }
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
                    format!(
                        "{PREFIX}{name}: there is no such setting; known after {PREFIX}: {}",
                        known.join(", ")
                    ),
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
            merge: false,
            ipv4: true,
            ipv6: true,
            streams: 4,
            threads: 0,
            threads_asked: false,
            chunk: 0,
            inline: 16384,
            inline_idle: INLINE_IDLE,
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
    value
        .parse()
        .ok()
        .filter(|parsed| (least..=most).contains(parsed))
        .ok_or_else(|| wrong(name, value))
}

fn wrong(name: &str, value: &str) -> Error {
    let help = VARIABLES.iter().find(|one| one.name == name).map_or("", |one| one.help);
    Error::new(Kind::Usage, format!("{PREFIX}{name}={value}: invalid value; {help}"))
}

/// What one thread sends and receives at once, with a margin: 12 Gbit/s each way were measured.
const THREAD_MBPS: u32 = 5_000;

/// Three quarters of a rank's cores. The others drive the GPU and the messages.
fn threads_for(cores: usize) -> usize {
    (cores * 3 / 4).clamp(2, 16)
}

#[cfg(test)]
mod tests;
