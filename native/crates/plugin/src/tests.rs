//! The exported functions without a connection.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::ptr::{NonNull, dangling_mut, null_mut};

use busbw_nccl_abi::common::{NcclResult, pointer, result};
use busbw_transport::{Device, Error, Kind, Level};

use crate::entry::{caught, entry, init_entry, refusal_level};
use crate::error_text::ErrorText;
use crate::exchanges::{busbw_exchange_close, busbw_exchange_join, busbw_exchange_open};
use crate::net::NetDevice;
use crate::net_v8::ncclNetPlugin_v8 as V8;
use crate::net_v11::ncclNetPlugin_v11 as V11;

mod tuner;
mod what_ran;

fn failed(kind: Kind) -> NcclResult {
    entry("test", || Err(Error::new(kind, "on purpose")))
}

#[test]
fn every_kind_of_error_has_its_result() {
    assert_eq!(entry("test", || Ok(())), result::SUCCESS);
    assert_eq!(failed(Kind::System), 2);
    assert_eq!(failed(Kind::Internal), 3);
    assert_eq!(failed(Kind::Usage), 5);
    assert_eq!(failed(Kind::Remote), 6);
}

#[test]
fn a_panic_is_an_internal_error_that_names_the_call() {
    let missing = 7;
    assert_eq!(entry("isend", || panic!("on purpose")), result::INTERNAL_ERROR);
    assert_eq!(init_entry(|| panic!("on purpose")), result::INTERNAL_ERROR);
    assert_eq!(
        caught("isend", || panic!("on purpose")).unwrap_err().message,
        "panic in isend: on purpose"
    );
    assert_eq!(
        caught("test", || panic!("no stream {missing}")).unwrap_err().message,
        "panic in test: no stream 7"
    );
}

/// Functions of which nothing can panic.
const PLAIN: [&str; 3] = ["busbw_version", "busbw_loop_step_bytes", "busbw_ran_ask"];
/// What catches a panic, or calls a function that does.
const GUARDS: [&str; 7] =
    ["entry(", "or_write(", "guarded(", "setup::", "profiler::init(", "tuner::", "traffic::"];

