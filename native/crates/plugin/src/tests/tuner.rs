//! The tuner: its rules, its table, and what `busbw tune` steers.

use std::ffi::c_void;
use std::ptr::{dangling_mut, null_mut};

use busbw_nccl_abi::common::result;
use busbw_nccl_abi::tuner::function;

use crate::tuner::{self, Favour, Tuner, prefer, trees};
use crate::tuner_steering::{busbw_tuner_costs, busbw_tuner_nodes, busbw_tuner_steer};
use crate::tuner_table::{Table, Wanted};
use crate::tuner_tables::{
    ncclTunerPlugin_v2 as TunerV2, ncclTunerPlugin_v4 as TunerV4, ncclTunerPlugin_v5 as TunerV5,
    ncclTunerPlugin_v6 as TunerV6, ncclTunerPlugin_v7 as TunerV7,
};

#[test]
fn channels_follow_the_bytes_that_a_rank_sends_at_once() {
    let tuner = Tuner::new(2, 2, true, Table::default());
    let chosen = [8, 8 << 10, 16 << 10, 128 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20]
        .map(|bytes| tuner.choose(function::ALL_REDUCE, bytes, false));
    let (tree, nothing, simple) = (Favour::Tree, Favour::Nothing, Favour::Simple);
    let expected = [
        (1, tree),
        (1, nothing),
        (2, nothing),
        (2, simple),
        (2, simple),
        (4, simple),
        (8, simple),
        (0, simple),
    ]
    .map(Some);
    assert_eq!(chosen, expected);
    assert_eq!(
        [2048, 2049].map(|bytes| tuner.choose(function::ALL_REDUCE, bytes, false)),
        [Some((1, tree)), Some((1, nothing))]
    );
    assert_eq!(
        tuner.choose(function::BROADCAST, 8, false),
        Some((1, nothing)),
        "Tree is for all-reduce only"
    );
    assert_eq!(
        Tuner::new(16, 2, true, Table::default()).choose(function::ALL_GATHER, 1 << 20, false),
        Some((2, simple)),
        "64 KiB at once"
    );
    assert_eq!(
        tuner.choose(function::BROADCAST, 1 << 20, false),
        Some((4, simple)),
        "every rank sends all of it"
    );
}

#[test]
fn with_several_ranks_on_each_of_two_hosts_trees_run_longer() {
    let choose = |ranks, nodes, bytes, trees| {
        Tuner::new(ranks, nodes, true, Table::default()).choose(function::ALL_REDUCE, bytes, trees)
    };
    let shared = |bytes| choose(4, 2, bytes, true);
    assert_eq!(shared(8 << 10), Some((1, Favour::Tree)));
    assert_eq!(shared(32 << 10), Some((1, Favour::Nothing)));
    assert_eq!(shared(64 << 10), Some((2, Favour::TreeSimple)));
    assert_eq!(shared(1 << 20), Some((2, Favour::TreeSimple)));
    assert_eq!(shared(2 << 20), Some((4, Favour::TreeSimple)), "1 MiB in each of two trees");
    assert_eq!(shared(16 << 20), Some((0, Favour::TreeSimple)));
    assert_eq!(shared(32 << 20), Some((0, Favour::Simple)));
    for (ranks, nodes, trees, reason) in
        [(4, 2, false, "NVLS"), (16, 2, true, "many ranks"), (6, 3, true, "three hosts")]
    {
        assert_eq!(choose(ranks, nodes, 1 << 20, trees), Some((2, Favour::Simple)), "{reason}");
    }
}

#[test]
fn one_host_and_unknown_collectives_are_left_to_nccl() {
    assert_eq!(
        Tuner::new(8, 1, true, Table::default()).choose(function::ALL_REDUCE, 1 << 20, false),
        None
    );
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
    let chosen = [1023, 1024, 2000, 4096, 4097, 8192]
        .map(|bytes| tuner.choose(function::ALL_REDUCE, bytes, false));
    assert_eq!(
        chosen,
        [None, Some((4, wanted)), Some((4, wanted)), Some((4, wanted)), None, None],
        "the rule of 8192 is for one host"
    );
    assert_eq!(tuner.choose(function::BROADCAST, 1024, false), None);
    let one_host = Table::parse(TABLE, 2, 1).unwrap();
    assert_eq!(
        one_host.wanted(function::ALL_REDUCE, 8192),
        Some(Wanted { algorithm: 0, protocol: 0, channels: 0, chunk: 0 })
    );
    let mut costs = [4.0; 6];
    assert!(prefer(wanted, &mut costs, 3));
    assert_eq!(costs, [4.0, 4.0, 4.0, 4.0, 4.0, 0.0]);
    for (cost, reason) in
        [(-1.0, "NCCL cannot run it"), (4.0 * 1024.0, "NCCL avoids it, for its precision")]
    {
        costs[5] = cost;
        assert!(!prefer(wanted, &mut costs, 3), "{reason}");
        assert_eq!(costs, [4.0, 4.0, 4.0, 4.0, 4.0, cost]);
    }
    assert!(!prefer(
        Favour::Entry(Wanted { algorithm: 9, protocol: 9, channels: 0, chunk: 0 }),
        &mut costs,
        3
    ));
}

#[test]
fn channels_of_a_rule_are_for_its_algorithm() {
    let context =
        Box::into_raw(Box::new(Tuner::new(2, 2, false, Table::parse(TABLE, 2, 2).unwrap()))).cast();
    for (cost, wanted) in [(5.0, 4), (-1.0, 32)] {
        let (mut costs, mut channels) = ([5.0, 5.0, 5.0, 5.0, 5.0, cost], 32);
        // SAFETY: the context was made above and ends below.
        unsafe {
            tuner::tune(context, function::ALL_REDUCE, 1024, &mut costs, 3, &raw mut channels)
        }
        .unwrap();
        assert_eq!(channels, wanted, "Tree LL128 costs {cost}");
    }
    // SAFETY: its last use.
    unsafe { tuner::finalize(context) };
}

