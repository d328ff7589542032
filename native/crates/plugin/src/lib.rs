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
mod rate;
mod setup;
#[cfg(test)]
mod tests;
mod traffic;
mod tuner;
