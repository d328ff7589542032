//! What busbw.accel calls: exchanges between ranks from memory of the host. Errors are words in the caller's buffer.

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use exchange::{Exchange, Job, Numbers, Part};
use transport::{Handle, Level, Transport, lock};

/// Where words of an error go: bytes, and how many there is room for, the zero at the end included.
#[repr(C)]
pub struct ErrorText {
    at: *mut c_char,
    room: usize,
}

impl ErrorText {
    /// # Safety
    /// There is so much room.
    unsafe fn write(&self, message: &str) {
        let Some(most) = self.room.checked_sub(1) else { return };
        let length = message.len().min(most);
        // SAFETY: of the caller.
        unsafe {
            ptr::copy_nonoverlapping(message.as_ptr(), self.at.cast(), length);
            *self.at.add(length) = 0;
        }
    }

    /// What came of it, or None with its words said: errors and panics alike.
    ///
    /// # Safety
    /// As `say`.
    unsafe fn or_write<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Option<T> {
        let message = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(made)) => return Some(made),
            Ok(Err(message)) => message,
            Err(_) => "a fault in busbw's library".to_owned(),
        };
        // SAFETY: of the caller.
        unsafe { self.write(&message) };
        None
    }
}

/// Of all exchanges of this process, and never dropped: connections that have been closed may still have something to deliver.
static TRANSPORT: Mutex<Option<Arc<Transport>>> = Mutex::new(None);

fn transport() -> Result<Arc<Transport>, String> {
    let mut kept = lock(&TRANSPORT);
    if let Some(transport) = &*kept {
        return Ok(transport.clone());
    }
    let log = |level, line: &str| {
        if level == Level::Warn {
            eprintln!("busbw: {line}");
        }
    };
    let made = Transport::open(Arc::new(log)).map_err(|error| error.message)?;
    Ok(kept.insert(made).clone())
}

/// Listen for so many peers; each gets one of `handles`. NULL with words where that fails.
///
/// # Safety
/// There is room for as many handles, and for the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_exchange_open(peers: u32, handles: *mut Handle, error: ErrorText) -> *mut Exchange {
    let open = || {
        let (made, own) = Exchange::open(transport()?, peers as usize).map_err(|error| error.message)?;
        // SAFETY: of the caller.
        unsafe { ptr::copy_nonoverlapping(own.as_ptr(), handles, own.len()) };
        Ok(Box::into_raw(Box::new(made)))
    };
    // SAFETY: of the caller.
    unsafe { error.or_write(open) }.unwrap_or(ptr::null_mut())
}

/// Connect with all peers, by the handles that each has made for this rank; 0, or 1 with words. See `Exchange::join`.
///
/// # Safety
/// `exchange` is of `open` and has not joined, there are as many handles as peers, and room for the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_exchange_join(
    exchange: *mut Exchange,
    handles: *const Handle,
    join_s: f64,
    patience_s: f64,
    error: ErrorText,
) -> i32 {
    // SAFETY: of the caller.
    let exchange = unsafe { &mut *exchange };
    // SAFETY: of the caller.
    let handles = unsafe { std::slice::from_raw_parts(handles, exchange.peers()) };
    let (within, patience) = (Duration::from_secs_f64(join_s), Duration::from_secs_f64(patience_s));
    let join = || exchange.join(handles, within, patience).map_err(|error| error.message);
    // SAFETY: of the caller.
    i32::from(unsafe { error.or_write(join) }.is_none())
}

/// Begin an exchange: see `Job`. It fails later, as `busbw_exchange_error` says.
///
/// # Safety
/// `exchange` has joined, `parts` has one for each peer; and of `Job::new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_exchange_post(
    exchange: *const Exchange,
    parts: *const Part,
    chunk: usize,
    chunks: u32,
    numbers: Numbers,
    base: u32,
) {
    // SAFETY: of the caller.
    let exchange = unsafe { &*exchange };
    // SAFETY: of the caller.
    let parts = unsafe { std::slice::from_raw_parts(parts, exchange.peers()) };
    // SAFETY: of the caller.
    exchange.post(unsafe { Job::new(parts, chunk, chunks, numbers, base) });
}

/// Until `done` has come to `until`; 0, or 1 with words where an exchange has failed.
///
/// # Safety
/// `exchange` has joined, its jobs have this `done`, and there is room for the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_exchange_wait(exchange: *const Exchange, done: *const AtomicU32, until: u32, error: ErrorText) -> i32 {
    // SAFETY: of the caller.
    let (exchange, done) = unsafe { (&*exchange, &*done) };
    // SAFETY: of the caller.
    i32::from(unsafe { error.or_write(|| exchange.wait(done, until)) }.is_none())
}

/// 1 with words where an exchange has failed.
///
/// # Safety
/// `exchange` is open, and there is room for the words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_exchange_error(exchange: *const Exchange, text: ErrorText) -> i32 {
    // SAFETY: of the caller.
    let error = unsafe { &*exchange }.error();
    // SAFETY: of the caller.
    i32::from(unsafe { text.or_write(|| error.map_or(Ok(()), Err)) }.is_none())
}

/// End it: what is under way fails.
///
/// # Safety
/// `exchange` is of `open`, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_exchange_close(exchange: *mut Exchange) {
    // SAFETY: of the caller.
    drop(unsafe { Box::from_raw(exchange) });
}
