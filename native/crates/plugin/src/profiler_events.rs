//! The descriptors of v4 to v7 as records.

use std::ffi::{c_char, c_void};
use std::ptr::null;

use busbw_events::{Call, Kind, Task, flag};
use busbw_nccl_abi::profiler::{
    CeColl, Coll, CollApi, CollParent, CollVariant, GroupApi, KernelCh, KernelLaunch, P2p, P2pApi,
    P2pParent, event,
};

use crate::handles::{
    GROUP, GROUP_BITS, LAUNCH, PLAN, TIMING, call_and_group, handle, number, of_call,
};
use crate::profiler_interface::{Context, REPORTS_CALLS, TELLS_SYMMETRIC, bytes};
use crate::{call_clock, recording};

/// The handle of an event whose descriptor has this body.
///
/// # Safety
/// `body` is that of a descriptor of this kind, in the version of the context.
pub unsafe fn begun(
    context: &Context,
    body: *mut c_void,
    kind: u64,
    parent: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller guarantees a body of this kind and version.
    unsafe {
        match kind {
            event::GROUP_API => group(context, &*body.cast()),
            event::COLL_API => coll_call(context, &*body.cast(), parent),
            event::P2P_API => p2p_call(context, &*body.cast(), parent),
            event::KERNEL_LAUNCH => launch(context, &*body.cast(), parent),
            event::PLAN => handle(PLAN, context.recorder.number()),
            event::COLL => coll(context, body, parent),
            event::P2P => p2p(context, body, parent),
            event::CE_COLL => ce_coll(context, &*body.cast(), parent),
            event::KERNEL_CH => {
                let timing = number(TIMING, parent);
                context.recorder.channel_started(timing, (*body.cast::<KernelCh>()).timer);
                handle(TIMING, timing)
            }
            _ => std::ptr::null_mut(),
        }
    }
}

fn group(context: &Context, body: &GroupApi) -> *mut c_void {
    let group = context.recorder.group();
    if context.launches.is_some() {
        call_clock::group_started(context.recorder, group);
        if body.captured {
            recording::ask_for_kernels(); // kernels in CUDA graphs can be timed by NCCL alone
        }
    }
    handle(GROUP, group)
}

unsafe fn coll_call(context: &Context, body: &CollApi, parent: *mut c_void) -> *mut c_void {
    // SAFETY: NCCL passes C strings.
    let call = unsafe { coded(body.func, body.datatype, null(), null()) };
    let call =
        Call { flags: captured(body.captured), peer: body.root, count: body.count as u64, ..call };
    called(context, Kind::CollCall, call, body.stream, parent)
}

unsafe fn p2p_call(context: &Context, body: &P2pApi, parent: *mut c_void) -> *mut c_void {
    // SAFETY: NCCL passes C strings.
    let call = unsafe { coded(body.func, body.datatype, null(), null()) };
    let call = Call { flags: captured(body.captured), peer: -1, count: body.count as u64, ..call };
    called(context, Kind::P2pCall, call, body.stream, parent)
}

const fn captured(captured: bool) -> u8 {
    if captured { flag::CAPTURED } else { 0 }
}

fn called(
    context: &Context,
    kind: Kind,
    call: Call,
    stream: *mut c_void,
    parent: *mut c_void,
) -> *mut c_void {
    let (group, stream) = (number(GROUP, parent), stream.addr() as u64);
    let id = context.recorder.api(kind, context.comm, call, stream, group);
    if let Some(launches) = &context.launches {
        if call.flags & flag::CAPTURED == 0 {
            call_clock::called(context.recorder, launches, id, call.function, stream);
        }
    }
    of_call(id, group)
}

fn launch(context: &Context, body: &KernelLaunch, parent: *mut c_void) -> *mut c_void {
    let Some(launches) = &context.launches else { return std::ptr::null_mut() };
    let group = number(GROUP, parent);
    let timing =
        call_clock::launch_started(context.recorder, launches, group, body.stream.addr() as u64);
    launches.launched(group & GROUP_BITS, timing);
    handle(LAUNCH, timing)
}

