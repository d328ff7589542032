//! Turns events into records of this process's file.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::file::{CaptureFile, clock};
use crate::gpu_clock::{GpuClock, Span, Untimed};
use crate::record::{Call, Kind, Record, flag};
use crate::ring::header;
use crate::timing::Timings;

/// Slots of the ring: 4 MiB, which 5 million calls a second fill within the interval.
const SLOTS: usize = 65_536;
/// How often records leave the ring.
const INTERVAL: Duration = Duration::from_millis(10);
/// Bytes of a name in one record.
const TEXT_BYTES: usize = 40;

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Calls, sizes and order.
    Cheap,
    /// Durations on the GPU too.
    Timed,
}

/// A collective, send or receive that NCCL has enqueued.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// `Kind::Coll` or `Kind::P2p`.
    pub kind: Kind,
    /// What was called.
    pub call: Call,
    /// Number of the API call, 0: unknown.
    pub api: u64,
    /// NCCL's sequence number.
    pub sequence: u64,
    /// Number of its launch's timing; 0: none.
    pub launch: u64,
    /// Whether NCCL reports its kernels.
    pub kernels: bool,
}

/// The recorder of a process.
#[derive(Debug)]
pub struct Recorder {
    file: CaptureFile,
    mode: Mode,
    timings: Timings,
    gpu_clock: Option<GpuClock>,
    comms: AtomicU32,
    calls: AtomicU64,
    numbers: AtomicU64,
    groups: AtomicU64,
}

impl Recorder {
    /// Create the first of these files that does not exist, and the thread that empties the ring.
    /// `text` describes the process. Without a `gpu_clock` times are those that NCCL reports of its
    /// kernels. Returns the file's path too.
    ///
    /// # Errors
    /// As `CaptureFile::create`, or the thread cannot be started.
    pub fn start(
        paths: impl IntoIterator<Item = PathBuf>,
        mode: Mode,
        text: &str,
        gpu_clock: Option<GpuClock>,
    ) -> io::Result<(PathBuf, Arc<Self>)> {
        let (path, file) = CaptureFile::create(paths, SLOTS, text)?;
        let zero = || AtomicU64::new(0);
        let (comms, timings) = (AtomicU32::new(0), Timings::new());
        let recorder = Arc::new(Self {
            file,
            mode,
            timings,
            gpu_clock,
            comms,
            calls: zero(),
            numbers: zero(),
            groups: zero(),
        });
        let weak = Arc::downgrade(&recorder);
        let undo = block_signals();
        let started =
            thread::Builder::new().name("busbw-capture".into()).spawn(move || drain(&weak));
        // SAFETY: the mask is what the same call has written.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const undo, std::ptr::null_mut()) };
        started.map(|_| (path, recorder))
    }

    /// What it records.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The clock of launches, if they are timed by events.
    pub const fn gpu_clock(&self) -> Option<&GpuClock> {
        self.gpu_clock.as_ref()
    }

    /// The version of NCCL and of the interface that it uses.
    pub fn nccl(&self, version: u64, interface: u64) {
        self.file.ring().word(header::NCCL).store(version, Ordering::Relaxed);
        self.file.ring().word(header::INTERFACE).store(interface, Ordering::Relaxed);
    }

    /// A communicator begins; returns its number.
    pub fn comm(&self, id: u64, name: &str, rank: i32, ranks: u64, hosts: u64) -> u32 {
        let comm = self.comms.fetch_add(1, Ordering::Relaxed);
        let call = Call { peer: rank, count: ranks, ..Call::default() };
        self.put(Kind::Comm, call, comm, id, hosts, name.len() as u64);
        for piece in name.as_bytes().chunks(TEXT_BYTES) {
            let mut bytes = [0; TEXT_BYTES];
            bytes[..piece.len()].copy_from_slice(piece);
            let word =
                |at: usize| u64::from_le_bytes(*bytes[8 * at..].first_chunk().unwrap_or(&[0; 8]));
            let call = Call { count: word(1), ..Call::default() };
            self.push(&Record {
                kind: Kind::Text,
                call,
                comm,
                time: word(0),
                id: word(2),
                a: word(3),
                b: word(4),
            });
        }
        comm
    }

