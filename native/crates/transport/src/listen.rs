//! Opening a connection from the receiving end. Connections without the token are dropped before
//! they use resources.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use socket2::Socket;
use subtle::ConstantTimeEq;

use crate::config::Config;
use crate::error::{Error, Kind};
use crate::handle::{Address, Invitation};
use crate::nic::Nic;
use crate::sock::{self, Io};
use crate::wire::{self, Frame, HEADER, HELLO, Hello, TOKEN};

/// Connections that have not yet shown the token. A new one replaces the oldest.
const MAX_UNVERIFIED: usize = 64;
/// Time for a connection to show the token.
const PATIENCE: Duration = Duration::from_secs(5);
/// New connections accepted in one call.
const MAX_ACCEPTS: usize = 256;
const BACKLOG: i32 = 4096;

struct Unverified {
    socket: Socket,
    nic: usize,
    since: Instant,
    hello: [u8; HELLO],
    have: usize,
}

/// A stream whose peer has shown the token.
pub(crate) struct Welcomed {
    pub(crate) socket: Socket,
    pub(crate) peer: SocketAddr,
    pub(crate) index: usize,
    attempt: u32,
    pub(crate) nic: usize,
    /// Bytes of its first frame, received before the streams were known.
    pub(crate) first: [u8; HEADER],
    pub(crate) have: usize,
}

/// A connection that is being waited for.
pub(crate) struct Waiting {
    listening: Vec<(Socket, usize)>,
    token: [u8; TOKEN],
    unverified: Vec<Unverified>,
    nonce: Option<u64>,
    streams: Vec<Welcomed>,
    /// The streams that the peer announced, and the index of the inline stream.
    ready: Option<(u64, usize)>,
    /// Names of the interfaces.
    names: String,
    /// When the first stream arrived, and from where.
    begun: Option<(Instant, SocketAddr)>,
    /// Connections dropped because they did not show the token.
    pub(crate) dropped: u64,
}

impl Waiting {
    /// Listen on these interfaces, by number. The peer sends to the first if it can.
    pub(crate) fn new(nics: &[Nic], on: &[usize]) -> Result<(Self, Invitation), Error> {
        let mut token = [0; TOKEN];
        // SAFETY: `token` is a local array of TOKEN bytes, the length given. A call for at most 256
        // bytes is never interrupted (man 2 getrandom).
        if unsafe { libc::getrandom(token.as_mut_ptr().cast(), TOKEN, 0) } != TOKEN as isize {
            return Err(Error::system("random bytes"));
        }
        let mut listening = Vec::new();
        let mut addresses = Vec::new();
        let mut refused = None;
        for &number in on {
            let nic = &nics[number];
            let socket = match sock::bound(nic, 0) {
                // The interface is gone or has a new address. The others are enough.
                Err((ErrorKind::AddrNotAvailable, error)) => {
                    refused = Some(error);
                    continue;
                }
                bound => bound.map_err(|(_, error)| error)?,
            };
            let failed = |error: std::io::Error| {
                Error::new(Kind::System, format!("listening on {}: {error}", nic.name))
            };
            socket.listen(BACKLOG).map_err(failed)?;
            let here = socket.local_addr().map_err(failed)?.as_socket();
            addresses.push(Address {
                socket: here.unwrap_or(nic.address.socket),
                prefix: nic.address.prefix,
            });
            listening.push((socket, number));
        }
        if let Some(error) = refused.filter(|_| listening.is_empty()) {
            return Err(error);
        }
        let made = Self {
            names: listening
                .iter()
                .map(|(_, number)| nics[*number].name.as_str())
                .collect::<Vec<_>>()
                .join("+"),
            listening,
            token,
            unverified: Vec::new(),
            nonce: None,
            streams: Vec::new(),
            ready: None,
            begun: None,
            dropped: 0,
        };
        Ok((made, Invitation { token, addresses }))
    }

    /// Continue as far as possible. Returns the streams once all have arrived; the first is the
    /// inline stream.
    pub(crate) fn advance(&mut self, config: &Config) -> Result<Option<Vec<Welcomed>>, Error> {
        let now = Instant::now();
        self.accept_new(now)?;
        self.read_hellos(now, config);
        self.read_ready();
        let there = self.streams.iter().fold(0, |there, one| there | 1u64 << one.index);
        let Some((mask, inline)) = self.ready.filter(|(mask, _)| there & mask == *mask) else {
            return self.check_deadline(now, config).map(|()| None);
        };
        self.streams.retain(|one| mask & (1 << one.index) != 0);
        self.streams.sort_by_key(|one| (one.index != inline, one.index));
        Ok(Some(std::mem::take(&mut self.streams)))
    }

    /// Fail if a peer that has started does not finish in time.
    fn check_deadline(&self, now: Instant, config: &Config) -> Result<(), Error> {
        let Some((_, peer)) =
            self.begun.filter(|(begun, _)| now - *begun > Duration::from_secs(config.timeout_s))
        else {
            return Ok(());
        };
        let (there, which) = (
            self.streams.len(),
            if self.ready.is_some() {
                "others are missing"
            } else {
                "it has not announced how many there are"
            },
        );
        let (names, limit_s) = (&self.names, config.timeout_s);
        Err(Error::new(
            Kind::Remote,
            format!("{peer} opened {there} streams over {names}, but after {limit_s} s {which}"),
        ))
    }

