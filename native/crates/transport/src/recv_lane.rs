//! A stream that receives chunks from the peer and sends acknowledgements.

use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

use socket2::Socket;

use crate::error::{Error, Kind};
use crate::pool::{self, Look, Next, Task};
use crate::receiver::{Claim, EarlyChunk, Progress, RecvCore, flush};
use crate::sock::{self, Io};
use crate::stall::{Flow, Limits, StallDetector};
use crate::wire::{Chunk, Frame, HEADER};

/// Limit of unread acknowledgements in bytes. Beyond it, nothing more is read from the peer.
const MAX_UNREAD: usize = 64 << 10;

enum Stage {
    /// Reading a header.
    Head,
    /// No buffer is posted for this chunk yet. Its bytes stay in the kernel, unless data behind it
    /// is needed first.
    Waiting(Chunk),
    /// Reading into the early-arrival buffer; bytes read so far.
    Early(EarlyChunk, usize),
    /// Reading into the caller's buffer; bytes read so far.
    Body(Chunk, *mut u8, usize),
    /// Discarding this many bytes.
    Skip(usize),
}

pub(crate) struct RecvLane {
    core: Arc<RecvCore>,
    lane: usize,
    socket: Socket,
    head: [u8; HEADER],
    have: usize,
    stage: Stage,
    /// Acknowledgements that the kernel has not taken, and the total bytes of acknowledgements.
    out: Vec<u8>,
    ack_bytes: u64,
    stall: StallDetector,
    /// Its acknowledgements do not arrive.
    stuck: bool,
    limits: Limits,
    wait: EarlyWait,
    discarded: Box<[u8]>,
}

/// A stream whose next chunk has no receive. Usually the receive is posted soon. But if the caller
/// waits for an earlier message and the connection makes no progress, the missing data may be
/// behind this chunk: resent after its own stream was lost.
#[derive(Default)]
struct EarlyWait {
    since: Option<Instant>,
    seen: Progress,
    /// Read early chunks until this many messages are complete.
    read_ahead: Option<u64>,
}

// SAFETY: the pointer is into a caller's buffer. Only `body` uses it, after `begin_write` has
// confirmed that it may be written.
unsafe impl Send for RecvLane {}

enum Step {
    On,
    Blocked,
    Ended(String),
}

impl RecvLane {
    /// `head` holds `have` bytes of the first frame.
    pub(crate) fn new(
        core: Arc<RecvCore>,
        lane: usize,
        socket: Socket,
        head: [u8; HEADER],
        have: usize,
        limits: Limits,
    ) -> Self {
        Self {
            core,
            lane,
            socket,
            head,
            have,
            stage: Stage::Head,
            out: Vec::new(),
            ack_bytes: 0,
            stall: StallDetector::default(),
            stuck: false,
            limits,
            wait: EarlyWait::default(),
            discarded: Box::default(),
        }
    }

    /// Receive up to `most` of the `left` bytes of a body at `to`. If that includes the last of
    /// them, also receive as much as possible of the next header. Returns the bytes of the body.
    ///
    /// # Safety
    /// `to` is writable for `left` bytes.
    unsafe fn receive(&mut self, to: *mut u8, left: usize, most: usize) -> Result<usize, Step> {
        let want = left.min(most);
        let next = if want == left { &mut self.head[self.have..] } else { &mut [] };
        // SAFETY: this function's caller guarantees `to` for `left` bytes, and `want` is at most
        // `left`; `next` is borrowed from `self.head`.
        match unsafe { sock::receive(self.socket.as_raw_fd(), to, want, next) } {
            Io::Done(bytes) => {
                self.have += bytes.saturating_sub(want);
                Ok(bytes.min(want))
            }
            Io::Blocked => Err(Step::Blocked),
            Io::Ended(None) => Err(Step::Ended("the peer closed the connection".to_owned())),
            Io::Ended(Some(error)) => Err(Step::Ended(error.to_string())),
        }
    }

