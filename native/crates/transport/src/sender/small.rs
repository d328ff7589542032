//! The stream of small messages: copied and sent by the caller's thread, kept until the peer has them.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use socket2::Socket;

use super::{Flying, SendCore, State};
use crate::Level;
use crate::error::Error;
use crate::locks::lock;
use crate::sock::{self, Io};
use crate::still::{Standing, Still};
use crate::wire::{Chunk, Frame, HEADER};

/// A small message, until it is acknowledged.
pub(super) struct Kept {
    pub(super) seq: u64,
    pub(super) tag: i32,
    pub(super) bytes: Arc<[u8]>,
}

impl Kept {
    fn chunk(&self) -> Chunk {
        Chunk { seq: self.seq, total: self.bytes.len() as u64, offset: 0, chunk: self.bytes.len() as u32, tag: self.tag }
    }
}

/// The stream of small messages, used by the caller's thread.
pub(crate) struct Home {
    pub(super) socket: Socket,
    /// Not yet taken by the kernel.
    pub(super) backlog: VecDeque<u8>,
    /// Bytes handed over so far, and taken by the kernel so far.
    given: u64,
    taken: u64,
    pub(super) kept: VecDeque<Kept>,
    marks: VecDeque<(u64, usize, u64)>, // where each request's bytes end, its place and size
    heard: Vec<u8>,
    pub(super) ended: bool,
    still: Still,
}

impl Home {
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            backlog: VecDeque::new(),
            given: 0,
            taken: 0,
            kept: VecDeque::new(),
            marks: VecDeque::new(),
            heard: Vec::new(),
            ended: false,
            still: Still::default(),
        }
    }
}

impl SendCore {
    pub(super) fn send_small(&self, home: &mut Home, kept: Kept, place: usize, looks: usize) {
        let head = Frame::Chunk(kept.chunk()).encode();
        let whole = HEADER + kept.bytes.len();
        home.given += whole as u64;
        home.marks.push_back((home.given, place, kept.bytes.len() as u64));
        let mut sent = 0;
        if home.backlog.is_empty() && !home.ended {
            // SAFETY: our own bytes.
            match unsafe { sock::send(home.socket.as_raw_fd(), &head, kept.bytes.as_ptr(), kept.bytes.len()) } {
                Io::Done(bytes) => sent = bytes,
                Io::Blocked => {}
                Io::Ended(_) => home.ended = true, // its messages are kept: see `look_home`
            }
        }
        home.taken += sent as u64;
        home.backlog.extend(head[sent.min(HEADER)..].iter().chain(&kept.bytes[sent.saturating_sub(HEADER)..]));
        if home.kept.is_empty() {
            if let Some(seat) = self.seats().get(looks) {
                seat.rouse();
            }
        }
        home.kept.push_back(kept);
        self.settle_home(home);
    }

    /// Requests whose bytes the kernel has are done: their buffers are free, and copies are kept.
    fn settle_home(&self, home: &mut Home) {
        while let Some(&(end, place, size)) = home.marks.front() {
            if end > home.taken {
                break;
            }
            home.marks.pop_front();
            self.requests[place].complete(0, size);
        }
    }

    pub(super) fn flush_home(&self, home: &mut Home) {
        while !home.backlog.is_empty() && !home.ended {
            let (front, _) = home.backlog.as_slices();
            // SAFETY: our own bytes.
            match unsafe { sock::send(home.socket.as_raw_fd(), &[], front.as_ptr(), front.len()) } {
                Io::Done(bytes) => {
                    home.taken += bytes as u64;
                    home.backlog.drain(..bytes);
                }
                Io::Blocked => break,
                Io::Ended(_) => home.ended = true,
            }
        }
        self.settle_home(home);
    }

    /// Read acknowledgements from the stream of small messages.
    ///
    /// # Errors
    /// What came is no acknowledgement: the connection has failed.
    pub(super) fn hear_home(&self, home: &mut Home, state: &mut State) -> Result<(), Error> {
        self.read_home(home, state).map_err(|error| {
            let error = self.error(error.kind, &error.message);
            let _ = self.failed.set(error.clone());
            error
        })
    }

    fn read_home(&self, home: &mut Home, state: &mut State) -> Result<(), Error> {
        let mut buffer = [0u8; 16 * HEADER];
        while !home.ended {
            // SAFETY: our own buffer.
            match unsafe { sock::receive(home.socket.as_raw_fd(), buffer.as_mut_ptr(), buffer.len(), &mut []) } {
                Io::Done(bytes) => {
                    home.heard.extend_from_slice(&buffer[..bytes]);
                    if bytes < buffer.len() {
                        break;
                    }
                }
                Io::Blocked => break,
                Io::Ended(_) => home.ended = true,
            }
        }
        let whole = home.heard.len() / HEADER * HEADER;
        let frames: Vec<_> = home.heard.drain(..whole).collect();
        for frame in frames.chunks_exact(HEADER) {
            if let Frame::Ack { seq, below } = Frame::decode(frame.try_into().unwrap_or(&[0; HEADER]))? {
                home.kept.retain(|kept| kept.seq > seq); // they are taken in order
                self.acknowledged(state, seq, below);
            }
        }
        Ok(())
    }

    /// Called by the first stream's tick: small messages go as chunks when their stream stands still, and are forgotten once the peer's
    /// kernel has them and no stream is in doubt.
    pub(crate) fn look_home(&self, now: Instant) {
        let mut state = lock(&self.state);
        let mut home = lock(&self.home);
        if let Err(error) = self.hear_home(&mut home, &mut state) {
            drop((home, state));
            return (self.log)(Level::Info, &error.message);
        }
        if home.kept.is_empty() {
            return;
        }
        let Home { socket, still, taken, ended, .. } = &mut *home;
        let stuck = *ended || still.look(socket, *taken, self.limits, now) != Standing::Moves;
        if stuck && self.alive(&state) != 0 {
            let why = if *ended { "has ended" } else { "makes no progress" };
            let again = self.forsake_home(&mut home, &mut state);
            drop((home, state));
            self.counters.stall(again);
            self.say(&format!("the stream of small messages {why}, {again} go over others"));
        } else if sock::unacknowledged(&home.socket) == 0 && home.backlog.is_empty() {
            home.kept.clear();
        }
    }

    /// Small messages go over the other streams from now on. How many are sent again.
    fn forsake_home(&self, home: &mut Home, state: &mut State) -> usize {
        self.home_down.store(true, Ordering::Relaxed);
        let again = home.kept.len();
        for kept in home.kept.drain(..) {
            let data = kept.bytes.as_ptr();
            self.fly(state, Flying::new(None, kept.chunk(), data, Some(kept.bytes)));
        }
        // The copies go elsewhere, so the callers' buffers are free.
        home.taken = home.given;
        home.backlog.clear();
        home.ended = true; // half a message may be in it: it is never used again
        self.settle_home(home);
        again
    }
}
