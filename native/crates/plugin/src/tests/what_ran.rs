//! What the plugin says of calls whose events are made here.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use busbw_nccl_abi::profiler::{Coll, CollApi, CollParent, CollVariant, event};

use crate::what_ran::{begun, busbw_ran_ask, busbw_ran_start, busbw_ran_stop, context, is_context};

const ROOM: usize = 256;

fn call(function: &CStr) -> CollApi {
    CollApi {
        func: function.as_ptr(),
        count: 8,
        datatype: c"ncclFloat32".as_ptr(),
        root: 0,
        stream: null_mut(),
        captured: false,
    }
}

fn task(function: &CStr, algo: &CStr, variant: Option<&CStr>) -> CollVariant {
    let coll = Coll {
        sequence: 1,
        func: function.as_ptr(),
        send: null_mut(),
        recv: null_mut(),
        count: 8,
        root: 0,
        datatype: c"ncclFloat32".as_ptr(),
        channels: 4,
        warps: 16,
        algo: algo.as_ptr(),
        proto: c"".as_ptr(),
    };
    CollVariant {
        parent: CollParent { coll, plan: null_mut() },
        variant: variant.map_or(null_mut(), |name| name.as_ptr().cast_mut()),
        symmetric: variant.is_some(),
    }
}

/// What the plugin answers about these calls and tasks.
fn answer(calls: &mut [CollApi], tasks: &mut [CollVariant]) -> String {
    assert_ne!(busbw_ran_start(), 0);
    for body in calls {
        let body: *mut CollApi = body;
        // SAFETY: the body of a call, with C strings.
        assert!(!unsafe { begun(body.cast::<c_void>(), event::COLL_API) }.is_null());
    }
    for body in tasks {
        let body: *mut CollVariant = body;
        // SAFETY: the body of a collective of v7, with which older ones begin, with C strings.
        assert!(!unsafe { begun(body.cast::<c_void>(), event::COLL) }.is_null());
    }
    let mut text: [c_char; ROOM] = [0; ROOM];
    // SAFETY: so much room, which ends with a zero byte.
    unsafe {
        assert_eq!(busbw_ran_stop(text.as_mut_ptr(), ROOM), 0);
        CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()
    }
}

#[test]
fn kernels_over_symmetric_memory_are_told_as_far_as_each_interface_tells_them() {
    const SILENT: &str = "symmetric\tAllReduce\t\t\t0\t\n";
    let mask: &mut c_int = Box::leak(Box::new(0));
    busbw_ran_ask();
    for (interface, silent) in [(4, ""), (5, SILENT), (6, SILENT), (7, "")] {
        assert!(is_context(context(interface, mask)));
        let ring = "coll\tAllReduce\tRING\t\t4\t\n";
        assert_eq!(
            answer(&mut [call(c"AllReduce")], &mut [task(c"AllReduce", c"RING", None)]),
            ring
        );
        assert_eq!(answer(&mut [call(c"AllReduce")], &mut []), silent);
        assert_eq!(answer(&mut [call(c"Broadcast")], &mut []), "");
    }
    let named = task(c"AllReduce", c"AGxLL_R", Some(c"AllReduce_AGxLL_R"));
    assert_eq!(
        answer(&mut [call(c"AllReduce")], &mut [named]),
        "symmetric\tAllReduce\tAGxLL_R\t\t4\tAllReduce_AGxLL_R\n"
    );
}
