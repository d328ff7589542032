//! Net plugin v11: NCCL 2.28.3 and newer. Beside v8: an init per communicator, sizes beyond 2 GiB, the profiler's handles.

use std::ffi::{c_char, c_float, c_int, c_void};

use crate::common::{DeviceHandle, Logger, NcclResult, ProfilerCallback};

/// Physical devices of a virtual one at most.
pub const MAX_DEVS_PER_NIC: usize = 4;

/// `ncclNetVDeviceProps`: the devices that one is made of.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VDeviceProps {
    /// How many.
    pub ndevs: c_int,
    /// Which.
    pub devs: [c_int; MAX_DEVS_PER_NIC],
}

layout!(VDeviceProps, 20, { ndevs @ 0, devs @ 4 });

/// `ncclNetCommConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CommConfig {
    /// -1 where the application gave none.
    pub traffic_class: c_int,
}

layout!(CommConfig, 4, { traffic_class @ 0 });

/// Half of `ncclNetAttr`: what one direction will see; -1 is unknown.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CommAttr {
    /// Peers at a time, at most.
    pub max_concurrent_peers: i32,
    /// Peers at a time, at least.
    pub min_concurrent_peers: i32,
    /// Flows to a peer, at most.
    pub max_flows_per_peer: i32,
    /// Flows to a peer, at least.
    pub min_flows_per_peer: i32,
}

layout!(CommAttr, 16, { max_concurrent_peers @ 0, min_concurrent_peers @ 4, max_flows_per_peer @ 8, min_flows_per_peer @ 12 });

/// `ncclNetAttr`: what comes next.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NetAttr {
    /// Of sends.
    pub send_comm_attr: CommAttr,
    /// Of receives.
    pub recv_comm_attr: CommAttr,
    /// Bits of operations.
    pub op: u32,
    /// Bits of algorithms.
    pub algo: u32,
    /// Bits of protocols.
    pub proto: u32,
}

layout!(NetAttr, 44, { send_comm_attr @ 0, recv_comm_attr @ 16, op @ 32, algo @ 36, proto @ 40 });

/// `ncclNetProperties_v11_t`. NCCL does not zero it: every field must be set.
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
    /// Whether every receive needs a flush: 0 or 1.
    pub force_flush: c_int,
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
    /// What the device is made of.
    pub v_props: VDeviceProps,
    /// Bytes of a point-to-point message at most; over 0.
    pub max_p2p_bytes: usize,
    /// Bytes of a collective's message at most; over 0.
    pub max_coll_bytes: usize,
    /// Requests in one at most.
    pub max_multi_request_size: c_int,
}

layout!(Properties, 112, {
    name @ 0, pci_path @ 8, guid @ 16, ptr_support @ 24, reg_is_global @ 28, force_flush @ 32, speed @ 36, port @ 40, latency @ 44,
    max_comms @ 48, max_recvs @ 52, net_device_type @ 56, net_device_version @ 60, v_props @ 64, max_p2p_bytes @ 88, max_coll_bytes @ 96,
    max_multi_request_size @ 104,
});

/// `ncclNet_v11_t`: what NCCL finds at the symbol `ncclNetPlugin_v11`. Only what is an Option may be NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Net {
    /// What NCCL_NET calls it.
    pub name: *const c_char,
    /// Once per communicator; gives the context that `listen`, `connect` and `finalize` get.
    pub init: unsafe extern "C" fn(
        ctx: *mut *mut c_void,
        comm_id: u64,
        config: *mut CommConfig,
        logger: Option<Logger>,
        profiler: Option<ProfilerCallback>,
    ) -> NcclResult,
    /// How many devices there are.
    pub devices: unsafe extern "C" fn(ndev: *mut c_int) -> NcclResult,
    /// What a device is.
    pub get_properties: unsafe extern "C" fn(dev: c_int, props: *mut Properties) -> NcclResult,
    /// Wait for one peer; fills the handle.
    pub listen: unsafe extern "C" fn(ctx: *mut c_void, dev: c_int, handle: *mut c_void, listen_comm: *mut *mut c_void) -> NcclResult,
    /// Reach a listener; NULL until it is done.
    pub connect: unsafe extern "C" fn(
        ctx: *mut c_void,
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
        size: usize,
        tag: c_int,
        mhandle: *mut c_void,
        phandle: *mut c_void,
        request: *mut *mut c_void,
    ) -> NcclResult,
    /// Post buffers; the request is NULL where it cannot now.
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
    /// Join devices to one; `d` gets its number.
    pub make_v_device: Option<unsafe extern "C" fn(d: *mut c_int, props: *mut VDeviceProps) -> NcclResult>,
    /// The communicator of a context ends.
    pub finalize: unsafe extern "C" fn(ctx: *mut c_void) -> NcclResult,
    /// Hints on the traffic to come.
    pub set_net_attr: Option<unsafe extern "C" fn(ctx: *mut c_void, attr: *mut NetAttr) -> NcclResult>,
}

// SAFETY: plain data that nobody writes to; who reads through the name answers for it.
unsafe impl Sync for Net {}

layout!(Net, 176, {
    name @ 0, init @ 8, devices @ 2 * 8, get_properties @ 3 * 8, listen @ 4 * 8, connect @ 5 * 8, accept @ 6 * 8, reg_mr @ 7 * 8,
    reg_mr_dma_buf @ 8 * 8, dereg_mr @ 9 * 8, isend @ 10 * 8, irecv @ 11 * 8, iflush @ 12 * 8, test @ 13 * 8, close_send @ 14 * 8,
    close_recv @ 15 * 8, close_listen @ 16 * 8, get_device_mr @ 17 * 8, irecv_consumed @ 18 * 8, make_v_device @ 19 * 8,
    finalize @ 20 * 8, set_net_attr @ 21 * 8,
});
