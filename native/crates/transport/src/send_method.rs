//! Copying or sending by reference: each stream uses the method that it measures as cheaper.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crate::sock::{self, Io};
use crate::zerocopy::{self, ROOM};

/// By reference must be this much cheaper, because it may make more and smaller packets, which cost
/// the peer time.
const WORTH: f32 = 0.8;
/// For fewer bytes the calls cost more than a copy.
const LITTLE: usize = 64 << 10;

/// Time and bytes of the last calls.
#[derive(Clone, Copy, Default)]
struct Cost {
    calls: f32,
    ns: f32,
    bytes: f32,
}

impl Cost {
    /// Number of calls that are remembered.
    const MEMORY: f32 = 16.0;

    fn learn(&mut self, took: Duration, bytes: usize) {
        let mut ns = took.as_secs_f32() * 1e9;
        if self.calls > 0.0 {
            // a preempted call says nothing about the method
            ns = ns.min(4.0 * self.ns / self.calls);
        }
        let kept = if self.calls < Self::MEMORY { 1.0 } else { 1.0 - 1.0 / Self::MEMORY };
        self.calls = self.calls.mul_add(kept, 1.0);
        self.ns = self.ns.mul_add(kept, ns);
        self.bytes = self.bytes.mul_add(kept, bytes as f32);
    }

    /// Nanoseconds per byte.
    fn of_a_byte(self) -> f32 {
        self.ns / self.bytes.max(1.0)
    }
}

/// The result of a send.
pub struct Sent {
    pub outcome: Io,
    /// Bytes sent by reference.
    pub referred: usize,
    /// The socket is full now.
    pub full: bool,
}

impl Sent {
    fn copied(outcome: Io) -> Self {
        Self { outcome, referred: 0, full: false }
    }
}

/// The cheaper method of a stream, as measured: it depends on the interface, its driver and the
/// memory.
#[derive(Default)]
pub struct SendMethod {
    copied: Cost,
    referred: Cost,
    sends: u32,
    impossible: bool,
    /// Bytes that the socket takes at once, as far as known. References beyond that would be made
    /// for nothing.
    room: usize,
}

impl SendMethod {
    /// For a stream that always copies unless `allowed`.
    pub fn new(allowed: bool) -> Self {
        Self { impossible: !allowed, room: ROOM, ..Self::default() }
    }

    /// Send `head`, then `len` bytes at `data`, by the cheaper method.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes. They do not change before the peer has them, or the peer
    /// discards them.
    pub unsafe fn send(&mut self, fd: RawFd, head: &[u8], data: *const u8, len: usize) -> Sent {
        if self.refer(len) {
            let out = if head.is_empty() {
                0
            } else {
                match sock::send_more(fd, head) {
                    Io::Done(out) if out == head.len() => out,
                    end => return Sent::copied(end),
                }
            };
            let begun = Instant::now();
            // SAFETY: this function's caller guarantees `data` for `len` bytes until the peer has
            // them.
            let sent = unsafe { zerocopy::send(fd, data, len, self.room) };
            if let Some((referred, full)) = sent {
                self.referred.learn(begun.elapsed(), referred);
                self.room = if full { referred } else { 2 * self.room }.clamp(LITTLE, ROOM);
                return Sent {
                    outcome: if out + referred > 0 {
                        Io::Done(out + referred)
                    } else {
                        Io::Blocked
                    },
                    referred,
                    full,
                };
            }
            self.impossible = true;
            if out > 0 {
                return Sent::copied(Io::Done(out));
            }
        }
        let begun = Instant::now();
        // SAFETY: this function's caller guarantees `data` for `len` bytes; the call copies them.
        let outcome = unsafe { sock::send(fd, head, data, len) };
        if len >= LITTLE {
            self.copied
                .learn(begun.elapsed(), if let Io::Done(bytes) = outcome { bytes } else { 0 });
        }
        Sent::copied(outcome)
    }