    fn step(&mut self, share: &mut usize) -> Result<Step, Error> {
        match self.stage {
            // until there is room again
            Stage::Head if self.out.len() >= MAX_UNREAD => Ok(Step::Blocked),
            Stage::Head => {
                if self.have < HEADER {
                    // SAFETY: no body bytes are requested, so the null pointer is not written to.
                    if let Err(step) = unsafe { self.receive(std::ptr::null_mut(), 0, 0) } {
                        return Ok(step);
                    }
                    if self.have < HEADER {
                        return Ok(Step::On);
                    }
                }
                self.have = 0;
                match Frame::decode(&self.head)? {
                    Frame::Chunk(chunk) => self.route(chunk),
                    Frame::Ready { .. } => Ok(Step::On), // repeated from another stream
                    Frame::Ack { .. } => Err(Error::new(
                        Kind::Remote,
                        "received an acknowledgement for data that was never sent",
                    )),
                }
            }
            Stage::Waiting(chunk) => self.route(chunk),
            Stage::Early(..) => self.read_early(share),
            Stage::Body(chunk, to, done) => self.body(chunk, to, done, share),
            Stage::Skip(left) => {
                if self.discarded.is_empty() {
                    self.discarded = vec![0; 64 << 10].into();
                }
                let (to, most) = (self.discarded.as_mut_ptr(), self.discarded.len());
                // SAFETY: `to` is the start of `self.discarded`, which is not used otherwise during
                // the call; at most its length is requested.
                match unsafe { self.receive(to, left, most) } {
                    Err(step) => Ok(step),
                    Ok(bytes) => {
                        self.stage =
                            if bytes == left { Stage::Head } else { Stage::Skip(left - bytes) };
                        Ok(Step::On)
                    }
                }
            }
        }
    }

    fn route(&mut self, chunk: Chunk) -> Result<Step, Error> {
        match self.core.claim(&chunk, Some(self.lane))? {
            Claim::Early => {
                self.stage = Stage::Waiting(chunk);
                return Ok(if self.read_ahead() { Step::On } else { Step::Blocked });
            }
            Claim::Stale(below) => {
                self.core.counters.duplicate();
                // again, as the first may have been lost with its stream
                self.acknowledge(&chunk, below);
                self.stage = if chunk.len() == 0 { Stage::Head } else { Stage::Skip(chunk.len()) };
            }
            Claim::Into(_) if chunk.len() == 0 => {
                let below =
                    self.core.begin_write(&chunk).then(|| self.core.finish_write(&chunk)).flatten();
                self.acknowledge(&chunk, below);
                self.stage = Stage::Head;
            }
            Claim::Into(to) => self.stage = Stage::Body(chunk, to, 0),
        }
        Ok(Step::On)
    }

    /// Read the waiting chunk into the early-arrival buffer if data behind it is needed and there
    /// is memory. Returns whether it does.
    fn read_ahead(&mut self) -> bool {
        let Stage::Waiting(chunk) = self.stage else { return false };
        self.wait.read_ahead =
            self.wait.read_ahead.filter(|messages| *messages == self.core.progress().messages);
        let Some(early) = self.wait.read_ahead.and_then(|_| self.core.reserve_early(chunk)) else {
            return false;
        };
        self.stage = Stage::Early(early, 0);
        true
    }

    /// Whether to start reading chunks early.
    fn check_wait(&mut self, now: Instant) -> bool {
        if !matches!(self.stage, Stage::Waiting(_)) {
            self.wait.since = None;
            return false;
        }
        let (before, seen) = (self.wait.seen, self.core.progress());
        self.wait.seen = seen;
        if self.wait.since.is_none()
            || seen.chunks != before.chunks
            || seen.messages != before.messages
        {
            self.wait.since = Some(now);
        }
        let stalled = seen.owes
            && seen.asked != before.asked
            && self.wait.since.is_some_and(|since| now - since >= self.limits.stall);
        // The end of a stream is also behind its last chunk.
        if stalled || sock::closed_by_peer(&self.socket) {
            self.wait.read_ahead = Some(seen.messages);
        }
        self.read_ahead()
    }

