//! Checks a list of steps, calls of NCCL and CUDA, once, and runs it in the timed loop.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::clock::now_s;
use crate::step::{CREATED, Call, Group, OneHandle, Step};

/// `CUDA_ERROR_NOT_READY`: the stream has work left.
const NOT_READY: c_int = 600;
/// Iterations between two looks at the clock, which would cost 20 ns each.
const ITERATIONS_PER_LOOK: u64 = 16;

/// What a run did. Times are seconds of CLOCK_MONOTONIC.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The result of the call that failed, 0 if none did.
    pub code: c_int,
    /// The kind of the step that failed.
    pub kind: u32,
    /// 1 if all `IDLE` steps saw an idle stream, 0 if one of them gave up.
    pub idle: u32,
    /// Iterations that are complete; fewer than asked for if the time was up.
    pub iterations: u64,
    /// Before the first step.
    pub start_s: f64,
    /// After the last iteration.
    pub enqueued_s: f64,
    /// After the steps behind the iterations.
    pub end_s: f64,
}

/// A failed call: its result, and its step's kind.
type Failure = (c_int, u32);

/// The limits of one run.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Limits {
    /// Iterations to run.
    pub iterations: u64,
    /// Return after these seconds, so that the caller can handle signals; the next run goes on from
    /// there.
    pub run_s: f64,
    /// How long an `IDLE` step waits.
    pub idle_s: f64,
}

/// Steps that can be run again and again.
pub struct Program {
    steps: Vec<(Call, Step)>,
    /// The number of steps of all iterations.
    looped: usize,
    clocks: usize,
    next: usize,
    operator: c_int,
    group_end: Option<Group>,
    /// Groups that are open: they nest.
    depth: u32,
}

impl Program {
    /// Check and copy the steps.
    ///
    /// # Safety
    /// The function of each step has the type of its kind, and may be called with the step's
    /// arguments as long as the program is run.
    pub unsafe fn new(steps: &[Step]) -> Result<Self, String> {
        let (mut calls, mut clocks) = (Vec::with_capacity(steps.len()), 0);
        for (number, step) in steps.iter().enumerate() {
            // SAFETY: the caller guarantees the type of the function.
            let mut call = unsafe { Call::of(step) }
                .map_err(|reason| format!("step {number} of kind {}: {reason}", step.kind))?;
            if let Call::Clock(place) = &mut call {
                *place = clocks;
                clocks += 1;
            }
            calls.push((call, *step));
        }
        let last = calls
            .iter()
            .rposition(|(call, _)| matches!(call, Call::End))
            .ok_or("no step ends an iteration")?;
        check_groups(&calls)?;
        let group_end = calls
            .iter()
            .find_map(|(call, _)| if let Call::GroupEnd(end) = call { Some(*end) } else { None });
        Ok(Self {
            steps: calls,
            looped: last + 1,
            clocks,
            next: 0,
            operator: 0,
            group_end,
            depth: 0,
        })
    }

    /// The number of `CLOCK` steps.
    pub fn clocks(&self) -> usize {
        self.clocks
    }

    /// Run iterations from where the last run ended, and after the last one the steps behind them.
    /// `done` counts the iterations while they run. The n-th `CLOCK` step writes the time to place
    /// n of `times`, which has `clocks` places, each time that it runs.
    ///
    /// After a failure open groups are ended, and the next run begins with the first step.
    ///
    /// # Safety
    /// What `new` requires still holds.
    pub unsafe fn run(&mut self, limits: Limits, done: &AtomicU64, times: &mut [f64]) -> Outcome {
        let mut outcome = Outcome { idle: 1, start_s: now_s(), ..Outcome::default() };
        // SAFETY: the caller guarantees it.
        if let Err((code, kind)) = unsafe { self.run_to_end(limits, done, times, &mut outcome) } {
            (outcome.code, outcome.kind, outcome.idle) = (code, kind, 0);
            self.next = 0;
            for end in self.group_end.iter().cycle().take(self.depth as usize) {
                // SAFETY: the caller guarantees it. The failure has its result already; an open
                // group would keep even an abort waiting.
                unsafe { end() };
            }
            self.depth = 0;
        }
        outcome
    }

