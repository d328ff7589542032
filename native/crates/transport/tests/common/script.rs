//! For fuzzing: a peer that knows the token and then follows a script of random bytes: it sends whole, partial,
//! repeated or invalid messages on any stream in any order, while receives are posted. Each byte of
//! a script is an action or one of its numbers; after the end, numbers are 0.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use busbw_transport::config::Config;
use busbw_transport::{Error, Handle, Kind, Listener, Log, Receiver, Request, Transport};

/// Time limit of everything.
const LIMIT: Duration = Duration::from_secs(10);
/// Attempts to accept a peer that has announced streams it does not open.
const LOOKS: usize = 50;
const ACTIONS: usize = 64;
/// Bytes before and after each buffer that no one may write.
const GUARD: usize = 64;
/// This many untouched bytes in a row are no accident.
const HOLE: usize = 16;
const UNTOUCHED: u8 = 0xa5;
const POSTED: u8 = 0x5a;
/// Written by the caller into a buffer that has been returned.
const OWN: u8 = 0xc3;

const TOTALS: [u64; 12] =
    [0, 1, 32, 64, 100, 4096, 20_000, 65_536, 300_000, 1 << 27, 1 << 40, u64::MAX];
const CHUNKS: [u32; 10] = [0, 1, 7, 32, 64, 4096, 65_536, 1 << 20, 1 << 27, u32::MAX];
const ROOMS: [usize; 8] = [300_000, 300_000, 70_000, 300_000, 4096, 300_000, 100, 0];
/// Largest inline message.
const SMALL: u64 = 128 << 10;
/// Largest body sent in one piece.
const LONGEST: usize = 1 << 20;

/// A transport for scripts: over loopback, with short limits. Internal errors abort the process.
pub fn transport() -> Arc<Transport> {
    let log: Log = Arc::new(|_, line: &str| {
        if line.contains("a bug in busbw") {
            eprintln!("{line}");
            std::process::abort(); // on an I/O thread an assertion would not be seen
        }
    });
    let config = Config {
        ifname: "=lo".to_owned(),
        ipv6: false,
        speed_mbps: 1000,
        threads: 2,
        spin_us: Some(0),
        stall_ms: 10,
        ..Config::default()
    };
    Transport::with(config, log).unwrap()
}

struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }

    fn of<T: Copy>(&mut self, table: &[T]) -> T {
        table[self.byte() % table.len()]
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte() as u8))
    }
}

/// Bytes of a message. The format of wire.rs is repeated here, so that a mistake there is not.
struct Head {
    seq: u64,
    total: u64,
    offset: u64,
    chunk: u32,
}

impl Head {
    fn bytes(&self) -> Vec<u8> {
        frame(1, self.chunk, [self.seq, self.total, self.offset])
    }

    fn body(&self) -> usize {
        self.total.saturating_sub(self.offset).min(u64::from(self.chunk)).min(LONGEST as u64)
            as usize
    }
}

fn frame(kind: u8, chunk: u32, words: [u64; 3]) -> Vec<u8> {
    let mut bytes = vec![0xb1, 0xb5, kind, 0];
    bytes.extend(chunk.to_le_bytes());
    words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes
}

fn hello(handle: &Handle, index: usize, nonce: u64) -> Vec<u8> {
    let mut bytes = b"bBw\x01\x03\x00".to_vec();
    bytes.extend((index as u16).to_le_bytes());
    bytes.extend(nonce.to_le_bytes());
    bytes.extend(&handle[8..24]);
    bytes.resize(64, 0);
    bytes
}

/// A buffer between guards.
struct Buffer {
    bytes: Vec<u8>,
    own: bool,
}

impl Buffer {
    fn new(room: usize) -> Self {
        let mut bytes = vec![UNTOUCHED; room + 2 * GUARD];
        bytes[GUARD..GUARD + room].fill(POSTED);
        Self { bytes, own: false }
    }

    fn room(&mut self) -> &mut [u8] {
        let end = self.bytes.len() - GUARD;
        &mut self.bytes[GUARD..end]
    }

