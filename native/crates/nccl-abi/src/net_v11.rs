//! Net plugin v11: NCCL 2.28.3 and newer. Unlike v8: an init for each communicator, sizes beyond 2
//! GiB, profiler handles.

use std::ffi::{c_char, c_float, c_int, c_void};

use crate::common::{
    Accept, Close, DeregMr, DeviceHandle, Devices, GetDeviceMr, Iflush, IrecvConsumed, Logger,
    NcclResult, ProfilerCallback, RegMr, RegMrDmaBuf, Test,
};

/// The largest number of devices in a virtual one.
pub const MAX_DEVS_PER_NIC: usize = 4;

/// `ncclNetVDeviceProps`: the devices of a virtual device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VDeviceProps {
    /// How many.
    pub ndevs: c_int,
    /// Their numbers.
    pub devs: [c_int; MAX_DEVS_PER_NIC],
}

layout!(VDeviceProps, 20, { ndevs @ 0, devs @ 4 });

/// `ncclNetCommConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CommConfig {
    /// -1 if the application set none.
    pub traffic_class: c_int,
}

layout!(CommConfig, 4, { traffic_class @ 0 });

/// `ncclNetProperties_v11_t`. NCCL does not clear it, so every field must be set.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// Interface name; must stay valid.
    pub name: *const c_char,
    /// Path of its PCI device in sysfs, NULL for a virtual one; must stay valid.
    pub pci_path: *const c_char,
    /// Unique for each physical port.
    pub guid: u64,
    /// Bits of `pointer`.
    pub ptr_support: c_int,
    /// Whether a registration is valid for all comms: 0 or 1.
    pub reg_is_global: c_int,
    /// Whether every receive needs a flush: 0 or 1.
    pub force_flush: c_int,
    /// In Mbit/s.
    pub speed: c_int,
    /// Port of the device.
    pub port: c_int,
    /// In microseconds; 0 for NCCL's default.
    pub latency: c_float,
    /// Limit of comms.
    pub max_comms: c_int,
    /// Limit of buffers in a grouped receive.
    pub max_recvs: c_int,
    /// Whether the host or the GPU drives the traffic.
    pub net_device_type: c_int,
    /// Version of the GPU's interface.
    pub net_device_version: c_int,
    /// The devices of a virtual one.
    pub v_props: VDeviceProps,
    /// Largest point-to-point message in bytes; above 0.
    pub max_p2p_bytes: usize,
    /// Largest message of a collective in bytes; above 0.
    pub max_coll_bytes: usize,
    /// Limit of requests combined into one.
    pub max_multi_request_size: c_int,
}

layout!(Properties, 112, {
    name @ 0, pci_path @ 8, guid @ 16, ptr_support @ 24, reg_is_global @ 28, force_flush @ 32, speed
    @ 36, port @ 40, latency @ 44,
    max_comms @ 48, max_recvs @ 52, net_device_type @ 56, net_device_version @ 60, v_props @ 64,
    max_p2p_bytes @ 88, max_coll_bytes @ 96,
    max_multi_request_size @ 104,
});

/// `ncclNet_v11_t`, which NCCL finds at the symbol `ncclNetPlugin_v11`. Only Options may be NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // common describes the types that all versions share
pub struct Net {
    /// Name in NCCL_NET.
    pub name: *const c_char,
    /// Called for each communicator; makes the context for `listen`, `connect` and `finalize`.
    pub init: unsafe extern "C" fn(
        ctx: *mut *mut c_void,
        comm_id: u64,
        config: *mut CommConfig,
        logger: Option<Logger>,
        profiler: Option<ProfilerCallback>,
    ) -> NcclResult,
    pub devices: Devices,
    /// Properties of a device.
    pub get_properties: unsafe extern "C" fn(dev: c_int, props: *mut Properties) -> NcclResult,
    /// Wait for one peer; fills the handle.
    pub listen: unsafe extern "C" fn(
        ctx: *mut c_void,
        dev: c_int,
        handle: *mut c_void,
        listen_comm: *mut *mut c_void,
    ) -> NcclResult,
    /// Connect to a listener; NULL until it is done.
    pub connect: unsafe extern "C" fn(
        ctx: *mut c_void,
        dev: c_int,
        handle: *mut c_void,
        send_comm: *mut *mut c_void,
        send_dev_comm: *mut *mut DeviceHandle,
    ) -> NcclResult,
    pub accept: Accept,
    pub reg_mr: RegMr,
    pub reg_mr_dma_buf: Option<RegMrDmaBuf>,
    pub dereg_mr: DeregMr,
    /// Start to send; the request is NULL if that is not possible now.
    pub isend: unsafe extern "C" fn(
        send_comm: *mut c_void,
        data: *mut c_void,
        size: usize,
        tag: c_int,
        mhandle: *mut c_void,
        phandle: *mut c_void,
        request: *mut *mut c_void,
    ) -> NcclResult,
    /// Post buffers; the request is NULL if that is not possible now.
    pub irecv: unsafe extern "C" fn(
        recv_comm: *mut c_void,
        n: c_int,
        data: *mut *mut c_void,
        sizes: *mut usize,
        tags: *mut c_int,
        mhandles: *mut *mut c_void,
        phandles: *mut *mut c_void,
        request: *mut *mut c_void,
    ) -> NcclResult,
    pub iflush: Iflush,
    pub test: Test,
    pub close_send: Close,
    pub close_recv: Close,
    pub close_listen: Close,
    pub get_device_mr: Option<GetDeviceMr>,
    pub irecv_consumed: Option<IrecvConsumed>,
    /// Combine devices; `d` receives the number of the new one.
    pub make_v_device:
        Option<unsafe extern "C" fn(d: *mut c_int, props: *mut VDeviceProps) -> NcclResult>,
    /// The communicator of a context ends.
    pub finalize: unsafe extern "C" fn(ctx: *mut c_void) -> NcclResult,
    /// Hints about coming traffic.
    pub set_net_attr:
        Option<unsafe extern "C" fn(ctx: *mut c_void, attr: *mut c_void) -> NcclResult>,
}

// SAFETY: the table is immutable, `name` points to a static string, and functions may be called
// from any thread.
unsafe impl Sync for Net {}

layout!(Net, 176, {
    name @ 0, init @ 8, devices @ 2 * 8, get_properties @ 3 * 8, listen @ 4 * 8, connect @ 5 * 8,
    accept @ 6 * 8, reg_mr @ 7 * 8,
    reg_mr_dma_buf @ 8 * 8, dereg_mr @ 9 * 8, isend @ 10 * 8, irecv @ 11 * 8, iflush @ 12 * 8, test
    @ 13 * 8, close_send @ 14 * 8,
    close_recv @ 15 * 8, close_listen @ 16 * 8, get_device_mr @ 17 * 8, irecv_consumed @ 18 * 8,
    make_v_device @ 19 * 8,
    finalize @ 20 * 8, set_net_attr @ 21 * 8,
});
