//! Bytes as the first words of a stream and as headers: what is read is what would be written.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| transport::properties::frames(bytes));
