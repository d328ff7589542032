//! Requests: messages in flight, which NCCL tests until they are done. Each connection owns a fixed array of them, so a pointer to one stays valid as long as
//! the connection does.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::error::Error;

/// The largest number of buffers in a grouped receive.
pub const MAX_GROUP: usize = 8;
/// Requests of a connection: twice what NCCL has in flight.
pub(crate) const SLOTS: usize = 64;

/// The end of a connection that completes a request.
pub(crate) trait Completion: Send + Sync {
    /// Advance the connection, then return whether `request` is done. If so, `sizes` is filled and
    /// the slot is free.
    fn test(&self, request: &Request, sizes: &mut [usize]) -> Result<bool, Error>;
}

/// One message in flight, or one grouped receive.
pub struct Request {
    owner: *const dyn Completion,
    taken: AtomicBool,
    /// Parts that are not complete.
    left: AtomicUsize,
    /// Chunk streams carry the message, so reading the inline stream would not complete it.
    pub(crate) by_chunks: AtomicBool,
    parts: AtomicUsize,
    sizes: [AtomicU64; MAX_GROUP],
}

// SAFETY: `owner` points to the core that owns the array with this request, so it lives at least as
// long; a core is Send and Sync.
unsafe impl Send for Request {}
// SAFETY: as for Send; all other fields are atomic.
unsafe impl Sync for Request {}

impl Request {
    /// The requests of a connection. `owner` is the core that holds them, under construction in
    /// `Arc::new_cyclic`.
    pub(crate) fn slots(owner: *const dyn Completion) -> Box<[Self]> {
        (0..SLOTS)
            .map(|_| Self {
                owner,
                taken: AtomicBool::new(false),
                left: AtomicUsize::new(0),
                by_chunks: AtomicBool::new(false),
                parts: AtomicUsize::new(0),
                sizes: Default::default(),
            })
            .collect()
    }

    /// Whether the slot is in use. Only the caller's thread starts and ends uses.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    /// Start a use with `parts` parts.
    pub(crate) fn take(&self, parts: usize) {
        self.taken.store(true, Ordering::Relaxed);
        self.parts.store(parts, Ordering::Relaxed);
        self.by_chunks.store(false, Ordering::Relaxed);
        self.left.store(parts, Ordering::Relaxed);
    }

    /// Mark a part as complete, with its bytes.
    pub(crate) fn complete(&self, part: usize, bytes: u64) {
        self.sizes[part].store(bytes, Ordering::Relaxed);
        self.left.fetch_sub(1, Ordering::Release);
    }

    /// Whether all parts are complete. If so, the slot is free again and `sizes` is filled.
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

    /// Return whether the request is done. Then `sizes` (one for each buffer) has the bytes sent or
    /// received, and the request is free.
    ///
    /// # Safety
    /// `request` came from isend or irecv of a connection that still exists, and has not tested
    /// done before.
    ///
    /// # Errors
    /// The peer is gone, or sent more than was posted.
    pub unsafe fn test(request: NonNull<Self>, sizes: &mut [usize]) -> Result<bool, Error> {
        // SAFETY: the caller guarantees that the connection exists. It owns the request and holds
        // an Arc of the core at `owner`.
        unsafe {
            let request = request.as_ref();
            (*request.owner).test(request, sizes)
        }
    }
}
