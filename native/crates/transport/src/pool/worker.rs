//! An I/O thread: runs its tasks while there is work, and sleeps otherwise.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

use super::slot::Slot;
use super::task::{Look, Next};
use crate::config::SHORT_SPIN_US;
use crate::doorbell;
use crate::error::Error;
use crate::locks::lock;

/// Interval of ticks.
const TICK: Duration = Duration::from_millis(100);
/// Runs between checks for new events.
const RUNS: usize = 8;
const EVENTS: usize = 64;
/// Bytes after which the thread's next task has its turn.
const SHARE: usize = 1 << 20;
/// How long every thread may spin before it sleeps.
const SHORT_SPIN: Duration = Duration::from_micros(SHORT_SPIN_US);
pub(super) const EVENTFD: u64 = u64::MAX;

pub(super) enum Order {
    Add(u64, Arc<Slot>),
    Kick(u64),
    Remove(u64),
    Quit,
}

/// The part of a thread that others use.
pub(super) struct Shared {
    pub(super) epoll: OwnedFd,
    pub(super) eventfd: OwnedFd,
    pub(super) doorbell: doorbell::Doorbell<Order>,
    /// Number of streams in each direction.
    pub(super) streams: [AtomicUsize; 2],
}

impl Shared {
    pub(super) fn order(&self, order: Order) {
        if self.doorbell.post(order) {
            let one = 1u64;
            // SAFETY: writes the eight bytes of `one`, a local. It can fail only if the eventfd's
            // counter is full, and then it is readable anyway.
            unsafe { libc::write(self.eventfd.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }
}

/// Wake the thread on a descriptor's events.
pub(super) fn watch(shared: &Shared, fd: RawFd, key: u64, events: i32) -> Result<(), Error> {
    let mut event = libc::epoll_event { events: events as u32, u64: key };
    // SAFETY: `event` is a local that the call only reads. `epoll` is owned by `shared`; the kernel
    // rejects an `fd` that is not open.
    match unsafe {
        libc::epoll_ctl(shared.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event)
    } {
        0 => Ok(()),
        _ => Err(Error::system("epoll_ctl for a stream (fs.epoll.max_user_watches?)")),
    }
}

/// Limits how many threads of a pool spin for long. On a link that is slower than they are, all of
/// them would spin without getting more done.
pub(super) struct Spinners {
    now: AtomicUsize,
    most: usize,
}

impl Spinners {
    pub(super) fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self { now: AtomicUsize::new(0), most: (threads / 4).max(1) })
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    fn join(&self) -> bool {
        self.now
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                (now < self.most).then_some(now + 1)
            })
            .is_ok()
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether spinning is worthwhile: only if work usually arrives before the spin ends. On a link
/// that is slower than its threads it does not.
#[derive(Default)]
struct SpinHistory {
    /// Moving average of waits, in units of the spin time. A wait counts as at most two: the pause
    /// between two training steps says little about the next exchange.
    usual: f32,
    /// Waits without spinning since the last spin.
    blind: u8,
}

impl SpinHistory {
    /// Whether to spin this time. While it is not worthwhile, every eighth time: waking a thread
    /// takes many times the spin time, so a sleeping thread cannot tell how soon work arrived.
    fn next(&mut self) -> bool {
        self.blind = if self.usual <= 1.0 { 0 } else { (self.blind + 1) % 8 };
        self.blind == 0
    }

    /// Record a wait that began with a spin of this length.
    fn add(&mut self, wait: Duration, look: Duration) {
        if look.is_zero() {
            return;
        }
        let wait = (wait.as_secs_f32() / look.as_secs_f32()).min(2.0);
        self.usual =
            if wait <= 1.0 && self.usual > 1.0 { 1.0 } else { self.usual.mul_add(7.0, wait) / 8.0 };
    }
}

/// The private part of a thread.
pub(super) struct Worker {
    shared: Arc<Shared>,
    spin: Duration,
    spinners: Arc<Spinners>,
    looks: SpinHistory,
    /// How long it spins this time.
    look: Duration,
    /// It counts as one of the spinners.
    long: bool,
    slots: HashMap<u64, Arc<Slot>>,
    ready: VecDeque<u64>,
    ticked: Instant,
}

impl Worker {
    /// A thread without tasks.
    pub(super) fn new(shared: Arc<Shared>, spin: Duration, spinners: Arc<Spinners>) -> Self {
        Self {
            shared,
            spin,
            spinners,
            looks: SpinHistory::default(),
            look: Duration::ZERO,
            long: false,
            slots: HashMap::new(),
            ready: VecDeque::new(),
            ticked: Instant::now(),
        }
    }

    pub(super) fn work(mut self) {
        let mut idle_since: Option<Instant> = None;
        let mut wants_ticks = false;
        loop {
            if self.shared.doorbell.has_orders() && self.take_orders() {
                return;
            }
            for _ in 0..RUNS {
                let Some(key) = self.ready.pop_front() else { break };
                if let Some(since) = idle_since.take() {
                    self.looks.add(since.elapsed(), self.look);
                    self.stop_spinning();
                }
                self.run(key);
                wants_ticks = true; // until the next tick decides
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
            let since = *idle_since.get_or_insert_with(|| {
                self.start_spinning();
                now
            });
            if self.events(0) || self.shared.doorbell.has_orders() {
                continue;
            }
            if now - since < self.look {
                std::hint::spin_loop();
                continue;
            }
            self.stop_spinning();
            if self.shared.doorbell.prepare_to_sleep(wants_ticks) {
                self.events(if wants_ticks { TICK.as_millis() as i32 } else { -1 });
            }
            self.shared.doorbell.wake_up();
        }
    }

    /// Decide how long to spin before sleeping.
    fn start_spinning(&mut self) {
        let pays = self.looks.next();
        self.long = pays && self.spin > SHORT_SPIN && self.spinners.join();
        self.look = match (pays, self.long) {
            (false, _) => Duration::ZERO,
            (true, false) => self.spin.min(SHORT_SPIN),
            (true, true) => self.spin,
        };
    }

    fn stop_spinning(&mut self) {
        if std::mem::take(&mut self.long) {
            self.spinners.leave();
        }
    }

    /// Execute the queued orders; returns whether to quit.
    fn take_orders(&mut self) -> bool {
        for order in self.shared.doorbell.take() {
            match order {
                Order::Add(key, task) => self.add(key, task),
                Order::Kick(key) => self.queue(key),
                Order::Remove(key) => self.remove(key),
                Order::Quit => return true,
            }
        }
        false
    }

    fn add(&mut self, key: u64, slot: Arc<Slot>) {
        let Some(mut task) = lock(&slot.held).task.take() else { return };
        match watch(
            &self.shared,
            task.fd(),
            key,
            libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET,
        ) {
            Ok(()) => {
                lock(&slot.held).task = Some(task);
                self.slots.insert(key, slot);
                self.queue(key);
            }
            Err(error) => task.broken(&error.message),
        }
    }

    fn remove(&mut self, key: u64) {
        let Some(task) = self.slots.remove(&key).and_then(|slot| lock(&slot.held).task.take())
        else {
            return;
        };
        // Removed explicitly, as a socket that a forked child still has open would otherwise stay
        // in the set. SAFETY: DEL reads no event, so NULL is allowed; `task` keeps its descriptor
        // open until it is dropped below.
        unsafe {
            libc::epoll_ctl(
                self.shared.epoll.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                task.fd(),
                std::ptr::null_mut(),
            )
        };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
    }

    fn queue(&mut self, key: u64) {
        if let Some(slot) = self.slots.get(&key) {
            if slot.turn.queue() {
                self.ready.push_back(key);
            }
        }
    }

    fn run(&mut self, key: u64) {
        // a caller has run it
        let Some(slot) = self.slots.get(&key).filter(|slot| slot.turn.take()) else { return };
        let next = match slot.held.try_lock() {
            Ok(mut held) => held.run(SHARE),
            Err(TryLockError::Poisoned(held)) => held.into_inner().run(SHARE),
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now(); // a caller runs it just now, for some microseconds
                Next::Again
            }
        };
        match next {
            Next::Wait => {}
            Next::Again => self.queue(key),
            Next::Gone => self.remove(key),
        }
    }

    fn tick(&mut self, now: Instant) -> bool {
        let mut wanted = false;
        let (mut moved, mut gone) = (Vec::new(), Vec::new());
        for (key, slot) in &self.slots {
            match lock(&slot.held).guarded(|task| task.tick(now)) {
                Some(look) => {
                    wanted |= look != Look::Enough;
                    if look == Look::Run {
                        moved.push(*key);
                    }
                }
                None => gone.push(*key),
            }
        }
        moved.into_iter().for_each(|key| self.queue(key));
        gone.into_iter().for_each(|key| self.remove(key));
        wanted
    }

    /// Queue the tasks whose sockets are ready; returns whether there were any. `limit_ms` -1 waits
    /// without limit.
    fn events(&mut self, limit_ms: i32) -> bool {
        // SAFETY: epoll_event is plain data, valid when zero.
        let mut events: [libc::epoll_event; EVENTS] = unsafe { std::mem::zeroed() };
        // SAFETY: `events` is a local array of EVENTS entries, the largest number that the kernel
        // may fill.
        let count = unsafe {
            libc::epoll_wait(
                self.shared.epoll.as_raw_fd(),
                events.as_mut_ptr(),
                EVENTS as i32,
                limit_ms,
            )
        };
        for event in events.iter().take(count.max(0) as usize) {
            let key = event.u64;
            if key == EVENTFD {
                let mut has_orders = 0u64;
                // SAFETY: reads the eight bytes of an eventfd into `has_orders`, a local.
                unsafe {
                    libc::read(self.shared.eventfd.as_raw_fd(), (&raw mut has_orders).cast(), 8)
                };
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

    #[test]
    fn spinning_stops_without_success_and_resumes_with_it() {
        let (look, soon, late) =
            (Duration::from_micros(20), Duration::from_micros(3), Duration::from_secs(1));
        let mut looks = SpinHistory::default();
        let vain =
            (0..100).take_while(|_| looks.next().then(|| looks.add(late, look)).is_some()).count();
        assert!((4..=8).contains(&vain), "{vain}");
        let mut later: Vec<_> =
            (0..64).map(|_| looks.next().then(|| looks.add(late, look)).is_some()).collect();
        assert_eq!(later.iter().filter(|looked| **looked).count(), 8, "every eighth time");
        while !looks.next() {
            looks.add(late, Duration::ZERO); // the time asleep says nothing
        }
        looks.add(soon, look);
        later = (0..64).map(|_| looks.next().then(|| looks.add(soon, look)).is_some()).collect();
        assert!(later.iter().all(|looked| *looked));
        for _ in 0..100 {
            assert!(looks.next());
            looks.add(late, look); // between steps
            for _ in 0..3 {
                assert!(looks.next());
                looks.add(soon, look);
            }
        }
    }
}
