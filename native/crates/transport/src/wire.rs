//! The format of a stream: a hello and a welcome when it opens, then frames. All numbers are
//! little-endian.

use crate::error::{Error, Kind};

/// The version of this format. Both ends must use the same: a handle of another is refused.
pub const VERSION: u16 = 3;
/// Bytes of the secret in a handle, which every stream must show.
pub const TOKEN: usize = 16;
/// Bytes of a hello.
pub const HELLO: usize = 64;
/// Bytes of a welcome.
pub const WELCOME: usize = 8;
/// Bytes of a frame's header.
pub const HEADER: usize = 32;
/// The largest number of chunks of a message. Limits what a header can make the receiver allocate
/// to one bit each.
pub const MAX_CHUNKS: u64 = 1 << 20;

/// The largest chunk in bytes: the size of a connection's early-arrival buffer.
pub const MAX_CHUNK: usize = 64 << 20;

/// Acknowledge small messages after this many, if no other waits to be read.
pub const ACK_EVERY: usize = 8;
/// Acknowledge small messages after this many in any case.
pub const ACK_AT_LATEST: usize = 16;
/// The same in bytes.
pub const ACK_BYTES: usize = 256 << 10;

/// The start of a hello and of a welcome, with the version.
const GREETING: [u8; 6] = [b'b', b'B', b'w', 1, VERSION as u8, (VERSION >> 8) as u8];
const FRAME_MAGIC: u16 = 0xb5b1;

/// The first bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Which of the connection's streams this is.
    pub index: u16,
    /// The same on all streams of a connection.
    pub nonce: u64,
    /// The listener's secret.
    pub token: [u8; TOKEN],
    /// Number of the attempt to open this stream. Only the last one counts, whatever order they
    /// arrive in.
    pub attempt: u32,
}

impl Hello {
    /// Encode.
    pub fn encode(&self) -> [u8; HELLO] {
        let mut to = [0; HELLO];
        to[..6].copy_from_slice(&GREETING);
        to[6..8].copy_from_slice(&self.index.to_le_bytes());
        to[8..16].copy_from_slice(&self.nonce.to_le_bytes());
        to[16..32].copy_from_slice(&self.token);
        to[32..36].copy_from_slice(&self.attempt.to_le_bytes());
        to
    }

    /// Decode; None if the bytes are not a hello of this version.
    pub fn decode(from: &[u8; HELLO]) -> Option<Self> {
        if from[..6] != GREETING {
            return None;
        }
        let mut token = [0; TOKEN];
        token.copy_from_slice(&from[16..32]);
        let attempt = u32::from_le_bytes([from[32], from[33], from[34], from[35]]);
        Some(Self { index: u16_at(from, 6), nonce: u64_at(from, 8), token, attempt })
    }
}

/// The receiver's answer to a hello with the right token.
pub fn welcome() -> [u8; WELCOME] {
    let mut to = [0; WELCOME];
    to[..6].copy_from_slice(&GREETING);
    to
}

/// A frame. A chunk's header is followed by its bytes; other frames have only a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// `min(chunk, total - offset)` bytes of message `seq` follow.
    Chunk(Chunk),
    /// Message `seq` and all messages below `below` are complete.
    Ack { seq: u64, below: u64 },
    /// The first frame of each stream: the streams with a bit in `mask` exist, and `inline` is the
    /// index of the inline stream.
    Ready { mask: u64, inline: u64 },
}

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Number of the message in its connection.
    pub seq: u64,
    /// Bytes of the whole message.
    pub total: u64,
    /// Start of this chunk, a multiple of `chunk`.
    pub offset: u64,
    /// Bytes of every chunk of the message but its last.
    pub chunk: u32,
}

impl Chunk {
    /// Bytes that follow the header.
    pub fn len(&self) -> usize {
        (self.total - self.offset).min(u64::from(self.chunk)) as usize
    }

    /// Number of this chunk in its message.
    pub fn index(&self) -> usize {
        if self.chunk == 0 { 0 } else { (self.offset / u64::from(self.chunk)) as usize }
    }

    /// Number of chunks of the message: one if it is empty.
    pub fn count(&self) -> usize {
        if self.total == 0 { 1 } else { self.total.div_ceil(u64::from(self.chunk)) as usize }
    }