/// The timing of the launch that runs a task of a call; 0: none.
fn launch_of(context: &Context, call: *mut c_void, plan: *mut c_void) -> u64 {
    let Some(launches) = &context.launches else { return 0 };
    let (call, group) = call_and_group(call);
    call_clock::task_launched(call);
    launches.timing(group, number(PLAN, plan))
}

unsafe fn coll(context: &Context, body: *mut c_void, parent: *mut c_void) -> *mut c_void {
    // SAFETY: the caller guarantees a body of this kind, which later versions extend.
    let (event, plan, symmetric) = unsafe {
        let plan = if context.interface >= REPORTS_CALLS {
            (*body.cast::<CollParent>()).plan
        } else {
            std::ptr::null_mut()
        };
        let symmetric =
            context.interface >= TELLS_SYMMETRIC && (*body.cast::<CollVariant>()).symmetric;
        (&*body.cast::<Coll>(), plan, symmetric)
    };
    // SAFETY: NCCL passes C strings.
    let call = unsafe { coded(event.func, event.datatype, event.algo, event.proto) };
    let in_place = if event.send == event.recv.cast_const() { flag::IN_PLACE } else { 0 };
    let flags = in_place | if symmetric { flag::SYMMETRIC } else { 0 };
    let call = Call {
        channels: event.channels,
        flags,
        peer: event.root,
        count: event.count as u64,
        ..call
    };
    task(context, Kind::Coll, call, event.sequence, launch_of(context, parent, plan), parent)
}

unsafe fn p2p(context: &Context, body: *mut c_void, parent: *mut c_void) -> *mut c_void {
    // SAFETY: the caller guarantees a body of this kind, which later versions extend.
    let (event, plan) = unsafe {
        let plan = if context.interface >= REPORTS_CALLS {
            (*body.cast::<P2pParent>()).plan
        } else {
            std::ptr::null_mut()
        };
        (&*body.cast::<P2p>(), plan)
    };
    // SAFETY: NCCL passes C strings.
    let call = unsafe { coded(event.func, event.datatype, null(), null()) };
    let call =
        Call { channels: event.channels, peer: event.peer, count: event.count as u64, ..call };
    task(context, Kind::P2p, call, 0, launch_of(context, parent, plan), parent)
}

/// A collective of copy engines is its own launch.
unsafe fn ce_coll(context: &Context, body: &CeColl, parent: *mut c_void) -> *mut c_void {
    // SAFETY: NCCL passes C strings.
    let call = unsafe { coded(body.func, body.datatype, null(), null()) };
    let in_place = if body.send == body.recv.cast_const() { flag::IN_PLACE } else { 0 };
    let call = Call {
        flags: in_place | flag::COPY_ENGINE,
        peer: body.root,
        count: body.count as u64,
        ..call
    };
    let timing = context.launches.as_ref().map_or(0, |launches| {
        let (call, group) = call_and_group(parent);
        call_clock::task_launched(call);
        call_clock::launch_started(context.recorder, launches, group, body.stream.addr() as u64)
    });
    task(context, Kind::Coll, call, body.sequence, timing, parent);
    handle(LAUNCH, timing)
}

fn task(
    context: &Context,
    kind: Kind,
    call: Call,
    sequence: u64,
    launch: u64,
    parent: *mut c_void,
) -> *mut c_void {
    let kernels = context.launches.is_none() || recording::kernels_asked_for();
    let api = call_and_group(parent).0;
    handle(
        TIMING,
        context.recorder.task(context.comm, &Task { kind, call, api, sequence, launch, kernels }),
    )
}

/// A call with the codes of its names.
///
/// # Safety
/// The names are NULL or C strings.
pub unsafe fn coded(
    func: *const c_char,
    datatype: *const c_char,
    algo: *const c_char,
    proto: *const c_char,
) -> Call {
    // SAFETY: the caller guarantees C strings or NULL.
    let (func, datatype, algo, proto) =
        unsafe { (bytes(func), bytes(datatype), bytes(algo), bytes(proto)) };
    let (function, dtype) = (busbw_events::function(func), busbw_events::dtype(datatype));
    Call {
        function,
        dtype,
        algorithm: busbw_events::algorithm(algo),
        protocol: busbw_events::protocol(proto),
        ..Call::default()
    }
}
