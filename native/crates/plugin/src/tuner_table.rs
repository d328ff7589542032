//! What a user wants collectives to run with: `BUSBW_TUNER_TABLE` names a file with a line for each
//! range of sizes.

use std::env;
use std::ffi::c_int;
use std::fs;
use std::path::Path;

use busbw_nccl_abi::tuner::function;
use busbw_transport::{Error, Kind, Level};

use crate::logger;

const VARIABLE: &str = "BUSBW_TUNER_TABLE";
/// The first line of a table.
const HEADER: &str = "busbw-tuner-table 1";
/// The first word of lines that only describe how the table came about.
const ABOUT: &str = "about";
/// Bytes of a chunk. NCCL divides by its multiple of a protocol's grain, which is at most 1920, and
/// keeps it as an int.
const SMALLEST_CHUNK: usize = 4 << 10;
const LARGEST_CHUNK: usize = 1 << 30;
/// In place of a number: any number of hosts, or NCCL's number of channels.
const ANY: &str = "*";
const FUNCTIONS: [(&str, c_int); 5] = [
    ("broadcast", function::BROADCAST),
    ("reduce", function::REDUCE),
    ("all_gather", function::ALL_GATHER),
    ("reduce_scatter", function::REDUCE_SCATTER),
    ("all_reduce", function::ALL_REDUCE),
];
/// Rows of NCCL's cost table.
const ALGORITHMS: [&str; 7] =
    ["Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"];
/// Columns of NCCL's cost table.
const PROTOCOLS: [&str; 3] = ["LL", "LL128", "Simple"];

/// Algorithm and protocol, as rows and columns of NCCL's cost table, and the most channels: 0 for
/// NCCL's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Row.
    pub algorithm: usize,
    /// Column.
    pub protocol: usize,
    /// Channels.
    pub channels: c_int,
    /// Bytes of a chunk, 0 for NCCL's. NCCL 2.30 and newer ask for it.
    pub chunk: usize,
}

#[derive(Debug)]
struct Rule {
    function: c_int,
    first: usize,
    last: usize,
    wanted: Wanted,
}

/// The rules for one communicator, in the order of function and bytes, without overlaps.
#[derive(Debug, Default)]
pub struct Table(Vec<Rule>);

impl Table {
    /// The table that the environment names, for communicators of `ranks` on `hosts`. Empty without
    /// one, or with one that cannot be read, of which a warning says why: NCCL then chooses itself.
    pub fn of_environment(ranks: usize, hosts: usize) -> Self {
        let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) else {
            return Self::default();
        };
        Self::read(Path::new(&path), ranks, hosts).unwrap_or_else(|error| {
            logger::say(
                Level::Warn,
                &format!("{VARIABLE}={}: {error}; NCCL chooses", path.to_string_lossy()),
            );
            Self::default()
        })
    }

    /// A file of rules `RANKS HOSTS COLLECTIVE FIRST LAST ALGORITHM PROTOCOL CHANNELS [CHUNK]`
    /// below a line with the format's name and version. FIRST and LAST are the bytes of the
    /// smallest and the largest operation, CHUNK those of a chunk. `#` begins a comment, `about` a
    /// line for people.
    ///
    /// # Errors
    /// The file cannot be read, it is of another version, a line is no rule, or two rules are for
    /// the same size.
    pub fn read(path: &Path, ranks: usize, hosts: usize) -> Result<Self, Error> {
        let text =
            fs::read_to_string(path).map_err(|error| Error::new(Kind::Usage, error.to_string()))?;
        Self::parse(&text, ranks, hosts)
    }

    /// The same of a text.
    ///
    /// # Errors
    /// As of `read`.
    pub fn parse(text: &str, ranks: usize, hosts: usize) -> Result<Self, Error> {
        let wrong = |number: usize, what: &str, line: &str| {
            Error::new(Kind::Usage, format!("line {} {what}: {line}", number + 1))
        };
        let mut rules = Vec::new();
        let mut begun = false;
        for (number, whole) in text.lines().enumerate() {
            let line = whole.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            if !begun {
                if line != HEADER {
                    return Err(wrong(number, &format!("is not `{HEADER}`"), line));
                }
                begun = true;
                continue;
            }
            if line.split_whitespace().next() == Some(ABOUT) {
                continue;
            }
            let (of_ranks, of_hosts, rule) =
                rule(line).ok_or_else(|| wrong(number, "is not a rule", line))?;
            if of_ranks == ranks && of_hosts.is_none_or(|of_hosts| of_hosts == hosts) {
                rules.push((number, rule));
            }
        }
        rules.sort_by_key(|(_, rule)| (rule.function, rule.first));
        for pair in rules.windows(2) {
            let [(first, one), (second, next)] = pair else { continue };
            if one.function == next.function && next.first <= one.last {
                return Err(Error::new(
                    Kind::Usage,
                    format!(
                        "lines {} and {} are for the same sizes",
                        first.min(second) + 1,
                        first.max(second) + 1
                    ),
                ));
            }
        }
        Ok(Self(rules.into_iter().map(|(_, rule)| rule).collect()))
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What a collective should run with.
    pub fn wanted(&self, function: c_int, bytes: usize) -> Option<Wanted> {
        let after = self.0.partition_point(|rule| (rule.function, rule.first) <= (function, bytes));
        let rule = self.0.get(after.checked_sub(1)?)?;
        (rule.function == function && bytes <= rule.last).then_some(rule.wanted)
    }
}

/// Ranks, hosts (None for any) and the rule of a line; None if it is none.
fn rule(line: &str) -> Option<(usize, Option<usize>, Rule)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[ranks, hosts, collective, first, last, algorithm, protocol, channels, ref chunk @ ..] =
        words.as_slice()
    else {
        return None;
    };
    let chunk = match *chunk {
        [] => 0,
        [chunk] => {
            chunk.parse().ok().filter(|chunk| (SMALLEST_CHUNK..=LARGEST_CHUNK).contains(chunk))?
        }
        _ => return None,
    };
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    let wanted = Wanted {
        algorithm: ALGORITHMS.iter().position(|name| *name == algorithm)?,
        protocol: PROTOCOLS.iter().position(|name| *name == protocol)?,
        channels: if channels == ANY {
            0
        } else {
            channels.parse().ok().filter(|count| *count > 0)?
        },
        chunk,
    };
    let &(_, function) = FUNCTIONS.iter().find(|(name, _)| *name == collective)?;
    let hosts = if hosts == ANY { None } else { Some(hosts.parse().ok()?) };
    (first <= last).then_some((ranks.parse().ok()?, hosts, Rule { function, first, last, wanted }))
}
