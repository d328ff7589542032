//! Times of calls by CUDA events: around each launch that NCCL reports, and around a call for which
//! it reports none.
//!
//! NCCL makes a group's calls, its launches and its end known on the thread of the application, one
//! after the other. So what is under way is kept for each thread, and needs no lock.

use std::cell::RefCell;
use std::sync::Arc;

use busbw_events::{Begun, Launches, Recorder};

use crate::handles::GROUP_BITS;

/// Calls of a group that are followed; later ones of it are not timed by themselves.
const CALLS: usize = 4096;
/// Launches of a thread that are under way. NCCL has one; more are of launches that failed.
const LAUNCHES: usize = 8;

/// A call of the group that is open on this thread.
struct Called {
    number: u64,
    function: u8,
    launched: bool,
    launches: Arc<Launches>,
}

/// What is under way on a thread.
#[derive(Default)]
struct Thread {
    group: u64,
    calls: Vec<Called>,
    around: Vec<(Arc<Launches>, Begun)>,
    launching: Vec<Begun>,
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

/// Nothing while the thread ends.
fn with<T: Default>(work: impl FnOnce(&mut Thread) -> T) -> T {
    THREAD
        .try_with(|thread| {
            thread.try_borrow_mut().map(|mut thread| work(&mut thread)).unwrap_or_default()
        })
        .unwrap_or_default()
}

/// A group begins on this thread.
pub fn group_started(recorder: &Recorder, group: u64) {
    with(|thread| {
        for (_, begun) in thread.around.drain(..) {
            forget(recorder, begun);
        }
        thread.calls.clear();
        thread.group = group;
    });
}

/// A call of it. If its function has no launch that NCCL reports, the first such call of a
/// communicator starts the time of all of them.
pub fn called(
    recorder: &Recorder,
    launches: &Arc<Launches>,
    number: u64,
    function: u8,
    stream: u64,
) {
    with(|thread| {
        if thread.calls.len() < CALLS {
            thread.calls.push(Called {
                number,
                function,
                launched: false,
                launches: launches.clone(),
            });
        }
        let open = thread.around.iter().any(|(of, _)| of.comm == launches.comm);
        if launches.is_silent(function) && !open && !launches.is_deferred() {
            if let Some(begun) = begin(recorder, launches, stream, true) {
                thread.around.push((launches.clone(), begun));
            }
        }
    });
}

/// A launch of calls of this group begins; returns the number of its timing, 0 if it has none.
pub fn launch_started(recorder: &Recorder, launches: &Launches, group: u64, stream: u64) -> u64 {
    let begun = begin(recorder, launches, stream, false);
    let timing = begun.as_ref().map_or(0, Begun::timing);
    with(|thread| {
        if group != 0 && thread.group & GROUP_BITS != group & GROUP_BITS && launches.set_deferred()
        {
            recorder.deferred(launches.comm);
        }
        if let Some(begun) = begun {
            if thread.launching.len() == LAUNCHES {
                forget(recorder, thread.launching.remove(0));
            }
            thread.launching.push(begun);
        }
    });
    timing
}

/// A launch is enqueued.
pub fn launch_ended(recorder: &Recorder, timing: u64) {
    let begun = with(|thread| {
        let at = thread.launching.iter().position(|begun| begun.timing() == timing)?;
        Some(thread.launching.remove(at))
    });
    if let Some(begun) = begun {
        end(recorder, begun);
    }
}

/// NCCL has enqueued a task of a call, whose launch it has reported.
pub fn task_launched(call: u64) {
    with(|thread| {
        if let Ok(at) = thread.calls.binary_search_by_key(&call, |called| called.number) {
            thread.calls[at].launched = true;
        }
    });
}

/// The group has ended: all of it is enqueued, unless NCCL does it later from another thread.
pub fn group_ended(recorder: &Recorder, group: u64) {
    let (mut calls, around) = with(|thread| {
        if thread.group != group {
            return (vec![], vec![]);
        }
        thread.group = 0;
        (std::mem::take(&mut thread.calls), std::mem::take(&mut thread.around))
    });
    for called in &calls {
        called.launches.set_silent(called.function, !called.launched);
    }
    for (launches, begun) in around {
        let mut silent = calls
            .iter()
            .filter(|called| called.launches.comm == launches.comm && !called.launched)
            .peekable();
        if silent.peek().is_none() {
            forget(recorder, begun);
            continue;
        }
        for called in silent {
            recorder.call_timing(launches.comm, called.number, begun.timing());
        }
        end(recorder, begun);
    }
    calls.clear();
    with(|thread| {
        if thread.calls.is_empty() {
            thread.calls = calls; // whose memory the next group uses
        }
    });
}

fn begin(
    recorder: &Recorder,
    launches: &Launches,
    stream: u64,
    around_call: bool,
) -> Option<Begun> {
    let (clock, gpu) = (recorder.gpu_clock()?, launches.gpu?);
    clock
        .begin(gpu, stream, recorder.number(), around_call)
        .map_err(|reason| recorder.untimed(reason))
        .ok()
}

fn end(recorder: &Recorder, begun: Begun) {
    if let Some(Err(reason)) = recorder.gpu_clock().map(|clock| clock.end(begun)) {
        recorder.untimed(reason);
    }
}

fn forget(recorder: &Recorder, begun: Begun) {
    if let Some(clock) = recorder.gpu_clock() {
        clock.forget(begun);
    }
}
