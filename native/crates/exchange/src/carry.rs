//! Runs one exchange on a thread of the CPU: it sends what the GPU's counter says is ready, and counts
//! what has arrived in one that the GPU waits for. Both are in memory that the two share.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use busbw_transport::{Error, Kind, Receiver, Request, Sender};

/// Chunks of an exchange that are in flight to or from a peer.
const WINDOW: u32 = 8;
/// Polls without progress before the thread sleeps, and the time it sleeps.
const SPIN_POLLS: u32 = 200;
const SLEEP: Duration = Duration::from_micros(20);
/// The bytes of the length with which a message begins in a `sized` job.
const LENGTH: usize = size_of::<u64>();

/// The buffers for one peer.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Part {
    /// Start of the bytes to send.
    pub send: *const u8,
    /// In bytes.
    pub send_len: usize,
    /// Start of the buffer to receive into.
    pub recv: *mut u8,
    /// In bytes.
    pub recv_len: usize,
}

/// Counters in memory, shared by an exchange and its user.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Numbers {
    /// Chunk i may be sent when this exceeds `base` by more than i.
    pub ready: NonNull<AtomicU32>,
    /// Exceeds `base` by the number of finished chunks.
    pub done: NonNull<AtomicU32>,
    /// Nonzero if the received data is not valid; set before `done`.
    pub failed: NonNull<AtomicU32>,
}

/// One exchange.
pub struct Job {
    parts: Vec<Part>,
    chunk: usize,
    chunks: u32,
    numbers: Numbers,
    base: u32,
    sized: bool,
}

// SAFETY: the caller of `new` keeps all memory behind these pointers, and uses the counters only
// atomically, until `done` is complete.
unsafe impl Send for Job {}

impl Job {
    /// `parts` has one entry for each peer, divided into `chunks` of `chunk` bytes.
    ///
    /// `sized`: each message begins with its number of bytes (u64), and no more are sent. It is read
    /// once the first chunk is ready. Bytes of a receive buffer after it stay as they were.
    ///
    /// # Safety
    /// All memory behind `parts` and `numbers` stays valid, and is not used otherwise, until `done`
    /// has reached `base` + `chunks`. Received data may be written as soon as the jobs before this
    /// one have finished.
    pub unsafe fn new(
        parts: &[Part],
        chunk: usize,
        chunks: u32,
        numbers: Numbers,
        base: u32,
        sized: bool,
    ) -> Self {
        Self { parts: parts.to_vec(), chunk, chunks, numbers, base, sized }
    }

    /// The bytes of the message in a buffer of `room` bytes, of which the first chunk is there.
    fn length(&self, message: *const u8, room: usize) -> Result<usize, String> {
        if !self.sized {
            return Ok(room);
        }
        if room.min(self.chunk) < LENGTH {
            return Err(format!("a message without a length: a buffer of {room} bytes"));
        }
        // SAFETY: the caller of `new` keeps the buffer until `done` is complete, and it has as many
        // bytes. Nobody writes to its first chunk any more.
        let bytes = unsafe { message.cast::<u64>().read_unaligned() };
        usize::try_from(bytes)
            .ok()
            .filter(|bytes| (LENGTH..=room).contains(bytes))
            .ok_or_else(|| format!("a message of {bytes} bytes in a buffer of {room}"))
    }

    /// Mark the exchange as failed and release waiting threads.
    pub fn fail(&self) {
        // SAFETY: the caller of `new` keeps the counters until `done` is complete, which the line
        // after this store makes it.
        unsafe { self.numbers.failed.as_ref() }.store(1, Ordering::Release);
        self.publish(self.chunks);
    }

    fn publish(&self, ended: u32) {
        // SAFETY: the caller of `new` keeps the counters until this store completes `done`; nothing
        // touches the job's memory after it.
        unsafe { self.numbers.done.as_ref() }
            .store(self.base.wrapping_add(ended), Ordering::Release);
    }

    /// How many chunks may be sent.
    fn have(&self) -> u32 {
        // SAFETY: the caller of `new` keeps the counters until `done` is complete, and it is not
        // while the job runs.
        let ready = unsafe { self.numbers.ready.as_ref() }.load(Ordering::Acquire);
        // negative before the job may start
        u32::try_from(passed(ready, self.base)).map_or(0, |have| have.min(self.chunks))
    }
}

