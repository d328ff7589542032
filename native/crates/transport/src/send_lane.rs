//! A stream that sends chunks to the peer and receives acknowledgements.

use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

use socket2::Socket;

use crate::error::Kind;
use crate::pool::{self, Look, Next, Task};
use crate::send_method::{SendMethod, Sent};
use crate::sender::{Job, ReadPermit, SendCore};
use crate::sock::{self, Io};
use crate::stall::{Flow, StallDetector};
use crate::wire::{Frame, HEADER};

/// Sent in place of a buffer that has been returned to the caller. The peer has the message and
/// discards the rest.
static NOTHING: [u8; 64 << 10] = [0; 64 << 10];

pub(crate) struct SendLane {
    core: Arc<SendCore>,
    lane: usize,
    socket: Socket,
    job: Option<Job>,
    head: [u8; HEADER],
    /// Bytes of the job that have been sent, including its header.
    sent: usize,
    /// Bytes sent since the stream began.
    taken: u64,
    acks: [u8; 16 * HEADER],
    have: usize,
    send_method: SendMethod,
    stall: StallDetector,
    /// The peer has not answered for too long.
    silent: bool,
}

impl SendLane {
    pub(crate) fn new(core: Arc<SendCore>, lane: usize, socket: Socket) -> Self {
        sock::limit_unsent(&socket);
        let send_method = SendMethod::new(core.config.zerocopy);
        Self {
            core,
            lane,
            socket,
            job: None,
            head: [0; HEADER],
            sent: 0,
            taken: 0,
            acks: [0; 16 * HEADER],
            have: 0,
            send_method,
            stall: StallDetector::default(),
            silent: false,
        }
    }

    /// Read acknowledgements; Err is the reason why the stream has ended.
    fn read_acks(&mut self) -> Result<(), String> {
        loop {
            let room = &mut self.acks[self.have..];
            // SAFETY: `room` is a part of `self.acks`, which is borrowed mutably during the call.
            match unsafe {
                sock::receive(self.socket.as_raw_fd(), room.as_mut_ptr(), room.len(), &mut [])
            } {
                Io::Done(bytes) => self.have += bytes,
                Io::Blocked => return Ok(()),
                Io::Ended(None) => return Err("the peer closed the connection".to_owned()),
                Io::Ended(Some(error)) => return Err(error.to_string()),
            }
            let whole = self.have / HEADER * HEADER;
            for frame in self.acks[..whole].chunks_exact(HEADER) {
                if let Frame::Ack { seq, below } =
                    Frame::decode(frame.try_into().unwrap_or(&[0; HEADER]))
                        .map_err(|error| error.message)?
                {
                    self.core.acknowledge(seq, below);
                }
            }
            self.acks.copy_within(whole..self.have, 0);
            self.have -= whole;
        }
    }

    fn send(&mut self, mut share: usize) -> Result<Next, String> {
        while share > 0 {
            if self.job.is_none() {
                let Some(job) = self.core.pull(self.lane) else { return Ok(Next::Wait) };
                self.head = Frame::Chunk(job.chunk).encode();
                (self.job, self.sent) = (Some(job), 0);
            }
            let Some(job) = &self.job else { return Ok(Next::Wait) };
            let (head, length) = (&self.head[self.sent.min(HEADER)..], job.chunk.len());
            let done = self.sent.saturating_sub(HEADER);
            let reading = self.core.read(job.chunk.seq);
            let (data, left) = match &reading {
                ReadPermit::Read { .. } => {
                    (job.data.wrapping_add(done), pool::piece(length - done, share))
                }
                ReadPermit::Acknowledged => (NOTHING.as_ptr(), (length - done).min(NOTHING.len())),
                ReadPermit::Closed => return Ok(Next::Gone),
            };
            // SAFETY: the guard in `reading` keeps the message's buffer valid during the call, or
            // `data` is the static NOTHING. For zero-copy: the caller leaves the buffer unchanged
            // until the peer acknowledges the message, and then the peer discards these bytes.
            let Sent { outcome, referred, full } =
                unsafe { self.send_method.send(self.socket.as_raw_fd(), head, data, left) };
            drop(reading);
            if referred > 0 {
                self.core.counters.referred(self.lane, referred);
            }
            match outcome {
                Io::Done(bytes) => {
                    self.sent += bytes;
                    self.taken += bytes as u64;
                    share = share.saturating_sub(bytes);
                    if self.sent == HEADER + length {
                        self.job = None;
                        self.core.counters.chunk(self.lane, length);
                    } else if full {
                        return Ok(Next::Wait);
                    }
                }
                Io::Blocked => return Ok(Next::Wait),
                Io::Ended(error) => {
                    self.read_acks()?; // data received before the end still counts
                    return Err(error.map_or_else(String::new, |error| error.to_string()));
                }
            }
        }
        Ok(Next::Again)
    }
}

impl Drop for SendLane {
    fn drop(&mut self) {
        if self.core.abandoned() {
            // `close` has done this, unless this thread was busy
            sock::abort(self.socket.as_raw_fd());
        }
        // shutdown, as close would not end a socket that a forked child still has open
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Task for SendLane {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn run(&mut self, share: usize) -> Next {
        let sent = self.read_acks().and_then(|()| {
            if self.silent {
                return Err(format!("no answer for {} s", self.core.config.timeout_s));
            }
            self.send(share)
        });
        match sent {
            Ok(next) => next,
            Err(why) => {
                self.job = None;
                // The chunks are resent on other streams, and the kernel may hold pages that are
                // the caller's again before they are sent.
                sock::abort(self.socket.as_raw_fd());
                self.core.stream_ended(self.lane, &why);
                Next::Gone
            }
        }
    }

    fn broken(&mut self, why: &str) {
        self.core.fail(self.core.error(Kind::Internal, why));
    }

    fn tick(&mut self, now: Instant) -> Look {
        if self.core.monitors_inline(self.lane) {
            self.core.check_inline(now);
        }
        let flow = self.stall.check(&self.socket, self.taken, self.core.limits, now);
        if flow == Flow::Silent {
            self.silent = true;
            return Look::Run;
        }
        if !self.core.is_stalled(self.lane) {
            if flow == Flow::Stalled {
                self.core.mark_stalled(self.lane);
            }
        } else if self.stall.nothing_in_flight() {
            self.core.mark_moving(self.lane);
        }
        // A stalled stream is checked until it makes progress or ends, whatever the others do.
        if self.core.busy() || self.core.is_stalled(self.lane) { Look::Again } else { Look::Enough }
    }
}
