//! Closing a sending end: small messages whose requests are done still arrive, and no thread reads
//! callers' buffers any more.

use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use socket2::Socket;

use super::SendCore;
use crate::locks::lock;
use crate::pool::{Direction, Look, Next, Pool, Task};
use crate::sock::{self, Io};

/// Total time in which all closing connections of the process wait for their last small messages.
/// Enough to resend those of a stalled stream.
pub(crate) const LINGER_ALL: Duration = Duration::from_secs(2);
/// Interval between checks while closing.
const PAUSE: Duration = Duration::from_micros(100);

impl SendCore {
    /// Wait for a short time until the peer has the small messages, whose requests are done.
    /// `left_us` is the time that all connections together may still wait.
    pub(crate) fn linger(&self, left_us: &AtomicU64) {
        let begun = Instant::now();
        let limit = Duration::from_micros(left_us.load(Ordering::Relaxed));
        while self.failed.get().is_none() && begun.elapsed() < limit && !self.delivered() {
            std::thread::sleep(PAUSE);
        }
        let waited = begun.elapsed().as_micros() as u64;
        let _ = left_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_sub(waited))
        });
    }

    fn delivered(&self) -> bool {
        {
            let mut inline = lock(&self.inline);
            self.flush_inline(&mut inline);
        }
        self.check_inline(Instant::now());
        let state = lock(&self.state);
        state.in_flight.iter().all(|in_flight| in_flight.request.is_some())
            && lock(&self.inline).kept.is_empty()
    }

    /// Wait until no thread reads callers' buffers, and let none start again.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        while self.is_read() {
            std::thread::sleep(PAUSE); // a thread is in a system call that copies some hundred KB
        }
        if self.abandoned() {
            let reset = self.tasks().iter().filter(|task_ref| task_ref.reset()).count();
            self.log_info(&format!(
                "closed before all was sent: {reset} of {} streams reset",
                self.tasks().len()
            ));
        }
    }

    /// Whether it was closed before the peer had all messages. Then the kernel must not send what
    /// it still holds: that may be pages of callers' buffers, which may change now.
    pub(crate) fn abandoned(&self) -> bool {
        let state = lock(&self.state);
        state.closed && state.in_flight.iter().any(|in_flight| in_flight.request.is_some())
    }

    fn is_read(&self) -> bool {
        let state = lock(&self.state);
        state.in_flight.iter().chain(&state.retired).any(|in_flight| in_flight.readers > 0)
    }

    /// Close the inline stream. If the peer's kernel has not taken everything, an I/O thread keeps
    /// the socket open: closing a socket with unread acknowledgements would discard the rest.
    pub(crate) fn drain_inline(&self, pool: &Pool) {
        let inline = lock(&self.inline);
        let left =
            !inline.ended && inline.backlog.is_empty() && sock::unacknowledged(&inline.socket) > 0;
        if left && inline.socket.shutdown(Shutdown::Write).is_ok() {
            if let (Ok(socket), Ok(task_ref)) =
                (inline.socket.try_clone(), pool.reserve(Direction::Out))
            {
                let end = Instant::now() + Duration::from_secs(self.config.timeout_s);
                pool.start(&task_ref, Box::new(Draining { socket, end, over: false }));
                return;
            }
        }
        // shutdown, as close would not end a socket that a forked child still has open
        let _ = inline.socket.shutdown(Shutdown::Both);
    }
}

/// An inline stream of a closed connection that is still delivering its last bytes.
struct Draining {
    socket: Socket,
    end: Instant,
    over: bool,
}

impl Task for Draining {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn run(&mut self, _share: usize) -> Next {
        let mut forgotten = [0u8; 4096];
        loop {
            // SAFETY: `forgotten` is a local array, writable for its whole length during the call.
            match unsafe {
                sock::receive(
                    self.socket.as_raw_fd(),
                    forgotten.as_mut_ptr(),
                    forgotten.len(),
                    &mut [],
                )
            } {
                Io::Done(_) => {}
                Io::Blocked if self.over || sock::unacknowledged(&self.socket) == 0 => {
                    return Next::Gone;
                }
                Io::Blocked => return Next::Wait,
                Io::Ended(_) => return Next::Gone,
            }
        }
    }

    fn tick(&mut self, now: Instant) -> Look {
        self.over = now >= self.end;
        if self.over || sock::unacknowledged(&self.socket) == 0 { Look::Run } else { Look::Again }
    }

    fn broken(&mut self, _why: &str) {}
}

impl Drop for Draining {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
