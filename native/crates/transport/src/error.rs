//! What can go wrong, in NCCL's classes.

use std::fmt;

/// The class of an error, as NCCL tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A system call failed.
    System,
    /// The peer is gone or does not answer.
    Remote,
    /// A value that cannot be meant: a setting, or more bytes than were posted.
    Usage,
    /// A fault in this code.
    Internal,
}

/// What went wrong, where, and with which value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Its class.
    pub kind: Kind,
    /// One line.
    pub message: String,
}

impl Error {
    /// An error of a class.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// A system call that failed just now: `what` says what was asked for.
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
