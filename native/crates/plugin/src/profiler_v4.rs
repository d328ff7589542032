//! Profiler table v4, for NCCL 2.27.

use std::ffi::{c_char, c_int, c_void};

use busbw_nccl_abi::common::{Logger, NcclResult};
use busbw_nccl_abi::profiler::{HeadV4, ProfilerV4};

use crate::entry::{entry, given};
use crate::net::NAME;
use crate::profiler::{self, Described};

/// The table.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclProfiler_v4: ProfilerV4 = ProfilerV4 {
    name: NAME.as_ptr(),
    init,
    start_event,
    stop_event: profiler::stop_event,
    record_event_state: profiler::record_event_state,
    finalize: profiler::finalize,
};

unsafe extern "C" fn init(
    context: *mut *mut c_void,
    mask: *mut c_int,
    name: *const c_char,
    id: u64,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    logger: Option<Logger>,
) -> NcclResult {
    // SAFETY: NCCL passes the addresses of its own variables and a C string or NULL.
    unsafe {
        profiler::init(
            context,
            mask,
            logger,
            &Described { id, name, rank, ranks, nodes, interface: 4 },
        )
    }
}

unsafe extern "C" fn start_event(
    context: *mut c_void,
    event: *mut *mut c_void,
    descr: *mut c_void,
) -> NcclResult {
    entry("startEvent", || {
        // SAFETY: NCCL passes a descriptor of this version.
        let head = unsafe { given(descr, "descriptor")?.cast::<HeadV4>().as_ref() };
        // SAFETY: NCCL passes the context of init, the address of its own pointer, and a descriptor
        // of this kind.
        unsafe { profiler::start(context, event, descr, head.kind.into(), head.parent) }
    })
}
