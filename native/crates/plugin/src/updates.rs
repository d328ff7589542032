//! What busbw_accel calls to update weights in host memory: AdamW on several threads.

use std::ptr;

use busbw_adam::{Change, Pool, Rule, Slab};

use crate::entry::guarded;
use crate::error_text::ErrorText;

/// Start this many threads, the caller's included. NULL with a message if that fails.
///
/// # Safety
/// `error` describes a writable buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_adam_open(threads: u32, error: ErrorText) -> *mut Pool {
    let open = || {
        let pool = Pool::new(threads as usize)
            .map_err(|error| format!("{threads} threads cannot be started: {error}"))?;
        Ok(Box::into_raw(Box::new(pool)))
    };
    // SAFETY: the caller guarantees the buffer that `error` describes.
    unsafe { error.or_write(open) }.unwrap_or(ptr::null_mut())
}

/// Change all elements of a slab and return when that is done: 0, or 1 with a message. First the
/// update by `undo` is undone, then one by `make` is made; either may be NULL.
///
/// # Safety
/// `pool` came from `open` and is not closed, the slab is as `busbw_adam::update` requires, and
/// `error` describes a writable buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_adam_update(
    pool: *const Pool,
    undo: *const Rule,
    make: *const Rule,
    slab: *const Slab,
    error: ErrorText,
) -> i32 {
    let update = || {
        // SAFETY: `open` made the pool with Box::into_raw, and the caller guarantees rules and
        // slab.
        let (pool, change, slab) = unsafe {
            (&*pool, Change { undo: undo.as_ref().copied(), make: make.as_ref().copied() }, &*slab)
        };
        // SAFETY: the caller guarantees what `update` requires.
        unsafe { pool.update(&change, slab) };
        Ok(())
    };
    // SAFETY: the caller guarantees the buffer that `error` describes.
    i32::from(unsafe { error.or_write(update) }.is_none())
}

/// End the threads.
///
/// # Safety
/// `pool` came from `open` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_adam_close(pool: *mut Pool) {
    // SAFETY: `open` made it with Box::into_raw, and the caller guarantees that this is its last
    // use.
    guarded("busbw_adam_close", (), || drop(unsafe { Box::from_raw(pool) }));
}
