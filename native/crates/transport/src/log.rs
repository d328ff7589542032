//! Log lines, which the library's user receives.

use std::sync::Arc;

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something is wrong; always shown.
    Warn,
    /// Shown with NCCL_DEBUG=INFO.
    Info,
}

/// Receives log lines, on any thread.
pub type Log = Arc<dyn Fn(Level, &str) + Send + Sync>;
