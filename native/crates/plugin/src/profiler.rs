//! What NCCL reports to a profiler, recorded for `busbw capture`. Without BUSBW_CAPTURE nothing is asked for.
//!
//! A handle is a kind and a number, not an address, so no event can reach memory that is gone.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null, null_mut};

use busbw_events::{Call, Kind, Mode, Recorder, Task};
use busbw_nccl_abi::common::{Logger, NcclResult, result};
use busbw_nccl_abi::profiler::{BODY, Coll, CollApi, KERNEL_CH_STOP, KernelCh, P2p, P2pApi, event};
use busbw_transport::Error;

use crate::entry::{entry, given};
use crate::{logger, recording};

/// A communicator.
pub struct Context {
    /// Where its events go.
    pub recorder: &'static Recorder,
    /// Its number.
    pub comm: u32,
}

/// A communicator as `init` describes it.
pub struct Described {
    pub id: u64,
    pub name: *const c_char,
    pub rank: c_int,
    pub ranks: c_int,
    pub nodes: c_int,
    pub interface: u64,
}

/// Events that tell calls and sizes; from v5 on with what the application called.
const CALLS: u64 = event::COLL | event::P2P;
const API: u64 = event::GROUP_API | event::COLL_API | event::P2P_API;

const KIND_SHIFT: u32 = 60;
const CALLED: u64 = 1;
const GROUP: u64 = 2;
const TIMING: u64 = 3;

fn handle(kind: u64, number: u64) -> *mut c_void {
    if number == 0 { null_mut() } else { std::ptr::without_provenance_mut(usize::try_from(kind << KIND_SHIFT | number).unwrap_or(0)) }
}

/// The number in a handle of this kind; 0 for another.
fn number(kind: u64, handle: *mut c_void) -> u64 {
    let value = handle.addr() as u64;
    if value >> KIND_SHIFT == kind { value & ((1 << KIND_SHIFT) - 1) } else { 0 }
}

/// The bytes of a name; none for NULL.
///
/// # Safety
/// `name` is NULL or a C string that lives as long as it is used.
pub unsafe fn bytes<'a>(name: *const c_char) -> &'a [u8] {
    // SAFETY: the caller guarantees a C string if it is not NULL.
    if name.is_null() { b"" } else { unsafe { CStr::from_ptr(name) }.to_bytes() }
}

/// The mask of events that a recorder needs.
pub fn mask(mode: Mode, api: bool) -> c_int {
    let timing = if mode == Mode::Timed { event::KERNEL_CH } else { 0 };
    c_int::try_from(CALLS | timing | if api { API } else { 0 }).unwrap_or(0)
}

/// Begin a communicator: `context` and `mask` for NCCL. A recorder that cannot start leaves the application undisturbed.
///
/// # Safety
/// The pointers are NULL or writable, and the name is NULL or a C string.
pub unsafe fn init(context: *mut *mut c_void, mask_out: *mut c_int, logger: Option<Logger>, comm: &Described) -> NcclResult {
    entry("profiler init", || {
        if logger.is_some() {
            logger::keep(logger);
        }
        let (context, mask_out) = (given(context, "pointer for the context")?, given(mask_out, "pointer for the mask")?);
        let recorder = recording::recorder(logger, comm.interface);
        // SAFETY: the caller guarantees a C string or NULL.
        let name = String::from_utf8_lossy(unsafe { bytes(comm.name) });
        let made = recorder.map_or(null_mut(), |recorder| {
            let count = |value: c_int| u64::try_from(value).unwrap_or_default();
            let comm = recorder.comm(comm.id, &name, comm.rank, count(comm.ranks), count(comm.nodes));
            Box::into_raw(Box::new(Context { recorder, comm })).cast()
        });
        // SAFETY: not NULL, and NCCL passes the addresses of its own variables.
        unsafe {
            context.write(made);
            mask_out.write(recorder.map_or(0, |recorder| mask(recorder.mode(), comm.interface >= 5)));
        }
        if recorder.is_some() {
            recording::keep_mask(mask_out.as_ptr());
        }
        Ok(())
    })
}

/// Start an event of v4 or v5, of which `kind` and `parent` were read.
///
/// # Safety
/// `context` is of `init`, `event` writable, and `descr` a descriptor of that kind.
pub unsafe fn start(context: *mut c_void, out: *mut *mut c_void, descr: *mut c_void, kind: u64, parent: *mut c_void) -> Result<(), Error> {
    let out = given(out, "pointer for the event")?;
    // SAFETY: NULL, or made by `init` with Box::into_raw and not yet finalized.
    let context = unsafe { context.cast::<Context>().as_ref() };
    // SAFETY: the caller guarantees a descriptor of this kind, whose body lies at this offset in all versions.
    let started = context.map_or(null_mut(), |context| unsafe { begun(context, descr.byte_add(BODY), kind, parent) });
    // SAFETY: not NULL, and NCCL passes the address of its own pointer.
    unsafe { out.write(started) };
    Ok(())
}

