//! The interface between I/O threads and what they run.

use std::os::fd::RawFd;
use std::time::Instant;

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing to do until its socket is ready or it is kicked.
    Wait,
    /// It has used its share: run it again after the others.
    Again,
    /// It has ended.
    Gone,
}

/// How many of the `left` bytes of a chunk to move in one call with a `share` left. Avoids system
/// calls for few bytes.
pub fn piece(left: usize, share: usize) -> usize {
    const LITTLE: usize = 64 << 10;
    if left <= share + LITTLE { left } else { share.max(LITTLE) }
}

/// The result of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// No tick is needed before the next run.
    Enough,
    /// Tick again.
    Again,
    /// Run it, and tick again.
    Run,
}

/// A stream, used by one thread at a time.
pub trait Task: Send {
    /// Its socket.
    fn fd(&self) -> RawFd;
    /// Do what is possible without blocking, up to about `share` bytes.
    fn run(&mut self, share: usize) -> Next;
    /// Called about ten times a second while any stream of the thread asks for it.
    fn tick(&mut self, now: Instant) -> Look;
    /// The stream is dropped because of an internal error. Report it to waiting callers.
    fn broken(&mut self, why: &str);
}

/// The direction of a stream's chunks.
#[derive(Clone, Copy, Debug)]
pub enum Direction {
    /// To the peer.
    Out,
    /// From the peer.
    In,
}
