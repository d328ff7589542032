//! Opening a connection from the sending end: several streams at once, none of them ever waited for.

use std::time::{Duration, Instant};

use socket2::Socket;

use crate::config::Config;
use crate::error::{Error, Kind};
use crate::handle::{Invitation, same_network};
use crate::nic::Nic;
use crate::wire::{Frame, Hello, VERSION};

mod opening;
use opening::{Opening, Route};

/// For streams that are still opening once one is open: a path that does not work must not hold up those that do.
const STRAGGLERS: Duration = Duration::from_secs(2);

/// A connection that is being opened.
pub(crate) struct Connecting {
    invitation: Invitation,
    nonce: u64,
    openings: Vec<Opening>,
    deadline: Instant,
    first_open: Option<Instant>,
    /// Times that those which do not open were sent another way.
    reroutes: u32,
}

/// An open stream, with the interface it uses.
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

    /// Whether nobody has asked for it long after its time.
    pub(crate) fn given_up(&self) -> bool {
        Instant::now() > self.deadline + STRAGGLERS
    }

    /// Go on as far as possible: the open streams once there will be no more, the one for small messages first.
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

    /// Those that do not open take the ways that work, each of which needs more than the stream for small messages; and where one way alone
    /// works, and does so no more, their own again.
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

    /// Tell the peer which streams there are. Over each of them: the way of one may just have failed.
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

    /// What each way came to.
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

/// Where a stream goes of its own accord: to the peer's address in the network of its interface, otherwise to each in turn.
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

    /// Of the network 127.0.0.`number`/32.
    fn address(number: u8, port: u16) -> Address {
        Address { socket: SocketAddr::from(([127, 0, 0, number], port)), prefix: 32 }
    }

    #[test]
    fn each_way_is_named_with_what_it_came_to() {
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
