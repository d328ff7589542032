//! Where a stream is found by its thread, and by whoever helps that thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use super::task::{Next, Task};

/// Bytes that whoever helps carries at a time: it has other things to do.
const HELP: usize = 256 << 10;
/// A stream that has waited less for its turn will soon have it. Whoever is kept from the GPU and from other messages meanwhile loses more
/// than it gains then.
const LATE: Duration = Duration::from_micros(50);

/// A stream's place.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) held: Mutex<Held>,
    /// Since when it waits for its turn, in nanoseconds of `now`; 0: it does not. Whoever takes this away runs it.
    waits: AtomicU64,
    /// It is never run again.
    over: AtomicBool,
}

impl Slot {
    /// It is to have its turn: whether that is new.
    pub(super) fn queue(&self) -> bool {
        self.waits.compare_exchange(0, now(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether it waited for its turn, which is now.
    pub(super) fn take(&self) -> bool {
        self.waits.swap(0, Ordering::AcqRel) != 0 && !self.over.load(Ordering::Acquire)
    }

    /// From the end of its present turn on it has none.
    pub(super) fn stop(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Run the stream where it has waited too long for its thread; None where it has not.
    pub(super) fn help(&self) -> Option<Next> {
        let since = self.waits.load(Ordering::Relaxed);
        if since == 0 || now().saturating_sub(since) < LATE.as_nanos() as u64 {
            return None;
        }
        let Ok(mut held) = self.held.try_lock() else { return None }; // its thread looks at it, or has just begun
        self.take().then(|| held.run(HELP))
    }
}

/// Nanoseconds since the first call, never 0.
fn now() -> u64 {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGUN.elapsed().as_nanos() as u64 + 1
}

/// The stream itself, before it has been removed.
#[derive(Default)]
pub(super) struct Held {
    pub(super) task: Option<Box<dyn Task>>,
    ended: bool,
}

impl Held {
    pub(super) fn of(task: Box<dyn Task>) -> Self {
        Self { task: Some(task), ended: false }
    }

    /// Gone once it has ended, however often it is asked.
    pub(super) fn run(&mut self, share: usize) -> Next {
        let next = if self.ended { Next::Gone } else { self.guarded(|task| task.run(share)).unwrap_or(Next::Gone) };
        self.ended = next == Next::Gone;
        next
    }

    /// What a stream does; None where it panicked. Others of its thread go on: their connections have nothing to do with it.
    pub(super) fn guarded<T>(&mut self, act: impl FnOnce(&mut dyn Task) -> T) -> Option<T> {
        let task = self.task.as_mut()?;
        if let Ok(done) = catch_unwind(AssertUnwindSafe(|| act(task.as_mut()))) {
            return Some(done);
        }
        let _ = catch_unwind(AssertUnwindSafe(|| task.broken("an I/O thread panicked: a fault in busbw")));
        None
    }
}
