//! Opening a connection from the sending end: several streams at once, without blocking.

use std::time::{Duration, Instant};

use socket2::Socket;

use crate::config::Config;
use crate::error::{Error, Kind};
use crate::handle::{Invitation, same_network};
use crate::nic::Nic;
use crate::wire::{Frame, Hello, VERSION};

mod opening;
use opening::{Opening, Route};

/// Time for the remaining streams once one is open, so that a broken path does not delay the working ones.
const STRAGGLERS: Duration = Duration::from_secs(2);

/// A connection that is being opened.
pub(crate) struct Connecting {
    invitation: Invitation,
    nonce: u64,
    openings: Vec<Opening>,
    deadline: Instant,
    first_open: Option<Instant>,
    /// How often streams that do not open were moved to another route.
    reroutes: u32,
}

/// An open stream and the interface it uses.
pub(crate) struct Opened {
    pub(crate) socket: Socket,
    pub(crate) nic: usize,
}

impl Connecting {
    pub(crate) fn new(invitation: Invitation, nics: &[Nic], config: &Config, nonce: u64) -> Self {
        let streams = config.streams.max(nics.len().max(invitation.addresses.len())) + 1;
        let openings = (0..streams).map(|index| Opening::new(own_route(index, nics, &invitation))).collect();
        let deadline = Instant::now() + Duration::from_secs(config.timeout_s);
        Self { invitation, nonce, openings, deadline, first_open: None, reroutes: 0 }
    }

    /// Whether its caller stopped asking long after the deadline.
    pub(crate) fn given_up(&self) -> bool {
        Instant::now() > self.deadline + STRAGGLERS
    }

    /// Continue as far as possible. Returns the open streams once no more will open; the first is the inline stream.
    pub(crate) fn advance(&mut self, nics: &[Nic], config: &Config) -> Result<Option<Vec<Opened>>, Error> {
        let now = Instant::now();
        for index in 0..self.openings.len() {
            let hello = Hello { version: VERSION, index: index as u16, nonce: self.nonce, token: self.invitation.token, attempt: 0 };
            self.openings[index].attempt(hello, nics, config, now);
        }
        let open = self.openings.iter().filter(|one| one.is_open()).count();
        let lost = self.openings.iter().filter(|one| one.has_failed()).count();
        if open > 0 && self.first_open.is_none() {
            self.first_open = Some(now);
        }
        let waited = self.first_open.is_some_and(|first| now - first > STRAGGLERS);
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

    /// Move streams that do not open to routes that work. A single open stream is not enough; if its route opens no second one, the others
    /// go back to their own routes.
    fn reroute(&mut self, nics: &[Nic]) {
        self.reroutes += 1;
        let mut routes: Vec<Route> = Vec::new();
        for one in self.openings.iter().filter(|one| one.is_open()) {
            if !routes.contains(&one.route) {
                routes.push(one.route);
            }
        }
        let mut working = routes.into_iter().cycle();
        for (index, one) in self.openings.iter_mut().enumerate().filter(|(_, one)| !one.is_open()) {
            let route = if self.reroutes % 2 == 1 { working.next() } else { None };
            one.reroute(route.unwrap_or_else(|| own_route(index, nics, &self.invitation)));
        }
    }

    /// Announce the open streams to the peer, on each of them, because one route may have just failed.
    fn finish(&mut self, nics: &[Nic]) -> Result<Vec<Opened>, Error> {
        let indices: Vec<usize> = (0..self.openings.len()).filter(|index| self.openings[*index].is_open()).collect();
        let mask = indices.iter().fold(0, |mask, index| mask | 1u64 << index);
        let ready = Frame::Ready { mask, inline: indices[0] as u64 }.encode();
        let failed = indices.iter().filter(|index| self.openings[**index].tell(&ready)).count();
        if failed == 0 {
            return Err(self.error(nics));
        }
        let openings = std::mem::take(&mut self.openings).into_iter().filter(|one| one.is_open());
        Ok(openings.filter_map(|one| one.socket.map(|socket| Opened { socket, nic: one.route.nic })).collect())
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

/// A stream's own route: to the peer's address in the network of its interface, or to each address in turn.
fn own_route(index: usize, nics: &[Nic], invitation: &Invitation) -> Route {
    let nic = index % nics.len();
    let own = nics[nic].address.socket.ip();
    let addresses = &invitation.addresses;
    let near: Vec<_> = addresses.iter().filter(|there| same_network(own, there.socket.ip(), there.prefix)).collect();
    let to = if near.is_empty() { addresses[index % addresses.len()].socket } else { near[index % near.len()].socket };
    Route { nic, to }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};

    use super::*;
    use crate::handle::Address;

    /// In the network 127.0.0.`number`/32.
    fn address(number: u8, port: u16) -> Address {
        Address { socket: SocketAddr::from(([127, 0, 0, number], port)), prefix: 32 }
    }

    #[test]
    fn an_error_names_each_route_and_its_result() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let refuses = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap().port(); // closed at once
        let here = silent.local_addr().unwrap().port();
        let nics = [1, 2].map(|number| Nic { name: "lo".to_owned(), address: address(number, 0), pci_path: None, speed_mbps: None });
        let config = Config { timeout_s: 1, ..Config::default() };
        let invitation = Invitation { token: [1; 16], addresses: vec![address(1, here), address(2, refuses)] };
        let mut made = Connecting::new(invitation, &nics, &config, 1);
        let begun = Instant::now();
        let error = loop {
            match made.advance(&nics, &config) {
                Ok(opened) => assert!(opened.is_none() && begun.elapsed() < Duration::from_secs(5)),
                Err(error) => break error.message,
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let failed = format!("no connection to 127.0.0.1:{here} from lo: no answer; to 127.0.0.2:{refuses} from lo: Connection refused");
        assert!(error.starts_with(&failed), "{error}");
    }
}
