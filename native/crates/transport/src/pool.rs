//! I/O threads of a process: each owns some streams, works while there is something to do, and sleeps otherwise.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::error::Error;

/// Between looks at streams that make no progress.
const TICK: Duration = Duration::from_millis(100);
/// Runs of streams between looks for new events.
const RUNS: usize = 8;
const EVENTS: usize = 64;
const BELL: u64 = u64::MAX;

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

/// A stream, in the hands of one thread.
pub trait Task: Send {
    /// Its socket.
    fn fd(&self) -> RawFd;
    /// Do what can be done without waiting.
    fn run(&mut self) -> Next;
    /// Called about ten times a second, as long as some stream of the thread wants to be looked at.
    fn tick(&mut self, now: Instant) -> Look;
    /// It panicked, and is dropped: whoever waits for it must know.
    fn broken(&mut self);
}

enum Order {
    Add(u64, Box<dyn Task>),
    Kick(u64),
    Remove(u64, Arc<Gate>),
    Quit,
}

#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

const AWAKE: u8 = 0;
const DOZING: u8 = 1; // wakes up for the next tick
const ASLEEP: u8 = 2;

struct Shared {
    epoll: OwnedFd,
    bell: OwnedFd,
    state: AtomicU8,
    orders: Mutex<Vec<Order>>,
    waiting: AtomicBool, // orders are there
}

impl Shared {
    fn order(&self, order: Order) {
        self.orders.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(order);
        self.waiting.store(true, Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) != AWAKE {
            self.ring();
        }
    }

