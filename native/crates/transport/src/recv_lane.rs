//! A stream that brings chunks from the peer, and carries acknowledgements back.

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

/// Acknowledgements that the peer does not read, in bytes: beyond it nothing more is read from it.
const MAX_UNREAD: usize = 64 << 10;

enum Stage {
    /// Reading a header.
    Head,
    /// No buffer is posted for this chunk yet: its bytes wait in the kernel, unless others are behind it that have to come first.
    Waiting(Chunk),
    /// So many bytes of the chunk are kept aside.
    Early(EarlyChunk, usize),
    /// So many bytes of the chunk are in its buffer.
    Body(Chunk, *mut u8, usize),
    /// So many bytes are still to be read and forgotten.
    Skip(usize),
}

pub(crate) struct RecvLane {
    core: Arc<RecvCore>,
    lane: usize,
    socket: Socket,
    head: [u8; HEADER],
    have: usize,
    stage: Stage,
    /// Acknowledgements that the kernel has not taken, and bytes of all that there were.
    out: Vec<u8>,
    ack_bytes: u64,
    stall: StallDetector,
    /// Its acknowledgements do not arrive.
    stuck: bool,
    limits: Limits,
    wait: EarlyWait,
    discarded: Box<[u8]>,
}

/// A stream whose next chunk has no receive. As a rule the receive comes. But where the caller waits for an earlier message, and nothing
/// of the connection moves, what is missing may lie behind this chunk, sent again after its own stream was lost.
#[derive(Default)]
struct EarlyWait {
    since: Option<Instant>,
    seen: Progress,
    /// Chunks make way until so many messages are complete.
    read_ahead: Option<u64>,
}

// SAFETY: the address is of a buffer that the core says may be written.
unsafe impl Send for RecvLane {}

enum Step {
    On,
    Blocked,
    Ended(String),
}

impl RecvLane {
    /// `head` has `have` bytes of the first frame.
    pub(crate) fn new(core: Arc<RecvCore>, lane: usize, socket: Socket, head: [u8; HEADER], have: usize, limits: Limits) -> Self {
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

    /// Receive up to `most` of the `left` bytes of a body at `to`, then what fits of the next header, for which there is room only after the
    /// last of them. Bytes of the body that came.
    ///
    /// # Safety
    /// `to` is writable for as many bytes.
    unsafe fn receive(&mut self, to: *mut u8, left: usize, most: usize) -> Result<usize, Step> {
        let want = left.min(most);
        let next = if want == left { &mut self.head[self.have..] } else { &mut [] };
        // SAFETY: the caller's promise, and our own header.
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
            Stage::Head if self.out.len() >= MAX_UNREAD => Ok(Step::Blocked), // until there is room again
            Stage::Head => {
                if self.have < HEADER {
                    // SAFETY: nothing is asked for but the header.
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
                    Frame::Ready { .. } => Ok(Step::On), // what another stream has said before
                    Frame::Ack { .. } => Err(Error::new(Kind::Remote, "a frame that only senders understand")),
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
                // SAFETY: our own buffer.
                match unsafe { self.receive(to, left, most) } {
                    Err(step) => Ok(step),
                    Ok(bytes) => {
                        self.stage = if bytes == left { Stage::Head } else { Stage::Skip(left - bytes) };
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
                self.acknowledge(&chunk, below); // again: the first may have been lost with its stream
                self.stage = if chunk.len() == 0 { Stage::Head } else { Stage::Skip(chunk.len()) };
            }
            Claim::Into(_) if chunk.len() == 0 => {
                let below = self.core.resume(&chunk).then(|| self.core.written(&chunk)).flatten();
                self.acknowledge(&chunk, below);
                self.stage = Stage::Head;
            }
            Claim::Into(to) => self.stage = Stage::Body(chunk, to, 0),
        }
        Ok(Step::On)
    }

    /// Keep the chunk that waits aside, if what is behind it must come through and memory is left: whether it is.
    fn read_ahead(&mut self) -> bool {
        let Stage::Waiting(chunk) = self.stage else { return false };
        self.wait.read_ahead = self.wait.read_ahead.filter(|messages| *messages == self.core.progress().messages);
        let Some(early) = self.wait.read_ahead.and_then(|_| self.core.reserve_early(chunk)) else { return false };
        self.stage = Stage::Early(early, 0);
        true
    }

    /// Whether chunks that wait for their receive have to make way from now on.
    fn check_wait(&mut self, now: Instant) -> bool {
        if !matches!(self.stage, Stage::Waiting(_)) {
            self.wait.since = None;
            return false;
        }
        let (before, seen) = (self.wait.seen, self.core.progress());
        self.wait.seen = seen;
        if self.wait.since.is_none() || seen.chunks != before.chunks || seen.messages != before.messages {
            self.wait.since = Some(now);
        }
        let stands = seen.owes && seen.asked != before.asked && self.wait.since.is_some_and(|since| now - since >= self.limits.stall);
        // The end of a stream is behind its last chunk, too.
        if stands || sock::closed_by_peer(&self.socket) {
            self.wait.read_ahead = Some(seen.messages);
        }
        self.read_ahead()
    }

    /// Read on a chunk that is kept aside.
    fn read_early(&mut self, share: &mut usize) -> Result<Step, Error> {
        let Stage::Early(mut early, done) = std::mem::replace(&mut self.stage, Stage::Head) else { return Ok(Step::On) };
        let left = early.bytes.len() - done;
        // SAFETY: our own buffer.
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

    fn body(&mut self, chunk: Chunk, to: *mut u8, done: usize, share: &mut usize) -> Result<Step, Error> {
        let left = chunk.len() - done;
        if !self.core.resume(&chunk) {
            self.stage = Stage::Skip(left);
            return Ok(Step::On);
        }
        // SAFETY: as a writer we may fill the chunk's part of its buffer.
        let got = unsafe { self.receive(to.wrapping_add(done), left, pool::piece(left, *share)) };
        let bytes = *got.as_ref().unwrap_or(&0);
        let below = if bytes == left { self.core.written(&chunk) } else { self.core.paused(&chunk) };
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

    /// Tell the peer that a message is complete, where it is.
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
            share = share.saturating_sub(HEADER); // headers alone and bytes that are forgotten keep nobody waiting either
            match self.step(&mut share) {
                Ok(Step::On) => {}
                Ok(Step::Blocked) => return Next::Wait,
                Ok(Step::Ended(why)) => {
                    self.core.over(self.lane, &why);
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
        let stuck = self.stall.look(&self.socket, self.ack_bytes - self.out.len() as u64, self.limits, now) != Flow::Moves;
        if stuck || self.stall.clear() {
            self.core.set_stuck(self.lane, stuck);
            self.stuck = stuck;
        }
        if self.check_wait(now) {
            return Look::Run;
        }
        let waits = matches!(self.stage, Stage::Waiting(_)) || !self.stall.clear();
        if waits { Look::Again } else { Look::Enough }
    }
}

impl Drop for RecvLane {
    fn drop(&mut self) {
        // By name: a child of fork() may hold the socket open.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
