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
/// By reference has to be so much cheaper: more and smaller packets may come of it, which cost the peer something.
const WORTH: f32 = 0.8;
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

/// Whether this thread has a pipe.
fn possible() -> bool {
    PIPE.with_borrow_mut(|place| {
        if place.is_none() {
            *place = Pipe::new();
        }
        place.is_some()
    })
}

/// Send `len` bytes at `data` by reference, a `piece` at a time, without waiting: how many went, and whether the socket is full. None where
/// that is not possible.
///
/// # Safety
/// `data` is readable for `len` bytes, and nobody changes them before the peer has them.
unsafe fn send(fd: RawFd, data: *const u8, len: usize, piece: usize) -> Option<(usize, bool)> {
    PIPE.with_borrow_mut(|place| {
        let pipe = place.as_ref()?;
        let mut sent = 0;
        while sent < len {
            // SAFETY: the caller's promise.
            let Some(put) = (unsafe { pipe.fill(data.wrapping_add(sent), piece.min(len - sent)) }) else { break };
            let (gone, end) = without_signals(|| pipe.empty_into(fd, put));
            sent += gone;
            if gone < put {
                if !pipe.forget(put - gone) {
                    *place = None;
                }
                return match end {
                    Io::Blocked => Some((sent, true)),
                    _ => (sent > 0).then_some((sent, false)), // whoever copies next learns why
                };
            }
        }
        (sent > 0).then_some((sent, false))
    })
}

