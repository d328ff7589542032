//! Bytes as a handle: what is read is what would be written.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| transport::properties::handle(bytes));
