//! AdamW over fp32 weights and moments in host memory, with gradients and copies of the weights in
//! bf16 or fp32.
//!
//! Each element is computed by itself, with the same operations in the same order on every
//! processor, so the result has the same bits for any number of threads, any division into blocks,
//! and with or without AVX2. Multiplications and additions are not fused.

mod bf16;
mod kernel;
mod pool;

pub use bf16::{narrow, widen};
pub use kernel::{Change, Rule, Slab, update};
pub use pool::Pool;
