//! A bounded queue of records in a mapping: many threads put records in without a lock, one takes
//! them out.
//!
//! A record's ticket is its number from 1 on, and is written last. So a reader of the file knows
//! which slots are complete, and can leave out records that it has already seen outside the ring.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

/// Words of 8 bytes in the header, which is one page. Loom follows each of them.
pub const HEADER_WORDS: usize = if cfg!(loom) { 17 } else { 512 };
/// Words in a record, the ticket included.
pub const RECORD_WORDS: usize = 8;

/// The words of the header.
pub mod header {
    /// "BUSBWCAP".
    pub const MAGIC: usize = 0;
    /// Version of the layout.
    pub const VERSION: usize = 1;
    /// Slots of the ring.
    pub const CAPACITY: usize = 2;
    /// Records put in so far.
    pub const HEAD: usize = 3;
    /// Records taken out so far.
    pub const TAIL: usize = 4;
    /// Records for which the ring had no room.
    pub const DROPPED: usize = 5;
    /// Timings that ended incomplete.
    pub const UNTIMED: usize = 6;
    /// Launches without a time, because all CUDA events were in use.
    pub const NO_EVENT: usize = 7;
    /// The last errno of appending.
    pub const ERRNO: usize = 8;
    /// CLOCK_REALTIME in ns at the start.
    pub const REALTIME: usize = 9;
    /// CLOCK_MONOTONIC in ns at the same moment.
    pub const MONOTONIC: usize = 10;
    /// NCCL's version number, such as 22809; 0: unknown.
    pub const NCCL: usize = 11;
    /// Profiler interface in use.
    pub const INTERFACE: usize = 12;
    /// Launches without a time, because their stream was being captured.
    pub const CAPTURED: usize = 13;
    /// Launches without a time, because CUDA's driver returned an error.
    pub const FAILED: usize = 14;
    /// Bytes of the text.
    pub const TEXT_BYTES: usize = 15;
    /// The text: names and values of variables, each ended by a newline.
    pub const TEXT: usize = 16;
}

/// The queue.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    header: &'a [AtomicU64],
    slots: &'a [AtomicU64],
}

impl<'a> Ring<'a> {
    /// Over words of which the first `HEADER_WORDS` are the header.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        let (header, slots) = words.split_at(HEADER_WORDS);
        let capacity = slots.len() / RECORD_WORDS;
        header[header::CAPACITY].store(capacity as u64, Ordering::Relaxed);
        Self { header, slots: &slots[..capacity * RECORD_WORDS] }
    }

    /// A word of the header.
    pub fn word(&self, at: usize) -> &'a AtomicU64 {
        &self.header[at]
    }

    fn slot(&self, number: u64) -> &'a [AtomicU64] {
        let capacity = self.slots.len() / RECORD_WORDS;
        let at = usize::try_from(number).unwrap_or_default() % capacity * RECORD_WORDS;
        &self.slots[at..at + RECORD_WORDS]
    }

    /// Put a record in. Where there is no room it is dropped and counted.
    pub fn push(&self, words: &[u64; RECORD_WORDS - 1]) -> bool {
        let (head, capacity) = (self.word(header::HEAD), (self.slots.len() / RECORD_WORDS) as u64);
        let mut number = head.load(Ordering::Relaxed);
        loop {
            // Acquire: what the reader took out of the slot happened before it is written again.
            let used = number.wrapping_sub(self.word(header::TAIL).load(Ordering::Acquire));
            if used > capacity {
                // it was read too long ago: records put in since then have left the ring
                number = head.load(Ordering::Relaxed);
                continue;
            }
            if used == capacity {
                self.word(header::DROPPED).fetch_add(1, Ordering::Relaxed);
                return false;
            }
            match head.compare_exchange_weak(
                number,
                number + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(seen) => number = seen,
            }
        }
        let slot = self.slot(number);
        for (to, word) in slot[1..].iter().zip(words) {
            to.store(*word, Ordering::Relaxed);
        }
        slot[0].store(number + 1, Ordering::Release);
        true
    }

    /// Copy complete records to `out`, at most `most`; returns how many. They leave the ring with
    /// `release`.
    pub fn peek(&self, most: usize, out: &mut Vec<u8>) -> usize {
        let tail = self.word(header::TAIL).load(Ordering::Relaxed);
        for taken in 0..most {
            let number = tail + taken as u64;
            let slot = self.slot(number);
            if slot[0].load(Ordering::Acquire) != number + 1 {
                return taken;
            }
            for word in slot {
                out.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
        }
        most
    }

    /// Let `count` records leave the ring.
    pub fn release(&self, count: usize) {
        self.word(header::TAIL).fetch_add(count as u64, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Two threads put in one record each, and a third takes out what it finds: in every
    /// interleaving each record is whole, in the order of tickets, and taken or counted as dropped.
    fn every_record_is_whole_or_dropped(capacity: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2); // more are too many to explore
        model.check(move || {
            let words: Arc<Vec<AtomicU64>> = Arc::new(
                (0..HEADER_WORDS + capacity * RECORD_WORDS).map(|_| AtomicU64::new(0)).collect(),
            );
            let writers: Vec<_> = (1..=2)
                .map(|value| {
                    let words = words.clone();
                    thread::spawn(move || Ring::new(&words).push(&[value; RECORD_WORDS - 1]))
                })
                .collect();
            let (ring, mut taken) = (Ring::new(&words), Vec::new());
            let found = ring.peek(2, &mut taken);
            ring.release(found);
            let kept =
                writers.into_iter().filter_map(|one| one.join().unwrap().then_some(())).count();
            let found = ring.peek(2, &mut taken);
            ring.release(found);
            let records: Vec<u64> = taken
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
                .collect();
            for (number, record) in records.chunks_exact(RECORD_WORDS).enumerate() {
                assert_eq!(record[0], number as u64 + 1);
                assert!(
                    record[1..].iter().all(|word| *word == record[1] && *word > 0),
                    "{record:?}"
                );
            }
            assert_eq!(records.len() / RECORD_WORDS, kept);
            assert_eq!(kept as u64 + ring.word(header::DROPPED).load(Ordering::Relaxed), 2);
        });
    }

    #[test]
    fn with_room_for_all() {
        every_record_is_whole_or_dropped(2);
    }

    #[test]
    fn with_room_for_one() {
        every_record_is_whole_or_dropped(1);
    }
}
