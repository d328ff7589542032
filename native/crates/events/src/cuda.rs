//! The functions of CUDA's driver that time launches, found in the `libcuda.so.1` of the process.
//! Nothing links with it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute_copy;
use std::ptr::null_mut;

/// Any handle of the driver: a context, stream or event.
pub type Handle = *mut c_void;

/// `CUDA_SUCCESS`.
pub const SUCCESS: c_int = 0;
/// `CUDA_ERROR_NOT_READY`.
pub const NOT_READY: c_int = 600;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: while another thread captures, this one may query events.
const RELAXED: c_int = 2;
/// `CU_EVENT_DEFAULT`: with a time.
const TIMED_EVENT: c_uint = 0;

const LIBRARY: &CStr = c"libcuda.so.1";

/// A context: its handle as a number, and its id, 0 before CUDA 12.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The handle.
    pub handle: usize,
    /// The id.
    pub id: u64,
}

/// The driver. All functions return a `CUresult`.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// `cuCtxGetCurrent`.
    pub current: unsafe extern "C" fn(context: *mut Handle) -> c_int,
    /// `cuCtxGetId`, which CUDA has from 12.0 on: a new context may get the address of one that is
    /// gone, but never its id.
    pub id: Option<unsafe extern "C" fn(context: Handle, id: *mut u64) -> c_int>,
    /// `cuCtxSetCurrent`.
    pub enter: unsafe extern "C" fn(context: Handle) -> c_int,
    /// `cuEventCreate`.
    pub create: unsafe extern "C" fn(event: *mut Handle, flags: c_uint) -> c_int,
    /// `cuEventRecord`.
    pub record: unsafe extern "C" fn(event: Handle, stream: Handle) -> c_int,
    /// `cuEventQuery`.
    pub query: unsafe extern "C" fn(event: Handle) -> c_int,
    /// `cuEventElapsedTime`, in milliseconds.
    pub elapsed: unsafe extern "C" fn(elapsed_ms: *mut f32, from: Handle, to: Handle) -> c_int,
    /// `cuStreamIsCapturing`; 0: no.
    pub capturing: unsafe extern "C" fn(stream: Handle, status: *mut c_int) -> c_int,
    /// `cuThreadExchangeStreamCaptureMode`.
    pub exchange_mode: unsafe extern "C" fn(mode: *mut c_int) -> c_int,
}

/// A function of the library.
///
/// # Safety
/// `library` is loaded, and `F` is the type of this function.
unsafe fn function<F>(library: Handle, name: &CStr) -> Result<F, String> {
    // SAFETY: the caller guarantees a loaded library.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() {
        return Err(format!("{} has no {}", LIBRARY.to_string_lossy(), name.to_string_lossy()));
    }
    // SAFETY: the caller guarantees the type, which is that of a pointer to a function.
    Ok(unsafe { transmute_copy(&found) })
}

