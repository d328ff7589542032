//! The sending end: small messages go out at once on a stream of their own, large ones as chunks that any free stream takes.
//!
//! Nothing is forgotten before the peer has acknowledged it: what a stream that died or stalled carried goes over another one.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::config::Config;
use crate::error::{Error, Kind};
use crate::pool::Seat;
use crate::request::{Owner, Request};
use crate::sock;
use crate::stats::Counters;
use crate::wire::Chunk;
use crate::{Level, Log};

mod small;
use small::{Home, Kept};

/// Small messages that are kept until acknowledged; beyond it the caller has to try again.
const MOST_KEPT: usize = 64;
/// Kept messages from which on acknowledgements are read.
const READ_FROM: usize = 8;
const NONE: u8 = u8::MAX;
const SMALLEST_CHUNK: usize = 64 << 10;
const LARGEST_CHUNK: usize = 512 << 10;
const PAGE: usize = 4096;

/// A chunk and where its bytes are.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) chunk: Chunk,
    pub(crate) data: *const u8,
}

// SAFETY: the bytes stay readable until the request is done (see Sender::isend), and jobs are dropped before.
unsafe impl Send for Job {}

/// A message that went, or goes, as chunks, until it is acknowledged.
struct Flying {
    seq: u64,
    request: Option<usize>,
    data: *const u8,
    chunk: Chunk,
    /// Which stream took each chunk.
    carriers: Vec<u8>,
    /// A small message's own bytes, when it goes as a chunk after all.
    _kept: Option<Box<[u8]>>,
}

// SAFETY: as for Job.
unsafe impl Send for Flying {}

#[derive(Default)]
pub(crate) struct State {
    next: u64,
    queue: VecDeque<Job>,
    flying: VecDeque<Flying>,
    idle: u64,
    dead: u64,
    stalled: u64,
    place: usize,
}

/// How long a stream has made no progress.
#[derive(Default)]
pub(crate) struct Still {
    since: Option<Instant>,
    taken: u64,
    unacknowledged: usize,
}

impl Still {
    /// Whether it has stood still for `limit`: bytes are under way and nobody acknowledges them.
    pub(crate) fn look(&mut self, socket: &Socket, taken: u64, limit: Duration, now: Instant) -> bool {
        let unacknowledged = sock::unacknowledged(socket);
        if unacknowledged == 0 || (taken, unacknowledged) != (self.taken, self.unacknowledged) {
            (self.taken, self.unacknowledged, self.since) = (taken, unacknowledged, (unacknowledged > 0).then_some(now));
            return false;
        }
        self.since.is_some_and(|since| now - since >= limit) && sock::tries_again(socket)
    }
}

