//! Net plugin v8: one init per process, sizes as C's int.

use std::ffi::{c_int, c_void};

use busbw_nccl_abi::common::{
    DeviceHandle, Logger, NET_DEVICE_HOST, NET_DEVICE_INVALID_VERSION, NcclResult, pointer,
};
use busbw_nccl_abi::net_v8::{Net as Table, Properties};
use busbw_transport::{Error, Kind};

use crate::entry::{entry, init_entry};
use crate::logger;
use crate::net::{MAX_COMMS, Net, NetDevice};
use crate::setup::{self, net_table};
use crate::traffic;

/// For NCCL 2.20 to 2.27.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v8: Table =
    net_table!(Table { init, get_properties, listen, connect, isend, irecv });

pub fn properties(index: usize, device: &NetDevice) -> Properties {
    Properties {
        name: device.name(),
        pci_path: device.pci_path(),
        guid: index as u64,
        ptr_support: pointer::HOST,
        reg_is_global: 0,
        speed: device.speed(),
        port: 0,
        latency: 0.0,
        max_comms: MAX_COMMS,
        max_recvs: 1,
        net_device_type: NET_DEVICE_HOST,
        net_device_version: NET_DEVICE_INVALID_VERSION,
    }
}

unsafe extern "C" fn init(logger: Option<Logger>) -> NcclResult {
    init_entry(|| {
        logger::keep(logger);
        Net::open().map(drop)
    })
}

unsafe extern "C" fn get_properties(dev: c_int, props: *mut Properties) -> NcclResult {
    // SAFETY: NCCL passes a writable Properties of this version.
    unsafe { setup::get_properties(dev, props, properties) }
}

unsafe extern "C" fn listen(
    dev: c_int,
    handle: *mut c_void,
    listen_comm: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: NCCL passes a handle of HANDLE_BYTES and a comm pointer, both writable.
    unsafe { setup::listen(dev, handle, listen_comm) }
}

unsafe extern "C" fn connect(
    dev: c_int,
    handle: *mut c_void,
    send_comm: *mut *mut c_void,
    _device: *mut *mut DeviceHandle,
) -> NcclResult {
    // SAFETY: NCCL passes a handle of HANDLE_BYTES and a comm pointer, both writable.
    unsafe { setup::connect(dev, handle, send_comm) }
}

unsafe extern "C" fn isend(
    send_comm: *mut c_void,
    data: *mut c_void,
    size: c_int,
    _tag: c_int,
    _mhandle: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: NCCL passes a comm of connect that it has not closed, and keeps the data until the
    // request is done or the comm closed.
    entry("isend", || unsafe { traffic::isend(send_comm, data, bytes(size)?, request) })
}

unsafe extern "C" fn irecv(
    recv_comm: *mut c_void,
    n: c_int,
    data: *mut *mut c_void,
    sizes: *mut c_int,
    _tags: *mut c_int,
    _mhandles: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: NCCL passes a comm of accept that it has not closed, arrays of `n`, and buffers it
    // keeps until the request is done or the comm closed.
    entry("irecv", || unsafe { traffic::irecv(recv_comm, n, data, sizes, request, bytes) })
}

fn bytes(size: c_int) -> Result<usize, Error> {
    usize::try_from(size).map_err(|_| Error::new(Kind::Usage, format!("a message of {size} bytes")))
}
