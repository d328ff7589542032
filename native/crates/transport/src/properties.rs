//! Properties that hold for any bytes read as the wire format or as a handle. Fuzzing searches for
//! counterexamples; the tests below try a fixed set.

use crate::handle::{Handle, Invitation, same_network};
use crate::wire::{Chunk, Frame, HEADER, HELLO, Hello, MAX_CHUNKS};

/// Decode the start of `bytes` (padded with zeros) as each header of a stream.
///
/// # Panics
/// Encoding does not give the same bytes back, or the numbers contradict each other.
pub fn frames(bytes: &[u8]) {
    let head = padded::<HEADER>(bytes);
    if let Ok(frame) = Frame::decode(&head) {
        let again = frame.encode();
        let defined: &[_] = match frame {
            Frame::Chunk(chunk) => {
                fits(&chunk);
                &[(0, HEADER)]
            }
            Frame::Ack { .. } => &[(0, 4), (8, 24)],
            Frame::Ready { .. } => &[(0, 4), (8, 24)],
        };
        same(&head, &again, defined);
        assert_eq!(Frame::decode(&again), Ok(frame));
    }
    let head = padded::<HELLO>(bytes);
    if let Some(hello) = Hello::decode(&head) {
        same(&head, &hello.encode(), &[(0, 36)]);
    }
}

/// Decode `bytes` (padded with zeros) as a handle.
///
/// # Panics
/// Encoding does not give the same bytes back.
pub fn handle(bytes: &[u8]) {
    let Ok(read) = Invitation::decode(&padded::<{ size_of::<Handle>() }>(bytes)) else { return };
    assert!(!read.addresses.is_empty());
    assert_eq!(Invitation::decode(&read.encode()), Ok(read.clone()));
    for one in &read.addresses {
        for other in &read.addresses {
            let (a, b) = (one.socket.ip(), other.socket.ip());
            assert_eq!(same_network(a, b, one.prefix), same_network(b, a, one.prefix));
            assert!(a != b || same_network(a, b, one.prefix));
        }
    }
}

fn padded<const SIZE: usize>(bytes: &[u8]) -> [u8; SIZE] {
    std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0))
}

/// Bytes in the ranges `defined` survive decoding and encoding; the others are ignored by readers
/// and written as zero.
fn same(read: &[u8], written: &[u8], defined: &[(usize, usize)]) {
    for at in 0..read.len() {
        let expected =
            if defined.iter().any(|(from, to)| (*from..*to).contains(&at)) { read[at] } else { 0 };
        assert_eq!(written[at], expected, "byte {at} of {read:02x?}");
    }
}

/// No chunk extends beyond its message, and together they cover it.
fn fits(chunk: &Chunk) {
    let (index, count) = (chunk.index(), chunk.count());
    assert!(index < count && count as u64 <= MAX_CHUNKS, "{chunk:?}");
    let end = chunk.offset.checked_add(chunk.len() as u64);
    assert!(
        end.is_some_and(|end| end <= chunk.total && (end == chunk.total) == (index + 1 == count)),
        "{chunk:?}"
    );
    assert!(chunk.len() > 0 || chunk.total == 0, "{chunk:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same bytes on every machine: xorshift64.
    struct Random(u64);

    impl Random {
        fn word(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        /// Small and large numbers, and neighbours of powers of two.
        fn number(&mut self) -> u64 {
            let power = 1u64.wrapping_shl(self.word() as u32);
            [self.word() % 4, self.word(), power, power.wrapping_sub(1)][self.word() as usize % 4]
        }
    }

    /// `base` with up to three bytes changed.
    fn damaged<const SIZE: usize>(base: [u8; SIZE], random: &mut Random) -> [u8; SIZE] {
        let mut bytes = base;
        for _ in 0..random.word() % 4 {
            bytes[random.word() as usize % SIZE] = random.word() as u8;
        }
        bytes
    }

    #[test]
    fn headers_of_any_bytes_are_refused_or_fit() {
        let mut random = Random(0x0b05_b0b5);
        let mut read = 0;
        for _ in 0..100_000 {
            let (total, chunk) = (random.number(), random.number() as u32);
            let offset = if random.word() % 2 == 0 {
                random.number()
            } else {
                random.number().wrapping_mul(u64::from(chunk))
            };
            let one = Chunk { seq: random.number(), total, offset, chunk };
            let frame = [
                Frame::Chunk(one),
                Frame::Chunk(Chunk { offset: 0, ..one }),
                Frame::Ack { seq: total, below: offset },
                Frame::Ready { mask: total, inline: offset },
            ][random.word() as usize % 4];
            let bytes = damaged(frame.encode(), &mut random);
            read += usize::from(Frame::decode(&bytes).is_ok());
            frames(&bytes);
            let (token, attempt) = ([chunk as u8; 16], random.word() as u32);
            let hello = Hello { index: offset as u16, nonce: random.word(), token, attempt };
            frames(&damaged(hello.encode(), &mut random));
        }
        assert!(
            (25_000..75_000).contains(&read),
            "{read} were accepted: too few or too many for a useful test"
        );
    }

    #[test]
    fn handles_of_any_bytes_are_refused_or_read_back() {
        let mut random = Random(0x0b05_b0b5);
        let mut read = 0;
        for _ in 0..50_000 {
            let mut bytes: Handle = std::array::from_fn(|_| random.word() as u8);
            bytes[..6].copy_from_slice(
                &Invitation { token: [0; 16], addresses: Vec::new() }.encode()[..6],
            );
            bytes[6] = (random.word() % 6) as u8;
            for at in [27, 35, 43, 51, 59] {
                // octets of an address, if an IPv4 address is before it
                bytes[at] = if random.word() % 8 == 0 { 16 } else { 4 };
            }
            let bytes = damaged(bytes, &mut random);
            read += usize::from(Invitation::decode(&bytes).is_ok());
            handle(&bytes);
        }
        assert!(
            (20_000..40_000).contains(&read),
            "{read} were accepted: too few or too many for a useful test"
        );
    }
}
