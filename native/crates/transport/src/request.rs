//! Requests: messages in flight, which NCCL tests until they are done. Each connection owns a fixed
//! array of them, so a pointer to one stays valid as long as the connection does.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::Error;

/// Requests of a connection: twice what NCCL has in flight.
pub(crate) const SLOTS: usize = 64;

/// The end of a connection that completes a request.
pub(crate) trait Completion: Send + Sync {
    /// Advance the connection, then return the bytes of `request` if it is done. Then the slot is
    /// free.
    fn test(&self, request: &Request) -> Result<Option<usize>, Error>;
}

/// One message in flight.
pub struct Request {
    owner: *const dyn Completion,
    taken: AtomicBool,
    done: AtomicBool,
    /// Chunk streams carry the message, so reading the inline stream would not complete it.
    pub(crate) by_chunks: AtomicBool,
    bytes: AtomicU64,
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
                done: AtomicBool::new(false),
                by_chunks: AtomicBool::new(false),
                bytes: AtomicU64::new(0),
            })
            .collect()
    }

    /// Whether the slot is in use. Only the caller's thread starts and ends uses.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    /// Start a use.
    pub(crate) fn take(&self) {
        self.taken.store(true, Ordering::Relaxed);
        self.by_chunks.store(false, Ordering::Relaxed);
        self.done.store(false, Ordering::Relaxed);
    }

    /// Mark the message as complete, with its bytes.
    pub(crate) fn complete(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.done.store(true, Ordering::Release);
    }

    /// The bytes of the message if it is complete. Then the slot is free again.
    pub(crate) fn finish(&self) -> Option<usize> {
        if !self.done.load(Ordering::Acquire) {
            return None;
        }
        let bytes = self.bytes.load(Ordering::Relaxed) as usize;
        self.taken.store(false, Ordering::Release);
        Some(bytes)
    }

    /// Return the bytes sent or received if the request is done. Then the request is free.
    ///
    /// # Safety
    /// `request` came from isend or irecv of a connection that still exists, and has not tested
    /// done before.
    ///
    /// # Errors
    /// The peer is gone, or sent more than was posted.
    pub unsafe fn test(request: NonNull<Self>) -> Result<Option<usize>, Error> {
        // SAFETY: the caller guarantees that the connection exists. It owns the request and holds
        // an Arc of the core at `owner`.
        unsafe {
            let request = request.as_ref();
            (*request.owner).test(request)
        }
    }
}
