//! The inline stream, read by the caller's thread when it tests a receive.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use socket2::Socket;

use super::{Claim, INLINE, RecvCore};
use crate::config::LARGEST_INLINE;
use crate::error::{Error, Kind};
use crate::locks::lock;
use crate::sock::{self, Io};
use crate::wire::{ACK_AT_LATEST, ACK_BYTES, ACK_EVERY, Frame, HEADER};

/// Holds the largest message of the inline stream and its header, and some of the next ones.
const INLINE_BUFFER: usize = LARGEST_INLINE + (32 << 10);
/// Limit of unread acknowledgements in bytes. Beyond it, nothing more is read from the peer.
const MAX_UNREAD: usize = 64 << 10;

pub(super) struct InlineStream {
    pub(super) socket: Socket,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// The last message delivered, and messages and bytes since the last acknowledgement.
    last: u64,
    since_ack: usize,
    bytes_since_ack: usize,
    /// Acknowledgements that the kernel has not taken.
    out: Vec<u8>,
    /// Why no more data will arrive.
    ended: Option<String>,
    /// All data that arrived has been delivered.
    pub(super) finished: bool,
}

impl InlineStream {
    /// `first` has been received before.
    pub(super) fn new(socket: Socket, first: &[u8]) -> Self {
        let mut buffer: Box<[u8]> = vec![0; INLINE_BUFFER].into();
        buffer[..first.len()].copy_from_slice(first);
        Self {
            socket,
            buffer,
            start: 0,
            end: first.len(),
            last: 0,
            since_ack: 0,
            bytes_since_ack: 0,
            out: Vec::new(),
            ended: None,
            finished: false,
        }
    }
}

impl RecvCore {
    pub(super) fn read_inline(&self, inline: &mut InlineStream) -> Result<(), Error> {
        loop {
            if inline.start > 0 {
                inline.buffer.copy_within(inline.start..inline.end, 0);
                (inline.start, inline.end) = (0, inline.end - inline.start);
            }
            let room =
                if inline.ended.is_some() { &mut [][..] } else { &mut inline.buffer[inline.end..] };
            let (mut more, mut quiet) = (false, false);
            if !room.is_empty() {
                let asked = room.len();
                // SAFETY: `room` is a part of `inline.buffer`, which is borrowed mutably during the
                // call.
                match unsafe {
                    sock::receive(inline.socket.as_raw_fd(), room.as_mut_ptr(), asked, &mut [])
                } {
                    Io::Done(bytes) => (inline.end, more) = (inline.end + bytes, bytes == asked),
                    Io::Blocked => quiet = true,
                    Io::Ended(why) => inline.ended = Some(reason(why)),
                }
            }
            let blocked = self.deliver(inline, quiet)?;
            // Data received before the end still counts.
            if let Some(why) = inline.ended.as_ref().filter(|_| !blocked && !inline.finished) {
                self.stream_ended(INLINE, why);
                inline.finished = true;
            }
            // Messages are in order, so no posted receive can be behind one that waits.
            let lanes_ended = blocked && self.lanes_ended.load(Ordering::Relaxed);
            if lanes_ended && (inline.ended.is_some() || sock::closed_by_peer(&inline.socket)) {
                let _ = self.gone.set(self.error(Kind::Remote, "the peer closed the connection"));
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Deliver the complete messages whose receives are posted; returns whether one waits for its
    /// receive. Unless many are due, acknowledgements are sent only when the stream is `quiet`:
    /// sending one takes as long as a message, and the caller would wait for it.
    fn deliver(&self, inline: &mut InlineStream, quiet: bool) -> Result<bool, Error> {
        let mut blocked = false;
        while inline.end - inline.start >= HEADER
            && (inline.out.len() < MAX_UNREAD || inline.ended.is_some())
        {
            let head = inline.buffer[inline.start..inline.start + HEADER]
                .try_into()
                .unwrap_or([0; HEADER]);
            let chunk = match Frame::decode(&head)? {
                Frame::Chunk(chunk) => chunk,
                Frame::Ready { .. } => {
                    inline.start += HEADER; // the first frame of each stream
                    continue;
                }
                Frame::Ack { .. } => {
                    return Err(Error::new(
                        Kind::Remote,
                        "received an acknowledgement for data that was never sent",
                    ));
                }
            };
            let length = chunk.len();
            if length > INLINE_BUFFER - HEADER || chunk.count() != 1 {
                return Err(Error::new(
                    Kind::Remote,
                    format!("an inline message of {} bytes", chunk.total),
                ));
            }
            if inline.end - inline.start < HEADER + length {
                break;
            }
            match self.claim(&chunk, None)? {
                Claim::Early => {
                    blocked = true;
                    break;
                }
                Claim::Stale(_) => {}
                Claim::Into(to) => {
                    if self.begin_write(&chunk) {
                        let from = inline.buffer[inline.start + HEADER..].as_ptr();
                        // SAFETY: `begin_write` made this thread a writer, so `to` stays valid
                        // until `finish_write`; `claim` checked that the message fits.
                        unsafe { std::ptr::copy_nonoverlapping(from, to, length) };
                        self.finish_write(&chunk);
                    }
                }
            }
            inline.start += HEADER + length;
            inline.last = chunk.seq;
            inline.since_ack += 1;
            inline.bytes_since_ack += length;
        }
        let due = inline.since_ack >= if quiet { ACK_EVERY } else { ACK_AT_LATEST }
            || inline.bytes_since_ack >= ACK_BYTES;
        if due && inline.ended.is_none() {
            (inline.since_ack, inline.bytes_since_ack) = (0, 0);
            let below = lock(&self.state).base;
            // All small messages up to the last are taken, even if a large one before them is not
            // complete.
            inline.out.extend_from_slice(&Frame::Ack { seq: inline.last, below }.encode());
        }
        flush(&inline.socket, &mut inline.out);
        Ok(blocked)
    }
}

/// Send as much of `out` as the kernel takes.
pub(crate) fn flush(socket: &Socket, out: &mut Vec<u8>) {
    while !out.is_empty() {
        // SAFETY: `out` is borrowed during the call, which reads at most its length.
        match unsafe { sock::send(socket.as_raw_fd(), &[], out.as_ptr(), out.len()) } {
            Io::Done(bytes) => drop(out.drain(..bytes)),
            Io::Blocked => return,
            Io::Ended(_) => out.clear(), // the next read returns the error
        }
    }
}

fn reason(why: Option<std::io::Error>) -> String {
    why.map_or_else(|| "the peer closed the connection".to_owned(), |error| error.to_string())
}
