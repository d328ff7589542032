//! Tuner plugins v2 (NCCL 2.21 to 2.23), v4 (2.24 to 2.27), v5 (2.28 and 2.29), v6 (2.30 to 2.32)
//! and v7 (newer releases of 2.32): they choose algorithm, protocol and channels of collectives,
//! from v6 on also the size of chunks.

use std::ffi::{c_char, c_float, c_int, c_void};

use crate::common::{Logger, NcclResult};

/// `ncclFunc_t`, as far as NCCL asks tuners about it.
pub mod function {
    use std::ffi::c_int;

    /// ncclBroadcast.
    pub const BROADCAST: c_int = 0;
    /// ncclReduce.
    pub const REDUCE: c_int = 1;
    /// ncclAllGather.
    pub const ALL_GATHER: c_int = 2;
    /// ncclReduceScatter.
    pub const REDUCE_SCATTER: c_int = 3;
    /// ncclAllReduce.
    pub const ALL_REDUCE: c_int = 4;
}

/// Protocol Simple: the column of the cost table after LL and LL128.
pub const SIMPLE: usize = 2;
/// Algorithm Tree: the first row of the cost table, before Ring.
pub const TREE: usize = 0;
/// Algorithm NVLS: its row, after Tree, Ring and both of CollNet.
pub const NVLS: usize = 4;
/// Algorithm NVLSTree.
pub const NVLS_TREE: usize = 5;

/// `init` of v2 and v4, called for each communicator.
pub type Init = unsafe extern "C" fn(
    ranks: usize,
    nodes: usize,
    logger: Option<Logger>,
    context: *mut *mut c_void,
) -> NcclResult;
/// `getCollInfo` of v4 and v5. The cost table is one `float[algorithms][protocols]` in us. The
/// smallest cost wins; negative ones must stay.
pub type GetCollInfo = unsafe extern "C" fn(
    context: *mut c_void,
    function: c_int,
    bytes: usize,
    pipe_ops: c_int,
    table: *mut *mut c_float,
    algorithms: c_int,
    protocols: c_int,
    registered: c_int,
    channels: *mut c_int,
) -> NcclResult;
/// `destroy` of v2 and v4, `finalize` of v5: the communicator ends.
pub type End = unsafe extern "C" fn(context: *mut c_void) -> NcclResult;

/// `ncclTuner_v2_t`, which NCCL finds at the symbol `ncclTunerPlugin_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TunerV2 {
    /// Name in the log.
    pub name: *const c_char,
    /// A communicator begins.
    pub init: Init,
    /// Set algorithm, protocol and channels of a collective. NCCL chooses what is not set.
    pub get_coll_info: unsafe extern "C" fn(
        context: *mut c_void,
        function: c_int,
        bytes: usize,
        coll_net: c_int,
        nvls: c_int,
        pipe_ops: c_int,
        algorithm: *mut c_int,
        protocol: *mut c_int,
        channels: *mut c_int,
    ) -> NcclResult,
    /// It ends.
    pub destroy: End,
}

/// `ncclTuner_v4_t`, which NCCL finds at the symbol `ncclTunerPlugin_v4`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TunerV4 {
    /// Name in the log.
    pub name: *const c_char,
    /// A communicator begins.
    pub init: Init,
    /// Change the costs of a collective and set its channels.
    pub get_coll_info: GetCollInfo,
    /// The communicator ends.
    pub destroy: End,
}

/// `ncclTuner_v5_t`, which NCCL finds at the symbol `ncclTunerPlugin_v5`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TunerV5 {
    /// Name in the log.
    pub name: *const c_char,
    /// Called for each communicator. The last two are the NVLink domain and the constants of NCCL's
    /// model.
    pub init: unsafe extern "C" fn(
        context: *mut *mut c_void,
        comm_id: u64,
        ranks: usize,
        nodes: usize,
        logger: Option<Logger>,
        nvl_domain: *mut c_void,
        constants: *mut c_void,
    ) -> NcclResult,
    /// Change the costs of a collective and set its channels.
    pub get_coll_info: GetCollInfo,
    /// The communicator ends.
    pub finalize: End,
}

/// `ncclTuner_v6_t`, which NCCL finds at the symbol `ncclTunerPlugin_v6`; and `ncclTuner_v7_t`,
/// whose constants alone differ.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TunerV6 {
    /// What v5 has.
    pub v5: TunerV5,
    /// Change the chunk size in bytes that NCCL has computed for a collective. NCCL reduces it to
    /// what its buffers hold. It must not be less than the grain of the protocol, of which NCCL
    /// takes a multiple: at most 1920 bytes.
    pub get_chunk_size: unsafe extern "C" fn(
        context: *mut c_void,
        function: c_int,
        bytes: usize,
        algorithm: c_int,
        protocol: c_int,
        channels: c_int,
        chunk_size: *mut usize,
    ) -> NcclResult,
}

// SAFETY: the table is immutable, `name` points to a static string, and functions may be called
// from any thread.
unsafe impl Sync for TunerV2 {}
// SAFETY: as for v2.
unsafe impl Sync for TunerV4 {}
// SAFETY: as for v2.
unsafe impl Sync for TunerV5 {}
// SAFETY: as for v2.
unsafe impl Sync for TunerV6 {}

layout!(TunerV2, 32, { name @ 0, init @ 8, get_coll_info @ 16, destroy @ 24 });
layout!(TunerV4, 32, { name @ 0, init @ 8, get_coll_info @ 16, destroy @ 24 });
layout!(TunerV5, 32, { name @ 0, init @ 8, get_coll_info @ 16, finalize @ 24 });
layout!(TunerV6, 40, { v5 @ 0, get_chunk_size @ 32 });
