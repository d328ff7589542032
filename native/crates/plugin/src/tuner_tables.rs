//! The tuner tables: v2 has no costs, v4 and later ones ask for the same, from v5 on with an init
//! of their own, from v6 on also for chunks.

use std::ffi::{c_float, c_int, c_void};

use busbw_nccl_abi::common::{Logger, NcclResult};
use busbw_nccl_abi::tuner::{TunerV2, TunerV4, TunerV5, TunerV6};

use crate::entry::{entry, given};
use crate::net::NAME;
use crate::tuner;

/// For NCCL 2.21 to 2.23.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclTunerPlugin_v2: TunerV2 =
    TunerV2 { name: NAME.as_ptr(), init, get_coll_info: get_coll_info_v2, destroy: end };

/// For NCCL 2.24 to 2.27.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclTunerPlugin_v4: TunerV4 =
    TunerV4 { name: NAME.as_ptr(), init, get_coll_info, destroy: end };

/// For NCCL 2.28 and 2.29.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclTunerPlugin_v5: TunerV5 = V5;

/// For NCCL 2.30 and newer.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclTunerPlugin_v6: TunerV6 = V6;

/// For NCCL 2.32.6 and newer. The constants of NCCL's model, which are not used, are larger than in
/// v6.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclTunerPlugin_v7: TunerV6 = V6;

const V5: TunerV5 = TunerV5 { name: NAME.as_ptr(), init: init_v5, get_coll_info, finalize: end };
const V6: TunerV6 = TunerV6 { v5: V5, get_chunk_size };

unsafe extern "C" fn init(
    ranks: usize,
    nodes: usize,
    logger: Option<Logger>,
    context: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: NCCL passes NULL or the address of its own context pointer.
    entry("tuner init", || unsafe { tuner::init(context, ranks, nodes, logger) })
}

unsafe extern "C" fn init_v5(
    context: *mut *mut c_void,
    _comm_id: u64,
    ranks: usize,
    nodes: usize,
    logger: Option<Logger>,
    _nvl_domain: *mut c_void,
    _constants: *mut c_void,
) -> NcclResult {
    // SAFETY: NCCL passes NULL or the address of its own context pointer.
    entry("tuner init", || unsafe { tuner::init(context, ranks, nodes, logger) })
}

unsafe extern "C" fn get_coll_info_v2(
    context: *mut c_void,
    function: c_int,
    bytes: usize,
    _coll_net: c_int,
    _nvls: c_int,
    _pipe_ops: c_int,
    _algorithm: *mut c_int,
    _protocol: *mut c_int,
    channels: *mut c_int,
) -> NcclResult {
    // SAFETY: NCCL passes the context of init and the address of its own int.
    entry("getCollInfo", || unsafe { tuner::limit(context, function, bytes, channels) })
}

unsafe extern "C" fn get_coll_info(
    context: *mut c_void,
    function: c_int,
    bytes: usize,
    _pipe_ops: c_int,
    table: *mut *mut c_float,
    algorithms: c_int,
    protocols: c_int,
    _registered: c_int,
    channels: *mut c_int,
) -> NcclResult {
    entry("getCollInfo", || {
        let protocols = usize::try_from(protocols).unwrap_or(0).max(1);
        let costs = given(table.cast::<c_float>(), "cost table")?;
        // SAFETY: the type says pointer to pointers, but NCCL passes one array of algorithms x
        // protocols, which only this call uses.
        let costs = unsafe {
            std::slice::from_raw_parts_mut(
                costs.as_ptr(),
                usize::try_from(algorithms).unwrap_or(0) * protocols,
            )
        };
        // SAFETY: NCCL passes the context of init and the address of its own int.
        unsafe { tuner::tune(context, function, bytes, costs, protocols, channels) }
    })
}

unsafe extern "C" fn get_chunk_size(
    context: *mut c_void,
    function: c_int,
    bytes: usize,
    algorithm: c_int,
    protocol: c_int,
    _channels: c_int,
    chunk_size: *mut usize,
) -> NcclResult {
    // SAFETY: NCCL passes the context of init and the address of its own size.
    entry("getChunkSize", || unsafe {
        tuner::chunk(context, function, bytes, [algorithm, protocol], chunk_size)
    })
}

unsafe extern "C" fn end(context: *mut c_void) -> NcclResult {
    entry("tuner finalize", || {
        // SAFETY: NCCL passes the context of init, once, as its last use.
        unsafe { tuner::finalize(context) };
        Ok(())
    })
}
