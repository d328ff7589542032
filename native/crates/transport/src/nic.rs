//! Network interfaces: which exist, which are used, their addresses and speeds.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::path::Path;

use socket2::{Socket, Type};

use crate::config::Config;
use crate::error::{Error, Kind};
use crate::handle::Address;

/// An interface and the address to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// The kernel's name.
    pub name: String,
    /// With port 0.
    pub address: Address,
    /// Real path of its PCI device; of a bond, VLAN or macvlan that of the first interface below
    /// it. None for a virtual interface.
    pub pci_path: Option<String>,
    /// From sysfs in Mbit/s. None if it is down, virtual (a veth always reports 10000) or does not
    /// report a speed.
    pub speed_mbps: Option<u32>,
}

impl Nic {
    /// Whether it is hardware, or a bond of hardware. The kernel adds up the speeds of a bond's
    /// members.
    pub fn is_hardware(&self) -> bool {
        is_hardware(Path::new(SYSFS), &self.name)
    }

    /// Whether it exists, is up, and has a carrier.
    pub fn is_up(&self) -> bool {
        // SAFETY: ifreq is plain data, valid when zero.
        let mut asked: libc::ifreq = unsafe { std::mem::zeroed() };
        let family = if self.address.socket.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let Ok(socket) = Socket::new(family.into(), Type::DGRAM, None) else { return false };
        // A name, which came from the kernel, fits with its zero byte.
        asked
            .ifr_name
            .iter_mut()
            .zip(self.name.bytes())
            .for_each(|(to, from)| *to = from as libc::c_char);
        // SAFETY: SIOCGIFFLAGS reads the name in `asked`, a local, and writes its flags.
        let got =
            unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut asked) } == 0;
        // SAFETY: every bit pattern is a valid integer, and this union member is the one that the
        // call writes.
        let flags = i32::from(unsafe { asked.ifr_ifru.ifru_flags });
        got && flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0
    }
}

/// The largest number of interfaces that are used, as many as NCCL's own sockets use.
pub const MAX_NICS: usize = 16;
/// Interfaces below each other, such as a VLAN over a bond over ports.
const MAX_DEPTH: usize = 4;
const SYSFS: &str = "/sys/class/net";
/// An interface this many times slower than the fastest is not used, because it has another
/// purpose.
const SLOW_FACTOR: u32 = 4;

/// Find usable interfaces in the kernel's order, at most MAX_NICS, and descriptions of those left
/// out.
///
/// # Errors
/// No interface is usable. The message names the setting and the interfaces that exist.
pub fn find(config: &Config) -> Result<(Vec<Nic>, Vec<String>), Error> {
    let every = addresses()?;
    let mut found: Vec<Nic> = Vec::new();
    for (name, address) in &every {
        let family = match address.socket.ip() {
            IpAddr::V4(_) => config.ipv4,
            IpAddr::V6(ip) => config.ipv6 && !ip.is_unicast_link_local(),
        };
        if family && selected(name, &config.ifname) && !found.iter().any(|nic| nic.name == *name) {
            found.push(Nic {
                name: name.clone(),
                address: *address,
                pci_path: pci_path(Path::new(SYSFS), name, MAX_DEPTH),
                speed_mbps: speed(name),
            });
        }
    }
    let mut left_out = Vec::new();
    if config.ifname.is_empty() {
        // Loopback and container bridges only if there is nothing else, as in NCCL.
        let plain: Vec<Nic> = found.iter().filter(|nic| !is_local(&nic.name)).cloned().collect();
        if !plain.is_empty() {
            found = plain;
        }
        left_out = drop_slow(&mut found);
    }
    left_out.extend(
        found
            .drain(found.len().min(MAX_NICS)..)
            .map(|nic| format!("{} (more than {MAX_NICS})", nic.name)),
    );
    if found.is_empty() {
        let mut names: Vec<_> = every.into_iter().map(|(name, _)| name).collect();
        names.dedup();
        let asked = if config.ifname.is_empty() {
            "any".to_owned()
        } else {
            format!("'{}'", config.ifname)
        };
        return Err(Error::new(
            Kind::System,
            format!(
                "no interface matches {asked}; interfaces with addresses: {}",
                names.join(", ")
            ),
        ));
    }
    Ok((found, left_out))
}

