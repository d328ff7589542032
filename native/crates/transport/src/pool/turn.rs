//! Whose turn a task is: queued once, and taken by its thread or by a helping caller, never by
//! both.

use sync::{AtomicBool, AtomicU64, Ordering};

#[cfg(loom)]
mod sync {
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}
#[cfg(not(loom))]
mod sync {
    pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}

/// The turn of one task.
#[derive(Default)]
pub(super) struct Turn {
    /// When it was queued, in nanoseconds of `clock::now`; 0 if it is not queued. The thread that
    /// resets this to 0 runs it.
    waits: AtomicU64,
    /// It never runs again.
    over: AtomicBool,
}

impl Turn {
    /// Queue the task. Returns false if it was queued already.
    pub(super) fn queue(&self) -> bool {
        self.waits.compare_exchange(0, clock::now(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Take the task from the queue to run it. Returns false if it was not queued or is over.
    pub(super) fn take(&self) -> bool {
        self.waits.swap(0, Ordering::AcqRel) != 0 && !self.over.load(Ordering::Acquire)
    }

    /// Never run it again after its current turn.
    pub(super) fn stop(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Whether it has been queued for too long.
    pub(super) fn is_late(&self) -> bool {
        let since = self.waits.load(Ordering::Relaxed);
        since != 0 && clock::now().saturating_sub(since) >= clock::LATE_NS
    }
}

#[cfg(not(loom))]
mod clock {
    use std::sync::LazyLock;
    use std::time::Instant;

    /// A task that has waited less gets its turn soon. Helping earlier would cost the caller more
    /// time for the GPU and other messages than it gains.
    pub const LATE_NS: u64 = 50_000;

    /// Nanoseconds since the first call, never 0.
    pub fn now() -> u64 {
        static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGUN.elapsed().as_nanos() as u64 + 1
    }
}

/// A clock that stands still, for models: each queued task is late.
#[cfg(loom)]
mod clock {
    pub const LATE_NS: u64 = 0;

    pub fn now() -> u64 {
        1
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// A task whose work is posted by one thread, and run by its own thread or by a helping caller.
    #[derive(Default)]
    struct Model {
        turn: Turn,
        posted: AtomicUsize,
        done: Mutex<usize>,
        orders: Mutex<usize>,
    }

    impl Model {
        fn post(&self) {
            self.posted.fetch_add(1, Ordering::Relaxed);
            *self.orders.lock().unwrap() += 1;
        }

        /// As `Slot::help`.
        fn help(&self) {
            if !self.turn.is_late() {
                return;
            }
            let Ok(mut done) = self.done.try_lock() else { return };
            if self.turn.take() {
                *done += self.posted.swap(0, Ordering::Relaxed);
            }
        }

        /// As the I/O thread: it queues the task for each order, and runs it until it is not queued
        /// any more.
        fn serve(&self) {
            let mut ready = false;
            if std::mem::take(&mut *self.orders.lock().unwrap()) > 0 {
                ready |= self.turn.queue();
            }
            while std::mem::take(&mut ready) && self.turn.take() {
                match self.done.try_lock() {
                    Ok(mut done) => *done += self.posted.swap(0, Ordering::Relaxed),
                    Err(_) => {
                        thread::yield_now();
                        ready = self.turn.queue();
                    }
                }
            }
        }
    }

    #[test]
    fn no_work_is_lost_between_a_thread_and_its_helper() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3); // more are too many to explore
        model.check(|| {
            let task = Arc::new(Model::default());
            let (poster, helper) = (task.clone(), task.clone());
            let threads =
                [thread::spawn(move || poster.post()), thread::spawn(move || helper.help())];
            task.serve();
            threads.into_iter().for_each(|one| one.join().unwrap());
            task.serve(); // the order may have come after the first look
            assert_eq!(*task.done.lock().unwrap(), 1);
        });
    }

    #[test]
    fn a_stopped_task_has_no_further_turn() {
        loom::model(|| {
            let turn = Arc::new(Turn::default());
            let other = turn.clone();
            turn.queue();
            let helper = thread::spawn(move || other.take());
            let own = turn.take();
            assert!(!(helper.join().unwrap() && own), "both have taken one turn");
            turn.stop();
            assert!(turn.queue() && !turn.take());
        });
    }
}
