//! What NCCL reports to a profiler, recorded for `busbw capture`. Without BUSBW_CAPTURE nothing is
//! asked for but what `what_ran` wants to know.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use busbw_events::{Launches, Recorder, Untimed};
use busbw_nccl_abi::common::{Logger, NcclResult, result};
use busbw_nccl_abi::profiler::{BODY, KERNEL_CH_STOP};
use busbw_transport::Error;

use crate::entry::{entry, given};
use crate::handles::{GROUP, LAUNCH, TIMING, number};
use crate::profiler_events::begun;
use crate::profiler_interface::{Context, REPORTS_COPY_ENGINES, bytes, mask};
use crate::{call_clock, logger, recording, what_ran};

/// A communicator as `init` describes it.
pub struct Described {
    pub id: u64,
    pub name: *const c_char,
    pub rank: c_int,
    pub ranks: c_int,
    pub nodes: c_int,
    pub interface: u64,
}

/// `ncclFuncBroadcast`, for which NCCL 2.29, the first release with v6, reports neither task nor
/// launch.
const BROADCAST: u8 = 0;

/// The launches of a new communicator, whose GPU is this thread's; None if they are not timed by
/// events.
fn launches(recorder: &Recorder, comm: u32, interface: u64) -> Option<Arc<Launches>> {
    let clock = recorder.gpu_clock()?;
    let gpu = clock.gpu().map_err(|result| recorder.untimed(Untimed::Failed(result))).ok();
    let silent: &[u8] = if interface >= REPORTS_COPY_ENGINES { &[BROADCAST] } else { &[] };
    let launches = Launches::new(comm, gpu, silent);
    if recording::launches_later() {
        launches.set_deferred();
    }
    Some(Arc::new(launches))
}

/// Begin a communicator: `context` and `mask` for NCCL. A recorder that cannot start leaves the
/// application undisturbed.
///
/// # Safety
/// The pointers are NULL or writable, and the name is NULL or a C string.
pub unsafe fn init(
    context: *mut *mut c_void,
    mask_out: *mut c_int,
    logger: Option<Logger>,
    comm: &Described,
) -> NcclResult {
    entry("profiler init", || {
        if logger.is_some() {
            logger::keep(logger);
        }
        let (context, mask_out) =
            (given(context, "pointer for the context")?, given(mask_out, "pointer for the mask")?);
        let interface = comm.interface;
        let recorder = recording::recorder(logger, interface);
        // SAFETY: the caller guarantees a C string or NULL.
        let name = String::from_utf8_lossy(unsafe { bytes(comm.name) });
        let made = recorder.map_or_else(
            || what_ran::context(interface, mask_out.as_ptr()),
            |recorder| {
                let count = |value: c_int| u64::try_from(value).unwrap_or_default();
                let comm =
                    recorder.comm(comm.id, &name, comm.rank, count(comm.ranks), count(comm.nodes));
                Box::into_raw(Box::new(Context {
                    recorder,
                    comm,
                    interface,
                    launches: launches(recorder, comm, interface),
                }))
                .cast()
            },
        );
        let events = recorder
            .map_or(0, |recorder| mask(recorder.mode(), interface, recorder.gpu_clock().is_some()));
        // SAFETY: not NULL, and NCCL passes the addresses of its own variables.
        unsafe {
            context.write(made);
            mask_out.write(events);
        }
        if recorder.is_some() {
            recording::keep_mask(mask_out.as_ptr());
        }
        Ok(())
    })
}

/// Start an event of v4 to v7, of which `kind` and `parent` were read.
///
/// # Safety
/// `context` is of `init`, `event` writable, and `descr` a descriptor of that kind.
pub unsafe fn start(
    context: *mut c_void,
    out: *mut *mut c_void,
    descr: *mut c_void,
    kind: u64,
    parent: *mut c_void,
) -> Result<(), Error> {
    let out = given(out, "pointer for the event")?;
    // SAFETY: the caller guarantees a descriptor of this kind, whose body lies at this offset in
    // all versions. Another context is NULL, or made by `init` with Box::into_raw and not yet
    // finalized.
    let started = unsafe {
        let body = descr.byte_add(BODY);
        if what_ran::is_context(context) {
            what_ran::begun(body, kind)
        } else {
            context
                .cast::<Context>()
                .as_ref()
                .map_or(null_mut(), |context| begun(context, body, kind, parent))
        }
    };
    // SAFETY: not NULL, and NCCL passes the address of its own pointer.
    unsafe { out.write(started) };
    Ok(())
}

/// An event ends. Those of groups and launches end what is under way on this thread.
pub unsafe extern "C" fn stop_event(event: *mut c_void) -> NcclResult {
    let (group, launch) = (number(GROUP, event), number(LAUNCH, event));
    if group == 0 && launch == 0 {
        return result::SUCCESS;
    }
    entry("stopEvent", || {
        let Some(recorder) = recording::running().filter(|recorder| recorder.gpu_clock().is_some())
        else {
            return Ok(());
        };
        if group != 0 {
            call_clock::group_ended(recorder, group);
        } else {
            call_clock::launch_ended(recorder, launch);
        }
        Ok(())
    })
}

/// A state of v4 to v7: the end of a channel.
pub unsafe extern "C" fn record_event_state(
    event: *mut c_void,
    state: c_int,
    arguments: *mut c_void,
) -> NcclResult {
    entry("recordEventState", || {
        let timing = number(TIMING, event);
        let ended = state == KERNEL_CH_STOP && timing != 0;
        if let (true, Some(time), Some(recorder)) =
            (ended, NonNull::new(arguments), recording::running())
        {
            // SAFETY: with this state NCCL passes the kernel's timer.
            recorder.channel_ended(timing, unsafe { time.cast::<u64>().read() });
        }
        Ok(())
    })
}

pub unsafe extern "C" fn finalize(context: *mut c_void) -> NcclResult {
    entry("profiler finalize", || {
        if !context.is_null() && !what_ran::is_context(context) {
            // SAFETY: `init` made it with Box::into_raw, and NCCL finalizes each context once, as
            // its last use.
            let context = unsafe { Box::from_raw(context.cast::<Context>()) };
            context.recorder.comm_end(context.comm);
        }
        Ok(())
    })
}
