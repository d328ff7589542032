//! The library: the tables that NCCL looks for, and the functions that busbw.accel and `busbw env net` call.
//!
//! NCCL also looks for tuner and profiler symbols in this library. It finds a tuner, which acts only if this network is used, and continues
//! without a profiler.

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
