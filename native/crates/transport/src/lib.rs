//! A TCP transport of many streams for point-to-point messages, as NCCL's net plugins need it: messages of a connection arrive in order,
//! several are in flight at a time, and their chunks take whichever stream is free.

use std::ptr::NonNull;
use std::sync::Arc;

mod error;
pub use error::{Error, Kind};

/// Opaque bytes that a listener gives to its peer: addresses, ports and a random token.
pub type Handle = [u8; 128];

/// Buffers of one grouped receive at most.
pub const MAX_GROUP: usize = 8;

/// How loud a line of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something is wrong; always shown.
    Warn,
    /// Shown under NCCL_DEBUG=INFO.
    Info,
}

/// Where lines of the log go; called from any thread.
pub type Log = Arc<dyn Fn(Level, &str) + Send + Sync>;

/// A network interface that the transport may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Interface name.
    pub name: String,
    /// Real path of its PCI device in sysfs; None for a virtual interface.
    pub pci_path: Option<String>,
    /// In Mbit/s.
    pub speed_mbps: u32,
}

/// The transport of this process.
pub struct Transport {}

/// Waits for one peer.
pub struct Listener {}

/// The sending end of a connection.
pub struct Sender {}

/// The receiving end of a connection.
pub struct Receiver {}

/// One message under way, or one grouped receive; lives in its connection.
pub struct Request {}

impl Transport {
    /// Read `BUSBW_NET_*`, find interfaces, start nothing yet.
    ///
    /// # Errors
    /// A variable that cannot be meant, or no usable interface.
    pub fn open(log: Log) -> Result<Arc<Self>, Error> {
        let _ = log;
        todo!()
    }

    /// Usable interfaces, at least one.
    pub fn devices(&self) -> &[Device] {
        todo!()
    }

    /// Listen for one peer on a device, at once.
    ///
    /// # Errors
    /// No such device, or the system refuses a socket.
    pub fn listen(self: &Arc<Self>, device: usize) -> Result<(Box<Listener>, Handle), Error> {
        let _ = device;
        todo!()
    }

    /// Connect to a listener: never waits; None until called again often enough.
    ///
    /// # Errors
    /// The handle is none of ours, or the peer refuses or does not answer in time.
    pub fn connect(self: &Arc<Self>, device: usize, handle: &Handle) -> Result<Option<Box<Sender>>, Error> {
        let _ = (device, handle);
        todo!()
    }
}

impl Listener {
    /// The connection, once the peer has come: never waits.
    ///
    /// # Errors
    /// The system refuses, or the peer speaks another version.
    pub fn accept(&mut self) -> Result<Option<Box<Receiver>>, Error> {
        todo!()
    }
}

impl Sender {
    /// Begin to send `size` bytes at `data`; None where too many are under way. `tag` selects the buffer of a grouped receive.
    ///
    /// # Safety
    /// `data` stays readable until the request has tested done or this connection is dropped.
    ///
    /// # Errors
    /// The peer is gone.
    pub unsafe fn isend(&self, data: *const u8, size: usize, tag: i32) -> Result<Option<NonNull<Request>>, Error> {
        let _ = (data, size, tag);
        todo!()
    }
}

impl Receiver {
    /// Post buffers (address, bytes, tag), 1 to MAX_GROUP of them, for the next as many messages; None where too many are posted.
    ///
    /// # Safety
    /// The buffers stay writable until the request has tested done or this connection is dropped.
    ///
    /// # Errors
    /// The peer is gone.
    pub unsafe fn irecv(&self, buffers: &[(*mut u8, usize, i32)]) -> Result<Option<NonNull<Request>>, Error> {
        let _ = buffers;
        todo!()
    }
}

impl Request {
    /// Whether it is done: then `sizes` (as many as buffers) has the bytes sent or received, and the request is no more.
    ///
    /// # Safety
    /// `request` came from isend or irecv of a connection that still lives, and has not tested done before.
    ///
    /// # Errors
    /// The peer is gone, or sent more than was posted.
    pub unsafe fn test(request: NonNull<Self>, sizes: &mut [usize]) -> Result<bool, Error> {
        let _ = (request, sizes);
        todo!()
    }
}
