//! Opening a connection from the sending end: several streams at once, without blocking.

use std::time::{Duration, Instant};

use socket2::Socket;

use crate::config::Config;
use crate::error::{Error, Kind};
use crate::handle::{Address, Invitation, same_network};
use crate::nic::Nic;
use crate::wire::{Frame, Hello};

mod opening;
use opening::{Opening, Route};

/// Time for the remaining streams once one is open, so that a broken path does not delay the
/// working ones.
const STRAGGLERS: Duration = Duration::from_secs(2);

/// The same for the spare stream alone.
const SPARE: Duration = Duration::from_millis(200);

/// A connection that is being opened.
pub(crate) struct Connecting {
    invitation: Invitation,
    nonce: u64,
    /// The interface of its device; None if it uses all of them.
    device: Option<usize>,
    openings: Vec<Opening>,
    deadline: Instant,
    first_open: Option<Instant>,
    /// How often streams that do not open were moved to another route.
    reroutes: u32,
}

/// An open stream and the interface it uses. A spare one is on another interface than the rest, and
/// carries nothing while they work.
pub(crate) struct Opened {
    pub(crate) socket: Socket,
    pub(crate) nic: usize,
    pub(crate) spare: bool,
}

impl Connecting {
    pub(crate) fn new(
        invitation: Invitation,
        nics: &[Nic],
        config: &Config,
        nonce: u64,
        device: Option<usize>,
    ) -> Self {
        let streams = match device {
            Some(_) => config.streams + spares(device, nics),
            None => config.streams.max(nics.len().max(invitation.addresses.len())),
        };
        let deadline = Instant::now() + Duration::from_secs(config.timeout_s);
        let mut made = Self {
            invitation,
            nonce,
            device,
            openings: Vec::new(),
            deadline,
            first_open: None,
            reroutes: 0,
        };
        made.openings =
            (0..=streams).map(|index| Opening::new(made.own_route(index, streams, nics))).collect();
        made
    }

    /// Whether its caller stopped asking long after the deadline.
    pub(crate) fn given_up(&self) -> bool {
        Instant::now() > self.deadline + STRAGGLERS
    }

    /// Continue as far as possible. Returns the open streams once no more will open; the first is
    /// the inline stream.
    pub(crate) fn advance(
        &mut self,
        nics: &[Nic],
        config: &Config,
    ) -> Result<Option<Vec<Opened>>, Error> {
        let now = Instant::now();
        for index in 0..self.openings.len() {
            let hello = Hello {
                index: index as u16,
                nonce: self.nonce,
                token: self.invitation.token,
                attempt: 0,
            };
            self.openings[index].attempt(hello, nics, config, now);
        }
        let open = self.openings.iter().filter(|one| one.is_open()).count();
        let lost = self.openings.iter().filter(|one| one.has_failed()).count();
        if open > 0 && self.first_open.is_none() {
            self.first_open = Some(now);
        }
        let only_spare = spares(self.device, nics) == 1
            && open + 1 == self.openings.len()
            && self.openings.last().is_some_and(|last| !last.is_open());
        let patience = if only_spare { SPARE } else { STRAGGLERS };
        let waited = self.first_open.is_some_and(|first| now - first > patience);
        if open + lost < self.openings.len() && !waited && now < self.deadline {
            return Ok(None);
        }
        let may_reroute = open > 0 && open < self.openings.len() && now < self.deadline;
        if may_reroute && (self.reroutes == 0 || open == 1 && self.may_open()) {
            self.reroute(nics);
            self.first_open = Some(now);
            return Ok(None);
        }
        match open {
            2.. => self.finish(nics).map(Some),
            0 if now < self.deadline && self.may_open() => Ok(None),
            _ => Err(self.error(nics)),
        }
    }

    fn may_open(&self) -> bool {
        self.openings.iter().any(|one| !one.is_open() && one.may_open())
    }

