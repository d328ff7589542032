//! Whether a stream with bytes under way gets anywhere.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::sock;

/// For how long probes of a closed window go unanswered before the network, not the peer, is at fault. A living peer answers them no more
/// often than each 500 ms (net.ipv4.tcp_invalid_ratelimit), and the time between two doubles: within a second of the last answer, then.
const PROBES: Duration = Duration::from_millis(1_200);

/// How long what may last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Without progress, until others take over.
    pub(crate) stall: Duration,
    /// Without any answer, until the stream is given up.
    pub(crate) silence: Duration,
}

impl Limits {
    /// As the settings have them.
    pub(crate) fn of(config: &Config) -> Self {
        Self { stall: Duration::from_millis(config.stall_ms), silence: Duration::from_secs(config.timeout_s) }
    }
}

/// What a look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Nothing is under way, or it goes on, or the peer only reads slowly.
    Moves,
    /// The network does not take what is under way.
    Stalled,
    /// Nor has it for so long that the peer is gone.
    Silent,
}

/// A stream as it was when last looked at.
#[derive(Default)]
pub(crate) struct StallDetector {
    taken: u64,
    unacknowledged: usize,
    since: Option<Instant>,
    silent: Option<Instant>,
}

impl StallDetector {
    /// Look again: `taken` counts the bytes that the kernel has taken for it so far.
    pub(crate) fn look(&mut self, socket: &impl AsRawFd, taken: u64, limits: Limits, now: Instant) -> Flow {
        if self.unacknowledged == 0 && taken == self.taken {
            return Flow::Moves; // nothing new, and nothing was left: no need to ask the kernel
        }
        // Bytes that the kernel takes are no progress; those that the peer has are.
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
        } else if now - since >= limits.stall && (trouble.tries_again || silent_for(PROBES)) {
            Flow::Stalled
        } else {
            Flow::Moves
        }
    }

    /// Bytes that the peer has, less those of its first words.
    fn acknowledged(&self) -> u64 {
        self.taken.wrapping_sub(self.unacknowledged as u64)
    }

    /// Whether the last look found nothing under way.
    pub(crate) fn clear(&self) -> bool {
        self.unacknowledged == 0
    }
}
