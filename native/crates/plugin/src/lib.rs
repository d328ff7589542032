//! The library: the tables that NCCL looks for, and the functions that busbw_accel, `busbw run` and
//! `busbw tune` call.
//!
//! NCCL also looks for tuner and profiler symbols in this library. The tuner acts only if this
//! network is used, BUSBW_TUNER_TABLE is set or `busbw tune` steers, the profiler only if
//! BUSBW_CAPTURE is set or `busbw run` asks what NCCL runs.

mod call_clock;
mod coding;
mod entry;
mod error_text;
mod exchanges;
mod handles;
mod logger;
mod net;
mod net_v11;
mod net_v8;
mod profiler;
mod profiler_events;
mod profiler_interface;
mod profiler_v2;
mod profiler_v4;
mod profiler_v5_to_v7;
mod rate;
mod recording;
mod setup;
#[cfg(test)]
mod tests;
mod timed_loop;
mod traffic;
mod tuner;
mod tuner_steering;
mod tuner_table;
mod tuner_tables;
mod updates;
mod version;
mod what_ran;
