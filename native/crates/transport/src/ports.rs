//! Source ports that take different paths. Bonds and equal-cost routes choose a path by a hash of
//! addresses and ports.
//!
//! Linux's bond (layer3+4) folds all their bytes into one with exclusive or and drops the lowest
//! bit (drivers/net/bonding: bond_ip_hash). Everything but the port's last bits is known before the
//! port is chosen. So the streams of an interface take 2, 4, 8 or 16 paths in turn, whichever peers
//! they go to. For a keyed hash, as of Linux's own routes, any different ports are as good.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

use socket2::Socket;

use crate::config::Config;
use crate::error::Error;
use crate::nic::{MAX_NICS, Nic};
use crate::sock;

/// Number of paths: different values of the bits that matter, 1 to 4.
const PATHS: u16 = 16;
/// Ports of a row. They differ in those bits and in the lowest bit.
const ROW: u16 = 2 * PATHS;
/// Ports for the same path that are tried before the kernel chooses.
const TRIES: u16 = 64;
const LOWEST: u16 = 33_024;
/// Up to port 58624, below 61000, where the kernel's own range ends.
const ROWS: u16 = 800;

/// The first path of this process.
static FIRST: OnceLock<u16> = OnceLock::new();
/// Streams so far, for each interface: each may be a bond.
static NEXT: [AtomicU16; MAX_NICS] = [const { AtomicU16::new(0) }; MAX_NICS];

/// A socket on interface number `at`, with a source port that takes the next path to `target` after
/// that of the previous socket. Processes of a host start on consecutive paths if they know their
/// local rank, and on random ones if not.
///
/// # Errors
/// The kind of the system's error, and the message.
pub(crate) fn socket(
    nic: &Nic,
    at: usize,
    target: SocketAddr,
    config: &Config,
    random: u64,
) -> Result<Socket, (ErrorKind, Error)> {
    let first = *FIRST.get_or_init(|| {
        config.local_rank.map_or(random as u16, |rank| rank.wrapping_mul(config.streams as u16))
    });
    let number = first.wrapping_add(NEXT[at % MAX_NICS].fetch_add(1, Ordering::Relaxed));
    let known =
        folded(nic.address.socket.ip()) ^ folded(target.ip()) ^ xor(&target.port().to_be_bytes());
    for attempt in 0..TRIES {
        match sock::bound(nic, port(number, known, random, attempt)) {
            Err((ErrorKind::AddrInUse | ErrorKind::PermissionDenied, _)) => {}
            refused => return refused,
        }
    }
    sock::bound(nic, 0)
}

/// A port that takes path `number` if everything else folds to `known`. `random` separates
/// processes, `attempt` skips ports in use.
fn port(number: u16, known: u8, random: u64, attempt: u16) -> u16 {
    let first = (random % u64::from(ROWS)) as u16;
    // 17 is coprime with the number of rows, so the steps reach each of them.
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

    /// The path that Linux's bond chooses, computed in its steps on a little-endian machine.
    fn path(source: u16, target: u16, addresses: u32, paths: u32) -> u32 {
        let mut hash = (u32::from(source.to_be()) | u32::from(target.to_be()) << 16) ^ addresses;
        hash ^= hash >> 16;
        hash ^= hash >> 8;
        (hash >> 1) % paths
    }

    #[test]
    fn streams_spread_evenly_over_the_paths_of_a_bond() {
        for attempt in [0, 1, 63] {
            for paths in [2, 4, 8, 16] {
                let mut counts = vec![0; paths as usize];
                for number in 0..64_u16 {
                    // A different peer, port and row for each.
                    let (target, addresses) = (
                        31_001_u16.wrapping_add(number.wrapping_mul(977)),
                        0x0a01_0203_u32.wrapping_mul(u32::from(number) + 1),
                    );
                    let known = xor(&target.to_be_bytes()) ^ xor(&addresses.to_be_bytes());
                    let port = port(number, known, u64::from(number) * 77_777, attempt);
                    counts[path(port, target, addresses, paths) as usize] += 1;
                }
                assert!(
                    counts.iter().all(|count| *count == 64 / paths),
                    "{paths} paths: {counts:?}"
                );
            }
        }
    }

    #[test]
    fn ports_stay_in_their_range_and_differ_between_attempts() {
        for random in [0, 799, u64::MAX] {
            for known in [0, 0x5a, 0xff] {
                let mut seen: Vec<u16> =
                    (0..TRIES).map(|attempt| port(65_535, known, random, attempt)).collect();
                seen.extend((0..15).map(|number| port(number, known, random, 0)));
                assert!(seen.iter().all(|port| (LOWEST..61_000).contains(port)));
                seen.sort_unstable();
                assert!(seen.windows(2).all(|two| two[0] != two[1]));
            }
        }
    }
}