    /// Continue to read a chunk into the early-arrival buffer.
    fn read_early(&mut self, share: &mut usize) -> Result<Step, Error> {
        let Stage::Early(mut early, done) = std::mem::replace(&mut self.stage, Stage::Head) else {
            return Ok(Step::On);
        };
        let left = early.bytes.len() - done;
        // SAFETY: `early.bytes` is owned by this function, and `left` bytes remain after `done`.
        let got = unsafe { self.receive(early.bytes.as_mut_ptr().wrapping_add(done), left, left) };
        let more = *got.as_ref().unwrap_or(&0);
        *share = share.saturating_sub(more);
        if more == left {
            self.core.keep_early(early)?;
        } else {
            self.stage = Stage::Early(early, done + more);
        }
        Ok(got.err().unwrap_or(Step::On))
    }

    fn body(
        &mut self,
        chunk: Chunk,
        to: *mut u8,
        done: usize,
        share: &mut usize,
    ) -> Result<Step, Error> {
        let left = chunk.len() - done;
        if !self.core.begin_write(&chunk) {
            self.stage = Stage::Skip(left);
            return Ok(Step::On);
        }
        // SAFETY: `begin_write` made this thread a writer, so the buffer stays valid until
        // `finish_write` or `pause_write`; `claim` checked the size.
        let got = unsafe { self.receive(to.wrapping_add(done), left, pool::piece(left, *share)) };
        let bytes = *got.as_ref().unwrap_or(&0);
        let below = if bytes == left {
            self.core.finish_write(&chunk)
        } else {
            self.core.pause_write(&chunk)
        };
        self.acknowledge(&chunk, below);
        *share = share.saturating_sub(bytes);
        if bytes == left {
            self.core.counters.chunk(self.lane, chunk.len());
            self.stage = Stage::Head;
        } else {
            self.stage = Stage::Body(chunk, to, done + bytes);
        }
        Ok(got.err().unwrap_or(Step::On))
    }

    /// Acknowledge the message if it is complete.
    fn acknowledge(&mut self, chunk: &Chunk, below: Option<u64>) {
        match below {
            Some(below) if self.stuck => self.core.acknowledge_elsewhere(chunk.seq, below),
            Some(below) => self.send_ack(chunk.seq, below),
            None => {}
        }
    }

    fn send_ack(&mut self, seq: u64, below: u64) {
        self.out.extend_from_slice(&Frame::Ack { seq, below }.encode());
        self.ack_bytes += HEADER as u64;
        flush(&self.socket, &mut self.out);
    }
}

impl Task for RecvLane {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn run(&mut self, mut share: usize) -> Next {
        flush(&self.socket, &mut self.out);
        for (seq, below) in self.core.take_acks(self.lane) {
            self.send_ack(seq, below);
        }
        while share > 0 {
            // headers and discarded bytes use up the share, too
            share = share.saturating_sub(HEADER);
            match self.step(&mut share) {
                Ok(Step::On) => {}
                Ok(Step::Blocked) => return Next::Wait,
                Ok(Step::Ended(why)) => {
                    self.core.stream_ended(self.lane, &why);
                    return Next::Gone;
                }
                Err(error) => {
                    self.core.fail(self.core.error(error.kind, &error.message));
                    return Next::Gone;
                }
            }
        }
        Next::Again
    }

    fn broken(&mut self, why: &str) {
        self.core.fail(self.core.error(Kind::Internal, why));
    }

    fn tick(&mut self, now: Instant) -> Look {
        let stuck = self.stall.check(
            &self.socket,
            self.ack_bytes - self.out.len() as u64,
            self.limits,
            now,
        ) != Flow::Moves;
        if stuck || self.stall.nothing_in_flight() {
            self.core.set_stuck(self.lane, stuck);
            self.stuck = stuck;
        }
        if self.check_wait(now) {
            return Look::Run;
        }
        let blocked = matches!(self.stage, Stage::Waiting(_)) || !self.stall.nothing_in_flight();
        if blocked { Look::Again } else { Look::Enough }
    }
}

impl Drop for RecvLane {
    fn drop(&mut self) {
        // shutdown, as close would not end a socket that a forked child still has open
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
