//! What lets a receiving end continue when streams stall: the early-arrival buffer, and
//! acknowledgements that are repeated on other streams.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Claim, INLINE, RecvCore, State};
use crate::budget::{Budget, Room};
use crate::error::Error;
use crate::locks::lock;
use crate::log::Level;
use crate::wire::Chunk;

/// Limit of the early-arrival buffer of a connection in bytes.
const EARLY_PER_CONNECTION: usize = 64 << 20;
/// Limit of those of all connections of a process together.
const EARLY_PER_PROCESS: usize = 256 << 20;

/// A chunk read before its receive was posted.
pub(crate) struct EarlyChunk {
    pub(crate) chunk: Chunk,
    pub(crate) bytes: Box<[u8]>,
    _room: Room,
}

/// Progress of a connection. If nothing changes, it is stalled.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Complete messages.
    pub(crate) messages: u64,
    /// Chunks written.
    pub(crate) chunks: u64,
    /// Times the caller tested without success.
    pub(crate) asked: u64,
    /// A receive is posted whose message is not complete.
    pub(crate) owes: bool,
}

/// The memory that all connections of a process may use.
pub(crate) fn early_budget() -> Arc<Budget> {
    Budget::new(EARLY_PER_PROCESS, None)
}

/// The memory that one connection may use.
pub(super) fn connection_budget(all: &Arc<Budget>) -> Arc<Budget> {
    Budget::new(EARLY_PER_CONNECTION, Some(all.clone()))
}

impl RecvCore {
    /// The progress of this connection.
    pub(crate) fn progress(&self) -> Progress {
        let state = lock(&self.state);
        let asked = self.asked.load(Ordering::Relaxed);
        Progress {
            messages: state.base,
            chunks: state.chunks,
            asked,
            owes: !state.posts.is_empty(),
        }
    }

    /// Reserve memory for a chunk without a receive; None if too much is in use.
    pub(crate) fn reserve_early(&self, chunk: Chunk) -> Option<EarlyChunk> {
        let room = self.early_budget.take(chunk.len())?;
        Some(EarlyChunk { chunk, bytes: vec![0; chunk.len()].into(), _room: room })
    }

    /// Store a chunk that arrived completely before its receive was posted.
    pub(crate) fn keep_early(&self, early: EarlyChunk) -> Result<(), Error> {
        let posted = {
            let mut state = lock(&self.state);
            state.early.push(early);
            state.base + state.posts.len() as u64
        };
        self.deliver_early(posted) // the receive may have been posted meanwhile
    }

    /// Copy early chunks to the buffers that are posted now.
    pub(super) fn deliver_early(&self, posted: u64) -> Result<(), Error> {
        loop {
            let mut state = lock(&self.state);
            let Some(at) = state.early.iter().position(|early| early.chunk.seq < posted) else {
                break;
            };
            let EarlyChunk { chunk, bytes, .. } = &state.early.swap_remove(at);
            drop(state);
            let below = match self.claim(chunk, None)? {
                Claim::Into(to) if self.begin_write(chunk) => {
                    // SAFETY: `begin_write` made this thread a writer, so `to` stays valid until
                    // `finish_write`; `claim` checked that the chunk fits.
                    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
                    self.finish_write(chunk)
                }
                Claim::Stale(below) => below,
                _ => None,
            };
            if let Some(below) = below {
                self.acknowledge_by_any(&mut lock(&self.state), chunk.seq, below);
            }
        }
        let inline_ended = || lock(&self.state).dead & (1 << INLINE) != 0;
        if let Some(error) =
            self.gone.get().filter(|_| lock(&self.state).early.is_empty() && inline_ended())
        {
            self.fail(error.clone());
        }
        Ok(())
    }

    fn acknowledge_by_any(&self, state: &mut State, seq: u64, below: u64) {
        state.acks.push((seq, below));
        for (lane, task_ref) in self.tasks().iter().enumerate() {
            if (state.dead | state.stuck) & (1 << lane) == 0 {
                task_ref.kick();
            }
        }
    }

    /// Have any working stream send that message `seq` and all below `below` are complete.
    pub(crate) fn acknowledge_elsewhere(&self, seq: u64, below: u64) {
        self.acknowledge_by_any(&mut lock(&self.state), seq, below);
    }

    /// Repeat the acknowledgements of all complete messages.
    pub(super) fn repeat_acks(&self, state: &mut State) {
        let below = state.base;
        let behind: Vec<u64> = (below..)
            .zip(&state.posts)
            .filter(|(_, post)| post.complete)
            .map(|(seq, _)| seq)
            .collect();
        for seq in behind.into_iter().chain([u64::MAX]) {
            self.acknowledge_by_any(state, seq, below);
        }
    }

    /// The acknowledgements that any stream may send, for a stream whose own arrive.
    pub(crate) fn take_acks(&self, lane: usize) -> Vec<(u64, u64)> {
        let mut state = lock(&self.state);
        if state.stuck & (1 << lane) == 0 { std::mem::take(&mut state.acks) } else { Vec::new() }
    }

    /// The acknowledgements of a stream stop to arrive, or arrive again. If they stop, others
    /// repeat all of them.
    pub(crate) fn set_stuck(&self, lane: usize, stuck: bool) {
        let mut state = lock(&self.state);
        if (state.stuck & (1 << lane) != 0) == stuck {
            return;
        }
        state.stuck ^= 1 << lane;
        if stuck {
            self.repeat_acks(&mut state);
            drop(state);
            (self.log)(
                Level::Info,
                &format!(
                    "{}: acknowledgements on stream {lane} do not arrive, other streams repeat them",
                    self.label
                ),
            );
        } else if !state.acks.is_empty() {
            self.tasks()[lane].kick(); // they waited for a working stream
        }
    }
}
