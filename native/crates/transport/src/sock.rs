//! System calls on stream sockets: non-blocking, without signals.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::config::Config;
use crate::congestion;
use crate::error::{Error, Kind};
use crate::nic::Nic;

/// What a non-blocking call came to.
#[derive(Debug)]
pub enum Io {
    /// So many bytes, at least one.
    Done(usize),
    /// Not now.
    Blocked,
    /// Never again: the peer closed in order (None), or the error.
    Ended(Option<io::Error>),
}

/// A TCP socket bound to an interface and its address; `port` 0 lets the kernel choose.
///
/// # Errors
/// The system refuses: of which kind, and in words.
pub fn bound(nic: &Nic, port: u16) -> Result<Socket, (io::ErrorKind, Error)> {
    let address = SocketAddr::new(nic.address.socket.ip(), port);
    let make = || -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
        // The address alone does not choose the way out where several interfaces share a network. Not allowed before Linux 5.7.
        let _ = socket.bind_device(Some(nic.name.as_bytes()));
        socket.bind(&address.into())?;
        Ok(socket)
    };
    make().map_err(|error| {
        let message = format!("a socket on {} ({address}): {error}{}", nic.name, descriptor_hint(&error));
        (error.kind(), Error::new(Kind::System, message))
    })
}

/// Where a process has no more descriptors: how many it may have.
pub fn descriptor_hint(error: &io::Error) -> String {
    if error.raw_os_error() != Some(libc::EMFILE) {
        return String::new();
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes one rlimit.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    format!(": this process may have {} (ulimit -n; up to {} without root)", limit.rlim_cur, limit.rlim_max)
}

/// Unsent bytes from which on a stream of chunks takes no more.
const UNSENT: libc::c_int = 64 << 10;

/// A stream of chunks is free when the network has taken what it was given, not when there is room in the kernel: megabytes would lie
/// there on a slow path while others have nothing to do.
pub fn limit_unsent(socket: &Socket) {
    let _ = set(socket.as_raw_fd(), libc::TCP_NOTSENT_LOWAT, UNSENT);
}

/// Of include/uapi/linux/tcp.h, since Linux 6.15: the least time, in microseconds, after which what was lost is sent again. Answers are
/// held back for less than that (tcp_delack_max of net/ipv4/tcp_output.c), by a peer that has the same setting.
const TCP_RTO_MIN_US: libc::c_int = 45;
/// And the longest time between two attempts, or two probes of a closed window, in milliseconds.
const TCP_RTO_MAX_MS: libc::c_int = 44;
/// Parts of the timeout that this is: after 15 attempts (net.ipv4.tcp_retries2) the kernel ends a stream, which must not come before.
const RTO_MAX_PART: u64 = 8;

/// Settings of a stream. While nothing is under way, a peer that does not answer for the config's timeout ends it.
pub fn tune(socket: &Socket, config: &Config) {
    let beat = Duration::from_secs((config.timeout_s / 4).max(1));
    let fd = socket.as_raw_fd();
    let socket = SockRef::from(socket);
    // What a kernel refuses here costs speed or patience, not correctness.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(beat).with_interval(beat).with_retries(3));
    let _ = socket.set_keepalive(true);
    let _ = congestion::set(&socket, &config.congestion); // known to be possible
    // A path that fails while a window is closed shows by the next probe alone, and one that is back is used from the next attempt on.
    let _ = set(fd, TCP_RTO_MAX_MS, (config.timeout_s * 1000 / RTO_MAX_PART).clamp(1_000, 120_000) as libc::c_int);
    // Where the last bytes of a message are lost, nothing but this timer notices, and a collective stands still for as long.
    let own_us = get(fd, TCP_RTO_MIN_US).unwrap_or_default(); // an administrator may have asked for less still
    let mut rto_us = config.rto_ms as libc::c_int * 1000;
    while rto_us < own_us && !set(fd, TCP_RTO_MIN_US, rto_us) {
        rto_us *= 2; // less than two ticks of its clock the kernel refuses
    }
}

/// An option of TCP that is a number, where the kernel has it.
fn get(fd: RawFd, option: libc::c_int) -> Option<libc::c_int> {
    let (mut value, mut size): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the option writes one int.
    let outcome = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, option, (&raw mut value).cast(), &raw mut size) };
    (outcome == 0).then_some(value)
}

/// An option of TCP that is a number; whether the kernel takes it.
fn set(fd: RawFd, option: libc::c_int, value: libc::c_int) -> bool {
    // SAFETY: the option reads one int.
    unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, option, (&raw const value).cast(), size_of::<libc::c_int>() as libc::socklen_t) == 0 }
}

/// Bytes under way that are not acknowledged for `timeout_s` end a stream. For the receiving end alone, whose acknowledgements always find
/// room: to the kernel, a peer that is busy and does not read is as good as one that is gone, and it ends both.
pub fn set_user_timeout(socket: &Socket, timeout_s: u64) {
    let _ = SockRef::from(socket).set_tcp_user_timeout(Some(Duration::from_secs(timeout_s)));
}