    fn accept_new(&mut self, now: Instant) -> Result<(), Error> {
        for (socket, nic) in &self.listening {
            for _ in 0..MAX_ACCEPTS {
                let socket = match socket.accept() {
                    Ok((socket, _)) => socket,
                    Err(error) if is_shortage(&error) => return Err(shortage(&error)),
                    Err(_) => break,
                };
                if socket.set_nonblocking(true).is_err() {
                    continue;
                }
                if self.unverified.len() == MAX_UNVERIFIED {
                    self.unverified.remove(0);
                    self.dropped += 1;
                }
                self.unverified.push(Unverified {
                    socket,
                    nic: *nic,
                    since: now,
                    hello: [0; HELLO],
                    have: 0,
                });
                // Read at once, before others can replace it.
                if let Some(last) = self.unverified.last_mut() {
                    last.read_hello();
                }
            }
        }
        Ok(())
    }

    fn read_hellos(&mut self, now: Instant, config: &Config) {
        for mut unverified in std::mem::take(&mut self.unverified) {
            let alive = unverified.read_hello();
            if unverified.have == HELLO {
                self.verify(unverified, config);
            } else if alive && now - unverified.since < PATIENCE {
                self.unverified.push(unverified);
            } else {
                self.dropped += 1;
            }
        }
    }

    fn verify(&mut self, unverified: Unverified, config: &Config) {
        let hello = Hello::decode(&unverified.hello)
            .filter(|hello| bool::from(hello.token.ct_eq(&self.token)));
        let Some(hello) = hello else {
            self.dropped += 1;
            return;
        };
        // SAFETY: only the first part has bytes; it is a temporary array that lives during the
        // call. A peer that misses them tries again.
        unsafe { sock::send(unverified.socket.as_raw_fd(), &wire::welcome(), std::ptr::null(), 0) };
        let Some(peer) = unverified.socket.peer_addr().ok().and_then(|peer| peer.as_socket())
        else {
            return;
        };
        let index = usize::from(hello.index);
        self.begun.get_or_insert((Instant::now(), peer));
        if index >= 63 || *self.nonce.get_or_insert(hello.nonce) != hello.nonce {
            self.dropped += 1;
            return;
        }
        // The peer tried again. Attempts may be read in any order, which depends on their routes
        // and on when the caller looks.
        let attempt = hello.attempt;
        if self.streams.iter().any(|one| one.index == index && one.attempt > attempt) {
            return;
        }
        self.streams.retain(|one| one.index != index);
        sock::tune(&unverified.socket, config);
        sock::set_user_timeout(&unverified.socket, config.timeout_s);
        self.streams.push(Welcomed {
            socket: unverified.socket,
            peer,
            index,
            attempt,
            nic: unverified.nic,
            first: [0; HEADER],
            have: 0,
        });
    }

    /// Read the first frame of each stream, which announces the streams. A stream that has ended
    /// stays until the peer tries again or its next read fails; then others carry its data.
    fn read_ready(&mut self) {
        if self.ready.is_some() {
            return;
        }
        for one in &mut self.streams {
            let room = &mut one.first[one.have..];
            if room.is_empty() {
                continue;
            }
            // SAFETY: `room` is a part of `one.first`, which is borrowed mutably during the call.
            if let Io::Done(bytes) = unsafe {
                sock::receive(one.socket.as_raw_fd(), room.as_mut_ptr(), room.len(), &mut [])
            } {
                one.have += bytes;
            }
        }
        self.ready = self.streams.iter().find_map(|one| match Frame::decode(&one.first) {
            // An announcement without the inline stream is invalid.
            Ok(Frame::Ready { mask, inline })
                if one.have == HEADER && inline < 63 && mask & (1 << inline) != 0 =>
            {
                Some((mask, inline as usize))
            }
            _ => None,
        });
    }
}

/// The process or the system has run out of a resource, so accepting cannot succeed.
fn is_shortage(error: &std::io::Error) -> bool {
    [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM]
        .contains(&error.raw_os_error().unwrap_or(0))
}

fn shortage(error: &std::io::Error) -> Error {
    Error::new(
        Kind::System,
        format!("accepting a connection: {error}{}", sock::descriptor_hint(error)),
    )
}

impl Unverified {
    /// Continue to read; returns false if the connection has ended.
    fn read_hello(&mut self) -> bool {
        let room = &mut self.hello[self.have..];
        if room.is_empty() {
            return true;
        }
        // SAFETY: `room` is a part of `self.hello`, which is borrowed mutably during the call.
        match unsafe {
            sock::receive(self.socket.as_raw_fd(), room.as_mut_ptr(), room.len(), &mut [])
        } {
            Io::Done(bytes) => {
                self.have += bytes;
                true
            }
            Io::Blocked => true,
            Io::Ended(_) => false,
        }
    }
}