/// The handle of an event whose descriptor has this body.
unsafe fn begun(context: &Context, body: *mut c_void, kind: u64, parent: *mut c_void) -> *mut c_void {
    let Context { recorder, comm } = *context;
    match kind {
        event::GROUP_API => handle(GROUP, recorder.group()),
        event::COLL_API => {
            // SAFETY: the body of this kind of event.
            let api = unsafe { &*body.cast::<CollApi>() };
            // SAFETY: as before.
            let call = unsafe { coll_api(api) };
            handle(CALLED, recorder.api(Kind::CollCall, comm, call, api.stream.addr() as u64, number(GROUP, parent)))
        }
        event::P2P_API => {
            // SAFETY: the body of this kind of event.
            let api = unsafe { &*body.cast::<P2pApi>() };
            // SAFETY: as before.
            let call = unsafe { p2p_api(api) };
            handle(CALLED, recorder.api(Kind::P2pCall, comm, call, api.stream.addr() as u64, number(GROUP, parent)))
        }
        event::COLL => {
            // SAFETY: the body of this kind of event.
            let event = unsafe { &*body.cast::<Coll>() };
            // SAFETY: as before.
            let call = unsafe { coll(event) };
            let task = Task { kind: Kind::Coll, call, api: number(CALLED, parent), sequence: event.sequence, timed: true };
            handle(TIMING, recorder.task(comm, &task))
        }
        event::P2P => {
            // SAFETY: the body of this kind of event.
            let call = unsafe { p2p(&*body.cast::<P2p>()) };
            handle(TIMING, recorder.task(comm, &Task { kind: Kind::P2p, call, api: number(CALLED, parent), sequence: 0, timed: true }))
        }
        event::KERNEL_CH => {
            let timing = number(TIMING, parent);
            // SAFETY: the body of this kind of event.
            recorder.channel_started(timing, unsafe { (*body.cast::<KernelCh>()).timer });
            handle(TIMING, timing)
        }
        _ => null_mut(),
    }
}

/// Bits of `Call::flags`.
const CAPTURED: u8 = 1;
const IN_PLACE: u8 = 2;

/// A call with the codes of its names.
///
/// # Safety
/// The names are NULL or C strings.
pub unsafe fn coded(func: *const c_char, datatype: *const c_char, algo: *const c_char, proto: *const c_char) -> Call {
    // SAFETY: the caller guarantees C strings or NULL.
    let (func, datatype, algo, proto) = unsafe { (bytes(func), bytes(datatype), bytes(algo), bytes(proto)) };
    let (function, dtype) = (busbw_events::function(func), busbw_events::dtype(datatype));
    Call { function, dtype, algorithm: busbw_events::algorithm(algo), protocol: busbw_events::protocol(proto), ..Call::default() }
}

unsafe fn coll(event: &Coll) -> Call {
    // SAFETY: NCCL passes C strings.
    let call = unsafe { coded(event.func, event.datatype, event.algo, event.proto) };
    let flags = if event.send == event.recv.cast_const() { IN_PLACE } else { 0 };
    Call { channels: event.channels, flags, peer: event.root, count: event.count as u64, ..call }
}

unsafe fn p2p(event: &P2p) -> Call {
    // SAFETY: NCCL passes C strings.
    let call = unsafe { coded(event.func, event.datatype, null(), null()) };
    Call { channels: event.channels, peer: event.peer, count: event.count as u64, ..call }
}

unsafe fn coll_api(event: &CollApi) -> Call {
    // SAFETY: NCCL passes C strings.
    let call = unsafe { coded(event.func, event.datatype, null(), null()) };
    Call { flags: if event.captured { CAPTURED } else { 0 }, peer: event.root, count: event.count as u64, ..call }
}

unsafe fn p2p_api(event: &P2pApi) -> Call {
    // SAFETY: NCCL passes C strings.
    let call = unsafe { coded(event.func, event.datatype, null(), null()) };
    Call { flags: if event.captured { CAPTURED } else { 0 }, peer: -1, count: event.count as u64, ..call }
}

pub unsafe extern "C" fn stop_event(_event: *mut c_void) -> NcclResult {
    result::SUCCESS
}

/// A state of v4 and v5: the end of a channel.
pub unsafe extern "C" fn record_event_state(event: *mut c_void, state: c_int, arguments: *mut c_void) -> NcclResult {
    entry("recordEventState", || {
        let timing = number(TIMING, event);
        let ended = state == KERNEL_CH_STOP && timing != 0;
        if let (true, Some(time), Some(recorder)) = (ended, NonNull::new(arguments), recording::running()) {
            // SAFETY: with this state NCCL passes the kernel's timer.
            recorder.channel_ended(timing, unsafe { time.cast::<u64>().read() });
        }
        Ok(())
    })
}

pub unsafe extern "C" fn finalize(context: *mut c_void) -> NcclResult {
    entry("profiler finalize", || {
        if !context.is_null() {
            // SAFETY: `init` made it with Box::into_raw, and NCCL finalizes each context once, as its last use.
            let context = unsafe { Box::from_raw(context.cast::<Context>()) };
            context.recorder.comm_end(context.comm);
        }
        Ok(())
    })
}
