//! Durations on the GPU: NCCL reports start and end of every channel, in any order, on threads of
//! its own.

use std::sync::{Mutex, PoisonError};

/// Timings that can be under way at once. NCCL keeps 64 for each channel.
const SLOTS: usize = 4096;

/// A timing under way.
#[derive(Clone, Copy, Debug)]
struct Slot {
    id: u64,
    started: u8,
    ended: u8,
    channels: u8,
    start: u64,
    end: u64,
}

impl Slot {
    const EMPTY: Self = Self { id: 0, started: 0, ended: 0, channels: 0, start: u64::MAX, end: 0 };
}

/// All timings under way. Ids count from 1 and are never used twice, so a late event of a forgotten
/// timing finds nothing.
#[derive(Debug)]
pub struct Timings {
    slots: Vec<Mutex<Slot>>,
}

impl Timings {
    /// None under way.
    pub fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| Mutex::new(Slot::EMPTY)).collect() }
    }

    fn with<T>(&self, id: u64, work: impl FnOnce(&mut Slot) -> T) -> T {
        let at = usize::try_from(id % SLOTS as u64).unwrap_or_default();
        work(&mut self.slots[at].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begin a timing of so many channels. True if an incomplete one had to give way.
    pub fn begin(&self, id: u64, channels: u8) -> bool {
        self.with(id, |slot| std::mem::replace(slot, Slot { id, channels, ..Slot::EMPTY }).id != 0)
    }

    /// A channel has started.
    pub fn started(&self, id: u64, time: u64) {
        self.with(id, |slot| {
            if slot.id == id {
                slot.started = slot.started.saturating_add(1);
                slot.start = slot.start.min(time);
            }
        });
    }

    /// A channel has ended. After the last one: start and end over all channels.
    pub fn ended(&self, id: u64, time: u64) -> Option<(u64, u64)> {
        self.with(id, |slot| {
            if slot.id != id {
                return None;
            }
            slot.ended = slot.ended.saturating_add(1);
            slot.end = slot.end.max(time);
            if slot.ended < slot.channels || slot.started < slot.channels {
                return None;
            }
            let times = (slot.start, slot.end);
            *slot = Slot::EMPTY;
            Some(times)
        })
    }
}
