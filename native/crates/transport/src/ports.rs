//! Source ports that take different paths: bonds and equal-cost routes choose by a hash of addresses and ports.
//!
//! Linux's bond (layer3+4) folds all bytes of both into one with exclusive or, and drops the lowest bit (drivers/net/bonding:
//! bond_ip_hash). What the target and the row of ports give is known before the port is chosen, so that the streams of an interface take
//! 2, 4, 8 or 16 paths in turn, whichever peers they go to. A keyed hash (Linux's own routes) sees nothing but ports that differ.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

use socket2::Socket;

use crate::config::Config;
use crate::error::Error;
use crate::handle::MAX_ADDRESSES;
use crate::nic::Nic;
use crate::sock;

/// Different values of the bits that count: bits 1 to 4.
const PATHS: u16 = 16;
/// Ports of a row: they differ in those bits and in the lowest.
const ROW: u16 = 2 * PATHS;
/// Ports that take the same path, tried before the kernel chooses.
const TRIES: u16 = 64;
const LOWEST: u16 = 33_024;
/// Up to 58624: below 61000, where the kernel's own range ends.
const ROWS: u16 = 800;

/// This process' first path.
static FIRST: OnceLock<u16> = OnceLock::new();
/// Streams so far, by interface: each may be a bond of its own.
static NEXT: [AtomicU16; MAX_ADDRESSES] = [const { AtomicU16::new(0) }; MAX_ADDRESSES];

/// A socket on the `at`th interface whose source port makes the way to `target` the path after that of the socket before. Processes of a
/// host begin one after the other where they know their number there, and anywhere where they do not.
///
/// # Errors
/// The system refuses a socket: of which kind, and in words.
pub(crate) fn socket(nic: &Nic, at: usize, target: SocketAddr, config: &Config, random: u64) -> Result<Socket, (ErrorKind, Error)> {
    let first = *FIRST.get_or_init(|| config.local_rank.map_or(random as u16, |rank| rank.wrapping_mul(config.streams as u16)));
    let number = first.wrapping_add(NEXT[at % MAX_ADDRESSES].fetch_add(1, Ordering::Relaxed));
    let known = folded(nic.address.socket.ip()) ^ folded(target.ip()) ^ xor(&target.port().to_be_bytes());
    for attempt in 0..TRIES {
        match sock::bound(nic, port(number, known, random, attempt)) {
            Err((ErrorKind::AddrInUse | ErrorKind::PermissionDenied, _)) => {}
            refused => return refused,
        }
    }
    sock::bound(nic, 0)
}

/// A port that takes path `number` where all else folds to `known`; `random` keeps processes apart, `attempt` passes over ports in use.
fn port(number: u16, known: u8, random: u64, attempt: u16) -> u16 {
    let first = (random % u64::from(ROWS)) as u16;
    // A step of rows that have no factor in common with their number meets each of them.
    let row = LOWEST + (first + attempt * 17) % ROWS * ROW;
    let turned = u16::from((known ^ xor(&row.to_be_bytes())) >> 1);
    row + (number ^ turned) % PATHS * 2
}

fn folded(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(v4) => xor(&v4.octets()),
        IpAddr::V6(v6) => xor(&v6.octets()),
    }
}

fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |folded, byte| folded ^ byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path of Linux's bond, step by step as it computes it on a little-endian machine.
    fn path(source: u16, target: u16, addresses: u32, paths: u32) -> u32 {
        let mut hash = (u32::from(source.to_be()) | u32::from(target.to_be()) << 16) ^ addresses;
        hash ^= hash >> 16;
        hash ^= hash >> 8;
        (hash >> 1) % paths
    }

    #[test]
    fn streams_are_even_over_the_paths_of_a_bond_whatever_their_peers_and_rows() {
        for attempt in [0, 1, 63] {
            for paths in [2, 4, 8, 16] {
                let mut counts = vec![0; paths as usize];
                for number in 0..64_u16 {
                    // Another peer, port and row for each.
                    let (target, addresses) =
                        (31_001_u16.wrapping_add(number.wrapping_mul(977)), 0x0a01_0203_u32.wrapping_mul(u32::from(number) + 1));
                    let known = xor(&target.to_be_bytes()) ^ xor(&addresses.to_be_bytes());
                    let port = port(number, known, u64::from(number) * 77_777, attempt);
                    counts[path(port, target, addresses, paths) as usize] += 1;
                }
                assert!(counts.iter().all(|count| *count == 64 / paths), "{paths} paths: {counts:?}");
            }
        }
    }

    #[test]
    fn ports_stay_in_their_range_and_differ_where_they_are_tried_again() {
        for random in [0, 799, u64::MAX] {
            for known in [0, 0x5a, 0xff] {
                let mut seen: Vec<u16> = (0..TRIES).map(|attempt| port(65_535, known, random, attempt)).collect();
                seen.extend((0..15).map(|number| port(number, known, random, 0)));
                assert!(seen.iter().all(|port| (LOWEST..61_000).contains(port)));
                seen.sort_unstable();
                assert!(seen.windows(2).all(|two| two[0] != two[1]));
            }
        }
    }
}
