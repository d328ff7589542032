//! The 128 bytes that a listener gives to its peer: format, token, and the addresses it listens on,
//! one for each interface.

use std::net::{IpAddr, SocketAddr};

use crate::error::{Error, Kind};
use crate::wire::{TOKEN, VERSION};

/// Opaque bytes that a listener gives to its peer: addresses, ports and a random token.
pub type Handle = [u8; 128];

const MAGIC: [u8; 4] = *b"bBwH";
const HEAD: usize = 24;
/// Of an entry, before the address: port 2, prefix length 1, octets of the address 1.
const ENTRY: usize = 4;

/// An address to connect to, and the prefix length of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Address and port of a listener.
    pub socket: SocketAddr,
    /// Bits of the network part.
    pub prefix: u8,
}

/// The contents of a handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// The secret that a connection must show.
    pub token: [u8; TOKEN],
    /// At least one.
    pub addresses: Vec<Address>,
}

impl Invitation {
    /// Encode; addresses that find no room are left out: 13 of IPv4 do, or 5 of IPv6.
    pub fn encode(&self) -> Handle {
        let mut to = [0; 128];
        to[..4].copy_from_slice(&MAGIC);
        to[4..6].copy_from_slice(&VERSION.to_le_bytes());
        to[8..24].copy_from_slice(&self.token);
        let mut at = HEAD;
        for Address { socket, prefix } in &self.addresses {
            let octets = match socket.ip() {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            let Some(entry) = to.get_mut(at..at + ENTRY + octets.len()) else { break };
            entry[..2].copy_from_slice(&socket.port().to_le_bytes());
            (entry[2], entry[3]) = (*prefix, octets.len() as u8);
            entry[ENTRY..].copy_from_slice(&octets);
            at += entry.len();
            to[6] += 1;
        }
        to
    }

    /// Decode a peer's handle.
    ///
    /// # Errors
    /// The bytes are not from a listener of this format: the peer uses another network or another
    /// version.
    pub fn decode(from: &Handle) -> Result<Self, Error> {
        if from[..4] != MAGIC {
            return Err(Error::new(
                Kind::Usage,
                "the peer's handle is not busbw's: do all ranks load the same plugin?",
            ));
        }
        let version = u16::from_le_bytes([from[4], from[5]]);
        if version != VERSION {
            return Err(Error::new(
                Kind::Usage,
                format!(
                    "the peer uses version {version}, this host {VERSION}: install the same version on all hosts"
                ),
            ));
        }
        let mut rest = &from[HEAD..];
        let addresses: Option<Vec<Address>> = (0..from[6]).map(|_| address(&mut rest)).collect();
        let addresses = addresses.filter(|addresses| !addresses.is_empty());
        let addresses = addresses.ok_or_else(|| {
            Error::new(Kind::Usage, format!("the {} addresses of the peer's handle", from[6]))
        })?;
        let mut token = [0; TOKEN];
        token.copy_from_slice(&from[8..24]);
        Ok(Self { token, addresses })
    }
}

/// The address at the start of `rest`, which then begins behind it. The peer's scope would number
/// its own interfaces; connecting sets ours.
fn address(rest: &mut &[u8]) -> Option<Address> {
    let (head, behind) = rest.split_at_checked(ENTRY)?;
    let (octets, behind) = behind.split_at_checked(usize::from(head[3]))?;
    let v4 = || <[u8; 4]>::try_from(octets).map(IpAddr::from);
    let ip = v4().or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()?;
    *rest = behind;
    Some(Address {
        socket: SocketAddr::new(ip, u16::from_le_bytes([head[0], head[1]])),
        prefix: head[2],
    })
}

/// Whether two addresses are in the same network of this prefix length.
pub fn same_network(a: IpAddr, b: IpAddr, prefix: u8) -> bool {
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    let ((a, width), (b, other)) = (bits(a), bits(b));
    let prefix = u32::from(prefix).min(width);
    width == other && (prefix == 0 || (a ^ b) >> (128 - prefix) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_read_back() {
        let addresses = ["10.1.2.3:4000", "[fd00::7]:9"]
            .map(|text| Address { socket: text.parse().unwrap(), prefix: 24 });
        let made = Invitation { token: [9; TOKEN], addresses: addresses.to_vec() };
        assert_eq!(Invitation::decode(&made.encode()), Ok(made));
    }

    #[test]
    fn the_first_addresses_are_kept_if_there_is_no_room_for_all() {
        for (text, room) in [("10.1.2.3:4000", 13), ("[fd00::7]:9", 5)] {
            let addresses =
                (0..16).map(|prefix| Address { socket: text.parse().unwrap(), prefix }).collect();
            let made = Invitation { token: [9; TOKEN], addresses };
            assert_eq!(
                Invitation::decode(&made.encode()).unwrap().addresses,
                made.addresses[..room]
            );
        }
    }

    #[test]
    fn strange_bytes_are_refused() {
        let made = Invitation {
            token: [9; TOKEN],
            addresses: vec![Address { socket: "1.2.3.4:5".parse().unwrap(), prefix: 8 }],
        }
        .encode();
        for (at, value) in [(0, 0), (4, 99), (6, 0), (6, 5), (27, 5)] {
            let mut bytes = made;
            bytes[at] = value;
            assert!(Invitation::decode(&bytes).is_err(), "byte {at} = {value}");
        }
    }

    #[test]
    fn networks_are_distinguished() {
        let same =
            |a: &str, b: &str, prefix| same_network(a.parse().unwrap(), b.parse().unwrap(), prefix);
        assert!(
            same("10.1.2.3", "10.1.2.9", 24)
                && !same("10.1.2.3", "10.1.3.3", 24)
                && same("10.1.2.3", "11.1.2.3", 0)
        );
        assert!(
            same("fd00::1", "fd00::2", 64)
                && !same("fd00::1", "fd01::1", 64)
                && !same("10.0.0.1", "fd00::1", 0)
        );
    }
}