/// The difference of two counters that wrap around.
pub fn passed(number: u32, other: u32) -> i32 {
    number.wrapping_sub(other) as i32
}

/// A connection in each direction.
pub struct Peer {
    /// To the peer.
    pub sender: Box<Sender>,
    /// From the peer.
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
    /// Post as many chunks as allowed and collect finished ones: `check` gets the number and the
    /// bytes of each. Returns whether anything happened.
    fn advance(
        &mut self,
        most: u32,
        mut begin: impl FnMut(u32) -> Result<Option<NonNull<Request>>, Error>,
        check: impl Fn(u32, usize) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let before = (self.posted, self.ended);
        while self.posted < most && self.posted - self.ended < WINDOW {
            let Some(request) = begin(self.posted)? else { break };
            self.under_way.push_back(request);
            self.posted += 1;
        }
        while let Some(&first) = self.under_way.front() {
            // SAFETY: the peer's connection outlives this call, and the request leaves `under_way`
            // once it has tested done.
            let Some(bytes) = unsafe { Request::test(first) }? else { break };
            check(self.ended, bytes)?;
            self.under_way.pop_front();
            self.ended += 1;
        }
        Ok(before != (self.posted, self.ended))
    }
}

/// Run a job to its end.
///
/// # Errors
/// A peer is gone, nothing happened for `patience` after the first chunk was ready, or `stopped`
/// returned true.
pub fn carry(
    job: &Job,
    peers: &[Peer],
    patience: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<(), Error> {
    let mut ways: Vec<(Transfers, Transfers)> = peers.iter().map(|_| Default::default()).collect();
    let (mut last, mut idle_polls, mut reported) = (Instant::now(), 0, 0);
    while reported < job.chunks {
        let have = job.have();
        let mut progress = false;
        for ((out, within), (peer, part)) in ways.iter_mut().zip(peers.iter().zip(&job.parts)) {
            let begin = |number| {
                let (at, size) = cut(part.recv_len, job.chunk, number);
                // SAFETY: the caller of `Job::new` keeps the buffer until `done` is complete, and
                // `cut` stays within its length.
                unsafe { peer.receiver.irecv(part.recv.add(at), size) }
            };
            let check = |number, bytes| came(job, peer, part, number, bytes);
            progress |= within.advance(job.chunks, begin, check)?;
            let begin = |number| {
                let length = (job.length(part.send, part.send_len))
                    .map_err(|why| Error::new(Kind::Usage, format!("to send: {why}")))?;
                let (at, size) = cut(length, job.chunk, number);
                // SAFETY: the caller of `Job::new` keeps the buffer until `done` is complete, and
                // `cut` stays within its length.
                unsafe { peer.sender.isend(part.send.add(at), size) }
            };
            progress |= out.advance(have, begin, |_, _| Ok(()))?;
        }
        let ended = ways
            .iter()
            .map(|(out, within)| out.ended.min(within.ended))
            .min()
            .unwrap_or(job.chunks);
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
                return Err(Error::new(Kind::Usage, "closed during an exchange"));
            }
            if last.elapsed() > patience {
                let message = format!(
                    "{reported} of {} chunks of an exchange finished, then nothing for {} s",
                    job.chunks,
                    patience.as_secs_f64()
                );
                return Err(Error::new(Kind::Remote, message));
            }
        } else {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

/// Whether a chunk that has come has the size that it should have.
fn came(job: &Job, peer: &Peer, part: &Part, number: u32, bytes: usize) -> Result<(), Error> {
    let wrong = |why: String| peer.receiver.error(Kind::Usage, &why);
    let (_, size) = cut(job.length(part.recv, part.recv_len).map_err(wrong)?, job.chunk, number);
    if bytes == size {
        return Ok(());
    }
    Err(wrong(format!("chunk {number} of an exchange has {bytes} bytes, not {size}")))
}

/// Start and size of a chunk. The size is 0 past the end, as in a part that is shorter than others.
fn cut(length: usize, chunk: usize, number: u32) -> (usize, usize) {
    let at = (chunk * number as usize).min(length);
    (at, chunk.min(length - at))
}

/// Set this thread's timer slack to 1 us. By default Linux extends short sleeps by 50 us.
pub fn sleep_exactly() {
    // SAFETY: PR_SET_TIMERSLACK takes an integer and no pointer.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000) };
}
