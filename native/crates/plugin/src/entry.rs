//! What every exported function does around its work: errors and panics become a log line and a
//! result code.

use std::any::Any;
use std::env;
use std::ffi::{OsStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use busbw_nccl_abi::common::{NcclResult, result};
use busbw_transport::{Error, Kind, Level};

use crate::logger;
use crate::net::NAME;

/// Run the work of the function `call`.
pub fn entry(call: &str, work: impl FnOnce() -> Result<(), Error>) -> NcclResult {
    match caught(call, work) {
        Ok(()) => result::SUCCESS,
        Err(error) => {
            logger::say(Level::Warn, &error.message);
            code(error.kind)
        }
    }
}

/// Run an init. If it fails, NCCL uses its next network, so this is a warning only if NCCL_NET
/// names this one.
pub fn init_entry(work: impl FnOnce() -> Result<(), Error>) -> NcclResult {
    match caught("init", work) {
        Ok(()) => result::SUCCESS,
        Err(error) => {
            logger::write(
                refusal_level(env::var_os("NCCL_NET").as_deref()),
                &format!("busbw is not used: {error}"),
            );
            code(error.kind)
        }
    }
}

/// Check a pointer. The usage error says `what` NCCL did not pass.
pub fn given<T>(pointer: *mut T, what: &str) -> Result<NonNull<T>, Error> {
    NonNull::new(pointer).ok_or_else(|| {
        Error::new(Kind::Usage, format!("NCCL passed no {what}: the pointer is NULL"))
    })
}

/// Check an output pointer and set its target to NULL. That means "not yet" in connect and accept,
/// "not now" in isend and irecv. NCCL may have left flags there.
///
/// # Safety
/// `pointer` is NULL or valid for writing.
pub unsafe fn output(pointer: *mut *mut c_void, what: &str) -> Result<NonNull<*mut c_void>, Error> {
    let output = given(pointer, what)?;
    // SAFETY: not NULL, so the caller guarantees that it may be written.
    unsafe { output.write(ptr::null_mut()) };
    Ok(output)
}

/// The level of a failed init.
pub fn refusal_level(nccl_net: Option<&OsStr>) -> Level {
    if nccl_net.is_some_and(names_us) { Level::Warn } else { Level::Info }
}

/// Whether NCCL_NET's value names this network, compared as NCCL does.
pub fn names_us(nccl_net: &OsStr) -> bool {
    nccl_net.eq_ignore_ascii_case(NAME.to_str().unwrap_or_default())
}

/// NCCL's result for a class of errors.
pub fn code(kind: Kind) -> NcclResult {
    match kind {
        Kind::System => result::SYSTEM_ERROR,
        Kind::Internal => result::INTERNAL_ERROR,
        Kind::Usage => result::INVALID_USAGE,
        Kind::Remote => result::REMOTE_ERROR,
    }
}

/// Run the work and turn a panic into an error. Unwind safe because NCCL gives up a connection
/// after an error and closes it.
pub fn caught(call: &str, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::new(Kind::Internal, format!("panic in {call}: {}", text_of(panic.as_ref()))))
    })
}

/// Run the work of a function that cannot report an error. After a panic it returns `otherwise`,
/// and the panic is on standard error.
pub fn guarded<T>(call: &str, otherwise: T, work: impl FnOnce() -> T) -> T {
    let mut done = otherwise;
    let work = || {
        done = work();
        Ok(())
    };
    if let Err(error) = caught(call, work) {
        logger::say(Level::Warn, &error.message);
    }
    done
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panicked without a message")
}