/// A panic that leaves an `extern "C"` function ends the application.
#[test]
fn every_function_for_c_catches_panics() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = 0;
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for file in files.filter(|path| path.is_file() && !path.ends_with("tests.rs")) {
        let text = std::fs::read_to_string(&file).unwrap();
        for function in text
            .split("extern \"C\" fn ")
            .skip(1)
            .filter(|function| function.starts_with(|c: char| c.is_alphabetic()))
        {
            let name = function.split(['(', '<']).next().unwrap();
            let body = function.split("\n}\n").next().unwrap();
            let caught = GUARDS.iter().any(|guard| body.contains(guard));
            assert!(
                caught || PLAIN.contains(&name),
                "{}: {name} does not catch panics",
                file.display()
            );
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn a_limit_that_is_no_time_is_refused_and_zero_does_not_wait() {
    let mut text = [0; 256];
    let room = |text: &mut [c_char]| ErrorText::over(text);
    let mut handle = [[0_u8; 128]];
    // SAFETY: there is room for one handle, and `text` is a local.
    let exchange = unsafe { busbw_exchange_open(1, handle.as_mut_ptr(), room(&mut text)) };
    assert!(!exchange.is_null());
    let mut join = |join_s, patience_s| {
        // SAFETY: the exchange has not joined, and there is one handle for its peer.
        let failed = unsafe {
            busbw_exchange_join(exchange, handle.as_ptr(), join_s, patience_s, room(&mut text))
        };
        // SAFETY: the call has written a C string.
        (failed, unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().unwrap().to_owned())
    };
    for wrong in [-1.0, -1e-9, f64::NAN, f64::INFINITY, 1e12, 1e300] {
        assert_eq!(
            join(wrong, 1.0),
            (1, format!("a limit of {wrong:?} s for connecting: it is 0 to 31536000 s"))
        );
        assert_eq!(
            join(1.0, wrong),
            (1, format!("a limit of {wrong:?} s for an exchange: it is 0 to 31536000 s"))
        );
    }
    assert_eq!(join(0.0, 0.0), (1, "1 of 1 ranks have not connected within 0 s".to_owned()));
    // SAFETY: `open` made it; this is its last use.
    unsafe { busbw_exchange_close(exchange) };
}

#[test]
fn a_failed_init_is_a_warning_only_if_nccl_net_names_busbw() {
    assert_eq!(refusal_level(Some(OsStr::new("BusBW"))), Level::Warn);
    assert_eq!(refusal_level(Some(OsStr::new("Socket"))), Level::Info);
    assert_eq!(refusal_level(None), Level::Info);
}

fn device(speed_mbps: u32) -> NetDevice {
    let pci_path = Some("/sys/devices/pci0000:00/0000:00:03.0".to_string());
    NetDevice::new(&Device { name: "eth1".to_string(), pci_path, speed_mbps }).unwrap()
}

#[test]
fn properties_describe_the_device() {
    let device = device(25_000);
    let (v8, v11) = (crate::net_v8::properties(3, &device), crate::net_v11::properties(3, &device));
    for name in [v8.name, v11.name] {
        // SAFETY: `name` points to a CString that `device` owns.
        assert_eq!(unsafe { CStr::from_ptr(name) }, c"eth1");
    }
    for path in [v8.pci_path, v11.pci_path] {
        // SAFETY: `path` points to a CString that `device` owns.
        assert_eq!(unsafe { CStr::from_ptr(path) }, c"/sys/devices/pci0000:00/0000:00:03.0");
    }
    assert_eq!((v8.guid, v11.guid), (3, 3));
    assert_eq!((v8.speed, v11.speed), (25_000, 25_000));
    assert_eq!((v8.ptr_support, v11.ptr_support), (pointer::HOST, pointer::HOST));
    assert_eq!((v11.v_props.ndevs, v11.v_props.devs), (1, [3, 0, 0, 0]));
    assert_eq!((v11.max_p2p_bytes, v11.max_coll_bytes), (1_099_511_627_776, 536_870_912));
}

#[test]
fn a_virtual_device_has_no_path_and_its_speed_saturates() {
    let lo =
        NetDevice::new(&Device { name: "lo".to_string(), pci_path: None, speed_mbps: u32::MAX })
            .unwrap();
    assert!(crate::net_v8::properties(0, &lo).pci_path.is_null());
    assert_eq!(lo.speed(), c_int::MAX);
}

#[test]
fn null_is_a_usage_error_everywhere() {
    let (null, nulls, ints) =
        (null_mut::<c_void>(), null_mut::<*mut c_void>(), null_mut::<c_int>());
    // SAFETY: these functions check for NULL before they use a pointer.
    let results = unsafe {
        [
            (V8.devices)(ints),
            (V8.get_properties)(0, null_mut()),
            (V8.listen)(0, null, nulls),
            (V8.connect)(0, null, nulls, null_mut()),
            (V8.accept)(null, nulls, null_mut()),
            (V8.isend)(null, null, 1, 0, null, nulls),
            (V8.irecv)(null, 1, nulls, ints, ints, nulls, nulls),
            (V8.iflush)(null, 1, nulls, ints, nulls, nulls),
            (V8.test)(null, ints, ints),
            (V11.init)(nulls, 0, null_mut(), None, None),
            (V11.get_properties)(0, null_mut()),
            (V11.listen)(null, 0, null, nulls),
            (V11.connect)(null, 0, null, nulls, null_mut()),
            (V11.isend)(null, null, 1, 0, null, null, nulls),
            (V11.irecv)(null, 1, nulls, null_mut(), ints, nulls, nulls, nulls),
        ]
    };
    assert_eq!(results, [result::INVALID_USAGE; 15]);
}

#[test]
fn closing_nothing_is_fine() {
    // SAFETY: these functions check for NULL before they use a pointer.
    let results = unsafe {
        [
            (V8.close_send)(null_mut()),
            (V8.close_recv)(null_mut()),
            (V8.close_listen)(null_mut()),
            (V11.finalize)(null_mut()),
        ]
    };
    assert_eq!(results, [result::SUCCESS; 4]);
}

#[test]
fn a_receive_has_one_buffer_and_a_refused_one_leaves_no_request() {
    let comm = NonNull::<c_void>::dangling().as_ptr();
    let (mut data, mut tags) = ([comm; 2], [0; 2]);
    for (n, size) in [(0, 1), (-1, 1), (2, 1), (1, -1)] {
        let mut request = dangling_mut::<c_void>(); // NCCL may have left flags there
        let mut sizes = [size; 2];
        let (data, sizes, tags) = (data.as_mut_ptr(), sizes.as_mut_ptr(), tags.as_mut_ptr());
        // SAFETY: the arrays hold `n` entries. Comm and buffers are not used, as the receive is
        // refused before.
        let got = unsafe { (V8.irecv)(comm, n, data, sizes, tags, null_mut(), &raw mut request) };
        let refused = (result::INVALID_USAGE, null_mut());
        assert_eq!((got, request), refused, "{n} buffers of {size} bytes");
    }
}

#[test]
fn a_negative_send_is_refused() {
    let comm = NonNull::<c_void>::dangling().as_ptr();
    let mut request = null_mut();
    // SAFETY: the comm is not used, as the size is refused before.
    let got = unsafe { (V8.isend)(comm, null_mut(), -1, 0, null_mut(), &raw mut request) };
    assert_eq!((got, request), (result::INVALID_USAGE, null_mut()));
}

#[test]
fn only_host_memory_can_be_registered() {
    for (kind, expected) in [
        (pointer::HOST, result::SUCCESS),
        (pointer::CUDA, result::INVALID_USAGE),
        (pointer::DMABUF, result::INVALID_USAGE),
    ] {
        let mut mhandle = null_mut();
        // SAFETY: regMr uses neither comm nor memory; `mhandle` is a local.
        let got = unsafe { (V8.reg_mr)(null_mut(), null_mut(), 4096, kind, &raw mut mhandle) };
        assert_eq!((got, mhandle), (expected, null_mut()), "type {kind:#x}");
    }
}

#[test]
fn nothing_is_flushed() {
    let mut request = dangling_mut::<c_void>();
    // SAFETY: iflush uses only the request, a local.
    let got = unsafe {
        (V11.iflush)(null_mut(), 1, null_mut(), null_mut(), null_mut(), &raw mut request)
    };
    assert_eq!((got, request), (result::INTERNAL_ERROR, null_mut()));
}
