//! Times of launches by CUDA events: one on the stream before the launch, one after it. They are
//! read later, by the thread that empties the ring, so no launch waits for the GPU.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::cuda::{Context, Driver};
use crate::file::clock;

/// Pairs of events for each GPU: more launches than a stream holds, and those of 10 ms at one in 5
/// us.
pub const PAIRS: usize = 2048;
/// A float of milliseconds is exact to 60 ns within one second, so starts are told from an event
/// that is not older.
const BASE_NS: f64 = 1e9;
/// How long the end of the process waits for a thread that reads times.
const LAST_WAIT: Duration = Duration::from_millis(200);

/// Why a launch has no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untimed {
    /// All events are in use.
    NoEvent,
    /// Its stream was being captured into a CUDA graph.
    Captured,
    /// The driver returned this error.
    Failed(c_int),
    /// The process is ending.
    Ended,
}

/// A time that was read: start and end in ns by the clock of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Number of the timing.
    pub timing: u64,
    /// Start.
    pub start: u64,
    /// End.
    pub end: u64,
    /// Whether the events were around the call, not its launch.
    pub around_call: bool,
}

/// Two events.
#[derive(Clone, Copy, Debug)]
struct Pair {
    start: usize,
    end: usize,
}

/// A launch whose first event is recorded.
#[derive(Debug)]
pub struct Begun {
    timing: u64,
    gpu: usize,
    stream: u64,
    pair: Pair,
    around_call: bool,
}

impl Begun {
    /// Number of its timing.
    pub const fn timing(&self) -> u64 {
        self.timing
    }
}

/// One GPU, or one context of it.
#[derive(Debug)]
struct Gpu {
    context: Context,
    free: Mutex<Vec<Pair>>,
}

/// From where starts are told: a start event, and its moment in ns.
#[derive(Clone, Copy, Debug)]
struct Base {
    gpu: usize,
    pair: Pair,
    ns: f64,
}

/// What only the reader of events has.
#[derive(Debug, Default)]
struct Reading {
    waiting: Vec<Begun>,
    bases: Vec<Base>,
}

/// The clock of all GPUs of the process.
#[derive(Debug)]
pub struct GpuClock {
    driver: Driver,
    gpus: Mutex<Vec<Arc<Gpu>>>,
    launched: Mutex<Vec<Begun>>,
    reading: Mutex<Reading>,
    ended: AtomicBool,
    say: fn(Untimed),
}