/// What streams and callers of a sending end share.
pub(crate) struct SendCore {
    pub(crate) label: String,
    pub(crate) config: Arc<Config>,
    pub(crate) log: Log,
    pub(crate) counters: Arc<Counters>,
    state: Mutex<State>,
    home: Mutex<Home>,
    home_down: AtomicBool,
    failed: OnceLock<Error>,
    requests: Box<[Request]>,
    seats: OnceLock<Vec<Seat>>,
    unacknowledged: AtomicUsize,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in another thread has been told; the data are numbers that stay consistent between statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SendCore {
    pub(crate) fn new(label: String, config: Arc<Config>, log: Log, counters: Arc<Counters>, home: Socket) -> Arc<Self> {
        let home = Home::new(home);
        Arc::new_cyclic(|this| Self {
            label,
            config,
            log,
            counters,
            state: Mutex::default(),
            home: Mutex::new(home),
            home_down: AtomicBool::new(false),
            failed: OnceLock::new(),
            requests: Request::places(|| Owner::Send(this.as_ptr())),
            seats: OnceLock::new(),
            unacknowledged: AtomicUsize::new(0),
        })
    }

    /// The streams that carry chunks, once they have their seats.
    pub(crate) fn seated(&self, seats: Vec<Seat>) {
        let _ = self.seats.set(seats);
    }

    fn seats(&self) -> &[Seat] {
        self.seats.get().map_or(&[], Vec::as_slice)
    }

    fn fail(&self, error: Error) {
        if self.failed.set(error.clone()).is_ok() {
            (self.log)(Level::Info, &error.message); // whoever calls next gets it, and warns
        }
    }

    // -- the caller's thread ---------------------------------------------------------------------------------------

    /// # Safety
    /// As Sender::isend.
    pub(crate) unsafe fn isend(&self, data: *const u8, size: usize, tag: i32) -> Result<Option<NonNull<Request>>, Error> {
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        let mut state = lock(&self.state);
        let place = state.place;
        let request = &self.requests[place];
        if !request.take(1) {
            return Ok(None);
        }
        let small = size <= self.config.inline && !self.home_down.load(Ordering::Relaxed);
        if small {
            let mut home = lock(&self.home);
            if home.kept.len() >= READ_FROM {
                self.hear_home(&mut home, &mut state);
            }
            if home.kept.len() >= MOST_KEPT {
                request.taken.store(false, Ordering::Release);
                return Ok(None);
            }
            // SAFETY: readable for `size` bytes (the caller's promise).
            let bytes = if size == 0 { Box::default() } else { unsafe { std::slice::from_raw_parts(data, size) }.into() };
            let seq = state.sequence();
            let looks = self.alive(&state).trailing_zeros() as usize;
            self.send_small(&mut home, Kept { seq, tag, bytes }, place, looks);
        } else {
            let seq = state.sequence();
            let chunk = Chunk { seq, total: size as u64, offset: 0, chunk: self.chunk_size(size), tag };
            self.fly(
                &mut state,
                Flying { seq, request: Some(place), data, chunk, carriers: vec![NONE; chunk.count()], _kept: None },
                false,
            );
        }
        state.place = (place + 1) % self.requests.len();
        self.counters.message(size as u64);
        Ok(Some(NonNull::from(request)))
    }

    /// As even as streams take them, but neither so small that headers cost nor so large that one stream keeps the rest waiting.
    fn chunk_size(&self, size: usize) -> u32 {
        let fitting = if self.config.chunk > 0 {
            self.config.chunk
        } else {
            size.div_ceil(self.seats().len().max(1)).next_multiple_of(PAGE).clamp(SMALLEST_CHUNK, LARGEST_CHUNK)
        };
        // A message of more chunks than a header may name has larger ones.
        fitting.max(size.div_ceil(crate::wire::MOST_CHUNKS as usize)) as u32
    }

    fn fly(&self, state: &mut State, flying: Flying, first: bool) {
        let (chunk, data) = (flying.chunk, flying.data);
        let count = chunk.count();
        for number in 0..count {
            let at = if first { count - 1 - number } else { number };
            let offset = at as u64 * u64::from(chunk.chunk);
            let job = Job { chunk: Chunk { offset, ..chunk }, data: data.wrapping_add(offset as usize) };
            if first { state.queue.push_front(job) } else { state.queue.push_back(job) }
        }
        state.flying.push_back(flying);
        self.unacknowledged.fetch_add(1, Ordering::Relaxed);
        self.kick(state, count);
    }

    /// Wake up as many idle streams as there is work for.
    fn kick(&self, state: &mut State, mut work: usize) {
        let mut idle = state.idle & !state.stalled & !state.dead;
        while idle != 0 && work > 0 {
            let lane = idle.trailing_zeros() as usize;
            idle &= idle - 1;
            state.idle &= !(1 << lane);
            work -= 1;
            self.seats()[lane].kick();
        }
    }

    /// Whether a request is done.
    pub(crate) fn test(&self, request: &Request, sizes: &mut [usize]) -> Result<bool, Error> {
        if request.finish(sizes) {
            return Ok(true);
        }
        let mut home = lock(&self.home);
        if !home.backlog.is_empty() {
            self.flush_home(&mut home);
        }
        drop(home);
        if request.finish(sizes) {
            return Ok(true);
        }
        self.failed.get().map_or(Ok(false), |error| Err(error.clone()))
    }

    // -- the streams' threads --------------------------------------------------------------------------------------

    /// The next chunk for a stream; without one it is idle, and kicked when there is.
    pub(crate) fn pull(&self, lane: usize) -> Option<Job> {
        let mut state = lock(&self.state);
        if (state.stalled | state.dead) & (1 << lane) != 0 {
            return None;
        }
        let Some(job) = state.queue.pop_front() else {
            state.idle |= 1 << lane;
            return None;
        };
        self.counters.queue(state.queue.len());
        if let Some(flying) = state.flying.iter_mut().find(|flying| flying.seq == job.chunk.seq) {
            flying.carriers[job.chunk.index()] = lane as u8;
        }
        Some(job)
    }

    /// Whether a message still waits for its acknowledgement, so that its bytes may be read.
    pub(crate) fn flies(&self, seq: u64) -> bool {
        lock(&self.state).flying.iter().any(|flying| flying.seq == seq)
    }

    /// Message `seq`, and all before `below`, have arrived.
    pub(crate) fn arrived(&self, seq: u64, below: u64) {
        self.acknowledged(&mut lock(&self.state), seq, below);
    }

    fn acknowledged(&self, state: &mut State, seq: u64, below: u64) {
        let over = |one: u64| one == seq || one < below;
        let mut at = 0;
        while at < state.flying.len() {
            if !over(state.flying[at].seq) {
                at += 1;
                continue;
            }
            if let Some(flying) = state.flying.remove(at) {
                if flying.carriers.contains(&NONE) {
                    state.queue.retain(|job| job.chunk.seq != flying.seq);
                }
                self.unacknowledged.fetch_sub(1, Ordering::Relaxed);
                if let Some(place) = flying.request {
                    self.requests[place].complete(0, flying.chunk.total);
                }
            }
        }
    }

    /// Whether this stream, the first alive, looks after the stream of small messages.
    pub(crate) fn looks(&self, lane: usize) -> bool {
        self.alive(&lock(&self.state)).trailing_zeros() as usize == lane
    }

    /// Whether anything is under way that may stand still.
    pub(crate) fn busy(&self) -> bool {
        self.unacknowledged.load(Ordering::Relaxed) > 0 || !lock(&self.home).kept.is_empty()
    }

    /// A stream makes no progress: others take what it carries, where there are any.
    pub(crate) fn stalled(&self, lane: usize) {
        let mut state = lock(&self.state);
        let others = self.alive(&state) & !state.stalled & !(1 << lane);
        if others == 0 || state.stalled & (1 << lane) != 0 {
            return;
        }
        state.stalled |= 1 << lane;
        state.idle &= !(1 << lane);
        let again = self.carry_again(&mut state, lane);
        self.counters.stall(again);
        (self.log)(Level::Info, &format!("{}: stream {lane} makes no progress, {again} chunks go over others", self.label));
    }

    /// A stream moves again.
    pub(crate) fn moves(&self, lane: usize) {
        let mut state = lock(&self.state);
        if state.stalled & (1 << lane) != 0 {
            state.stalled &= !(1 << lane);
            self.seats()[lane].kick();
            (self.log)(Level::Info, &format!("{}: stream {lane} moves again", self.label));
        }
    }

    /// Whether a stream has been found stalled.
    pub(crate) fn is_stalled(&self, lane: usize) -> bool {
        lock(&self.state).stalled & (1 << lane) != 0
    }

    /// A stream has ended; without any left so has the connection.
    pub(crate) fn ended(&self, lane: usize, why: &str) {
        let mut state = lock(&self.state);
        state.dead |= 1 << lane;
        let again = self.carry_again(&mut state, lane);
        if self.alive(&state) == 0 {
            drop(state);
            self.fail(self.error(Kind::Remote, why));
        } else {
            drop(state);
            self.counters.stall(again);
            (self.log)(Level::Info, &format!("{}: stream {lane} has ended ({why}), {again} chunks go over others", self.label));
        }
    }

    /// A stream's thread panicked.
    pub(crate) fn broken(&self) {
        self.fail(self.error(Kind::Internal, "an I/O thread panicked: a fault in busbw"));
    }

    fn alive(&self, state: &State) -> u64 {
        let all = (1u64 << self.seats().len()) - 1;
        all & !state.dead
    }

    fn carry_again(&self, state: &mut State, lane: usize) -> usize {
        let State { flying, queue, .. } = state;
        let mut jobs = Vec::new();
        for one in flying.iter_mut() {
            for (number, carrier) in one.carriers.iter_mut().enumerate().filter(|(_, carrier)| **carrier == lane as u8) {
                *carrier = NONE;
                let offset = number as u64 * u64::from(one.chunk.chunk);
                jobs.push(Job { chunk: Chunk { offset, ..one.chunk }, data: one.data.wrapping_add(offset as usize) });
            }
        }
        let again = jobs.len();
        for job in jobs.into_iter().rev() {
            queue.push_front(job);
        }
        // Not only these: a stream that was kicked for another chunk may be the one that has just ended.
        let work = state.queue.len();
        self.kick(state, work);
        again
    }

    fn error(&self, kind: Kind, why: &str) -> Error {
        Error::new(kind, format!("{}: {why}", self.label))
    }
}

impl State {
    fn sequence(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}
