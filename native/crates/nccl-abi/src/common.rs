//! Shared by all versions: result codes, the logger, the profiler callback, and the device handle
//! of net plugins.

use std::ffi::{c_char, c_int, c_ulong, c_void};

/// `ncclResult_t`, a C enum of 4 bytes.
pub type NcclResult = c_int;

/// Values of `ncclResult_t`.
pub mod result {
    use super::NcclResult;

    /// Success.
    pub const SUCCESS: NcclResult = 0;
    /// A system call failed.
    pub const SYSTEM_ERROR: NcclResult = 2;
    /// An internal error of NCCL or the plugin.
    pub const INTERNAL_ERROR: NcclResult = 3;
    /// A wrong call or setting.
    pub const INVALID_USAGE: NcclResult = 5;
    /// The peer is gone.
    pub const REMOTE_ERROR: NcclResult = 6;
}

/// `ncclDebugLogLevel`.
pub mod log_level {
    use std::ffi::c_int;

    /// Something is wrong.
    pub const WARN: c_int = 2;
    /// Progress, for each subsystem.
    pub const INFO: c_int = 3;
}

/// `ncclDebugLogSubSys`: bits. Unless NCCL_DEBUG_SUBSYS is set, NCCL shows only INIT, BOOTSTRAP and
/// ENV.
pub mod subsystem {
    use std::ffi::c_ulong;

    /// Initialisation.
    pub const INIT: c_ulong = 0x1;
    /// Networks.
    pub const NET: c_ulong = 0x10;
    /// All, as in NCCL's own warnings.
    pub const ALL: c_ulong = c_ulong::MAX;
}

/// Kinds of memory in `regMr` and `ptrSupport`: bits.
pub mod pointer {
    use std::ffi::c_int;

    /// Host memory.
    pub const HOST: c_int = 0x1;
    /// CUDA memory by address.
    pub const CUDA: c_int = 0x2;
    /// CUDA memory as a DMA-BUF.
    pub const DMABUF: c_int = 0x4;
}

/// `netDeviceType` of a network that the host drives.
pub const NET_DEVICE_HOST: c_int = 0;

/// `netDeviceVersion` of such a network.
pub const NET_DEVICE_INVALID_VERSION: c_int = 0;

/// Bytes of the handle that `listen` fills and `connect` reads.
pub const HANDLE_BYTES: usize = 128;

/// `ncclDebugLogger_t`: level, subsystems, file, line, then format and values as in printf; may be
/// called from any thread.
pub type Logger = unsafe extern "C" fn(
    level: c_int,
    flags: c_ulong,
    file: *const c_char,
    line: c_int,
    format: *const c_char,
    ...
);

/// `ncclProfilerCallback_t`: type 0 start, 1 stop, 2 update, 3 update and stop.
pub type ProfilerCallback = unsafe extern "C" fn(
    event: *mut *mut c_void,
    event_type: c_int,
    parent: *mut c_void,
    plugin_id: i64,
    extra: *mut c_void,
) -> NcclResult;

/// `ncclNetDeviceHandle`, v7 to v12: for networks that GPUs drive. A host network does not use it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceHandle {
    /// `netDeviceType`.
    pub net_device_type: c_int,
    /// `netDeviceVersion`.
    pub net_device_version: c_int,
    /// Data for the GPU.
    pub handle: *mut c_void,
    /// Its bytes.
    pub size: usize,
    /// Whether the proxy thread still has to call the plugin: 0 or 1.
    pub needs_proxy_progress: c_int,
}

layout!(DeviceHandle, 32, {
    net_device_type @ 0, net_device_version @ 4, handle @ 8, size @ 16, needs_proxy_progress @ 24,
});

/// Accepts a peer; the comm is NULL until it has connected.
pub type Accept = unsafe extern "C" fn(
    listen_comm: *mut c_void,
    recv_comm: *mut *mut c_void,
    recv_dev_comm: *mut *mut DeviceHandle,
) -> NcclResult;
/// Closes a comm.
pub type Close = unsafe extern "C" fn(comm: *mut c_void) -> NcclResult;
/// Undoes a registration.
pub type DeregMr = unsafe extern "C" fn(comm: *mut c_void, mhandle: *mut c_void) -> NcclResult;
/// Writes the number of devices.
pub type Devices = unsafe extern "C" fn(ndev: *mut c_int) -> NcclResult;
/// The GPU's view of a registration.
pub type GetDeviceMr = unsafe extern "C" fn(
    comm: *mut c_void,
    mhandle: *mut c_void,
    dptr_mhandle: *mut *mut c_void,
) -> NcclResult;
/// Makes received bytes visible to the GPU.
pub type Iflush = unsafe extern "C" fn(
    recv_comm: *mut c_void,
    n: c_int,
    data: *mut *mut c_void,
    sizes: *mut c_int,
    mhandles: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult;
/// The GPU has consumed what was received.
pub type IrecvConsumed =
    unsafe extern "C" fn(recv_comm: *mut c_void, n: c_int, request: *mut c_void) -> NcclResult;
/// Registers memory of a kind of `pointer`.
pub type RegMr = unsafe extern "C" fn(
    comm: *mut c_void,
    data: *mut c_void,
    size: usize,
    kind: c_int,
    mhandle: *mut *mut c_void,
) -> NcclResult;
/// Registers a DMA-BUF.
pub type RegMrDmaBuf = unsafe extern "C" fn(
    comm: *mut c_void,
    data: *mut c_void,
    size: usize,
    kind: c_int,
    offset: u64,
    fd: c_int,
    mhandle: *mut *mut c_void,
) -> NcclResult;
/// Writes whether a request is done; then it is not used again.
pub type Test =
    unsafe extern "C" fn(request: *mut c_void, done: *mut c_int, sizes: *mut c_int) -> NcclResult;