    /// Check a received message. The peer never sends this many initial bytes in a row.
    fn has_got(&mut self, size: usize) {
        let room = self.room();
        assert!(size <= room.len(), "{size} bytes in a buffer of {}", room.len());
        let hole = room[..size].split(|byte| *byte != POSTED).map(<[u8]>::len).max().unwrap_or(0);
        assert!(
            hole < HOLE,
            "a message of {size} bytes is done, but {hole} of them were not received"
        );
    }

    fn take_back(&mut self) {
        self.own = true;
        self.room().fill(OWN);
    }

    fn check(&mut self) {
        let end = self.bytes.len() - GUARD;
        assert!(
            self.bytes[..GUARD].iter().chain(&self.bytes[end..]).all(|byte| *byte == UNTOUCHED),
            "written outside a buffer"
        );
        assert!(
            !self.own || self.room().iter().all(|byte| *byte == OWN),
            "written into a buffer that has been returned"
        );
    }
}

/// A receive, with its request until that is done or has failed.
struct Receive {
    request: Option<NonNull<Request>>,
    buffer: Buffer,
}

struct Scene {
    streams: Vec<TcpStream>,
    /// Index of the inline stream.
    inline: usize,
    receiver: Box<Receiver>,
    receives: Vec<Receive>,
    /// Number of the next whole message.
    next: u64,
    /// Receives that are done.
    done: usize,
}

/// Connect to a new listener and follow the script. Returns how many receives got their messages.
///
/// # Panics
/// Bytes were written outside posted buffers, a peer's fault was reported as an internal error, or
/// something did not end.
pub fn play(transport: &Arc<Transport>, script: &[u8]) -> usize {
    let mut script = Script(script);
    let (mut listener, handle) = transport.listen(0).unwrap();
    let (shape, ways) = (script.byte(), script.byte());
    let (count, waits) = (2 + shape % 4, ways % 4 == 0);
    let odd_mask = (ways / 16 == 15).then(|| script.word());
    let mask = odd_mask.unwrap_or((1 << count) - 1);
    let port = u16::from_le_bytes([handle[24], handle[25]]);
    let streams: Vec<_> =
        (0..count).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    for (index, mut stream) in streams.iter().enumerate() {
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream.write_all(&hello(&handle, index, 1)).unwrap();
    }
    let inline = shape / 16 % count;
    (&streams[inline]).write_all(&frame(3, 0, [mask, inline as u64, 0])).unwrap();
    let Some(receiver) = accepted(&mut listener, odd_mask.map_or(usize::MAX, |_| LOOKS)) else {
        return 0;
    };
    let mut scene = Scene { streams, inline, receiver, receives: Vec::new(), next: 0, done: 0 };
    for _ in 0..ACTIONS {
        if script.0.is_empty() {
            break;
        }
        scene.act(&mut script);
    }
    scene.end(waits)
}

fn accepted(listener: &mut Listener, looks: usize) -> Option<Box<Receiver>> {
    let end = Instant::now() + LIMIT;
    for _ in 0..looks {
        match listener.accept() {
            Ok(None) => assert!(Instant::now() < end, "a connection that does not come about"),
            Ok(receiver) => return receiver,
            Err(error) => {
                by_the_peer(&error);
                return None;
            }
        }
        thread::yield_now();
    }
    None
}

fn by_the_peer(error: &Error) {
    assert!(
        error.kind != Kind::Internal,
        "a peer's fault was reported as an internal error: {error}"
    );
}

impl Scene {
    fn act(&mut self, script: &mut Script) {
        let action = script.byte();
        let stream = action / 16 % self.streams.len();
        match action % 16 {
            0..=4 => self.message(script, stream),
            5 => {
                let (total, chunk) = (script.of(&TOTALS), script.of(&CHUNKS));
                let number = script.byte() as u64;
                let offset =
                    if number >= 128 { number } else { number.wrapping_mul(u64::from(chunk)) };
                let seq =
                    [self.next, number % 8, self.next.wrapping_sub(1), u64::MAX][script.byte() % 4];
                self.chunk(&Head { seq, total, offset, chunk }, script.byte(), stream);
            }
            6..=10 => self.post(script),
            11 if script.byte() < 64 => {
                let bytes: Vec<u8> =
                    (0..script.byte() % 80).map(|_| script.byte() as u8 & !POSTED).collect();
                self.say(stream, &bytes);
            }
            12 if script.byte() < 64 => drop(
                self.streams[stream].shutdown([Shutdown::Write, Shutdown::Both][script.byte() % 2]),
            ),
            13 => self.listen(stream),
            14 => thread::sleep(Duration::from_millis(1)),
            _ => drop(self.test()),
        }
    }

