//! How fast an interface is: as told, as sysfs says, or as TCP goes on this machine where nobody knows.

use crate::config::Config;
use crate::nic::Nic;

/// Mbit/s of an interface whose speed nobody knows.
const UNKNOWN_MBPS: u32 = 100_000;

/// In Mbit/s.
pub(crate) fn of(nic: &Nic, config: &Config) -> u32 {
    if config.speed_mbps > 0 { config.speed_mbps } else { nic.speed_mbps.unwrap_or(UNKNOWN_MBPS) }
}
