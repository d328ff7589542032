//! What NCCL runs for calls that busbw asks about: the tasks that it reports between
//! `busbw_ran_start` and `busbw_ran_stop`.
//!
//! At other times NCCL's mask is 0, so that it reports nothing of timed calls. Where BUSBW_CAPTURE
//! records all calls, nothing can be asked.

use std::ffi::{c_char, c_int, c_void};
use std::fmt::Write;
use std::ptr::{copy_nonoverlapping, null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use busbw_events::Mode;
use busbw_nccl_abi::profiler::{CeColl, Coll, CollApi, CollV2, CollVariant, P2p, P2pV2, event};
use busbw_transport::lock;

use crate::entry::guarded;
use crate::handles::{GROUP, PLAN, TIMING, handle, of_call};
use crate::profiler_interface::{REPORTS_CALLS, TELLS_SYMMETRIC, bytes, mask};
use crate::{logger, recording};

/// Kinds of kernels that one call may run: more are counted, not kept.
const MOST: usize = 16;
/// Collectives that NCCL has kernels over symmetric memory for. Such a kernel is the only way in
/// which NCCL 2.28 to 2.30 report a call of these without a task: copy engines have a task of their
/// own (2.29 and 2.30), or report no call either (2.28).
const HAVE_SYMMETRIC_KERNELS: [&str; 3] = ["AllReduce", "AllGather", "ReduceScatter"];

/// Whether busbw is going to ask.
static ASKED: AtomicBool = AtomicBool::new(false);
/// The version of the table that NCCL uses; 0: none, or its events go to a recorder.
static INTERFACE: AtomicU64 = AtomicU64::new(0);
/// What was reported since the start; None while nothing is asked.
static REPORTED: Mutex<Option<Reported>> = Mutex::new(None);

/// The kernels of the calls that were asked about, each once.
#[derive(Default)]
struct Reported {
    lines: Vec<String>,
    lost: usize,
    /// Functions that the application called, and those that tasks were reported of.
    called: Vec<String>,
    ran: Vec<String>,
}

impl Reported {
    fn add(&mut self, line: String) {
        if self.lines.contains(&line) {
            return;
        }
        if self.lines.len() < MOST {
            self.lines.push(line);
        } else {
            self.lost += 1;
        }
    }

    /// Add the calls that ran a kernel over symmetric memory of which NCCL reports no task.
    fn add_symmetric(&mut self) {
        for function in HAVE_SYMMETRIC_KERNELS.map(str::to_owned) {
            if self.called.contains(&function) && !self.ran.contains(&function) {
                self.add(format!("symmetric\t{function}\t\t\t0\t"));
            }
        }
    }
}

/// The context of communicators that can be asked: no state of their own, but not NULL, as NCCL may
/// take that for none.
static CONTEXT: u8 = 0;

/// Whether a context is that of a communicator that can be asked.
pub fn is_context(context: *mut c_void) -> bool {
    context.cast_const() == (&raw const CONTEXT).cast()
}

/// The context of a communicator that is created now, with NCCL's mask of events, if busbw asks
/// what it runs; else NULL.
pub fn context(interface: u64, mask: *mut c_int) -> *mut c_void {
    if !ASKED.load(Ordering::Relaxed) {
        return null_mut();
    }
    INTERFACE.store(interface, Ordering::Relaxed);
    recording::keep_mask(mask);
    (&raw const CONTEXT).cast_mut().cast()
}

/// An event of v4 to v7 on a communicator that can be asked; returns its handle. Parents have one,
/// as in a recording: NCCL may not report tasks of parents without.
///
/// # Safety
/// `body` is that of a descriptor of this kind, in the version of `context`.
pub unsafe fn begun(body: *mut c_void, kind: u64) -> *mut c_void {
    match kind {
        event::GROUP_API => return handle(GROUP, 1),
        event::COLL_API => {
            // SAFETY: the caller guarantees a body of this kind, and NCCL passes C strings.
            let function = unsafe { name((*body.cast::<CollApi>()).func) };
            note(|reported| once(&mut reported.called, function));
            return of_call(1, 1);
        }
        event::P2P_API => return of_call(1, 1),
        event::PLAN => return handle(PLAN, 1),
        _ => {}
    }
    // SAFETY: the caller guarantees a body of this kind and version, and NCCL passes C strings.
    let (function, line) = unsafe {
        match kind {
            event::COLL => (name((*body.cast::<Coll>()).func), coll(body)),
            event::P2P => {
                let p2p = &*body.cast::<P2p>();
                (name(p2p.func), line("p2p", [p2p.func, null(), null(), null()], p2p.channels))
            }
            event::CE_COLL => {
                let func = (*body.cast::<CeColl>()).func;
                (name(func), line("copy_engine", [func, null(), null(), null()], 0))
            }
            _ => return null_mut(),
        }
    };
    note(|reported| {
        once(&mut reported.ran, function);
        reported.add(line);
    });
    handle(TIMING, 1)
}

unsafe fn coll(body: *mut c_void) -> String {
    // SAFETY: the caller guarantees the body of a collective, which later versions extend.
    let (coll, variant) = unsafe {
        let has_variant = INTERFACE.load(Ordering::Relaxed) >= TELLS_SYMMETRIC;
        (&*body.cast::<Coll>(), has_variant.then(|| &*body.cast::<CollVariant>()))
    };
    let symmetric = variant.filter(|variant| variant.symmetric);
    let (kind, name) = symmetric.map_or(("coll", null()), |variant| ("symmetric", variant.variant));
    // SAFETY: NCCL passes C strings.
    unsafe { line(kind, [coll.func, coll.algo, coll.proto, name], coll.channels) }
}

/// An event of v2 on a communicator that can be asked.
///
/// # Safety
/// `body` is that of a descriptor of this kind.
pub unsafe fn begun_v2(body: *mut c_void, kind: u64) {
    // SAFETY: the caller guarantees a body of this kind, and NCCL passes C strings.
    let line = unsafe {
        match kind {
            event::COLL => {
                let coll = &*body.cast::<CollV2>();
                line("coll", [coll.func, coll.algo, coll.proto, null()], coll.channels)
            }
            event::P2P => line("p2p", [(*body.cast::<P2pV2>()).func, null(), null(), null()], 0),
            _ => return,
        }
    };
    note(|reported| reported.add(line));
}

/// A line of `busbw_ran_stop`.
///
/// # Safety
/// The names are NULL or C strings.
unsafe fn line(kind: &str, names: [*const c_char; 4], channels: u8) -> String {
    // SAFETY: the caller guarantees C strings or NULL.
    let [func, algo, proto, variant] = names.map(|text| unsafe { name(text) });
    format!("{kind}\t{func}\t{algo}\t{proto}\t{channels}\t{variant}")
}

/// A name for a line, which has tabs and ends of lines between fields alone.
///
/// # Safety
/// `text` is NULL or a C string.
unsafe fn name(text: *const c_char) -> String {
    // SAFETY: as the caller guarantees.
    String::from_utf8_lossy(unsafe { bytes(text) }).replace(['\t', '\n'], " ")
}

fn once(names: &mut Vec<String>, name: String) {
    if !names.contains(&name) {
        names.push(name);
    }
}

/// Change what was reported, if busbw asks.
fn note(change: impl FnOnce(&mut Reported)) {
    if let Some(reported) = lock(&REPORTED).as_mut() {
        change(reported);
    }
}

/// Communicators that are created from now on can be asked what they run.
#[unsafe(no_mangle)]
pub extern "C" fn busbw_ran_ask() {
    INTERFACE.store(0, Ordering::Relaxed);
    ASKED.store(true, Ordering::Relaxed);
}

/// Let NCCL report the calls that are made from now on. Returns the version of the profiler
/// interface, 0 if NCCL uses none of this library, or records all calls.
#[unsafe(no_mangle)]
pub extern "C" fn busbw_ran_start() -> u64 {
    let interface = INTERFACE.load(Ordering::Relaxed);
    guarded("busbw_ran_start", 0, || {
        if interface != 0 {
            *lock(&REPORTED) = Some(Reported::default());
            recording::set_mask(mask(Mode::Cheap, interface, false));
        }
        interface
    })
}

/// Let NCCL report nothing from now on, and write what it reported as a C string: a line for each
/// kind of kernel, of the fields kind (coll, symmetric, copy_engine, p2p), function, algorithm,
/// protocol, channels and variant, between tabs. NCCL before 2.31 tells of a symmetric kernel only
/// that it ran, so that its line has neither channels nor variant. All work of these calls must have
/// ended. Returns the number of lines that found no room.
///
/// # Safety
/// `text` is NULL or valid for writing `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_ran_stop(text: *mut c_char, room: usize) -> usize {
    // SAFETY: as the caller guarantees.
    guarded("busbw_ran_stop", 0, || unsafe { stop(text, room) })
}

