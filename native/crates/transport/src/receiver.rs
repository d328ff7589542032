//! The receiving end: buffers are posted in the order of messages; chunks find theirs by number and go straight into it.
//!
//! A chunk may come twice, when a stream was given up too early: it counts once, and nothing is written into a buffer whose message is
//! complete.

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
use crate::request::{Completion, MAX_GROUP, Request};
use crate::stats::Counters;
use crate::wire::Chunk;

mod early;
mod inline;
pub(crate) use early::{EarlyChunk, Progress, early_budget};
use inline::InlineStream;
pub(crate) use inline::flush;

/// Between looks for writers that have left.
const PAUSE: Duration = Duration::from_micros(100);
/// The stream of small messages, among the bits of streams.
const INLINE: usize = 63;

/// A buffer to fill: address, bytes, tag.
pub(crate) type Buffer = (*mut u8, usize, i32);

/// What a chunk's header leads to.
pub(crate) enum Claim {
    /// Its bytes go here, by whom `resume` lets.
    Into(*mut u8),
    /// It has come before: read and forget. Where its whole message has, the peer does not know yet: the number below which all are
    /// complete.
    Stale(Option<u64>),
    /// No buffer is posted for its message yet.
    Early,
}

struct Post {
    request: usize,
    /// Buffer of the request: known at once, or by the tag of the first chunk of a grouped receive.
    part: Option<usize>,
    total: u64,
    /// Bytes of each chunk but the last.
    chunk: u32,
    /// One bit a chunk; empty before the first.
    seen: Vec<u64>,
    left: usize,
    /// Threads that write into the buffer at this moment.
    writers: usize,
    complete: bool,
}

impl Post {
    /// The first chunk has come: which of the request's buffers it belongs into, and what else will come.
    fn begin(&mut self, chunk: &Chunk, group: &mut [(Buffer, bool)]) -> Result<(), Error> {
        let with_its_tag = || group.iter().position(|((_, _, tag), taken)| !taken && *tag == chunk.tag);
        let part = self.part.or_else(with_its_tag).ok_or_else(|| {
            Error::new(Kind::Usage, format!("a message with tag {} came for a group of receives that has none left with it", chunk.tag))
        })?;
        let ((_, room, _), taken) = &mut group[part];
        *taken = true;
        if chunk.total > *room as u64 {
            let sizes = format!("message {} has {} bytes, {room} were posted", chunk.seq, chunk.total);
            return Err(Error::new(Kind::Usage, format!("{sizes}: do all ranks have the same NCCL settings?")));
        }
        self.part = Some(part);
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
    /// Buffers of each request, taken ones marked.
    groups: Vec<Vec<(Buffer, bool)>>,
    /// Streams that wait for a message to be posted.
    waiting: Vec<(u64, usize)>,
    /// Chunks that do.
    early: Vec<EarlyChunk>,
    /// Acknowledgements for whichever stream comes first.
    acks: Vec<(u64, u64)>,
    /// Streams whose acknowledgements do not arrive.
    stuck: u64,
    dead: u64,
    slot: usize,
    /// Chunks written so far.
    chunks: u64,
    /// Threads that write into callers' buffers at this moment, and whether none may begin.
    writing: usize,
    closed: bool,
}

// SAFETY: the addresses are the caller's buffers, writable until the requests are done.
unsafe impl Send for State {}

/// What streams and callers of a receiving end share.
pub(crate) struct RecvCore {
    pub(crate) label: String,
    pub(crate) log: Log,
    pub(crate) counters: Arc<Counters>,
    state: Mutex<State>,
    inline: Mutex<InlineStream>,
    /// All that may still come is in the stream of small messages.
    lanes_over: AtomicBool,
    failed: OnceLock<Error>,
    /// Why nothing more comes, while what is kept aside can still be received.
    gone: OnceLock<Error>,
    requests: Box<[Request]>,
    tasks: OnceLock<Vec<TaskRef>>,
    /// Times the caller has tested in vain: while it does not, nobody waits.
    asked: AtomicU64,
    early_budget: Arc<Budget>,
}

impl RecvCore {
    pub(crate) fn new(label: String, log: Log, counters: Arc<Counters>, inline: Welcomed, early_budget: &Arc<Budget>) -> Arc<Self> {
        let inline = InlineStream::new(inline.socket, &inline.first[..inline.have]);
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            label,
            log,
            counters,
            state: Mutex::new(State { groups: vec![Vec::new(); crate::request::SLOTS], ..State::default() }),
            inline: Mutex::new(inline),
            lanes_over: AtomicBool::new(false),
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
            (self.log)(Level::Info, &error.message); // whoever calls next gets it, and warns
        }
    }