/// Takes what was read of each launch.
type Tell<'a> = &'a mut dyn FnMut(Result<Span, Untimed>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GpuClock {
    /// A clock without GPUs. `say` tells the user why launches have no time, once for each reason.
    pub fn new(driver: Driver, say: fn(Untimed)) -> Self {
        let empty = Reading::default();
        Self {
            driver,
            gpus: Mutex::new(vec![]),
            launched: Mutex::new(vec![]),
            reading: Mutex::new(empty),
            ended: AtomicBool::new(false),
            say,
        }
    }

    /// The number of this thread's GPU; the first call for it creates its events.
    ///
    /// # Errors
    /// The driver's result, if the thread has no context or not a single event can be created.
    pub fn gpu(&self) -> Result<usize, c_int> {
        let context = self.driver.context()?;
        let mut gpus = locked(&self.gpus);
        if let Some(known) = gpus.iter().position(|gpu| gpu.context == context) {
            return Ok(known);
        }
        let pair = || Ok(Pair { start: self.driver.event()?, end: self.driver.event()? });
        let created: Vec<Result<Pair, c_int>> = self
            .driver
            .within(context, || (0..PAIRS).map(|_| pair()).take_while(Result::is_ok).collect());
        let free: Vec<Pair> = created.into_iter().flatten().collect();
        if free.is_empty() {
            return Err(self
                .driver
                .within(context, || self.driver.event())
                .err()
                .unwrap_or_default());
        }
        gpus.push(Arc::new(Gpu { context, free: Mutex::new(free) }));
        Ok(gpus.len() - 1)
    }

    fn at(&self, gpu: usize) -> Option<Arc<Gpu>> {
        locked(&self.gpus).get(gpu).cloned()
    }

    /// Record the event before a launch, or before a call of the application.
    ///
    /// # Errors
    /// Why it will have no time.
    pub fn begin(
        &self,
        gpu: usize,
        stream: u64,
        timing: u64,
        around_call: bool,
    ) -> Result<Begun, Untimed> {
        if self.ended.load(Ordering::Acquire) {
            return Err(Untimed::Ended);
        }
        if self.driver.is_captured(stream) {
            return Err(Untimed::Captured);
        }
        let pair = self.at(gpu).and_then(|gpu| locked(&gpu.free).pop()).ok_or(Untimed::NoEvent)?;
        let begun = Begun { timing, gpu, stream, pair, around_call };
        match self.driver.record(pair.start, stream) {
            Ok(()) => Ok(begun),
            Err(result) => {
                self.forget(begun);
                Err(Untimed::Failed(result))
            }
        }
    }

    /// Record the event after a launch; the time is read later.
    ///
    /// # Errors
    /// Why it will have no time.
    pub fn end(&self, begun: Begun) -> Result<(), Untimed> {
        match self.driver.record(begun.pair.end, begun.stream) {
            Ok(()) => {
                locked(&self.launched).push(begun);
                Ok(())
            }
            Err(result) => {
                self.forget(begun);
                Err(Untimed::Failed(result))
            }
        }
    }

    /// Give back the events of a launch that is not timed after all.
    pub fn forget(&self, begun: Begun) {
        self.give_back(begun.gpu, begun.pair);
    }

    fn give_back(&self, gpu: usize, pair: Pair) {
        if let Some(gpu) = self.at(gpu) {
            locked(&gpu.free).push(pair);
        }
    }

    /// Tell the user that launches have no time.
    pub fn say(&self, reason: Untimed) {
        (self.say)(reason);
    }

    /// Tell the times of all launches that have ended. Another thread that already does it is not
    /// waited for.
    pub fn read(&self, tell: Tell<'_>) {
        if let Ok(mut reading) = self.reading.try_lock() {
            self.read_now(&mut reading, tell);
        }
    }

    /// The same for the last time: nothing is recorded or read afterwards, as the driver may be
    /// gone.
    pub fn read_last(&self, tell: Tell<'_>) {
        self.ended.store(true, Ordering::Release);
        let pause = Duration::from_millis(1);
        for _ in 0..LAST_WAIT.as_millis() {
            if let Ok(mut reading) = self.reading.try_lock() {
                self.read_now(&mut reading, tell);
                std::mem::forget(reading); // so that no other thread reads
                return;
            }
            thread::sleep(pause);
        }
    }

    fn read_now(&self, reading: &mut Reading, tell: Tell<'_>) {
        let mut waiting = std::mem::take(&mut reading.waiting);
        waiting.append(&mut locked(&self.launched));
        if waiting.is_empty() {
            return;
        }
        let gpus = locked(&self.gpus).clone();
        for (number, gpu) in gpus.iter().enumerate() {
            let (own, others) = waiting.into_iter().partition(|begun| begun.gpu == number);
            waiting = others;
            let mut own: Vec<Begun> = own;
            if !own.is_empty() {
                self.driver
                    .within(gpu.context, || self.read_gpu(&mut own, &mut reading.bases, tell));
                reading.waiting.append(&mut own);
            }
        }
    }

    /// Read those of one GPU; what has not ended stays. A stream runs its launches in order, so it
    /// is asked until one has not ended.
    fn read_gpu(&self, waiting: &mut Vec<Begun>, bases: &mut Vec<Base>, tell: Tell<'_>) {
        let mut busy: Vec<u64> = vec![];
        for begun in std::mem::take(waiting) {
            if busy.contains(&begun.stream) {
                waiting.push(begun);
                continue;
            }
            match self.driver.is_done(begun.pair.end) {
                Ok(true) => self.tell_time(begun, bases, tell),
                Ok(false) => {
                    busy.push(begun.stream);
                    waiting.push(begun);
                }
                Err(result) => self.fail(begun, result, tell),
            }
        }
    }

    fn fail(&self, begun: Begun, result: c_int, tell: Tell<'_>) {
        tell(Err(Untimed::Failed(result)));
        self.forget(begun);
    }

    fn tell_time(&self, begun: Begun, bases: &mut Vec<Base>, tell: Tell<'_>) {
        let at = bases.iter().position(|base| base.gpu == begun.gpu);
        let since =
            at.map_or(Ok(0.0), |at| self.driver.elapsed_ns(bases[at].pair.start, begun.pair.start));
        let lasted = self.driver.elapsed_ns(begun.pair.start, begun.pair.end);
        let (since, lasted) = match (since, lasted) {
            (Ok(since), Ok(lasted)) => (since, lasted),
            (Err(result), _) | (_, Err(result)) => return self.fail(begun, result, tell),
        };
        let start =
            at.map_or_else(|| clock(libc::CLOCK_MONOTONIC) as f64, |at| bases[at].ns + since);
        let (start_ns, end_ns) = (whole(start), whole(start + lasted));
        tell(Ok(Span {
            timing: begun.timing,
            start: start_ns,
            end: end_ns,
            around_call: begun.around_call,
        }));
        let base = Base { gpu: begun.gpu, pair: begun.pair, ns: start };
        match at {
            None => bases.push(base),
            Some(at) if since > BASE_NS => {
                let former = std::mem::replace(&mut bases[at], base);
                self.give_back(former.gpu, former.pair);
            }
            Some(_) => self.forget(begun),
        }
    }
}

/// Nanoseconds as a whole number; doubles hold those of a hundred days.
fn whole(ns: f64) -> u64 {
    ns.round() as u64
}
