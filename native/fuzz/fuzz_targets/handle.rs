//! Bytes as a handle: encoding what was decoded gives the same bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| busbw_transport::properties::handle(bytes));
