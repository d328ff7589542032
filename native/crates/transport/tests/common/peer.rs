//! Peers that follow a script of bytes: one that a sender connects to, and strangers that connect
//! to a listener before its peer does. Each byte of a script is an action or one of its numbers;
//! after the end, numbers are 0.
#![allow(dead_code)] // each test and fuzz target uses its part

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use busbw_transport::{Error, Handle, Kind, Request, Sender, Transport};

/// Time limit of everything.
const LIMIT: Duration = Duration::from_secs(10);
/// A peer whose answers are wrong may never be connected to: for so long it is tried.
const HANDSHAKE: Duration = Duration::from_millis(100);
const ACTIONS: usize = 64;
/// Position of the first listener's port in a handle.
const PORT: std::ops::Range<usize> = 24..26;
const TOKEN: std::ops::Range<usize> = 8..24;
const HELLO: usize = 64;
const SIZES: [usize; 8] = [0, 1, 64, 4096, 32 << 10, 70_000, 300_000, 1 << 20];
const FILL: u8 = 0xa5;

struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte() as u8))
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.byte() % (most + 1)).map(|_| self.byte() as u8).collect()
    }
}

fn by_the_peer(error: &Error) {
    assert!(
        error.kind != Kind::Internal,
        "a peer's fault was reported as an internal error: {error}"
    );
}

/// A message, with its request until that is done or has failed.
struct Sent {
    request: Option<NonNull<Request>>,
    data: Vec<u8>,
}

/// The peer of a sender: the streams that it accepted, and what it knows of the sender's messages.
struct Scene {
    listener: TcpListener,
    streams: Vec<TcpStream>,
    /// What each stream is answered after its hello.
    odd: Option<Vec<u8>>,
    sender: Option<Box<Sender>>,
    sent: Vec<Sent>,
}

/// Connect a sender to a peer that follows the script. Returns how many messages were acknowledged
/// or taken by the kernel.
///
/// # Panics
/// A message changed, a peer's fault was reported as an internal error, or something did not end.
pub fn play_sending(transport: &Arc<Transport>, script: &[u8]) -> usize {
    let mut script = Script(script);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let handle = handle_of(transport, &listener);
    let odd = (script.byte() % 8 == 7).then(|| script.bytes(16));
    let mut scene = Scene { listener, streams: Vec::new(), odd, sender: None, sent: Vec::new() };
    if !scene.connect(transport, &handle) {
        return 0;
    }
    for _ in 0..ACTIONS {
        if script.0.is_empty() {
            break;
        }
        scene.act(&mut script);
    }
    scene.end()
}

/// A valid handle with the port of another listener.
fn handle_of(transport: &Arc<Transport>, listener: &TcpListener) -> Handle {
    let (_, mut handle) = transport.listen(0).unwrap();
    handle[PORT].copy_from_slice(&listener.local_addr().unwrap().port().to_le_bytes());
    handle
}

impl Scene {
    /// Whether the sender regards the connection as open.
    fn connect(&mut self, transport: &Arc<Transport>, handle: &Handle) -> bool {
        let end = Instant::now() + if self.odd.is_some() { HANDSHAKE } else { LIMIT };
        loop {
            match transport.connect(0, handle) {
                Ok(Some(sender)) => {
                    self.sender = Some(sender);
                    return true;
                }
                Ok(None) => {}
                Err(error) => {
                    by_the_peer(&error);
                    return false;
                }
            }
            if Instant::now() > end {
                assert!(self.odd.is_some(), "a connection that does not come about");
                return false;
            }
            self.accept();
            thread::yield_now();
        }
    }

    /// Take a stream and answer its hello without reading it.
    fn accept(&mut self) {
        let Ok((mut stream, _)) = self.listener.accept() else { return };
        stream.set_nonblocking(true).unwrap();
        let welcome = [b'b', b'B', b'w', 1, 3, 0, 0, 0];
        let _ = stream.write_all(self.odd.as_deref().unwrap_or(&welcome));
        self.streams.push(stream);
    }

    fn act(&mut self, script: &mut Script) {
        let action = script.byte();
        let stream = action / 16 % self.streams.len().max(1);
        match action % 16 {
            0..=4 => self.send(script),
            5..=8 => self.acknowledge(script, stream),
            9 => self.say(stream, &script.bytes(80)),
            10 => self.say(
                stream,
                &frame(script.byte() as u8 % 5, [script.word(), script.word(), script.word()]),
            ),
            11 if script.byte() < 64 => self.close(stream, script.byte()),
            12 => thread::sleep(Duration::from_millis(1)),
            13 => self.listen(stream),
            _ => drop(self.test()),
        }
    }

