//! Sending by reference: the kernel sends the pages of a buffer without copying them.
//!
//! vmsplice puts references to pages into a pipe, and splice moves them to the socket's queue. The
//! pages are read when they are sent, so they must not change before the peer has them. That holds
//! because a message's buffer is returned to the caller only when the peer has acknowledged it. If
//! the kernel retransmits later, the peer's kernel has those bytes and drops them.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;

use crate::sock::{Io, outcome};

/// Bytes that a thread's pipe holds: a large chunk. All pipes of a user may hold 64 MiB
/// (fs.pipe-user-pages-soft).
pub const ROOM: usize = 512 << 10;

struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    discarded: OwnedFd,
}

impl Pipe {
    /// None if the system has no pipe of that size.
    fn new() -> Option<Self> {
        let mut ends = [-1; 2];
        // SAFETY: `ends` has room for two descriptors. When pipe2 succeeds both are new, and the
        // OwnedFds are their only owners.
        let (read, write) = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) != 0 {
                return None;
            }
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        // SAFETY: these commands take an integer or nothing, and no pointer.
        let room = unsafe {
            libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, ROOM as libc::c_int);
            libc::fcntl(write.as_raw_fd(), libc::F_GETPIPE_SZ)
        };
        if room < ROOM as libc::c_int {
            return None;
        }
        let discarded = std::fs::OpenOptions::new().write(true).open("/dev/null").ok()?.into();
        Some(Self { read, write, discarded })
    }

    /// Add references to as many bytes as fit; None if the memory has no pages to refer to, or the
    /// system forbids it.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    unsafe fn fill(&self, data: *const u8, len: usize) -> Option<usize> {
        let part = libc::iovec { iov_base: data.cast_mut().cast(), iov_len: len };
        // SAFETY: `part` is a local that describes the `len` bytes which the caller guarantees; the
        // call only makes references to them.
        let put = unsafe {
            libc::vmsplice(self.write.as_raw_fd(), &raw const part, 1, libc::SPLICE_F_NONBLOCK)
        };
        (put > 0).then_some(put as usize)
    }

    fn move_to(&self, fd: RawFd, len: usize, flags: libc::c_uint) -> isize {
        // SAFETY: both offsets are NULL, so the call accesses no memory of this process.
        unsafe { libc::splice(self.read.as_raw_fd(), null_mut(), fd, null_mut(), len, flags) }
    }

    /// Move bytes to a socket; returns how many, and why no more.
    fn empty_into(&self, fd: RawFd, len: usize) -> (usize, Io) {
        let mut gone = 0;
        while gone < len {
            match self.move_to(fd, len - gone, libc::SPLICE_F_NONBLOCK) {
                more @ 1.. => gone += more as usize,
                end => return (gone, outcome(end)),
            }
        }
        (gone, Io::Done(gone))
    }

    /// Discard bytes; returns false if that failed.
    fn discard(&self, mut len: usize) -> bool {
        while len > 0 {
            match self.move_to(self.discarded.as_raw_fd(), len, 0) {
                gone @ 1.. => len -= gone as usize,
                _ => return false,
            }
        }
        true
    }
}

thread_local! {
    /// Empty between calls.
    static PIPE: std::cell::RefCell<Option<Pipe>> = const { std::cell::RefCell::new(None) };
}

/// Whether this thread has a pipe.
pub fn available() -> bool {
    PIPE.with_borrow_mut(|cached| {
        if cached.is_none() {
            *cached = Pipe::new();
        }
        cached.is_some()
    })
}

/// Send `len` bytes at `data` by reference, a `piece` at a time, without blocking. Returns the
/// bytes sent and whether the socket is full; None if it is not possible.
///
/// # Safety
/// `data` is readable for `len` bytes and does not change before the peer has them.
pub unsafe fn send(fd: RawFd, data: *const u8, len: usize, piece: usize) -> Option<(usize, bool)> {
    PIPE.with_borrow_mut(|cached| {
        let pipe = cached.as_ref()?;
        let mut sent = 0;
        while sent < len {
            // SAFETY: `sent` is less than `len`, and the piece ends at `len` at most, which the
            // caller guarantees to be readable.
            let Some(put) = (unsafe { pipe.fill(data.wrapping_add(sent), piece.min(len - sent)) })
            else {
                break;
            };
            let (gone, end) = without_signals(|| pipe.empty_into(fd, put));
            sent += gone;
            if gone < put {
                if !pipe.discard(put - gone) {
                    *cached = None;
                }
                return match end {
                    Io::Blocked => Some((sent, true)),
                    // the copy that follows returns the error
                    _ => (sent > 0).then_some((sent, false)),
                };
            }
        }
        (sent > 0).then_some((sent, false))
    })
}

/// splice has no MSG_NOSIGNAL: on a stream whose peer is gone it raises SIGPIPE, which would end
/// the program. If any other signal is pending it moves nothing, as if the socket were full, but
/// then no event follows.
fn without_signals(act: impl FnOnce() -> (usize, Io)) -> (usize, Io) {
    // SAFETY: all sets are locals that sigfillset, sigemptyset or pthread_sigmask has filled before
    // they are read.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let done = act();
        if matches!(done.1, Io::Ended(_))
            && libc::sigismember(&raw const before, libc::SIGPIPE) == 0
        {
            let mut sigpipe: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut sigpipe);
            libc::sigaddset(&raw mut sigpipe, libc::SIGPIPE);
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&raw const sigpipe, null_mut(), &raw const now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut());
        done
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    pub(crate) fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn missing_memory_and_a_closed_peer_are_errors() {
        let (near, far) = pair();
        assert!(available());
        // SAFETY: the kernel checks the address and refuses it; nothing is read.
        assert!(unsafe { send(near.as_raw_fd(), 4096 as *const u8, 1 << 16, ROOM) }.is_none());
        drop(far);
        // SAFETY: signal with SIG_DFL is always allowed; the test would end with SIGPIPE.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let bytes = vec![0u8; 1 << 16];
        // SAFETY: `bytes` lives, unchanged, to the end of this test.
        let ended =
            || unsafe { send(near.as_raw_fd(), bytes.as_ptr(), bytes.len(), ROOM) }.is_none();
        assert!(
            (0..100).any(|_| ended() || (std::thread::sleep(Duration::from_millis(10)), false).1)
        );
        let mut send_method = crate::send_method::SendMethod::new(true);
        // SAFETY: `bytes` lives, unchanged, to the end of this test.
        let sent = unsafe { send_method.send(near.as_raw_fd(), &[], bytes.as_ptr(), bytes.len()) };
        assert!(matches!(sent.outcome, Io::Ended(Some(_))), "the copy returns the error");
    }
}
