//! The rate of the network, for `busbw run --net busbw`, which chooses the number of channels
//! before NCCL starts.

use std::ffi::{CStr, c_char};

use busbw_transport::config::Config;

use crate::entry::guarded;

/// Mbit/s of the interfaces that the transport would use with `environment`: lines of `NAME=value`,
/// each ended by a zero byte; an empty line ends the block. Returns 0 if the speed is not known or
/// a setting is invalid.
///
/// # Safety
/// `environment` is such a block, and stays unchanged during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_net_mbps(environment: *const c_char) -> u32 {
    guarded("busbw_net_mbps", 0, || {
        // SAFETY: the caller guarantees such a block.
        let variables = unsafe { variables(environment) };
        Config::read(variables.into_iter())
            .ok()
            .and_then(|config| busbw_transport::stated_mbps(&config))
            .unwrap_or(0)
    })
}

/// The names and values of a block.
///
/// # Safety
/// As of `busbw_net_mbps`.
unsafe fn variables(environment: *const c_char) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    let mut at = environment;
    loop {
        // SAFETY: the caller guarantees that each line ends with a zero byte and that an empty line
        // ends the block, where this loop stops.
        let line = unsafe { CStr::from_ptr(at) };
        if line.is_empty() {
            return variables;
        }
        at = at.wrapping_add(line.count_bytes() + 1);
        variables.extend(
            line.to_str()
                .ok()
                .and_then(|line| line.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
    }
}
