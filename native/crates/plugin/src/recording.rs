//! The recorder of this process, made by the first communicator if BUSBW_CAPTURE names a folder.

use std::env;
use std::ffi::{CStr, OsString, c_int, c_void};
use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::process;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};

use busbw_events::{Mode, Recorder};
use busbw_nccl_abi::common::Logger;
use busbw_transport::Level;

use crate::logger;

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
/// Files of one process: more than one if it loads several copies of this library.
const MOST_FILES: u32 = 16;

/// NCCL's mask of events, one for all communicators, which it reads at each event.
static MASK: AtomicPtr<c_int> = AtomicPtr::new(null_mut());
static RECORDER: OnceLock<Option<Arc<Recorder>>> = OnceLock::new();

/// Keep where NCCL reads its mask.
pub fn keep_mask(mask: *mut c_int) {
    MASK.store(mask, Ordering::Release);
}

/// Let NCCL report other events from now on, 0 for none: measurements compare them within one process. Returns the mask until now, -1 if
/// nothing is recorded.
#[unsafe(no_mangle)]
pub extern "C" fn busbw_capture_mask(mask: c_int) -> c_int {
    let place = MASK.load(Ordering::Acquire);
    if place.is_null() {
        return -1;
    }
    // SAFETY: NCCL's variable lives as long as NCCL, and NCCL itself reads it without a lock while it may be written.
    unsafe { AtomicI32::from_ptr(place) }.swap(mask, Ordering::Relaxed)
}

/// The recorder if it is running.
pub fn running() -> Option<&'static Recorder> {
    RECORDER.get()?.as_deref()
}

/// The recorder, which the first call starts. None if nothing is to be recorded, or it cannot start: then a warning says why.
pub fn recorder(logger: Option<Logger>, interface: u64) -> Option<&'static Recorder> {
    RECORDER.get_or_init(|| env::var_os(FOLDER).filter(|folder| !folder.is_empty()).and_then(|folder| started(folder, logger, interface)));
    running()
}

fn started(folder: OsString, logger: Option<Logger>, interface: u64) -> Option<Arc<Recorder>> {
    let folder = PathBuf::from(folder);
    match start(&folder) {
        Ok((path, recorder)) => {
            recorder.nccl(version(logger), interface);
            logger::say(Level::Info, &format!("recording calls to {}", path.display()));
            Some(recorder)
        }
        Err(error) => {
            logger::say(Level::Warn, &format!("{FOLDER}={}: cannot record calls: {error}", folder.display()));
            None
        }
    }
}

fn start(folder: &Path) -> Result<(PathBuf, Arc<Recorder>)> {
    let mode = match env::var(MODE).as_deref() {
        Ok("timed") => Mode::Timed,
        Ok("cheap" | "") | Err(_) => Mode::Cheap,
        Ok(other) => return Err(Error::new(ErrorKind::InvalidInput, format!("{MODE}={other}: neither cheap nor timed"))),
    };
    fs::create_dir_all(folder)?;
    let host = hostname();
    let mut text = format!("host={host}\npid={}\nmode={}\n", process::id(), if mode == Mode::Timed { "timed" } else { "cheap" });
    for name in DESCRIBES {
        if let Ok(value) = env::var(name) {
            text += &format!("{name}={}\n", value.replace('\n', " "));
        }
    }
    for number in 1..=MOST_FILES {
        let more = if number == 1 { String::new() } else { format!("-{number}") };
        let path = folder.join(format!("{host}-{}{more}.capture", process::id()));
        match Recorder::start(&path, mode, &text) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            other => return other.map(|recorder| (path, recorder)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

fn hostname() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "host".into(), |name| name.trim().replace('/', "_"))
}

/// The version of the NCCL that holds this logger, such as 22809; 0 if it cannot be found.
fn version(logger: Option<Logger>) -> u64 {
    let Some(logger) = logger else { return 0 };
    let mut place =
        libc::Dl_info { dli_fname: std::ptr::null(), dli_fbase: null_mut(), dli_sname: std::ptr::null(), dli_saddr: null_mut() };
    // SAFETY: looks up an address of code; `place` lives during the call.
    if unsafe { libc::dladdr(logger as *const c_void, &raw mut place) } == 0 || place.dli_fname.is_null() {
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
    // SAFETY: ncclGetVersion has this type in every NCCL, and writes to an int that lives during the call.
    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(found)(&raw mut version) };
    u64::try_from(version).unwrap_or_default()
}