    fn send(&mut self, script: &mut Script) {
        let data = vec![FILL; SIZES[script.byte() % SIZES.len()]];
        let Some(sender) = &self.sender else { return };
        // SAFETY: `self.sent` keeps the bytes until the sender has been dropped.
        match unsafe { sender.isend(data.as_ptr(), data.len()) } {
            Ok(Some(request)) => self.sent.push(Sent { request: Some(request), data }),
            Ok(None) => {}
            Err(error) => by_the_peer(&error),
        }
    }

    /// An acknowledgement of a message that was sent, or of none that exists.
    fn acknowledge(&mut self, script: &mut Script, stream: usize) {
        let sent = self.sent.len() as u64;
        let number = script.byte() as u64;
        let seq = [number % sent.max(1), sent, sent.wrapping_sub(1), u64::MAX][script.byte() % 4];
        let below = [0, seq, sent, u64::MAX][script.byte() % 4];
        self.say(stream, &frame(2, [seq, below, 0]));
    }

    fn say(&self, stream: usize, bytes: &[u8]) {
        if let Some(mut stream) = self.streams.get(stream) {
            let _ = stream.write_all(bytes);
        }
    }

    fn close(&self, stream: usize, way: usize) {
        if let Some(stream) = self.streams.get(stream) {
            let _ = stream.shutdown([Shutdown::Write, Shutdown::Both, Shutdown::Read][way % 3]);
        }
    }

    /// Read what the sender sent.
    fn listen(&self, stream: usize) {
        let mut bytes = [0; 1 << 16];
        if let Some(mut stream) = self.streams.get(stream) {
            while stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
        }
    }

    /// Test all messages; returns whether one is neither done nor failed.
    fn test(&mut self) -> bool {
        let mut left = false;
        for sent in &mut self.sent {
            let Some(pending) = sent.request else { continue };
            // SAFETY: the sender exists, and a request is taken out when it is done or has failed.
            match unsafe { Request::test(pending) } {
                Ok(None) => left = true,
                Ok(Some(_)) => sent.request = None,
                Err(error) => {
                    by_the_peer(&error);
                    sent.request = None;
                }
            }
        }
        left
    }

    /// The peer closes, and every message ends.
    fn end(mut self) -> usize {
        self.streams.clear();
        let end = Instant::now() + LIMIT;
        while self.test() {
            assert!(Instant::now() < end, "a message that does not end though its peer has gone");
            thread::yield_now();
        }
        self.sender = None;
        assert!(
            self.sent.iter().all(|one| one.data.iter().all(|byte| *byte == FILL)),
            "written into a message"
        );
        self.sent.len()
    }
}

fn frame(kind: u8, words: [u64; 3]) -> Vec<u8> {
    let mut bytes = vec![0xb1, 0xb5, kind, 0, 0, 0, 0, 0];
    words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes
}

/// Strangers, which do not know the token, connect to a listener and follow the script. Then its
/// peer connects, and is accepted.
///
/// # Panics
/// The peer is not accepted in time, or a stranger's fault was reported as an error of the
/// listener.
pub fn play_handshake(transport: &Arc<Transport>, script: &[u8]) {
    let mut script = Script(script);
    let (mut listener, handle) = transport.listen(0).unwrap();
    let port = u16::from_le_bytes([handle[PORT.start], handle[PORT.start + 1]]);
    let mut strangers = Vec::new();
    while !script.0.is_empty() && strangers.len() < ACTIONS {
        let mut stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stranger.set_nonblocking(true).unwrap();
        let _ = stranger.write_all(&wrong_hello(&mut script, &handle));
        match script.byte() % 4 {
            0 => drop(stranger),
            1 => strangers.push(stranger),
            _ => {
                let _ = stranger.shutdown(Shutdown::Write);
                strangers.push(stranger);
            }
        }
        assert!(
            listener.accept().is_ok_and(|one| one.is_none()),
            "a stranger was accepted, or failed the listener"
        );
    }
    let end = Instant::now() + LIMIT;
    let (mut sender, mut receiver) = (None, None);
    while sender.is_none() || receiver.is_none() {
        assert!(Instant::now() < end, "the peer is not accepted after strangers");
        if sender.is_none() {
            sender = transport.connect(0, &handle).unwrap();
        }
        if receiver.is_none() {
            receiver = listener.accept().unwrap();
        }
        thread::yield_now();
    }
}

/// Some bytes of a hello. At least one byte of the token is wrong.
fn wrong_hello(script: &mut Script, handle: &Handle) -> Vec<u8> {
    let mut hello = b"bBw\x01\x03\x00".to_vec();
    hello.resize(HELLO, 0);
    hello[16..32].copy_from_slice(&handle[TOKEN]);
    hello[16 + script.byte() % 16] ^= 1 << (script.byte() % 8);
    for _ in 0..script.byte() % 4 {
        let at = script.byte() % HELLO;
        if !(16..32).contains(&at) {
            hello[at] = script.byte() as u8;
        }
    }
    hello.truncate(if script.byte() % 4 == 0 { script.byte() % HELLO } else { HELLO });
    hello.extend(script.bytes(40));
    hello
}
