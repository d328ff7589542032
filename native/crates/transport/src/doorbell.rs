//! How others reach an I/O thread: orders in a queue, and a bell that is rung only when the thread sleeps.

use sync::{AtomicBool, AtomicU8, Mutex, Ordering, fence};

#[cfg(loom)]
mod sync {
    pub use loom::sync::Mutex;
    pub use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
}
#[cfg(not(loom))]
mod sync {
    pub use std::sync::Mutex;
    pub use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
}

const AWAKE: u8 = 0;
const DOZING: u8 = 1; // wakes up for the next tick
const ASLEEP: u8 = 2;

/// Orders for one thread, from any.
pub struct Doorbell<T> {
    state: AtomicU8,
    waiting: AtomicBool, // orders are there
    orders: Mutex<Vec<T>>,
}

impl<T> Doorbell<T> {
    /// Of a thread that is awake.
    pub fn new() -> Self {
        Self { state: AtomicU8::new(AWAKE), waiting: AtomicBool::new(false), orders: Mutex::new(Vec::new()) }
    }

    /// Leave an order: whether the caller has to ring, because the thread sleeps or is about to.
    pub fn leave(&self, order: T) -> bool {
        self.orders.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(order);
        self.waiting.store(true, Ordering::Release);
        fence(Ordering::SeqCst); // with that of `lie_down`: one of both sees what the other has stored
        self.state.load(Ordering::Relaxed) != AWAKE
    }

    /// Whether the thread will look around by itself before long. One that is awake may have decided to sleep.
    pub fn is_dozing(&self) -> bool {
        self.state.load(Ordering::Acquire) == DOZING
    }

    /// Whether orders are there.
    pub fn has_orders(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// The thread takes its orders.
    pub fn take(&self) -> Vec<T> {
        self.waiting.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.orders.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// The thread lies down, `dozing` until the next tick or for as long as it takes: false where orders are there already. Whoever leaves
    /// one from here on rings; whoever left one before is seen by the look at `waiting`.
    pub fn prepare_to_sleep(&self, dozing: bool) -> bool {
        self.state.store(if dozing { DOZING } else { ASLEEP }, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !self.has_orders()
    }

    /// The thread is up again.
    pub fn wake_up(&self) {
        self.state.store(AWAKE, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::Notify;
    use loom::thread;

    /// Every order of two others is taken by a thread that sleeps whenever it may: no interleaving leaves it asleep with one in the queue.
    #[test]
    fn no_order_is_slept_through() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3); // beyond it there are too many
        model.check(|| {
            let (doorbell, eventfd) = (Arc::new(Doorbell::new()), Arc::new(Notify::new()));
            let others: Vec<_> = (0..2)
                .map(|order| {
                    let (doorbell, eventfd) = (doorbell.clone(), eventfd.clone());
                    thread::spawn(move || {
                        if doorbell.leave(order) {
                            eventfd.notify();
                        }
                    })
                })
                .collect();
            let mut taken = Vec::new();
            while taken.len() < 2 {
                if doorbell.has_orders() {
                    taken.extend(doorbell.take());
                    continue;
                }
                if doorbell.prepare_to_sleep(false) {
                    eventfd.wait(); // loom fails the model where nobody ever notifies
                }
                doorbell.wake_up();
            }
            taken.sort_unstable();
            assert_eq!(taken, [0, 1]);
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    }
}
