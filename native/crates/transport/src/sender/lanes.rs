//! Called by the I/O threads of a sending end, for a lane, which is one TCP stream: chunks to send,
//! acknowledgements, streams that stall or end.

use std::sync::atomic::Ordering;

use super::{InFlight, Job, NONE, SendCore, State};
use crate::error::{Error, Kind};
use crate::locks::lock;
use crate::log::Level;

/// Whether a thread may read a message's bytes.
pub(crate) enum ReadPermit<'a> {
    /// Yes, while it holds the guard.
    Read { _while_held: ReadGuard<'a> },
    /// No: the message is acknowledged, so its buffer may be the caller's again. The peer discards
    /// the rest of the chunk.
    Acknowledged,
    /// No: the connection is closed, and the rest of the chunk is not sent.
    Closed,
}

pub(crate) struct ReadGuard<'a> {
    core: &'a SendCore,
    seq: u64,
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.core.end_read(self.seq);
    }
}

impl SendCore {
    /// The next chunk for a stream. Without one the stream is idle until it is kicked.
    pub(crate) fn pull(&self, lane: usize) -> Option<Job> {
        let mut state = lock(&self.state);
        if (state.stalled | state.dead) & (1 << lane) != 0 {
            return None;
        }
        let usable = self.usable(&state) & (1 << lane) != 0;
        let Some(job) = usable.then(|| state.queue.pop_front()).flatten() else {
            state.idle |= 1 << lane;
            return None;
        };
        self.counters.queue(state.queue.len());
        if let Some(in_flight) =
            state.in_flight.iter_mut().find(|in_flight| in_flight.seq() == job.chunk.seq)
        {
            in_flight.carriers[job.chunk.index()] = lane as u8;
        }
        Some(job)
    }

