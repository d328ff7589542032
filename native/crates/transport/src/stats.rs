//! Counters of each connection, and the thread that writes them as JSON lines to a file or a
//! socket.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::locks::lock;
use crate::log::{Level, Log};

const INTERVAL: Duration = Duration::from_secs(1);

/// Counters of one chunk stream.
struct Lane {
    nic: String,
    bytes: AtomicU64,
    chunks: AtomicU64,
    referred: AtomicU64,
}

/// What the streams of an interface have sent or received.
#[derive(Clone, Copy, Default)]
struct Sum {
    bytes: u64,
    chunks: u64,
    /// Bytes sent by reference, including those of unfinished chunks.
    referred: u64,
}

impl std::ops::AddAssign for Sum {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.chunks += other.chunks;
        self.referred += other.referred;
    }
}

/// Counters of one end of a connection. Each is exact, but together they are not a snapshot of one
/// moment.
pub(crate) struct Counters {
    label: String,
    lanes: Vec<Lane>,
    messages: AtomicU64,
    bytes: AtomicU64,
    resent: AtomicU64,
    stalls: AtomicU64,
    duplicate: AtomicU64,
    queue: AtomicU64,
}

impl Counters {
    /// All zero; `nics` names each stream's interface.
    pub(crate) fn new(label: String, nics: impl IntoIterator<Item = String>) -> Self {
        let zero = || AtomicU64::new(0);
        let lanes = nics
            .into_iter()
            .map(|nic| Lane { nic, bytes: zero(), chunks: zero(), referred: zero() })
            .collect();
        Self {
            label,
            lanes,
            messages: zero(),
            bytes: zero(),
            resent: zero(),
            stalls: zero(),
            duplicate: zero(),
            queue: zero(),
        }
    }

    /// A message was posted for sending, or has arrived.
    pub(crate) fn message(&self, bytes: u64) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A stream has transferred a chunk.
    pub(crate) fn chunk(&self, lane: usize, bytes: usize) {
        self.lanes[lane].bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.lanes[lane].chunks.fetch_add(1, Ordering::Relaxed);
    }

    /// A stream has sent bytes without a copy.
    pub(crate) fn referred(&self, lane: usize, bytes: usize) {
        self.lanes[lane].referred.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A stream stalled or ended, and others resend its chunks.
    pub(crate) fn stall(&self, resent: usize) {
        self.stalls.fetch_add(1, Ordering::Relaxed);
        self.resent.fetch_add(resent as u64, Ordering::Relaxed);
    }

    /// A chunk arrived again.
    pub(crate) fn duplicate(&self) {
        self.duplicate.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of chunks that wait for a stream.
    pub(crate) fn queue(&self, chunks: usize) {
        self.queue.store(chunks as u64, Ordering::Relaxed);
    }

    fn nics(&self) -> BTreeMap<&str, Sum> {
        let mut sums = BTreeMap::new();
        for lane in &self.lanes {
            let carried = Sum {
                bytes: of(&lane.bytes),
                chunks: of(&lane.chunks),
                referred: of(&lane.referred),
            };
            *sums.entry(lane.nic.as_str()).or_insert_with(Sum::default) += carried;
        }
        sums
    }

    fn line(&self, number: usize, now_s: f64) -> String {
        let mut line = format!(
            "{{\"time_s\":{now_s:.3},\"pid\":{},\"connection\":{number},\"peer\":{},\"messages\":{},\
            \"bytes\":{},\"resent_chunks\":{},\"stalls\":{},\
             \"chunks_twice\":{},\"queued_chunks\":{},\"nics\":{{",
            std::process::id(),
            quoted(&self.label),
            of(&self.messages),
            of(&self.bytes),
            of(&self.resent),
            of(&self.stalls),
            of(&self.duplicate),
            of(&self.queue),
        );
        for (at, (nic, Sum { bytes, chunks, referred })) in self.nics().into_iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(
                line,
                "{comma}{}:{{\"bytes\":{bytes},\"chunks\":{chunks},\"referred_bytes\":{referred}}}",
                quoted(nic)
            );
        }
        line.push_str("}}\n");
        line
    }
}

fn of(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut made = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => made.extend(['\\', letter]),
            control if control < ' ' => drop(write!(made, "\\u{:04x}", control as u32)),
            other => made.push(other),
        }
    }
    made.push('"');
    made
}

/// All connections of the process; sums for those that have ended.
#[derive(Default)]
pub(crate) struct Register {
    every: Mutex<Vec<(usize, Weak<Counters>)>>,
    count: AtomicU64,
    over: Mutex<BTreeMap<String, Sum>>,
    troubles: AtomicU64,
    writer: Mutex<Option<Sender<String>>>,
}

impl Register {
    /// Start to write to `destination`, a file or `unix:PATH`. Does nothing if it is empty.
    pub(crate) fn write_to(self: &Arc<Self>, destination: &str, log: &Log) {
        if destination.is_empty() {
            return;
        }
        let (to_writer, last_lines) = channel();
        *lock(&self.writer) = Some(to_writer);
        let (register, destination, log) =
            (Arc::downgrade(self), destination.to_owned(), log.clone());
        let made = std::thread::Builder::new()
            .name("busbw-net-stats".to_owned())
            .spawn(move || follow(&register, &last_lines, &destination, &log));
        drop(made); // without the thread there are no lines, but everything else works
    }

    /// Add a connection.
    pub(crate) fn add(&self, counters: &Arc<Counters>) -> usize {
        let number = self.count.fetch_add(1, Ordering::Relaxed) as usize;
        lock(&self.every).push((number, Arc::downgrade(counters)));
        number
    }