/// A chunk on a slow interface delays its whole message, so a management network beside fast ones
/// would do more harm than good.
fn drop_slow(found: &mut Vec<Nic>) -> Vec<String> {
    let fastest = found.iter().filter_map(|nic| nic.speed_mbps).max().unwrap_or(0);
    let slow = |nic: &Nic| nic.speed_mbps.is_some_and(|speed| speed < fastest / SLOW_FACTOR);
    let message = |nic: &Nic| {
        format!(
            "{} ({} Mbit/s while the fastest has {fastest}; BUSBW_NET_IFNAME can add it)",
            nic.name,
            nic.speed_mbps.unwrap_or(0)
        )
    };
    let left_out = found.iter().filter(|nic| slow(nic)).map(message).collect();
    found.retain(|nic| !slow(nic));
    left_out
}

/// Whether a list in the format of NCCL_SOCKET_IFNAME selects a name.
fn selected(name: &str, list: &str) -> bool {
    let (list, exclude) = list.strip_prefix('^').map_or((list, false), |rest| (rest, true));
    let (list, exact) = list.strip_prefix('=').map_or((list, false), |rest| (rest, true));
    let hit = list.split(',').map(str::trim).filter(|word| !word.is_empty()).any(|word| {
        let (word, _) = word.split_once(':').unwrap_or((word, ""));
        if exact { name == word } else { name.starts_with(word) }
    });
    list.is_empty() || hit != exclude
}

fn is_local(name: &str) -> bool {
    ["lo", "docker", "virbr", "cni", "br-"].iter().any(|prefix| name.starts_with(prefix))
}

fn pci_path(sysfs: &Path, name: &str, depth: usize) -> Option<String> {
    let folder = sysfs.join(name);
    if let Ok(path) = std::fs::canonicalize(folder.join("device")) {
        return path.to_str().map(str::to_owned);
    }
    let entries = std::fs::read_dir(folder).ok().filter(|_| depth > 0)?;
    let mut below: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    below.sort();
    below
        .iter()
        .filter_map(|entry| entry.strip_prefix("lower_"))
        .find_map(|name| pci_path(sysfs, name, depth - 1))
}

fn is_hardware(sysfs: &Path, name: &str) -> bool {
    let members =
        std::fs::read_to_string(sysfs.join(name).join("bonding/slaves")).unwrap_or_default();
    let device = |name: &str| sysfs.join(name).join("device").exists();
    device(name) || !members.trim().is_empty() && members.split_whitespace().all(device)
}

fn speed(name: &str) -> Option<u32> {
    if !is_hardware(Path::new(SYSFS), name) {
        return None;
    }
    let text = std::fs::read_to_string(format!("{SYSFS}/{name}/speed")).ok()?;
    text.trim()
        .parse::<i64>()
        .ok()
        .and_then(|speed| u32::try_from(speed).ok())
        .filter(|speed| *speed > 0)
}

/// All addresses of interfaces that are up. In the kernel's order IPv4 comes first.
fn addresses() -> Result<Vec<(String, Address)>, Error> {
    let mut list = std::ptr::null_mut();
    // SAFETY: getifaddrs stores a list in the local `list`; it is freed once, at the end of this
    // function.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(Error::system("getifaddrs"));
    }
    let mut found = Vec::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: `at` is an entry of the list, which is valid until freeifaddrs.
        let entry = unsafe { &*at };
        at = entry.ifa_next;
        let up = entry.ifa_flags & libc::IFF_UP as u32 != 0
            && entry.ifa_flags & libc::IFF_RUNNING as u32 != 0;
        // SAFETY: both pointers are NULL or point into the list, to a socket address of the family
        // that it names.
        let (ip, mask) = unsafe { (address_of(entry.ifa_addr), address_of(entry.ifa_netmask)) };
        if let (true, Some((ip, scope))) = (up, ip) {
            let prefix = mask.map_or(0, |(mask, _)| bits(mask));
            let socket = match ip {
                IpAddr::V4(_) => SocketAddr::new(ip, 0),
                IpAddr::V6(v6) => SocketAddr::V6(SocketAddrV6::new(v6, 0, 0, scope)),
            };
            // SAFETY: ifa_name points into the list, to a string that ends with a zero byte; it is
            // copied here.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
            found.push((name, Address { socket, prefix }));
        }
    }
    // SAFETY: `list` came from getifaddrs and is freed only here; no reference to an entry is used
    // after this.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// # Safety