    /// The next message with its chunks on different streams. One chunk may be missing or repeated.
    fn message(&mut self, script: &mut Script, first: usize) {
        let (total, chunk, way) =
            (script.of(&TOTALS[..9]), script.of(&CHUNKS).max(1), script.byte());
        let total = total.min(u64::from(chunk) * 40);
        let count = total.div_ceil(u64::from(chunk)).max(1);
        let special = (way / 4) as u64 % count;
        let streams = self.streams.len();
        let lanes: Vec<_> = (first..first + streams)
            .map(|at| at % streams)
            .filter(|at| *at != self.inline)
            .collect();
        for number in 0..count {
            let head = Head { seq: self.next, total, offset: number * u64::from(chunk), chunk };
            let times = if number != special { 1 } else { [1, 1, 0, 2][way % 4] };
            for time in 0..times {
                let lane = lanes[(number as usize + time) % lanes.len()];
                self.chunk(
                    &head,
                    0,
                    if count == 1 && total <= SMALL && time == 0 { first } else { lane },
                );
            }
        }
        self.next += 1;
    }

    /// A header with the matching body or another one.
    fn chunk(&mut self, head: &Head, way: usize, stream: usize) {
        let body = head.body();
        let length = match way % 8 {
            0..=4 => body,
            5 => body / 2,
            6 => 0,
            _ => body + 1,
        };
        let mut bytes = head.bytes();
        bytes.resize(bytes.len() + length, head.seq as u8);
        self.say(stream, &bytes);
    }

    /// Send without blocking. If the kernel does not take everything, the stream is out of step.
    fn say(&self, stream: usize, bytes: &[u8]) {
        let _ = (&self.streams[stream]).write_all(bytes);
    }

    /// Discard what the receiver sends: acknowledgements.
    fn listen(&self, stream: usize) {
        let mut bytes = [0; 4096];
        while (&self.streams[stream]).read(&mut bytes).is_ok_and(|count| count > 0) {}
    }

    fn post(&mut self, script: &mut Script) {
        let mut buffer = Buffer::new(script.of(&ROOMS));
        let room = buffer.room();
        // SAFETY: `self.receives` keeps the buffer until the receiver has been dropped.
        match unsafe { self.receiver.irecv(room.as_mut_ptr(), room.len()) } {
            Ok(Some(request)) => self.receives.push(Receive { request: Some(request), buffer }),
            Ok(None) => {}
            Err(error) => {
                by_the_peer(&error);
                // it may have been posted before it failed
                self.receives.push(Receive { request: None, buffer });
            }
        }
    }

    /// Test all receives; returns whether one is neither done nor failed.
    fn test(&mut self) -> bool {
        let mut left = false;
        for Receive { request, buffer } in &mut self.receives {
            let Some(pending) = *request else { continue };
            // SAFETY: the receiver exists, and a request is taken out when it is done or has
            // failed.
            match unsafe { Request::test(pending) } {
                Ok(None) => left = true,
                Ok(Some(size)) => {
                    *request = None;
                    self.done += 1;
                    buffer.has_got(size);
                    buffer.take_back();
                }
                Err(error) => {
                    by_the_peer(&error);
                    *request = None;
                }
            }
        }
        left
    }

    /// The peer or the caller closes. If it is the peer, every receive ends. Then all buffers are
    /// returned.
    fn end(mut self, waits: bool) -> usize {
        if waits {
            self.streams.clear();
            let end = Instant::now() + LIMIT;
            while self.test() {
                assert!(
                    Instant::now() < end,
                    "a receive that does not end though its peer has gone"
                );
                thread::yield_now();
            }
        }
        let Self { receiver, mut receives, done, .. } = self;
        drop(receiver);
        receives.iter_mut().for_each(|one| one.buffer.take_back());
        thread::yield_now();
        receives.iter_mut().for_each(|one| one.buffer.check());
        done
    }
}