    pub(crate) fn error(&self, kind: Kind, why: &str) -> Error {
        Error::new(kind, format!("{}: {why}", self.label))
    }

    // -- the caller's thread ---------------------------------------------------------------------------------------

    /// # Safety
    /// As Receiver::irecv.
    pub(crate) unsafe fn irecv(&self, buffers: &[Buffer]) -> Result<Option<NonNull<Request>>, Error> {
        if buffers.is_empty() || buffers.len() > MAX_GROUP {
            return Err(Error::new(
                Kind::Usage,
                format!("{}: a receive of {} buffers, 1 to {MAX_GROUP} are possible", self.label, buffers.len()),
            ));
        }
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        let mut state = lock(&self.state);
        let slot = state.slot;
        let request = &self.requests[slot];
        if request.is_taken() {
            return Ok(None);
        }
        request.take(buffers.len());
        state.slot = (slot + 1) % self.requests.len();
        state.groups[slot].clear();
        state.groups[slot].extend(buffers.iter().map(|buffer| (*buffer, buffers.len() == 1)));
        let part = (buffers.len() == 1).then_some(0);
        for _ in buffers {
            state.posts.push_back(Post { request: slot, part, total: 0, chunk: 0, seen: Vec::new(), left: 0, writers: 0, complete: false });
        }
        let posted = state.base + state.posts.len() as u64;
        state.waiting.retain(|&(seq, lane)| {
            let now = seq < posted;
            if now {
                self.tasks()[lane].kick();
            }
            !now
        });
        let waits = !state.early.is_empty();
        drop(state);
        if waits {
            self.deliver_early(posted)?;
        }
        Ok(Some(NonNull::from(request)))
    }

