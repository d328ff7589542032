//! Threads that update a slab together.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::kernel::{Change, Slab, update};

/// Elements that a thread takes at a time: 1.75 MiB of memory traffic, so that a slow thread delays
/// the end by little.
const BLOCK: usize = 1 << 16;

struct Work {
    change: Change,
    slab: Slab,
    next: AtomicUsize,
}

impl Work {
    /// Update blocks until none is left.
    fn share(&self) {
        loop {
            let first = self.next.fetch_add(BLOCK, Ordering::Relaxed);
            if first >= self.slab.count {
                return;
            }
            // SAFETY: the block lies within the slab and no other thread takes it; `Pool::update`
            // requires the rest of its caller.
            unsafe {
                update(&self.change, &self.slab.part(first, BLOCK.min(self.slab.count - first)))
            };
        }
    }
}

#[derive(Default)]
struct State {
    work: Option<Arc<Work>>,
    /// Counts the works, so that a thread takes part in each once.
    number: u64,
    /// Threads that have not finished the current work.
    busy: usize,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    posted: Condvar,
    done: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number of threads, the caller's included. They sleep between updates.
pub struct Pool {
    shared: Arc<Shared>,
    /// Held during an update: there is one at a time.
    turn: Mutex<()>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Start `threads - 1` threads.
    ///
    /// # Errors
    /// The system starts no more threads.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let mut pool = Self { shared: Arc::default(), turn: Mutex::new(()), threads: Vec::new() };
        for number in 1..threads.max(1) {
            let shared = pool.shared.clone();
            pool.threads.push(
                thread::Builder::new()
                    .name(format!("busbw-adam-{number}"))
                    .spawn(move || serve(&shared))?,
            );
        }
        Ok(pool)
    }

    /// Change all elements of a slab and return when that is done.
    ///
    /// # Safety
    /// As for [`update`].
    pub unsafe fn update(&self, change: &Change, slab: &Slab) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let work = Arc::new(Work { change: *change, slab: *slab, next: AtomicUsize::new(0) });
        if slab.count > BLOCK && !self.threads.is_empty() {
            let mut state = self.shared.lock();
            state.work = Some(work.clone());
            state.number += 1;
            state.busy = self.threads.len();
            drop(state);
            self.shared.posted.notify_all();
            work.share();
            let mut state = self.shared.lock();
            while state.busy > 0 {
                state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.work = None;
        } else {
            work.share();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.posted.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed its message.
            let _ = thread.join();
        }
    }
}

fn serve(shared: &Shared) {
    let mut seen = 0;
    loop {
        let mut state = shared.lock();
        while state.number == seen && !state.closed {
            state = shared.posted.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return;
        }
        seen = state.number;
        let work = state.work.clone();
        drop(state);
        if let Some(work) = work {
            work.share();
        }
        let mut state = shared.lock();
        state.busy -= 1;
        if state.busy == 0 {
            shared.done.notify_all();
        }
    }
}
