//! Exchanges between the host memory of ranks, controlled by counters in memory. A GPU writes one
//! counter and waits for another in its stream, so no kernel runs during the transfer.

mod carry;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use busbw_transport::{ALL, Error, Handle, Kind, Listener, Receiver, Sender, Transport, lock};

pub use carry::{Job, Numbers, Part};
use carry::{Peer, carry, passed};

/// Intervals of polling for peers that have not connected, and of checking whether an idle thread
/// should end.
const POLL: Duration = Duration::from_millis(1);
const IDLE: Duration = Duration::from_millis(200);

#[derive(Default)]
struct Shared {
    jobs: Mutex<VecDeque<Job>>,
    posted: Condvar,
    /// A job has ended; used with the mutex of `jobs`.
    ended: Condvar,
    closed: AtomicBool,
    error: Mutex<Option<String>>,
}

/// This rank's end of a group in which all ranks are connected to each other.
pub struct Exchange {
    transport: Arc<Transport>,
    peers: usize,
    listeners: Vec<Listener>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Exchange {
    /// Listen for this many peers. Each gets one of the handles.
    ///
    /// # Errors
    /// The system refuses a socket.
    pub fn open(transport: Arc<Transport>, peers: usize) -> Result<(Self, Vec<Handle>), Error> {
        let mut listeners = Vec::new();
        let mut handles = Vec::new();
        for _ in 0..peers {
            let (listener, handle) = transport.listen(ALL)?;
            listeners.push(*listener);
            handles.push(handle);
        }
        Ok((Self { transport, peers, listeners, shared: Arc::default(), thread: None }, handles))
    }

    /// The number of other ranks.
    pub fn peers(&self) -> usize {
        self.peers
    }

    /// Connect to all peers within a time limit. `handles` are those that the peers, in the order
    /// of `open`, made for this rank. `patience` limits every later wait without progress.
    ///
    /// # Errors
    /// A peer refuses, or has not connected in time.
    pub fn join(
        &mut self,
        handles: &[Handle],
        within: Duration,
        patience: Duration,
    ) -> Result<(), Error> {
        let end = Instant::now() + within;
        let mut out: Vec<Option<Box<Sender>>> = handles.iter().map(|_| None).collect();
        let mut back: Vec<Option<Box<Receiver>>> = handles.iter().map(|_| None).collect();
        while out.iter().any(Option::is_none) || back.iter().any(Option::is_none) {
            if Instant::now() > end {
                let absent = back.iter().filter(|one| one.is_none()).count();
                let message = format!(
                    "{absent} of {} ranks have not connected within {} s",
                    handles.len(),
                    within.as_secs_f64()
                );
                return Err(Error::new(Kind::Remote, message));
            }
            for (number, handle) in handles.iter().enumerate() {
                if out[number].is_none() {
                    out[number] = self.transport.connect(ALL, handle)?;
                }
                if back[number].is_none() {
                    back[number] = self.listeners[number].accept()?;
                }
            }
            thread::sleep(POLL);
        }
        self.listeners.clear();
        let peers = out
            .into_iter()
            .flatten()
            .zip(back.into_iter().flatten())
            .map(|(sender, receiver)| Peer { sender, receiver });
        let (peers, shared) = (peers.collect(), self.shared.clone());
        let begun = thread::Builder::new()
            .name("busbw-exchange".to_owned())
            .spawn(move || serve(&shared, peers, patience));
        self.thread = Some(begun.map_err(|error| {
            Error::new(Kind::System, format!("a thread for exchanges: {error}"))
        })?);
        Ok(())
    }

    /// Run a job after those before it. After an error it fails at once.
    pub fn post(&self, job: Job) {
        let mut jobs = lock(&self.shared.jobs);
        if self.error().is_some() {
            job.fail();
        } else {
            jobs.push_back(job);
            self.shared.posted.notify_one();
        }
    }

    /// Wait until `done` reaches `until`.
    ///
    /// # Errors
    /// An exchange has failed.
    pub fn wait(&self, done: &AtomicU32, until: u32) -> Result<(), String> {
        let mut jobs = lock(&self.shared.jobs);
        while passed(until, done.load(Ordering::Acquire)) > 0 {
            jobs = self
                .shared
                .ended
                .wait_timeout(jobs, IDLE)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        drop(jobs);
        self.error().map_or(Ok(()), Err)
    }

    /// Why no more exchanges are possible.
    pub fn error(&self) -> Option<String> {
        lock(&self.shared.error).clone()
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.posted.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The next job; None after the end.
    fn next(&self) -> Option<Job> {
        let mut jobs = lock(&self.jobs);
        loop {
            if let Some(job) = jobs.pop_front() {
                return Some(job);
            }
            if self.is_closed() {
                return None;
            }
            jobs = self.posted.wait_timeout(jobs, IDLE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Have the caller of `wait` check again.
    fn notify(&self) {
        drop(lock(&self.jobs)); // held by a caller that has checked and not yet started to wait
        self.ended.notify_all();
    }
}

fn serve(shared: &Shared, peers: Vec<Peer>, patience: Duration) {
    carry::sleep_exactly();
    while let Some(job) = shared.next() {
        let carried = catch_unwind(AssertUnwindSafe(|| {
            carry(&job, &peers, patience, &|| shared.is_closed())
        }));
        let error = match carried {
            Ok(Ok(())) => {
                shared.notify();
                continue;
            }
            Ok(Err(error)) => error.message,
            Err(_) => "an exchange panicked: a bug in busbw".to_owned(),
        };
        drop(peers); // no thread writes to the jobs' memory any more
        let mut jobs = lock(&shared.jobs); // so that no job is posted after the loop has ended
        *lock(&shared.error) = Some(error);
        job.fail();
        jobs.drain(..).for_each(|other| other.fail());
        shared.ended.notify_all();
        return;
    }
}
