//! What keeps a receiving end from standing still when streams do: chunks that wait for their receive make way for those behind them, and
//! acknowledgements go over other streams.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Claim, INLINE, RecvCore, State};
use crate::budget::{Budget, Room};
use crate::error::Error;
use crate::locks::lock;
use crate::log::Level;
use crate::wire::Chunk;

/// Bytes of chunks that a connection keeps here,
const EARLY_PER_CONNECTION: usize = 64 << 20;
/// and all connections of a process.
const EARLY_PER_PROCESS: usize = 256 << 20;

/// A chunk that came before its receive, and is read out of the stream all the same.
pub(crate) struct EarlyChunk {
    pub(crate) chunk: Chunk,
    pub(crate) bytes: Box<[u8]>,
    _room: Room,
}

/// How far a connection is; what does not change stands still.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Messages that are complete.
    pub(crate) messages: u64,
    /// Chunks that have been written.
    pub(crate) chunks: u64,
    /// Times the caller has asked for a message that is not there.
    pub(crate) asked: u64,
    /// A receive is posted whose message is not complete.
    pub(crate) owes: bool,
}

/// What all connections of a process may keep aside.
pub(crate) fn early_budget() -> Arc<Budget> {
    Budget::new(EARLY_PER_PROCESS, None)
}

/// And one of them.
pub(super) fn connection_budget(all: &Arc<Budget>) -> Arc<Budget> {
    Budget::new(EARLY_PER_CONNECTION, Some(all.clone()))
}

impl RecvCore {
    /// Of this connection.
    pub(crate) fn progress(&self) -> Progress {
        let state = lock(&self.state);
        let asked = self.asked.load(Ordering::Relaxed);
        Progress { messages: state.base, chunks: state.chunks, asked, owes: !state.posts.is_empty() }
    }

    /// Memory for a chunk that has no receive; None where too much is kept already.
    pub(crate) fn reserve_early(&self, chunk: Chunk) -> Option<EarlyChunk> {
        let room = self.early_budget.take(chunk.len())?;
        Some(EarlyChunk { chunk, bytes: vec![0; chunk.len()].into(), _room: room })
    }

    /// A chunk that came before its receive is complete.
    pub(crate) fn keep_early(&self, early: EarlyChunk) -> Result<(), Error> {
        let posted = {
            let mut state = lock(&self.state);
            state.early.push(early);
            state.base + state.posts.len() as u64
        };
        self.deliver_early(posted) // its receive may have come meanwhile
    }

    /// Bring the chunks kept aside into the buffers that are posted now.
    pub(super) fn deliver_early(&self, posted: u64) -> Result<(), Error> {
        loop {
            let mut state = lock(&self.state);
            let Some(at) = state.early.iter().position(|early| early.chunk.seq < posted) else { break };
            let EarlyChunk { chunk, bytes, .. } = &state.early.swap_remove(at);
            drop(state);
            let below = match self.claim(chunk, None)? {
                Claim::Into(to) if self.resume(chunk) => {
                    // SAFETY: we are a writer of a buffer that has room for the whole message.
                    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
                    self.written(chunk)
                }
                Claim::Stale(below) => below,
                _ => None,
            };
            if let Some(below) = below {
                self.acknowledge_by_any(&mut lock(&self.state), chunk.seq, below);
            }
        }
        let inline_over = || lock(&self.state).dead & (1 << INLINE) != 0;
        if let Some(error) = self.gone.get().filter(|_| lock(&self.state).early.is_empty() && inline_over()) {
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

    /// Message `seq`, and all before `below`, have arrived: to be said by whichever streams' words do.
    pub(crate) fn acknowledge_elsewhere(&self, seq: u64, below: u64) {
        self.acknowledge_by_any(&mut lock(&self.state), seq, below);
    }

    /// Say again of all messages that are complete that they are.
    pub(super) fn repeat(&self, state: &mut State) {
        let below = state.base;
        let behind: Vec<u64> = (below..).zip(&state.posts).filter(|(_, post)| post.complete).map(|(seq, _)| seq).collect();
        for seq in behind.into_iter().chain([u64::MAX]) {
            self.acknowledge_by_any(state, seq, below);
        }
    }

    /// Acknowledgements that any stream may carry, for one whose own do arrive.
    pub(crate) fn take_acks(&self, lane: usize) -> Vec<(u64, u64)> {
        let mut state = lock(&self.state);
        if state.stuck & (1 << lane) == 0 { std::mem::take(&mut state.acks) } else { Vec::new() }
    }

    /// A stream's acknowledgements do not arrive, or do again: others say what it said, all at once.
    pub(crate) fn set_stuck(&self, lane: usize, stuck: bool) {
        let mut state = lock(&self.state);
        if (state.stuck & (1 << lane) != 0) == stuck {
            return;
        }
        state.stuck ^= 1 << lane;
        if stuck {
            self.repeat(&mut state);
            drop(state);
            (self.log)(Level::Info, &format!("{}: acknowledgements over stream {lane} do not arrive, others repeat them", self.label));
        } else if !state.acks.is_empty() {
            self.tasks()[lane].kick(); // they have waited for a stream that works
        }
    }
}
