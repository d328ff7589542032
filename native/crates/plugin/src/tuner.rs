//! Algorithm, protocol and channels of collectives: those of a user's table, else what suits this
//! network between hosts.
//!
//! NCCL makes two channels for a network device, which move at most 10 GB/s between a GPU and the
//! network. busbw asks for more on fast links (src/busbw/core/networks.py). As each channel sends
//! messages of its own, small collectives get fewer of them here. From a certain size on they also
//! get protocol Simple, since LL sends twice the bytes. Measured in `benchmarks/net_2xh200_202611`.

use std::ffi::{c_float, c_int, c_void};

use busbw_nccl_abi::common::Logger;
use busbw_nccl_abi::tuner::{NVLS, NVLS_TREE, SIMPLE, TREE, function};
use busbw_transport::Error;

use crate::entry::{given, names_us};
use crate::net::{Net, saturated};
use crate::tuner_table::{Table, Wanted};
use crate::{logger, tuner_steering};

/// Bytes that a rank sends at once from which on Simple is faster than LL and LL128.
const SIMPLE_FROM: usize = 64 << 10;
/// Bytes that a rank sends at once, and the number of channels up to that size. Above the last, all
/// channels are used.
const CHANNELS: [(usize, c_int); 4] = [(4 << 10, 1), (512 << 10, 2), (1 << 20, 4), (2 << 20, 8)];

/// Bytes of an all-reduce up to which Tree is faster than Ring.
const TREE_UP_TO: usize = 2 << 10;
/// The same with several ranks on each of two hosts, where a ring has more steps and a tree still
/// crosses the network twice. Measured with two ranks each, without NVLS
/// (`benchmarks/net_2x2_4xh200_202611`), so this and what follows holds for few ranks only.
const SHARED_TREE_UP_TO: usize = 8 << 10;
/// There, bytes that a rank of an all-reduce sends at once up to which one channel is fastest.
const SHARED_ONE_CHANNEL: usize = 8 << 10;
/// From there on, up to these bytes of the all-reduce, Tree with Simple is. Above them no
/// difference to Ring was shown (`benchmarks/net_2x2_4xh100_202611`), so NCCL chooses.
const SHARED_TREE_SIMPLE_UP_TO: usize = 16 << 20;
const SHARED_RANKS: usize = 8;

/// An entry that costs so many times the cheapest has a penalty. NCCL's is 1024; `busbw tune`
/// measures nothing above 8 times.
const PENALTY: c_float = 100.0;

/// What a collective should use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Favour {
    /// The cheapest in NCCL's model.
    Nothing,
    /// Algorithm Tree with its cheapest protocol.
    Tree,
    /// Protocol Simple with its cheapest algorithm.
    Simple,
    /// Algorithm Tree with protocol Simple.
    TreeSimple,
    /// One entry of the cost table.
    Entry(Wanted),
}

/// What is known of a communicator: its size, whether it may use this network, and what its user
/// wants.
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

    /// The most channels of a collective, and what it should use. None leaves it to NCCL. Depends
    /// only on what is equal on all ranks. `trees`: NCCL can run Tree with Simple, and neither NVLS
    /// nor NVLSTree.
    pub fn choose(&self, function: c_int, bytes: usize, trees: bool) -> Option<(c_int, Favour)> {
        match self.table.wanted(function, bytes) {
            Some(wanted) => Some((wanted.channels, Favour::Entry(wanted))),
            None => self.suits_network(function, bytes, trees),
        }
    }

    /// The same without the table.
    fn suits_network(&self, function: c_int, bytes: usize, trees: bool) -> Option<(c_int, Favour)> {
        if self.nodes < 2 || !self.network {
            return None;
        }
        let part = match function {
            function::BROADCAST | function::REDUCE => bytes,
            function::ALL_GATHER | function::REDUCE_SCATTER | function::ALL_REDUCE => {
                bytes / self.ranks.max(1)
            }
            _ => return None,
        };
        let shared = self.nodes == 2 && self.ranks > 2 && self.ranks <= SHARED_RANKS;
        if trees && shared && function == function::ALL_REDUCE && bytes <= SHARED_TREE_SIMPLE_UP_TO
        {
            return Some(suits_two_shared_hosts(bytes, part));
        }
        let favour = match function {
            _ if part >= SIMPLE_FROM => Favour::Simple,
            function::ALL_REDUCE if bytes <= TREE_UP_TO => Favour::Tree,
            _ => Favour::Nothing,
        };
        Some((channels(part), favour))
    }
}

