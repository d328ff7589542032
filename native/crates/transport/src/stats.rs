//! Counters of every connection.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one stream of chunks.
pub struct Lane {
    /// Interface it is bound to.
    pub nic: String,
    bytes: AtomicU64,
    chunks: AtomicU64,
}

/// Counters of one end of a connection. Whoever counts goes on at once: values are exact, but not of one moment.
pub struct Counters {
    /// Which connection and end.
    pub label: String,
    lanes: Vec<Lane>,
    messages: AtomicU64,
    bytes: AtomicU64,
    small: AtomicU64,
    resent: AtomicU64,
    stalls: AtomicU64,
    twice: AtomicU64,
}

impl Counters {
    /// All zero; `nics` names each stream's interface.
    pub fn new(label: String, nics: impl IntoIterator<Item = String>) -> Self {
        let lanes = nics.into_iter().map(|nic| Lane { nic, bytes: AtomicU64::new(0), chunks: AtomicU64::new(0) }).collect();
        let zero = || AtomicU64::new(0);
        Self { label, lanes, messages: zero(), bytes: zero(), small: zero(), resent: zero(), stalls: zero(), twice: zero() }
    }

    pub(crate) fn message(&self, bytes: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn small(&self, bytes: usize) {
        self.small.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn chunk(&self, lane: usize, bytes: usize) {
        self.lanes[lane].bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.lanes[lane].chunks.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stall(&self, resent: usize) {
        self.stalls.fetch_add(1, Ordering::Relaxed);
        self.resent.fetch_add(resent as u64, Ordering::Relaxed);
    }

    pub(crate) fn twice(&self, _bytes: usize) {
        self.twice.fetch_add(1, Ordering::Relaxed);
    }
}
