//! The speed of an interface: from the setting, from sysfs, or measured over TCP on this machine.

use std::cell::LazyCell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::nic::{self, Nic};

/// Speeds in Mbit/s that are reported. NCCL plans channels by them, and all ranks should report the
/// same.
const STEPS_MBPS: [u32; 8] = [1_000, 10_000, 25_000, 40_000, 50_000, 100_000, 200_000, 400_000];
/// The largest number of streams whose measured rates are added up.
const MAX_STREAMS: usize = 8;
const WARM_UP: Duration = Duration::from_millis(5);
const LASTS: Duration = Duration::from_millis(20);
/// Limit for any progress.
const PATIENCE: Duration = Duration::from_secs(1);
const BLOCK: usize = 256 << 10;

/// The speeds in Mbit/s that NCCL gets. A virtual interface is limited by the processors that copy:
/// the rate of one local stream times the threads that can run. That is the same for all, so one is
/// measured.
pub(crate) fn of(nics: &[Nic], config: &Config) -> Vec<u32> {
    let measured = LazyCell::new(|| {
        let nic = nics.iter().find(|nic| nic.speed_mbps.is_none());
        let one = nic.and_then(|nic| local_mbps(nic).ok()).unwrap_or(0.0);
        rounded(one * config.threads.min(MAX_STREAMS) as f64)
    });
    let asked = (config.speed_mbps > 0).then_some(config.speed_mbps);
    nics.iter().map(|nic| asked.or(nic.speed_mbps).unwrap_or_else(|| *measured)).collect()
}

/// Mbit/s of all interfaces that `config` selects, from the hardware or BUSBW_NET_SPEED; None if
/// one of them is unknown. Nothing is measured. Unless interfaces are named, virtual ones count
/// only if there is no hardware.
pub fn stated(config: &Config) -> Option<u32> {
    let (mut nics, _) = nic::find(config).ok()?;
    if config.ifname.is_empty() && nics.iter().any(Nic::is_hardware) {
        nics.retain(Nic::is_hardware);
    }
    nics.iter()
        .map(|nic| if config.speed_mbps > 0 { Some(config.speed_mbps) } else { nic.speed_mbps })
        .sum()
}

/// The largest of these speeds that is reached.
fn rounded(mbps: f64) -> u32 {
    STEPS_MBPS.into_iter().rev().find(|step| f64::from(*step) <= mbps).unwrap_or(STEPS_MBPS[0])
}

/// Mbit/s of one TCP stream from an interface's address to itself, measured for about 25 ms.
fn local_mbps(nic: &Nic) -> std::io::Result<f64> {
    let listener = TcpListener::bind(SocketAddr::new(nic.address.socket.ip(), 0))?;
    let mut out = TcpStream::connect_timeout(&listener.local_addr()?, PATIENCE)?;
    let (mut back, peer) = listener.accept()?;
    if peer != out.local_addr()? {
        return Err(std::io::ErrorKind::AddrInUse.into()); // another process connected first
    }
    back.set_read_timeout(Some(PATIENCE))?;
    out.set_write_timeout(Some(PATIENCE))?;
    let writer =
        std::thread::Builder::new().name("busbw-net-speed".to_owned()).spawn(move || {
            let block = vec![0u8; BLOCK];
            while out.write_all(&block).is_ok() {}
        })?;
    let mut block = vec![0u8; BLOCK];
    let mut read_for = |limit: Duration| -> std::io::Result<(usize, f64)> {
        let (begun, mut bytes) = (Instant::now(), 0);
        while begun.elapsed() < limit {
            bytes += back.read(&mut block)?;
        }
        Ok((bytes, begun.elapsed().as_secs_f64()))
    };
    read_for(WARM_UP)?;
    let (bytes, seconds) = read_for(LASTS)?;
    let mbps = bytes as f64 * 8e-6 / seconds;
    drop(back); // ends the writer
    drop(writer.join());
    Ok(mbps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_rounded_to_steps() {
        assert_eq!([0.0, 12_000.0, 399_999.0, 1e9].map(rounded), [1_000, 10_000, 200_000, 400_000]);
    }

    #[test]
    fn an_interface_without_a_speed_is_measured() {
        let config = Config { ifname: "=lo".to_owned(), threads: 2, ..Config::default() };
        let mut nics = crate::nic::find(&config).unwrap().0;
        nics.extend([nics[0].clone(), Nic { speed_mbps: Some(25_000), ..nics[0].clone() }]);
        let speeds = of(&nics, &config);
        assert!(STEPS_MBPS.contains(&speeds[0]) && speeds[0] >= 1_000);
        assert_eq!(speeds[1..], [speeds[0], 25_000]);
        assert_eq!(of(&nics, &Config { speed_mbps: 1234, ..config }), [1234; 3]);
    }

    #[test]
    fn a_virtual_interface_states_no_speed_unless_it_is_set() {
        let config = Config { ifname: "=lo".to_owned(), ..Config::default() };
        assert_eq!(stated(&config), None);
        assert_eq!(stated(&Config { speed_mbps: 1234, ..config.clone() }), Some(1234));
        assert_eq!(
            stated(&Config { ifname: "=nonesuch".to_owned(), speed_mbps: 1234, ..config }),
            None
        );
    }
}
