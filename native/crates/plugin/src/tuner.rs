//! Algorithm, protocol and channels of collectives: those of a user's table, else what suits this network between hosts.
//!
//! NCCL makes two channels for a network device, which move at most 10 GB/s between a GPU and the network. busbw asks for more on fast
//! links (src/busbw/core/networks.py). As each channel sends messages of its own, small collectives get fewer of them here. From a certain
//! size on they also get protocol Simple, since LL sends twice the bytes. Measured in `benchmarks/net_2xh200_202611`.

use std::ffi::{c_float, c_int, c_void};

use nccl_abi::common::{Logger, NcclResult};
use nccl_abi::tuner::{SIMPLE, TREE, TunerV2, TunerV5, function};
use transport::Error;

use crate::entry::{entry, given, names_us};
use crate::net::{NAME, Net};
use crate::tuner_steering;
use crate::tuner_table::{Table, Wanted};

/// For NCCL 2.21 to 2.27.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclTunerPlugin_v2: TunerV2 = TunerV2 { name: NAME.as_ptr(), init: init_v2, get_coll_info: get_coll_info_v2, destroy: finalize };

/// For NCCL 2.28 and newer.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclTunerPlugin_v5: TunerV5 = TunerV5 { name: NAME.as_ptr(), init: init_v5, get_coll_info: get_coll_info_v5, finalize };

/// Bytes that a rank sends at once from which on Simple is faster than LL and LL128.
const SIMPLE_FROM: usize = 64 << 10;
/// Bytes that a rank sends at once, and the number of channels up to that size. Above the last, all channels are used.
const CHANNELS: [(usize, c_int); 4] = [(4 << 10, 1), (512 << 10, 2), (1 << 20, 4), (2 << 20, 8)];

/// Bytes of an all-reduce up to which Tree is faster than Ring.
const TREE_UP_TO: usize = 2 << 10;

/// What a collective should use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Favour {
    /// The cheapest in NCCL's model.
    Nothing,
    /// Algorithm Tree with its cheapest protocol.
    Tree,
    /// Protocol Simple with its cheapest algorithm.
    Simple,
    /// One entry of the cost table.
    Entry(Wanted),
}

/// What is known of a communicator: its size, whether it may use this network, and what its user wants.
#[derive(Debug)]
pub struct Tuner {
    ranks: usize,
    nodes: usize,
    network: bool,
    table: Table,
}

impl Tuner {
    /// For a communicator of this size.
    pub const fn new(ranks: usize, nodes: usize, network: bool, table: Table) -> Self {
        Self { ranks, nodes, network, table }
    }

    /// The most channels of a collective, and what it should use. None leaves it to NCCL. Depends only on what is equal on all ranks.
    pub fn choose(&self, function: c_int, bytes: usize) -> Option<(c_int, Favour)> {
        if let Some(wanted) = self.table.wanted(function, bytes) {
            return Some((wanted.channels, Favour::Entry(wanted)));
        }
        if self.nodes < 2 || !self.network {
            return None;
        }
        let part = match function {
            function::BROADCAST | function::REDUCE => bytes,
            function::ALL_GATHER | function::REDUCE_SCATTER | function::ALL_REDUCE => bytes / self.ranks.max(1),
            _ => return None,
        };
        let channels = CHANNELS.iter().find(|(most, _)| part <= *most).map_or(0, |(_, channels)| *channels);
        let favour = match function {
            _ if part >= SIMPLE_FROM => Favour::Simple,
            function::ALL_REDUCE if bytes <= TREE_UP_TO => Favour::Tree,
            _ => Favour::Nothing,
        };
        Some((channels, favour))
    }
}

/// Make the cheapest preferred entry the cheapest of all. Negative costs, which NCCL cannot run, stay.
pub fn prefer(favour: Favour, costs: &mut [c_float], protocols: usize) {
    let favoured = |at: usize| match favour {
        Favour::Nothing => false,
        Favour::Tree => at / protocols == TREE,
        Favour::Simple => at % protocols == SIMPLE,
        Favour::Entry(wanted) => at == wanted.algorithm * protocols + wanted.protocol && wanted.protocol < protocols,
    };
    let possible = (0..costs.len()).filter(|&at| favoured(at) && costs[at] >= 0.0);
    if let Some(least) = possible.min_by(|&one, &other| costs[one].total_cmp(&costs[other])) {
        costs[least] = 0.0;
    }
}

