//! Profiler plugins v2 (NCCL 2.24 to 2.26), v4 (2.27), v5 (2.28), v6 (2.29, 2.30) and v7 (2.31 and
//! newer): NCCL reports what the application calls and what it does.

mod layouts;

use std::ffi::{c_char, c_int, c_void};

use crate::common::{Logger, NcclResult};

/// Kinds of events: bits of the mask, and the type of a descriptor.
pub mod event {
    /// One plan of a communicator: the tasks that one launch runs. Reported whenever tasks are.
    pub const PLAN: u64 = 1;
    /// Collective.
    pub const COLL: u64 = 1 << 1;
    /// Send or receive.
    pub const P2P: u64 = 1 << 2;
    /// One channel of a kernel; from v3 on.
    pub const KERNEL_CH: u64 = 1 << 6;
    /// A group of calls; from v5 on, as are the next two.
    pub const GROUP_API: u64 = 1 << 8;
    /// The application's call of a collective.
    pub const COLL_API: u64 = 1 << 9;
    /// The application's call of send or receive.
    pub const P2P_API: u64 = 1 << 10;
    /// The launch of a kernel; from v5 on.
    pub const KERNEL_LAUNCH: u64 = 1 << 11;
    /// A collective that copy engines run; from v6 on.
    pub const CE_COLL: u64 = 1 << 12;
}

/// The state that ends a channel of a kernel.
pub const KERNEL_CH_STOP: c_int = 22;

/// `ncclProfilerEventDescr_v5_t` up to its union.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// One of `event`.
    pub kind: u64,
    /// Handle of the event that it belongs to.
    pub parent: *mut c_void,
    /// Rank in the communicator.
    pub rank: c_int,
}

/// The same in v1 to v4.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HeadV4 {
    /// One of `event`.
    pub kind: u8,
    /// Handle of the event that it belongs to.
    pub parent: *mut c_void,
    /// Rank in the communicator.
    pub rank: c_int,
}

/// Offset of the union in all versions.
pub const BODY: usize = 24;

/// A collective, v4 to v7. What v5 and v7 have after it is in `CollParent` and `CollVariant`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Coll {
    /// Number of the collective in its communicator.
    pub sequence: u64,
    /// Name of the function.
    pub func: *const c_char,
    /// Send buffer.
    pub send: *const c_void,
    /// Receive buffer.
    pub recv: *mut c_void,
    /// Elements. Bytes in all_gather and broadcast.
    pub count: usize,
    /// Root.
    pub root: c_int,
    /// Name of the element type.
    pub datatype: *const c_char,
    /// Channels.
    pub channels: u8,
    /// Warps of a block.
    pub warps: u8,
    /// Name of the algorithm.
    pub algo: *const c_char,
    /// Name of the protocol.
    pub proto: *const c_char,
}

/// A collective from v5 on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CollParent {
    /// As in v4.
    pub coll: Coll,
    /// Handle of its plan.
    pub plan: *mut c_void,
}

/// A collective from v7 on, without the user's tag.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CollVariant {
    /// As in v5.
    pub parent: CollParent,
    /// Name of a kernel over symmetric memory; NULL for another.
    pub variant: *const c_char,
    /// Whether the kernel runs over symmetric memory.
    pub symmetric: bool,
}

/// A collective that copy engines run, v6 and v7. v7 has the user's tag after it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CeColl {
    /// Number of the collective in its communicator.
    pub sequence: u64,
    /// Name of the function.
    pub func: *const c_char,
    /// Send buffer.
    pub send: *const c_void,
    /// Receive buffer.
    pub recv: *mut c_void,
    /// Elements.
    pub count: usize,
    /// Root.
    pub root: c_int,
    /// Name of the element type.
    pub datatype: *const c_char,
    /// How the ranks meet.
    pub sync: *const c_char,
    /// Whether they meet within a batch.
    pub batch_sync: bool,
    /// Copies of a batch.
    pub batch_size: u32,
    /// Batches.
    pub batches: u32,
    /// The same number as `sequence`.
    pub number: u32,
    /// CUDA stream.
    pub stream: *mut c_void,
}

/// A collective in v2.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CollV2 {
    /// Name of the communicator.
    pub name: *const c_char,
    /// Its hash.
    pub comm_hash: u64,
    /// Number of the collective in its communicator.
    pub sequence: u64,
    /// Name of the function.
    pub func: *const c_char,
    /// Send buffer.
    pub send: *const c_void,
    /// Receive buffer.
    pub recv: *mut c_void,
    /// Elements. Bytes in all_gather and broadcast.
    pub count: usize,
    /// Root.
    pub root: c_int,
    /// Name of the element type.
    pub datatype: *const c_char,
    /// Bytes that move.
    pub traffic_bytes: usize,
    /// Most channels.
    pub channels: u8,
    /// Warps of a block.
    pub warps: u8,
    /// Name of the algorithm.
    pub algo: *const c_char,
    /// Name of the protocol.
    pub proto: *const c_char,
}

