//! Lines of the log, through the logger that NCCL gave at init.

use std::ffi::CString;
use std::sync::{PoisonError, RwLock};

use nccl_abi::common::{Logger, log_level, subsystem};
use transport::Level;

// The newest one: processes may hold several copies of NCCL, and each init brings its own.
static LOGGER: RwLock<Option<Logger>> = RwLock::new(None);

/// Keep NCCL's logger; without one, lines are dropped.
pub fn keep(logger: Option<Logger>) {
    *LOGGER.write().unwrap_or_else(PoisonError::into_inner) = logger;
}

/// One line under the plugin's name.
pub fn say(level: Level, line: &str) {
    write(level, &format!("busbw: {line}"));
}

/// One line as it is.
pub fn write(level: Level, line: &str) {
    let Some(logger) = *LOGGER.read().unwrap_or_else(PoisonError::into_inner) else { return };
    let (level, flags) = match level {
        Level::Warn => (log_level::WARN, subsystem::ALL),
        // INIT because NCCL does not show NET where NCCL_DEBUG_SUBSYS is not set.
        Level::Info => (log_level::INFO, subsystem::INIT | subsystem::NET),
    };
    // Without its zero bytes a line always is a C string.
    let line = CString::new(line.replace('\0', " ")).unwrap_or_default();
    // SAFETY: NCCL's logger takes any number of values, and "%s" takes this one.
    unsafe { logger(level, flags, c"busbw".as_ptr(), 0, c"%s".as_ptr(), line.as_ptr()) };
}
