//! Messages. Functions that are the same in all versions are exported as they are.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::slice;

use busbw_nccl_abi::common::NcclResult;
use busbw_transport::{Error, Kind, MAX_GROUP, Receiver, Request, Sender};

use crate::entry::{entry, given, output};
use crate::net::saturated;

// What the transport leaves in sizes beyond those of a request's buffers; no message has this many
// bytes.
const NO_BUFFER: usize = usize::MAX;

pub unsafe fn isend(
    send_comm: *mut c_void,
    data: *mut c_void,
    size: usize,
    tag: c_int,
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
    let started = unsafe { sender.as_ref().isend(data.cast(), size, tag) }?;
    if let Some(started) = started {
        // SAFETY: `output` has checked this pointer.
        unsafe { request.write(started.as_ptr().cast()) };
    }
    Ok(())
}

/// The arguments of irecv in any version; `S` is the version's type of sizes.
pub struct Group<S> {
    pub n: c_int,
    pub data: *mut *mut c_void,
    pub sizes: *mut S,
    pub tags: *mut c_int,
}

/// `bytes` converts a size, or returns an error if it is invalid.
pub unsafe fn irecv<S: Copy>(
    recv_comm: *mut c_void,
    group: &Group<S>,
    request: *mut *mut c_void,
    bytes: impl Fn(S) -> Result<usize, Error>,
) -> Result<(), Error> {
    // SAFETY: NCCL passes NULL or the address of its own request pointer.
    let request = unsafe { output(request, "pointer for the request") }?;
    let receiver = given(recv_comm, "receive comm")?.cast::<Receiver>();
    let n = usize::try_from(group.n).ok().filter(|n| (1..=MAX_GROUP).contains(n));
    let n = n.ok_or_else(|| {
        Error::new(Kind::Usage, format!("irecv of {} buffers: the limit is {MAX_GROUP}", group.n))
    })?;
    let (data, sizes, tags) =
        (given(group.data, "buffers")?, given(group.sizes, "sizes")?, given(group.tags, "tags")?);
    let mut buffers = [(ptr::null_mut(), 0, 0); MAX_GROUP];
    for (i, buffer) in buffers[..n].iter_mut().enumerate() {
        // SAFETY: not NULL, `i` is below `n`, and NCCL passes arrays of `n` entries.
        let (address, size, tag) =
            unsafe { (data.add(i).read(), bytes(sizes.add(i).read())?, tags.add(i).read()) };
        if size > 0 {
            given(address, "buffer to receive into")?;
        }
        *buffer = (address.cast(), size, tag);
    }
    // SAFETY: `accept` made it as a Receiver and NCCL has not closed it. NCCL keeps the buffers
    // until the request is done or the comm closed.
    let posted = unsafe { receiver.as_ref().irecv(&buffers[..n]) }?;
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
        let mut got = [NO_BUFFER; MAX_GROUP];
        // SAFETY: isend or irecv returned it; NCCL tests it until it is done and not again, and has
        // not closed its comm.
        let ended = unsafe { Request::test(request, &mut got) }?;
        // SAFETY: checked above.
        unsafe { done.write(c_int::from(ended)) };
        if ended && !sizes.is_null() {
            let count = got.iter().take_while(|&&size| size != NO_BUFFER).count();
            // SAFETY: not NULL, and NCCL's array has as many entries as the request has buffers,
            // which is `count`.
            let sizes = unsafe { slice::from_raw_parts_mut(sizes, count) };
            sizes.iter_mut().zip(got).for_each(|(to, size)| *to = saturated(size));
        }
        Ok(())
    })
}
