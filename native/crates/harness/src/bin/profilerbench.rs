//! What the profiler plugin's own part of a call costs: the events of a collective, as NCCL 2.28 reports them, without NCCL.
//!
//!     BUSBW_CAPTURE=FOLDER profilerbench LIBRARY [CALLS [CHANNELS]]
//!
//! Prints nanoseconds a call, the median of ten rounds. With BUSBW_CAPTURE_MODE=timed that includes the kernel events of all channels.

use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;
use std::time::Instant;

use busbw_nccl_abi::profiler::{Coll, CollApi, Head, KERNEL_CH_STOP, KernelCh, ProfilerV5, event};

#[repr(C)]
struct Event<T> {
    head: Head,
    body: T,
}

fn table(library: &str) -> &'static ProfilerV5 {
    let path = CString::new(library).expect("a path without zero bytes");
    // SAFETY: a path; the library's constructors are those of Rust's standard library.
    let opened = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!opened.is_null(), "{library} does not load");
    // SAFETY: a library that is loaded and is never closed.
    let found = unsafe { libc::dlsym(opened, c"ncclProfiler_v5".as_ptr()) };
    // SAFETY: the symbol is this table in every busbw plugin.
    unsafe { found.cast::<ProfilerV5>().as_ref() }.expect("the library has no ncclProfiler_v5")
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let calls: u32 = arguments.get(2).map_or(100_000, |text| text.parse().expect("a number of calls"));
    let channels: u8 = arguments.get(3).map_or(1, |text| text.parse().expect("a number of channels"));
    let profiler = table(arguments.get(1).expect("the path of the library"));
    let (mut context, mut mask) = (null_mut::<c_void>(), 0 as c_int);
    // SAFETY: as NCCL calls it.
    unsafe { (profiler.init)(&raw mut context, 1, &raw mut mask, c"comm".as_ptr(), 1, 2, 0, None) };
    println!("mask {mask:#x}");
    let head = |kind, parent| Head { kind, parent, rank: 0 };
    let (func, datatype) = (c"AllReduce".as_ptr(), c"ncclFloat32".as_ptr());
    let api = CollApi { func, count: 2, datatype, root: 0, stream: null_mut(), captured: false };
    let coll = Coll {
        sequence: 0,
        func,
        send: null_mut(),
        recv: null_mut(),
        count: 2,
        root: 0,
        datatype,
        channels,
        warps: 4,
        algo: c"RING".as_ptr(),
        proto: c"LL".as_ptr(),
    };
    let start = |kind, parent, body: *const c_void, bytes: usize| {
        let mut descr = Event { head: head(kind, parent), body: [0u8; 96] };
        let mut handle = null_mut();
        // SAFETY: a body of this kind, copied into a descriptor that lives during the call.
        unsafe {
            std::ptr::copy_nonoverlapping(body.cast(), descr.body.as_mut_ptr(), bytes);
            (profiler.start_event)(context, &raw mut handle, (&raw mut descr).cast());
        }
        handle
    };
    let timed = u64::try_from(mask).is_ok_and(|mask| mask & event::KERNEL_CH != 0);
    let kernel = |task, channel| {
        let body = KernelCh { channel, timer: 1 };
        let handle = start(event::KERNEL_CH, task, (&raw const body).cast(), size_of::<KernelCh>());
        let mut ended = 2u64;
        // SAFETY: a handle of this plugin, and the time that this state carries.
        unsafe { (profiler.record_event_state)(handle, KERNEL_CH_STOP, (&raw mut ended).cast()) };
        handle
    };
    // SAFETY: handles of this plugin.
    let stop = |handle: *mut c_void| unsafe { (profiler.stop_event)(handle) };
    let mut rounds: Vec<f64> = (0..10)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..calls {
                let group = start(event::GROUP_API, null_mut(), std::ptr::null::<c_void>(), 0);
                let called = start(event::COLL_API, group, (&raw const api).cast(), size_of::<CollApi>());
                stop(called);
                let task = start(event::COLL, called, (&raw const coll).cast(), size_of::<Coll>());
                if !task.is_null() {
                    stop(task);
                }
                for channel in 0..if timed { channels } else { 0 } {
                    stop(kernel(task, channel));
                }
                stop(group);
            }
            begun.elapsed().as_nanos() as f64 / f64::from(calls)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{:.0} ns a call ({:.0} to {:.0})", rounds[5], rounds[0], rounds[9]);
}