    /// Whether to send by reference: if it is cheaper, except every 64th time, which tries the
    /// other method.
    fn refer(&mut self, bytes: usize) -> bool {
        if self.impossible || bytes < LITTLE {
            return false;
        }
        self.sends = self.sends.wrapping_add(1);
        let refer = if self.sends <= 8 {
            self.sends % 2 == 1
        } else {
            (self.referred.of_a_byte() < WORTH * self.copied.of_a_byte()) != (self.sends % 64 == 0)
        };
        self.impossible = refer && !zerocopy::available();
        refer && !self.impossible
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zerocopy::tests::pair;
    use std::io::Read;
    use std::net::TcpStream;
    use std::os::fd::AsRawFd;

    /// Send everything, a piece at a time; returns how often the socket was full.
    fn send_all(
        send_method: &mut SendMethod,
        near: &TcpStream,
        head: &[u8],
        bytes: &[u8],
        piece: usize,
    ) -> usize {
        let (mut sent, mut full_ones) = (0, 0);
        while sent < head.len() + bytes.len() {
            let (ahead, at) = (&head[sent.min(head.len())..], sent.saturating_sub(head.len()));
            let len = piece.min(bytes.len() - at);
            // SAFETY: `bytes` lives, unchanged, until the test has joined the reader.
            let Sent { outcome, full, .. } =
                unsafe { send_method.send(near.as_raw_fd(), ahead, bytes[at..].as_ptr(), len) };
            let blocked = match outcome {
                Io::Done(more) => {
                    sent += more;
                    full
                }
                Io::Blocked => true,
                Io::Ended(error) => panic!("{error:?}"),
            };
            if blocked {
                full_ones += usize::from(full);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        full_ones
    }

    #[test]
    fn pages_arrive_intact_when_the_socket_is_often_full() {
        let (near, mut far) = pair();
        near.set_nonblocking(true).unwrap();
        let bytes: Vec<u8> =
            (0..20_000_003u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let (copy, head) = (bytes.clone(), b"a header before it");
        let reader = std::thread::spawn(move || {
            let mut came = vec![0; head.len() + copy.len()];
            std::thread::sleep(Duration::from_millis(200)); // until nothing more fits
            far.read_exact(&mut came).unwrap();
            assert!(&came[..head.len()] == head && came[head.len()..] == copy);
        });
        let mut send_method = SendMethod::new(true);
        let full = send_all(&mut send_method, &near, head, &bytes, 300_000);
        reader.join().unwrap();
        assert!(full > 0, "the rest of a full pipe was discarded at least once");
        assert!(
            send_method.referred.bytes > 0.0 && send_method.copied.bytes > 0.0,
            "both methods were tried"
        );
    }

    #[test]
    fn the_cheaper_method_is_used_and_the_other_tried_at_times() {
        for (copied, referred) in [(40, 20), (20, 40)] {
            let mut send_method = SendMethod::new(true);
            let mut took_referred = 0;
            for _ in 0..640 {
                let refer = send_method.refer(1 << 16);
                took_referred += u32::from(refer);
                let (method, took) = if refer {
                    (&mut send_method.referred, referred)
                } else {
                    (&mut send_method.copied, copied)
                };
                method.learn(Duration::from_micros(took), 1 << 16);
            }
            let right = if referred < copied { took_referred } else { 640 - took_referred };
            // except every 64th, and half of the first eight
            assert!((620..=632).contains(&right), "{right}");
        }
        assert!(!SendMethod::new(true).refer(LITTLE - 1));
        assert!(!SendMethod::new(false).refer(1 << 20));
    }

    #[test]
    fn a_preempted_send_counts_little_and_a_full_socket_counts() {
        let mut cost = Cost::default();
        (0..20).for_each(|_| cost.learn(Duration::from_micros(50), 50_000));
        assert!((0.99..1.01).contains(&cost.of_a_byte()));
        cost.learn(Duration::from_millis(50), 50_000);
        assert!((1.0..1.3).contains(&cost.of_a_byte()), "{}", cost.of_a_byte());
        (0..200).for_each(|_| cost.learn(Duration::from_micros(50), 50_000));
        (0..8).for_each(|_| cost.learn(Duration::from_micros(50), 0));
        assert!((1.4..2.5).contains(&cost.of_a_byte()), "{}", cost.of_a_byte());
    }
}
