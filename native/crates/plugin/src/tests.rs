//! The exported functions without a connection.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::ptr::{NonNull, dangling_mut, null_mut};

use busbw_nccl_abi::common::{NcclResult, pointer, result};
use busbw_nccl_abi::tuner::function;
use busbw_transport::{Device, Error, Kind, Level, MAX_GROUP};

use crate::entry::{caught, entry, init_entry, refusal_level};
use crate::error_text::ErrorText;
use crate::exchanges::{busbw_exchange_close, busbw_exchange_join, busbw_exchange_open};
use crate::net::NetDevice;
use crate::net_v8::ncclNetPlugin_v8 as V8;
use crate::net_v11::ncclNetPlugin_v11 as V11;
use crate::tuner::{self, Favour, Tuner, prefer, trees};
use crate::tuner_steering::{busbw_tuner_costs, busbw_tuner_nodes, busbw_tuner_steer};
use crate::tuner_table::{Table, Wanted};
use crate::tuner_tables::{
    ncclTunerPlugin_v2 as TunerV2, ncclTunerPlugin_v4 as TunerV4, ncclTunerPlugin_v5 as TunerV5, ncclTunerPlugin_v6 as TunerV6,
    ncclTunerPlugin_v7 as TunerV7,
};

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
    assert_eq!(caught("isend", || panic!("on purpose")).unwrap_err().message, "panic in isend: on purpose");
    assert_eq!(caught("test", || panic!("no stream {missing}")).unwrap_err().message, "panic in test: no stream 7");
}

/// Functions of which nothing can panic.
const PLAIN: [&str; 3] = ["busbw_version", "busbw_loop_step_bytes", "busbw_ran_ask"];
/// What catches a panic, or calls a function that does.
const GUARDS: [&str; 7] = ["entry(", "or_write(", "guarded(", "setup::", "profiler::init(", "tuner::", "traffic::"];

