//! The inline stream: small messages are copied and sent by the caller's thread, and kept until the
//! peer has them.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use socket2::Socket;

use super::{InFlight, KEPT_BYTES, MAX_KEPT, SendCore, State};
use crate::error::Error;
use crate::locks::lock;
use crate::log::Level;
use crate::sock::{self, Io};
use crate::stall::{Flow, StallDetector};
use crate::wire::{Chunk, Frame, HEADER};

/// A small message, until it is acknowledged.
pub(super) struct Kept {
    pub(super) seq: u64,
    pub(super) bytes: Arc<[u8]>,
}

impl Kept {
    fn chunk(&self) -> Chunk {
        Chunk {
            seq: self.seq,
            total: self.bytes.len() as u64,
            offset: 0,
            chunk: self.bytes.len() as u32,
        }
    }
}

/// The inline stream, used by the caller's thread.
pub(crate) struct InlineStream {
    pub(super) socket: Socket,
    /// Bytes that the kernel has not taken.
    pub(super) backlog: VecDeque<u8>,
    /// Bytes passed to the stream, and bytes that the kernel has taken.
    given: u64,
    taken: u64,
    pub(super) kept: VecDeque<Kept>,
    // end of each message in the stream, slot of its request, size
    marks: VecDeque<(u64, usize, u64)>,
    acks: Vec<u8>,
    pub(super) ended: bool,
    stall: StallDetector,
}

impl InlineStream {
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            backlog: VecDeque::new(),
            given: 0,
            taken: 0,
            kept: VecDeque::new(),
            marks: VecDeque::new(),
            acks: Vec::new(),
            ended: false,
            stall: StallDetector::default(),
        }
    }

    /// Whether a message may be sent on it: what is kept has limits, and only a `small` one waits
    /// for the bytes before it.
    pub(super) fn has_room(&self, size: usize, small: bool) -> bool {
        let kept_bytes = || self.kept.iter().map(|kept| kept.bytes.len()).sum::<usize>();
        self.kept.len() < MAX_KEPT
            && (small
                || !self.ended && self.backlog.is_empty() && kept_bytes() + size <= KEPT_BYTES)
    }
}

impl SendCore {
    pub(super) fn send_inline(
        &self,
        inline: &mut InlineStream,
        kept: Kept,
        slot: usize,
        monitor: usize,
    ) {
        let head = Frame::Chunk(kept.chunk()).encode();
        let whole = HEADER + kept.bytes.len();
        inline.given += whole as u64;
        inline.marks.push_back((inline.given, slot, kept.bytes.len() as u64));
        let mut sent = 0;
        if inline.backlog.is_empty() && !inline.ended {
            // SAFETY: `kept.bytes` is an Arc that this function owns, so it is readable for its
            // length during the call.
            match unsafe {
                sock::send(inline.socket.as_raw_fd(), &head, kept.bytes.as_ptr(), kept.bytes.len())
            } {
                Io::Done(bytes) => sent = bytes,
                Io::Blocked => {}
                Io::Ended(_) => inline.ended = true, // its messages are kept: see `check_inline`
            }
        }
        inline.taken += sent as u64;
        inline.backlog.extend(
            head[sent.min(HEADER)..].iter().chain(&kept.bytes[sent.saturating_sub(HEADER)..]),
        );
        if inline.kept.is_empty() {
            if let Some(task_ref) = self.tasks().get(monitor) {
                task_ref.rouse();
            }
        }
        inline.kept.push_back(kept);
        self.complete_inline(inline);
    }

    /// Complete the requests whose bytes the kernel has: their buffers are free, since the messages
    /// were copied.
    fn complete_inline(&self, inline: &mut InlineStream) {
        while let Some(&(end, slot, size)) = inline.marks.front() {
            if end > inline.taken {
                break;
            }
            inline.marks.pop_front();
            self.requests[slot].complete(size);
        }
    }

