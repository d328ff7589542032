//! NCCL's plugin structures, one module for each version. Layouts only, for 64-bit Linux; sizes and
//! offsets are checked at compile time.

/// Asserts the size of a C structure and the offset of each field. Every field must be named.
macro_rules! layout {
    ($type:ident, $size:literal, { $($field:ident @ $offset:expr),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(std::mem::offset_of!($type, $field) == $offset);)*
        };
        // No `..`, so a missing field does not compile.
        const _: fn(&$type) = |$type { $($field: _),* }| {};
    };
}

pub mod common;
pub mod net_v11;
pub mod net_v8;
pub mod profiler;
pub mod tuner;
