//! The stream of small messages: copied and sent by the caller's thread, kept until the peer has them.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use socket2::Socket;

use super::{Flying, NONE, SendCore, State, Still, lock};
use crate::Level;
use crate::sock::{self, Io};
use crate::wire::{Chunk, Frame, HEADER};

/// For the peer's kernel to take the last small messages before the streams close.
const LINGER: Duration = Duration::from_millis(500);

/// A small message, until it is acknowledged.
pub(super) struct Kept {
    pub(super) seq: u64,
    pub(super) tag: i32,
    pub(super) bytes: Box<[u8]>,
}

/// The stream of small messages, used by the caller's thread.
pub(crate) struct Home {
    socket: Socket,
    /// Not yet taken by the kernel.
    pub(super) backlog: VecDeque<u8>,
    /// Bytes handed over so far, and taken by the kernel so far.
    given: u64,
    taken: u64,
    pub(super) kept: VecDeque<Kept>,
    marks: VecDeque<(u64, usize, u64)>, // where each request's bytes end, its place and size
    heard: Vec<u8>,
    ended: bool,
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
        let head =
            Frame::Chunk(Chunk { seq: kept.seq, total: kept.bytes.len() as u64, offset: 0, chunk: kept.bytes.len() as u32, tag: kept.tag })
                .encode();
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
    pub(super) fn hear_home(&self, home: &mut Home, state: &mut State) {
        let mut buffer = [0u8; 16 * HEADER];
        while !home.ended {
            // SAFETY: our own buffer.
            match unsafe { sock::receive(home.socket.as_raw_fd(), buffer.as_mut_ptr(), buffer.len(), &mut []) } {
                Io::Done(bytes) => home.heard.extend_from_slice(&buffer[..bytes]),
                Io::Blocked => break,
                Io::Ended(_) => home.ended = true,
            }
        }
        let whole = home.heard.len() / HEADER * HEADER;
        let frames: Vec<_> = home.heard.drain(..whole).collect();
        for frame in frames.chunks_exact(HEADER) {
            match Frame::decode(frame.try_into().unwrap_or(&[0; HEADER])) {
                Ok(Frame::Ack { seq, below }) => {
                    home.kept.retain(|kept| kept.seq >= below && kept.seq != seq);
                    self.acknowledged(state, seq, below);
                }
                Ok(_) => {}
                Err(error) => self.fail(self.error(error.kind, &error.message)),
            }
        }
    }

    /// Called by the first stream's tick: small messages go as chunks when their stream stands still, and are forgotten once the peer's
    /// kernel has them and no stream is in doubt.
    pub(crate) fn look_home(&self, now: Instant) {
        let mut state = lock(&self.state);
        let mut home = lock(&self.home);
        self.hear_home(&mut home, &mut state);
        if home.kept.is_empty() {
            return;
        }
        let Home { socket, still, taken, ended, .. } = &mut *home;
        let stuck = *ended || still.look(socket, *taken, Duration::from_millis(self.config.stall_ms), now);
        if stuck && self.alive(&state) != 0 {
            let why = if *ended { "has ended" } else { "makes no progress" };
            self.home_down.store(true, Ordering::Relaxed);
            let kept: Vec<Kept> = home.kept.drain(..).collect();
            self.counters.stall(kept.len());
            (self.log)(Level::Info, &format!("{}: the stream of small messages {why}, {} go over others", self.label, kept.len()));
            for Kept { seq, tag, bytes } in kept {
                let chunk = Chunk { seq, total: bytes.len() as u64, offset: 0, chunk: bytes.len() as u32, tag };
                let flying = Flying { seq, request: None, data: bytes.as_ptr(), chunk, carriers: vec![NONE; 1], _kept: Some(bytes) };
                self.fly(&mut state, flying, false);
            }
            // The copies go elsewhere, so the callers' buffers are free.
            home.taken = home.given;
            home.backlog.clear();
            home.ended = true; // half a message may be in it: it is never used again
            self.settle_home(&mut home);
        } else if sock::unacknowledged(&home.socket) == 0 && home.backlog.is_empty() {
            home.kept.clear();
        }
    }

    /// Wait, but not long, until the peer's kernel has the small messages: their callers were told that they are sent.
    pub(crate) fn linger(&self) {
        let end = Instant::now() + LINGER;
        while self.failed.get().is_none() && Instant::now() < end {
            let mut home = lock(&self.home);
            self.flush_home(&mut home);
            if home.ended || (home.backlog.is_empty() && sock::unacknowledged(&home.socket) == 0) {
                break;
            }
            drop(home);
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}
