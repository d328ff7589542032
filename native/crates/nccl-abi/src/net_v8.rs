//! Net plugin v8: NCCL 2.20.3 and newer.

use std::ffi::{c_char, c_float, c_int, c_void};

use crate::common::{
    Accept, Close, DeregMr, DeviceHandle, Devices, GetDeviceMr, Iflush, IrecvConsumed, Logger,
    NcclResult, RegMr, RegMrDmaBuf, Test,
};

/// `ncclNetProperties_v8_t`. NCCL does not clear it, so every field must be set.
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
}

layout!(Properties, 64, {
    name @ 0, pci_path @ 8, guid @ 16, ptr_support @ 24, reg_is_global @ 28, speed @ 32, port @ 36,
    latency @ 40,
    max_comms @ 44, max_recvs @ 48, net_device_type @ 52, net_device_version @ 56,
});

/// `ncclNet_v8_t`, which NCCL finds at the symbol `ncclNetPlugin_v8`. Only Options may be NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // common describes the types that all versions share
pub struct Net {
    /// Name in NCCL_NET.
    pub name: *const c_char,
    /// Called once for each process, and again after all comms have been closed.
    pub init: unsafe extern "C" fn(logger: Option<Logger>) -> NcclResult,
    pub devices: Devices,
    /// Properties of a device.
    pub get_properties: unsafe extern "C" fn(dev: c_int, props: *mut Properties) -> NcclResult,
    /// Wait for one peer; fills the handle.
    pub listen: unsafe extern "C" fn(
        dev: c_int,
        handle: *mut c_void,
        listen_comm: *mut *mut c_void,
    ) -> NcclResult,
    /// Connect to a listener; NULL until it is done.
    pub connect: unsafe extern "C" fn(
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
        size: c_int,
        tag: c_int,
        mhandle: *mut c_void,
        request: *mut *mut c_void,
    ) -> NcclResult,
    /// Post buffers; the request is NULL if that is not possible now.
    pub irecv: unsafe extern "C" fn(
        recv_comm: *mut c_void,
        n: c_int,
        data: *mut *mut c_void,
        sizes: *mut c_int,
        tags: *mut c_int,
        mhandles: *mut *mut c_void,
        request: *mut *mut c_void,
    ) -> NcclResult,
    pub iflush: Iflush,
    pub test: Test,
    pub close_send: Close,
    pub close_recv: Close,
    pub close_listen: Close,
    pub get_device_mr: Option<GetDeviceMr>,
    pub irecv_consumed: Option<IrecvConsumed>,
}

// SAFETY: the table is immutable, `name` points to a static string, and functions may be called
// from any thread.
unsafe impl Sync for Net {}

layout!(Net, 152, {
    name @ 0, init @ 8, devices @ 2 * 8, get_properties @ 3 * 8, listen @ 4 * 8, connect @ 5 * 8,
    accept @ 6 * 8, reg_mr @ 7 * 8,
    reg_mr_dma_buf @ 8 * 8, dereg_mr @ 9 * 8, isend @ 10 * 8, irecv @ 11 * 8, iflush @ 12 * 8, test
    @ 13 * 8, close_send @ 14 * 8,
    close_recv @ 15 * 8, close_listen @ 16 * 8, get_device_mr @ 17 * 8, irecv_consumed @ 18 * 8,
});