#[test]
fn the_chunk_of_a_rule_is_for_its_algorithm_and_protocol() {
    let text = "busbw-tuner-table 1\n2 * all_reduce 1024 4096 Ring Simple 4 65536\n2 * all_reduce 8192 8192 Ring Simple 4\n";
    let context =
        Box::into_raw(Box::new(Tuner::new(2, 2, false, Table::parse(text, 2, 2).unwrap())))
            .cast::<c_void>();
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
            let got = unsafe {
                (table.get_chunk_size)(
                    context,
                    function,
                    bytes,
                    runs[0],
                    runs[1],
                    4,
                    &raw mut chunk,
                )
            };
            assert_eq!(
                (got, chunk),
                (result::SUCCESS, expected),
                "{function} of {bytes} with {runs:?}"
            );
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
        assert!(
            Table::parse(&text, 2, 2).unwrap_err().message.starts_with("line 3 is not a rule"),
            "{broken}"
        );
    }
    assert!(
        Table::parse("busbw-tuner-table 2\n", 2, 2)
            .unwrap_err()
            .message
            .starts_with("line 1 is not `busbw-tuner-table 1`")
    );
    let twice = format!("busbw-tuner-table 1\n{rule}\n2 2 all_reduce 4 9 Ring LL *\n");
    assert_eq!(
        Table::parse(&twice, 2, 2).unwrap_err().message,
        "lines 2 and 3 are for the same sizes"
    );
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
    let tuner =
        || Box::into_raw(Box::new(Tuner::new(2, 2, true, Table::default()))).cast::<c_void>();
    for (context, most, least) in [(tuner(), 2, 0.0), (null_mut(), 7, 4.0)] {
        for get_coll_info in [TunerV4.get_coll_info, TunerV5.get_coll_info] {
            let (mut channels, mut costs) = (7, [5.0_f32, 6.0, 4.0]);
            // SAFETY: `costs` is a table of 1 x 3 and `channels` an int, both locals.
            let got = unsafe {
                get_coll_info(
                    context,
                    function::ALL_REDUCE,
                    1 << 20,
                    1,
                    costs.as_mut_ptr().cast(),
                    1,
                    3,
                    0,
                    &raw mut channels,
                )
            };
            assert_eq!((got, channels, costs), (result::SUCCESS, most, [5.0, 6.0, least]));
        }
        let (mut channels, mut kept) = (7, -1);
        // SAFETY: `kept` and `channels` are ints, both locals.
        let got = unsafe {
            (TunerV2.get_coll_info)(
                context,
                function::ALL_REDUCE,
                1 << 20,
                0,
                0,
                1,
                &raw mut kept,
                &raw mut kept,
                &raw mut channels,
            )
        };
        assert_eq!((got, channels, kept), (result::SUCCESS, most, -1));
        // SAFETY: `tuner` made it with Box::into_raw; this is its last use.
        assert_eq!(unsafe { (TunerV5.finalize)(context) }, result::SUCCESS);
    }
}

#[test]
fn without_costs_a_table_does_not_hold() {
    let context =
        Box::into_raw(Box::new(Tuner::new(2, 2, true, Table::parse(TABLE, 2, 2).unwrap())))
            .cast::<c_void>();
    let (mut channels, mut kept) = (7, -1);
    // SAFETY: `kept` and `channels` are ints, both locals.
    let got = unsafe {
        (TunerV2.get_coll_info)(
            context,
            function::ALL_REDUCE,
            4096,
            0,
            0,
            1,
            &raw mut kept,
            &raw mut kept,
            &raw mut channels,
        )
    };
    assert_eq!(
        (got, channels, kept),
        (result::SUCCESS, 1, -1),
        "the network's number, not the table's 4"
    );
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
            (TunerV5.get_coll_info)(
                context,
                function::ALL_REDUCE,
                bytes,
                1,
                table.as_mut_ptr().cast(),
                1,
                3,
                0,
                &raw mut channels,
            )
        };
        assert_eq!(got, result::SUCCESS);
        (channels, table)
    };
    busbw_tuner_steer(function::ALL_REDUCE, BYTES, 0, 0, 2);
    // SAFETY: `context` is a local.
    let got = unsafe { (TunerV5.init)(&raw mut context, 0, 8, 3, None, null_mut(), null_mut()) };
    assert_eq!(got, result::SUCCESS);
    assert!(!context.is_null());
    assert_eq!((costs(), busbw_tuner_nodes()), (vec![], 0), "NCCL has not asked yet");
    assert_eq!(ask(context, BYTES), (2, [0.0, -1.0, 4.0]));
    assert_eq!((costs(), busbw_tuner_nodes()), (vec![5.0, -1.0, 4.0], 3), "as NCCL passed them");
    assert_eq!(ask(context, BYTES + 1), (7, [5.0, -1.0, 4.0]), "another size");
    busbw_tuner_steer(function::ALL_REDUCE, BYTES, 0, 1, 2);
    assert_eq!(ask(context, BYTES).1, [5.0, -1.0, 4.0], "what NCCL cannot run is never asked for");
    busbw_tuner_steer(function::ALL_REDUCE, BYTES, -1, -1, 0);
    assert_eq!(
        (ask(context, BYTES), costs()),
        ((7, [5.0, -1.0, 4.0]), vec![5.0, -1.0, 4.0]),
        "NCCL chooses, and its costs are known"
    );
    // SAFETY: init made it; this is its last use.
    assert_eq!(unsafe { (TunerV5.finalize)(context) }, result::SUCCESS);
}
