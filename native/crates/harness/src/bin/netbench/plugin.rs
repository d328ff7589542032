//! A library's net plugin, version 11, called as NCCL calls it.

use std::ffi::{CStr, CString, c_char, c_int, c_ulong, c_void};
use std::ptr::null_mut;

use busbw_harness::Failure;
use busbw_nccl_abi::common::{HANDLE_BYTES, Logger, log_level, result};
use busbw_nccl_abi::net_v11::{CommConfig, Net};

/// A comm or a request.
pub type Opaque = *mut c_void;

/// What a listener gives to its peer.
pub type Handle = [u8; HANDLE_BYTES];

/// An initialized plugin.
pub struct Plugin {
    net: &'static Net,
    context: Opaque,
}

/// NCCL's logger is variadic, which stable Rust cannot define. The plugin always passes "%s" and
/// one string, which the C ABI passes like a sixth argument.
unsafe extern "C" fn log(
    level: c_int,
    _: c_ulong,
    _: *const c_char,
    _: c_int,
    _: *const c_char,
    text: *const c_char,
) {
    if level <= log_level::WARN {
        // SAFETY: the plugin passes a C string that lives during the call.
        eprintln!("{}", unsafe { CStr::from_ptr(text) }.to_string_lossy());
    }
}

type FixedLogger =
    unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, *const c_char);

impl Plugin {
    /// Load a library as NCCL does, and initialize its plugin. Error: it does not load, has no such
    /// plugin, or init fails.
    pub fn open(path: &str) -> Result<Self, Failure> {
        let name = CString::new(path).map_err(|_| format!("{path}: not a path"))?;
        // SAFETY: `name` is a C string. The library is never unloaded, so the table stays valid.
        let symbol = unsafe {
            let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            if library.is_null() {
                return Err(format!(
                    "dlopen: {}",
                    CStr::from_ptr(libc::dlerror()).to_string_lossy()
                ));
            }
            libc::dlsym(library, c"ncclNetPlugin_v11".as_ptr())
        };
        // SAFETY: NULL or a table of this type, as the symbol's name promises; the library is never
        // unloaded.
        let net = unsafe { symbol.cast::<Net>().as_ref() }
            .ok_or_else(|| format!("{path} has no ncclNetPlugin_v11"))?;
        let mut made = Self { net, context: null_mut() };
        let mut config = CommConfig { traffic_class: -1 };
        // SAFETY: the plugin calls the logger with six arguments only (see `log`); context and
        // config are locals.
        unsafe {
            let logger = std::mem::transmute::<FixedLogger, Logger>(log);
            check(
                "init",
                (net.init)(&raw mut made.context, 1, &raw mut config, Some(logger), None),
            )?;
        }
        Ok(made)
    }

    /// A listener on the first device, and its handle.
    pub fn listen(&self) -> Result<(Opaque, Handle), Failure> {
        let (mut comm, mut handle) = (null_mut(), [0; HANDLE_BYTES]);
        // SAFETY: `handle` has HANDLE_BYTES and `comm` is a pointer, both locals.
        check("listen", unsafe {
            (self.net.listen)(self.context, 0, (&raw mut handle).cast(), &raw mut comm)
        })?;
        Ok((comm, handle))
    }

    /// A sender; None until the peer has answered. Call again with the same handle.
    pub fn connect(&self, handle: &mut Handle) -> Result<Option<Opaque>, Failure> {
        let mut comm = null_mut();
        let handle = std::ptr::from_mut(handle).cast();
        // SAFETY: `handle` is borrowed mutably and has HANDLE_BYTES; `comm` is a local. A host
        // network does not use the device handle.
        check("connect", unsafe {
            (self.net.connect)(self.context, 0, handle, &raw mut comm, &mut null_mut())
        })?;
        Ok((!comm.is_null()).then_some(comm))
    }

    /// A receiver; None until the peer has connected. Then the listener is closed.
    pub fn accept(&self, listener: Opaque) -> Result<Option<Opaque>, Failure> {
        let mut comm = null_mut();
        // SAFETY: `listener` came from listen; it is closed once, after its last use.
        unsafe {
            check("accept", (self.net.accept)(listener, &raw mut comm, &mut null_mut()))?;
            if !comm.is_null() {
                check("closeListen", (self.net.close_listen)(listener))?;
            }
        }
        Ok((!comm.is_null()).then_some(comm))
    }

    /// Start to send; None if the plugin cannot now.
    ///
    /// # Safety
    /// `comm` came from connect, and `data` stays valid until the request is done or the comm
    /// closed.
    pub unsafe fn isend(
        &self,
        comm: Opaque,
        data: *mut u8,
        size: usize,
    ) -> Result<Option<Opaque>, Failure> {
        let mut request = null_mut();
        // SAFETY: the caller guarantees `comm`, and `data` for as long as the request needs it.
        check("isend", unsafe {
            (self.net.isend)(comm, data.cast(), size, 0, null_mut(), null_mut(), &raw mut request)
        })?;
        Ok((!request.is_null()).then_some(request))
    }

    /// Post a buffer; None if the plugin cannot now.
    ///
    /// # Safety
    /// As for isend, with a comm from accept.
    pub unsafe fn irecv(
        &self,
        comm: Opaque,
        data: *mut u8,
        size: usize,
    ) -> Result<Option<Opaque>, Failure> {
        let (mut request, mut data, mut size, mut tag) =
            (null_mut(), data.cast::<c_void>(), size, 0);
        let (mut memory, mut event) = (null_mut(), null_mut());
        // SAFETY: the caller guarantees `comm`, and `data` for as long as the request needs it. All
        // arrays have one entry.
        let code = unsafe {
            let net = self.net;
            (net.irecv)(
                comm,
                1,
                &raw mut data,
                &raw mut size,
                &raw mut tag,
                &raw mut memory,
                &raw mut event,
                &raw mut request,
            )
        };
        check("irecv", code)?;
        Ok((!request.is_null()).then_some(request))
    }

    /// The bytes of a request when it is done; None before.
    ///
    /// # Safety
    /// The request has not tested done before, and its comm is open.
    pub unsafe fn test(&self, request: Opaque) -> Result<Option<usize>, Failure> {
        let (mut done, mut size): (c_int, c_int) = (0, 0);
        // SAFETY: the caller guarantees the request; `done` and `size` are locals.
        check("test", unsafe { (self.net.test)(request, &raw mut done, &raw mut size) })?;
        Ok((done != 0).then_some(size as usize))
    }

    /// Close a sender or a receiver.
    ///
    /// # Safety
    /// The comm is open, and this is its last use.
    pub unsafe fn close(&self, comm: Opaque, sends: bool) -> Result<(), Failure> {
        // SAFETY: the caller guarantees an open comm and that this is its last use.
        unsafe {
            if sends {
                check("closeSend", (self.net.close_send)(comm))
            } else {
                check("closeRecv", (self.net.close_recv)(comm))
            }
        }
    }
}

fn check(call: &str, code: c_int) -> Result<(), Failure> {
    if code == result::SUCCESS { Ok(()) } else { Err(format!("{call} returned {code}")) }
}
