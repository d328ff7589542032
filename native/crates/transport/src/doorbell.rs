//! How other threads reach an I/O thread: a queue of orders, and a wake-up that is needed only when
//! the thread sleeps.

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

/// Orders for one thread, from any thread.
pub struct Doorbell<T> {
    state: AtomicU8,
    waiting: AtomicBool, // the queue is not empty
    orders: Mutex<Vec<T>>,
}

impl<T> Doorbell<T> {
    /// For a thread that is awake.
    pub fn new() -> Self {
        Self {
            state: AtomicU8::new(AWAKE),
            waiting: AtomicBool::new(false),
            orders: Mutex::new(Vec::new()),
        }
    }

    /// Queue an order. Returns whether the caller has to wake the thread, because it sleeps or is
    /// about to.
    pub fn post(&self, order: T) -> bool {
        self.orders.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(order);
        self.waiting.store(true, Ordering::Release);
        // pairs with the fence in `prepare_to_sleep`: one of the two sees what the other stored
        fence(Ordering::SeqCst);
        self.state.load(Ordering::Relaxed) != AWAKE
    }

    /// Whether the thread wakes for the next tick without a wake-up. A thread that is awake may
    /// have decided to sleep for longer.
    pub fn is_dozing(&self) -> bool {
        self.state.load(Ordering::Acquire) == DOZING
    }

    /// Whether orders are queued.
    pub fn has_orders(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Take all orders.
    pub fn take(&self) -> Vec<T> {
        self.waiting.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.orders.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Announce that the thread is about to sleep: until the next tick if `dozing`, else until it
    /// is woken. Returns false if orders are queued. From here on a thread that queues an order
    /// wakes it; orders queued before are seen by the check of `waiting`.
    pub fn prepare_to_sleep(&self, dozing: bool) -> bool {
        self.state.store(if dozing { DOZING } else { ASLEEP }, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !self.has_orders()
    }

    /// Announce that the thread is awake.
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

    /// A thread that sleeps whenever it may takes the orders of two others: no interleaving leaves
    /// it asleep with an order in its queue.
    #[test]
    fn no_order_is_slept_through() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3); // more are too many to explore
        model.check(|| {
            let (doorbell, eventfd) = (Arc::new(Doorbell::new()), Arc::new(Notify::new()));
            let others: Vec<_> = (0..2)
                .map(|order| {
                    let (doorbell, eventfd) = (doorbell.clone(), eventfd.clone());
                    thread::spawn(move || {
                        if doorbell.post(order) {
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
                    eventfd.wait(); // loom fails the model if no one notifies
                }
                doorbell.wake_up();
            }
            taken.sort_unstable();
            assert_eq!(taken, [0, 1]);
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    }
}
