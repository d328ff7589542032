//! The receiving end. Buffers are posted in message order; chunks find theirs by number and are read
//! into it. A chunk may arrive twice if a stream was declared stalled too early. It counts once, and
//! no one writes to the buffer of a complete message.

use std::collections::VecDeque;
use std::net::Shutdown;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use crate::budget::Budget;
use crate::error::{Error, Kind};
use crate::listen::Welcomed;
use crate::locks::lock;
use crate::log::{Level, Log};
use crate::pool::TaskRef;
use crate::request::{Completion, Request};
use crate::stats::Counters;
use crate::wire::Chunk;

mod early;
mod inline;
pub(crate) use early::{EarlyChunk, Progress, early_budget};
use inline::InlineStream;
pub(crate) use inline::flush;

/// Interval between checks for remaining writers.
const PAUSE: Duration = Duration::from_micros(100);
/// The bit of the inline stream among those of the chunk streams.
const INLINE: usize = 63;

/// What to do with a chunk.
pub(crate) enum Claim {
    /// Write its bytes here, while `begin_write` permits it.
    Into(*mut u8),
    /// It has arrived before: discard it. If its whole message has, holds the number below which
    /// all messages are complete, as the peer may not know yet.
    Stale(Option<u64>),
    /// No buffer is posted for its message yet.
    Early,
}

struct Post {
    request: usize,
    buffer: *mut u8,
    /// Bytes of the buffer.
    room: usize,
    total: u64,
    /// Bytes of each chunk but the last.
    chunk: u32,
    /// One bit for each chunk; empty before the first.
    seen: Vec<u64>,
    left: usize,
    /// Threads that are writing to the buffer.
    writers: usize,
    complete: bool,
}

impl Post {
    /// Take the first chunk: it gives the message's size.
    fn begin(&mut self, chunk: &Chunk) -> Result<(), Error> {
        let Chunk { seq, total, .. } = chunk;
        if *total > self.room as u64 {
            let sizes = format!("message {seq} has {total} bytes, but {} were posted", self.room);
            return Err(Error::new(
                Kind::Usage,
                format!("{sizes}: the ranks' operations or settings differ"),
            ));
        }
        (self.total, self.chunk) = (chunk.total, chunk.chunk);
        self.left = chunk.count();
        self.seen = vec![0; self.left.div_ceil(64)];
        Ok(())
    }
}

#[derive(Default)]
struct State {
    /// Number of the first post.
    base: u64,
    posts: VecDeque<Post>,
    /// Messages without a buffer, and the streams that wait for one.
    waiting: Vec<(u64, usize)>,
    /// The early-arrival buffer.
    early: Vec<EarlyChunk>,
    /// Acknowledgements that any stream may send.
    acks: Vec<(u64, u64)>,
    /// Streams whose acknowledgements do not arrive.
    stuck: u64,
    dead: u64,
    slot: usize,
    /// Chunks written so far.
    chunks: u64,
    /// Threads that are writing to callers' buffers, and whether no more may start.
    writing: usize,
    closed: bool,
}

// SAFETY: the addresses are callers' buffers, which irecv's caller keeps writable until the request
// is done or the connection closed. They are written only between begin_write and end_write.
unsafe impl Send for State {}

/// The state shared by the streams and callers of a receiving end.
pub(crate) struct RecvCore {
    pub(crate) label: String,
    pub(crate) log: Log,
    pub(crate) counters: Arc<Counters>,
    state: Mutex<State>,
    inline: Mutex<InlineStream>,
    /// All chunk streams have ended; only the inline stream may bring more.
    lanes_ended: AtomicBool,
    failed: OnceLock<Error>,
    /// Why no more data will arrive, while the early-arrival buffer still holds some.
    gone: OnceLock<Error>,
    requests: Box<[Request]>,
    tasks: OnceLock<Vec<TaskRef>>,
    /// How often the caller tested without success. If it does not increase, the caller is not
    /// waiting.
    asked: AtomicU64,
    early_budget: Arc<Budget>,
}

