//! What all versions share: result codes, the logger, the profiler callback, and the device handle of net plugins.

use std::ffi::{c_char, c_int, c_ulong, c_void};

/// `ncclResult_t`, a C enum of 4 bytes.
pub type NcclResult = c_int;

/// Values of `ncclResult_t`.
pub mod result {
    use super::NcclResult;

    /// It worked.
    pub const SUCCESS: NcclResult = 0;
    /// A CUDA call failed.
    pub const UNHANDLED_CUDA_ERROR: NcclResult = 1;
    /// A system call failed.
    pub const SYSTEM_ERROR: NcclResult = 2;
    /// A fault in NCCL or in the plugin.
    pub const INTERNAL_ERROR: NcclResult = 3;
    /// A wrong argument of the application.
    pub const INVALID_ARGUMENT: NcclResult = 4;
    /// A wrong use or setting.
    pub const INVALID_USAGE: NcclResult = 5;
    /// The peer is gone.
    pub const REMOTE_ERROR: NcclResult = 6;
    /// Not finished yet.
    pub const IN_PROGRESS: NcclResult = 7;
}

/// `ncclDebugLogLevel`.
pub mod log_level {
    use std::ffi::c_int;

    /// Nothing.
    pub const NONE: c_int = 0;
    /// NCCL's version.
    pub const VERSION: c_int = 1;
    /// Something is wrong.
    pub const WARN: c_int = 2;
    /// What is done, per subsystem.
    pub const INFO: c_int = 3;
    /// Before an abort.
    pub const ABORT: c_int = 4;
    /// Every call.
    pub const TRACE: c_int = 5;
}

/// `ncclDebugLogSubSys`: bits. Where NCCL_DEBUG_SUBSYS is not set, NCCL shows INIT, BOOTSTRAP and ENV alone.
pub mod subsystem {
    use std::ffi::c_ulong;

    /// Initialisation.
    pub const INIT: c_ulong = 0x1;
    /// Collectives.
    pub const COLL: c_ulong = 0x2;
    /// Peer to peer over NVLink and PCIe.
    pub const P2P: c_ulong = 0x4;
    /// Shared memory.
    pub const SHM: c_ulong = 0x8;
    /// Networks.
    pub const NET: c_ulong = 0x10;
    /// Topology search.
    pub const GRAPH: c_ulong = 0x20;
    /// Choice of algorithm and protocol.
    pub const TUNING: c_ulong = 0x40;
    /// Environment variables.
    pub const ENV: c_ulong = 0x80;
    /// Memory.
    pub const ALLOC: c_ulong = 0x100;
    /// API calls.
    pub const CALL: c_ulong = 0x200;
    /// Proxy threads.
    pub const PROXY: c_ulong = 0x400;
    /// NVLink SHARP.
    pub const NVLS: c_ulong = 0x800;
    /// Rendezvous.
    pub const BOOTSTRAP: c_ulong = 0x1000;
    /// Registration of buffers.
    pub const REG: c_ulong = 0x2000;
    /// Profiling.
    pub const PROFILE: c_ulong = 0x4000;
    /// Reliability service.
    pub const RAS: c_ulong = 0x8000;
    /// All of them, as NCCL's own warnings carry.
    pub const ALL: c_ulong = c_ulong::MAX;
}

/// Kinds of memory that `regMr` names and `ptrSupport` offers: bits.
pub mod pointer {
    use std::ffi::c_int;

    /// Host memory.
    pub const HOST: c_int = 0x1;
    /// CUDA memory by address.
    pub const CUDA: c_int = 0x2;
    /// CUDA memory as a DMA-BUF.
    pub const DMABUF: c_int = 0x4;
}

/// `netDeviceType` of a network whose traffic the host handles.
pub const NET_DEVICE_HOST: c_int = 0;

/// `netDeviceVersion` that goes with it.
pub const NET_DEVICE_INVALID_VERSION: c_int = 0;

/// Bytes of the handle that `listen` fills and `connect` gets.
pub const HANDLE_BYTES: usize = 128;

/// `ncclDebugLogger_t`: level, subsystems, file, line, then format and values as in printf; may be called from any thread.
pub type Logger = unsafe extern "C" fn(level: c_int, flags: c_ulong, file: *const c_char, line: c_int, format: *const c_char, ...);

/// `ncclProfilerCallback_t`: type 0 start, 1 stop, 2 update, 3 update and stop.
pub type ProfilerCallback =
    unsafe extern "C" fn(event: *mut *mut c_void, event_type: c_int, parent: *mut c_void, plugin_id: i64, extra: *mut c_void) -> NcclResult;

/// `ncclNetDeviceHandle`, v7 to v12: for networks that GPUs drive. NCCL passes NULL to a host network.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceHandle {
    /// `netDeviceType`.
    pub net_device_type: c_int,
    /// `netDeviceVersion`.
    pub net_device_version: c_int,
    /// What the GPU gets.
    pub handle: *mut c_void,
    /// Its bytes.
    pub size: usize,
    /// Whether the proxy thread must call the plugin all the same: 0 or 1.
    pub needs_proxy_progress: c_int,
}

layout!(DeviceHandle, 32, {
    net_device_type @ 0, net_device_version @ 4, handle @ 8, size @ 16, needs_proxy_progress @ 24,
});