/// A send or receive, v4 to v7. What v5 has after it is in `P2pParent`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct P2p {
    /// Name of the function.
    pub func: *const c_char,
    /// Buffer.
    pub buff: *mut c_void,
    /// Name of the element type.
    pub datatype: *const c_char,
    /// Elements.
    pub count: usize,
    /// The other rank.
    pub peer: c_int,
    /// Channels.
    pub channels: u8,
}

/// A send or receive from v5 on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct P2pParent {
    /// As in v4.
    pub p2p: P2p,
    /// Handle of its plan.
    pub plan: *mut c_void,
}

/// A send or receive in v2.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct P2pV2 {
    /// Name of the communicator.
    pub name: *const c_char,
    /// Its hash.
    pub comm_hash: u64,
    /// Name of the function.
    pub func: *const c_char,
    /// Buffer.
    pub buff: *mut c_void,
    /// Name of the element type.
    pub datatype: *const c_char,
    /// Elements.
    pub count: usize,
    /// The other rank.
    pub peer: c_int,
}

/// One channel of a kernel, v4 to v7.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelCh {
    /// Its number.
    pub channel: u8,
    /// The GPU's clock in ns at the start.
    pub timer: u64,
}

/// A group of calls, v5 to v7.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GroupApi {
    /// Whether its calls are recorded into a CUDA graph.
    pub captured: bool,
    /// How deeply groups are nested.
    pub depth: c_int,
}

/// The launch of a kernel, v5 to v7.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelLaunch {
    /// CUDA stream.
    pub stream: *mut c_void,
}

/// A call of a collective, v5 to v7. v7 has the user's tag after it, as it has after `P2pApi`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CollApi {
    /// Name of the function.
    pub func: *const c_char,
    /// Elements.
    pub count: usize,
    /// Name of the element type.
    pub datatype: *const c_char,
    /// Root.
    pub root: c_int,
    /// CUDA stream.
    pub stream: *mut c_void,
    /// Whether it is recorded into a CUDA graph.
    pub captured: bool,
}

/// A call of send or receive, v5 to v7.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct P2pApi {
    /// Name of the function.
    pub func: *const c_char,
    /// Elements.
    pub count: usize,
    /// Name of the element type.
    pub datatype: *const c_char,
    /// CUDA stream.
    pub stream: *mut c_void,
    /// Whether it is recorded into a CUDA graph.
    pub captured: bool,
}

/// Starts an event; `descr` is the version's descriptor.
pub type StartEvent = unsafe extern "C" fn(
    context: *mut c_void,
    event: *mut *mut c_void,
    descr: *mut c_void,
) -> NcclResult;
/// Ends an event.
pub type StopEvent = unsafe extern "C" fn(event: *mut c_void) -> NcclResult;
/// A state of an event; `arguments` is NULL or a union, whose first 8 bytes are a kernel's timer
/// from v4 on.
pub type RecordEventState =
    unsafe extern "C" fn(event: *mut c_void, state: c_int, arguments: *mut c_void) -> NcclResult;

/// A table of functions, which versions differ in `init` alone.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Profiler<Init> {
    /// Name in the log.
    pub name: *const c_char,
    /// Called for each communicator. The mask chooses events for all of them.
    pub init: Init,
    /// Starts an event.
    pub start_event: StartEvent,
    /// Ends an event.
    pub stop_event: StopEvent,
    /// A state of an event.
    pub record_event_state: RecordEventState,
    /// The communicator ends.
    pub finalize: unsafe extern "C" fn(context: *mut c_void) -> NcclResult,
}

/// `ncclProfiler_v5_t`, which NCCL finds at the symbol `ncclProfiler_v5`. v6 and v7 have the same
/// functions.
pub type ProfilerV5 = Profiler<
    unsafe extern "C" fn(
        context: *mut *mut c_void,
        comm_id: u64,
        mask: *mut c_int,
        comm_name: *const c_char,
        nodes: c_int,
        ranks: c_int,
        rank: c_int,
        logger: Option<Logger>,
    ) -> NcclResult,
>;

/// `ncclProfiler_v4_t`: the same arguments in another order.
pub type ProfilerV4 = Profiler<
    unsafe extern "C" fn(
        context: *mut *mut c_void,
        mask: *mut c_int,
        comm_name: *const c_char,
        comm_hash: u64,
        nodes: c_int,
        ranks: c_int,
        rank: c_int,
        logger: Option<Logger>,
    ) -> NcclResult,
>;

/// `ncclProfiler_v2_t`, whose init says nothing about the communicator.
pub type ProfilerV2 =
    Profiler<unsafe extern "C" fn(context: *mut *mut c_void, mask: *mut c_int) -> NcclResult>;

// SAFETY: the tables are immutable, `name` points to a static string, and functions may be called
// from any thread.
unsafe impl<Init> Sync for Profiler<Init> {}
