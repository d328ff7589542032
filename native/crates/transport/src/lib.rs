//! A TCP transport with several streams for each connection, for point-to-point messages as NCCL's
//! net plugins exchange them. The messages of a connection arrive in order, several are in flight
//! at once, and their chunks go over whichever stream is free.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

mod budget;
mod caller_share;
pub mod config;
mod congestion;
mod connect;
mod connection;
mod doorbell;
mod error;
mod handle;
mod listen;
mod locks;
mod log;
mod nic;
mod pool;
mod ports;
#[cfg(any(test, fuzzing))]
pub mod properties;
mod receiver;
mod recv_lane;
mod request;
mod send_lane;
mod send_method;
mod sender;
mod sock;
mod speed;
mod stall;
mod stats;
mod wire;
mod zerocopy;

use budget::Budget;
use caller_share::CallerShare;
use config::Config;
use connect::Connecting;
use handle::Invitation;
use listen::Waiting;
use nic::Nic;
use pool::{Direction, Pool, Task, TaskRef};
use send_lane::SendLane;
use sender::SendCore;
use stats::{Counters, Register};

pub use connection::{Listener, Receiver, Sender};
pub use error::{Error, Kind};
pub use handle::Handle;
pub use locks::lock;
pub use log::{Level, Log};
pub use request::Request;
pub use speed::stated as stated_mbps;

/// The device of all interfaces, whatever the transport offers.
pub const ALL: usize = usize::MAX;

/// A device that the transport offers: an interface, or all of them with `BUSBW_NET_MERGE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Interface names, joined by `+`.
    pub name: String,
    /// Real path of the first interface's PCI device in sysfs; None for a virtual interface.
    pub pci_path: Option<String>,
    /// Sum over its interfaces in Mbit/s.
    pub speed_mbps: u32,
}

impl Device {
    fn of(nics: &[Nic], speeds: &[u32]) -> Self {
        let name = nics.iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>().join("+");
        let speed_mbps = speeds.iter().fold(0, |sum, speed| u32::saturating_add(sum, *speed));
        Self { name, pci_path: nics[0].pci_path.clone(), speed_mbps }
    }
}

/// The transport of this process.
pub struct Transport {
    config: Arc<Config>,
    log: Log,
    nics: Vec<Nic>,
    devices: Vec<Device>,
    pool: Pool,
    connecting: Mutex<HashMap<Handle, Connecting>>,
    register: Arc<Register>,
    /// Microseconds that all closing connections together may still wait for their last small
    /// messages.
    linger_us: AtomicU64,
    /// Memory for the early-arrival buffers of all connections.
    early_budget: Arc<Budget>,
    /// What callers of all connections send themselves.
    caller_share: Arc<CallerShare>,
}

impl Transport {
    /// Read `BUSBW_NET_*` and find the interfaces. No thread starts yet.
    ///
    /// # Errors
    /// A variable has an invalid value, or there is no usable interface.
    pub fn open(log: Log) -> Result<Arc<Self>, Error> {
        Self::with(Config::from_env()?, log)
    }

    /// Like `open`, with the given settings.
    ///
    /// # Errors
    /// There is no usable interface, or the congestion control is not available.
    pub fn with(config: Config, log: Log) -> Result<Arc<Self>, Error> {
        congestion::check(&config)?;
        let (nics, left_out) = nic::find(&config)?;
        let speeds = speed::of(&nics, &config);
        let each = if config.merge { nics.len() } else { 1 };
        let devices = nics
            .chunks(each)
            .zip(speeds.chunks(each))
            .map(|(nics, speeds)| Device::of(nics, speeds))
            .collect();
        for (nic, speed) in nics.iter().zip(&speeds) {
            log(
                Level::Info,
                &format!("{} {} at {speed} Mbit/s", nic.name, nic.address.socket.ip()),
            );
        }
        for message in left_out {
            log(Level::Info, &format!("not used: {message}"));
        }
        let asked = (config.speed_mbps > 0).then_some(config.speed_mbps);
        let threads = config.threads_for_speeds(nics.iter().map(|nic| asked.or(nic.speed_mbps)));
        log(
            Level::Info,
            &format!(
                "{} streams per connection, {threads} I/O threads, inline messages up to {} bytes",
                config.streams, config.inline
            ),
        );
        let register = Arc::new(Register::default());
        register.write_to(&config.stats, &log);
        let pool = Pool::new(threads, config.spin_us.unwrap_or_default());
        let linger_us = AtomicU64::new(sender::LINGER_ALL.as_micros() as u64);
        let config = Arc::new(config);
        Ok(Arc::new(Self {
            config,
            log,
            nics,
            devices,
            pool,
            connecting: Mutex::default(),
            register,
            linger_us,
            early_budget: receiver::early_budget(),
            caller_share: Arc::default(),
        }))
    }

    /// Remove an ended connection. After the last one, log a summary of all.
    fn ended(&self, number: usize, counters: &Counters) {
        if self.register.remove(number, counters) {
            (self.log)(Level::Info, &self.register.summary());
        }
    }

