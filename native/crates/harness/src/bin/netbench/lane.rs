//! One direction of a channel: a window of requests with their own buffers, of which the oldest is
//! tested.
//!
//! An empty message marks the end. A sender ends with as many of them as the window has buffers, so
//! that every posted receive is used.

use std::collections::VecDeque;
use std::time::Instant;

use busbw_harness::{Failure, Memory};

use crate::plugin::{Opaque, Plugin};

/// One end of a connection.
pub struct Lane {
    comm: Opaque,
    sends: bool,
    buffers: Vec<Memory>,
    ahead: VecDeque<Opaque>,
    posted: usize,
    ends: usize,
    /// Completed messages that were not empty.
    pub done: usize,
    /// When the first and the last of those completed.
    pub span: Option<(Instant, Instant)>,
}

impl Lane {
    /// `window` buffers of `size` bytes.
    pub fn new(comm: Opaque, sends: bool, size: usize, window: usize) -> Result<Self, Failure> {
        let buffers = (0..window).map(|_| Memory::new(size)).collect::<Result<_, _>>()?;
        Ok(Self {
            comm,
            sends,
            buffers,
            ahead: VecDeque::new(),
            posted: 0,
            ends: 0,
            done: 0,
            span: None,
        })
    }

    /// Whether there is room for another message or end.
    pub fn has_room(&self) -> bool {
        let window = self.buffers.len();
        // Ends use posted receives, too.
        let ends =
            if self.sends || self.ends == 0 { self.ends } else { self.ends + self.ahead.len() };
        self.ahead.len() < window && ends < window
    }

    /// Messages posted, without ends.
    pub fn posted(&self) -> usize {
        self.posted - if self.sends { self.ends } else { 0 }
    }

    /// Whether the end was received (on a receiver) or is being sent (on a sender).
    pub fn is_ending(&self) -> bool {
        self.ends > 0
    }

    /// Whether the end has been sent and everything posted is complete.
    pub fn is_over(&self) -> bool {
        self.ahead.is_empty() && self.ends == self.buffers.len()
    }

    /// Post a message if the plugin accepts one; returns whether it did.
    pub fn post(&mut self, plugin: &Plugin, end: bool) -> Result<bool, Failure> {
        let at = self.posted % self.buffers.len();
        let buffer = &mut self.buffers[at];
        let size = if end { 0 } else { buffer.len() };
        // SAFETY: `comm` is open until `close` consumes self. A buffer is reused only after its
        // request is done, and freed after `comm` is closed.
        let request = unsafe {
            if self.sends {
                plugin.isend(self.comm, buffer.as_mut_ptr(), size)
            } else {
                plugin.irecv(self.comm, buffer.as_mut_ptr(), size)
            }
        }?;
        let Some(request) = request else { return Ok(false) };
        self.ahead.push_back(request);
        self.posted += 1;
        self.ends += usize::from(end);
        Ok(true)
    }

    /// Test the oldest request; returns whether it was done.
    pub fn test(&mut self, plugin: &Plugin) -> Result<bool, Failure> {
        let Some(&request) = self.ahead.front() else { return Ok(false) };
        // SAFETY: the request leaves the queue when it is done, and `comm` is open until `close`
        // consumes self.
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

    /// Close the comm.
    pub fn close(self, plugin: &Plugin) -> Result<(), Failure> {
        // SAFETY: this consumes self, so it is the last use of `comm`.
        unsafe { plugin.close(self.comm, self.sends) }
    }
}
