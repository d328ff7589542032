//! The rate of the network, for `busbw run --net busbw`, which chooses the number of channels before NCCL starts.

use std::ffi::{CStr, c_char};
use std::panic::catch_unwind;

use busbw_transport::config::Config;

/// Mbit/s of the interfaces that the transport would use with `environment`: lines of `NAME=value`, each ended by a zero byte; an empty
/// line ends the block. Returns 0 if the speed is not known or a setting is invalid.
///
/// # Safety
/// `environment` is such a block, and stays unchanged during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_net_mbps(environment: *const c_char) -> u32 {
    let mut variables = Vec::new();
    let mut at = environment;
    loop {
        // SAFETY: the caller guarantees that each line ends with a zero byte and that an empty line ends the block, where this loop stops.
        let line = unsafe { CStr::from_ptr(at) };
        if line.is_empty() {
            break;
        }
        at = at.wrapping_add(line.count_bytes() + 1);
        variables.extend(line.to_str().ok().and_then(|line| line.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    let stated = || Config::read(variables.into_iter()).ok().and_then(|config| busbw_transport::stated_mbps(&config));
    catch_unwind(std::panic::AssertUnwindSafe(stated)).ok().flatten().unwrap_or(0)
}
