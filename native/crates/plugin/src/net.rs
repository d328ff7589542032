//! The one transport of this process and its devices, as NCCL sees them.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock};

use busbw_transport::{Device, Error, Kind, Transport, lock};

use crate::logger;

/// The name of this network in NCCL_NET.
pub const NAME: &CStr = c"busbw";

/// Limit of comms for a device. Sockets and memory run out before.
pub const MAX_COMMS: c_int = 65536;

/// Largest point-to-point message in bytes: no limit, as NCCL divides them.
pub const MAX_P2P_BYTES: usize = 1 << 40;

/// Largest message of a collective in bytes: NCCL's value for plugins without one.
pub const MAX_COLL_BYTES: usize = 512 << 20;

// Never cleared: NCCL keeps device names, and a later init gets the same transport.
static NET: OnceLock<Net> = OnceLock::new();
static OPENING: Mutex<()> = Mutex::new(());

/// The transport and its devices, with texts as C strings.
pub struct Net {
    /// Shared by all communicators.
    pub transport: Arc<Transport>,
    /// In the transport's order.
    pub devices: Vec<NetDevice>,
}

/// A device, with texts as C strings.
pub struct NetDevice {
    name: CString,
    pci_path: Option<CString>,
    speed_mbps: u32,
}

impl Net {
    /// The transport of this process. The first successful call opens it.
    ///
    /// # Errors
    /// The transport does not open. The next call tries again.
    pub fn open() -> Result<&'static Self, Error> {
        let _one_at_a_time = lock(&OPENING);
        if let Some(net) = NET.get() {
            return Ok(net);
        }
        let transport = Transport::open(Arc::new(logger::say))?;
        let devices = transport.devices().iter().map(NetDevice::new).collect::<Result<_, _>>()?;
        Ok(NET.get_or_init(|| Self { transport, devices }))
    }

    /// The transport of this process, opened by an init.
    ///
    /// # Errors
    /// No init has succeeded.
    pub fn opened() -> Result<&'static Self, Error> {
        NET.get().ok_or_else(|| Error::new(Kind::Usage, "NCCL called before a successful init"))
    }

    /// A device by NCCL's number, with that number.
    ///
    /// # Errors
    /// There is no such device.
    pub fn device(&self, dev: c_int) -> Result<(usize, &NetDevice), Error> {
        let index = usize::try_from(dev).ok().filter(|&index| index < self.devices.len());
        index.map(|index| (index, &self.devices[index])).ok_or_else(|| {
            Error::new(
                Kind::Usage,
                format!("no device {dev}: there are {}, numbered from 0", self.devices.len()),
            )
        })
    }
}

impl NetDevice {
    /// A device of the transport.
    ///
    /// # Errors
    /// A text has a zero byte.
    pub fn new(device: &Device) -> Result<Self, Error> {
        let text = |text: &str| {
            CString::new(text).map_err(|_| {
                Error::new(Kind::Internal, format!("a zero byte in the name of a device: {text:?}"))
            })
        };
        Ok(Self {
            name: text(&device.name)?,
            pci_path: device.pci_path.as_deref().map(text).transpose()?,
            speed_mbps: device.speed_mbps,
        })
    }

    /// Its name, valid as long as the device.
    pub fn name(&self) -> *const c_char {
        self.name.as_ptr()
    }

    /// Its PCI path or NULL, valid as long as the device.
    pub fn pci_path(&self) -> *const c_char {
        self.pci_path.as_ref().map_or(ptr::null(), |path| path.as_ptr())
    }

    /// In Mbit/s.
    pub fn speed(&self) -> c_int {
        saturated(self.speed_mbps)
    }
}

/// As a C int; the largest int if it does not fit.
pub fn saturated(value: impl TryInto<c_int>) -> c_int {
    value.try_into().unwrap_or(c_int::MAX)
}
