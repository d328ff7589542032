//! The sending end. Small messages go out at once on the inline stream, as do larger ones if
//! nothing else is being sent. Others go as chunks on any free stream.
//!
//! Messages are kept until the peer acknowledges them, so that another stream can resend what a
//! dead or stalled one carried.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use socket2::Socket;

use crate::caller_share::CallerShare;
use crate::config::Config;
use crate::error::{Error, Kind};
use crate::locks::lock;
use crate::log::Log;
use crate::pool::TaskRef;
use crate::request::{Completion, Request};
use crate::stall::Limits;
use crate::stats::Counters;
use crate::wire::{ACK_AT_LATEST, ACK_BYTES, ACK_EVERY, Chunk};

mod close;
pub(crate) use close::LINGER_ALL;
mod lanes;
pub(crate) use lanes::ReadPermit;
mod inline;
use inline::{InlineStream, Kept};

/// Small messages kept until acknowledged. When the limit is reached, the caller has to try again.
const MAX_KEPT: usize = 64;
/// NCCL has up to 32 messages in flight, whatever the peer has acknowledged.
const _: () = assert!(MAX_KEPT - (ACK_AT_LATEST - 1) >= 32);
/// Bytes of messages above the inline limit that are kept: the peer acknowledges half of it. When
/// the limit is reached, they go as chunks.
const KEPT_BYTES: usize = 2 * ACK_BYTES;
/// Acknowledgements are read when this many messages are kept. Two of them cover that many, so most
/// messages skip the read.
const READ_FROM: usize = 2 * ACK_EVERY;
const NONE: u8 = u8::MAX;
const SMALLEST_CHUNK: usize = 64 << 10;
const LARGEST_CHUNK: usize = 512 << 10;
const PAGE: usize = 4096;

/// A chunk and the address of its bytes.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) chunk: Chunk,
    pub(crate) data: *const u8,
    /// Owns the memory behind `data` if that is the copy of a small message.
    _kept: Option<Arc<[u8]>>,
}

// SAFETY: `data` is read only while `SendCore::read` permits it, and until then the caller keeps
// the buffer; or `_kept` owns it.
unsafe impl Send for Job {}

/// A message sent as chunks, until it is acknowledged.
struct InFlight {
    /// The slot of its request; None for a small message, whose request was done before.
    request: Option<usize>,
    /// The first chunk.
    job: Job,
    /// The stream that took each chunk.
    carriers: Vec<u8>,
    /// Threads that are in a system call with its bytes.
    readers: usize,
}

impl InFlight {
    fn new(request: Option<usize>, chunk: Chunk, data: *const u8, kept: Option<Arc<[u8]>>) -> Self {
        Self {
            request,
            job: Job { chunk, data, _kept: kept },
            carriers: vec![NONE; chunk.count()],
            readers: 0,
        }
    }

    fn seq(&self) -> u64 {
        self.job.chunk.seq
    }

    fn job(&self, number: usize) -> Job {
        let offset = number as u64 * u64::from(self.job.chunk.chunk);
        let Job { chunk, data, .. } = self.job;
        Job {
            chunk: Chunk { offset, ..chunk },
            data: data.wrapping_add(offset as usize),
            ..self.job.clone()
        }
    }
}

/// How a message is sent.
enum Way<'a> {
    /// By the caller, on the inline stream.
    Inline(MutexGuard<'a, InlineStream>),
    /// By the I/O threads.
    Chunks,
    /// Not now.
    Wait,
}

#[derive(Default)]
pub(crate) struct State {
    next: u64,
    queue: VecDeque<Job>,
    in_flight: VecDeque<InFlight>,
    /// Acknowledged messages that a thread still reads, as when a stalled stream resumes at that
    /// moment.
    retired: Vec<InFlight>,
    idle: u64,
    dead: u64,
    stalled: u64,
    slot: usize,
    /// No thread may start to read callers' buffers.
    closed: bool,
}

/// The state shared by the streams and callers of a sending end.
pub(crate) struct SendCore {
    pub(crate) label: String,
    pub(crate) config: Arc<Config>,
    pub(crate) limits: Limits,
    pub(crate) log: Log,
    pub(crate) counters: Arc<Counters>,
    state: Mutex<State>,
    inline: Mutex<InlineStream>,
    inline_down: AtomicBool,
    failed: OnceLock<Error>,
    requests: Box<[Request]>,
    tasks: OnceLock<Vec<TaskRef>>,
    /// Streams that carry nothing while any other works.
    spare: u64,
    unacknowledged: AtomicUsize,
    caller_share: Arc<CallerShare>,
}

