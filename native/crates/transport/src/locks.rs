//! Locks that outlive a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The lock, also after a thread that held it has panicked: the panic has been told, and what such locks guard here are numbers and
/// lists that stay consistent between statements.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
