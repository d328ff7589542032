//! The recorder of this process, made by the first communicator if BUSBW_CAPTURE names a folder.

use std::env;
use std::ffi::{CStr, OsString, c_int, c_void};
use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::process;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use busbw_events::{Driver, GpuClock, Mode, Recorder, Untimed};
use busbw_nccl_abi::common::Logger;
use busbw_nccl_abi::profiler::event;
use busbw_transport::Level;

use crate::entry::guarded;
use crate::logger;
use crate::profiler_interface::REPORTS_CALLS;

const FOLDER: &str = "BUSBW_CAPTURE";
const MODE: &str = "BUSBW_CAPTURE_MODE";
/// Variables from which busbw knows the rank of the process in its job.
const DESCRIBES: [&str; 12] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "PMI_RANK",
    "PMI_SIZE",
    "PMIX_RANK",
    "NCCL_HOSTID",
    "SLURM_STEP_ID",
];
/// Variables with which communicators return from calls before they launch anything, and the value
/// that says so.
const LAUNCH_LATER: [(&str, &str); 2] =
    [("NCCL_COMM_BLOCKING", "0"), ("TORCH_NCCL_USE_COMM_NONBLOCKING", "1")];
/// Files of one process: more than one if it loads several copies of this library.
const MOST_FILES: u32 = 16;

/// NCCL's mask of events, one for all communicators, which it reads at each event.
static MASK: AtomicPtr<c_int> = AtomicPtr::new(null_mut());
/// Whether NCCL reports kernels too, beside launches.
static KERNELS: AtomicBool = AtomicBool::new(false);
/// The process that the recorder is of.
static OWNER: AtomicU32 = AtomicU32::new(0);
static RECORDER: OnceLock<Option<Arc<Recorder>>> = OnceLock::new();

/// Keep where NCCL reads its mask, which each communicator writes.
pub fn keep_mask(mask: *mut c_int) {
    MASK.store(mask, Ordering::Release);
    if kernels_asked_for() {
        add_kernels();
    }
}

/// Let NCCL report kernels from now on. It reads its mask before it reports a call, so the first
/// one is without.
pub fn ask_for_kernels() {
    if !KERNELS.swap(true, Ordering::Relaxed) {
        add_kernels();
    }
}

/// Whether NCCL reports kernels beside launches.
pub fn kernels_asked_for() -> bool {
    KERNELS.load(Ordering::Relaxed)
}

fn add_kernels() {
    let place = MASK.load(Ordering::Acquire);
    if let (false, Ok(kernels)) = (place.is_null(), c_int::try_from(event::KERNEL_CH)) {
        // SAFETY: NCCL's variable lives as long as NCCL, and NCCL itself reads it without a lock
        // while it may be written.
        unsafe { AtomicI32::from_ptr(place) }.fetch_or(kernels, Ordering::Relaxed);
    }
}

/// Whether communicators are to launch after the call has returned.
pub fn launches_later() -> bool {
    LAUNCH_LATER.iter().any(|(name, value)| env::var(name).is_ok_and(|set| set == *value))
}

/// Let NCCL report other events from now on, 0 for none: measurements compare them within one
/// process. Returns the mask until now, -1 if nothing is recorded.
#[unsafe(no_mangle)]
pub extern "C" fn busbw_capture_mask(mask: c_int) -> c_int {
    guarded("busbw_capture_mask", -1, || set_mask(mask).unwrap_or(-1))
}

/// Let NCCL report these events from now on; returns the mask until now, None if no communicator
/// has given its place.
pub fn set_mask(mask: c_int) -> Option<c_int> {
    let place = MASK.load(Ordering::Acquire);
    // SAFETY: NCCL's variable lives as long as NCCL, and NCCL itself reads it without a lock while
    // it may be written.
    (!place.is_null()).then(|| unsafe { AtomicI32::from_ptr(place) }.swap(mask, Ordering::Relaxed))
}

/// The recorder if it is running.
pub fn running() -> Option<&'static Recorder> {
    RECORDER.get()?.as_deref()
}

/// The recorder, which the first call starts. None if nothing is to be recorded, or it cannot
/// start: then a warning says why.
pub fn recorder(logger: Option<Logger>, interface: u64) -> Option<&'static Recorder> {
    RECORDER.get_or_init(|| {
        env::var_os(FOLDER)
            .filter(|folder| !folder.is_empty())
            .and_then(|folder| started(folder, logger, interface))
    });
    running()
}