impl Driver {
    /// The driver that NCCL uses. It stays loaded.
    ///
    /// # Errors
    /// It cannot be loaded or lacks a function; the text says which.
    pub fn open() -> Result<Self, String> {
        // SAFETY: NCCL has loaded this library before; its constructors run at most once.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(load_error());
        }
        // SAFETY: the library is loaded, and the types are those of cuda.h.
        unsafe {
            Ok(Self {
                current: function(library, c"cuCtxGetCurrent")?,
                id: function(library, c"cuCtxGetId").ok(),
                enter: function(library, c"cuCtxSetCurrent")?,
                create: function(library, c"cuEventCreate")?,
                record: function(library, c"cuEventRecord")?,
                query: function(library, c"cuEventQuery")?,
                elapsed: function(library, c"cuEventElapsedTime")?,
                capturing: function(library, c"cuStreamIsCapturing")?,
                exchange_mode: function(library, c"cuThreadExchangeStreamCaptureMode")?,
            })
        }
    }

    /// The context of this thread.
    ///
    /// # Errors
    /// The driver's result, 0 if the thread has no context.
    pub fn context(&self) -> Result<Context, c_int> {
        let (mut context, mut id) = (null_mut(), 0);
        // SAFETY: writes to a pointer that lives during the call.
        let result = unsafe { (self.current)(&raw mut context) };
        if result != SUCCESS || context.is_null() {
            return Err(result);
        }
        if let Some(id_of) = self.id {
            // SAFETY: the thread's own context; writes to a number that lives during the call.
            unsafe { id_of(context, &raw mut id) };
        }
        Ok(Context { handle: context.expose_provenance(), id })
    }

    /// A new event in the context of this thread, as a number.
    ///
    /// # Errors
    /// The driver's result.
    pub fn event(&self) -> Result<usize, c_int> {
        let mut event = null_mut();
        // SAFETY: writes to a pointer that lives during the call.
        let result = unsafe { (self.create)(&raw mut event, TIMED_EVENT) };
        if result == SUCCESS { Ok(event.expose_provenance()) } else { Err(result) }
    }

    /// Record an event on a stream of the application.
    ///
    /// # Errors
    /// The driver's result.
    pub fn record(&self, event: usize, stream: u64) -> Result<(), c_int> {
        // SAFETY: the event is never destroyed, and the application has passed the stream to NCCL
        // for this launch.
        let result = unsafe { (self.record)(handle(event), stream_handle(stream)) };
        if result == SUCCESS { Ok(()) } else { Err(result) }
    }

    /// Whether all before the event has run; an error is the driver's result.
    pub fn is_done(&self, event: usize) -> Result<bool, c_int> {
        // SAFETY: the event is never destroyed.
        match unsafe { (self.query)(handle(event)) } {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            result => Err(result),
        }
    }

    /// Nanoseconds from one event to another, both done. They may be negative.
    ///
    /// # Errors
    /// The driver's result.
    pub fn elapsed_ns(&self, from: usize, to: usize) -> Result<f64, c_int> {
        let mut elapsed_ms = 0.0;
        // SAFETY: events are never destroyed; writes to a float that lives during the call.
        let result = unsafe { (self.elapsed)(&raw mut elapsed_ms, handle(from), handle(to)) };
        if result == SUCCESS { Ok(f64::from(elapsed_ms) * 1e6) } else { Err(result) }
    }

    /// Whether a stream is being captured into a CUDA graph, or cannot say: while another stream is
    /// captured, the default stream cannot.
    pub fn is_captured(&self, stream: u64) -> bool {
        let mut status = 0;
        // SAFETY: the application has passed the stream to NCCL for this launch; writes to an int
        // that lives during the call.
        let result = unsafe { (self.capturing)(stream_handle(stream), &raw mut status) };
        result != SUCCESS || status != 0
    }

    /// Run work that creates or reads events of a context, as a thread that captures nothing. The
    /// thread's own state is put back.
    pub fn within<T>(&self, context: Context, work: impl FnOnce() -> T) -> T {
        let (mut mode, mut before) = (RELAXED, null_mut());
        // SAFETY: both write to variables that live during the call; the context is one in which a
        // communicator was made.
        unsafe {
            (self.exchange_mode)(&raw mut mode);
            (self.current)(&raw mut before);
            if before != handle(context.handle) {
                (self.enter)(handle(context.handle));
            }
        }
        let done = work();
        // SAFETY: as before; context and mode are those of this thread until now.
        unsafe {
            if before != handle(context.handle) {
                (self.enter)(before);
            }
            (self.exchange_mode)(&raw mut mode);
        }
        done
    }
}

fn handle(number: usize) -> Handle {
    std::ptr::with_exposed_provenance_mut(number)
}

fn stream_handle(stream: u64) -> Handle {
    handle(usize::try_from(stream).unwrap_or_default())
}

/// What the dynamic linker says of the last failure.
fn load_error() -> String {
    // SAFETY: no arguments; the text is valid until the next call of this thread.
    let text: *const c_char = unsafe { libc::dlerror() };
    if text.is_null() {
        return format!("{} cannot be loaded", LIBRARY.to_string_lossy());
    }
    // SAFETY: not NULL, so a C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
