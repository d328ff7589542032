//! What an I/O thread runs.

use std::os::fd::RawFd;
use std::time::Instant;

/// What a stream's run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing to do until its socket is ready or somebody kicks it.
    Wait,
    /// It has had its share; others first.
    Again,
    /// It has ended.
    Gone,
}

/// What a stream carries at once of what is `left` of a chunk, when it has a `share` left, in bytes: no system calls for little.
pub fn piece(left: usize, share: usize) -> usize {
    const LITTLE: usize = 64 << 10;
    if left <= share + LITTLE { left } else { share.max(LITTLE) }
}

/// What a look at a stream from time to time came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// There is nothing to look at before it has run again.
    Enough,
    /// Look again.
    Again,
    /// Run it, and look again.
    Run,
}

/// A stream, in the hands of one thread at a time.
pub trait Task: Send {
    /// Its socket.
    fn fd(&self) -> RawFd;
    /// Do what can be done without waiting, up to about `share` bytes.
    fn run(&mut self, share: usize) -> Next;
    /// Called about ten times a second, as long as some stream of the thread wants to be looked at.
    fn tick(&mut self, now: Instant) -> Look;
    /// It cannot go on, and is dropped: whoever waits for it must know.
    fn broken(&mut self, why: &str);
}

/// Which way a stream carries chunks.
#[derive(Clone, Copy, Debug)]
pub enum Direction {
    /// To the peer.
    Out,
    /// From it.
    In,
}
