//! Error messages of the functions that busbw calls, written to the caller's buffer.

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// The buffer for an error message, and its size including the final zero byte.
#[repr(C)]
pub struct ErrorText {
    at: *mut c_char,
    room: usize,
}

impl ErrorText {
    #[cfg(test)]
    pub(crate) fn over(text: &mut [c_char]) -> Self {
        Self { at: text.as_mut_ptr(), room: text.len() }
    }

    /// # Safety
    /// `at` is valid for writing `room` bytes.
    unsafe fn write(&self, message: &str) {
        let Some(most) = self.room.checked_sub(1) else { return };
        let length = message.len().min(most);
        // SAFETY: `length` bytes and a zero byte are at most `room`, for which the caller
        // guarantees `at`.
        unsafe {
            ptr::copy_nonoverlapping(message.as_ptr(), self.at.cast(), length);
            *self.at.add(length) = 0;
        }
    }

    /// The result, or None with its error message written. A panic is an error, too.
    ///
    /// # Safety
    /// As for `write`.
    pub(crate) unsafe fn or_write<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Option<T> {
        let message = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(made)) => return Some(made),
            Ok(Err(message)) => message,
            Err(_) => "busbw's library panicked: a bug".to_owned(),
        };
        // SAFETY: the caller guarantees what `write` requires.
        unsafe { self.write(&message) };
        None
    }
}
