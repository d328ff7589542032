//! The version of this library.

use std::ffi::{CStr, c_char};

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no zero byte"),
    };

/// The version as text, such as `0.1.0`. busbw compares it with its own.
#[unsafe(no_mangle)]
pub extern "C" fn busbw_version() -> *const c_char {
    VERSION.as_ptr()
}