    /// Remove an ended connection: write its last line and add it to the summary. Returns whether
    /// it was the last.
    pub(crate) fn remove(&self, number: usize, counters: &Counters) -> bool {
        let last = {
            let mut every = lock(&self.every);
            every.retain(|(one, _)| *one != number);
            every.is_empty()
        };
        let mut over = lock(&self.over);
        for (nic, sum) in counters.nics() {
            *over.entry(nic.to_owned()).or_default() += sum;
        }
        self.troubles.fetch_add(counters.stalls.load(Ordering::Relaxed), Ordering::Relaxed);
        if let Some(writer) = &*lock(&self.writer) {
            let _ = writer.send(counters.line(number, now_s()));
        }
        last
    }

    /// One line about all ended connections. Counts chunks, but no inline messages.
    pub(crate) fn summary(&self) -> String {
        let over = lock(&self.over);
        let nics = over.iter().map(|(nic, Sum { bytes, chunks, referred })| {
            format!(
                "{nic} {:.3} GB in {chunks} chunks ({:.3} GB sent by reference)",
                *bytes as f64 / 1e9,
                *referred as f64 / 1e9
            )
        });
        let message = nics.collect::<Vec<_>>().join(", ");
        format!(
            "{} connections: {message}; {} stalls",
            self.count.load(Ordering::Relaxed),
            self.troubles.load(Ordering::Relaxed)
        )
    }
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

enum Target {
    File(File),
    Socket(UnixStream),
}

impl Target {
    fn open(destination: &str) -> std::io::Result<Self> {
        match destination.strip_prefix("unix:") {
            Some(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_write_timeout(Some(INTERVAL))?;
                Ok(Self::Socket(socket))
            }
            None => OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(destination)
                .map(Self::File),
        }
    }

    /// Lines are written whole, because several processes may append to one file.
    fn write(&mut self, lines: &str) -> std::io::Result<()> {
        match self {
            Self::File(file) => file.write_all(lines.as_bytes()),
            Self::Socket(socket) => socket.write_all(lines.as_bytes()),
        }
    }
}

/// Write once a second until the transport is dropped. Opens a failed target again, and warns once.
fn follow(register: &Weak<Register>, last_lines: &Receiver<String>, destination: &str, log: &Log) {
    let (mut target, mut warned, mut before) = (None, false, String::new());
    loop {
        let mut lines = String::new();
        match last_lines.recv_timeout(INTERVAL) {
            Ok(line) => {
                lines.push_str(&line);
                lines.extend(last_lines.try_iter());
            }
            Err(RecvTimeoutError::Timeout) => {
                let Some(register) = register.upgrade() else { return };
                let every = lock(&register.every).clone();
                let now = now_s();
                lines.extend(
                    every.iter().filter_map(|(number, counters)| {
                        Some(counters.upgrade()?.line(*number, now))
                    }),
                );
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let content = lines.split_once("\"pid\"").map_or("", |(_, rest)| rest).to_owned();
        if lines.is_empty() || content == before {
            continue; // nothing has changed
        }
        before = content;
        let written = match &mut target {
            Some(open) => Target::write(open, &lines),
            None => Target::open(destination).and_then(|mut open| {
                let written = open.write(&lines);
                target = Some(open);
                written
            }),
        };
        if let Err(error) = written {
            target = None;
            if !std::mem::replace(&mut warned, true) {
                log(Level::Warn, &format!("BUSBW_NET_STATS={destination}: {error}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_every_counter_and_quotes_names() {
        let counters =
            Counters::new("to \"x\\y\"".to_owned(), ["eth0", "eth1", "eth0"].map(str::to_owned));
        counters.message(1000);
        counters.chunk(0, 600);
        counters.chunk(2, 400);
        counters.referred(2, 300);
        counters.stall(2);
        counters.duplicate();
        counters.queue(5);
        let line = counters.line(3, 1.5);
        assert!(line.starts_with("{\"time_s\":1.500,\"pid\":"), "{line}");
        let rest = line.split_once("\"connection\"").unwrap().1;
        assert_eq!(
            rest,
            ":3,\"peer\":\"to \\\"x\\\\y\\\"\",\"messages\":1,\"bytes\":1000,\"resent_chunks\":2,\
            \"stalls\":1,\"chunks_twice\":1,\"queued_chunks\":5,\
             \"nics\":{\"eth0\":{\"bytes\":1000,\"chunks\":2,\"referred_bytes\":300},\
             \"eth1\":{\"bytes\":0,\"chunks\":0,\"referred_bytes\":0}}}\n"
        );
    }

    #[test]
    fn lines_reach_a_file_while_a_connection_lives_and_when_it_ends() {
        let path = std::env::temp_dir().join(format!("busbw-stats-{}", std::process::id()));
        let register = Arc::new(Register::default());
        let log: Log = Arc::new(|_, line| panic!("{line}"));
        register.write_to(path.to_str().unwrap(), &log);
        let counters = Arc::new(Counters::new("to x".to_owned(), ["eth0".to_owned()]));
        let number = register.add(&counters);
        counters.message(7);
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while std::fs::read_to_string(&path).unwrap_or_default().lines().count() < 1 {
            assert!(std::time::Instant::now() < until, "no line");
            std::thread::sleep(Duration::from_millis(20));
        }
        counters.message(8);
        register.remove(number, &counters);
        while !std::fs::read_to_string(&path).unwrap().contains("\"messages\":2,\"bytes\":15") {
            assert!(std::time::Instant::now() < until, "no last line");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::fs::remove_file(path).unwrap();
    }
}
