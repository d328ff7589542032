//! Opening a connection from the sending end: several streams at once, none of them ever waited for.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::config::Config;
use crate::error::{Error, Kind};
use crate::handle::{Address, Invitation, same_network};
use crate::nic::Nic;
use crate::ports;
use crate::sock::{self, Io};
use crate::wire::{self, Frame, HELLO, Hello, VERSION, WELCOME};

/// For streams that are still opening once one is open: a path that does not work must not hold up those that do.
const STRAGGLERS: Duration = Duration::from_secs(2);
/// Attempts of one stream: a listener under attack may have dropped it.
const ATTEMPTS: u32 = 5;
/// Before the second attempt; before each other twice as long.
const PAUSE: Duration = Duration::from_millis(20);

enum Stage {
    Connecting,
    Greeting(usize),
    Awaiting([u8; WELCOME], usize),
    Open,
    Lost,
}

struct Opening {
    socket: Option<Socket>,
    stage: Stage,
    nic: usize,
    to: SocketAddr,
    attempts: u32,
    lost: Option<Instant>,
}

/// A connection that is being opened.
pub(crate) struct Connecting {
    invitation: Invitation,
    nonce: u64,
    openings: Vec<Opening>,
    deadline: Instant,
    first_open: Option<Instant>,
    trouble: String,
    redirected: bool,
}

/// An open stream, with the number it has on both ends and the interface it uses.
pub(crate) struct Opened {
    pub(crate) socket: Socket,
    pub(crate) index: usize,
    pub(crate) nic: usize,
}

impl Connecting {
    pub(crate) fn new(invitation: Invitation, nics: &[Nic], config: &Config, nonce: u64) -> Self {
        let streams = config.streams.max(nics.len().max(invitation.addresses.len())) + 1;
        let openings = (0..streams)
            .map(|index| {
                let nic = index % nics.len();
                let to = opposite(&nics[nic], index, &invitation.addresses);
                Opening { socket: None, stage: Stage::Lost, nic, to, attempts: 0, lost: None }
            })
            .collect();
        let deadline = Instant::now() + Duration::from_secs(config.timeout_s);
        Self { invitation, nonce, openings, deadline, first_open: None, trouble: String::new(), redirected: false }
    }

    /// Whether nobody has asked for it long after its time.
    pub(crate) fn given_up(&self) -> bool {
        Instant::now() > self.deadline + STRAGGLERS
    }

    /// Go on as far as possible: the open streams once there will be no more, the one for small messages first.
    pub(crate) fn advance(&mut self, nics: &[Nic], config: &Config) -> Result<Option<Vec<Opened>>, Error> {
        let now = Instant::now();
        for index in 0..self.openings.len() {
            self.attempt(index, nics, config, now);
        }
        let open = self.openings.iter().filter(|one| matches!(one.stage, Stage::Open)).count();
        let lost = self.openings.iter().filter(|one| matches!(one.stage, Stage::Lost) && one.attempts >= ATTEMPTS).count();
        if open > 0 && self.first_open.is_none() {
            self.first_open = Some(now);
        }
        let waited = self.first_open.is_some_and(|first| now - first > STRAGGLERS);
        if open + lost < self.openings.len() && !waited && now < self.deadline {
            return Ok(None);
        }
        if open == 1 && !std::mem::replace(&mut self.redirected, true) {
            self.redirect();
            self.first_open = Some(now);
            return Ok(None);
        }
        if open < 2 {
            let peer = self.openings[0].to;
            return Err(Error::new(Kind::Remote, format!("no connection to {peer} from {}: {}", nics[0].name, self.trouble)));
        }
        let opened: Vec<Opened> = std::mem::take(&mut self.openings)
            .into_iter()
            .enumerate()
            .filter(|(_, one)| matches!(one.stage, Stage::Open))
            .filter_map(|(index, one)| one.socket.map(|socket| Opened { socket, index, nic: one.nic }))
            .collect();
        let mask = opened.iter().fold(0, |mask, one| mask | 1u64 << one.index);
        let ready = Frame::Ready { mask }.encode();
        // SAFETY: our own bytes; a new socket takes so few at once.
        match unsafe { sock::send(opened[0].socket.as_raw_fd(), &ready, std::ptr::null(), 0) } {
            Io::Done(bytes) if bytes == ready.len() => Ok(Some(opened)),
            other => {
                Err(Error::new(Kind::Remote, format!("{}: the first words do not go out: {other:?}", self.invitation.addresses[0].socket)))
            }
        }
    }

