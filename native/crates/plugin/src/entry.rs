//! What every exported function does around its work: panics and errors become a line of the log and a result code.

use std::any::Any;
use std::env;
use std::ffi::{OsStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use nccl_abi::common::{NcclResult, result};
use transport::{Error, Kind, Level};

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

/// Run an init: NCCL takes its next network where it fails, which is worth a warning only where NCCL_NET asks for this one.
pub fn init_entry(work: impl FnOnce() -> Result<(), Error>) -> NcclResult {
    match caught("init", work) {
        Ok(()) => result::SUCCESS,
        Err(error) => {
            logger::write(refusal_level(env::var_os("NCCL_NET").as_deref()), &format!("busbw is not used: {error}"));
            code(error.kind)
        }
    }
}

/// Where `pointer` leads; a usage error that says `what` NCCL did not give.
pub fn given<T>(pointer: *mut T, what: &str) -> Result<NonNull<T>, Error> {
    NonNull::new(pointer).ok_or_else(|| Error::new(Kind::Usage, format!("NCCL gave no {what}: the pointer is NULL")))
}

/// Where NCCL wants a comm or a request, set to NULL: in connect and accept that is "not yet", in isend and irecv "cannot now". NCCL may
/// have left flags there, which must not stay.
///
/// # Safety
/// `pointer` is NULL or may be written.
pub unsafe fn output(pointer: *mut *mut c_void, what: &str) -> Result<NonNull<*mut c_void>, Error> {
    let output = given(pointer, what)?;
    // SAFETY: of the caller.
    unsafe { output.write(ptr::null_mut()) };
    Ok(output)
}

/// How loud a failed init is said.
pub fn refusal_level(nccl_net: Option<&OsStr>) -> Level {
    if nccl_net.is_some_and(names_us) { Level::Warn } else { Level::Info }
}

/// Whether NCCL_NET's value asks for this network, as NCCL compares it with the names of networks.
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

/// Do the work, and make a panic an error. Unwind safe because NCCL gives a connection up after an error, and drops it whole.
pub fn caught(call: &str, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(Error::new(Kind::Internal, format!("a fault in {call}: {}", said(panic.as_ref())))))
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it left no words")
}
