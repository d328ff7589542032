//! One direction of a channel: a window of requests over buffers of its own, of which only the oldest is tested.
//!
//! An empty message says that no more come; a sender ends with as many of them as the window holds, so that every buffer that the
//! receiver has posted is used.

use std::collections::VecDeque;
use std::time::Instant;

use harness::{Failure, Memory};

use crate::plugin::{Opaque, Plugin};

/// One end of a one-way connection.
pub struct Lane {
    comm: Opaque,
    sends: bool,
    buffers: Vec<Memory>,
    ahead: VecDeque<Opaque>,
    posted: usize,
    ends: usize,
    /// Messages done that were not empty.
    pub done: usize,
    /// When the first and the last of those were done.
    pub span: Option<(Instant, Instant)>,
}

impl Lane {
    /// `window` buffers of `size` bytes, all touched.
    pub fn new(comm: Opaque, sends: bool, size: usize, window: usize) -> Result<Self, Failure> {
        let buffers = (0..window).map(|_| Memory::new(size)).collect::<Result<_, _>>()?;
        Ok(Self { comm, sends, buffers, ahead: VecDeque::new(), posted: 0, ends: 0, done: 0, span: None })
    }

    /// Whether there is room for another message, or for one that says that no more come.
    pub fn has_room(&self) -> bool {
        let window = self.buffers.len();
        // What a receiver has posted is used up by ends, too.
        let ends = if self.sends || self.ends == 0 { self.ends } else { self.ends + self.ahead.len() };
        self.ahead.len() < window && ends < window
    }

    /// Messages posted, without those that say that no more come.
    pub fn posted(&self) -> usize {
        self.posted - if self.sends { self.ends } else { 0 }
    }

    /// Whether the peer has said that no more come (of a receiver), or this end is saying so (of a sender).
    pub fn is_ending(&self) -> bool {
        self.ends > 0
    }

    /// Whether the end has been said and everything posted is done.
    pub fn is_over(&self) -> bool {
        self.ahead.is_empty() && self.ends == self.buffers.len()
    }

    /// Post one message, where the plugin can: whether it did.
    pub fn post(&mut self, plugin: &Plugin, end: bool) -> Result<bool, Failure> {
        let at = self.posted % self.buffers.len();
        let buffer = &mut self.buffers[at];
        let size = if end { 0 } else { buffer.len() };
        // SAFETY: the buffer is used again only after its request, the oldest, is done, and lives until after the comm is closed.
        let request = unsafe {
            if self.sends { plugin.isend(self.comm, buffer.as_mut_ptr(), size) } else { plugin.irecv(self.comm, buffer.as_mut_ptr(), size) }
        }?;
        let Some(request) = request else { return Ok(false) };
        self.ahead.push_back(request);
        self.posted += 1;
        self.ends += usize::from(end);
        Ok(true)
    }

    /// Test the oldest: whether it was done.
    pub fn test(&mut self, plugin: &Plugin) -> Result<bool, Failure> {
        let Some(&request) = self.ahead.front() else { return Ok(false) };
        // SAFETY: it leaves the queue when it is done, and the comm is open as long as this lives.
        let Some(size) = (unsafe { plugin.test(request) })? else { return Ok(false) };
        self.ahead.pop_front();
        if size == 0 {
            self.ends += usize::from(!self.sends);
        } else {
            let now = Instant::now();
            self.done += 1;
            self.span = Some((self.span.map_or(now, |(first, _)| first), now));
        }
        Ok(true)
    }

    /// Close its comm.
    pub fn close(self, plugin: &Plugin) -> Result<(), Failure> {
        // SAFETY: consumes self, so this is the last use.
        unsafe { plugin.close(self.comm, self.sends) }
    }
}