/// A context if there is a table, `busbw tune` steers, or this network may be used: NCCL_NET names no other. NULL leaves everything to NCCL. NCCL does not say
/// which network a communicator uses, and may have initialized this one without using it.
unsafe fn init(context: *mut *mut c_void, ranks: usize, nodes: usize) -> Result<(), Error> {
    let context = given(context, "pointer for the context")?;
    let possible = || std::env::var_os("NCCL_NET").is_none_or(|net| net.is_empty() || names_us(&net));
    let (network, table) = (Net::opened().is_ok_and(|net| net.transport.tunes() && possible()), Table::of_environment(ranks, nodes));
    let made = if network || !table.is_empty() || tuner_steering::armed() {
        Box::into_raw(Box::new(Tuner::new(ranks, nodes, network, table))).cast()
    } else {
        std::ptr::null_mut()
    };
    // SAFETY: not NULL, and NCCL passes the address of its own context pointer.
    unsafe { context.write(made) };
    Ok(())
}

unsafe fn choose(context: *mut c_void, function: c_int, bytes: usize, channels: *mut c_int) -> Result<Favour, Error> {
    // SAFETY: NULL, or made by `init` with Box::into_raw and not yet finalized.
    let chosen = unsafe { context.cast::<Tuner>().as_ref() }.and_then(|tuner| tuner.choose(function, bytes));
    // SAFETY: the caller passes NULL or the address of NCCL's int.
    unsafe { take(chosen, channels) }
}

/// Write the channels of a choice; returns what it favours.
///
/// # Safety
/// `channels` is NULL or valid for writing.
unsafe fn take(chosen: Option<(c_int, Favour)>, channels: *mut c_int) -> Result<Favour, Error> {
    let Some((most, favour)) = chosen else { return Ok(Favour::Nothing) };
    // SAFETY: not NULL, and NCCL passes the address of its own int.
    unsafe { given(channels, "pointer for the channels")?.write(most) };
    Ok(favour)
}

unsafe extern "C" fn init_v2(ranks: usize, nodes: usize, _logger: Option<Logger>, context: *mut *mut c_void) -> NcclResult {
    // SAFETY: NCCL passes NULL or the address of its own context pointer.
    entry("tuner init", || unsafe { init(context, ranks, nodes) })
}

unsafe extern "C" fn init_v5(
    context: *mut *mut c_void,
    _comm_id: u64,
    ranks: usize,
    nodes: usize,
    _logger: Option<Logger>,
    _nvl_domain: *mut c_void,
    _constants: *mut c_void,
) -> NcclResult {
    // SAFETY: NCCL passes NULL or the address of its own context pointer.
    entry("tuner init", || unsafe { init(context, ranks, nodes) })
}

/// Sets only channels: v2 has no costs from which to choose an algorithm for a protocol, or which say what NCCL can run.
unsafe extern "C" fn get_coll_info_v2(
    context: *mut c_void,
    function: c_int,
    bytes: usize,
    _coll_net: c_int,
    _nvls: c_int,
    _pipe_ops: c_int,
    _algorithm: *mut c_int,
    _protocol: *mut c_int,
    channels: *mut c_int,
) -> NcclResult {
    // SAFETY: NCCL passes the context of init and the address of its own int.
    entry("getCollInfo", || unsafe { choose(context, function, bytes, channels) }.map(|_| ()))
}

unsafe extern "C" fn get_coll_info_v5(
    context: *mut c_void,
    function: c_int,
    bytes: usize,
    _pipe_ops: c_int,
    table: *mut *mut c_float,
    algorithms: c_int,
    protocols: c_int,
    _registered: c_int,
    channels: *mut c_int,
) -> NcclResult {
    entry("getCollInfo", || {
        let protocols = usize::try_from(protocols).unwrap_or(0).max(1);
        let costs = given(table.cast::<c_float>(), "cost table")?;
        // SAFETY: the type says pointer to pointers, but NCCL passes one array of algorithms x protocols, which only this call uses.
        let costs = unsafe { std::slice::from_raw_parts_mut(costs.as_ptr(), usize::try_from(algorithms).unwrap_or(0) * protocols) };
        let favour = match tuner_steering::asked(function, bytes, costs) {
            // SAFETY: NCCL passes the address of its own int.
            Some(Some(wanted)) => unsafe { take(Some((wanted.channels, Favour::Entry(wanted))), channels) }?,
            // SAFETY: NCCL passes the context of init and the address of its own int.
            _ => unsafe { choose(context, function, bytes, channels) }?,
        };
        if favour != Favour::Nothing {
            prefer(favour, costs, protocols);
        }
        Ok(())
    })
}

unsafe extern "C" fn finalize(context: *mut c_void) -> NcclResult {
    entry("tuner finalize", || {
        if !context.is_null() {
            // SAFETY: `init` made it with Box::into_raw, and NCCL finalizes each context once, as its last use.
            drop(unsafe { Box::from_raw(context.cast::<Tuner>()) });
        }
        Ok(())
    })
}
