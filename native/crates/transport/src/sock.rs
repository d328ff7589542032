//! System calls on stream sockets, non-blocking and without signals.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::config::Config;
use crate::congestion;
use crate::error::{Error, Kind};
use crate::nic::Nic;

/// The result of a non-blocking call.
#[derive(Debug)]
pub enum Io {
    /// Bytes moved, at least one.
    Done(usize),
    /// Nothing is possible now.
    Blocked,
    /// The stream has ended: closed by the peer (None), or with an error.
    Ended(Option<io::Error>),
}

/// A TCP socket bound to an interface and its address. With `port` 0 the kernel chooses the port.
///
/// # Errors
/// The kind of the system's error, and the message.
pub fn bound(nic: &Nic, port: u16) -> Result<Socket, (io::ErrorKind, Error)> {
    let address = SocketAddr::new(nic.address.socket.ip(), port);
    let make = || -> io::Result<Socket> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM.nonblocking().cloexec(),
            Some(Protocol::TCP),
        )?;
        // If several interfaces share a network, the address alone does not select the interface.
        // Not allowed before Linux 5.7.
        let _ = socket.bind_device(Some(nic.name.as_bytes()));
        socket.bind(&address.into())?;
        Ok(socket)
    };
    make().map_err(|error| {
        let message =
            format!("a socket on {} ({address}): {error}{}", nic.name, descriptor_hint(&error));
        (error.kind(), Error::new(Kind::System, message))
    })
}

/// If the process has no descriptors left: its limit.
pub fn descriptor_hint(error: &io::Error) -> String {
    if error.raw_os_error() != Some(libc::EMFILE) {
        return String::new();
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes one rlimit, a local.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    format!(
        ": the limit of this process is {} (ulimit -n; up to {} without root)",
        limit.rlim_cur, limit.rlim_max
    )
}

/// Unsent bytes above which a chunk stream takes no more.
const UNSENT: libc::c_int = 64 << 10;

/// A chunk stream counts as free when the network has taken its data, not when the kernel has room.
/// Otherwise a slow path would hold megabytes while other streams are idle.
pub fn limit_unsent(socket: &Socket) {
    let _ = set(socket.as_raw_fd(), libc::TCP_NOTSENT_LOWAT, UNSENT);
}

/// From include/uapi/linux/tcp.h, Linux 6.15 and newer: the minimum time in microseconds before a
/// retransmission. The peer, with the same setting, delays acknowledgements by less (tcp_delack_max
/// in net/ipv4/tcp_output.c).
const TCP_RTO_MIN_US: libc::c_int = 45;
/// The maximum time in milliseconds between two retransmissions, or two probes of a closed window.
const TCP_RTO_MAX_MS: libc::c_int = 44;
/// The timeout divided by that maximum. The kernel closes a stream after 15 attempts
/// (net.ipv4.tcp_retries2), which must not happen sooner.
const RTO_MAX_PART: u64 = 8;

/// Set up a stream. While nothing is in flight, keepalive closes it if the peer does not answer for
/// the timeout.
pub fn tune(socket: &Socket, config: &Config) {
    let beat = Duration::from_secs((config.timeout_s / 4).max(1));
    let fd = socket.as_raw_fd();
    let socket = SockRef::from(socket);
    // If the kernel refuses these settings, that costs speed or time, not correctness.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(beat).with_interval(beat).with_retries(3),
    );
    let _ = socket.set_keepalive(true);
    let _ = congestion::set(&socket, &config.congestion); // checked at startup
    // A path that fails while a window is closed is noticed by the next probe only, and one that
    // recovers is used from the next attempt on.
    let _ = set(
        fd,
        TCP_RTO_MAX_MS,
        (config.timeout_s * 1000 / RTO_MAX_PART).clamp(1_000, 120_000) as libc::c_int,
    );
    // If the last bytes of a message are lost, only this timer notices, and the collective waits
    // that long.
    let own_us = get(fd, TCP_RTO_MIN_US).unwrap_or_default(); // an administrator may have set less
    let mut rto_us = config.rto_ms as libc::c_int * 1000;
    while rto_us < own_us && !set(fd, TCP_RTO_MIN_US, rto_us) {
        rto_us *= 2; // the kernel refuses less than two of its clock ticks
    }
}

/// Read an integer TCP option; None if the kernel does not have it.
fn get(fd: RawFd, option: libc::c_int) -> Option<libc::c_int> {
    let (mut value, mut size): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: `value` is a local int and `size` its size, which getsockopt does not exceed.
    let outcome = unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, option, (&raw mut value).cast(), &raw mut size)
    };
    (outcome == 0).then_some(value)
}

/// Set an integer TCP option; returns whether the kernel accepts it.
fn set(fd: RawFd, option: libc::c_int, value: libc::c_int) -> bool {
    // SAFETY: `value` is an int that lives during the call, and its size is given.
    unsafe {
        libc::setsockopt(
            fd,
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        ) == 0
    }
}

/// End the stream when bytes stay unacknowledged for `timeout_s`. For the receiving end only, whose
/// acknowledgements always have room. On a sending end the kernel would also close a stream whose
/// peer is alive but busy.
pub fn set_user_timeout(socket: &Socket, timeout_s: u64) {
    let _ = SockRef::from(socket).set_tcp_user_timeout(Some(Duration::from_secs(timeout_s)));
}

