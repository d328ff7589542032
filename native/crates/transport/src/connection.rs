//! The ends of a connection: what waits for a peer, what sends to it, what receives from it.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::Transport;
use crate::error::{Error, Kind};
use crate::listen::Waiting;
use crate::log::Level;
use crate::pool::{Direction, TaskRef};
use crate::receiver::RecvCore;
use crate::recv_lane::RecvLane;
use crate::request::Request;
use crate::sender::SendCore;
use crate::stall::Limits;
use crate::stats::Counters;

/// Waits for one peer.
pub struct Listener {
    pub(crate) transport: Arc<Transport>,
    pub(crate) waiting: Waiting,
}

/// The sending end of a connection.
pub struct Sender {
    pub(crate) core: Arc<SendCore>,
    pub(crate) tasks: Vec<TaskRef>,
    pub(crate) number: usize,
    pub(crate) transport: Arc<Transport>,
}

/// The receiving end of a connection.
pub struct Receiver {
    pub(crate) core: Arc<RecvCore>,
    pub(crate) tasks: Vec<TaskRef>,
    pub(crate) number: usize,
    pub(crate) transport: Arc<Transport>,
}

impl Listener {
    /// Accept the peer's connection. Does not wait: returns None until the peer has connected.
    ///
    /// # Errors
    /// The system refuses, or the peer does not open all streams in time.
    pub fn accept(&mut self) -> Result<Option<Box<Receiver>>, Error> {
        let transport = &self.transport;
        let Some(streams) = self.waiting.advance(&transport.config)? else { return Ok(None) };
        if self.waiting.dropped > 0 {
            (transport.log)(
                Level::Info,
                &format!("dropped {} connections without a valid token", self.waiting.dropped),
            );
        }
        let mut streams = streams.into_iter();
        let Some(inline) = streams.next() else {
            return Err(Error::new(Kind::Internal, "a connection without streams"));
        };
        let lanes: Vec<_> = streams.collect();
        let label = transport.label("from", Some(inline.peer), lanes.iter().map(|lane| lane.nic));
        let counters = Arc::new(Counters::new(
            label.clone(),
            lanes.iter().map(|lane| transport.nics[lane.nic].name.clone()),
        ));
        let number = transport.register.add(&counters);
        let core =
            RecvCore::new(label, transport.log.clone(), counters, inline, &transport.early_budget);
        let known = |tasks| core.set_tasks(tasks);
        let limits = Limits::of(&transport.config);
        let tasks = transport.start_tasks(Direction::In, lanes, known, |lane, one| {
            Box::new(RecvLane::new(core.clone(), lane, one.socket, one.first, one.have, limits))
        })?;
        Ok(Some(Box::new(Receiver { core, tasks, number, transport: transport.clone() })))
    }
}

impl Sender {
    /// Start to send `size` bytes at `data`; None if too many messages are in flight.
    ///
    /// # Safety
    /// `data` stays readable and unchanged until the request has tested done or this connection is
    /// dropped.
    ///
    /// # Errors
    /// The peer is gone.
    pub unsafe fn isend(
        &self,
        data: *const u8,
        size: usize,
    ) -> Result<Option<NonNull<Request>>, Error> {
        // SAFETY: the caller keeps `data` as the core requires: the core holds this same contract.
        unsafe { self.core.isend(data, size) }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.core.linger(&self.transport.linger_us);
        self.core.close();
        self.tasks.iter().for_each(TaskRef::remove);
        self.core.drain_inline(&self.transport.pool);
        self.transport.ended(self.number, &self.core.counters);
    }
}

impl Receiver {
    /// Post `room` bytes at `buffer` for the next message; None if too many are posted.
    ///
    /// # Safety
    /// The buffer stays writable and otherwise unused until the request has tested done or this
    /// connection is dropped.
    ///
    /// # Errors
    /// The peer is gone.
    pub unsafe fn irecv(
        &self,
        buffer: *mut u8,
        room: usize,
    ) -> Result<Option<NonNull<Request>>, Error> {
        // SAFETY: the caller keeps `buffer` as the core requires: the core holds this same
        // contract.
        unsafe { self.core.irecv(buffer, room) }
    }

    /// An error of what the peer has sent. It names the peer.
    pub fn error(&self, kind: Kind, why: &str) -> Error {
        self.core.error(kind, why)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.core.close();
        self.tasks.iter().for_each(TaskRef::remove);
        self.transport.ended(self.number, &self.core.counters);
    }
}
