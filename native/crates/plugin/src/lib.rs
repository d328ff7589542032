//! The plugin NCCL loads: exported tables, version adapters and nothing else.
//!
//! NCCL looks for tuner and profiler symbols in this library too; there are none, so it goes on without.

mod entry;
mod logger;
mod net;
mod net_v11;
mod net_v8;
mod setup;
#[cfg(test)]
mod tests;
mod traffic;

/// For NCCL 2.20 to 2.27.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v8: nccl_abi::net_v8::Net = net_v8::TABLE;

/// For NCCL 2.28 and newer.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v11: nccl_abi::net_v11::Net = net_v11::TABLE;
