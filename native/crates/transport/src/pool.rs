//! I/O threads of a process. Each thread owns some streams, runs them while there is work, and
//! sleeps otherwise.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::doorbell;
use crate::error::{Error, Kind};
use crate::locks::lock;
use crate::sock;

mod slot;
mod task;
mod turn;
mod worker;
use slot::{Held, Slot};
pub use task::{Direction, Look, Next, Task, piece};
use worker::{EVENTFD, Order, Shared, Spinners, Worker, watch};

/// A stream's task on its thread.
#[derive(Clone)]
pub struct TaskRef {
    shared: Arc<Shared>,
    key: u64,
    slot: Arc<Slot>,
    _counted: Arc<Counted>,
}

/// Counts the task for its thread's load until the last clone of the TaskRef is dropped.
struct Counted {
    shared: Arc<Shared>,
    direction: Direction,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shared.streams[self.direction as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

impl TaskRef {
    /// Run the task soon.
    pub fn kick(&self) {
        self.shared.order(Order::Kick(self.key));
    }

    /// Let the thread tick the task: wake it unless it wakes for its next tick anyway.
    pub fn rouse(&self) {
        if !self.shared.doorbell.is_dozing() {
            self.kick();
        }
    }

    /// Run one of these tasks in the calling thread if it has waited long because its own thread is
    /// busy. Returns whether one ran. For callers that would otherwise only poll again.
    pub fn help(tasks: &[Self]) -> bool {
        let Some((task_ref, next)) =
            tasks.iter().find_map(|task_ref| Some((task_ref, task_ref.slot.help()?)))
        else {
            return false;
        };
        match next {
            Next::Wait => {}
            Next::Again => task_ref.kick(),
            Next::Gone => task_ref.remove(),
        }
        true
    }

    /// Abort the stream: the kernel sends nothing more of it. Returns false if its thread kept it
    /// busy for a second.
    pub fn reset(&self) -> bool {
        self.slot.turn.stop();
        let end = Instant::now() + Duration::from_secs(1);
        loop {
            if let Ok(held) = self.slot.held.try_lock() {
                if let Some(task) = &held.task {
                    sock::abort(task.fd());
                }
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Have the thread drop the task soon.
    pub fn remove(&self) {
        self.shared.order(Order::Remove(self.key));
    }
}

/// All threads. They start with the first stream.
pub struct Pool {
    threads: usize,
    spin: Duration,
    spinners: Arc<Spinners>,
    workers: Mutex<Vec<Arc<Shared>>>,
    keys: AtomicU64,
}

impl Pool {
    /// A pool without running threads.
    pub fn new(threads: usize, spin_us: u64) -> Self {
        let (spin, spinners) = (Duration::from_micros(spin_us), Spinners::new(threads));
        Self { threads, spin, spinners, workers: Mutex::default(), keys: AtomicU64::new(0) }
    }

    /// Reserve a task on the thread with the fewest streams in this direction, and among those the
    /// fewest streams. `start` adds the stream.
    ///
    /// # Errors
    /// The system refuses threads or descriptors.
    pub fn reserve(&self, direction: Direction) -> Result<TaskRef, Error> {
        let mut workers = lock(&self.workers);
        while workers.len() < self.threads {
            let number = workers.len();
            // the next call continues after those that have started
            workers.push(start_thread(number, self.spin, &self.spinners)?);
        }
        let load = |shared: &Arc<Shared>| {
            let [out, back] = [Direction::Out, Direction::In]
                .map(|direction| shared.streams[direction as usize].load(Ordering::Relaxed));
            (if matches!(direction, Direction::Out) { out } else { back }, out + back)
        };
        let shared = workers
            .iter()
            .min_by_key(|shared| load(shared))
            .ok_or_else(|| Error::new(Kind::Internal, "no I/O thread"))?
            .clone();
        shared.streams[direction as usize].fetch_add(1, Ordering::Relaxed);
        let counted = Arc::new(Counted { shared: shared.clone(), direction });
        Ok(TaskRef {
            shared,
            key: self.keys.fetch_add(1, Ordering::Relaxed),
            slot: Arc::default(),
            _counted: counted,
        })
    }

    /// Hand a stream to the thread of its task.
    pub fn start(&self, task_ref: &TaskRef, task: Box<dyn Task>) {
        *lock(&task_ref.slot.held) = Held::of(task);
        task_ref.shared.order(Order::Add(task_ref.key, task_ref.slot.clone()));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for worker in lock(&self.workers).iter() {
            worker.order(Order::Quit);
        }
    }
}

fn start_thread(
    number: usize,
    spin: Duration,
    spinners: &Arc<Spinners>,
) -> Result<Arc<Shared>, Error> {
    let owned = |fd: RawFd| match fd {
        // SAFETY: `fd` was returned by the call just made and is used nowhere else, so the OwnedFd
        // is its only owner.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(Error::system("a descriptor of an I/O thread")),
    };
    // SAFETY: the call takes no pointer.
    let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: the call takes no pointer.
    let eventfd = owned(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
    let shared = Arc::new(Shared {
        epoll,
        eventfd,
        doorbell: doorbell::Doorbell::new(),
        streams: Default::default(),
    });
    watch(&shared, shared.eventfd.as_raw_fd(), EVENTFD, libc::EPOLLIN)?;
    let worker = Worker::new(shared.clone(), spin, spinners.clone());
    let thread = std::thread::Builder::new().name(format!("busbw-net-{number}"));
    let spawned = without_signals(|| thread.spawn(move || worker.work()));
    spawned.map_err(|error| Error::new(Kind::System, format!("an I/O thread: {error}")))?;
    Ok(shared)
}

/// Run `make` with all signals blocked, so that threads it starts inherit that: signals belong to
/// the program.
fn without_signals<T>(make: impl FnOnce() -> T) -> T {
    // SAFETY: `all` and `before` are local sets; sigfillset fills the first, and the second is read
    // only if sigmask has filled it.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        let changed =
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) == 0;
        let made = make();
        if changed {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        }
        made
    }
}

#[cfg(test)]
mod tests;
