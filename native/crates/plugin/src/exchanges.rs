//! What busbw_accel calls: exchanges between the host memory of ranks. Error messages are written
//! to the caller's buffer.

use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::entry::guarded;
use crate::error_text::ErrorText;
use busbw_exchange::{Exchange, Job, Numbers, Part};
use busbw_transport::{Handle, Level, Transport, lock};

/// The longest limit: a year, which any clock can add to now.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Shared by all exchanges of this process. Never dropped, because closed connections may still
/// have data to deliver.
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

/// Listen for this many peers; each gets one of `handles`. NULL with a message if that fails.
///
/// # Safety
/// `handles` has room for `peers` handles, and `error` describes a writable buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_exchange_open(
    peers: u32,
    handles: *mut Handle,
    error: ErrorText,
) -> *mut Exchange {
    let open = || {
        let (made, own) =
            Exchange::open(transport()?, peers as usize).map_err(|error| error.message)?;
        // SAFETY: `own` has `peers` handles, and the caller guarantees room for as many.
        unsafe { ptr::copy_nonoverlapping(own.as_ptr(), handles, own.len()) };
        Ok(Box::into_raw(Box::new(made)))
    };
    // SAFETY: the caller guarantees the buffer that `error` describes.
    unsafe { error.or_write(open) }.unwrap_or(ptr::null_mut())
}

/// Connect to all peers by the handles that they made for this rank. Returns 0, or 1 with a
/// message. See `Exchange::join`.
///
/// # Safety
/// `exchange` came from `open` and has not joined, `handles` has one entry for each peer, and
/// `error` describes a writable buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_exchange_join(
    exchange: *mut Exchange,
    handles: *const Handle,
    join_s: f64,
    patience_s: f64,
    error: ErrorText,
) -> i32 {
    let join = || {
        // SAFETY: `open` made it with Box::into_raw; before `join` has returned no other call uses
        // it.
        let exchange = unsafe { &mut *exchange };
        // SAFETY: the caller guarantees one handle for each peer.
        let handles = unsafe { std::slice::from_raw_parts(handles, exchange.peers()) };
        let (within, patience) = (limit("connecting", join_s)?, limit("an exchange", patience_s)?);
        exchange.join(handles, within, patience).map_err(|error| error.message)
    };
    // SAFETY: the caller guarantees the buffer that `error` describes.
    i32::from(unsafe { error.or_write(join) }.is_none())
}

/// A time limit: zero does not wait at all.
fn limit(what: &str, seconds: f64) -> Result<Duration, String> {
    let given = Duration::try_from_secs_f64(seconds).ok().filter(|given| *given <= LONGEST);
    given.ok_or_else(|| {
        format!("a limit of {seconds:?} s for {what}: it is 0 to {} s", LONGEST.as_secs())
    })
}

/// Start an exchange: see `Job`. If it fails, `busbw_exchange_error` reports that later.
///
/// # Safety
/// `exchange` has joined and is not closed, `parts` has one entry for each peer, and the contract
/// of `Job::new` holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_exchange_begin(
    exchange: *const Exchange,
    parts: *const Part,
    chunk: usize,
    chunks: u32,
    numbers: Numbers,
    base: u32,
    sized: bool,
) {
    guarded("busbw_exchange_begin", (), || {
        // SAFETY: `open` made it with Box::into_raw, and the caller guarantees that it is not
        // closed.
        let exchange = unsafe { &*exchange };
        // SAFETY: the caller guarantees one part for each peer.
        let parts = unsafe { std::slice::from_raw_parts(parts, exchange.peers()) };
        // SAFETY: the caller guarantees the contract of `Job::new`.
        exchange.post(unsafe { Job::new(parts, chunk, chunks, numbers, base, sized) });
    });
}

/// Wait until `done` reaches `until`. Returns 0, or 1 with a message if an exchange has failed.
///
/// # Safety
/// `exchange` has joined and is not closed, `done` is the counter of its jobs, and `error`
/// describes a writable buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_exchange_wait(
    exchange: *const Exchange,
    done: *const AtomicU32,
    until: u32,
    error: ErrorText,
) -> i32 {
    // SAFETY: `open` made the exchange with Box::into_raw, and the caller guarantees that neither
    // is freed during the call.
    let (exchange, done) = unsafe { (&*exchange, &*done) };
    // SAFETY: the caller guarantees the buffer that `error` describes.
    i32::from(unsafe { error.or_write(|| exchange.wait(done, until)) }.is_none())
}

/// Return 1 with a message if an exchange has failed, else 0.
///
/// # Safety
/// `exchange` is not closed, and `text` describes a writable buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_exchange_error(exchange: *const Exchange, text: ErrorText) -> i32 {
    // SAFETY: `open` made it with Box::into_raw, and the caller guarantees that it is not closed.
    let failed = || unsafe { &*exchange }.error().map_or(Ok(()), Err);
    // SAFETY: the caller guarantees the buffer that `text` describes.
    i32::from(unsafe { text.or_write(failed) }.is_none())
}

/// Close the connections. Running exchanges fail.
///
/// # Safety
/// `exchange` came from `open` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_exchange_close(exchange: *mut Exchange) {
    // SAFETY: `open` made it with Box::into_raw, and the caller guarantees that this is its last
    // use.
    guarded("busbw_exchange_close", (), || drop(unsafe { Box::from_raw(exchange) }));
}