/// For an all-reduce over two hosts with several ranks each, of which a rank sends `part` bytes at
/// once in a ring.
fn suits_two_shared_hosts(bytes: usize, part: usize) -> (c_int, Favour) {
    if bytes <= SHARED_TREE_UP_TO {
        return (1, Favour::Tree);
    }
    if part <= SHARED_ONE_CHANNEL {
        return (1, Favour::Nothing);
    }
    // Of NCCL's two trees each carries one half.
    (channels(bytes / 2), Favour::TreeSimple)
}

/// The most channels for so many bytes that are sent at once; 0 for all.
fn channels(part: usize) -> c_int {
    CHANNELS.iter().find(|(most, _)| part <= *most).map_or(0, |(_, channels)| *channels)
}

/// Whether NCCL can run Tree with Simple, and neither NVLS nor NVLSTree.
pub fn trees(costs: &[c_float], protocols: usize) -> bool {
    let runs = |algorithm: usize| {
        costs.iter().skip(algorithm * protocols).take(protocols).any(|&cost| cost >= 0.0)
    };
    let tree_simple =
        SIMPLE < protocols && costs.get(TREE * protocols + SIMPLE).is_some_and(|&cost| cost >= 0.0);
    tree_simple && !runs(NVLS) && !runs(NVLS_TREE)
}

/// Make the cheapest preferred entry the cheapest of all. Negative costs, which NCCL cannot run,
/// stay. Returns whether there is such an entry.
pub fn prefer(favour: Favour, costs: &mut [c_float], protocols: usize) -> bool {
    let favoured = |at: usize| match favour {
        Favour::Nothing => false,
        Favour::Tree => at / protocols == TREE,
        Favour::Simple => at % protocols == SIMPLE,
        Favour::TreeSimple => at == TREE * protocols + SIMPLE,
        Favour::Entry(wanted) => {
            at == wanted.algorithm * protocols + wanted.protocol && wanted.protocol < protocols
        }
    };
    let possible = (0..costs.len()).filter(|&at| favoured(at) && costs[at] >= 0.0);
    let Some(least) = possible.min_by(|&one, &other| costs[one].total_cmp(&costs[other])) else {
        return false;
    };
    if matches!(favour, Favour::Entry(_)) && penalized(costs[least], costs) {
        return false;
    }
    costs[least] = 0.0;
    true
}

/// Whether an entry has a penalty of NCCL, for what loses precision, such as Ring for fp8 over many
/// ranks.
fn penalized(cost: c_float, costs: &[c_float]) -> bool {
    let least = costs.iter().copied().filter(|&one| one >= 0.0).min_by(c_float::total_cmp);
    least.is_some_and(|least| cost > PENALTY * least)
}

/// A context if there is a table, `busbw tune` steers, or this network may be used: NCCL_NET names
/// no other. NULL leaves everything to NCCL. NCCL does not say which network a communicator uses,
/// and may have initialized this one without using it.
///
/// # Safety
/// `context` is NULL or valid for writing.
pub unsafe fn init(
    context: *mut *mut c_void,
    ranks: usize,
    nodes: usize,
    log: Option<Logger>,
) -> Result<(), Error> {
    let context = given(context, "pointer for the context")?;
    logger::keep(log);
    let possible =
        || std::env::var_os("NCCL_NET").is_none_or(|net| net.is_empty() || names_us(&net));
    let (network, table) = (
        Net::opened().is_ok_and(|net| net.transport.tunes() && possible()),
        Table::of_environment(ranks, nodes),
    );
    let made = if network || !table.is_empty() || tuner_steering::armed() {
        Box::into_raw(Box::new(Tuner::new(ranks, nodes, network, table))).cast()
    } else {
        std::ptr::null_mut()
    };
    // SAFETY: not NULL, so the caller guarantees that it may be written.
    unsafe { context.write(made) };
    Ok(())
}

