//! Requests: a fixed number of places in every connection, so that a pointer to one stays good as long as the connection.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::MAX_GROUP;
use crate::receiver::RecvCore;
use crate::sender::SendCore;

/// Places of a connection: twice what NCCL has under way at a time.
pub const PLACES: usize = 64;

/// Whose a request is.
pub(crate) enum Owner {
    /// Of a sending end.
    Send(*const SendCore),
    /// Of a receiving end.
    Receive(*const RecvCore),
}

/// One message under way, or one grouped receive; lives in its connection.
pub struct Request {
    pub(crate) owner: Owner,
    taken: AtomicBool,
    /// Parts that are not complete.
    pub(crate) left: AtomicUsize,
    /// Streams of chunks carry it: looking at the stream of small messages for it is in vain.
    pub(crate) by_chunks: AtomicBool,
    pub(crate) parts: AtomicUsize,
    pub(crate) sizes: [AtomicU64; MAX_GROUP],
}

// SAFETY: the owner outlives its requests, and is itself made for several threads.
unsafe impl Send for Request {}
// SAFETY: as above; everything else is atomic.
unsafe impl Sync for Request {}

impl Request {
    pub(crate) fn places(owner: impl Fn() -> Owner) -> Box<[Self]> {
        (0..PLACES)
            .map(|_| Self {
                owner: owner(),
                taken: AtomicBool::new(false),
                left: AtomicUsize::new(0),
                by_chunks: AtomicBool::new(false),
                parts: AtomicUsize::new(0),
                sizes: Default::default(),
            })
            .collect()
    }

    /// Whether its last use is not over; only the caller's thread begins and ends uses.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    /// Begin with `parts` parts.
    pub(crate) fn take(&self, parts: usize) {
        self.taken.store(true, Ordering::Relaxed);
        self.parts.store(parts, Ordering::Relaxed);
        self.by_chunks.store(false, Ordering::Relaxed);
        self.left.store(parts, Ordering::Relaxed);
    }

    /// A part is complete, with so many bytes.
    pub(crate) fn complete(&self, part: usize, bytes: u64) {
        self.sizes[part].store(bytes, Ordering::Relaxed);
        self.left.fetch_sub(1, Ordering::Release);
    }

    /// Whether all parts are; then the place is free again and `sizes` filled.
    pub(crate) fn finish(&self, sizes: &mut [usize]) -> bool {
        if self.left.load(Ordering::Acquire) != 0 {
            return false;
        }
        for (to, from) in sizes.iter_mut().zip(&self.sizes[..self.parts.load(Ordering::Relaxed)]) {
            *to = from.load(Ordering::Relaxed) as usize;
        }
        self.taken.store(false, Ordering::Release);
        true
    }
}