impl RecvCore {
    pub(crate) fn new(
        label: String,
        log: Log,
        counters: Arc<Counters>,
        inline: Welcomed,
        early_budget: &Arc<Budget>,
    ) -> Arc<Self> {
        let inline = InlineStream::new(inline.socket, &inline.first[..inline.have]);
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            label,
            log,
            counters,
            state: Mutex::default(),
            inline: Mutex::new(inline),
            lanes_ended: AtomicBool::new(false),
            failed: OnceLock::new(),
            gone: OnceLock::new(),
            requests: Request::slots(this.as_ptr()),
            tasks: OnceLock::new(),
            asked: AtomicU64::new(0),
            early_budget: early::connection_budget(early_budget),
        })
    }

    pub(crate) fn set_tasks(&self, tasks: Vec<TaskRef>) {
        let _ = self.tasks.set(tasks);
    }

    fn tasks(&self) -> &[TaskRef] {
        self.tasks.get().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn fail(&self, error: Error) {
        if self.failed.set(error.clone()).is_ok() {
            (self.log)(Level::Info, &error.message); // the next call returns it as a warning
        }
    }

    pub(crate) fn error(&self, kind: Kind, why: &str) -> Error {
        Error::new(kind, format!("{}: {why}", self.label))
    }

    // Called by the caller's thread.

    /// # Safety
    /// As for `Receiver::irecv`.
    pub(crate) unsafe fn irecv(
        &self,
        buffer: *mut u8,
        room: usize,
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
        request.take();
        state.slot = (slot + 1) % self.requests.len();
        state.posts.push_back(Post {
            request: slot,
            buffer,
            room,
            total: 0,
            chunk: 0,
            seen: Vec::new(),
            left: 0,
            writers: 0,
            complete: false,
        });
        let posted = state.base + state.posts.len() as u64;
        state.waiting.retain(|&(seq, lane)| {
            let now = seq < posted;
            if now {
                self.tasks()[lane].kick();
            }
            !now
        });
        let blocked = !state.early.is_empty();
        drop(state);
        if blocked {
            self.deliver_early(posted)?;
        }
        Ok(Some(NonNull::from(request)))
    }

    /// Wait until no thread writes to callers' buffers and let none start again. Also closes the
    /// inline stream.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        while lock(&self.state).writing > 0 {
            std::thread::sleep(PAUSE); // a thread is in a system call that copies some hundred KB
        }
        // shutdown, as close would not end a socket that a forked child still has open
        let _ = lock(&self.inline).socket.shutdown(Shutdown::Both);
    }

    // Called by any thread.

    /// Find where a chunk's bytes go. `lane` is None in the caller's thread.
    pub(crate) fn claim(&self, chunk: &Chunk, lane: Option<usize>) -> Result<Claim, Error> {
        let mut state = lock(&self.state);
        if chunk.seq < state.base {
            return Ok(Claim::Stale(Some(state.base)));
        }
        let at = (chunk.seq - state.base) as usize;
        if at >= state.posts.len() {
            if let Some(wait) =
                lane.map(|lane| (chunk.seq, lane)).filter(|wait| !state.waiting.contains(wait))
            {
                state.waiting.push(wait);
            }
            return Ok(Claim::Early);
        }
        let State { posts, base, .. } = &mut *state;
        let post = &mut posts[at];
        if post.complete {
            return Ok(Claim::Stale(Some(*base)));
        }
        if post.seen.is_empty() {
            post.begin(chunk)?;
            self.requests[post.request].by_chunks.store(lane.is_some(), Ordering::Relaxed);
        } else if (chunk.total, chunk.chunk) != (post.total, post.chunk) {
            return Err(Error::new(
                Kind::Remote,
                format!("the chunks of message {} contradict each other", chunk.seq),
            ));
        }
        let index = chunk.index();
        if post.left == 0 || post.seen[index / 64] & (1 << (index % 64)) != 0 {
            return Ok(Claim::Stale(None));
        }
        Ok(Claim::Into(post.buffer.wrapping_add(chunk.offset as usize)))
    }

    /// Register as a writer of a chunk until `finish_write` or `pause_write`. False if the message
    /// has been completed by others or the connection closed.
    pub(crate) fn begin_write(&self, chunk: &Chunk) -> bool {
        let mut state = lock(&self.state);
        let State { posts, base, closed, writing, .. } = &mut *state;
        let Some(at) = chunk.seq.checked_sub(*base) else { return false };
        let Some(post) = posts.get_mut(at as usize) else { return false };
        let open = !*closed && !post.complete && post.left > 0;
        post.writers += usize::from(open);
        *writing += usize::from(open);
        open
    }

    /// A writer stops before the end of its chunk.
    pub(crate) fn pause_write(&self, chunk: &Chunk) -> Option<u64> {
        self.end_write(chunk, false)
    }

    /// A writer has written its whole chunk. If that completes the message, returns the number
    /// below which all are complete.
    pub(crate) fn finish_write(&self, chunk: &Chunk) -> Option<u64> {
        self.end_write(chunk, true)
    }

    fn end_write(&self, chunk: &Chunk, whole: bool) -> Option<u64> {
        let mut state = lock(&self.state);
        let State { posts, base, chunks, writing, .. } = &mut *state;
        *writing -= 1;
        let post = posts.get_mut(chunk.seq.checked_sub(*base)? as usize)?;
        post.writers -= 1;
        let (word, bit) = (chunk.index() / 64, 1 << (chunk.index() % 64));
        if whole && post.seen[word] & bit == 0 {
            post.seen[word] |= bit;
            post.left -= 1;
            *chunks += 1;
        }
        if post.left > 0 || post.writers > 0 || post.complete {
            return None;
        }
        post.complete = true;
        self.requests[post.request].complete(post.total);
        self.counters.message(post.total);
        while posts.front().is_some_and(|post| post.complete) {
            posts.pop_front();
            *base += 1;
        }
        Some(*base)
    }

    /// A stream (INLINE for the inline stream) has ended. If it was the last, so has the
    /// connection.
    pub(crate) fn stream_ended(&self, lane: usize, why: &str) {
        let mut state = lock(&self.state);
        state.dead |= 1 << lane;
        let lanes = (1u64 << self.tasks().len()) - 1;
        let (lanes_ended, all_ended) =
            (state.dead & lanes == lanes, state.dead == lanes | 1 << INLINE);
        let (left, blocked) = (!state.early.is_empty(), !state.posts.is_empty());
        // under the lock, so that the last of two streams that end at once decides
        self.lanes_ended.store(lanes_ended, Ordering::Relaxed);
        if !lanes_ended {
            self.repeat_acks(&mut state); // its last acknowledgements may be lost
        }
        drop(state);
        if all_ended {
            let error = self.error(Kind::Remote, why);
            if left { drop(self.gone.set(error)) } else { self.fail(error) }
        } else if blocked {
            let which = if lane == INLINE {
                "the inline stream".to_owned()
            } else {
                format!("stream {lane}")
            };
            (self.log)(Level::Info, &format!("{}: {which} has ended ({why})", self.label));
        }
    }
}

impl Completion for RecvCore {
    fn test(&self, request: &Request) -> Result<Option<usize>, Error> {
        if let Some(bytes) = request.finish() {
            return Ok(Some(bytes));
        }
        if !request.by_chunks.load(Ordering::Relaxed) || self.lanes_ended.load(Ordering::Relaxed) {
            if let Ok(mut inline) = self.inline.try_lock() {
                if let Some(error) =
                    (!inline.finished).then(|| self.read_inline(&mut inline)).and_then(Result::err)
                {
                    self.fail(self.error(error.kind, &error.message));
                }
            }
            if let Some(bytes) = request.finish() {
                return Ok(Some(bytes));
            }
        }
        let helped = TaskRef::help(self.tasks());
        if let Some(bytes) = helped.then(|| request.finish()).flatten() {
            return Ok(Some(bytes));
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.failed.get().or(self.gone.get()).map_or(Ok(None), |error| Err(error.clone()))
    }
}