    /// Move streams that do not open to routes that work. A single open stream is not enough; if
    /// its route opens no second one, the others go back to their own routes.
    fn reroute(&mut self, nics: &[Nic]) {
        self.reroutes += 1;
        let mut routes: Vec<Route> = Vec::new();
        for one in self.openings.iter().filter(|one| one.is_open()) {
            if !routes.contains(&one.route) {
                routes.push(one.route);
            }
        }
        let mut working = routes.into_iter().cycle();
        let last = self.openings.len() - 1;
        for index in (0..=last).filter(|&index| !self.openings[index].is_open()).collect::<Vec<_>>()
        {
            let route = if self.reroutes % 2 == 1 { working.next() } else { None };
            let route = route.unwrap_or_else(|| self.own_route(index, last, nics));
            self.openings[index].reroute(route);
        }
    }

    /// Announce the open streams to the peer, on each of them, because one route may have just
    /// failed.
    fn finish(&mut self, nics: &[Nic]) -> Result<Vec<Opened>, Error> {
        let indices: Vec<usize> =
            (0..self.openings.len()).filter(|index| self.openings[*index].is_open()).collect();
        let mask = indices.iter().fold(0, |mask, index| mask | 1u64 << index);
        let ready = Frame::Ready { mask, inline: indices[0] as u64 }.encode();
        let told = indices.iter().filter(|index| self.openings[**index].tell(&ready)).count();
        if told == 0 {
            return Err(self.error(nics));
        }
        let (last, spare) = (self.openings.len() - 1, spares(self.device, nics) == 1);
        let openings = std::mem::take(&mut self.openings)
            .into_iter()
            .enumerate()
            .filter(|(_, one)| one.is_open());
        let opened = |(index, one): (usize, Opening)| {
            Some(Opened { socket: one.socket?, nic: one.route.nic, spare: spare && index == last })
        };
        Ok(openings.filter_map(opened).collect())
    }

    /// A stream's own route. Over all interfaces each has its turn; else all streams but the last,
    /// the spare one, take the device's.
    fn own_route(&self, index: usize, last: usize, nics: &[Nic]) -> Route {
        match self.device {
            None => shared_route(index, nics, &self.invitation),
            Some(device) if index == last && nics.len() > 1 => {
                spare_route(device, nics, &self.invitation)
            }
            Some(device) => device_route(device, nics, &self.invitation),
        }
    }

    /// The result of each route.
    fn error(&self, nics: &[Nic]) -> Error {
        let mut routes: Vec<String> = Vec::new();
        for one in &self.openings {
            let message = one.message(nics);
            if !routes.contains(&message) {
                routes.push(message);
            }
        }
        Error::new(Kind::Remote, format!("no connection {}", routes.join("; ")))
    }
}

/// The number of spare streams.
fn spares(device: Option<usize>, nics: &[Nic]) -> usize {
    usize::from(device.is_some() && nics.len() > 1)
}

/// Whether an address is in the network of an interface.
fn is_near(nic: &Nic, there: &Address) -> bool {
    same_network(nic.address.socket.ip(), there.socket.ip(), there.prefix)
}

/// To the peer's address in the network of its interface, or to each address in turn.
fn shared_route(index: usize, nics: &[Nic], invitation: &Invitation) -> Route {
    let nic = index % nics.len();
    let addresses = &invitation.addresses;
    let near: Vec<_> = addresses.iter().filter(|there| is_near(&nics[nic], there)).collect();
    let to = if near.is_empty() {
        addresses[index % addresses.len()].socket
    } else {
        near[index % near.len()].socket
    };
    Route { nic, to }
}

/// From a device's interface to that of the peer's device. If they are in different networks, and
/// another interface is in the peer's, from that one: the networks of rails are often not
/// connected.
fn device_route(device: usize, nics: &[Nic], invitation: &Invitation) -> Route {
    let target = &invitation.addresses[0];
    let near = from(device, nics).find(|&nic| is_near(&nics[nic], target));
    Route { nic: near.unwrap_or(device), to: target.socket }
}

