//! What keeps a receiving end from standing still when streams do: chunks that wait for their receive make way for those behind them, and
//! acknowledgements go over other streams.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Claim, HOME, RecvCore, State};
use crate::Level;
use crate::budget::{Budget, Room};
use crate::error::Error;
use crate::locks::lock;
use crate::wire::Chunk;

/// Bytes of chunks that a connection keeps here,
const MOST_ASIDE: usize = 64 << 20;
/// and all connections of a process.
const MOST_ASIDE_ALL: usize = 256 << 20;

/// A chunk that came before its receive, and is read out of the stream all the same.
pub(crate) struct Aside {
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
pub(crate) fn budget() -> Arc<Budget> {
    Budget::new(MOST_ASIDE_ALL, None)
}

/// And one of them.
pub(super) fn part_of(all: &Arc<Budget>) -> Arc<Budget> {
    Budget::new(MOST_ASIDE, Some(all.clone()))
}

impl RecvCore {
    /// Of this connection.
    pub(crate) fn progress(&self) -> Progress {
        let state = lock(&self.state);
        let asked = self.asked.load(Ordering::Relaxed);
        Progress { messages: state.base, chunks: state.chunks, asked, owes: !state.posts.is_empty() }
    }

    /// Memory for a chunk that has no receive; None where too much is kept already.
    pub(crate) fn room_aside(&self, chunk: Chunk) -> Option<Aside> {
        let room = self.aside.take(chunk.len())?;
        Some(Aside { chunk, bytes: vec![0; chunk.len()].into(), _room: room })
    }

    /// A chunk that came before its receive is complete.
    pub(crate) fn put_aside(&self, aside: Aside) -> Result<(), Error> {
        let posted = {
            let mut state = lock(&self.state);
            state.aside.push(aside);
            state.base + state.posts.len() as u64
        };
        self.place_aside(posted) // its receive may have come meanwhile
    }

    /// Bring the chunks kept aside into the buffers that are posted now.
    pub(super) fn place_aside(&self, posted: u64) -> Result<(), Error> {
        loop {
            let mut state = lock(&self.state);
            let Some(at) = state.aside.iter().position(|aside| aside.chunk.seq < posted) else { break };
            let Aside { chunk, bytes, .. } = &state.aside.swap_remove(at);
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
        let home_over = || lock(&self.state).dead & (1 << HOME) != 0;
        if let Some(error) = self.gone.get().filter(|_| lock(&self.state).aside.is_empty() && home_over()) {
            self.fail(error.clone());
        }
        Ok(())
    }

    fn acknowledge_by_any(&self, state: &mut State, seq: u64, below: u64) {
        state.acks.push((seq, below));
        for (lane, seat) in self.seats().iter().enumerate() {
            if (state.dead | state.stuck) & (1 << lane) == 0 {
                seat.kick();
            }
        }
    }

    /// Message `seq`, and all before `below`, have arrived: to be said by whichever streams' words do.
    pub(crate) fn say_elsewhere(&self, seq: u64, below: u64) {
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
    pub(crate) fn sticks(&self, lane: usize, stuck: bool) {
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
            self.seats()[lane].kick(); // they have waited for a stream that works
        }
    }
}
