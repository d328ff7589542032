//! Bytes as a tuner table: it is refused or read, and each size has at most one rule, whose row and
//! column exist.
#![no_main]

use std::ffi::c_int;

#[path = "../../crates/plugin/src/tuner_table.rs"]
#[allow(dead_code)]
mod tuner_table;

/// What the module needs of the plugin.
mod logger {
    pub fn say(_level: busbw_transport::Level, _line: &str) {}
}

const SIZES: [usize; 6] = [0, 1, 1024, 1 << 20, 1 << 40, usize::MAX];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let Ok(table) = tuner_table::Table::parse(&text, 8, 2) else { return };
    for function in -1..8 as c_int {
        for size in SIZES {
            if let Some(wanted) = table.wanted(function, size) {
                assert!(wanted.algorithm < 7 && wanted.protocol < 3 && wanted.channels >= 0, "{wanted:?}");
                assert!(!table.is_empty());
            }
        }
    }
});
