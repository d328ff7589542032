//! The library: the tables that NCCL looks for, with their version adapters, and the functions that busbw.accel calls.
//!
//! NCCL looks for tuner and profiler symbols in this library too. It finds a tuner, which acts where this network is used; without a
//! profiler it goes on.

mod entry;
mod exchanges;
mod logger;
mod net;
mod net_v11;
mod net_v8;
mod setup;
#[cfg(test)]
mod tests;
mod traffic;
mod tuner;

/// For NCCL 2.20 to 2.27.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v8: nccl_abi::net_v8::Net = net_v8::TABLE;

/// For NCCL 2.28 and newer.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v11: nccl_abi::net_v11::Net = net_v11::TABLE;

/// For NCCL 2.21 to 2.27.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclTunerPlugin_v2: nccl_abi::tuner::TunerV2 = tuner::V2;

/// For NCCL 2.28 and newer.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static ncclTunerPlugin_v5: nccl_abi::tuner::TunerV5 = tuner::V5;