    /// Callers' buffers are written by nobody after this, whatever the threads do; and the stream of small messages is closed.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        while lock(&self.state).writing > 0 {
            std::thread::sleep(PAUSE); // a thread is inside the kernel, copying some hundred kilobytes
        }
        // By name: a child of fork() may hold it open.
        let _ = lock(&self.inline).socket.shutdown(Shutdown::Both);
    }

    // -- any thread ------------------------------------------------------------------------------------------------

    /// Where a chunk's bytes go. `lane` None is the caller's thread.
    pub(crate) fn claim(&self, chunk: &Chunk, lane: Option<usize>) -> Result<Claim, Error> {
        let mut state = lock(&self.state);
        if chunk.seq < state.base {
            return Ok(Claim::Stale(Some(state.base)));
        }
        let at = (chunk.seq - state.base) as usize;
        if at >= state.posts.len() {
            if let Some(wait) = lane.map(|lane| (chunk.seq, lane)).filter(|wait| !state.waiting.contains(wait)) {
                state.waiting.push(wait);
            }
            return Ok(Claim::Early);
        }
        let State { posts, groups, base, .. } = &mut *state;
        let post = &mut posts[at];
        if post.complete {
            return Ok(Claim::Stale(Some(*base)));
        }
        if post.seen.is_empty() {
            let group = &mut groups[post.request];
            post.begin(chunk, group)?;
            self.requests[post.request].by_chunks.store(lane.is_some() && group.len() == 1, Ordering::Relaxed);
        } else if (chunk.total, chunk.chunk) != (post.total, post.chunk) {
            return Err(Error::new(Kind::Remote, format!("chunks of message {} contradict each other", chunk.seq)));
        }
        let index = chunk.index();
        if post.left == 0 || post.seen[index / 64] & (1 << (index % 64)) != 0 {
            return Ok(Claim::Stale(None));
        }
        let (address, _, _) = groups[post.request][post.part.unwrap_or(0)].0;
        Ok(Claim::Into(address.wrapping_add(chunk.offset as usize)))
    }

    /// Become a writer of a chunk until `written` or `paused`: false where its message has been completed by others, or the buffers are the
    /// caller's again.
    pub(crate) fn resume(&self, chunk: &Chunk) -> bool {
        let mut state = lock(&self.state);
        let State { posts, base, closed, writing, .. } = &mut *state;
        let Some(at) = chunk.seq.checked_sub(*base) else { return false };
        let Some(post) = posts.get_mut(at as usize) else { return false };
        let open = !*closed && !post.complete && post.left > 0;
        post.writers += usize::from(open);
        *writing += usize::from(open);
        open
    }

    /// A writer stops in the middle of its chunk.
    pub(crate) fn paused(&self, chunk: &Chunk) -> Option<u64> {
        self.leave(chunk, false)
    }

    /// A writer has written its whole chunk. The number below which all messages are complete, when this one is so by that.
    pub(crate) fn written(&self, chunk: &Chunk) -> Option<u64> {
        self.leave(chunk, true)
    }

    fn leave(&self, chunk: &Chunk, whole: bool) -> Option<u64> {
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
        self.requests[post.request].complete(post.part.unwrap_or(0), post.total);
        self.counters.message(post.total);
        while posts.front().is_some_and(|post| post.complete) {
            posts.pop_front();
            *base += 1;
        }
        Some(*base)
    }

    /// A stream has ended, HOME for that of small messages; without any left so has the connection.
    pub(crate) fn over(&self, lane: usize, why: &str) {
        let mut state = lock(&self.state);
        state.dead |= 1 << lane;
        let lanes = (1u64 << self.tasks().len()) - 1;
        let (lanes_over, all_over) = (state.dead & lanes == lanes, state.dead == lanes | 1 << INLINE);
        let (left, waits) = (!state.early.is_empty(), !state.posts.is_empty());
        self.lanes_over.store(lanes_over, Ordering::Relaxed); // under the lock: of two streams that end at once the last has the last word
        if !lanes_over {
            self.repeat(&mut state); // what it said last may not have arrived
        }
        drop(state);
        if all_over {
            let error = self.error(Kind::Remote, why);
            if left { drop(self.gone.set(error)) } else { self.fail(error) }
        } else if waits {
            let which = if lane == INLINE { "the stream of small messages".to_owned() } else { format!("stream {lane}") };
            (self.log)(Level::Info, &format!("{}: {which} has ended ({why})", self.label));
        }
    }
}

impl Completion for RecvCore {
    fn test(&self, request: &Request, sizes: &mut [usize]) -> Result<bool, Error> {
        if request.finish(sizes) {
            return Ok(true);
        }
        if !request.by_chunks.load(Ordering::Relaxed) || self.lanes_over.load(Ordering::Relaxed) {
            if let Ok(mut inline) = self.inline.try_lock() {
                if let Some(error) = (!inline.over).then(|| self.hear(&mut inline)).and_then(Result::err) {
                    self.fail(self.error(error.kind, &error.message));
                }
            }
            if request.finish(sizes) {
                return Ok(true);
            }
        }
        if TaskRef::help(self.tasks()) && request.finish(sizes) {
            return Ok(true);
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.failed.get().or(self.gone.get()).map_or(Ok(false), |error| Err(error.clone()))
    }
}
