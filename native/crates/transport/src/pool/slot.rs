//! A task in the hands of its thread, or of a caller that helps that thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use super::task::{Next, Task};

/// Bytes that a helping caller moves at a time: it has other work.
const HELP: usize = 256 << 10;
/// A task that has waited less gets its turn soon. Helping earlier would cost the caller more time for the GPU and other messages than it
/// gains.
const LATE: Duration = Duration::from_micros(50);

/// A task and its turn.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) held: Mutex<Held>,
    /// When it was queued, in nanoseconds of `now`; 0 if it is not queued. The thread that resets this to 0 runs it.
    waits: AtomicU64,
    /// It never runs again.
    over: AtomicBool,
}

impl Slot {
    /// Queue it. Returns false if it was queued already.
    pub(super) fn queue(&self) -> bool {
        self.waits.compare_exchange(0, now(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Take it from the queue to run it. Returns false if it was not queued or is over.
    pub(super) fn take(&self) -> bool {
        self.waits.swap(0, Ordering::AcqRel) != 0 && !self.over.load(Ordering::Acquire)
    }

    /// Never run it again after its current turn.
    pub(super) fn stop(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Run the task if it has waited too long; None otherwise.
    pub(super) fn help(&self) -> Option<Next> {
        let since = self.waits.load(Ordering::Relaxed);
        if since == 0 || now().saturating_sub(since) < LATE.as_nanos() as u64 {
            return None;
        }
        let Ok(mut held) = self.held.try_lock() else { return None }; // its thread is busy with it
        self.take().then(|| held.run(HELP))
    }
}

/// Nanoseconds since the first call, never 0.
fn now() -> u64 {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGUN.elapsed().as_nanos() as u64 + 1
}

/// The task, until it is removed.
#[derive(Default)]
pub(super) struct Held {
    pub(super) task: Option<Box<dyn Task>>,
    ended: bool,
}

impl Held {
    pub(super) fn of(task: Box<dyn Task>) -> Self {
        Self { task: Some(task), ended: false }
    }

    /// Run it. Once it has ended, always returns Gone.
    pub(super) fn run(&mut self, share: usize) -> Next {
        let next = if self.ended { Next::Gone } else { self.guarded(|task| task.run(share)).unwrap_or(Next::Gone) };
        self.ended = next == Next::Gone;
        next
    }

    /// Call the task; None if it panicked. The thread's other tasks belong to other connections and continue.
    pub(super) fn guarded<T>(&mut self, act: impl FnOnce(&mut dyn Task) -> T) -> Option<T> {
        let task = self.task.as_mut()?;
        if let Ok(done) = catch_unwind(AssertUnwindSafe(|| act(task.as_mut()))) {
            return Some(done);
        }
        let _ = catch_unwind(AssertUnwindSafe(|| task.broken("an I/O thread panicked: a bug in busbw")));
        None
    }
}
