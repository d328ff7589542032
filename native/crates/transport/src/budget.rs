//! A memory limit for each connection and for all together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that may still be reserved, here and in the enclosing budget.
pub(crate) struct Budget {
    left: AtomicUsize,
    whole: Option<Arc<Budget>>,
}

/// A reservation, which its drop returns.
pub(crate) struct Room {
    bytes: usize,
    of: Arc<Budget>,
}

impl Budget {
    /// A budget of this size.
    pub(crate) fn new(bytes: usize, whole: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(bytes), whole })
    }

    /// Reserve; None if too little is left.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<Room> {
        self.reserve(bytes).then(|| Room { bytes, of: self.clone() })
    }

    fn reserve(&self, bytes: usize) -> bool {
        if self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes))
            .is_err()
        {
            return false;
        }
        let fits = self.whole.as_ref().is_none_or(|whole| whole.reserve(bytes));
        if !fits {
            self.left.fetch_add(bytes, Ordering::Relaxed);
        }
        fits
    }

    fn give_back(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.give_back(bytes);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_takes_the_others_lack_until_it_comes_back() {
        let whole = Budget::new(10, None);
        let (a, b) = (Budget::new(8, Some(whole.clone())), Budget::new(8, Some(whole)));
        assert!(a.take(9).is_none(), "more than its own limit");
        let six = a.take(6);
        assert!(six.is_some() && b.take(5).is_none() && b.take(4).is_some());
        drop(six);
        assert!(b.take(8).is_some() && a.take(8).is_some());
    }
}
