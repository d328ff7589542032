//! Locks that survive a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lock even if a thread panicked while it held the mutex. The panic has been logged, and what
/// these locks guard are numbers and lists that are consistent after every statement.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
