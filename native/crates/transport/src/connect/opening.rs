//! One stream that is being opened.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::config::Config;
use crate::error::Error;
use crate::nic::Nic;
use crate::ports;
use crate::sock::{self, Io};
use crate::wire::{self, HEADER, HELLO, Hello, WELCOME};

/// Attempts of one stream, as a listener under attack may have dropped it. A route that is down is
/// tried for longer.
const ATTEMPTS: u32 = 5;
/// Before the second attempt. Each later pause is twice as long, up to 16 times.
const PAUSE: Duration = Duration::from_millis(20);

/// From an interface to an address of the peer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) nic: usize,
    pub(super) to: SocketAddr,
}

enum Stage {
    Connecting,
    Greeting(usize),
    Awaiting([u8; WELCOME], usize),
    Open,
    Lost,
}

/// Why an attempt failed.
#[derive(Default)]
struct Failure {
    message: String,
    /// The route is down and may recover. False if the peer refuses.
    down: bool,
}

pub(super) struct Opening {
    pub(super) socket: Option<Socket>,
    pub(super) route: Route,
    stage: Stage,
    /// On this route, and on all.
    attempts: u32,
    every: u32,
    lost: Option<Instant>,
    failure: Failure,
}

impl Failure {
    fn of(error: &io::Error, nic: &Nic) -> Self {
        Self { message: error.to_string(), down: is_down(error.kind(), nic) }
    }
}

impl<T: Into<String>> From<T> for Failure {
    fn from(message: T) -> Self {
        Self { message: message.into(), down: false }
    }
}

/// Whether an error means that an interface or its route is down and may recover.
fn is_down(kind: ErrorKind, nic: &Nic) -> bool {
    match kind {
        ErrorKind::AddrNotAvailable
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::TimedOut => true,
        // An interface that is up without a route will not get one: report it soon.
        ErrorKind::NetworkUnreachable => !nic.is_up(),
        _ => false,
    }
}

impl Opening {
    pub(super) fn new(route: Route) -> Self {
        Self {
            socket: None,
            route,
            stage: Stage::Lost,
            attempts: 0,
            every: 0,
            lost: None,
            failure: Failure::default(),
        }
    }

    /// Start again on another route.
    pub(super) fn reroute(&mut self, route: Route) {
        *self = Self { every: self.every, ..Self::new(route) };
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Whether to stop waiting for it if others are open.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.stage, Stage::Lost) && self.attempts >= ATTEMPTS
    }

    /// Whether it is open or may still open.
    pub(super) fn may_open(&self) -> bool {
        !self.has_failed() || self.failure.down
    }

    /// Its route and the result.
    pub(super) fn message(&self, nics: &[Nic]) -> String {
        let what = match (&self.failure.message, self.is_open()) {
            (message, _) if !message.is_empty() => message,
            (_, true) => "open, but one stream is not enough",
            _ => "no answer",
        };
        format!("to {} from {}: {what}", self.route.to, nics[self.route.nic].name)
    }

    /// Continue as far as possible.
    pub(super) fn attempt(&mut self, hello: Hello, nics: &[Nic], config: &Config, now: Instant) {
        let pause = PAUSE * (1 << self.attempts.min(ATTEMPTS)) / 2;
        let again = self.may_open() && self.lost.is_none_or(|lost| now - lost >= pause);
        if self.is_open() || (matches!(self.stage, Stage::Lost) && !again) {
            return;
        }
        if let Err(failure) = self.advance(&nics[self.route.nic], config, hello) {
            self.failure = failure;
            (self.stage, self.socket, self.lost) = (Stage::Lost, None, Some(now));
        }
    }

    fn advance(&mut self, nic: &Nic, config: &Config, hello: Hello) -> Result<(), Failure> {
        if matches!(self.stage, Stage::Lost) {
            (self.attempts, self.every) = (self.attempts + 1, self.every + 1);
            self.socket = Some(self.begin(nic, config, hello)?);
            self.stage = Stage::Connecting;
        }
        let Some(socket) = &self.socket else { return Ok(()) };
        let failed = |error: io::Error| Failure::of(&error, nic);
        if matches!(self.stage, Stage::Connecting) {
            if let Some(error) = socket.take_error().map_err(failed)? {
                return Err(failed(error));
            }
            if socket.peer_addr().is_err() {
                return Ok(()); // not yet
            }
            self.stage = Stage::Greeting(0);
        }
        let fd = socket.as_raw_fd();
        if let Stage::Greeting(sent) = self.stage {
            // SAFETY: only the first part has bytes; it is a temporary array that lives during the
            // call.
            match unsafe {
                sock::send(
                    fd,
                    &Hello { attempt: self.every, ..hello }.encode()[sent..],
                    std::ptr::null(),
                    0,
                )
            } {
                Io::Done(bytes) if sent + bytes == HELLO => {
                    self.stage = Stage::Awaiting([0; WELCOME], 0)
                }
                Io::Done(bytes) => self.stage = Stage::Greeting(sent + bytes),
                Io::Blocked => {}
                Io::Ended(error) => {
                    return Err(error.map_or_else(|| "the greeting was not sent".into(), failed));
                }
            }
        }
        if let Stage::Awaiting(answer, have) = self.stage {
            self.stage = continued(fd, answer, have, nic)?;
        }
        Ok(())
    }

    fn begin(&self, nic: &Nic, config: &Config, hello: Hello) -> Result<Socket, Failure> {
        let Route { nic: at, to } = self.route;
        let made = if hello.index == 0 {
            sock::bound(nic, 0)
        } else {
            ports::socket(nic, at, to, config, hello.nonce)
        };
        let socket = made.map_err(|(kind, Error { message, .. })| Failure {
            message,
            down: is_down(kind, nic),
        })?;
        sock::tune(&socket, config);
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => {
                Err(Failure::of(&error, nic))
            }
            _ => Ok(socket),
        }
    }

    /// Send the first frame; returns false if the stream has ended.
    pub(super) fn tell(&mut self, frame: &[u8; HEADER]) -> bool {
        let Some(socket) = &self.socket else { return false };
        // SAFETY: only the first part has bytes, and `frame` is borrowed during the call. A new
        // socket has room for a frame.
        let told = matches!(
            unsafe { sock::send(socket.as_raw_fd(), frame, std::ptr::null(), 0) },
            Io::Done(HEADER)
        );
        if !told {
            // No other frame may follow half a frame. The next user of this stream sees it as lost.
            let _ = socket.shutdown(Shutdown::Both);
            self.failure = "it ended while opening".into();
        }
        told
    }
}

/// Continue to read the peer's answer.
fn continued(
    fd: RawFd,
    mut answer: [u8; WELCOME],
    have: usize,
    nic: &Nic,
) -> Result<Stage, Failure> {
    let room = &mut answer[have..];
    // SAFETY: `room` is a part of `answer`, which is borrowed mutably during the call.
    match unsafe { sock::receive(fd, room.as_mut_ptr(), room.len(), &mut []) } {
        Io::Done(bytes) if have + bytes == WELCOME => {
            if answer == wire::welcome() {
                Ok(Stage::Open)
            } else {
                Err("the peer's answer is not busbw's".into())
            }
        }
        Io::Done(bytes) => Ok(Stage::Awaiting(answer, have + bytes)),
        Io::Blocked => Ok(Stage::Awaiting(answer, have)),
        Io::Ended(error) => Err(error
            .map_or_else(|| "it closed the connection".into(), |error| Failure::of(&error, nic))),
    }
}
