//! How much of its time a calling thread spends on sending larger messages itself.
//!
//! One at a time that is faster than handing it to an I/O thread. Of many at once, as of many
//! channels, the I/O threads carry more, because they run at the same time.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::config::LARGEST_INLINE;

/// Of all connections of a process in the long run. A core copies and sends two to four times as
/// much.
const BYTES_PER_NS: u64 = 2;
/// Bytes at once, after a pause.
const BURST_NS: u64 = LARGEST_INLINE as u64 / BYTES_PER_NS;

/// The share of the callers of a process.
#[derive(Default)]
pub(crate) struct CallerShare {
    /// When all bytes so far would have been sent at that rate.
    used_until_ns: AtomicU64,
}

impl CallerShare {
    /// Use up this many bytes, if that is possible now.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
        self.take_at(BEGUN.elapsed().as_nanos() as u64, bytes)
    }

    fn take_at(&self, now_ns: u64, bytes: usize) -> bool {
        let after = |used: u64| used.max(now_ns) + bytes as u64 / BYTES_PER_NS;
        let fits = |used: u64| Some(after(used)).filter(|until| until - now_ns <= BURST_NS);
        self.used_until_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_possible_after_a_pause_and_then_as_much_as_time_passes() {
        let share = CallerShare::default();
        let taken = |now_ns| (0..10).take_while(|_| share.take_at(now_ns, 32 << 10)).count();
        assert_eq!([taken(1_000_000), taken(1_000_000), taken(1_000_000 + (16 << 10))], [4, 0, 1]);
        assert_eq!(taken(9_000_000), 4, "a longer pause gives no more");
        assert!(
            !share.take_at(9_000_000, LARGEST_INLINE) && share.take_at(10_000_000, LARGEST_INLINE)
        );
    }
}
