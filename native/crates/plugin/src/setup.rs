//! Devices, connections and memory. Functions that are the same in all versions are exported as
//! they are.

use std::ffi::{c_int, c_void};
use std::ptr;

use busbw_nccl_abi::common::{DeviceHandle, HANDLE_BYTES, NcclResult, pointer};
use busbw_transport::{Error, Handle, Kind, Listener, Receiver, Sender};

use crate::entry::{entry, given, output};
use crate::net::{Net, NetDevice, saturated};

const _: () = assert!(size_of::<Handle>() == HANDLE_BYTES);

/// A table of functions for NCCL: those given, and those that are the same in all versions.
macro_rules! net_table {
    ($table:ident { $($entry:tt)* }) => {
        $table {
            name: crate::net::NAME.as_ptr(),
            devices: crate::setup::devices,
            accept: crate::setup::accept,
            reg_mr: crate::setup::reg_mr,
            reg_mr_dma_buf: None,
            dereg_mr: crate::setup::dereg_mr,
            iflush: crate::traffic::iflush,
            test: crate::traffic::test,
            close_send: crate::setup::close_send,
            close_recv: crate::setup::close_recv,
            close_listen: crate::setup::close_listen,
            get_device_mr: None,
            irecv_consumed: None,
            $($entry)*
        }
    };
}
pub(crate) use net_table;

pub unsafe extern "C" fn devices(ndev: *mut c_int) -> NcclResult {
    entry("devices", || {
        let ndev = given(ndev, "pointer for the number of devices")?;
        // SAFETY: not NULL, and NCCL passes the address of its own int.
        unsafe { ndev.write(saturated(Net::opened()?.devices.len())) };
        Ok(())
    })
}

/// `properties` fills the version's structure for a device and its number.
pub unsafe fn get_properties<P>(
    dev: c_int,
    props: *mut P,
    properties: impl FnOnce(usize, &NetDevice) -> P,
) -> NcclResult {
    entry("getProperties", || {
        let props = given(props, "pointer for the properties")?;
        let (index, device) = Net::opened()?.device(dev)?;
        // SAFETY: not NULL, and NCCL passes a writable structure of this version.
        unsafe { props.write(properties(index, device)) };
        Ok(())
    })
}

pub unsafe fn listen(dev: c_int, handle: *mut c_void, listen_comm: *mut *mut c_void) -> NcclResult {
    entry("listen", || {
        // SAFETY: NCCL passes NULL or the address of its own comm pointer.
        let comm = unsafe { output(listen_comm, "pointer for the listen comm") }?;
        let handle = given(handle, "handle")?.cast::<Handle>();
        let net = Net::opened()?;
        let (index, _) = net.device(dev)?;
        let (listener, bytes) = net.transport.listen(index)?;
        // SAFETY: not NULL; NCCL passes HANDLE_BYTES writable bytes and its comm pointer. All bytes
        // are written, as NCCL sends all of them.
        unsafe {
            handle.write(bytes);
            comm.write(Box::into_raw(listener).cast());
        }
        Ok(())
    })
}

pub unsafe fn connect(dev: c_int, handle: *mut c_void, send_comm: *mut *mut c_void) -> NcclResult {
    entry("connect", || {
        // SAFETY: NCCL passes NULL or the address of its own comm pointer.
        let comm = unsafe { output(send_comm, "pointer for the send comm") }?;
        let handle = given(handle, "handle")?.cast::<Handle>();
        let net = Net::opened()?;
        let (index, _) = net.device(dev)?;
        // SAFETY: not NULL; NCCL passes the HANDLE_BYTES bytes of a listener and does not change
        // them during the call.
        if let Some(sender) = net.transport.connect(index, unsafe { handle.as_ref() })? {
            // SAFETY: `output` has checked this pointer.
            unsafe { comm.write(Box::into_raw(sender).cast()) };
        }
        Ok(())
    })
}

pub unsafe extern "C" fn accept(
    listen_comm: *mut c_void,
    recv_comm: *mut *mut c_void,
    _device: *mut *mut DeviceHandle,
) -> NcclResult {
    entry("accept", || {
        // SAFETY: NCCL passes NULL or the address of its own comm pointer.
        let comm = unsafe { output(recv_comm, "pointer for the receive comm") }?;
        let mut listener = given(listen_comm, "listen comm")?.cast::<Listener>();
        // SAFETY: `listen` made it with Box::into_raw; NCCL has not closed it and uses it on one
        // thread at a time.
        if let Some(receiver) = unsafe { listener.as_mut() }.accept()? {
            // SAFETY: `output` has checked this pointer.
            unsafe { comm.write(Box::into_raw(receiver).cast()) };
        }
        Ok(())
    })
}

pub unsafe extern "C" fn reg_mr(
    _comm: *mut c_void,
    _data: *mut c_void,
    _size: usize,
    kind: c_int,
    mhandle: *mut *mut c_void,
) -> NcclResult {
    entry("regMr", || {
        if kind != pointer::HOST {
            let message = format!(
                "regMr of memory of type {kind:#x}: only host memory, {:#x}, is supported",
                pointer::HOST
            );
            return Err(Error::new(Kind::Usage, message));
        }
        if !mhandle.is_null() {
            // SAFETY: not NULL, and NCCL passes the address of its own pointer. Sockets need no
            // registration, so there is nothing to undo.
            unsafe { mhandle.write(ptr::null_mut()) };
        }
        Ok(())
    })
}

pub unsafe extern "C" fn dereg_mr(_comm: *mut c_void, _mhandle: *mut c_void) -> NcclResult {
    entry("deregMr", || Ok(()))
}

pub unsafe extern "C" fn close_send(send_comm: *mut c_void) -> NcclResult {
    // SAFETY: `connect` made it as a Sender, and NCCL closes each comm once, as its last use.
    entry("closeSend", || unsafe { close::<Sender>(send_comm) })
}

pub unsafe extern "C" fn close_recv(recv_comm: *mut c_void) -> NcclResult {
    // SAFETY: `accept` made it as a Receiver, and NCCL closes each comm once, as its last use.
    entry("closeRecv", || unsafe { close::<Receiver>(recv_comm) })
}

pub unsafe extern "C" fn close_listen(listen_comm: *mut c_void) -> NcclResult {
    // SAFETY: `listen` made it as a Listener, and NCCL closes each comm once, as its last use.
    entry("closeListen", || unsafe { close::<Listener>(listen_comm) })
}

/// Drop what `Box::into_raw` made. NULL is allowed: when NCCL aborts a communicator it also closes
/// comms that were never made.
unsafe fn close<T>(comm: *mut c_void) -> Result<(), Error> {
    if !comm.is_null() {
        // SAFETY: the caller guarantees a pointer that Box::into_raw made for this type, and that
        // this is its last use.
        drop(unsafe { Box::from_raw(comm.cast::<T>()) });
    }
    Ok(())
}