    /// Get permission to read a message's bytes. The buffer is not returned to the caller until the
    /// guard is dropped; a reader never blocks.
    pub(crate) fn read(&self, seq: u64) -> ReadPermit<'_> {
        let mut state = lock(&self.state);
        if state.closed {
            return ReadPermit::Closed;
        }
        let Some(in_flight) = state.in_flight.iter_mut().find(|in_flight| in_flight.seq() == seq)
        else {
            return ReadPermit::Acknowledged;
        };
        in_flight.readers += 1;
        ReadPermit::Read { _while_held: ReadGuard { core: self, seq } }
    }

    fn end_read(&self, seq: u64) {
        let mut state = lock(&self.state);
        if let Some(in_flight) = state.in_flight.iter_mut().find(|in_flight| in_flight.seq() == seq)
        {
            in_flight.readers -= 1;
            return;
        }
        let Some(at) = state.retired.iter().position(|in_flight| in_flight.seq() == seq) else {
            return;
        };
        state.retired[at].readers -= 1;
        if state.retired[at].readers == 0 {
            self.give_back(&state.retired.swap_remove(at));
        }
    }

    /// Return a message's buffer to the caller.
    fn give_back(&self, in_flight: &InFlight) {
        if let Some(slot) = in_flight.request {
            self.requests[slot].complete(in_flight.job.chunk.total);
        }
    }

    /// Message `seq` and all below `below` have arrived.
    pub(crate) fn acknowledge(&self, seq: u64, below: u64) {
        self.acknowledged(&mut lock(&self.state), seq, below);
    }

    pub(super) fn acknowledged(&self, state: &mut State, seq: u64, below: u64) {
        let over = |one: u64| one == seq || one < below;
        let mut at = 0;
        while at < state.in_flight.len() {
            if !over(state.in_flight[at].seq()) {
                at += 1;
                continue;
            }
            if let Some(in_flight) = state.in_flight.remove(at) {
                if in_flight.carriers.contains(&NONE) {
                    state.queue.retain(|job| job.chunk.seq != in_flight.seq());
                }
                self.unacknowledged.fetch_sub(1, Ordering::Relaxed);
                if in_flight.readers == 0 {
                    self.give_back(&in_flight);
                } else {
                    state.retired.push(in_flight);
                }
            }
        }
    }

    /// Whether this stream, the first that is alive, monitors the inline stream.
    pub(crate) fn monitors_inline(&self, lane: usize) -> bool {
        self.alive(&lock(&self.state)).trailing_zeros() as usize == lane
    }

    /// Whether anything is in flight that could stall.
    pub(crate) fn busy(&self) -> bool {
        self.unacknowledged.load(Ordering::Relaxed) > 0 || !lock(&self.inline).kept.is_empty()
    }

    /// A stream is stalled: others take its chunks, if there are any others.
    pub(crate) fn mark_stalled(&self, lane: usize) {
        let mut state = lock(&self.state);
        let others = self.alive(&state) & !state.stalled & !(1 << lane);
        if others == 0 || state.stalled & (1 << lane) != 0 {
            return;
        }
        state.stalled |= 1 << lane;
        state.idle &= !(1 << lane);
        let again = self.requeue(&mut state, lane);
        drop(state);
        self.counters.stall(again);
        self.log_info(&format!(
            "stream {lane} makes no progress, {again} chunks are resent on other streams"
        ));
    }

    /// A stalled stream makes progress again.
    pub(crate) fn mark_moving(&self, lane: usize) {
        let mut state = lock(&self.state);
        if state.stalled & (1 << lane) != 0 {
            state.stalled &= !(1 << lane);
            drop(state);
            self.tasks()[lane].kick();
            self.log_info(&format!("stream {lane} makes progress again"));
        }
    }

    /// Whether a stream is marked as stalled.
    pub(crate) fn is_stalled(&self, lane: usize) -> bool {
        lock(&self.state).stalled & (1 << lane) != 0
    }

    /// A stream has ended. If it was the last, so has the connection.
    pub(crate) fn stream_ended(&self, lane: usize, why: &str) {
        let mut state = lock(&self.state);
        state.dead |= 1 << lane;
        let again = self.requeue(&mut state, lane);
        let alive = self.alive(&state);
        // If only stalled streams are left, use them.
        let freed =
            if alive & !state.stalled == 0 { std::mem::take(&mut state.stalled) } else { 0 };
        drop(state);
        for (lane, task_ref) in self.tasks().iter().enumerate() {
            // it monitors the inline stream from now on
            let monitor = alive.trailing_zeros() as usize == lane;
            if alive & (1 << lane) != 0 && (monitor || freed & (1 << lane) != 0) {
                task_ref.kick();
            }
        }
        if alive == 0 {
            self.fail(self.error(Kind::Remote, why));
        } else {
            self.counters.stall(again);
            self.log_info(&format!(
                "stream {lane} has ended ({why}), {again} chunks are resent on other streams"
            ));
        }
    }

    pub(crate) fn fail(&self, error: Error) {
        if self.failed.set(error.clone()).is_ok() {
            (self.log)(Level::Info, &error.message); // the next call returns it as a warning
        }
    }

    /// Log a line. Call without holding a lock, because the logger may block.
    pub(super) fn log_info(&self, what: &str) {
        (self.log)(Level::Info, &format!("{}: {what}", self.label));
    }

    fn requeue(&self, state: &mut State, lane: usize) -> usize {
        let State { in_flight, queue, .. } = state;
        let mut jobs = Vec::new();
        for one in in_flight.iter_mut() {
            for number in 0..one.carriers.len() {
                if one.carriers[number] == lane as u8 {
                    one.carriers[number] = NONE;
                    jobs.push(one.job(number));
                }
            }
        }
        let again = jobs.len();
        for job in jobs.into_iter().rev() {
            queue.push_front(job);
        }
        // All queued chunks, since a stream that was kicked for another chunk may be the one that
        // has just ended.
        let work = state.queue.len();
        self.kick(state, work);
        again
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use socket2::{Domain, Socket, Type};

    use super::*;
    use crate::config::Config;
    use crate::pool::{Direction, Pool};
    use crate::request::Completion;
    use crate::stats::Counters;

    #[test]
    fn a_message_is_not_done_while_a_thread_sends_its_buffer() {
        let (inline, _far) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
        let counters = Arc::new(Counters::new(String::new(), ["a", "b"].map(str::to_owned)));
        let config = Arc::new(Config { inline: 0, inline_idle: 0, ..Config::default() });
        let core = SendCore::new(
            String::new(),
            config,
            Arc::new(|_, _| {}),
            counters,
            inline,
            0,
            Arc::default(),
        );
        let pool = Pool::new(1, 0);
        core.set_tasks((0..2).map(|_| pool.reserve(Direction::Out).unwrap()).collect());
        let buffer = [7u8; 100];
        // SAFETY: `buffer` is a local of this test, declared before the core is used and alive to
        // its end.
        let request =
            unsafe { core.isend(buffer.as_ptr(), buffer.len()).unwrap().unwrap().as_ref() };
        let seq = core.pull(0).unwrap().chunk.seq;
        let late = core.read(seq);
        assert!(matches!(late, ReadPermit::Read { .. }));
        core.mark_stalled(0);
        let again = core.pull(1).unwrap();
        drop(core.read(again.chunk.seq));
        core.acknowledge(seq, seq + 1);
        assert_eq!(core.test(request), Ok(None), "stream 0 reads it");
        assert!(matches!(core.read(seq), ReadPermit::Acknowledged), "no one starts to read");
        drop(late);
        assert_eq!(core.test(request), Ok(Some(100)));
    }
}
