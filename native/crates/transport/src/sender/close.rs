//! The end of a sending end: what callers were told is sent still arrives, and nothing reads their buffers any more.

use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use socket2::Socket;

use super::SendCore;
use crate::locks::lock;
use crate::pool::{Direction, Look, Next, Pool, Task};
use crate::sock::{self, Io};

/// For the peer to have the last small messages of all connections of the process, over other streams where theirs has just stalled.
pub(crate) const LINGER_ALL: Duration = Duration::from_secs(2);
/// Between looks while waiting for that.
const PAUSE: Duration = Duration::from_micros(100);

impl SendCore {
    /// Wait, but not long, until the peer has the small messages: their callers were told that they are sent. `left_us` is what all
    /// connections together may still wait.
    pub(crate) fn linger(&self, left_us: &AtomicU64) {
        let begun = Instant::now();
        let limit = Duration::from_micros(left_us.load(Ordering::Relaxed));
        while self.failed.get().is_none() && begun.elapsed() < limit && !self.delivered() {
            std::thread::sleep(PAUSE);
        }
        let waited = begun.elapsed().as_micros() as u64;
        let _ = left_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(waited)));
    }

    fn delivered(&self) -> bool {
        {
            let mut inline = lock(&self.inline);
            self.flush_inline(&mut inline);
        }
        self.check_inline(Instant::now());
        let state = lock(&self.state);
        state.in_flight.iter().all(|in_flight| in_flight.request.is_some()) && lock(&self.inline).kept.is_empty()
    }

    /// Callers' buffers are read by nobody after this, whatever the threads do.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        while self.is_read() {
            std::thread::sleep(PAUSE); // a thread is inside the kernel, copying some hundred kilobytes
        }
        if self.abandoned() {
            let reset = self.tasks().iter().filter(|task_ref| task_ref.reset()).count();
            self.say(&format!("closed before all was sent: {reset} of its {} streams are reset", self.tasks().len()));
        }
    }

    /// Whether it has been closed before the peer had all that callers' buffers were to bring it. Then nothing of what the kernel still has
    /// may go out: it may be pages of these buffers, which are the callers' again.
    pub(crate) fn abandoned(&self) -> bool {
        let state = lock(&self.state);
        state.closed && state.in_flight.iter().any(|in_flight| in_flight.request.is_some())
    }

    fn is_read(&self) -> bool {
        let state = lock(&self.state);
        state.in_flight.iter().chain(&state.retired).any(|in_flight| in_flight.readers > 0)
    }

    /// Close the stream of small messages. What the peer's kernel has not taken stays with a thread: a socket closed while it has unread
    /// acknowledgements would throw it away.
    pub(crate) fn part(&self, pool: &Pool) {
        let inline = lock(&self.inline);
        let left = !inline.ended && inline.backlog.is_empty() && sock::unacknowledged(&inline.socket) > 0;
        if left && inline.socket.shutdown(Shutdown::Write).is_ok() {
            if let (Ok(socket), Ok(task_ref)) = (inline.socket.try_clone(), pool.reserve(Direction::Out)) {
                let end = Instant::now() + Duration::from_secs(self.config.timeout_s);
                pool.task_ref(&task_ref, Box::new(Draining { socket, end, over: false }));
                return;
            }
        }
        // By name: a child of fork() may hold the socket open.
        let _ = inline.socket.shutdown(Shutdown::Both);
    }
}

/// A stream of small messages whose connection has been closed before the peer's kernel had all.
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
            // SAFETY: our own buffer.
            match unsafe { sock::receive(self.socket.as_raw_fd(), forgotten.as_mut_ptr(), forgotten.len(), &mut []) } {
                Io::Done(_) => {}
                Io::Blocked if self.over || sock::unacknowledged(&self.socket) == 0 => return Next::Gone,
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