/// Receive into `first`, and what is left over into `second`.
///
/// # Safety
/// `first` is writable for `len` bytes.
pub unsafe fn receive(fd: RawFd, first: *mut u8, len: usize, second: &mut [u8]) -> Io {
    let parts =
        [libc::iovec { iov_base: first.cast(), iov_len: len }, libc::iovec { iov_base: second.as_mut_ptr().cast(), iov_len: second.len() }];
    // SAFETY: both parts are writable; the descriptor is the caller's.
    outcome(unsafe { libc::readv(fd, parts.as_ptr(), 2) })
}

/// Send `head`, then `len` bytes at `data`.
///
/// # Safety
/// `data` is readable for `len` bytes, or nobody minds what is sent.
pub unsafe fn send(fd: RawFd, head: &[u8], data: *const u8, len: usize) -> Io {
    let mut parts = [
        libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
        libc::iovec { iov_base: data.cast_mut().cast(), iov_len: len },
    ];
    // SAFETY: all zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = 2;
    // SAFETY: the parts outlive the call.
    match outcome(unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) }) {
        Io::Ended(None) => Io::Blocked, // zero bytes were asked for
        other => other,
    }
}

/// Send `head`, which waits for what is sent next: both go out in one packet.
pub fn send_more(fd: RawFd, head: &[u8]) -> Io {
    // SAFETY: readable, and copied within the call.
    outcome(unsafe { libc::send(fd, head.as_ptr().cast(), head.len(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_MORE) })
}

/// What a call of the kernel that moves bytes came to.
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

/// Bytes the peer's kernel has not acknowledged; 0 where the socket is no more.
pub fn unacknowledged(socket: &impl AsRawFd) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (SIOCOUTQ) writes one int.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } == 0 { bytes.max(0) as usize } else { 0 }
}

/// How the kernel fares with what is under way on a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// It retransmits, or probes a window that is open (nothing could go out at all, as over an interface that was taken down). A peer that
    /// only reads slowly closes its window instead, and answers probes.
    pub tries_again: bool,
    /// The last it sent, probes of a closed window among it, has had no answer.
    pub unanswered: bool,
}

/// Of a stream with bytes under way.
pub fn trouble(socket: &impl AsRawFd) -> Trouble {
    // SAFETY: all zero is a valid tcp_info, and getsockopt writes at most its size.
    unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
        let got = libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut size);
        if got != 0 {
            return Trouble::default();
        }
        let probes_open = info.tcpi_backoff > 0 && info.tcpi_snd_wnd >= info.tcpi_snd_mss.max(1);
        let again = info.tcpi_retransmits > 0;
        Trouble { tries_again: again || probes_open, unanswered: again || info.tcpi_probes > 0 }
    }
}

/// End a stream at once: nothing that it still has goes out.
pub fn abort(fd: RawFd) {
    // SAFETY: all zero but the family is the address that undoes a connection, and is read within the call.
    unsafe {
        let mut unspecified: libc::sockaddr = std::mem::zeroed();
        unspecified.sa_family = libc::AF_UNSPEC as libc::sa_family_t;
        libc::connect(fd, &raw const unspecified, size_of::<libc::sockaddr>() as libc::socklen_t);
    }
}

/// Whether the peer has closed its side, whatever is still unread.
pub fn closed_by_peer(socket: &impl AsRawFd) -> bool {
    let mut asked = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one entry, and no waiting.
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
    fn what_was_lost_is_sent_again_soon_where_the_kernel_lets_us_say() {
        let rto_us = |rto_ms| get(tuned(&Config { rto_ms, ..Config::default() }).as_raw_fd(), TCP_RTO_MIN_US);
        let own = get(Socket::new(Domain::IPV4, Type::STREAM, None).unwrap().as_raw_fd(), TCP_RTO_MIN_US);
        let Some(own) = own else { return }; // Linux before 6.15
        assert_eq!(rto_us(200), Some(own), "never more than the system's own");
        assert!(rto_us(10).unwrap() <= own.min(20_000), "in whole ticks, of 10 ms at the most");
        assert!((2_000..=own.min(32_000)).contains(&rto_us(1).unwrap()), "two ticks at the least");
    }

    #[test]
    fn nothing_goes_out_after_the_end_of_a_stream() {
        use std::io::Read;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let (bytes, mut sent) = (vec![1u8; 1 << 20], 0);
        // SAFETY: readable.
        while let Io::Done(more) = unsafe { send(near.as_raw_fd(), &[], bytes.as_ptr(), bytes.len()) } {
            sent += more;
        }
        abort(near.as_raw_fd());
        let mut got = Vec::new();
        assert_eq!(far.read_to_end(&mut got).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert!(got.len() < sent, "{} of {sent}", got.len());
    }

    #[test]
    fn streams_have_the_congestion_control_that_is_asked_for() {
        let socket = tuned(&Config { congestion: "reno".to_owned(), ..Config::default() });
        assert!(socket.tcp_congestion().unwrap().starts_with(b"reno"));
    }
}