/// A panic that leaves an `extern "C"` function ends the application.
#[test]
fn every_function_for_c_catches_panics() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| !path.ends_with("tests.rs")) {
        let text = std::fs::read_to_string(&file).unwrap();
        for function in text.split("extern \"C\" fn ").skip(1).filter(|function| function.starts_with(|c: char| c.is_alphabetic())) {
            let name = function.split(['(', '<']).next().unwrap();
            let body = function.split("\n}\n").next().unwrap();
            let caught = GUARDS.iter().any(|guard| body.contains(guard));
            assert!(caught || PLAIN.contains(&name), "{}: {name} does not catch panics", file.display());
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
        let failed = unsafe { busbw_exchange_join(exchange, handle.as_ptr(), join_s, patience_s, room(&mut text)) };
        // SAFETY: the call has written a C string.
        (failed, unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().unwrap().to_owned())
    };
    for wrong in [-1.0, -1e-9, f64::NAN, f64::INFINITY, 1e12, 1e300] {
        assert_eq!(join(wrong, 1.0), (1, format!("a limit of {wrong:?} s for connecting: it is 0 to 31536000 s")));
        assert_eq!(join(1.0, wrong), (1, format!("a limit of {wrong:?} s for an exchange: it is 0 to 31536000 s")));
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
    let lo = NetDevice::new(&Device { name: "lo".to_string(), pci_path: None, speed_mbps: u32::MAX }).unwrap();
    assert!(crate::net_v8::properties(0, &lo).pci_path.is_null());
    assert_eq!(lo.speed(), c_int::MAX);
}

#[test]
fn null_is_a_usage_error_everywhere() {
    let (null, nulls, ints) = (null_mut::<c_void>(), null_mut::<*mut c_void>(), null_mut::<c_int>());
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
    let results =
        unsafe { [(V8.close_send)(null_mut()), (V8.close_recv)(null_mut()), (V8.close_listen)(null_mut()), (V11.finalize)(null_mut())] };
    assert_eq!(results, [result::SUCCESS; 4]);
}

/// irecv of `n` buffers of `size` bytes with a flag left in the request. Returns the result and the request.
fn group(n: c_int, size: c_int) -> (NcclResult, *mut c_void) {
    let comm = NonNull::<c_void>::dangling().as_ptr();
    let mut request = dangling_mut::<c_void>();
    let mut byte = 0_u8;
    let mut data = [(&raw mut byte).cast::<c_void>(); MAX_GROUP + 1];
    let (mut sizes, mut tags) = ([size; MAX_GROUP + 1], [0; MAX_GROUP + 1]);
    // SAFETY: the arrays hold `n` entries. The comm is not used, as the group is refused before.
    let got = unsafe { (V8.irecv)(comm, n, data.as_mut_ptr(), sizes.as_mut_ptr(), tags.as_mut_ptr(), null_mut(), &raw mut request) };
    (got, request)
}

#[test]
fn an_invalid_group_is_refused_and_leaves_no_request() {
    let too_many = c_int::try_from(MAX_GROUP).unwrap() + 1;
    for (n, size) in [(0, 1), (-1, 1), (too_many, 1), (1, -1)] {
        assert_eq!(group(n, size), (result::INVALID_USAGE, null_mut()), "{n} buffers of {size} bytes");
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
    for (kind, expected) in
        [(pointer::HOST, result::SUCCESS), (pointer::CUDA, result::INVALID_USAGE), (pointer::DMABUF, result::INVALID_USAGE)]
    {
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
    let got = unsafe { (V11.iflush)(null_mut(), 1, null_mut(), null_mut(), null_mut(), &raw mut request) };
    assert_eq!((got, request), (result::INTERNAL_ERROR, null_mut()));
}

#[test]
fn channels_follow_the_bytes_that_a_rank_sends_at_once() {
    let tuner = Tuner::new(2, 2, true, Table::default());
    let chosen =
        [8, 8 << 10, 16 << 10, 128 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20].map(|bytes| tuner.choose(function::ALL_REDUCE, bytes, false));
    let (tree, nothing, simple) = (Favour::Tree, Favour::Nothing, Favour::Simple);
    let expected = [(1, tree), (1, nothing), (2, nothing), (2, simple), (2, simple), (4, simple), (8, simple), (0, simple)].map(Some);
    assert_eq!(chosen, expected);
    assert_eq!([2048, 2049].map(|bytes| tuner.choose(function::ALL_REDUCE, bytes, false)), [Some((1, tree)), Some((1, nothing))]);
    assert_eq!(tuner.choose(function::BROADCAST, 8, false), Some((1, nothing)), "Tree is for all-reduce only");
    assert_eq!(Tuner::new(16, 2, true, Table::default()).choose(function::ALL_GATHER, 1 << 20, false), Some((2, simple)), "64 KiB at once");
    assert_eq!(tuner.choose(function::BROADCAST, 1 << 20, false), Some((4, simple)), "every rank sends all of it");
}

#[test]
fn with_several_ranks_on_each_of_two_hosts_trees_run_longer() {
    let choose = |ranks, nodes, bytes, trees| Tuner::new(ranks, nodes, true, Table::default()).choose(function::ALL_REDUCE, bytes, trees);
    let shared = |bytes| choose(4, 2, bytes, true);
    assert_eq!(shared(8 << 10), Some((1, Favour::Tree)));
    assert_eq!(shared(32 << 10), Some((1, Favour::Nothing)));
    assert_eq!(shared(64 << 10), Some((2, Favour::TreeSimple)));
    assert_eq!(shared(1 << 20), Some((2, Favour::TreeSimple)));
    assert_eq!(shared(2 << 20), Some((4, Favour::TreeSimple)), "1 MiB in each of two trees");
    assert_eq!(shared(16 << 20), Some((0, Favour::TreeSimple)));
    assert_eq!(shared(32 << 20), Some((0, Favour::Simple)));
    for (ranks, nodes, trees, reason) in [(4, 2, false, "NVLS"), (16, 2, true, "many ranks"), (6, 3, true, "three hosts")] {
        assert_eq!(choose(ranks, nodes, 1 << 20, trees), Some((2, Favour::Simple)), "{reason}");
    }
}

#[test]
fn one_host_and_unknown_collectives_are_left_to_nccl() {
    assert_eq!(Tuner::new(8, 1, true, Table::default()).choose(function::ALL_REDUCE, 1 << 20, false), None);
    assert_eq!(Tuner::new(8, 2, true, Table::default()).choose(9, 1 << 20, false), None);
}

const TABLE: &str = "busbw-tuner-table 1
about gpu NVIDIA H200
2 * all_reduce 1024 4096 Ring Simple 4   # 12 % faster
2 1 all_reduce 8192 8192 Tree LL *

8 * all_reduce 1 8192 Tree LL 1
";

#[test]
fn a_table_wins_where_it_names_function_and_size() {
    let tuner = Tuner::new(2, 2, false, Table::parse(TABLE, 2, 2).unwrap());
    let wanted = Favour::Entry(Wanted { algorithm: 1, protocol: 2, channels: 4, chunk: 0 });
    let chosen = [1023, 1024, 2000, 4096, 4097, 8192].map(|bytes| tuner.choose(function::ALL_REDUCE, bytes, false));
    assert_eq!(chosen, [None, Some((4, wanted)), Some((4, wanted)), Some((4, wanted)), None, None], "the rule of 8192 is for one host");
    assert_eq!(tuner.choose(function::BROADCAST, 1024, false), None);
    let one_host = Table::parse(TABLE, 2, 1).unwrap();
    assert_eq!(one_host.wanted(function::ALL_REDUCE, 8192), Some(Wanted { algorithm: 0, protocol: 0, channels: 0, chunk: 0 }));
    let mut costs = [4.0; 6];
    assert!(prefer(wanted, &mut costs, 3));
    assert_eq!(costs, [4.0, 4.0, 4.0, 4.0, 4.0, 0.0]);
    for (cost, reason) in [(-1.0, "NCCL cannot run it"), (4.0 * 1024.0, "NCCL avoids it, for its precision")] {
        costs[5] = cost;
        assert!(!prefer(wanted, &mut costs, 3), "{reason}");
        assert_eq!(costs, [4.0, 4.0, 4.0, 4.0, 4.0, cost]);
    }
    assert!(!prefer(Favour::Entry(Wanted { algorithm: 9, protocol: 9, channels: 0, chunk: 0 }), &mut costs, 3));
}

#[test]
fn channels_of_a_rule_are_for_its_algorithm() {
    let context = Box::into_raw(Box::new(Tuner::new(2, 2, false, Table::parse(TABLE, 2, 2).unwrap()))).cast();
    for (cost, wanted) in [(5.0, 4), (-1.0, 32)] {
        let (mut costs, mut channels) = ([5.0, 5.0, 5.0, 5.0, 5.0, cost], 32);
        // SAFETY: the context was made above and ends below.
        unsafe { tuner::tune(context, function::ALL_REDUCE, 1024, &mut costs, 3, &raw mut channels) }.unwrap();
        assert_eq!(channels, wanted, "Tree LL128 costs {cost}");
    }
    // SAFETY: its last use.
    unsafe { tuner::finalize(context) };
}

#[test]
fn the_chunk_of_a_rule_is_for_its_algorithm_and_protocol() {
    let text = "busbw-tuner-table 1\n2 * all_reduce 1024 4096 Ring Simple 4 65536\n2 * all_reduce 8192 8192 Ring Simple 4\n";
    let context = Box::into_raw(Box::new(Tuner::new(2, 2, false, Table::parse(text, 2, 2).unwrap()))).cast::<c_void>();
    for (context, function, bytes, runs, expected) in [
        (context, function::ALL_REDUCE, 1024, [1, 2], 65_536),
        (context, function::ALL_REDUCE, 1024, [0, 2], 7),
        (context, function::ALL_REDUCE, 1024, [1, 1], 7),
        (context, function::ALL_REDUCE, 8192, [1, 2], 7),
        (context, function::BROADCAST, 1024, [1, 2], 7),
        (null_mut(), function::ALL_REDUCE, 1024, [1, 2], 7),
    ] {
        for table in [&TunerV6, &TunerV7] {
            let mut chunk = 7_usize;
            // SAFETY: `chunk` is a local, and the context ends below.
            let got = unsafe { (table.get_chunk_size)(context, function, bytes, runs[0], runs[1], 4, &raw mut chunk) };
            assert_eq!((got, chunk), (result::SUCCESS, expected), "{function} of {bytes} with {runs:?}");
        }
    }
    // SAFETY: Box::into_raw made it; this is its last use.
    assert_eq!(unsafe { (TunerV6.v5.finalize)(context) }, result::SUCCESS);
}

#[test]
fn a_broken_table_is_named_by_line() {
    let rule = "2 * all_reduce 8 8 Ring LL *";
    for broken in [
        "2 * all_reduce 8 8 Ring LL",
        "x * all_reduce 8 8 Ring LL *",
        "2 * alltoall 8 8 Ring LL *",
        "2 * all_reduce 8 4 Ring LL *",
        "2 * all_reduce 8 8 Rings LL *",
        "2 * all_reduce 8 8 Ring Long *",
        "2 * all_reduce 8 8 Ring LL 0",
        "2 * all_reduce 8 8 Ring LL -1",
        "2 * all_reduce 8 8 Ring LL * 4095",
        "2 * all_reduce 8 8 Ring LL * 2147483648",
        "2 * all_reduce 8 8 Ring LL * 4096 4096",
    ] {
        let text = format!("busbw-tuner-table 1\n{rule}\n{broken}\n");
        assert!(Table::parse(&text, 2, 2).unwrap_err().message.starts_with("line 3 is not a rule"), "{broken}");
    }
    assert!(Table::parse("busbw-tuner-table 2\n", 2, 2).unwrap_err().message.starts_with("line 1 is not `busbw-tuner-table 1`"));
    let twice = format!("busbw-tuner-table 1\n{rule}\n2 2 all_reduce 4 9 Ring LL *\n");
    assert_eq!(Table::parse(&twice, 2, 2).unwrap_err().message, "lines 2 and 3 are for the same sizes");
    assert!(Table::parse(&twice, 2, 3).is_ok(), "the second rule is for two hosts");
}

#[test]
fn the_cheapest_preferred_entry_wins_and_invalid_ones_stay() {
    let table = [5.0, 6.0, 9.0, 3.0, -1.0, 7.0, 1.0, 2.0, -1.0];
    let after = |favour| {
        let mut costs = table;
        prefer(favour, &mut costs, 3);
        costs
    };
    assert_eq!(after(Favour::Simple), [5.0, 6.0, 9.0, 3.0, -1.0, 0.0, 1.0, 2.0, -1.0]);
    assert_eq!(after(Favour::Tree), [0.0, 6.0, 9.0, 3.0, -1.0, 7.0, 1.0, 2.0, -1.0]);
    assert_eq!(after(Favour::TreeSimple), [5.0, 6.0, 0.0, 3.0, -1.0, 7.0, 1.0, 2.0, -1.0]);
    assert_eq!(after(Favour::Nothing), table);
    let mut none = [5.0, 6.0, -1.0];
    prefer(Favour::Simple, &mut none, 3);
    assert_eq!(none, [5.0, 6.0, -1.0], "NCCL_PROTO excludes Simple");
}

#[test]
fn trees_are_for_communicators_that_can_run_them_and_no_nvls() {
    let tree_only = [[9.0, 9.0, 5.0], [9.0, 9.0, 4.0]].concat();
    assert!(trees(&tree_only, 3));
    let with_nvls = [tree_only, [[-1.0; 3]; 2].concat(), vec![-1.0, -1.0, 3.0]].concat();
    assert!(!trees(&with_nvls, 3));
    assert!(!trees(&[9.0, 9.0, -1.0, 1.0, 1.0, 1.0], 3), "no Simple");
    assert!(!trees(&[9.0, 9.0], 2), "a table without Simple");
}

#[test]
fn tuners_write_channels_and_costs_only_with_a_context() {
    let tuner = || Box::into_raw(Box::new(Tuner::new(2, 2, true, Table::default()))).cast::<c_void>();
    for (context, most, least) in [(tuner(), 2, 0.0), (null_mut(), 7, 4.0)] {
        for get_coll_info in [TunerV4.get_coll_info, TunerV5.get_coll_info] {
            let (mut channels, mut costs) = (7, [5.0_f32, 6.0, 4.0]);
            // SAFETY: `costs` is a table of 1 x 3 and `channels` an int, both locals.
            let got =
                unsafe { get_coll_info(context, function::ALL_REDUCE, 1 << 20, 1, costs.as_mut_ptr().cast(), 1, 3, 0, &raw mut channels) };
            assert_eq!((got, channels, costs), (result::SUCCESS, most, [5.0, 6.0, least]));
        }
        let (mut channels, mut kept) = (7, -1);
        // SAFETY: `kept` and `channels` are ints, both locals.
        let got = unsafe {
            (TunerV2.get_coll_info)(context, function::ALL_REDUCE, 1 << 20, 0, 0, 1, &raw mut kept, &raw mut kept, &raw mut channels)
        };
        assert_eq!((got, channels, kept), (result::SUCCESS, most, -1));
        // SAFETY: `tuner` made it with Box::into_raw; this is its last use.
        assert_eq!(unsafe { (TunerV5.finalize)(context) }, result::SUCCESS);
    }
}

#[test]
fn without_costs_a_table_does_not_hold() {
    let context = Box::into_raw(Box::new(Tuner::new(2, 2, true, Table::parse(TABLE, 2, 2).unwrap()))).cast::<c_void>();
    let (mut channels, mut kept) = (7, -1);
    // SAFETY: `kept` and `channels` are ints, both locals.
    let got =
        unsafe { (TunerV2.get_coll_info)(context, function::ALL_REDUCE, 4096, 0, 0, 1, &raw mut kept, &raw mut kept, &raw mut channels) };
    assert_eq!((got, channels, kept), (result::SUCCESS, 1, -1), "the network's number, not the table's 4");
    // SAFETY: Box::into_raw made it; this is its last use.
    assert_eq!(unsafe { (TunerV2.destroy)(context) }, result::SUCCESS);
}

#[test]
fn without_this_network_there_is_no_tuner_context_until_tune_steers() {
    for init in [
        // SAFETY: `context` is NULL or a local of this test.
        |context: *mut *mut c_void| unsafe { (TunerV2.init)(2, 2, None, context) },
        // SAFETY: `context` is NULL or a local of this test.
        |context| unsafe { (TunerV4.init)(2, 2, None, context) },
        // SAFETY: `context` is NULL or a local of this test.
        |context| unsafe { (TunerV5.init)(context, 0, 2, 2, None, null_mut(), null_mut()) },
    ] {
        let mut context = dangling_mut::<c_void>();
        assert_eq!((init(&raw mut context), context), (result::SUCCESS, null_mut()));
        assert_eq!(init(null_mut()), result::INVALID_USAGE);
    }
    steered_operations_run_with_what_tune_wants();
}

/// Part of the test above, as steering is for the whole process and never ends.
fn steered_operations_run_with_what_tune_wants() {
    const BYTES: usize = 12_345; // of no other test
    let mut context = null_mut();
    let costs = || {
        let mut costs = [0.0_f32; 21];
        // SAFETY: there is room for 21.
        let count = unsafe { busbw_tuner_costs(costs.as_mut_ptr(), costs.len()) };
        costs[..count].to_vec()
    };
    let ask = |context, bytes| {
        let (mut channels, mut table) = (7, [5.0_f32, -1.0, 4.0]);
        // SAFETY: `table` has 1 x 3 entries and `channels` is an int, both locals.
        let got = unsafe {
            (TunerV5.get_coll_info)(context, function::ALL_REDUCE, bytes, 1, table.as_mut_ptr().cast(), 1, 3, 0, &raw mut channels)
        };
        assert_eq!(got, result::SUCCESS);
        (channels, table)
    };
    busbw_tuner_steer(function::ALL_REDUCE, BYTES, 0, 0, 2);
    // SAFETY: `context` is a local.
    assert_eq!(unsafe { (TunerV5.init)(&raw mut context, 0, 8, 3, None, null_mut(), null_mut()) }, result::SUCCESS);
    assert!(!context.is_null());
    assert_eq!((costs(), busbw_tuner_nodes()), (vec![], 0), "NCCL has not asked yet");
    assert_eq!(ask(context, BYTES), (2, [0.0, -1.0, 4.0]));
    assert_eq!((costs(), busbw_tuner_nodes()), (vec![5.0, -1.0, 4.0], 3), "as NCCL passed them");
    assert_eq!(ask(context, BYTES + 1), (7, [5.0, -1.0, 4.0]), "another size");
    busbw_tuner_steer(function::ALL_REDUCE, BYTES, 0, 1, 2);
    assert_eq!(ask(context, BYTES).1, [5.0, -1.0, 4.0], "what NCCL cannot run is never asked for");
    busbw_tuner_steer(function::ALL_REDUCE, BYTES, -1, -1, 0);
    assert_eq!((ask(context, BYTES), costs()), ((7, [5.0, -1.0, 4.0]), vec![5.0, -1.0, 4.0]), "NCCL chooses, and its costs are known");
    // SAFETY: init made it; this is its last use.
    assert_eq!(unsafe { (TunerV5.finalize)(context) }, result::SUCCESS);
}
