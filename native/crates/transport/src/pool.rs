//! I/O threads of a process: each owns some streams, works while there is something to do, and sleeps otherwise.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::bell;
use crate::error::{Error, Kind};
use crate::locks::lock;

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
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{Sender, channel};

    struct Reporting {
        socket: UnixStream,
        panics: bool,
        told: Sender<&'static str>,
    }

    impl Task for Reporting {
        fn fd(&self) -> RawFd {
            self.socket.as_raw_fd()
        }

        fn run(&mut self, _share: usize) -> Next {
            assert!(!self.panics, "on purpose");
            let _ = self.told.send("ran");
            Next::Wait
        }

        fn tick(&mut self, _now: Instant) -> Look {
            Look::Enough
        }

        fn broken(&mut self, _why: &str) {
            let _ = self.told.send("broken");
        }
    }

    /// It has always something to do, and tells which thread does it.
    struct Busy {
        socket: UnixStream,
        told: Sender<std::thread::ThreadId>,
    }

    impl Task for Busy {
        fn fd(&self) -> RawFd {
            self.socket.as_raw_fd()
        }

        fn run(&mut self, _share: usize) -> Next {
            let _ = self.told.send(std::thread::current().id());
            std::thread::sleep(Duration::from_millis(1));
            Next::Again
        }

        fn tick(&mut self, _now: Instant) -> Look {
            Look::Enough
        }

        fn broken(&mut self, _why: &str) {}
    }

    fn seated(pool: &Pool, panics: bool, told: Sender<&'static str>) -> (Seat, UnixStream) {
        let (socket, other) = UnixStream::pair().unwrap();
        let seat = pool.reserve(Way::Out).unwrap();
        pool.seat(&seat, Box::new(Reporting { socket, panics, told }));
        (seat, other)
    }

    #[test]
    fn a_piece_is_a_share_and_never_little_that_leaves_something() {
        let (all, some) = (512 << 10, 64 << 10);
        assert_eq!([piece(all, 1 << 20), piece(all, all - 24), piece(all, 256 << 10), piece(all, 0)], [all, all, 256 << 10, some]);
        assert_eq!([piece(1, 0), piece(some, 0), piece(0, 0)], [1, some, 0]);
    }

    #[test]
    fn streams_of_a_way_are_spread_evenly_in_whatever_order_they_come() {
        let pool = Pool::new(3, 0);
        let mut seats: Vec<_> = (0..4).map(|_| (Way::Out, pool.reserve(Way::Out).unwrap())).collect();
        seats.extend((0..5).map(|_| (Way::In, pool.reserve(Way::In).unwrap())));
        seats.extend((0..2).map(|_| (Way::Out, pool.reserve(Way::Out).unwrap())));
        let streams =
            || lock(&pool.workers).iter().map(|one| one.streams.each_ref().map(|count| count.load(Ordering::Relaxed))).collect::<Vec<_>>();
        let mut found = streams();
        found.sort_unstable();
        assert_eq!(found, [[2, 1], [2, 2], [2, 2]]);
        seats.retain(|(way, _)| matches!(way, Way::In));
        assert_eq!(streams().iter().map(|[out, _]| out).sum::<usize>(), 0, "whoever has gone is not counted");
    }

    #[test]
    fn a_quarter_of_the_threads_looks_for_long_and_the_others_sleep() {
        let pool = Pool::new(8, 100_000);
        let (told, heard) = channel();
        let seats: Vec<_> = (0..8).map(|_| seated(&pool, false, told.clone())).collect();
        (0..8).for_each(|_| assert_eq!(heard.recv_timeout(Duration::from_secs(5)), Ok("ran")));
        let begun = Instant::now();
        let mut most = 0;
        while begun.elapsed() < Duration::from_millis(50) {
            most = most.max(pool.lookers.count());
            std::thread::yield_now();
        }
        assert_eq!(most, 2);
        while pool.lookers.count() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(5), "whoever finds nothing sleeps");
            std::thread::yield_now();
        }
        drop(seats);
    }

    #[test]
    fn a_thread_whose_work_comes_late_looks_for_it_no_more_until_it_comes_soon() {
        let look = Duration::from_millis(20);
        let pool = Pool::new(1, look.as_micros() as u64);
        let (told, heard) = channel();
        let (seat, _far) = seated(&pool, false, told);
        let limit = Duration::from_secs(5);
        assert_eq!(heard.recv_timeout(limit), Ok("ran"));
        while heard.recv_timeout(Duration::from_millis(200)).is_ok() {} // its socket is writable: another run
        for _ in 0..8 {
            seat.kick();
            assert_eq!(heard.recv_timeout(limit), Ok("ran"));
            std::thread::sleep(look * 3);
        }
        seat.kick();
        assert_eq!(heard.recv_timeout(limit), Ok("ran"));
        let begun = Instant::now();
        while begun.elapsed() < look / 2 {
            assert_eq!(pool.lookers.count(), 0, "it sleeps at once");
            std::thread::yield_now();
        }
        while pool.lookers.count() == 0 {
            assert!(begun.elapsed() < limit, "it looks again where work comes soon");
            seat.kick();
            assert_eq!(heard.recv_timeout(limit), Ok("ran"));
            std::thread::sleep(look / 20);
        }
    }

    #[test]
    fn a_stream_that_waits_long_for_its_thread_is_run_by_whoever_helps() {
        let pool = Pool::new(1, 0);
        let (seats, heard): (Vec<_>, Vec<_>) = (0..2)
            .map(|_| {
                let (told, heard) = channel();
                let (socket, far) = UnixStream::pair().unwrap();
                let seat = pool.reserve(Way::Out).unwrap();
                pool.seat(&seat, Box::new(Busy { socket, told }));
                (seat, (heard, far))
            })
            .unzip();
        let (begun, limit) = (Instant::now(), Duration::from_secs(5));
        while !Seat::help(&seats[..1]) {
            assert!(begun.elapsed() < limit, "its thread does one after the other");
        }
        let here = std::thread::current().id();
        let ran: Vec<_> = heard[0].0.try_iter().collect();
        assert_eq!(ran.iter().filter(|id| **id == here).count(), 1);
        for (other, _) in &heard {
            let begun = other.try_iter().count();
            (0..3).for_each(|more| assert_ne!(other.recv_timeout(limit).unwrap(), here, "its thread goes on, {begun} + {more}"));
        }
    }

    #[test]
    fn a_stream_that_panics_takes_no_other_with_it() {
        let pool = Pool::new(1, 0);
        let (told, heard) = channel();
        let limit = Duration::from_secs(5);
        let (_bad, _far) = seated(&pool, true, told.clone());
        assert_eq!(heard.recv_timeout(limit), Ok("broken"));
        let (good, near) = seated(&pool, false, told);
        assert_eq!(heard.recv_timeout(limit), Ok("ran"));
        while heard.recv_timeout(Duration::from_millis(200)).is_ok() {} // its socket is writable: another run
        good.kick();
        assert_eq!(heard.recv_timeout(limit), Ok("ran"), "a kick wakes a thread that sleeps");
        good.remove();
        good.kick();
        assert_eq!(near.set_nonblocking(false).and_then(|()| (&near).read(&mut [0])).ok(), Some(0), "it was let go, and its socket closed");
        assert!(heard.recv_timeout(Duration::from_millis(100)).is_err(), "nothing runs after that");
    }
}
