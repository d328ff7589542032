//! Handles of events: a kind and a number, not an address, so no event can reach memory that is
//! gone.

use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};

/// A call, with its group: see `of_call`.
pub const CALL: u64 = 1;
/// A group of calls.
pub const GROUP: u64 = 2;
/// A task, or a channel of its kernel: the number is that of the timing.
pub const TIMING: u64 = 3;
/// A launch: the number is that of its timing.
pub const LAUNCH: u64 = 4;
/// A plan.
pub const PLAN: u64 = 5;

const KIND_SHIFT: u32 = 60;
const GROUP_SHIFT: u32 = 36;
/// The bits of a group's number that a call's handle has.
pub const GROUP_BITS: u64 = (1 << (KIND_SHIFT - GROUP_SHIFT)) - 1;

/// The handle of this kind with a number; NULL for 0.
pub fn handle(kind: u64, number: u64) -> *mut c_void {
    if number == 0 {
        null_mut()
    } else {
        without_provenance_mut(usize::try_from(kind << KIND_SHIFT | number).unwrap_or(0))
    }
}

/// The number in a handle of this kind; 0 for another.
pub fn number(kind: u64, handle: *mut c_void) -> u64 {
    let value = handle.addr() as u64;
    if value >> KIND_SHIFT == kind { value & ((1 << KIND_SHIFT) - 1) } else { 0 }
}

/// The handle of a call: its number, and as many bits of its group's number as have room.
pub fn of_call(call: u64, group: u64) -> *mut c_void {
    handle(CALL, (group & GROUP_BITS) << GROUP_SHIFT | call)
}

/// The numbers of a call and of its group, of which `GROUP_BITS` remain; zeros for another handle.
pub fn call_and_group(handle: *mut c_void) -> (u64, u64) {
    let both = number(CALL, handle);
    (both & ((1 << GROUP_SHIFT) - 1), both >> GROUP_SHIFT)
}