    pub(super) fn flush_inline(&self, inline: &mut InlineStream) {
        while !inline.backlog.is_empty() && !inline.ended {
            let (front, _) = inline.backlog.as_slices();
            // SAFETY: `front` borrows from the backlog, which does not change during the call.
            match unsafe { sock::send(inline.socket.as_raw_fd(), &[], front.as_ptr(), front.len()) }
            {
                Io::Done(bytes) => {
                    inline.taken += bytes as u64;
                    inline.backlog.drain(..bytes);
                }
                Io::Blocked => break,
                Io::Ended(_) => inline.ended = true,
            }
        }
        self.complete_inline(inline);
    }

    /// Read acknowledgements from the inline stream.
    ///
    /// # Errors
    /// Something other than an acknowledgement arrived: the connection has failed.
    pub(super) fn read_acks(
        &self,
        inline: &mut InlineStream,
        state: &mut State,
    ) -> Result<(), Error> {
        self.try_read_acks(inline, state).map_err(|error| {
            let error = self.error(error.kind, &error.message);
            let _ = self.failed.set(error.clone());
            error
        })
    }

    fn try_read_acks(&self, inline: &mut InlineStream, state: &mut State) -> Result<(), Error> {
        let mut buffer = [0u8; 16 * HEADER];
        while !inline.ended {
            // SAFETY: `buffer` is a local array, writable for its whole length during the call.
            match unsafe {
                sock::receive(inline.socket.as_raw_fd(), buffer.as_mut_ptr(), buffer.len(), &mut [])
            } {
                Io::Done(bytes) => {
                    inline.acks.extend_from_slice(&buffer[..bytes]);
                    if bytes < buffer.len() {
                        break;
                    }
                }
                Io::Blocked => break,
                Io::Ended(_) => inline.ended = true,
            }
        }
        let whole = inline.acks.len() / HEADER * HEADER;
        let frames: Vec<_> = inline.acks.drain(..whole).collect();
        for frame in frames.chunks_exact(HEADER) {
            if let Frame::Ack { seq, below } =
                Frame::decode(frame.try_into().unwrap_or(&[0; HEADER]))?
            {
                inline.kept.retain(|kept| kept.seq > seq); // the peer takes them in order
                self.acknowledged(state, seq, below);
            }
        }
        Ok(())
    }

    /// Called by the first stream's tick. Resends small messages as chunks if the inline stream is
    /// stalled; discards them once the peer's kernel has them.
    pub(crate) fn check_inline(&self, now: Instant) {
        let mut state = lock(&self.state);
        let mut inline = lock(&self.inline);
        if let Err(error) = self.read_acks(&mut inline, &mut state) {
            drop((inline, state));
            return (self.log)(Level::Info, &error.message);
        }
        if inline.kept.is_empty() {
            return;
        }
        let InlineStream { socket, stall, taken, ended, .. } = &mut *inline;
        let stuck = *ended || stall.check(socket, *taken, self.limits, now) != Flow::Moves;
        if stuck && self.alive(&state) != 0 {
            let why = if *ended { "has ended" } else { "makes no progress" };
            let again = self.abandon_inline(&mut inline, &mut state);
            drop((inline, state));
            self.counters.stall(again);
            self.log_info(&format!(
                "the inline stream {why}, {again} messages are resent on other streams"
            ));
        } else if sock::unacknowledged(&inline.socket) == 0 && inline.backlog.is_empty() {
            inline.kept.clear();
        }
    }

    /// From now on send small messages as chunks. Returns how many are resent.
    fn abandon_inline(&self, inline: &mut InlineStream, state: &mut State) -> usize {
        self.inline_down.store(true, Ordering::Relaxed);
        let again = inline.kept.len();
        for kept in inline.kept.drain(..) {
            let data = kept.bytes.as_ptr();
            self.start_message(state, InFlight::new(None, kept.chunk(), data, Some(kept.bytes)));
        }
        // The copies are sent from `kept`, so the callers' buffers are free.
        inline.taken = inline.given;
        inline.backlog.clear();
        inline.ended = true; // it may end with part of a message, so it is never used again
        self.complete_inline(inline);
        again
    }
}
