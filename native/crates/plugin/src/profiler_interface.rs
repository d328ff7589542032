//! What versions of NCCL's profiler interface report, the masks that ask for it, and a communicator
//! that is recorded.

use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

use busbw_events::{Launches, Mode, Recorder};
use busbw_nccl_abi::profiler::event;

/// A communicator.
pub struct Context {
    /// Where its events go.
    pub recorder: &'static Recorder,
    /// Its number.
    pub comm: u32,
    /// The version of the table.
    pub interface: u64,
    /// Its launches, if they are timed by events.
    pub launches: Option<Arc<Launches>>,
}

/// Events that tell calls and sizes; from v5 on with what the application called.
const CALLS: u64 = event::COLL | event::P2P;
const API: u64 = event::GROUP_API | event::COLL_API | event::P2P_API;
/// The first version that reports calls and launches, and the first one that reports copy engines.
pub const REPORTS_CALLS: u64 = 5;
pub const REPORTS_COPY_ENGINES: u64 = 6;
/// The first version that tells kernels over symmetric memory.
pub const TELLS_SYMMETRIC: u64 = 7;

/// The bytes of a name; none for NULL.
///
/// # Safety
/// `name` is NULL or a C string that lives as long as it is used.
pub unsafe fn bytes<'a>(name: *const c_char) -> &'a [u8] {
    // SAFETY: the caller guarantees a C string if it is not NULL.
    if name.is_null() { b"" } else { unsafe { CStr::from_ptr(name) }.to_bytes() }
}

/// The mask of events that a recorder needs from a table of this version. `events`: launches are
/// timed by events.
pub fn mask(mode: Mode, interface: u64, events: bool) -> c_int {
    let timing = match (mode, events) {
        (Mode::Cheap, _) => 0,
        (Mode::Timed, true) => event::KERNEL_LAUNCH,
        (Mode::Timed, false) => event::KERNEL_CH,
    };
    let api = if interface >= REPORTS_CALLS { API } else { 0 };
    let copies = if interface >= REPORTS_COPY_ENGINES { event::CE_COLL } else { 0 };
    c_int::try_from(CALLS | api | copies | timing).unwrap_or(0)
}
