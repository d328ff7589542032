//! Which congestion control streams have.

use std::io;

use socket2::Socket;

use crate::config::Config;
use crate::error::{Error, Kind};

/// Leaves it to the system.
const SYSTEM: &str = "system";
/// What others are called that are no name: the system's own, but for BBR.
const AUTO: &str = "auto";
/// In place of BBR; programs without CAP_NET_ADMIN may always have the second.
const OTHERS: [&str; 2] = ["cubic", "reno"];

/// Give a stream what the settings say.
///
/// BBR sends no faster than it has seen its stream send lately. Streams of collectives pause between messages, and what is seen then may be
/// a segment for each answer that was held back: it goes on so for some 50 ms, in which a collective stands still
/// (benchmarks/net_loss_2cpu_202611).
///
/// # Errors
/// The kernel has none of that name, or not for this process.
pub fn set(socket: &Socket, asked: &str) -> io::Result<()> {
    match asked {
        SYSTEM => Ok(()),
        AUTO => {
            if socket.tcp_congestion().is_ok_and(|name| name.starts_with(b"bbr")) {
                let _ = OTHERS.iter().find(|name| socket.set_tcp_congestion(name.as_bytes()).is_ok());
            }
            Ok(())
        }
        name => socket.set_tcp_congestion(name.as_bytes()),
    }
}

/// Whether one that is asked for by name can be had, found out beforehand.
///
/// # Errors
/// No: the setting cannot be meant.
pub fn check(config: &Config) -> Result<(), Error> {
    if [AUTO, SYSTEM].contains(&config.congestion.as_str()) {
        return Ok(());
    }
    let tried = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).and_then(|socket| set(&socket, &config.congestion));
    tried.map_err(|error| {
        let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap_or_default();
        let message = format!("BUSBW_NET_CONGESTION={}: {error} (this kernel allows {})", config.congestion, known.trim());
        Error::new(Kind::Usage, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuned(asked: &str) -> String {
        let socket = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        set(&socket, asked).unwrap();
        String::from_utf8(socket.tcp_congestion().unwrap()).unwrap().trim_end_matches('\0').to_owned()
    }

    #[test]
    fn streams_have_what_is_asked_and_by_themselves_anything_but_bbr() {
        let own = tuned(SYSTEM);
        assert_eq!(tuned("reno"), "reno");
        let by_itself = tuned(AUTO);
        assert!(if own.starts_with("bbr") { OTHERS.contains(&by_itself.as_str()) } else { by_itself == own }, "{own}: {by_itself}");
    }

    #[test]
    fn what_the_kernel_does_not_have_is_said_beforehand() {
        let error = check(&Config { congestion: "fast".to_owned(), ..Config::default() }).unwrap_err();
        assert!(error.message.starts_with("BUSBW_NET_CONGESTION=fast: ") && error.message.contains("reno"), "{error}");
    }
}
