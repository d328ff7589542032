//! Which launch of a communicator runs which of its tasks, by the events of NCCL's profiler.
//!
//! NCCL reports a launch, then the tasks that it runs, often much later and from another thread if
//! a CUDA graph was launched before. A launch names the group of its calls, a task its call's group
//! and its plan. Each plan has one launch; plans of a group are launched in order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

/// Launches whose tasks may still come: NCCL cuts a large group into several plans.
const KEPT: usize = 64;
/// Functions whose calls are told apart; codes from here on share the last place.
const FUNCTIONS: usize = 12;
/// Calls with a launch after which a function is no longer expected to have calls without one.
const EXPECTED: u8 = 200;

/// A launch whose tasks may still come.
#[derive(Clone, Copy, Debug)]
struct Launch {
    group: u64,
    plan: u64,
    timing: u64,
}

/// The launches of a communicator, and which of its calls have none that NCCL reports.
#[derive(Debug)]
pub struct Launches {
    /// Number of the communicator.
    pub comm: u32,
    /// Number of its GPU; None: its calls cannot be timed by events.
    pub gpu: Option<usize>,
    kept: Mutex<VecDeque<Launch>>,
    silent: [AtomicU8; FUNCTIONS],
    deferred: AtomicBool,
}

impl Launches {
    /// Of a communicator whose calls of the functions with these codes have no launch.
    pub fn new(comm: u32, gpu: Option<usize>, silent: &[u8]) -> Self {
        let kept = Mutex::new(VecDeque::with_capacity(KEPT));
        let made = Self {
            comm,
            gpu,
            kept,
            silent: [const { AtomicU8::new(0) }; FUNCTIONS],
            deferred: AtomicBool::new(false),
        };
        silent.iter().for_each(|function| made.set_silent(*function, true));
        made
    }

    /// A launch of calls of this group; `timing` 0: it has no time.
    pub fn launched(&self, group: u64, timing: u64) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Launch { group, plan: 0, timing });
    }

    /// The timing of the launch that runs a task; 0 if it has none, or if no launch is known.
    pub fn timing(&self, group: u64, plan: u64) -> u64 {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(launch) = kept.iter().rev().find(|launch| launch.plan == plan && plan != 0) {
            return launch.timing;
        }
        let next = kept.iter_mut().find(|launch| launch.plan == 0 && launch.group == group);
        next.map_or(0, |launch| {
            launch.plan = plan;
            launch.timing
        })
    }

    fn expected(&self, function: u8) -> &AtomicU8 {
        &self.silent[usize::from(function).min(FUNCTIONS - 1)]
    }

    /// Whether a call of the function with this code may have no launch that NCCL reports, as a
    /// recent one.
    pub fn is_silent(&self, function: u8) -> bool {
        self.expected(function).load(Ordering::Relaxed) > 0
    }

    /// Whether the last call of this function had none. NCCL chooses for each call: one over
    /// registered memory has none, others do.
    pub fn set_silent(&self, function: u8, silent: bool) {
        let expected = self.expected(function);
        let left =
            if silent { EXPECTED } else { expected.load(Ordering::Relaxed).saturating_sub(1) };
        expected.store(left, Ordering::Relaxed);
    }

    /// NCCL launches after the calls have returned, so events around a call tell nothing. True if
    /// that was not known.
    pub fn set_deferred(&self) -> bool {
        !self.deferred.swap(true, Ordering::Relaxed)
    }

    /// Whether it was set.
    pub fn is_deferred(&self) -> bool {
        self.deferred.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_of_a_group_has_its_own_launch() {
        let launches = Launches::new(0, None, &[]);
        for (group, timing) in [(1, 11), (2, 12), (2, 13), (3, 0)] {
            launches.launched(group, timing);
        }
        let asked = [(2, 5), (2, 5), (1, 4), (2, 6), (2, 5), (3, 7)];
        assert_eq!(
            asked.map(|(group, plan)| launches.timing(group, plan)),
            [12, 12, 11, 13, 12, 0]
        );
        assert_eq!(launches.timing(2, 8), 0, "more plans than launches");
    }

    #[test]
    fn a_replay_of_a_graph_finds_no_launch_of_others() {
        let launches = Launches::new(0, None, &[]);
        launches.launched(1, 0);
        assert_eq!(launches.timing(1, 1), 0);
        for timing in 2..=100 {
            launches.launched(timing, timing);
        }
        assert_eq!([2, 3].map(|plan| launches.timing(1, plan)), [0, 0]);
        assert_eq!(launches.timing(100, 4), 100);
    }

    #[test]
    fn a_function_is_silent_until_many_launches_are_seen() {
        let launches = Launches::new(0, None, &[0]);
        assert_eq!([0, 4, 255].map(|function| launches.is_silent(function)), [true, false, false]);
        for _ in 1..EXPECTED {
            launches.set_silent(0, false);
        }
        assert!(launches.is_silent(0));
        launches.set_silent(0, false);
        launches.set_silent(0, false);
        launches.set_silent(4, true);
        launches.set_silent(255, true);
        assert_eq!([0, 4, 255].map(|function| launches.is_silent(function)), [false, true, true]);
    }
}
