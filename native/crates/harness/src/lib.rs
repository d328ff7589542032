//! Shared by the programs that measure the transport: arguments, a control connection between two
//! processes, memory, and processor time.

mod arguments;
mod control;
mod memory;
mod usage;

pub use arguments::Arguments;
pub use control::Control;
pub use memory::Memory;
pub use usage::{process_cpu_s, thread_cpu_s};

/// An error in one line.
pub type Failure = String;

/// A system error and its context.
pub fn failed(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| format!("{what}: {error}")
}
