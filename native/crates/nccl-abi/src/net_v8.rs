//! Net plugin v8: NCCL 2.20.3 and newer.

use std::ffi::{c_char, c_float, c_int, c_void};

use crate::common::{DeviceHandle, Logger, NcclResult};

/// `ncclNetProperties_v8_t`. NCCL does not zero it: every field must be set.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// Interface name; must stay.
    pub name: *const c_char,
    /// Path of its PCI device in sysfs, NULL for a virtual one; must stay.
    pub pci_path: *const c_char,
    /// Unique per physical port.
    pub guid: u64,
    /// Bits of `pointer`.
    pub ptr_support: c_int,
    /// Whether a registration holds for all comms: 0 or 1.
    pub reg_is_global: c_int,
    /// In Mbit/s.
    pub speed: c_int,
    /// Port of the device.
    pub port: c_int,
    /// In microseconds; 0 where NCCL shall take its own.
    pub latency: c_float,
    /// Comms at most.
    pub max_comms: c_int,
    /// Buffers of a grouped receive at most.
    pub max_recvs: c_int,
    /// Who drives the traffic: host or GPU.
    pub net_device_type: c_int,
    /// Version of the GPU's part.
    pub net_device_version: c_int,
}

layout!(Properties, 64, {
    name @ 0, pci_path @ 8, guid @ 16, ptr_support @ 24, reg_is_global @ 28, speed @ 32, port @ 36, latency @ 40,
    max_comms @ 44, max_recvs @ 48, net_device_type @ 52, net_device_version @ 56,
});

/// `ncclNet_v8_t`: what NCCL finds at the symbol `ncclNetPlugin_v8`. Only what is an Option may be NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Net {
    /// What NCCL_NET calls it.
    pub name: *const c_char,
    /// Once per process, or again after the last comm went.
    pub init: unsafe extern "C" fn(logger: Option<Logger>) -> NcclResult,
    /// How many devices there are.
    pub devices: unsafe extern "C" fn(ndev: *mut c_int) -> NcclResult,
    /// What a device is.
    pub get_properties: unsafe extern "C" fn(dev: c_int, props: *mut Properties) -> NcclResult,
    /// Wait for one peer; fills the handle.
    pub listen: unsafe extern "C" fn(dev: c_int, handle: *mut c_void, listen_comm: *mut *mut c_void) -> NcclResult,
    /// Reach a listener; NULL until it is done.
    pub connect: unsafe extern "C" fn(
        dev: c_int,
        handle: *mut c_void,
        send_comm: *mut *mut c_void,
        send_dev_comm: *mut *mut DeviceHandle,
    ) -> NcclResult,
    /// The peer that came; NULL until it has.
    pub accept:
        unsafe extern "C" fn(listen_comm: *mut c_void, recv_comm: *mut *mut c_void, recv_dev_comm: *mut *mut DeviceHandle) -> NcclResult,
    /// Register memory.
    pub reg_mr:
        unsafe extern "C" fn(comm: *mut c_void, data: *mut c_void, size: usize, kind: c_int, mhandle: *mut *mut c_void) -> NcclResult,
    /// Register a DMA-BUF.
    pub reg_mr_dma_buf: Option<
        unsafe extern "C" fn(
            comm: *mut c_void,
            data: *mut c_void,
            size: usize,
            kind: c_int,
            offset: u64,
            fd: c_int,
            mhandle: *mut *mut c_void,
        ) -> NcclResult,
    >,
    /// Undo a registration.
    pub dereg_mr: unsafe extern "C" fn(comm: *mut c_void, mhandle: *mut c_void) -> NcclResult,
    /// Begin to send; the request is NULL where it cannot now.
    pub isend: unsafe extern "C" fn(
        send_comm: *mut c_void,
        data: *mut c_void,
        size: c_int,
        tag: c_int,
        mhandle: *mut c_void,
        request: *mut *mut c_void,
    ) -> NcclResult,
    /// Post buffers; the request is NULL where it cannot now.
    pub irecv: unsafe extern "C" fn(
        recv_comm: *mut c_void,
        n: c_int,
        data: *mut *mut c_void,
        sizes: *mut c_int,
        tags: *mut c_int,
        mhandles: *mut *mut c_void,
        request: *mut *mut c_void,
    ) -> NcclResult,
    /// Make received bytes visible to the GPU.
    pub iflush: unsafe extern "C" fn(
        recv_comm: *mut c_void,
        n: c_int,
        data: *mut *mut c_void,
        sizes: *mut c_int,
        mhandles: *mut *mut c_void,
        request: *mut *mut c_void,
    ) -> NcclResult,
    /// Whether a request is done; then it is no more.
    pub test: unsafe extern "C" fn(request: *mut c_void, done: *mut c_int, sizes: *mut c_int) -> NcclResult,
    /// End the sending side.
    pub close_send: unsafe extern "C" fn(send_comm: *mut c_void) -> NcclResult,
    /// End the receiving side.
    pub close_recv: unsafe extern "C" fn(recv_comm: *mut c_void) -> NcclResult,
    /// Stop to listen.
    pub close_listen: unsafe extern "C" fn(listen_comm: *mut c_void) -> NcclResult,
    /// The GPU's view of a registration.
    pub get_device_mr: Option<unsafe extern "C" fn(comm: *mut c_void, mhandle: *mut c_void, dptr_mhandle: *mut *mut c_void) -> NcclResult>,
    /// The GPU has taken what was received.
    pub irecv_consumed: Option<unsafe extern "C" fn(recv_comm: *mut c_void, n: c_int, request: *mut c_void) -> NcclResult>,
}

// SAFETY: plain data that nobody writes to; who reads through the name answers for it.
unsafe impl Sync for Net {}

layout!(Net, 152, {
    name @ 0, init @ 8, devices @ 2 * 8, get_properties @ 3 * 8, listen @ 4 * 8, connect @ 5 * 8, accept @ 6 * 8, reg_mr @ 7 * 8,
    reg_mr_dma_buf @ 8 * 8, dereg_mr @ 9 * 8, isend @ 10 * 8, irecv @ 11 * 8, iflush @ 12 * 8, test @ 13 * 8, close_send @ 14 * 8,
    close_recv @ 15 * 8, close_listen @ 16 * 8, get_device_mr @ 17 * 8, irecv_consumed @ 18 * 8,
});
