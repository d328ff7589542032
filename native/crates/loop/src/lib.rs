//! The timed loop: calls of NCCL and of the CUDA driver, prepared beforehand and run without
//! anything between them.
//!
//! A program is a list of steps. Each step is a C call with its arguments; the caller gives the
//! address of the function, so this crate links with neither library. Steps up to the last `END`
//! are iterations, which repeat; those behind it follow once, after the last iteration.

mod clock;
mod program;
mod step;

pub use program::{Limits, Outcome, Program};
pub use step::{CREATED, Step, kind};