    /// # Safety
    /// As for `run`.
    unsafe fn run_to_end(
        &mut self,
        limits: Limits,
        done: &AtomicU64,
        times: &mut [f64],
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        while outcome.iterations < limits.iterations {
            let (call, step) = self.steps[self.next];
            self.next += 1;
            if !matches!(call, Call::End) {
                // SAFETY: the caller guarantees it.
                unsafe { self.perform(call, &step, times, limits, outcome) }?;
                continue;
            }
            outcome.iterations += 1;
            done.fetch_add(1, Ordering::Relaxed);
            if self.next == self.looped {
                self.next = 0;
            }
            let look = outcome.iterations % ITERATIONS_PER_LOOK == 0;
            if look
                && outcome.iterations < limits.iterations
                && now_s() - outcome.start_s > limits.run_s
            {
                outcome.enqueued_s = now_s();
                outcome.end_s = outcome.enqueued_s;
                return Ok(());
            }
        }
        outcome.enqueued_s = now_s();
        for number in self.looped..self.steps.len() {
            let (call, step) = self.steps[number];
            // SAFETY: the caller guarantees it.
            unsafe { self.perform(call, &step, times, limits, outcome) }?;
        }
        outcome.end_s = now_s();
        Ok(())
    }

    /// # Safety
    /// As for `run`.
    unsafe fn perform(
        &mut self,
        call: Call,
        step: &Step,
        times: &mut [f64],
        limits: Limits,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let Step { dtype, peer, source, target, count, handle, stream, .. } = *step;
        let operator = if step.operator == CREATED { self.operator } else { step.operator };
        // SAFETY: the caller guarantees that each function may be called with the step's arguments;
        // `self.operator` is valid for writing.
        let code = unsafe {
            match call {
                Call::End => 0,
                Call::Clock(place) => {
                    times[place] = now_s();
                    0
                }
                Call::GroupStart(start) => {
                    let code = start();
                    self.depth += u32::from(code == 0);
                    code
                }
                Call::GroupEnd(end) => {
                    self.depth -= 1; // NCCL closes the group also if it fails
                    end()
                }
                Call::Plain(function) => function(source, target, count, dtype, handle, stream),
                Call::Reducing(function) => {
                    function(source, target, count, dtype, operator, handle, stream)
                }
                Call::Rooted(function) => {
                    function(source, target, count, dtype, peer, handle, stream)
                }
                Call::ReducingToRoot(function) => {
                    function(source, target, count, dtype, operator, peer, handle, stream)
                }
                Call::Peer(function) => function(target, count, dtype, peer, handle, stream),
                Call::CreateOperator(function) => {
                    function(&mut self.operator, source, dtype, peer, handle)
                }
                Call::DestroyOperator(function) => function(operator, handle),
                Call::SetContext(function) => function(handle),
                Call::Copy(function) => function(target, source, count, stream),
                Call::Enqueue(function) => function(handle, stream),
                Call::Idle(query) => wait(query, stream, limits.idle_s, &mut outcome.idle),
            }
        };
        if code != 0 {
            return Err((code, step.kind));
        }
        Ok(())
    }
}

/// Ask until the stream is idle. If that takes longer than `limit_s`, `idle` becomes 0.
///
/// # Safety
/// `query` may be called with the stream.
unsafe fn wait(query: OneHandle, stream: *mut c_void, limit_s: f64, idle: &mut u32) -> c_int {
    let until_s = now_s() + limit_s;
    loop {
        // SAFETY: the caller guarantees it.
        let status = unsafe { query(stream) };
        if status != NOT_READY {
            return status;
        }
        if now_s() >= until_s {
            *idle = 0;
            return 0;
        }
        thread::yield_now(); // to NCCL's threads, as nccl-tests does
    }
}

/// Each group ends before its iteration does.
fn check_groups(steps: &[(Call, Step)]) -> Result<(), String> {
    let mut open = 0;
    for (number, (call, _)) in steps.iter().enumerate() {
        match call {
            Call::GroupStart(_) => open += 1,
            Call::GroupEnd(_) if open == 0 => {
                return Err(format!("step {number}: no group is open"));
            }
            Call::GroupEnd(_) => open -= 1,
            Call::End if open > 0 => return Err(format!("step {number}: a group is still open")),
            _ => {}
        }
    }
    if open > 0 { Err("a group has no end".to_owned()) } else { Ok(()) }
}
