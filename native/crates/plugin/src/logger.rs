//! Log lines, written by the logger that NCCL passed to init.

use std::ffi::CString;
use std::sync::{PoisonError, RwLock};

use busbw_nccl_abi::common::{Logger, log_level, subsystem};
use busbw_transport::Level;

// The newest one: a process may hold several copies of NCCL, and each init brings its own.
static LOGGER: RwLock<Option<Logger>> = RwLock::new(None);

/// Set NCCL's logger. Without one, lines are dropped.
pub fn keep(logger: Option<Logger>) {
    *LOGGER.write().unwrap_or_else(PoisonError::into_inner) = logger;
}

/// Write a line with the plugin's name before it.
pub fn say(level: Level, line: &str) {
    write(level, &format!("busbw: {line}"));
}

/// Write a line as it is.
pub fn write(level: Level, line: &str) {
    let Some(logger) = *LOGGER.read().unwrap_or_else(PoisonError::into_inner) else { return };
    let (level, flags) = match level {
        Level::Warn => (log_level::WARN, subsystem::ALL),
        // INIT because NCCL does not show NET unless NCCL_DEBUG_SUBSYS is set.
        Level::Info => (log_level::INFO, subsystem::INIT | subsystem::NET),
    };
    // A line without zero bytes is always a C string.
    let line = CString::new(line.replace('\0', " ")).unwrap_or_default();
    // SAFETY: NCCL keeps its logger for the life of the process. "%s" takes one string, and all
    // strings live during the call.
    unsafe { logger(level, flags, c"busbw".as_ptr(), 0, c"%s".as_ptr(), line.as_ptr()) };
}

/// Write a line that NCCL does not show, as it is in none of its subsystems.
pub fn touch() {
    let Some(logger) = *LOGGER.read().unwrap_or_else(PoisonError::into_inner) else { return };
    // SAFETY: NCCL keeps its logger for the life of the process. The format takes no values.
    unsafe { logger(log_level::INFO, 0, c"busbw".as_ptr(), 0, c"".as_ptr()) };
}