/// `from` is NULL or points to a socket address of the size that its family has.
unsafe fn address_of(from: *const libc::sockaddr) -> Option<(IpAddr, u32)> {
    if from.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees a complete socket address, and the family says which structure
    // it is.
    unsafe {
        match i32::from((*from).sa_family) {
            libc::AF_INET => {
                let v4 = &*from.cast::<libc::sockaddr_in>();
                Some((IpAddr::V4(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes())), 0))
            }
            libc::AF_INET6 => {
                let v6 = &*from.cast::<libc::sockaddr_in6>();
                Some((IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)), v6.sin6_scope_id))
            }
            _ => None,
        }
    }
}

fn bits(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(v4) => v4.to_bits().leading_ones(),
        IpAddr::V6(v6) => v6.to_bits().leading_ones(),
    };
    ones as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_selected_as_in_nccl() {
        let cases = [
            ("eth0", "", true),
            ("eth0", "eth", true),
            ("eth0", "ib,eth", true),
            ("eth0", "=eth", false),
            ("eth0", "=eth0", true),
            ("eth0", "^eth", false),
            ("ib0", "^eth", true),
            ("eth0", "^=eth", true),
            ("eth0", "eth0:7000", true),
        ];
        for (name, list, expected) in cases {
            assert_eq!(selected(name, list), expected, "{name} in '{list}'");
        }
    }

    #[test]
    fn a_bond_of_hardware_is_hardware_and_lies_where_its_first_member_does() {
        let sysfs = std::env::temp_dir().join(format!("busbw-sysfs-{}", std::process::id()));
        for name in [
            "eth0/device",
            "eth1/device",
            "veth0",
            "bond0/lower_eth0",
            "bond0/lower_eth1",
            "bond1",
            "bond2",
            "vlan0/lower_bond0",
        ] {
            std::fs::create_dir_all(sysfs.join(name)).unwrap();
        }
        for (bond, members) in
            [("bond0", "eth0 eth1\n"), ("bond1", "eth0 veth0\n"), ("bond2", "\n")]
        {
            std::fs::create_dir(sysfs.join(bond).join("bonding")).unwrap();
            std::fs::write(sysfs.join(bond).join("bonding/slaves"), members).unwrap();
        }
        let found =
            ["eth0", "veth0", "bond0", "bond1", "bond2"].map(|name| is_hardware(&sysfs, name));
        let paths =
            ["eth1", "veth0", "bond0", "vlan0"].map(|name| pci_path(&sysfs, name, MAX_DEPTH));
        let expected = [Some("eth1"), None, Some("eth0"), Some("eth0")];
        let expected = expected.map(|name| {
            Some(sysfs.canonicalize().unwrap().join(name?).join("device").to_str()?.to_owned())
        });
        std::fs::remove_dir_all(&sysfs).unwrap();
        assert_eq!(found, [true, false, true, false, false]);
        assert_eq!(paths, expected);
    }

    #[test]
    fn loopback_is_used_if_it_is_named() {
        let config = Config { ifname: "=lo".to_owned(), ..Config::default() };
        let (found, left_out) = find(&config).unwrap();
        assert!(left_out.is_empty());
        assert_eq!(
            (
                found.len(),
                found[0].name.as_str(),
                found[0].pci_path.as_deref(),
                found[0].speed_mbps
            ),
            (1, "lo", None, None)
        );
        assert!(found[0].address.socket.ip().is_loopback());
        assert!(
            found[0].is_up() && !Nic { name: "nonesuch".to_owned(), ..found[0].clone() }.is_up()
        );
    }

    #[test]
    fn a_management_network_is_not_used() {
        let nic = |name: &str, speed_mbps| Nic {
            name: name.to_owned(),
            address: Address { socket: "10.0.0.1:0".parse().unwrap(), prefix: 24 },
            pci_path: None,
            speed_mbps,
        };
        let mut found = vec![
            nic("eth0", Some(1_000)),
            nic("eth1", Some(100_000)),
            nic("eth2", None),
            nic("eth3", Some(25_000)),
        ];
        let left_out = drop_slow(&mut found);
        assert_eq!(
            left_out,
            ["eth0 (1000 Mbit/s while the fastest has 100000; BUSBW_NET_IFNAME can add it)"]
        );
        assert_eq!(
            found.iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>(),
            ["eth1", "eth2", "eth3"]
        );
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_others() {
        let config = Config { ifname: "nonesuch".to_owned(), ..Config::default() };
        let error = find(&config).unwrap_err();
        assert!(error.message.contains("'nonesuch'") && error.message.contains("lo"), "{error}");
    }
}
