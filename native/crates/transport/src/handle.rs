//! The 128 bytes that a listener gives to its peer: format, token, and the addresses it listens on, one for each interface.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::error::{Error, Kind};
use crate::wire::{TOKEN, VERSION};

/// Opaque bytes that a listener gives to its peer: addresses, ports and a random token.
pub type Handle = [u8; 128];

/// The number of addresses that fit.
pub const MAX_ADDRESSES: usize = 4;

const MAGIC: [u8; 4] = *b"bBwH";
const HEAD: usize = 24;
const ENTRY: usize = 24; // address 16, port 2, prefix length 1, zero 1, scope 4

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
    /// Encode; addresses beyond MAX_ADDRESSES are left out.
    pub fn encode(&self) -> Handle {
        let mut to = [0; 128];
        to[..4].copy_from_slice(&MAGIC);
        to[4..6].copy_from_slice(&VERSION.to_le_bytes());
        to[6] = self.addresses.len().min(MAX_ADDRESSES) as u8;
        to[8..24].copy_from_slice(&self.token);
        for (at, address) in self.addresses.iter().take(MAX_ADDRESSES).enumerate() {
            let entry = &mut to[HEAD + at * ENTRY..HEAD + (at + 1) * ENTRY];
            let (ip, scope) = match address.socket {
                SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
                SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
            };
            entry[..16].copy_from_slice(&ip.octets());
            entry[16..18].copy_from_slice(&address.socket.port().to_le_bytes());
            entry[18] = address.prefix;
            entry[20..24].copy_from_slice(&scope.to_le_bytes());
        }
        to
    }

    /// Decode a peer's handle.
    ///
    /// # Errors
    /// The bytes are not from a listener of this format: the peer uses another network or another version.
    pub fn decode(from: &Handle) -> Result<Self, Error> {
        if from[..4] != MAGIC {
            return Err(Error::new(Kind::Usage, "the peer's handle is not busbw's: do all ranks load the same plugin?"));
        }
        let version = u16::from_le_bytes([from[4], from[5]]);
        if version != VERSION {
            return Err(Error::new(
                Kind::Usage,
                format!("the peer uses version {version}, this host {VERSION}: install the same version on all hosts"),
            ));
        }
        let count = usize::from(from[6]);
        if count == 0 || count > MAX_ADDRESSES {
            return Err(Error::new(Kind::Usage, format!("the peer's handle has {count} addresses")));
        }
        let mut token = [0; TOKEN];
        token.copy_from_slice(&from[8..24]);
        Ok(Self { token, addresses: (0..count).map(|at| address(&from[HEAD + at * ENTRY..HEAD + (at + 1) * ENTRY])).collect() })
    }
}

fn address(entry: &[u8]) -> Address {
    let mut octets = [0; 16];
    octets.copy_from_slice(&entry[..16]);
    let (ip, port) = (Ipv6Addr::from(octets), u16::from_le_bytes([entry[16], entry[17]]));
    // The peer's scope numbers its own interfaces. Connecting sets ours.
    let socket = match ip.to_ipv4_mapped() {
        Some(v4) => SocketAddr::new(IpAddr::V4(v4), port),
        None => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, 0)),
    };
    Address { socket, prefix: entry[18] }
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
        let addresses = ["10.1.2.3:4000", "[fd00::7]:9"].map(|text| Address { socket: text.parse().unwrap(), prefix: 24 });
        let made = Invitation { token: [9; TOKEN], addresses: addresses.to_vec() };
        assert_eq!(Invitation::decode(&made.encode()), Ok(made));
    }

    #[test]
    fn strange_bytes_are_refused() {
        let made = Invitation { token: [9; TOKEN], addresses: vec![Address { socket: "1.2.3.4:5".parse().unwrap(), prefix: 8 }] }.encode();
        for (at, value) in [(0, 0), (4, 99), (6, 0), (6, 5)] {
            let mut bytes = made;
            bytes[at] = value;
            assert!(Invitation::decode(&bytes).is_err(), "byte {at} = {value}");
        }
    }

    #[test]
    fn networks_are_distinguished() {
        let same = |a: &str, b: &str, prefix| same_network(a.parse().unwrap(), b.parse().unwrap(), prefix);
        assert!(same("10.1.2.3", "10.1.2.9", 24) && !same("10.1.2.3", "10.1.3.3", 24) && same("10.1.2.3", "11.1.2.3", 0));
        assert!(same("fd00::1", "fd00::2", 64) && !same("fd00::1", "fd01::1", 64) && !same("10.0.0.1", "fd00::1", 0));
    }
}