impl SendCore {
    pub(crate) fn new(
        label: String,
        config: Arc<Config>,
        log: Log,
        counters: Arc<Counters>,
        inline: Socket,
        spare: u64,
        caller_share: Arc<CallerShare>,
    ) -> Arc<Self> {
        let inline = InlineStream::new(inline);
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            label,
            limits: Limits::of(&config),
            config,
            log,
            counters,
            state: Mutex::default(),
            inline: Mutex::new(inline),
            inline_down: AtomicBool::new(false),
            failed: OnceLock::new(),
            requests: Request::slots(this.as_ptr()),
            tasks: OnceLock::new(),
            spare,
            unacknowledged: AtomicUsize::new(0),
            caller_share,
        })
    }

    /// Set the chunk streams, once they have their tasks.
    pub(crate) fn set_tasks(&self, tasks: Vec<TaskRef>) {
        let _ = self.tasks.set(tasks);
    }

    fn tasks(&self) -> &[TaskRef] {
        self.tasks.get().map_or(&[], Vec::as_slice)
    }

    // Called by the caller's thread.

    /// # Safety
    /// As for `Sender::isend`.
    pub(crate) unsafe fn isend(
        &self,
        data: *const u8,
        size: usize,
    ) -> Result<Option<NonNull<Request>>, Error> {
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        let mut state = lock(&self.state);
        let slot = state.slot;
        let request = &self.requests[slot];
        if request.is_taken() {
            return Ok(None);
        }
        match self.way(&mut state, size)? {
            Way::Wait => return Ok(None),
            Way::Inline(mut inline) => {
                request.take();
                let bytes = if size == 0 {
                    Arc::default()
                } else {
                    // SAFETY: isend's caller guarantees that `data` is readable for `size` bytes
                    // during this call; the copy is made here.
                    unsafe { std::slice::from_raw_parts(data, size) }.into()
                };
                let seq = state.sequence();
                let monitor = self.alive(&state).trailing_zeros() as usize;
                self.send_inline(&mut inline, Kept { seq, bytes }, slot, monitor);
                // After sending, so that no one waits for this read. The next call returns the
                // error.
                if inline.kept.len() >= READ_FROM {
                    let _ = self.read_acks(&mut inline, &mut state);
                }
            }
            Way::Chunks => {
                request.take();
                let seq = state.sequence();
                let chunk =
                    Chunk { seq, total: size as u64, offset: 0, chunk: self.chunk_size(size) };
                self.start_message(&mut state, InFlight::new(Some(slot), chunk, data, None));
            }
        }
        state.slot = (slot + 1) % self.requests.len();
        self.counters.message(size as u64);
        Ok(Some(NonNull::from(request)))
    }

    /// How a message of this size is sent now. Waking another thread takes longer than copying and
    /// sending some 100 KiB; but the streams of several threads carry more, so they get what comes
    /// while something is being sent.
    fn way(&self, state: &mut State, size: usize) -> Result<Way<'_>, Error> {
        let small = size <= self.config.inline;
        let fits = small || size <= self.config.inline_idle && self.is_idle(state);
        if !fits || self.inline_down.load(Ordering::Relaxed) {
            return Ok(Way::Chunks);
        }
        let mut inline = lock(&self.inline);
        if !inline.has_room(size, small) {
            self.read_acks(&mut inline, state)?;
        }
        Ok(match (inline.has_room(size, small), small) {
            (true, true) => Way::Inline(inline),
            (true, false) if self.caller_share.take(size) => Way::Inline(inline),
            (false, true) => Way::Wait,
            (_, false) => Way::Chunks,
        })
    }

    /// Whether the caller has collected all that it has sent, and no chunk is on its way.
    fn is_idle(&self, state: &State) -> bool {
        let last = state.slot.checked_sub(1).unwrap_or(self.requests.len() - 1);
        state.in_flight.is_empty() && !self.requests[last].is_taken()
    }

    /// Divide evenly between streams, but not so small that headers cost much, nor so large that
    /// one stream delays the rest.
    fn chunk_size(&self, size: usize) -> u32 {
        let fitting = if self.config.chunk > 0 {
            self.config.chunk
        } else {
            size.div_ceil((self.tasks().len() - self.spare.count_ones() as usize).max(1))
                .next_multiple_of(PAGE)
                .clamp(SMALLEST_CHUNK, LARGEST_CHUNK)
        };
        // A header can name at most MAX_CHUNKS chunks, so very large messages get larger ones.
        fitting.max(size.div_ceil(crate::wire::MAX_CHUNKS as usize)) as u32
    }

    fn start_message(&self, state: &mut State, in_flight: InFlight) {
        let count = in_flight.carriers.len();
        state.queue.extend((0..count).map(|number| in_flight.job(number)));
        state.in_flight.push_back(in_flight);
        self.unacknowledged.fetch_add(1, Ordering::Relaxed);
        self.kick(state, count);
    }

    /// Wake as many idle streams as there are chunks.
    fn kick(&self, state: &mut State, mut work: usize) {
        let mut idle = state.idle & self.usable(state);
        while idle != 0 && work > 0 {
            let lane = idle.trailing_zeros() as usize;
            idle &= idle - 1;
            state.idle &= !(1 << lane);
            work -= 1;
            self.tasks()[lane].kick();
        }
    }

    fn alive(&self, state: &State) -> u64 {
        let all = (1u64 << self.tasks().len()) - 1;
        all & !state.dead
    }

    /// The streams that may take chunks.
    fn usable(&self, state: &State) -> u64 {
        let working = self.alive(state) & !state.stalled;
        if working & !self.spare == 0 { working } else { working & !self.spare }
    }

    pub(crate) fn error(&self, kind: Kind, why: &str) -> Error {
        Error::new(kind, format!("{}: {why}", self.label))
    }
}

impl State {
    fn sequence(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}

impl Completion for SendCore {
    fn test(&self, request: &Request) -> Result<Option<usize>, Error> {
        if let Some(bytes) = request.finish() {
            return Ok(Some(bytes));
        }
        let mut inline = lock(&self.inline);
        if !inline.backlog.is_empty() {
            self.flush_inline(&mut inline);
        }
        drop(inline);
        TaskRef::help(self.tasks());
        if let Some(bytes) = request.finish() {
            return Ok(Some(bytes));
        }
        self.failed.get().map_or(Ok(None), |error| Err(error.clone()))
    }
}
