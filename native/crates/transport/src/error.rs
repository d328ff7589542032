//! Errors, in NCCL's classes.

use std::fmt;

/// The class of an error, as NCCL distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A system call failed.
    System,
    /// The peer is gone or does not answer.
    Remote,
    /// An invalid setting, or a message larger than the posted buffer.
    Usage,
    /// An internal error.
    Internal,
}

/// What failed, where, and the value seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Its class.
    pub kind: Kind,
    /// One line.
    pub message: String,
}

impl Error {
    /// An error of this class.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// A system call that has just failed; `what` names its purpose.
    pub fn system(what: impl fmt::Display) -> Self {
        Self::new(Kind::System, format!("{what}: {}", std::io::Error::last_os_error()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
