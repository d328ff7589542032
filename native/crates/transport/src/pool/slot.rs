//! A task in the hands of its thread, or of a caller that helps that thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use super::task::{Next, Task};
use super::turn::Turn;

/// Bytes that a helping caller moves at a time: it has other work.
const HELP: usize = 256 << 10;

/// A task and its turn.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) held: Mutex<Held>,
    pub(super) turn: Turn,
}

impl Slot {
    /// Run the task if it has waited too long; None otherwise.
    pub(super) fn help(&self) -> Option<Next> {
        if !self.turn.is_late() {
            return None;
        }
        let Ok(mut held) = self.held.try_lock() else { return None }; // its thread is busy with it
        self.turn.take().then(|| held.run(HELP))
    }
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
        let next = if self.ended {
            Next::Gone
        } else {
            self.guarded(|task| task.run(share)).unwrap_or(Next::Gone)
        };
        self.ended = next == Next::Gone;
        next
    }

    /// Call the task; None if it panicked. The thread's other tasks belong to other connections and
    /// continue.
    pub(super) fn guarded<T>(&mut self, act: impl FnOnce(&mut dyn Task) -> T) -> Option<T> {
        let task = self.task.as_mut()?;
        if let Ok(done) = catch_unwind(AssertUnwindSafe(|| act(task.as_mut()))) {
            return Some(done);
        }
        let _ = catch_unwind(AssertUnwindSafe(|| {
            task.broken("an I/O thread panicked: a bug in busbw")
        }));
        None
    }
}
