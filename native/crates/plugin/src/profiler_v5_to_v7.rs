//! Profiler tables v5 (NCCL 2.28), v6 (2.29 and 2.30) and v7 (2.31 and newer). They have the same
//! functions; v6 and v7 have more kinds of events, and more at the end of some descriptors.

use std::ffi::{c_char, c_int, c_void};

use busbw_nccl_abi::common::{Logger, NcclResult};
use busbw_nccl_abi::profiler::{Head, ProfilerV5};

use crate::entry::{entry, given};
use crate::net::NAME;
use crate::profiler::{self, Described};

/// The table of v5.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclProfiler_v5: ProfilerV5 = table(init::<5>);

/// The table of v6.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclProfiler_v6: ProfilerV5 = table(init::<6>);

/// The table of v7.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclProfiler_v7: ProfilerV5 = table(init::<7>);

type Init = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    Option<Logger>,
) -> NcclResult;

const fn table(init: Init) -> ProfilerV5 {
    ProfilerV5 {
        name: NAME.as_ptr(),
        init,
        start_event,
        stop_event: profiler::stop_event,
        record_event_state: profiler::record_event_state,
        finalize: profiler::finalize,
    }
}

unsafe extern "C" fn init<const INTERFACE: u64>(
    context: *mut *mut c_void,
    id: u64,
    mask: *mut c_int,
    name: *const c_char,
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
            &Described { id, name, rank, ranks, nodes, interface: INTERFACE },
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
        let head = unsafe { given(descr, "descriptor")?.cast::<Head>().as_ref() };
        // SAFETY: NCCL passes the context of init, the address of its own pointer, and a descriptor
        // of this kind.
        unsafe { profiler::start(context, event, descr, head.kind, head.parent) }
    })
}
