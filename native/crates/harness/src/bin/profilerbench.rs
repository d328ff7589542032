//! What the profiler plugin's own part of a call costs: the events of a collective, as NCCL 2.28
//! and newer report them, without NCCL.
//!
//!     BUSBW_CAPTURE=FOLDER profilerbench LIBRARY [CALLS [CHANNELS [VERSION]]]
//!
//! Prints nanoseconds a call, the median of ten rounds. With BUSBW_CAPTURE_MODE=timed that includes
//! the CUDA events around each launch, on the default stream of the first GPU, or the kernel events
//! of all channels where there is no libcuda. VERSION is that of the table, 5 to 7.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr::{null, null_mut};
use std::time::Instant;

use busbw_nccl_abi::profiler::{
    Coll, CollApi, CollParent, Head, KERNEL_CH_STOP, KernelCh, KernelLaunch, ProfilerV5, event,
};

/// Launches after which the GPU is waited for, so that it is never behind by more than there are
/// events.
const BURST: u32 = 500;

#[repr(C)]
struct Event<T> {
    head: Head,
    body: T,
}

fn opened(library: &str) -> *mut c_void {
    let path = CString::new(library).expect("a path without zero bytes");
    // SAFETY: a path; the constructors are those of Rust's standard library, and of CUDA's driver.
    unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
}

fn found(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: a library that is loaded and is never closed.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

fn table(library: &str, version: &str) -> &'static ProfilerV5 {
    let opened = opened(library);
    assert!(!opened.is_null(), "{library} does not load");
    let symbol = CString::new(format!("ncclProfiler_v{version}")).expect("a number");
    // SAFETY: the symbols of v5 to v7 are this table in every busbw plugin.
    unsafe { found(opened, &symbol).cast::<ProfilerV5>().as_ref() }
        .expect("the library has no such table: 5, 6 or 7")
}

/// Make the first GPU that of this thread; without a driver there is none.
fn use_gpu() {
    let cuda = opened("libcuda.so.1");
    if cuda.is_null() {
        return;
    }
    let mut context = null_mut();
    // SAFETY: the functions have these types in cuda.h, and write to a pointer that lives during
    // the call.
    unsafe {
        transmute::<*mut c_void, unsafe extern "C" fn(c_uint) -> c_int>(found(cuda, c"cuInit"))(0);
        let retain = found(cuda, c"cuDevicePrimaryCtxRetain");
        transmute::<*mut c_void, unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int>(retain)(
            &raw mut context,
            0,
        );
        transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> c_int>(found(
            cuda,
            c"cuCtxSetCurrent",
        ))(context);
    }
}

/// A communicator of the plugin.
struct Comm {
    profiler: &'static ProfilerV5,
    context: *mut c_void,
}

impl Comm {
    /// The handle of an event with this body.
    fn start<T>(&self, kind: u64, parent: *mut c_void, body: &T) -> *mut c_void {
        let mut descr = Event { head: Head { kind, parent, rank: 0 }, body: [0u8; 112] };
        let mut handle = null_mut();
        // SAFETY: a body of this kind, copied into a descriptor that lives during the call.
        unsafe {
            std::ptr::copy_nonoverlapping(
                (&raw const *body).cast(),
                descr.body.as_mut_ptr(),
                size_of::<T>(),
            );
            (self.profiler.start_event)(self.context, &raw mut handle, (&raw mut descr).cast());
        }
        handle
    }

    /// The end of an event, which NCCL tells only for handles that are not NULL.
    fn stop(&self, handle: *mut c_void) {
        if !handle.is_null() {
            // SAFETY: a handle of this plugin.
            unsafe { (self.profiler.stop_event)(handle) };
        }
    }

    /// One channel of a kernel.
    fn kernel(&self, task: *mut c_void, channel: u8) {
        let handle = self.start(event::KERNEL_CH, task, &KernelCh { channel, timer: 1 });
        let mut ended = 2u64;
        // SAFETY: a handle of this plugin, and the time that this state carries.
        unsafe {
            (self.profiler.record_event_state)(handle, KERNEL_CH_STOP, (&raw mut ended).cast())
        };
        self.stop(handle);
    }

    /// A collective with all of its events that the mask asks for.
    fn collective(&self, mask: u64, api: &CollApi, task: &mut CollParent) {
        let group = self.start(event::GROUP_API, null_mut(), &0u64);
        let called = self.start(event::COLL_API, group, api);
        self.stop(called);
        if mask & event::KERNEL_LAUNCH != 0 {
            self.stop(self.start(
                event::KERNEL_LAUNCH,
                group,
                &KernelLaunch { stream: api.stream },
            ));
        }
        task.plan = self.start(event::PLAN, null_mut(), &0u64);
        let enqueued = self.start(event::COLL, called, task);
        self.stop(enqueued);
        self.stop(task.plan);
        for channel in 0..if mask & event::KERNEL_CH == 0 { 0 } else { task.coll.channels } {
            self.kernel(enqueued, channel);
        }
        self.stop(group);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let calls: u32 =
        arguments.get(2).map_or(100_000, |text| text.parse().expect("a number of calls"));
    let channels: u8 =
        arguments.get(3).map_or(1, |text| text.parse().expect("a number of channels"));
    let profiler = table(
        arguments.get(1).expect("the path of the library"),
        arguments.get(4).map_or("5", String::as_str),
    );
    use_gpu();
    let (mut context, mut mask) = (null_mut::<c_void>(), 0 as c_int);
    // SAFETY: as NCCL calls it.
    unsafe { (profiler.init)(&raw mut context, 1, &raw mut mask, c"comm".as_ptr(), 1, 2, 0, None) };
    println!("mask {mask:#x}");
    let (func, datatype) = (c"AllReduce".as_ptr(), c"ncclFloat32".as_ptr());
    let (algo, proto) = (c"RING".as_ptr(), c"LL".as_ptr());
    let api = CollApi { func, count: 2, datatype, root: 0, stream: null_mut(), captured: false };
    let (send, recv) = (null(), null_mut());
    let coll = Coll {
        sequence: 0,
        func,
        send,
        recv,
        count: 2,
        root: 0,
        datatype,
        channels,
        warps: 4,
        algo,
        proto,
    };
    let mut task = CollParent { coll, plan: null_mut() };
    let (comm, mask) = (Comm { profiler, context }, u64::try_from(mask).unwrap_or_default());
    let pause = if mask & event::KERNEL_LAUNCH == 0 { 0 } else { 15 };
    let mut rounds: Vec<f64> = (0..10)
        .map(|_| {
            let mut taken = 0;
            for first in (0..calls).step_by(BURST as usize) {
                let begun = Instant::now();
                for _ in first..calls.min(first + BURST) {
                    comm.collective(mask, &api, &mut task);
                }
                taken += begun.elapsed().as_nanos();
                std::thread::sleep(std::time::Duration::from_millis(pause));
            }
            taken as f64 / f64::from(calls)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{:.0} ns a call ({:.0} to {:.0})", rounds[5], rounds[0], rounds[9]);
}