    /// A communicator ends. The process may end next, so a ring that only this process has is
    /// written.
    pub fn comm_end(&self, comm: u32) {
        self.read_times();
        self.put(Kind::CommEnd, Call::default(), comm, 0, 0, 0);
        if !self.file.is_shared() {
            self.file.drain();
        }
    }

    /// A group of calls begins; returns its number.
    pub fn group(&self) -> u64 {
        self.groups.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The application has called NCCL; returns the number of the call. `kind` is `CollCall` or
    /// `P2pCall`.
    pub fn api(&self, kind: Kind, comm: u32, call: Call, stream: u64, group: u64) -> u64 {
        let id = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        self.put(kind, call, comm, id, stream, group);
        id
    }

    /// A new number for a timing or plan.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// NCCL has enqueued it; returns the number of its timing, 0 without. Its launch's time is
    /// preferred to that of its kernel.
    pub fn task(&self, comm: u32, task: &Task) -> u64 {
        let kernel =
            task.launch == 0 && task.kernels && self.mode == Mode::Timed && task.call.channels > 0;
        let id = if kernel { self.number() } else { task.launch };
        if kernel && self.timings.begin(id, task.call.channels) {
            self.file.ring().word(header::UNTIMED).fetch_add(1, Ordering::Relaxed);
        }
        self.put(task.kind, task.call, comm, task.api, task.sequence, id);
        id
    }

    /// A call without a task has this timing.
    pub fn call_timing(&self, comm: u32, call: u64, timing: u64) {
        self.put(Kind::CallTiming, Call::default(), comm, call, 0, timing);
    }

    /// A communicator launches after its calls have returned.
    pub fn deferred(&self, comm: u32) {
        self.put(Kind::Deferred, Call::default(), comm, 0, 0, 0);
    }

    /// A launch has no time. The user is told once for each reason.
    pub fn untimed(&self, reason: Untimed) {
        let word = match reason {
            Untimed::NoEvent => header::NO_EVENT,
            Untimed::Captured => header::CAPTURED,
            Untimed::Failed(_) => header::FAILED,
            Untimed::Ended => return,
        };
        let first = self.file.ring().word(word).fetch_add(1, Ordering::Relaxed) == 0;
        if let (true, Some(clock)) = (first, &self.gpu_clock) {
            clock.say(reason);
        }
    }

    /// Record the times of launches that have ended.
    pub fn read_times(&self) {
        if let Some(clock) = &self.gpu_clock {
            clock.read(&mut |time| self.time(time));
        }
    }

    /// The same as the process ends; the driver is not called again.
    pub fn read_last_times(&self) {
        if let Some(clock) = &self.gpu_clock {
            clock.read_last(&mut |time| self.time(time));
            self.file.drain();
        }
    }

    fn time(&self, time: Result<Span, Untimed>) {
        match time {
            Ok(span) => {
                let flags = if span.around_call { flag::AROUND_CALL } else { flag::EVENTS };
                self.put(
                    Kind::Timed,
                    Call { flags, ..Call::default() },
                    0,
                    span.timing,
                    span.start,
                    span.end,
                );
            }
            Err(reason) => self.untimed(reason),
        }
    }

    /// A channel of a timing has started, by the GPU's clock in ns.
    pub fn channel_started(&self, timing: u64, time: u64) {
        self.timings.started(timing, time);
    }

    /// A channel of a timing has ended.
    pub fn channel_ended(&self, timing: u64, time: u64) {
        if let Some((start, end)) = self.timings.ended(timing, time) {
            self.put(Kind::Timed, Call::default(), 0, timing, start, end);
        }
    }

    fn put(&self, kind: Kind, call: Call, comm: u32, id: u64, a: u64, b: u64) {
        self.push(&Record { kind, call, comm, time: clock(libc::CLOCK_MONOTONIC), id, a, b });
    }

    fn push(&self, record: &Record) {
        self.file.ring().push(&record.words());
    }
}

/// Block all signals of this thread, so that a new one takes none of the application's; returns the
/// mask until now.
fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are plain data, which these calls write.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

/// Empty the ring until the recorder is gone.
fn drain(recorder: &Weak<Recorder>) {
    while let Some(recorder) = recorder.upgrade() {
        recorder.read_times();
        recorder.file.drain();
        drop(recorder);
        thread::sleep(INTERVAL);
    }
}