/// # Safety
/// As of `busbw_ran_stop`.
unsafe fn stop(text: *mut c_char, room: usize) -> usize {
    if INTERFACE.load(Ordering::Relaxed) != 0 {
        recording::set_mask(0);
    }
    let mut reported = lock(&REPORTED).take().unwrap_or_default();
    if (REPORTS_CALLS..TELLS_SYMMETRIC).contains(&INTERFACE.load(Ordering::Relaxed)) {
        reported.add_symmetric();
    }
    if text.is_null() || room == 0 {
        return reported.lines.len() + reported.lost;
    }
    let (mut all, mut lost) = (String::new(), reported.lost);
    for line in reported.lines {
        if all.len() + line.len() + 2 > room {
            lost += 1;
        } else {
            // Writing to a String cannot fail.
            let _ = writeln!(all, "{line}");
        }
    }
    // SAFETY: the caller guarantees `room` bytes, of which the lines leave at least one.
    unsafe {
        copy_nonoverlapping(all.as_ptr(), text.cast(), all.len());
        text.add(all.len()).write(0);
    }
    lost
}

/// Let NCCL read the variables of its log now, if it was told to read them again
/// (`ncclResetDebugInit`): it does so at its next line, which may never come. This line is in no
/// subsystem, so that it is not shown.
#[unsafe(no_mangle)]
pub extern "C" fn busbw_log_touch() {
    guarded("busbw_log_touch", (), logger::touch);
}
