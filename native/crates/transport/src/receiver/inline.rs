//! The stream of small messages: read by the caller's thread when it tests a receive.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use socket2::Socket;

use super::{Claim, INLINE, RecvCore};
use crate::error::{Error, Kind};
use crate::locks::lock;
use crate::sock::{self, Io};
use crate::wire::{ACK_AT_LATEST, ACK_EVERY, Frame, HEADER};

/// Of the stream of small messages; a message and its header always fit.
const INLINE_BUFFER: usize = 64 << 10;
/// Acknowledgements that the peer does not read, in bytes: beyond it nothing more is read from it.
const MAX_UNREAD: usize = 64 << 10;

pub(super) struct InlineStream {
    pub(super) socket: Socket,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// The last message taken out, and how many since the last acknowledgement.
    last: u64,
    since_ack: usize,
    /// Acknowledgements that the kernel has not taken.
    out: Vec<u8>,
    /// Why nothing more comes.
    ended: Option<String>,
    /// And all that came is delivered.
    pub(super) over: bool,
}

impl InlineStream {
    /// `first` has come already.
    pub(super) fn new(socket: Socket, first: &[u8]) -> Self {
        let mut buffer: Box<[u8]> = vec![0; INLINE_BUFFER].into();
        buffer[..first.len()].copy_from_slice(first);
        Self { socket, buffer, start: 0, end: first.len(), last: 0, since_ack: 0, out: Vec::new(), ended: None, over: false }
    }
}

impl RecvCore {
    pub(super) fn hear(&self, inline: &mut InlineStream) -> Result<(), Error> {
        loop {
            if inline.start > 0 {
                inline.buffer.copy_within(inline.start..inline.end, 0);
                (inline.start, inline.end) = (0, inline.end - inline.start);
            }
            let room = if inline.ended.is_some() { &mut [][..] } else { &mut inline.buffer[inline.end..] };
            let (mut more, mut quiet) = (false, false);
            if !room.is_empty() {
                let asked = room.len();
                // SAFETY: our own buffer.
                match unsafe { sock::receive(inline.socket.as_raw_fd(), room.as_mut_ptr(), asked, &mut []) } {
                    Io::Done(bytes) => (inline.end, more) = (inline.end + bytes, bytes == asked),
                    Io::Blocked => quiet = true,
                    Io::Ended(why) => inline.ended = Some(reason(why)),
                }
            }
            let waits = self.deliver(inline, quiet)?;
            // What came before the end still counts.
            if let Some(why) = inline.ended.as_ref().filter(|_| !waits && !inline.over) {
                self.over(INLINE, why);
                inline.over = true;
            }
            // Messages are in order: none that is posted now is behind one that waits.
            let lanes_over = waits && self.lanes_over.load(Ordering::Relaxed);
            if lanes_over && (inline.ended.is_some() || sock::closed_by_peer(&inline.socket)) {
                let _ = self.gone.set(self.error(Kind::Remote, "the peer closed the connection"));
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Hand out the whole messages in the buffer whose receives are posted; whether one waits for its receive. The acknowledgement of the
    /// last ones waits until it is `quiet`: to send it takes as long as a message does, and the caller waits for none of it then.
    fn deliver(&self, inline: &mut InlineStream, quiet: bool) -> Result<bool, Error> {
        let mut waits = false;
        while inline.end - inline.start >= HEADER && (inline.out.len() < MAX_UNREAD || inline.ended.is_some()) {
            let head = inline.buffer[inline.start..inline.start + HEADER].try_into().unwrap_or([0; HEADER]);
            let chunk = match Frame::decode(&head)? {
                Frame::Chunk(chunk) => chunk,
                Frame::Ready { .. } => {
                    inline.start += HEADER; // the first of each stream
                    continue;
                }
                Frame::Ack { .. } => return Err(Error::new(Kind::Remote, "a frame that only senders understand")),
            };
            let length = chunk.len();
            if length > INLINE_BUFFER - HEADER || chunk.count() != 1 {
                return Err(Error::new(Kind::Remote, format!("a small message of {} bytes", chunk.total)));
            }
            if inline.end - inline.start < HEADER + length {
                break;
            }
            match self.claim(&chunk, None)? {
                Claim::Early => {
                    waits = true;
                    break;
                }
                Claim::Stale(_) => {}
                Claim::Into(to) => {
                    if self.resume(&chunk) {
                        let from = inline.buffer[inline.start + HEADER..].as_ptr();
                        // SAFETY: we are a writer of a buffer that has room for the whole message.
                        unsafe { std::ptr::copy_nonoverlapping(from, to, length) };
                        self.written(&chunk);
                    }
                }
            }
            inline.start += HEADER + length;
            inline.last = chunk.seq;
            inline.since_ack += 1;
        }
        let due = if quiet { ACK_EVERY } else { ACK_AT_LATEST };
        if inline.since_ack >= due && inline.ended.is_none() {
            inline.since_ack = 0;
            let below = lock(&self.state).base;
            // All small ones up to the last have been taken, even where a large one before them is not complete.
            inline.out.extend_from_slice(&Frame::Ack { seq: inline.last, below }.encode());
        }
        flush(&inline.socket, &mut inline.out);
        Ok(waits)
    }
}

/// Send what the kernel takes of `out`.
pub(crate) fn flush(socket: &Socket, out: &mut Vec<u8>) {
    while !out.is_empty() {
        // SAFETY: our own bytes.
        match unsafe { sock::send(socket.as_raw_fd(), &[], out.as_ptr(), out.len()) } {
            Io::Done(bytes) => drop(out.drain(..bytes)),
            Io::Blocked => return,
            Io::Ended(_) => out.clear(), // reading tells why
        }
    }
}

fn reason(why: Option<std::io::Error>) -> String {
    why.map_or_else(|| "the peer closed the connection".to_owned(), |error| error.to_string())
}
