//! Programs around the transport: raw TCP limits, and the plugin driven as NCCL drives it.
fn main() {}
