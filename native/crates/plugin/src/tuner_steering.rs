//! What `busbw tune` wants the next operations of one function and size to run with, and NCCL's
//! costs for them.
//!
//! A table is read once for each communicator. Steering changes between two operations of one
//! communicator, so that candidates are measured in turn over the same connections.

use std::ffi::{c_float, c_int};
use std::slice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use busbw_transport::lock;

use crate::entry::guarded;
use crate::tuner_table::Wanted;

static ARMED: AtomicBool = AtomicBool::new(false);
static STEERING: Mutex<Steering> =
    Mutex::new(Steering { function: -1, bytes: 0, wanted: None, costs: Vec::new(), nodes: 0 });

/// The operations that are steered, what they should run with (None: what they would without
/// steering), and for one that NCCL asked for: the cost table that it passed, and the nodes of its
/// communicator.
#[derive(Debug)]
struct Steering {
    function: c_int,
    bytes: usize,
    wanted: Option<Wanted>,
    costs: Vec<c_float>,
    nodes: usize,
}

/// Whether this process steers: its communicators then have a tuner.
pub fn armed() -> bool {
    ARMED.load(Ordering::Acquire)
}

/// What this operation should run with, None if nothing is steered to; if the operation is steered,
/// keeps the costs and the number of nodes.
pub fn asked(function: c_int, bytes: usize, costs: &[c_float], nodes: usize) -> Option<Wanted> {
    if !armed() {
        return None;
    }
    let mut steering = lock(&STEERING);
    if (steering.function, steering.bytes) != (function, bytes) {
        return None;
    }
    if costs.iter().any(|&cost| cost >= 0.0) {
        // NCCL may also ask for what no algorithm of the table runs
        costs.clone_into(&mut steering.costs);
    }
    steering.nodes = nodes;
    steering.wanted
}

/// Let operations of `function` with `bytes` run with this algorithm and protocol, in NCCL's
/// numbers, and at most `channels`; 0 channels is NCCL's number. With a negative algorithm they run
/// as without steering: as a table or this network's rules say, else as NCCL chooses. Their costs
/// are kept then too. A negative function steers nothing. All ranks must say the same.
#[unsafe(no_mangle)]
pub extern "C" fn busbw_tuner_steer(
    function: c_int,
    bytes: usize,
    algorithm: c_int,
    protocol: c_int,
    channels: c_int,
) {
    guarded("busbw_tuner_steer", (), || {
        let wanted = usize::try_from(algorithm).ok().zip(usize::try_from(protocol).ok()).map(
            |(algorithm, protocol)| Wanted {
                algorithm,
                protocol,
                channels: channels.max(0),
                chunk: 0,
            },
        );
        let mut steering = lock(&STEERING);
        *steering = Steering { function, bytes, wanted, costs: Vec::new(), nodes: 0 };
        ARMED.store(true, Ordering::Release);
    });
}

/// Copy NCCL's cost table for the steered operations, as it was before steering: microseconds by
/// algorithm and protocol, negative for what NCCL cannot run. Returns the number of entries, 0 if
/// NCCL has not asked since the last call of `busbw_tuner_steer`.
///
/// # Safety
/// `costs` has room for `most` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_tuner_costs(costs: *mut c_float, most: usize) -> usize {
    guarded("busbw_tuner_costs", 0, || {
        if costs.is_null() {
            return 0;
        }
        let steering = lock(&STEERING);
        let count = steering.costs.len().min(most);
        // SAFETY: not NULL, and the caller guarantees the room.
        unsafe { slice::from_raw_parts_mut(costs, count) }
            .copy_from_slice(&steering.costs[..count]);
        count
    })
}

/// The nodes of the communicator of the steered operations as NCCL counts them: hosts that NVLink
/// joins may be one. 0 if NCCL has not asked since the last call of `busbw_tuner_steer`.
#[unsafe(no_mangle)]
pub extern "C" fn busbw_tuner_nodes() -> usize {
    guarded("busbw_tuner_nodes", 0, || lock(&STEERING).nodes)
}
