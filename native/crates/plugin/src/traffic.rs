//! NCCL's calls that move messages: isend, irecv, iflush, test. Functions that are the same in all
//! versions are exported as they are.

use std::ffi::{c_int, c_void};

use busbw_nccl_abi::common::NcclResult;
use busbw_transport::{Error, Kind, Receiver, Request, Sender};

use crate::entry::{entry, given, output};
use crate::net::saturated;

pub unsafe fn isend(
    send_comm: *mut c_void,
    data: *mut c_void,
    size: usize,
    request: *mut *mut c_void,
) -> Result<(), Error> {
    // SAFETY: NCCL passes NULL or the address of its own request pointer.
    let request = unsafe { output(request, "pointer for the request") }?;
    let sender = given(send_comm, "send comm")?.cast::<Sender>();
    if size > 0 {
        given(data, "bytes to send")?;
    }
    // SAFETY: `connect` made it as a Sender and NCCL has not closed it. NCCL keeps the bytes until
    // the request is done or the comm closed.
    let started = unsafe { sender.as_ref().isend(data.cast(), size) }?;
    if let Some(started) = started {
        // SAFETY: `output` has checked this pointer.
        unsafe { request.write(started.as_ptr().cast()) };
    }
    Ok(())
}

/// `S` is the version's type of sizes; `bytes` converts a size, or returns an error if it is
/// invalid.
pub unsafe fn irecv<S: Copy>(
    recv_comm: *mut c_void,
    n: c_int,
    data: *mut *mut c_void,
    sizes: *mut S,
    request: *mut *mut c_void,
    bytes: impl Fn(S) -> Result<usize, Error>,
) -> Result<(), Error> {
    // SAFETY: NCCL passes NULL or the address of its own request pointer.
    let request = unsafe { output(request, "pointer for the request") }?;
    let receiver = given(recv_comm, "receive comm")?.cast::<Receiver>();
    if n != 1 {
        let message = format!("irecv of {n} buffers: a receive has one, as maxRecvs says");
        return Err(Error::new(Kind::Usage, message));
    }
    let (data, sizes) = (given(data, "buffers")?, given(sizes, "sizes")?);
    // SAFETY: not NULL, and NCCL passes arrays of `n` entries.
    let (buffer, room) = unsafe { (data.read(), bytes(sizes.read())?) };
    if room > 0 {
        given(buffer, "buffer to receive into")?;
    }
    // SAFETY: `accept` made it as a Receiver and NCCL has not closed it. NCCL keeps the buffer
    // until the request is done or the comm closed.
    let posted = unsafe { receiver.as_ref().irecv(buffer.cast(), room) }?;
    if let Some(posted) = posted {
        // SAFETY: `output` has checked this pointer.
        unsafe { request.write(posted.as_ptr().cast()) };
    }
    Ok(())
}

pub unsafe extern "C" fn iflush(
    _recv_comm: *mut c_void,
    _n: c_int,
    _data: *mut *mut c_void,
    _sizes: *mut c_int,
    _mhandles: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    entry("iflush", || {
        // SAFETY: NCCL passes NULL or the address of its own request pointer.
        unsafe { output(request, "pointer for the request") }?;
        Err(Error::new(Kind::Internal, "iflush is for GPU memory, which is not supported"))
    })
}

pub unsafe extern "C" fn test(
    request: *mut c_void,
    done: *mut c_int,
    sizes: *mut c_int,
) -> NcclResult {
    entry("test", || {
        let (request, done) =
            (given(request, "request")?.cast::<Request>(), given(done, "pointer for done")?);
        // SAFETY: not NULL, and NCCL passes the address of its own int.
        unsafe { done.write(0) };
        // SAFETY: isend or irecv returned it; NCCL tests it until it is done and not again, and has
        // not closed its comm.
        let Some(bytes) = unsafe { Request::test(request) }? else { return Ok(()) };
        // SAFETY: checked above.
        unsafe { done.write(1) };
        if !sizes.is_null() {
            // SAFETY: not NULL, and NCCL's array has an entry for the one buffer of the request.
            unsafe { sizes.write(saturated(bytes)) };
        }
        Ok(())
    })
}
