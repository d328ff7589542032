//! NCCL's plugin structures, one module a version: layouts only, no logic. 64-bit Linux; sizes and offsets are asserted when this compiles.

/// Asserts the size of a C structure and the offset of each field; every field must be named.
macro_rules! layout {
    ($type:ident, $size:literal, { $($field:ident @ $offset:expr),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(std::mem::offset_of!($type, $field) == $offset);)*
        };
        // No `..`: a field that the list leaves out does not compile.
        const _: fn(&$type) = |$type { $($field: _),* }| {};
    };
}

pub mod common;
pub mod net_v11;
pub mod net_v8;
pub mod tuner;