/// From another interface to another one of the peer, if there is a pair in one network; they need
/// not have one with the first.
fn spare_route(device: usize, nics: &[Nic], invitation: &Invitation) -> Route {
    let first = device_route(device, nics, invitation).nic;
    let addresses = &invitation.addresses;
    let pairs = from(first, nics)
        .skip(1)
        .flat_map(|nic| addresses.iter().rev().map(move |there| (nic, there)));
    let near = pairs.clone().find(|(nic, there)| is_near(&nics[*nic], there));
    let (nic, there) = near.or_else(|| pairs.clone().next()).unwrap_or((first, &addresses[0]));
    Route { nic, to: there.socket }
}

/// The numbers of all interfaces, from this one on.
fn from(first: usize, nics: &[Nic]) -> impl Iterator<Item = usize> + Clone + use<> {
    let count = nics.len();
    (0..count).map(move |step| (first + step) % count)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};

    use super::*;

    /// In the network 127.0.0.`number`/32.
    fn address(number: u8, port: u16) -> Address {
        Address { socket: SocketAddr::from(([127, 0, 0, number], port)), prefix: 32 }
    }

    fn nics(addresses: &[Address]) -> Vec<Nic> {
        addresses
            .iter()
            .map(|address| Nic {
                name: "lo".to_owned(),
                address: *address,
                pci_path: None,
                speed_mbps: None,
            })
            .collect()
    }

    /// The interfaces and networks (third number of the address) of the streams of a device, and of
    /// its spare stream, between rails with these networks.
    fn routes(device: usize, own: &[u8], peer: &[u8]) -> [(usize, u8); 2] {
        let at = |network: &u8, host| Address {
            socket: SocketAddr::from(([10, 0, *network, host], 9)),
            prefix: 24,
        };
        let nics = nics(&own.iter().map(|network| at(network, 1)).collect::<Vec<_>>());
        let invitation = Invitation {
            token: [1; 16],
            addresses: peer.iter().map(|network| at(network, 2)).collect(),
        };
        [device_route(device, &nics, &invitation), spare_route(device, &nics, &invitation)].map(
            |route| match route.to {
                SocketAddr::V4(to) => (route.nic, to.ip().octets()[2]),
                SocketAddr::V6(_) => unreachable!(),
            },
        )
    }

    #[test]
    fn streams_of_a_device_leave_on_its_interface_and_a_spare_one_elsewhere() {
        let rails = [0, 1, 2, 3];
        assert_eq!(routes(1, &rails, &[1, 2]), [(1, 1), (2, 2)], "the same rail of both hosts");
        assert_eq!(
            routes(3, &rails, &[1, 2]),
            [(1, 1), (2, 2)],
            "networks without routes between them"
        );
        assert_eq!(routes(2, &[7, 7, 7], &[7, 7]), [(2, 7), (0, 7)], "one network");
        assert_eq!(
            routes(1, &[10, 11, 12], &[20, 21]),
            [(1, 20), (2, 21)],
            "routers between all of them"
        );
        assert_eq!(routes(1, &rails, &[1]), [(1, 1), (2, 1)], "a peer with one interface");
    }

    #[test]
    fn an_error_names_each_route_and_its_result() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        // closed at once
        let refuses = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap().port();
        let here = silent.local_addr().unwrap().port();
        let nics = nics(&[1, 2].map(|number| address(number, 0)));
        let config = Config { timeout_s: 1, ..Config::default() };
        let invitation =
            Invitation { token: [1; 16], addresses: vec![address(1, here), address(2, refuses)] };
        let mut made = Connecting::new(invitation, &nics, &config, 1, None);
        let begun = Instant::now();
        let error = loop {
            match made.advance(&nics, &config) {
                Ok(opened) => assert!(opened.is_none() && begun.elapsed() < Duration::from_secs(5)),
                Err(error) => break error.message,
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let failed = format!(
            "no connection to 127.0.0.1:{here} from lo: no answer; to 127.0.0.2:{refuses} from lo: Connection refused"
        );
        assert!(error.starts_with(&failed), "{error}");
    }
}