/// Receive into `first`, then into `second`.
///
/// # Safety
/// `first` is writable for `len` bytes.
pub unsafe fn receive(fd: RawFd, first: *mut u8, len: usize, second: &mut [u8]) -> Io {
    let parts = [
        libc::iovec { iov_base: first.cast(), iov_len: len },
        libc::iovec { iov_base: second.as_mut_ptr().cast(), iov_len: second.len() },
    ];
    // SAFETY: this function's caller guarantees `first` for `len` bytes, and `second` is borrowed
    // mutably; the array has 2 entries.
    outcome(unsafe { libc::readv(fd, parts.as_ptr(), 2) })
}

/// Send `head`, then `len` bytes at `data`.
///
/// # Safety
/// `data` is readable for `len` bytes.
pub unsafe fn send(fd: RawFd, head: &[u8], data: *const u8, len: usize) -> Io {
    let mut parts = [
        libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
        libc::iovec { iov_base: data.cast_mut().cast(), iov_len: len },
    ];
    // SAFETY: msghdr is plain data, valid when zero.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = 2;
    // SAFETY: `parts` is a local array of 2. The first part is borrowed, and this function's caller
    // guarantees the second for `len` bytes.
    match outcome(unsafe {
        libc::sendmsg(fd, &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    }) {
        Io::Ended(None) => Io::Blocked, // zero bytes were requested
        other => other,
    }
}

/// Send `head` together with what is sent next, in one packet.
pub fn send_more(fd: RawFd, head: &[u8]) -> Io {
    // SAFETY: `head` is borrowed during the call, which copies at most its length.
    outcome(unsafe {
        libc::send(
            fd,
            head.as_ptr().cast(),
            head.len(),
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_MORE,
        )
    })
}

/// The result of a system call that moves bytes.
pub fn outcome(result: isize) -> Io {
    match result {
        1.. => Io::Done(result as usize),
        0 => Io::Ended(None),
        _ => {
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Io::Blocked,
                _ => Io::Ended(Some(error)),
            }
        }
    }
}

/// Bytes that the peer's kernel has not acknowledged; 0 if the socket is closed.
pub fn unacknowledged(socket: &impl AsRawFd) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (SIOCOUTQ) writes one int, a local.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } == 0 {
        bytes.max(0) as usize
    } else {
        0
    }
}

/// The kernel's view of what is in flight on a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// It retransmits, or probes an open window because nothing can be sent, as with an interface
    /// that is down. A peer that merely reads slowly closes its window instead, and answers probes.
    pub tries_again: bool,
    /// The last packet or probe has had no answer.
    pub unanswered: bool,
}

/// For a stream with bytes in flight.
pub fn trouble(socket: &impl AsRawFd) -> Trouble {
    // SAFETY: tcp_info is plain data, valid when zero; getsockopt writes at most `size` bytes, the
    // size of `info`.
    unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
        let got = libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut size,
        );
        if got != 0 {
            return Trouble::default();
        }
        let probes_open = info.tcpi_backoff > 0 && info.tcpi_snd_wnd >= info.tcpi_snd_mss.max(1);
        let again = info.tcpi_retransmits > 0;
        Trouble { tries_again: again || probes_open, unanswered: again || info.tcpi_probes > 0 }
    }
}

/// End a stream at once: the kernel sends nothing more of it.
pub fn abort(fd: RawFd) {
    // SAFETY: sockaddr is plain data, valid when zero; connect reads one sockaddr, a local.
    // AF_UNSPEC dissolves the connection.
    unsafe {
        let mut unspecified: libc::sockaddr = std::mem::zeroed();
        unspecified.sa_family = libc::AF_UNSPEC as libc::sa_family_t;
        libc::connect(fd, &raw const unspecified, size_of::<libc::sockaddr>() as libc::socklen_t);
    }
}

/// Whether the peer has closed its side, even if data is still unread.
pub fn closed_by_peer(socket: &impl AsRawFd) -> bool {
    let mut asked = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: `asked` is one pollfd, a local; with the timeout 0 the call does not block.
    unsafe { libc::poll(&raw mut asked, 1, 0) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuned(config: &Config) -> Socket {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        tune(&socket, config);
        socket
    }

    #[test]
    fn retransmissions_come_soon_if_the_kernel_has_the_option() {
        let rto_us = |rto_ms| {
            get(tuned(&Config { rto_ms, ..Config::default() }).as_raw_fd(), TCP_RTO_MIN_US)
        };
        let own =
            get(Socket::new(Domain::IPV4, Type::STREAM, None).unwrap().as_raw_fd(), TCP_RTO_MIN_US);
        let Some(own) = own else { return }; // Linux before 6.15
        assert_eq!(rto_us(200), Some(own), "never more than the system's own");
        assert!(rto_us(10).unwrap() <= own.min(20_000), "in whole ticks, of at most 10 ms");
        assert!((2_000..=own.min(32_000)).contains(&rto_us(1).unwrap()), "at least two ticks");
    }

    #[test]
    fn nothing_is_sent_after_an_abort() {
        use std::io::Read;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let (bytes, mut sent) = (vec![1u8; 1 << 20], 0);
        let (socket, size) = (near.as_raw_fd(), bytes.len());
        // SAFETY: `bytes` is borrowed during the call.
        while let Io::Done(more) = unsafe { send(socket, &[], bytes.as_ptr(), size) } {
            sent += more;
        }
        abort(near.as_raw_fd());
        let mut got = Vec::new();
        assert_eq!(far.read_to_end(&mut got).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert!(got.len() < sent, "{} of {sent}", got.len());
    }

    #[test]
    fn streams_have_the_requested_congestion_control() {
        let socket = tuned(&Config { congestion: "reno".to_owned(), ..Config::default() });
        assert!(socket.tcp_congestion().unwrap().starts_with(b"reno"));
    }
}
