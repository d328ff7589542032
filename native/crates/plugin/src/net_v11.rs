//! Net plugin v11: an init per communicator, sizes as size_t.

use std::ffi::{c_int, c_void};
use std::ptr;

use busbw_nccl_abi::common::{
    DeviceHandle, Logger, NET_DEVICE_HOST, NET_DEVICE_INVALID_VERSION, NcclResult,
    ProfilerCallback, pointer,
};
use busbw_nccl_abi::net_v11::{
    CommConfig, MAX_DEVS_PER_NIC, Net as Table, Properties, VDeviceProps,
};

use crate::entry::{entry, given, init_entry};
use crate::logger;
use crate::net::{MAX_COLL_BYTES, MAX_COMMS, MAX_P2P_BYTES, Net, NetDevice, saturated};
use crate::setup::{self, net_table};
use crate::traffic;

/// For NCCL 2.28 and newer.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v11: Table = net_table!(Table {
    init,
    get_properties,
    listen,
    connect,
    isend,
    irecv,
    make_v_device: None,
    finalize,
    set_net_attr: None
});

pub fn properties(index: usize, device: &NetDevice) -> Properties {
    let mut devs = [0; MAX_DEVS_PER_NIC];
    devs[0] = saturated(index);
    Properties {
        name: device.name(),
        pci_path: device.pci_path(),
        guid: index as u64,
        ptr_support: pointer::HOST,
        reg_is_global: 0,
        force_flush: 0,
        speed: device.speed(),
        port: 0,
        latency: 0.0,
        max_comms: MAX_COMMS,
        max_recvs: 1,
        net_device_type: NET_DEVICE_HOST,
        net_device_version: NET_DEVICE_INVALID_VERSION,
        v_props: VDeviceProps { ndevs: 1, devs },
        max_p2p_bytes: MAX_P2P_BYTES,
        max_coll_bytes: MAX_COLL_BYTES,
        max_multi_request_size: 1,
    }
}

unsafe extern "C" fn init(
    ctx: *mut *mut c_void,
    _comm_id: u64,
    _config: *mut CommConfig,
    logger: Option<Logger>,
    _profiler: Option<ProfilerCallback>,
) -> NcclResult {
    init_entry(|| {
        logger::keep(logger);
        let ctx = given(ctx, "pointer for the context")?;
        // All communicators share one transport, so they have the same context, and finalize has
        // nothing to free.
        let net = ptr::from_ref(Net::open()?).cast_mut();
        // SAFETY: not NULL, and NCCL passes the address of its own context pointer.
        unsafe { ctx.write(net.cast()) };
        Ok(())
    })
}

unsafe extern "C" fn finalize(_ctx: *mut c_void) -> NcclResult {
    entry("finalize", || Ok(()))
}

unsafe extern "C" fn get_properties(dev: c_int, props: *mut Properties) -> NcclResult {
    // SAFETY: NCCL passes a writable Properties of this version.
    unsafe { setup::get_properties(dev, props, properties) }
}

unsafe extern "C" fn listen(
    _ctx: *mut c_void,
    dev: c_int,
    handle: *mut c_void,
    listen_comm: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: NCCL passes a handle of HANDLE_BYTES and a comm pointer, both writable.
    unsafe { setup::listen(dev, handle, listen_comm) }
}

unsafe extern "C" fn connect(
    _ctx: *mut c_void,
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
    size: usize,
    _tag: c_int,
    _mhandle: *mut c_void,
    _phandle: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: NCCL passes a comm of connect that it has not closed, and keeps the data until the
    // request is done or the comm closed.
    entry("isend", || unsafe { traffic::isend(send_comm, data, size, request) })
}

unsafe extern "C" fn irecv(
    recv_comm: *mut c_void,
    n: c_int,
    data: *mut *mut c_void,
    sizes: *mut usize,
    _tags: *mut c_int,
    _mhandles: *mut *mut c_void,
    _phandles: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: NCCL passes a comm of accept that it has not closed, arrays of `n`, and buffers it
    // keeps until the request is done or the comm closed.
    entry("irecv", || unsafe { traffic::irecv(recv_comm, n, data, sizes, request, Ok) })
}