/// Set the channels of a collective where NCCL passes no costs, which would say what it can run. So
/// no algorithm is chosen, and a rule of the table does not hold, as its channels are for its
/// algorithm.
///
/// # Safety
/// `context` is NULL or one of `init` that was not given to `finalize`; `channels` is NULL or valid
/// for writing.
pub unsafe fn limit(
    context: *mut c_void,
    function: c_int,
    bytes: usize,
    channels: *mut c_int,
) -> Result<(), Error> {
    // SAFETY: as the caller guarantees.
    let choice =
        unsafe { tuner_at(context) }.and_then(|tuner| tuner.suits_network(function, bytes, false));
    let Some((most, _)) = choice else { return Ok(()) };
    // SAFETY: as the caller guarantees.
    unsafe { write(most, channels) }
}

/// Set the channels of a collective, and make what it should use the cheapest of the costs, which
/// have `protocols` columns.
///
/// # Safety
/// As of `limit`.
pub unsafe fn tune(
    context: *mut c_void,
    function: c_int,
    bytes: usize,
    costs: &mut [c_float],
    protocols: usize,
    channels: *mut c_int,
) -> Result<(), Error> {
    // SAFETY: as the caller guarantees.
    let tuner = unsafe { tuner_at(context) };
    let choice =
        match tuner_steering::asked(function, bytes, costs, tuner.map_or(0, |tuner| tuner.nodes)) {
            Some(wanted) => Some((wanted.channels, Favour::Entry(wanted))),
            None => tuner.and_then(|tuner| tuner.choose(function, bytes, trees(costs, protocols))),
        };
    let Some((most, favour)) = choice else { return Ok(()) };
    // The channels of a rule are for its algorithm: where that cannot run, NCCL keeps its own
    // number.
    if prefer(favour, costs, protocols) || !matches!(favour, Favour::Entry(_)) {
        // SAFETY: as the caller guarantees.
        unsafe { write(most, channels) }?;
    }
    Ok(())
}

/// Set the chunk size of a collective to that of a rule, if NCCL runs the rule's algorithm and
/// protocol.
///
/// # Safety
/// `context` is as of `limit`; `chunk_size` is NULL or valid for writing.
pub unsafe fn chunk(
    context: *mut c_void,
    function: c_int,
    bytes: usize,
    runs: [c_int; 2],
    chunk_size: *mut usize,
) -> Result<(), Error> {
    // SAFETY: as the caller guarantees.
    let wanted = unsafe { tuner_at(context) }.and_then(|tuner| tuner.table.wanted(function, bytes));
    let fits = |wanted: &Wanted| {
        wanted.chunk > 0 && [wanted.algorithm, wanted.protocol].map(saturated) == runs
    };
    if let Some(wanted) = wanted.filter(fits) {
        // SAFETY: not NULL, so the caller guarantees that it may be written.
        unsafe { given(chunk_size, "pointer for the chunk size")?.write(wanted.chunk) };
    }
    Ok(())
}

/// What `init` made for a communicator; None if it is left to NCCL.
///
/// # Safety
/// `context` is NULL or one of `init` that is not given to `finalize` during 'a.
unsafe fn tuner_at<'a>(context: *mut c_void) -> Option<&'a Tuner> {
    // SAFETY: NULL, or made by `init` with Box::into_raw.
    unsafe { context.cast::<Tuner>().as_ref() }
}

/// Set the number of channels.
///
/// # Safety
/// `channels` is NULL or valid for writing.
unsafe fn write(most: c_int, channels: *mut c_int) -> Result<(), Error> {
    // SAFETY: not NULL, so the caller guarantees that it may be written.
    unsafe { given(channels, "pointer for the channels")?.write(most) };
    Ok(())
}

/// End a communicator's context.
///
/// # Safety
/// `context` is NULL or one of `init`, and this is its last use.
pub unsafe fn finalize(context: *mut c_void) {
    if !context.is_null() {
        // SAFETY: `init` made it with Box::into_raw.
        drop(unsafe { Box::from_raw(context.cast::<Tuner>()) });
    }
}
