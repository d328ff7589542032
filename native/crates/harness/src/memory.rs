//! Buffers that begin at a page, as those of NCCL do.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use crate::Failure;

const PAGE: usize = 4096;

/// Bytes, all touched. What malloc returns for a large buffer begins 16 bytes after a page: copies into it from sockets were half as fast
/// as into one that begins at a cache line.
pub struct Memory {
    at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its bytes, as a Box does.
unsafe impl Send for Memory {}

impl Memory {
    /// `size` bytes, at least one.
    ///
    /// # Errors
    /// More than can be addressed.
    pub fn new(size: usize) -> Result<Self, Failure> {
        let layout = Layout::from_size_align(size.max(1), PAGE).map_err(|_| format!("{size} bytes: too many"))?;
        // SAFETY: the layout is not empty, and all of it is filled.
        let at = unsafe {
            let at = NonNull::new(alloc(layout)).unwrap_or_else(|| handle_alloc_error(layout));
            at.write_bytes(0x5a, layout.size());
            at
        };
        Ok(Self { at, layout })
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: allocated and filled in new.
        unsafe { slice::from_raw_parts(self.at.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed by nobody else.
        unsafe { slice::from_raw_parts_mut(self.at.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in new with this layout.
        unsafe { dealloc(self.at.as_ptr(), self.layout) };
    }
}
