//! Source ports that take different paths: bonds and equal-cost routes choose by a hash of addresses and ports.
//!
//! Linux's bond (layer3+4) and most switches fold the ports with exclusive or, and the bond drops the lowest bit (drivers/net/bonding:
//! bond_ip_hash). Ports that differ in bits 1 to 4 alone are then spread evenly over 2, 4, 8 or 16 paths, which random ports are not.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicU16, Ordering};

use socket2::Socket;

use crate::error::Error;
use crate::nic::Nic;
use crate::sock;

/// Different values of the bits that count.
const PATHS: u16 = 16;
/// Bits 1 to 4.
const STEP: u16 = 2;
/// Ports with the same value of those bits that are tried before the kernel chooses.
const TRIES: u16 = 64;
const LOWEST: u16 = 33_024;
/// A multiple of 32; LOWEST + SPAN + TRIES * 32 stays below 61000, where the kernel's own range ends.
const SPAN: u16 = 25_600;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A socket on an interface whose source port takes the path after that of the socket before.
///
/// # Errors
/// The system refuses a socket.
pub(crate) fn socket(nic: &Nic, random: u64) -> Result<Socket, Error> {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    for attempt in 0..TRIES {
        match sock::bound(nic, port(number, random, attempt)) {
            Ok(socket) => return Ok(socket),
            Err((ErrorKind::AddrInUse | ErrorKind::PermissionDenied, _)) => {}
            Err((_, error)) => return Err(error),
        }
    }
    sock::bound(nic, 0).map_err(|(_, error)| error)
}

/// The port for the process' `number`th stream; `random` keeps processes apart, `attempt` passes over ports in use.
fn port(number: u16, random: u64, attempt: u16) -> u16 {
    let row = PATHS * STEP;
    let block = (random % u64::from(SPAN / row)) as u16;
    // A step of rows that have no factor in common with their number meets each of them.
    let shift = (attempt * 17 + number / PATHS) % (SPAN / row);
    LOWEST + (block + shift) % (SPAN / row) * row + number % PATHS * STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path of Linux's bond for two addresses and ports.
    fn path(source: u16, target: u16, addresses: u32, paths: u32) -> u32 {
        let mut hash = (u32::from(source.to_be()) | u32::from(target.to_be()) << 16) ^ addresses;
        hash ^= hash >> 16;
        hash ^= hash >> 8;
        (hash >> 1) % paths
    }

    #[test]
    fn streams_are_even_over_the_paths_of_a_bond() {
        for (random, target, addresses) in [(1, 40_001, 0x0a01_0203), (77_777, 51_234, 0xfeed_beef), (123_456_789, 33_333, 7)] {
            for paths in [2, 4, 8] {
                let mut counts = vec![0; paths as usize];
                for number in 0..16 {
                    counts[path(port(number, random, 0), target, addresses, paths) as usize] += 1;
                }
                assert!(counts.iter().all(|count| *count == 16 / paths), "{paths} paths: {counts:?}");
            }
        }
    }

    #[test]
    fn ports_stay_in_their_range_and_differ() {
        for random in [0, 799, u64::MAX] {
            let mut seen: Vec<u16> = (0..256).map(|number| port(number, random, 0)).collect();
            seen.extend((0..TRIES).map(|attempt| port(65_535, random, attempt)));
            assert!(seen.iter().all(|port| (LOWEST..61_000).contains(port)));
            seen[..256].sort_unstable();
            assert!(seen[..256].windows(2).all(|two| two[0] != two[1]));
        }
    }
}