    /// The devices on offer.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Whether the library's tuner is on (`BUSBW_NET_TUNE`).
    pub fn tunes(&self) -> bool {
        self.config.tune
    }

    /// Listen for one peer. Does not wait.
    ///
    /// # Errors
    /// There is no such device, or the system refuses a socket.
    pub fn listen(self: &Arc<Self>, device: usize) -> Result<(Box<Listener>, Handle), Error> {
        let count = self.nics.len();
        let on: Vec<usize> = match self.nic_of(device)? {
            // the second for the spare stream
            Some(nic) if count > 1 => vec![nic, (nic + 1) % count],
            _ => (0..count).collect(),
        };
        let (waiting, invitation) = Waiting::new(&self.nics, &on)?;
        Ok((Box::new(Listener { transport: self.clone(), waiting }), invitation.encode()))
    }

    /// Connect to a listener. Does not wait: returns None until the connection is open; call again
    /// with the same handle.
    ///
    /// # Errors
    /// The handle has another format, or the peer refuses or does not answer in time.
    pub fn connect(
        self: &Arc<Self>,
        device: usize,
        handle: &Handle,
    ) -> Result<Option<Box<Sender>>, Error> {
        let nic = self.nic_of(device)?;
        let mut every = lock(&self.connecting);
        every.retain(|_, one| !one.given_up()); // by callers that stopped calling
        let mut one = match every.remove(handle) {
            Some(one) => one,
            None => Connecting::new(
                Invitation::decode(handle)?,
                &self.nics,
                &self.config,
                nonce()?,
                nic,
            ),
        };
        let Some(opened) = one.advance(&self.nics, &self.config)? else {
            every.insert(*handle, one);
            return Ok(None);
        };
        drop(every);
        let mut opened = opened.into_iter();
        let Some(inline) = opened.next() else {
            return Err(Error::new(Kind::Internal, "a connection without streams"));
        };
        let peer = inline.socket.peer_addr().ok().and_then(|peer| peer.as_socket());
        let lanes: Vec<_> = opened.collect();
        let label =
            self.label("to", peer, lanes.iter().filter(|lane| !lane.spare).map(|lane| lane.nic));
        let spare = lanes
            .iter()
            .enumerate()
            .fold(0, |spare, (at, lane)| spare | u64::from(lane.spare) << at);
        let counters = Arc::new(Counters::new(
            label.clone(),
            lanes.iter().map(|lane| self.nics[lane.nic].name.clone()),
        ));
        let number = self.register.add(&counters);
        let core = SendCore::new(
            label,
            self.config.clone(),
            self.log.clone(),
            counters,
            inline.socket,
            spare,
            self.caller_share.clone(),
        );
        let sockets = lanes.into_iter().map(|lane| lane.socket).collect();
        let tasks = self.start_tasks(
            Direction::Out,
            sockets,
            |tasks| core.set_tasks(tasks),
            |lane, socket| Box::new(SendLane::new(core.clone(), lane, socket)),
        )?;
        Ok(Some(Box::new(Sender { core, tasks, number, transport: self.clone() })))
    }

    /// The interface of a device; None if it has all of them.
    fn nic_of(&self, device: usize) -> Result<Option<usize>, Error> {
        if device != ALL && device >= self.devices.len() {
            return Err(Error::new(
                Kind::Usage,
                format!("no device {device}: there are {}", self.devices.len()),
            ));
        }
        Ok(Some(device).filter(|_| device != ALL && !self.config.merge))
    }

    /// What a connection is called: its peer, and the interfaces of its streams.
    fn label(
        &self,
        direction: &str,
        peer: Option<SocketAddr>,
        nics: impl Iterator<Item = usize>,
    ) -> String {
        let peer = peer.map_or_else(
            || "a disconnected peer".to_owned(),
            |peer| peer.ip().to_canonical().to_string(),
        );
        let used: BTreeSet<usize> = nics.collect();
        let names: Vec<&str> = used.into_iter().map(|nic| self.nics[nic].name.as_str()).collect();
        format!("{direction} {peer} over {}", names.join("+"))
    }

    /// Give each socket to an I/O thread. `known` receives all tasks before the first of them runs.
    fn start_tasks<S>(
        &self,
        direction: Direction,
        sockets: Vec<S>,
        known: impl FnOnce(Vec<TaskRef>),
        mut task: impl FnMut(usize, S) -> Box<dyn Task>,
    ) -> Result<Vec<TaskRef>, Error> {
        let tasks =
            sockets.iter().map(|_| self.pool.reserve(direction)).collect::<Result<Vec<_>, _>>()?;
        known(tasks.clone());
        for (lane, (socket, task_ref)) in sockets.into_iter().zip(&tasks).enumerate() {
            self.pool.start(task_ref, task(lane, socket));
        }
        Ok(tasks)
    }
}

fn nonce() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    // SAFETY: `bytes` is a local array of 8 bytes, the length given. A call for at most 256 bytes
    // is never interrupted (man 2 getrandom).
    if unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), 8, 0) } != 8 {
        return Err(Error::system("random bytes"));
    }
    Ok(u64::from_le_bytes(bytes))
}