    fn ring(&self) {
        let one = 1u64;
        // SAFETY: eight bytes to an eventfd; it can only fail where it is full, which rings too.
        unsafe { libc::write(self.bell.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

/// A stream's place: whom to kick.
#[derive(Clone)]
pub struct Seat {
    shared: Arc<Shared>,
    key: u64,
}

impl Seat {
    /// There is something to do.
    pub fn kick(&self) {
        self.shared.order(Order::Kick(self.key));
    }

    /// There is something to look at from time to time. A thread that dozes will; one that is awake may have decided to sleep.
    pub fn rouse(&self) {
        if self.shared.state.load(Ordering::SeqCst) != DOZING {
            self.kick();
        }
    }

    /// Take the stream from its thread and drop it; false where the thread did not answer in time.
    pub fn remove(&self, limit: Duration) -> bool {
        let gate = Arc::new(Gate::default());
        self.shared.order(Order::Remove(self.key, gate.clone()));
        let Ok(open) = gate.open.lock() else { return false };
        gate.opened.wait_timeout_while(open, limit, |open| !*open).is_ok_and(|(open, _)| *open)
    }
}

/// All threads; they start with the first stream.
pub struct Pool {
    threads: usize,
    spin: Duration,
    workers: OnceLock<Result<Vec<Arc<Shared>>, Error>>,
    next: AtomicUsize,
    keys: AtomicU64,
}

impl Pool {
    /// No thread yet.
    pub fn new(threads: usize, spin_us: u64) -> Self {
        Self { threads, spin: Duration::from_micros(spin_us), workers: OnceLock::new(), next: AtomicUsize::new(0), keys: AtomicU64::new(0) }
    }

    /// A seat for a stream, on one thread after the other; the stream comes with `seat`.
    ///
    /// # Errors
    /// The system gives no threads or descriptors.
    pub fn reserve(&self) -> Result<Seat, Error> {
        let workers = self.workers.get_or_init(|| (0..self.threads).map(|number| start(number, self.spin)).collect());
        let workers = workers.as_ref().map_err(Clone::clone)?;
        let shared = workers[self.next.fetch_add(1, Ordering::Relaxed) % workers.len()].clone();
        Ok(Seat { shared, key: self.keys.fetch_add(1, Ordering::Relaxed) })
    }

    /// Hand a stream to the thread of its seat.
    pub fn seat(&self, seat: &Seat, task: Box<dyn Task>) {
        seat.shared.order(Order::Add(seat.key, task));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(Ok(workers)) = self.workers.get() {
            for worker in workers {
                worker.order(Order::Quit);
            }
        }
    }
}

fn start(number: usize, spin: Duration) -> Result<Arc<Shared>, Error> {
    // SAFETY: new descriptors, owned from here on.
    let shared = unsafe {
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        let bell = libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
        if epoll < 0 || bell < 0 {
            return Err(Error::system("descriptors of an I/O thread"));
        }
        Shared {
            epoll: OwnedFd::from_raw_fd(epoll),
            bell: OwnedFd::from_raw_fd(bell),
            state: AtomicU8::new(AWAKE),
            orders: Mutex::default(),
            waiting: AtomicBool::new(false),
        }
    };
    watch(&shared, shared.bell.as_raw_fd(), BELL, libc::EPOLLIN);
    let shared = Arc::new(shared);
    let worker = Worker { shared: shared.clone(), spin, tasks: HashMap::new(), ready: VecDeque::new(), ticked: Instant::now() };
    std::thread::Builder::new()
        .name(format!("busbw-net-{number}"))
        .spawn(move || worker.work())
        .map_err(|error| Error::new(crate::Kind::System, format!("an I/O thread: {error}")))?;
    Ok(shared)
}

fn watch(shared: &Shared, fd: RawFd, key: u64, events: i32) {
    let mut event = libc::epoll_event { events: events as u32, u64: key };
    // SAFETY: both descriptors are open. Its only failures here are memory and the kernel's limit of watches.
    unsafe { libc::epoll_ctl(shared.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
}

struct Seated {
    task: Box<dyn Task>,
    queued: bool,
}

struct Worker {
    shared: Arc<Shared>,
    spin: Duration,
    tasks: HashMap<u64, Seated>,
    ready: VecDeque<u64>,
    ticked: Instant,
}

impl Worker {
    fn work(mut self) {
        let mut idle_since: Option<Instant> = None;
        let mut wants_ticks = false;
        loop {
            if self.shared.waiting.load(Ordering::SeqCst) && self.take_orders() {
                return;
            }
            for _ in 0..RUNS {
                let Some(key) = self.ready.pop_front() else { break };
                self.run(key);
                idle_since = None;
                wants_ticks = true; // until the next one says otherwise
            }
            let now = Instant::now();
            if now - self.ticked >= TICK {
                self.ticked = now;
                wants_ticks = self.tick(now);
            }
            if !self.ready.is_empty() {
                self.events(0);
                continue;
            }
            let since = *idle_since.get_or_insert(now);
            if self.events(0) || self.shared.waiting.load(Ordering::SeqCst) {
                continue;
            }
            if now - since < self.spin {
                std::hint::spin_loop();
                continue;
            }
            // Whoever kicks after this store rings the bell; whoever kicked before it is seen by the look at `waiting`.
            self.shared.state.store(if wants_ticks { DOZING } else { ASLEEP }, Ordering::SeqCst);
            if !self.shared.waiting.load(Ordering::SeqCst) {
                self.events(if wants_ticks { TICK.as_millis() as i32 } else { -1 });
            }
            self.shared.state.store(AWAKE, Ordering::SeqCst);
        }
    }

    /// Whether to end.
    fn take_orders(&mut self) -> bool {
        self.shared.waiting.store(false, Ordering::SeqCst);
        let orders = std::mem::take(&mut *self.shared.orders.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        for order in orders {
            match order {
                Order::Add(key, task) => {
                    watch(&self.shared, task.fd(), key, libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET);
                    self.tasks.insert(key, Seated { task, queued: false });
                    self.queue(key);
                }
                Order::Kick(key) => self.queue(key),
                Order::Remove(key, gate) => {
                    self.tasks.remove(&key); // its socket leaves the epoll set when it closes
                    *gate.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
                    gate.opened.notify_all();
                }
                Order::Quit => return true,
            }
        }
        false
    }

    fn queue(&mut self, key: u64) {
        if let Some(seated) = self.tasks.get_mut(&key) {
            if !seated.queued {
                seated.queued = true;
                self.ready.push_back(key);
            }
        }
    }

    fn run(&mut self, key: u64) {
        let Some(seated) = self.tasks.get_mut(&key) else { return };
        seated.queued = false;
        let task = &mut seated.task;
        // Other streams of this thread go on: their connections have nothing to do with it.
        let next = catch_unwind(AssertUnwindSafe(|| task.run())).unwrap_or_else(|_| {
            task.broken();
            Next::Gone
        });
        match next {
            Next::Wait => {}
            Next::Again => self.queue(key),
            Next::Gone => {
                self.tasks.remove(&key);
            }
        }
    }

    fn tick(&mut self, now: Instant) -> bool {
        let mut wanted = false;
        let mut moved = Vec::new();
        for (key, seated) in &mut self.tasks {
            let look = seated.task.tick(now);
            wanted |= look != Look::Enough;
            if look == Look::Run {
                moved.push(*key);
            }
        }
        for key in moved {
            self.queue(key);
        }
        wanted
    }

    /// Queue the streams whose sockets are ready; whether there were any. `limit_ms` -1 waits as long as it takes.
    fn events(&mut self, limit_ms: i32) -> bool {
        // SAFETY: all zero is a valid event, and the kernel writes at most EVENTS of them.
        let mut events: [libc::epoll_event; EVENTS] = unsafe { std::mem::zeroed() };
        let count = unsafe { libc::epoll_wait(self.shared.epoll.as_raw_fd(), events.as_mut_ptr(), EVENTS as i32, limit_ms) };
        for event in events.iter().take(count.max(0) as usize) {
            let key = event.u64;
            if key == BELL {
                let mut rung = 0u64;
                // SAFETY: eight bytes from an eventfd.
                unsafe { libc::read(self.shared.bell.as_raw_fd(), (&raw mut rung).cast(), 8) };
            } else {
                self.queue(key);
            }
        }
        count > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

        fn run(&mut self) -> Next {
            assert!(!self.panics, "on purpose");
            let _ = self.told.send("ran");
            Next::Wait
        }

        fn tick(&mut self, _now: Instant) -> Look {
            Look::Enough
        }

        fn broken(&mut self) {
            let _ = self.told.send("broken");
        }
    }

    fn seated(pool: &Pool, panics: bool, told: Sender<&'static str>) -> (Seat, UnixStream) {
        let (socket, other) = UnixStream::pair().unwrap();
        let seat = pool.reserve().unwrap();
        pool.seat(&seat, Box::new(Reporting { socket, panics, told }));
        (seat, other)
    }

    #[test]
    fn a_stream_that_panics_takes_no_other_with_it() {
        let pool = Pool::new(1, 0);
        let (told, heard) = channel();
        let limit = Duration::from_secs(5);
        let (_bad, _far) = seated(&pool, true, told.clone());
        assert_eq!(heard.recv_timeout(limit), Ok("broken"));
        let (good, _near) = seated(&pool, false, told);
        assert_eq!(heard.recv_timeout(limit), Ok("ran"));
        while heard.recv_timeout(Duration::from_millis(200)).is_ok() {} // its socket is writable: another run
        good.kick();
        assert_eq!(heard.recv_timeout(limit), Ok("ran"), "a kick wakes a thread that sleeps");
        assert!(good.remove(limit));
        good.kick();
        assert!(heard.recv_timeout(Duration::from_millis(100)).is_err(), "nothing runs after it was let go");
    }
}
