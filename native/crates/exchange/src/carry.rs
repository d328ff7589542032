//! One exchange, carried by a thread: it reads and writes the numbers that a GPU writes and waits for.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use transport::{Error, Kind, Receiver, Request, Sender};

/// Chunks of one exchange that are under way to or from a peer.
const WINDOW: u32 = 8;
/// Looks without any news before the thread sleeps, and for how long.
const SPIN_POLLS: u32 = 200;
const SLEEP: Duration = Duration::from_micros(20);

/// What goes to a peer and comes from it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Part {
    /// Where it lies, and its bytes.
    pub send: *const u8,
    /// In bytes.
    pub send_len: usize,
    /// Where it goes.
    pub recv: *mut u8,
    /// In bytes.
    pub recv_len: usize,
}

/// Numbers in memory by which an exchange and whoever waits for it tell each other.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Numbers {
    /// Chunk i may be sent when it has passed `base` by more than i.
    pub ready: NonNull<AtomicU32>,
    /// By how many chunks it has passed `base`: so many have ended.
    pub done: NonNull<AtomicU32>,
    /// Not 0 where what came is not to be taken; told before `done`.
    pub failed: NonNull<AtomicU32>,
}

/// One exchange.
pub struct Job {
    parts: Vec<Part>,
    chunk: usize,
    chunks: u32,
    numbers: Numbers,
    base: u32,
}

// SAFETY: who makes a job keeps its memory until `done` says that it has ended.
unsafe impl Send for Job {}

impl Job {
    /// `parts` has one for each peer, cut into `chunks` of `chunk` bytes each.
    ///
    /// # Safety
    /// What parts and numbers point to stays, and is not used otherwise, until `done` has come to `base` + `chunks`. What is received may
    /// be written as soon as the jobs before it have ended.
    pub unsafe fn new(parts: &[Part], chunk: usize, chunks: u32, numbers: Numbers, base: u32) -> Self {
        Self { parts: parts.to_vec(), chunk, chunks, numbers, base }
    }

    /// Let whoever waits go on, and say that it has failed.
    pub fn fail(&self) {
        // SAFETY: of whoever made it.
        unsafe { self.numbers.failed.as_ref() }.store(1, Ordering::Release);
        self.publish(self.chunks);
    }

    fn publish(&self, ended: u32) {
        // SAFETY: of whoever made it.
        unsafe { self.numbers.done.as_ref() }.store(self.base.wrapping_add(ended), Ordering::Release);
    }

    /// How many chunks may be sent.
    fn have(&self) -> u32 {
        // SAFETY: of whoever made it.
        let ready = unsafe { self.numbers.ready.as_ref() }.load(Ordering::Acquire);
        u32::try_from(passed(ready, self.base)).map_or(0, |have| have.min(self.chunks)) // negative before its time
    }
}

/// By how much a number has passed another, where both begin anew after the largest.
pub fn passed(number: u32, other: u32) -> i32 {
    number.wrapping_sub(other) as i32
}

/// A connection each way.
pub struct Peer {
    /// To it.
    pub sender: Box<Sender>,
    /// From it.
    pub receiver: Box<Receiver>,
}

/// One direction of an exchange with one peer.
#[derive(Default)]
struct Transfers {
    posted: u32,
    ended: u32,
    under_way: VecDeque<NonNull<Request>>,
}

impl Transfers {
    /// Post as many chunks as may be, and take those that have ended, of which `sized` says how long they have to be; whether there was
    /// any.
    fn advance(
        &mut self,
        most: u32,
        sized: impl Fn(u32) -> usize,
        mut begin: impl FnMut(u32) -> Result<Option<NonNull<Request>>, Error>,
    ) -> Result<bool, Error> {
        let before = (self.posted, self.ended);
        while self.posted < most && self.posted - self.ended < WINDOW {
            let Some(request) = begin(self.posted)? else { break };
            self.under_way.push_back(request);
            self.posted += 1;
        }
        while let Some(&first) = self.under_way.front() {
            let mut sizes = [0];
            // SAFETY: of a connection that lives, and tested done only once.
            if !unsafe { Request::test(first, &mut sizes) }? {
                break;
            }
            let wanted = sized(self.ended);
            if sizes[0] != wanted {
                let message = format!("chunk {} of an exchange has {} bytes at one rank and {wanted} at another", self.ended, sizes[0]);
                return Err(Error::new(Kind::Usage, message));
            }
            self.under_way.pop_front();
            self.ended += 1;
        }
        Ok(before != (self.posted, self.ended))
    }
}

/// Carry one to its end.
///
/// # Errors
/// A peer is gone, `patience` is over without any news after the first chunk was ready, or `stopped`.
pub fn carry(job: &Job, peers: &[Peer], patience: Duration, stopped: &dyn Fn() -> bool) -> Result<(), Error> {
    let mut ways: Vec<(Transfers, Transfers)> = peers.iter().map(|_| Default::default()).collect();
    let (mut last, mut idle_polls, mut reported) = (Instant::now(), 0, 0);
    while reported < job.chunks {
        let have = job.have();
        let mut progress = false;
        for ((out, within), (peer, part)) in ways.iter_mut().zip(peers.iter().zip(&job.parts)) {
            // SAFETY (both): whoever made the job keeps its memory.
            let sized = |length: usize| move |number: u32| cut(length, job.chunk, number).1;
            progress |= within.advance(job.chunks, sized(part.recv_len), |number| {
                let (at, size) = cut(part.recv_len, job.chunk, number);
                unsafe { peer.receiver.irecv(&[(part.recv.add(at), size, 0)]) }
            })?;
            progress |= out.advance(have, sized(part.send_len), |number| {
                let (at, size) = cut(part.send_len, job.chunk, number);
                unsafe { peer.sender.isend(part.send.add(at), size, 0) }
            })?;
        }
        let ended = ways.iter().map(|(out, within)| out.ended.min(within.ended)).min().unwrap_or(job.chunks);
        if ended > reported {
            reported = ended;
            job.publish(reported);
        }
        if progress || have == 0 {
            last = Instant::now();
        }
        idle_polls = if progress { 0 } else { idle_polls + 1 };
        if idle_polls > SPIN_POLLS {
            thread::sleep(SLEEP);
            if stopped() {
                return Err(Error::new(Kind::Usage, "closed while an exchange was under way"));
            }
            if last.elapsed() > patience {
                let message = format!("{reported} of {} chunks of an exchange, and nothing more for {} s", job.chunks, patience.as_secs());
                return Err(Error::new(Kind::Remote, message));
            }
        } else {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

/// Where a chunk begins, and its bytes: 0 in a part that is shorter than others.
fn cut(length: usize, chunk: usize, number: u32) -> (usize, usize) {
    let at = (chunk * number as usize).min(length);
    (at, chunk.min(length - at))
}

/// Have this thread's short sleeps be as short as they say, and not 50 us longer, as Linux otherwise makes them.
pub fn sleep_exactly() {
    // SAFETY: no memory is given.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000) };
}
