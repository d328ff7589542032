//! Memory given to a stream by reference: the kernel sends the pages themselves, and copies nothing.
//!
//! vmsplice puts references to pages into a pipe, and splice moves them from there into the socket's queue. Their bytes go out as they are
//! when they go out, so they must not change before the peer has them all: a message's buffer is its caller's again when the peer has
//! acknowledged it, and not before. What the kernel may send again after that is a part that the peer's kernel has, and drops.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use crate::sock::{self, Io, outcome};

/// What the pipe of a thread holds, in bytes: a large chunk. All pipes of a user may hold 64 MiB (fs.pipe-user-pages-soft).
const ROOM: usize = 512 << 10;
/// For fewer bytes the calls cost more than a copy.
const LITTLE: usize = 64 << 10;

struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    nowhere: OwnedFd,
}

impl Pipe {
    /// None where the system has none that is large enough.
    fn new() -> Option<Self> {
        let mut ends = [-1; 2];
        // SAFETY: pipe2 writes two descriptors, which are ours from here on, as is the one that open returns.
        let (read, write) = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) != 0 {
                return None;
            }
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        // SAFETY: numbers only.
        let room = unsafe {
            libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, ROOM as libc::c_int);
            libc::fcntl(write.as_raw_fd(), libc::F_GETPIPE_SZ)
        };
        if room < ROOM as libc::c_int {
            return None;
        }
        let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null").ok()?.into();
        Some(Self { read, write, nowhere })
    }

    /// References to as many bytes as fit; None where the memory has no pages that could be referred to, or the system forbids it.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    unsafe fn fill(&self, data: *const u8, len: usize) -> Option<usize> {
        let part = libc::iovec { iov_base: data.cast_mut().cast(), iov_len: len };
        // SAFETY: one part, readable.
        let put = unsafe { libc::vmsplice(self.write.as_raw_fd(), &raw const part, 1, libc::SPLICE_F_NONBLOCK) };
        (put > 0).then_some(put as usize)
    }

    fn move_to(&self, fd: RawFd, len: usize, flags: libc::c_uint) -> isize {
        // SAFETY: no memory is touched.
        unsafe { libc::splice(self.read.as_raw_fd(), null_mut(), fd, null_mut(), len, flags) }
    }

    /// Move so many bytes into a socket: how many went, and why no more did.
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

    /// Forget so many bytes; whether that worked.
    fn forget(&self, mut len: usize) -> bool {
        while len > 0 {
            match self.move_to(self.nowhere.as_raw_fd(), len, 0) {
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

/// Send `len` bytes at `data` by reference, without waiting; None where that is not possible.
///
/// # Safety
/// `data` is readable for `len` bytes, and nobody changes them before the peer has them.
pub unsafe fn send(fd: RawFd, data: *const u8, len: usize) -> Option<Io> {
    PIPE.with_borrow_mut(|place| {
        if place.is_none() {
            *place = Some(Pipe::new()?);
        }
        let pipe = place.as_ref()?;
        let mut sent = 0;
        while sent < len {
            // SAFETY: the caller's promise.
            let Some(put) = (unsafe { pipe.fill(data.wrapping_add(sent), len - sent) }) else { break };
            let (gone, end) = without_sigpipe(|| pipe.empty_into(fd, put));
            sent += gone;
            if gone < put {
                if !pipe.forget(put - gone) {
                    *place = None;
                }
                return Some(if sent > 0 { Io::Done(sent) } else { end });
            }
        }
        (sent > 0).then_some(Io::Done(sent))
    })
}

/// splice has no MSG_NOSIGNAL: on a stream whose peer is gone it raises SIGPIPE, which ends programs that do not expect it.
fn without_sigpipe(act: impl FnOnce() -> (usize, Io)) -> (usize, Io) {
    // SAFETY: both sets are filled before they are read, and this thread's mask is put back.
    unsafe {
        let (mut sigpipe, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&raw mut sigpipe);
        libc::sigaddset(&raw mut sigpipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const sigpipe, &raw mut before);
        let done = act();
        if libc::sigismember(&raw const before, libc::SIGPIPE) == 0 {
            if matches!(done.1, Io::Ended(_)) {
                let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                libc::sigtimedwait(&raw const sigpipe, null_mut(), &raw const now);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut());
        }
        done
    }
}

/// Nanoseconds for a byte, on average over the last sends.
#[derive(Clone, Copy, Default)]
struct Cost {
    mean: f32,
    sends: u32,
}

impl Cost {
    fn learn(&mut self, took: Duration, bytes: usize) {
        if bytes < LITTLE {
            return;
        }
        let one = took.as_secs_f32() * 1e9 / bytes as f32;
        self.sends = self.sends.saturating_add(1);
        // A thread may lose its core in the middle, which says nothing of either way.
        self.mean += (one.min(if self.sends > 1 { 4.0 * self.mean } else { one }) - self.mean) / self.sends.min(16) as f32;
    }
}

/// Which way is cheaper for a stream, by its own measurement: it depends on the interface, its driver and the memory.
#[derive(Default)]
pub struct Choice {
    copied: Cost,
    referred: Cost,
    sends: u32,
    impossible: bool,
}

impl Choice {
    /// Of a stream that may not choose where `allowed` is false.
    pub fn new(allowed: bool) -> Self {
        Self { impossible: !allowed, ..Self::default() }
    }

    /// Send `head`, then `len` bytes at `data`, in the way that is cheaper.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes, and nobody changes them before the peer has them or does not mind.
    pub unsafe fn send(&mut self, fd: RawFd, head: &[u8], data: *const u8, len: usize) -> Io {
        let begun = Instant::now();
        if self.refer(len) {
            let announced = if head.is_empty() { Io::Done(0) } else { sock::announce(fd, head) };
            let Io::Done(out) = announced else { return announced };
            if out < head.len() {
                return announced;
            }
            // SAFETY: the caller's promise.
            match unsafe { send(fd, data, len) } {
                Some(Io::Done(bytes)) => {
                    self.referred.learn(begun.elapsed(), bytes);
                    return Io::Done(out + bytes);
                }
                Some(Io::Blocked) if out > 0 => return Io::Done(out),
                Some(end) => return end,
                None => self.impossible = true,
            }
            if out > 0 {
                return Io::Done(out);
            }
        }
        // SAFETY: as above.
        let outcome = unsafe { sock::send(fd, head, data, len) };
        if let Io::Done(bytes) = outcome {
            self.copied.learn(begun.elapsed(), bytes);
        }
        outcome
    }

    /// Whether to send so many bytes by reference: as it is cheaper, and each 64th time the other way.
    fn refer(&mut self, bytes: usize) -> bool {
        if self.impossible || bytes < LITTLE {
            return false;
        }
        self.sends = self.sends.wrapping_add(1);
        if self.copied.sends.min(self.referred.sends) < 4 {
            return self.referred.sends <= self.copied.sends;
        }
        (self.referred.mean < self.copied.mean) != (self.sends % 64 == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn pages_arrive_as_they_are_however_often_the_socket_is_full() {
        let (near, mut far) = pair();
        near.set_nonblocking(true).unwrap();
        let bytes: Vec<u8> = (0..20_000_003u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let copy = bytes.clone();
        let reader = std::thread::spawn(move || {
            let mut came = vec![0; copy.len()];
            std::thread::sleep(Duration::from_millis(200)); // until nothing more fits
            far.read_exact(&mut came).unwrap();
            assert!(came == copy);
        });
        let (mut sent, mut blocked) = (0, 0);
        while sent < bytes.len() {
            // SAFETY: they stay as they are until the reader has them.
            match unsafe { send(near.as_raw_fd(), bytes[sent..].as_ptr(), bytes.len() - sent) }.unwrap() {
                Io::Done(more) => sent += more,
                Io::Blocked => {
                    blocked += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Io::Ended(error) => panic!("{error:?}"),
            }
        }
        reader.join().unwrap();
        assert!(blocked > 0, "what was left in the pipe has been forgotten at least once");
    }

    #[test]
    fn memory_that_is_not_there_is_refused_and_a_peer_that_is_gone_ends_it() {
        let (near, far) = pair();
        // SAFETY: the kernel finds out.
        assert!(unsafe { send(near.as_raw_fd(), 4096 as *const u8, 1 << 16) }.is_none());
        drop(far);
        // SAFETY: as in a program that does not expect it; the test would end with it.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let bytes = vec![0u8; 1 << 16];
        let ended = || matches!(unsafe { send(near.as_raw_fd(), bytes.as_ptr(), bytes.len()) }, Some(Io::Ended(Some(_))));
        assert!((0..100).any(|_| ended() || (std::thread::sleep(Duration::from_millis(10)), false).1));
    }

    #[test]
    fn the_cheaper_way_is_taken_and_the_other_tried_now_and_then() {
        for (copied, referred) in [(40, 20), (20, 40)] {
            let mut choice = Choice::new(true);
            let mut took_referred = 0;
            for _ in 0..640 {
                let refer = choice.refer(1 << 16);
                took_referred += u32::from(refer);
                let (way, took) = if refer { (&mut choice.referred, referred) } else { (&mut choice.copied, copied) };
                way.learn(Duration::from_micros(took), 1 << 16);
            }
            let right = if referred < copied { took_referred } else { 640 - took_referred };
            assert!((620..=632).contains(&right), "{right}");
        }
        assert!(!Choice::new(true).refer(LITTLE - 1));
        assert!(!Choice::new(false).refer(1 << 20));
    }

    #[test]
    fn one_send_that_lost_its_core_decides_nothing() {
        let mut cost = Cost::default();
        (0..20).for_each(|_| cost.learn(Duration::from_micros(65), LITTLE));
        cost.learn(Duration::from_millis(65), LITTLE);
        assert!((1.0..1.3).contains(&cost.mean), "{}", cost.mean);
    }
}
