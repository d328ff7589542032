//! Profiler table v2, for NCCL 2.24 to 2.26: no calls of the application and no kernels, and `init`
//! says nothing of its communicator.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use busbw_events::{Call, Kind, Mode, Recorder, Task};
use busbw_nccl_abi::common::NcclResult;
use busbw_nccl_abi::profiler::{BODY, CollV2, HeadV4, P2pV2, ProfilerV2, event};

use crate::entry::{entry, given};
use crate::net::NAME;
use crate::profiler;
use crate::profiler_events::coded;
use crate::profiler_interface::{self, bytes};
use crate::{recording, what_ran};

/// The version of the table.
const INTERFACE: u64 = 2;

/// The table.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclProfiler_v2: ProfilerV2 = ProfilerV2 {
    name: NAME.as_ptr(),
    init,
    start_event,
    stop_event: profiler::stop_event,
    record_event_state,
    finalize,
};

/// A communicator, which its first event describes.
struct Context {
    recorder: &'static Recorder,
    comm: OnceLock<u32>,
}

impl Context {
    /// The number of the communicator.
    unsafe fn comm(&self, hash: u64, name: *const c_char, rank: c_int) -> u32 {
        *self.comm.get_or_init(|| {
            // SAFETY: the caller guarantees a C string or NULL.
            self.recorder.comm(hash, &String::from_utf8_lossy(unsafe { bytes(name) }), rank, 0, 0)
        })
    }
}

unsafe extern "C" fn init(context: *mut *mut c_void, mask: *mut c_int) -> NcclResult {
    entry("profiler init", || {
        let (context, mask) =
            (given(context, "pointer for the context")?, given(mask, "pointer for the mask")?);
        let recorder = recording::recorder(None, INTERFACE);
        let asked = || what_ran::context(INTERFACE, mask.as_ptr());
        let made = recorder.map_or_else(asked, |recorder| {
            Box::into_raw(Box::new(Context { recorder, comm: OnceLock::new() })).cast()
        });
        // SAFETY: not NULL, and NCCL passes the addresses of its own variables.
        unsafe {
            context.write(made);
            mask.write(
                recorder.map_or(0, |_| profiler_interface::mask(Mode::Cheap, INTERFACE, false)),
            );
        }
        Ok(())
    })
}

unsafe extern "C" fn start_event(
    context: *mut c_void,
    event: *mut *mut c_void,
    descr: *mut c_void,
) -> NcclResult {
    entry("startEvent", || {
        let event = given(event, "pointer for the event")?;
        // SAFETY: not NULL, and NCCL passes the address of its own pointer. No event of this
        // version needs a handle.
        unsafe { event.write(null_mut()) };
        let descr = given(descr, "descriptor")?.as_ptr();
        // SAFETY: NCCL passes a descriptor of this version, whose body lies at this offset.
        let (head, body) = unsafe { (&*descr.cast::<HeadV4>(), descr.byte_add(BODY)) };
        if what_ran::is_context(context) {
            // SAFETY: the body of this kind of event.
            unsafe { what_ran::begun_v2(body, head.kind.into()) };
            // SAFETY: NULL, or made by `init` with Box::into_raw and not yet finalized.
        } else if let Some(context) = unsafe { context.cast::<Context>().as_ref() } {
            // SAFETY: the body of this kind of event.
            unsafe { record(context, head, body) };
        }
        Ok(())
    })
}

unsafe fn record(context: &Context, head: &HeadV4, body: *mut c_void) {
    match u64::from(head.kind) {
        event::COLL => {
            // SAFETY: the body of this kind of event.
            let coll = unsafe { &*body.cast::<CollV2>() };
            // SAFETY: NCCL passes C strings.
            let (call, comm) = unsafe {
                let call = coded(coll.func, coll.datatype, coll.algo, coll.proto);
                (call, context.comm(coll.comm_hash, coll.name, head.rank))
            };
            let call =
                Call { channels: coll.channels, peer: coll.root, count: coll.count as u64, ..call };
            context.recorder.task(
                comm,
                &Task {
                    kind: Kind::Coll,
                    call,
                    api: 0,
                    sequence: coll.sequence,
                    launch: 0,
                    kernels: false,
                },
            );
        }
        event::P2P => {
            // SAFETY: the body of this kind of event.
            let p2p = unsafe { &*body.cast::<P2pV2>() };
            // SAFETY: NCCL passes C strings.
            let (call, comm) = unsafe {
                let none = std::ptr::null();
                (
                    coded(p2p.func, p2p.datatype, none, none),
                    context.comm(p2p.comm_hash, p2p.name, head.rank),
                )
            };
            let call = Call { peer: p2p.peer, count: p2p.count as u64, ..call };
            context.recorder.task(
                comm,
                &Task { kind: Kind::P2p, call, api: 0, sequence: 0, launch: 0, kernels: false },
            );
        }
        _ => {}
    }
}

unsafe extern "C" fn record_event_state(
    _event: *mut c_void,
    _state: c_int,
    _arguments: *mut c_void,
) -> NcclResult {
    entry("recordEventState", || Ok(()))
}

unsafe extern "C" fn finalize(context: *mut c_void) -> NcclResult {
    entry("profiler finalize", || {
        if !context.is_null() && !what_ran::is_context(context) {
            // SAFETY: `init` made it with Box::into_raw, and NCCL finalizes each context once, as
            // its last use.
            let context = unsafe { Box::from_raw(context.cast::<Context>()) };
            if let Some(comm) = context.comm.get() {
                context.recorder.comm_end(*comm);
            }
        }
        Ok(())
    })
}