    fn checked(self) -> Result<Self, Error> {
        let whole = self.total == 0 && self.offset == 0;
        let part =
            self.chunk > 0 && self.offset < self.total && self.offset % u64::from(self.chunk) == 0;
        if !whole
            && (!part
                || self.len() > MAX_CHUNK
                || self.total.div_ceil(u64::from(self.chunk)) > MAX_CHUNKS)
        {
            return Err(Error::new(Kind::Remote, format!("an invalid chunk: {self:?}")));
        }
        Ok(self)
    }
}

impl Frame {
    /// Encode.
    pub fn encode(&self) -> [u8; HEADER] {
        let (kind, chunk, words) = match *self {
            Self::Chunk(c) => (1, c.chunk, [c.seq, c.total, c.offset]),
            Self::Ack { seq, below } => (2, 0, [seq, below, 0]),
            Self::Ready { mask, inline } => (3, 0, [mask, inline, 0]),
        };
        let mut to = [0; HEADER];
        to[..2].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        to[2] = kind;
        to[4..8].copy_from_slice(&chunk.to_le_bytes());
        for (at, word) in words.iter().enumerate() {
            to[8 + 8 * at..16 + 8 * at].copy_from_slice(&word.to_le_bytes());
        }
        to
    }

    /// Decode a header and check its numbers against each other.
    ///
    /// # Errors
    /// The bytes are not a header of this format: the stream is out of step or not busbw's.
    pub fn decode(from: &[u8; HEADER]) -> Result<Self, Error> {
        let word = |at: usize| u64_at(from, 8 + 8 * at);
        if u16_at(from, 0) != FRAME_MAGIC || from[3] != 0 {
            return Err(Error::new(
                Kind::Remote,
                format!("a frame begins with {:02x?}, which is not busbw's", &from[..4]),
            ));
        }
        match from[2] {
            1 => {
                let chunk = u32::from_le_bytes([from[4], from[5], from[6], from[7]]);
                Chunk { seq: word(0), total: word(1), offset: word(2), chunk }
                    .checked()
                    .map(Self::Chunk)
            }
            2 => Ok(Self::Ack { seq: word(0), below: word(1) }),
            3 => Ok(Self::Ready { mask: word(0), inline: word(1) }),
            other => Err(Error::new(Kind::Remote, format!("a frame of unknown kind {other}"))),
        }
    }
}

fn u16_at(from: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([from[at], from[at + 1]])
}

fn u64_at(from: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&from[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_the_wire() {
        let chunk = Chunk { seq: 7, total: 1 << 30, offset: 3 << 18, chunk: 1 << 18 };
        for frame in [
            Frame::Chunk(chunk),
            Frame::Ack { seq: u64::MAX, below: 5 },
            Frame::Ready { mask: 0b1011, inline: 1 },
        ] {
            assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }
        assert_eq!((chunk.index(), chunk.count(), chunk.len()), (3, 4096, 1 << 18));
        let hello = Hello { index: 3, nonce: 11, token: [5; TOKEN], attempt: 2 };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
    }

    #[test]
    fn invalid_headers_are_refused() {
        let good = Chunk { seq: 0, total: 100, offset: 64, chunk: 64 };
        assert!(Frame::decode(&Frame::Chunk(good).encode()).is_ok());
        for bad in [
            Chunk { offset: 63, ..good },
            Chunk { offset: 128, ..good },
            Chunk { chunk: 0, ..good },
            Chunk { total: u64::MAX, offset: 0, chunk: 1, ..good },
            Chunk { total: 0, offset: 64, ..good },
        ] {
            assert!(Frame::decode(&Frame::Chunk(bad).encode()).is_err(), "{bad:?}");
        }
        for at in 0..4 {
            let mut bytes = Frame::Chunk(good).encode();
            bytes[at] ^= 0x80;
            assert!(Frame::decode(&bytes).is_err(), "byte {at}");
        }
    }

    #[test]
    fn an_empty_message_is_one_chunk() {
        let empty = Chunk { seq: 1, total: 0, offset: 0, chunk: 0 };
        assert_eq!(Frame::decode(&Frame::Chunk(empty).encode()), Ok(Frame::Chunk(empty)));
        assert_eq!((empty.len(), empty.count(), empty.index()), (0, 1, 0));
    }
}