/// splice has no MSG_NOSIGNAL: on a stream whose peer is gone it raises SIGPIPE, which ends programs that do not expect it. And where any
/// other signal is pending it moves nothing, as if the socket were full, though no event will tell when it is not.
fn without_signals(act: impl FnOnce() -> (usize, Io)) -> (usize, Io) {
    // SAFETY: all sets are filled before they are read, and this thread's mask is put back.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let done = act();
        if matches!(done.1, Io::Ended(_)) && libc::sigismember(&raw const before, libc::SIGPIPE) == 0 {
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

/// What the last calls took and moved.
#[derive(Clone, Copy, Default)]
struct Cost {
    calls: f32,
    ns: f32,
    bytes: f32,
}

impl Cost {
    /// Calls that are remembered.
    const MEMORY: f32 = 16.0;

    fn learn(&mut self, took: Duration, bytes: usize) {
        let mut ns = took.as_secs_f32() * 1e9;
        if self.calls > 0.0 {
            ns = ns.min(4.0 * self.ns / self.calls); // a thread may lose its core in the middle, which says nothing of either way
        }
        let kept = if self.calls < Self::MEMORY { 1.0 } else { 1.0 - 1.0 / Self::MEMORY };
        self.calls = self.calls.mul_add(kept, 1.0);
        self.ns = self.ns.mul_add(kept, ns);
        self.bytes = self.bytes.mul_add(kept, bytes as f32);
    }

    /// Nanoseconds for a byte.
    fn of_a_byte(self) -> f32 {
        self.ns / self.bytes.max(1.0)
    }
}

/// Which way is cheaper for a stream, by its own measurement: it depends on the interface, its driver and the memory.
#[derive(Default)]
pub struct Choice {
    copied: Cost,
    referred: Cost,
    sends: u32,
    impossible: bool,
    /// What the socket takes at a time, as far as is known: pages beyond it would be counted for nothing.
    room: usize,
}

impl Choice {
    /// Of a stream that may not choose where `allowed` is false.
    pub fn new(allowed: bool) -> Self {
        Self { impossible: !allowed, room: ROOM, ..Self::default() }
    }

    /// Send `head`, then `len` bytes at `data`, in the way that is cheaper: what went, and whether the socket is known to be full after it.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes, and nobody changes them before the peer has them or does not mind.
    pub unsafe fn send(&mut self, fd: RawFd, head: &[u8], data: *const u8, len: usize) -> (Io, bool) {
        if self.refer(len) {
            let out = if head.is_empty() {
                0
            } else {
                match sock::announce(fd, head) {
                    Io::Done(out) if out == head.len() => out,
                    end => return (end, false),
                }
            };
            let begun = Instant::now();
            // SAFETY: the caller's promise.
            let sent = unsafe { send(fd, data, len, self.room) };
            if let Some((bytes, full)) = sent {
                self.referred.learn(begun.elapsed(), bytes);
                self.room = if full { bytes } else { 2 * self.room }.clamp(LITTLE, ROOM);
                return (if out + bytes > 0 { Io::Done(out + bytes) } else { Io::Blocked }, full);
            }
            self.impossible = true;
            if out > 0 {
                return (Io::Done(out), false);
            }
        }
        let begun = Instant::now();
        // SAFETY: as above.
        let outcome = unsafe { sock::send(fd, head, data, len) };
        if len >= LITTLE {
            self.copied.learn(begun.elapsed(), if let Io::Done(bytes) = outcome { bytes } else { 0 });
        }
        (outcome, false)
    }

    /// Whether to send so many bytes by reference: as it is cheaper, and each 64th time the other way.
    fn refer(&mut self, bytes: usize) -> bool {
        if self.impossible || bytes < LITTLE {
            return false;
        }
        self.sends = self.sends.wrapping_add(1);
        let refer = if self.sends <= 8 {
            self.sends % 2 == 1
        } else {
            (self.referred.of_a_byte() < WORTH * self.copied.of_a_byte()) != (self.sends % 64 == 0)
        };
        self.impossible = refer && !possible();
        refer && !self.impossible
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

    /// Send all of it, a piece at a time: how often the socket was full.
    fn send_all(choice: &mut Choice, near: &TcpStream, head: &[u8], bytes: &[u8], piece: usize) -> usize {
        let (mut sent, mut full_ones) = (0, 0);
        while sent < head.len() + bytes.len() {
            let (ahead, at) = (&head[sent.min(head.len())..], sent.saturating_sub(head.len()));
            let len = piece.min(bytes.len() - at);
            // SAFETY: they stay as they are until the reader has them.
            let (outcome, full) = unsafe { choice.send(near.as_raw_fd(), ahead, bytes[at..].as_ptr(), len) };
            let blocked = match outcome {
                Io::Done(more) => {
                    sent += more;
                    full
                }
                Io::Blocked => true,
                Io::Ended(error) => panic!("{error:?}"),
            };
            if blocked {
                full_ones += usize::from(full);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        full_ones
    }

    #[test]
    fn pages_arrive_as_they_are_however_often_the_socket_is_full() {
        let (near, mut far) = pair();
        near.set_nonblocking(true).unwrap();
        let bytes: Vec<u8> = (0..20_000_003u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let (copy, head) = (bytes.clone(), b"a header before it");
        let reader = std::thread::spawn(move || {
            let mut came = vec![0; head.len() + copy.len()];
            std::thread::sleep(Duration::from_millis(200)); // until nothing more fits
            far.read_exact(&mut came).unwrap();
            assert!(&came[..head.len()] == head && came[head.len()..] == copy);
        });
        let mut choice = Choice::new(true);
        let full = send_all(&mut choice, &near, head, &bytes, 300_000);
        reader.join().unwrap();
        assert!(full > 0, "what was left in the pipe has been forgotten at least once");
        assert!(choice.referred.bytes > 0.0 && choice.copied.bytes > 0.0, "both ways were tried");
    }

    #[test]
    fn memory_that_is_not_there_is_refused_and_a_peer_that_is_gone_ends_it() {
        let (near, far) = pair();
        assert!(possible());
        // SAFETY: the kernel finds out.
        assert!(unsafe { send(near.as_raw_fd(), 4096 as *const u8, 1 << 16, ROOM) }.is_none());
        drop(far);
        // SAFETY: as in a program that does not expect it; the test would end with it.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let bytes = vec![0u8; 1 << 16];
        let ended = || unsafe { send(near.as_raw_fd(), bytes.as_ptr(), bytes.len(), ROOM) }.is_none();
        assert!((0..100).any(|_| ended() || (std::thread::sleep(Duration::from_millis(10)), false).1));
        let mut choice = Choice::new(true);
        let (outcome, _) = unsafe { choice.send(near.as_raw_fd(), &[], bytes.as_ptr(), bytes.len()) };
        assert!(matches!(outcome, Io::Ended(Some(_))), "whoever copies is told why: {outcome:?}");
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
            assert!((620..=632).contains(&right), "{right}"); // but each 64th, and half of the first eight
        }
        assert!(!Choice::new(true).refer(LITTLE - 1));
        assert!(!Choice::new(false).refer(1 << 20));
    }

    #[test]
    fn one_send_that_lost_its_core_decides_nothing_and_those_that_find_it_full_count() {
        let mut cost = Cost::default();
        (0..20).for_each(|_| cost.learn(Duration::from_micros(50), 50_000));
        assert!((0.99..1.01).contains(&cost.of_a_byte()));
        cost.learn(Duration::from_millis(50), 50_000);
        assert!((1.0..1.3).contains(&cost.of_a_byte()), "{}", cost.of_a_byte());
        (0..200).for_each(|_| cost.learn(Duration::from_micros(50), 50_000));
        (0..8).for_each(|_| cost.learn(Duration::from_micros(50), 0));
        assert!((1.4..2.5).contains(&cost.of_a_byte()), "{}", cost.of_a_byte());
    }
}