    /// One way works, and one stream is too few: the others take that way too.
    fn redirect(&mut self) {
        let Some((nic, to)) = self.openings.iter().find(|one| matches!(one.stage, Stage::Open)).map(|one| (one.nic, one.to)) else {
            return;
        };
        for one in self.openings.iter_mut().filter(|one| !matches!(one.stage, Stage::Open)) {
            *one = Opening { socket: None, stage: Stage::Lost, nic, to, attempts: 0, lost: None };
        }
    }

    fn attempt(&mut self, index: usize, nics: &[Nic], config: &Config, now: Instant) {
        let opening = &mut self.openings[index];
        let again = opening.attempts < ATTEMPTS && opening.lost.is_none_or(|lost| now - lost >= PAUSE * (1 << opening.attempts) / 2);
        if matches!(opening.stage, Stage::Open) || (matches!(opening.stage, Stage::Lost) && !again) {
            return;
        }
        let hello = Hello { version: VERSION, index: index as u16, nonce: self.nonce, token: self.invitation.token }.encode();
        if let Err(error) = opening.advance(&nics[opening.nic], config, &hello, index == 0, self.nonce) {
            self.trouble = error;
            opening.stage = Stage::Lost;
            opening.socket = None;
            opening.lost = Some(now);
        }
    }
}

impl Opening {
    fn advance(&mut self, nic: &Nic, config: &Config, hello: &[u8; HELLO], small: bool, random: u64) -> Result<(), String> {
        if matches!(self.stage, Stage::Lost) {
            self.attempts += 1;
            let made =
                if small { sock::bound(nic, 0).map_err(|(_, error)| error) } else { ports::socket(nic, self.nic, self.to, config, random) };
            let socket = made.map_err(|error| error.message)?;
            sock::tune(&socket, config);
            match socket.connect(&self.to.into()) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
                Err(error) => return Err(error.to_string()),
            }
            (self.socket, self.stage) = (Some(socket), Stage::Connecting);
        }
        let Some(socket) = &self.socket else { return Ok(()) };
        let fd = socket.as_raw_fd();
        if matches!(self.stage, Stage::Connecting) {
            if let Some(error) = socket.take_error().map_err(|error| error.to_string())? {
                return Err(error.to_string());
            }
            if socket.peer_addr().is_err() {
                return Ok(()); // not yet
            }
            self.stage = Stage::Greeting(0);
        }
        if let Stage::Greeting(sent) = self.stage {
            // SAFETY: our own bytes.
            match unsafe { sock::send(fd, &hello[sent..], std::ptr::null(), 0) } {
                Io::Done(bytes) if sent + bytes == HELLO => self.stage = Stage::Awaiting([0; WELCOME], 0),
                Io::Done(bytes) => self.stage = Stage::Greeting(sent + bytes),
                Io::Blocked => {}
                Io::Ended(error) => return Err(format!("the greeting does not go out: {error:?}")),
            }
        }
        if let Stage::Awaiting(mut answer, have) = self.stage {
            let room = &mut answer[have..];
            // SAFETY: our own buffer.
            match unsafe { sock::receive(fd, room.as_mut_ptr(), room.len(), &mut []) } {
                Io::Done(bytes) if have + bytes == WELCOME => {
                    let version = wire::read_welcome(&answer).map_err(|error| error.message)?;
                    if version != VERSION {
                        self.attempts = ATTEMPTS;
                        return Err(format!(
                            "it speaks version {version} of busbw's format, this is {VERSION}: install one version everywhere"
                        ));
                    }
                    self.stage = Stage::Open;
                }
                Io::Done(bytes) => self.stage = Stage::Awaiting(answer, have + bytes),
                Io::Blocked => {}
                Io::Ended(error) => return Err(error.map_or_else(|| "it closed the connection".to_owned(), |error| error.to_string())),
            }
        }
        Ok(())
    }
}

/// The peer's address for a stream from an interface: one of the same network, otherwise each in turn.
fn opposite(nic: &Nic, index: usize, addresses: &[Address]) -> SocketAddr {
    let own = nic.address.socket.ip();
    let near: Vec<_> = addresses.iter().filter(|there| same_network(own, there.socket.ip(), there.prefix)).collect();
    if near.is_empty() { addresses[index % addresses.len()].socket } else { near[index % near.len()].socket }
}
