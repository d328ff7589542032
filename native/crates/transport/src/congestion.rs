//! The congestion control of streams.

use std::io;

use socket2::Socket;

use crate::config::Config;
use crate::error::{Error, Kind};

/// The system's default.
const SYSTEM: &str = "system";
/// The system's default unless that is BBR.
const AUTO: &str = "auto";
/// Used in place of BBR. Any program may use the second, even without CAP_NET_ADMIN.
const OTHERS: [&str; 2] = ["cubic", "reno"];

/// Set a stream's congestion control.
///
/// BBR sends no faster than it has recently measured for its stream. Streams of collectives pause
/// between messages, and then it may measure one segment per delayed acknowledgement and keep that
/// rate for about 50 ms, in which a collective waits (benchmarks/net_loss_2cpu_202611). Error: the
/// kernel has none of that name, or not for this process.
pub fn set(socket: &Socket, asked: &str) -> io::Result<()> {
    match asked {
        SYSTEM => Ok(()),
        AUTO => {
            if socket.tcp_congestion().is_ok_and(|name| name.starts_with(b"bbr")) {
                let _ =
                    OTHERS.iter().find(|name| socket.set_tcp_congestion(name.as_bytes()).is_ok());
            }
            Ok(())
        }
        name => socket.set_tcp_congestion(name.as_bytes()),
    }
}

/// Check at startup that a congestion control given by name is available.
pub fn check(config: &Config) -> Result<(), Error> {
    if [AUTO, SYSTEM].contains(&config.congestion.as_str()) {
        return Ok(());
    }
    let tried = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
        .and_then(|socket| set(&socket, &config.congestion));
    tried.map_err(|error| {
        let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
            .unwrap_or_default();
        let message = format!(
            "BUSBW_NET_CONGESTION={}: {error} (this kernel allows {})",
            config.congestion,
            known.trim()
        );
        Error::new(Kind::Usage, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuned(asked: &str) -> String {
        let socket = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        set(&socket, asked).unwrap();
        String::from_utf8(socket.tcp_congestion().unwrap())
            .unwrap()
            .trim_end_matches('\0')
            .to_owned()
    }

    #[test]
    fn streams_use_the_setting_and_by_default_anything_but_bbr() {
        let own = tuned(SYSTEM);
        assert_eq!(tuned("reno"), "reno");
        let by_itself = tuned(AUTO);
        assert!(
            if own.starts_with("bbr") {
                OTHERS.contains(&by_itself.as_str())
            } else {
                by_itself == own
            },
            "{own}: {by_itself}"
        );
    }

    #[test]
    fn an_unknown_congestion_control_is_refused_at_startup() {
        let error =
            check(&Config { congestion: "fast".to_owned(), ..Config::default() }).unwrap_err();
        assert!(
            error.message.starts_with("BUSBW_NET_CONGESTION=fast: ")
                && error.message.contains("reno"),
            "{error}"
        );
    }
}
