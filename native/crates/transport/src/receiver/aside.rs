//! What keeps a receiving end from standing still when streams do: chunks that wait for their receive make way for those behind them, and
//! acknowledgements go over other streams.

use super::{Claim, RecvCore, State, lock};
use crate::Level;
use crate::error::Error;
use crate::wire::Chunk;

/// Bytes of chunks that came before their receive and are kept here, so that others behind them are not held up.
const MOST_ASIDE: usize = 64 << 20;

impl RecvCore {
    /// Whether `bytes` more may be kept aside; they count until they are placed.
    pub(crate) fn reserve_aside(&self, bytes: usize) -> bool {
        let mut state = lock(&self.state);
        let fits = state.aside_bytes + bytes <= MOST_ASIDE;
        state.aside_bytes += if fits { bytes } else { 0 };
        fits
    }

    /// A chunk that came before its receive is complete.
    pub(crate) fn put_aside(&self, chunk: Chunk, bytes: Box<[u8]>) -> Result<(), Error> {
        let posted = {
            let mut state = lock(&self.state);
            state.aside.push((chunk, bytes));
            state.base + state.posts.len() as u64
        };
        self.place_aside(posted) // its receive may have come meanwhile
    }

    /// Bring the chunks kept aside into the buffers that are posted now.
    pub(super) fn place_aside(&self, posted: u64) -> Result<(), Error> {
        loop {
            let mut state = lock(&self.state);
            let Some(at) = state.aside.iter().position(|(chunk, _)| chunk.seq < posted) else { return Ok(()) };
            let (chunk, bytes) = state.aside.swap_remove(at);
            state.aside_bytes -= bytes.len();
            drop(state);
            let below = match self.claim(&chunk, None)? {
                Claim::Into(to) if self.resume(&chunk) => {
                    // SAFETY: we are a writer of a buffer that has room for the whole message.
                    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
                    self.written(&chunk)
                }
                Claim::Stale(below) => below,
                _ => None,
            };
            if let Some(below) = below {
                self.acknowledge_by_any(&mut lock(&self.state), chunk.seq, below);
            }
        }
    }

    fn acknowledge_by_any(&self, state: &mut State, seq: u64, below: u64) {
        state.acks.push((seq, below));
        for (lane, seat) in self.seats().iter().enumerate() {
            if (state.dead | state.stuck) & (1 << lane) == 0 {
                seat.kick();
            }
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
            let below = state.base;
            self.acknowledge_by_any(&mut state, u64::MAX, below);
            (self.log)(Level::Info, &format!("{}: acknowledgements over stream {lane} do not arrive, others repeat them", self.label));
        }
    }
}
