//! The stall detector: whether a stream with data in flight makes progress.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::sock;

/// How long zero-window probes may go unanswered before the network, rather than a slow receiver,
/// is blamed. A living peer answers at most every 500 ms (net.ipv4.tcp_invalid_ratelimit), and the
/// interval between probes doubles: within 1 s of the last answer.
const PROBE_TIMEOUT: Duration = Duration::from_millis(1_200);

/// Time limits of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How long a stream may make no progress before other streams take over its data.
    pub(crate) stall: Duration,
    /// How long a stream may go without an answer before it is closed.
    pub(crate) silence: Duration,
}

impl Limits {
    /// The limits set in `config`.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            stall: Duration::from_millis(config.stall_ms),
            silence: Duration::from_secs(config.timeout_s),
        }
    }
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Nothing is in flight, or data moves, or the peer merely reads slowly.
    Moves,
    /// The network does not deliver what is in flight.
    Stalled,
    /// There has been no answer for so long that the peer is gone.
    Silent,
}

/// The state of a stream at the last check.
#[derive(Default)]
pub(crate) struct StallDetector {
    taken: u64,
    unacknowledged: usize,
    since: Option<Instant>,
    silent: Option<Instant>,
}

impl StallDetector {
    /// Check the stream. `taken` is the number of bytes that the kernel has taken from it so far.
    pub(crate) fn check(
        &mut self,
        socket: &impl AsRawFd,
        taken: u64,
        limits: Limits,
        now: Instant,
    ) -> Flow {
        if self.unacknowledged == 0 && taken == self.taken {
            return Flow::Moves; // nothing in flight before or now: no need to ask the kernel
        }
        // Bytes that the peer acknowledges are progress; bytes that the kernel takes are not.
        let (before, unacknowledged) = (self.acknowledged(), sock::unacknowledged(socket));
        let begins = self.unacknowledged == 0;
        (self.taken, self.unacknowledged) = (taken, unacknowledged);
        if begins || unacknowledged == 0 || self.acknowledged() != before {
            (self.since, self.silent) = ((unacknowledged > 0).then_some(now), None);
            return Flow::Moves;
        }
        let trouble = sock::trouble(socket);
        let since = *self.since.get_or_insert(now);
        let silent = trouble.unanswered.then(|| *self.silent.get_or_insert(now));
        self.silent = silent;
        let silent_for = |limit| silent.is_some_and(|silent| now - silent >= limit);
        if silent_for(limits.silence) {
            Flow::Silent
        } else if now - since >= limits.stall && (trouble.tries_again || silent_for(PROBE_TIMEOUT))
        {
            Flow::Stalled
        } else {
            Flow::Moves
        }
    }

    /// Bytes that the peer has acknowledged, except those of the handshake.
    fn acknowledged(&self) -> u64 {
        self.taken.wrapping_sub(self.unacknowledged as u64)
    }

    /// Whether nothing was in flight at the last check.
    pub(crate) fn nothing_in_flight(&self) -> bool {
        self.unacknowledged == 0
    }
}
