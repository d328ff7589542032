//! What the programs around the transport share: words of a command line, lines between two processes, memory, and processor
//! time.

mod arguments;
mod control;
mod memory;
mod usage;

pub use arguments::Arguments;
pub use control::Control;
pub use memory::Memory;
pub use usage::{process_cpu_s, thread_cpu_s};

/// What went wrong, in one line.
pub type Failure = String;

/// An error of the system with what was asked for.
pub fn failed(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| format!("{what}: {error}")
}
