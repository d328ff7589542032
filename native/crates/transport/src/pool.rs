//! I/O threads of a process: each owns some streams, works while there is something to do, and sleeps otherwise.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::bell;
use crate::error::{Error, Kind};
use crate::locks::lock;
use crate::sock;

mod place;
mod worker;
use place::{Held, Place};
use worker::{EVENTFD, Lookers, Order, Shared, Worker, watch};

/// What a stream's run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing to do until its socket is ready or somebody kicks it.
    Wait,
    /// It has had its share; others first.
    Again,
    /// It has ended.
    Gone,
}

/// What a stream carries at once of what is `left` of a chunk, when it has a `share` left, in bytes: no system calls for little.
pub fn piece(left: usize, share: usize) -> usize {
    const LITTLE: usize = 64 << 10;
    if left <= share + LITTLE { left } else { share.max(LITTLE) }
}

/// What a look at a stream from time to time came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// There is nothing to look at before it has run again.
    Enough,
    /// Look again.
    Again,
    /// Run it, and look again.
    Run,
}

/// A stream, in the hands of one thread at a time.
pub trait Task: Send {
    /// Its socket.
    fn fd(&self) -> RawFd;
    /// Do what can be done without waiting, up to about `share` bytes.
    fn run(&mut self, share: usize) -> Next;
    /// Called about ten times a second, as long as some stream of the thread wants to be looked at.
    fn tick(&mut self, now: Instant) -> Look;
    /// It cannot go on, and is dropped: whoever waits for it must know.
    fn broken(&mut self, why: &str);
}

/// Which way a stream carries chunks.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// To the peer.
    Out,
    /// From it.
    In,
}

/// A stream's place: whom to kick.
#[derive(Clone)]
pub struct Seat {
    shared: Arc<Shared>,
    key: u64,
    place: Arc<Place>,
    _counted: Arc<Counted>,
}

/// Among the streams of a thread, until the last of a seat's copies is gone.
struct Counted {
    shared: Arc<Shared>,
    way: Way,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shared.streams[self.way as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

impl Seat {
    /// There is something to do.
    pub fn kick(&self) {
        self.shared.order(Order::Kick(self.key));
    }

    /// There is something to look at from time to time.
    pub fn rouse(&self) {
        if !self.shared.bell.dozes() {
            self.kick();
        }
    }

    /// Do some of the work of one of these streams that has waited long for its thread, which is busy with others: whether there is any.
    /// For callers that would otherwise only ask again whether it is done.
    pub fn help(seats: &[Self]) -> bool {
        let Some((seat, next)) = seats.iter().find_map(|seat| Some((seat, seat.place.help()?))) else { return false };
        match next {
            Next::Wait => {}
            Next::Again => seat.kick(),
            Next::Gone => seat.remove(),
        }
        true
    }

    /// End the stream at once: nothing of what the kernel still has goes out after this. False where its thread did not let go of it for a
    /// second.
    pub fn reset(&self) -> bool {
        self.place.stop();
        let end = Instant::now() + Duration::from_secs(1);
        loop {
            if let Ok(held) = self.place.held.try_lock() {
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

    /// Have the thread drop the stream, soon.
    pub fn remove(&self) {
        self.shared.order(Order::Remove(self.key));
    }
}

/// All threads; they start with the first stream.
pub struct Pool {
    threads: usize,
    spin: Duration,
    lookers: Arc<Lookers>,
    workers: Mutex<Vec<Arc<Shared>>>,
    keys: AtomicU64,
}

impl Pool {
    /// No thread yet.
    pub fn new(threads: usize, spin_us: u64) -> Self {
        let (spin, lookers) = (Duration::from_micros(spin_us), Lookers::new(threads));
        Self { threads, spin, lookers, workers: Mutex::default(), keys: AtomicU64::new(0) }
    }

    /// A seat for a stream, on the thread that has the fewest of its way, and of those the fewest; the stream comes with `seat`.
    ///
    /// # Errors
    /// The system gives no threads or descriptors.
    pub fn reserve(&self, way: Way) -> Result<Seat, Error> {
        let mut workers = lock(&self.workers);
        while workers.len() < self.threads {
            let number = workers.len();
            workers.push(start(number, self.spin, &self.lookers)?); // those that have started serve the next attempt
        }
        let load = |shared: &Arc<Shared>| {
            let [out, back] = [Way::Out, Way::In].map(|way| shared.streams[way as usize].load(Ordering::Relaxed));
            (if matches!(way, Way::Out) { out } else { back }, out + back)
        };
        let shared = workers.iter().min_by_key(|shared| load(shared)).ok_or_else(|| Error::new(Kind::Internal, "no I/O thread"))?.clone();
        shared.streams[way as usize].fetch_add(1, Ordering::Relaxed);
        let counted = Arc::new(Counted { shared: shared.clone(), way });
        Ok(Seat { shared, key: self.keys.fetch_add(1, Ordering::Relaxed), place: Arc::default(), _counted: counted })
    }

    /// Hand a stream to the thread of its seat.
    pub fn seat(&self, seat: &Seat, task: Box<dyn Task>) {
        *lock(&seat.place.held) = Held::of(task);
        seat.shared.order(Order::Add(seat.key, seat.place.clone()));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for worker in lock(&self.workers).iter() {
            worker.order(Order::Quit);
        }
    }
}

fn start(number: usize, spin: Duration, lookers: &Arc<Lookers>) -> Result<Arc<Shared>, Error> {
    // SAFETY: new descriptors, each owned from here on where there is one.
    let made =
        |fd: RawFd| if fd < 0 { Err(Error::system("a descriptor of an I/O thread")) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) };
    let epoll = made(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    let eventfd = made(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
    let shared = Arc::new(Shared { epoll, eventfd, bell: bell::Bell::new(), streams: Default::default() });
    watch(&shared, shared.eventfd.as_raw_fd(), EVENTFD, libc::EPOLLIN)?;
    let worker = Worker::new(shared.clone(), spin, lookers.clone());
    let thread = std::thread::Builder::new().name(format!("busbw-net-{number}"));
    let spawned = without_signals(|| thread.spawn(move || worker.work()));
    spawned.map_err(|error| Error::new(Kind::System, format!("an I/O thread: {error}")))?;
    Ok(shared)
}

/// Threads made by `make` get no signals: those are the program's own.
fn without_signals<T>(make: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are filled before they are read, and this thread's mask is put back.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        let changed = libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) == 0;
        let made = make();
        if changed {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        }
        made
    }
}

#[cfg(test)]
mod tests;