fn started(folder: OsString, logger: Option<Logger>, interface: u64) -> Option<Arc<Recorder>> {
    let folder = PathBuf::from(folder);
    match start(&folder, interface) {
        Ok((path, recorder)) => {
            recorder.nccl(version(logger), interface);
            logger::say(Level::Info, &format!("recording calls to {}", path.display()));
            Some(recorder)
        }
        Err(error) => {
            logger::say(
                Level::Warn,
                &format!("{FOLDER}={}: cannot record calls: {error}", folder.display()),
            );
            None
        }
    }
}

/// Read what the GPU has done before CUDA's own exit handlers run: they were registered earlier,
/// and the last one registered is the first.
///
/// A process forked from this one has the same handlers and file, but no GPU.
extern "C" fn read_last_times() {
    if let (Some(recorder), true) = (running(), OWNER.load(Ordering::Relaxed) == process::id()) {
        guarded("the exit handler", (), || recorder.read_last_times());
    }
}

fn say_untimed(reason: Untimed) {
    match reason {
        Untimed::NoEvent => {
            let text = "some calls are recorded without a time: the GPU is behind by more launches than there are CUDA events";
            logger::say(Level::Warn, text);
        }
        Untimed::Captured => logger::say(
            Level::Info,
            "calls in CUDA graphs are timed by NCCL's kernel events, not by CUDA events",
        ),
        Untimed::Failed(result) => {
            logger::say(
                Level::Warn,
                &format!(
                    "some calls are recorded without a time: a CUDA event failed with CUresult {result}"
                ),
            );
        }
        Untimed::Ended => {}
    }
}

fn start(folder: &Path, interface: u64) -> Result<(PathBuf, Arc<Recorder>)> {
    let mode = match env::var(MODE).as_deref() {
        Ok("timed") => Mode::Timed,
        Ok("cheap" | "") | Err(_) => Mode::Cheap,
        Ok(other) => {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("{MODE}={other}: neither cheap nor timed"),
            ));
        }
    };
    fs::create_dir_all(folder)?;
    let host = hostname();
    let mut text = format!(
        "host={host}\npid={}\nmode={}\n",
        process::id(),
        if mode == Mode::Timed { "timed" } else { "cheap" }
    );
    let driver = if mode == Mode::Timed && interface >= REPORTS_CALLS {
        Driver::open()
    } else {
        Err(String::new())
    };
    if let Err(error) = driver.as_ref().map_err(|error| error.replace('\n', " ")) {
        if !error.is_empty() {
            text += &format!("no_events={error}\n");
            logger::say(
                Level::Warn,
                &format!("calls are timed by NCCL's kernel events, not by CUDA events: {error}"),
            );
        }
    }
    for name in DESCRIBES {
        if let Ok(value) = env::var(name) {
            text += &format!("{name}={}\n", value.replace('\n', " "));
        }
    }
    let names = (1..=MOST_FILES)
        .map(|number| if number == 1 { String::new() } else { format!("-{number}") });
    let paths = names.map(|more| folder.join(format!("{host}-{}{more}.capture", process::id())));
    let clock = driver.ok().map(|driver| GpuClock::new(driver, say_untimed));
    let started = Recorder::start(paths, mode, &text, clock)?;
    OWNER.store(process::id(), Ordering::Relaxed);
    // SAFETY: the function takes no arguments, and this library is never unloaded. Where it fails
    // the last times are lost.
    unsafe { libc::atexit(read_last_times) };
    Ok(started)
}

fn hostname() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "host".into(), |name| name.trim().replace('/', "_"))
}

/// The version of the NCCL that holds this logger, such as 22809; 0 if it cannot be found.
fn version(logger: Option<Logger>) -> u64 {
    let Some(logger) = logger else { return 0 };
    let mut place = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: null_mut(),
    };
    // SAFETY: looks up an address of code; `place` lives during the call.
    if unsafe { libc::dladdr(logger as *const c_void, &raw mut place) } == 0
        || place.dli_fname.is_null()
    {
        return 0;
    }
    // SAFETY: dladdr has set the path of a loaded library, and RTLD_NOLOAD runs no code.
    let library = unsafe { libc::dlopen(place.dli_fname, libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if library.is_null() {
        return 0;
    }
    let name: &CStr = c"ncclGetVersion";
    // SAFETY: a library that is loaded, and a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() {
        return 0;
    }
    let mut version: c_int = 0;
    // SAFETY: ncclGetVersion has this type in every NCCL, and writes to an int that lives during
    // the call.
    unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(found)(
            &raw mut version,
        )
    };
    u64::try_from(version).unwrap_or_default()
}
