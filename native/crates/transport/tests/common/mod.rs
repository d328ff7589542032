//! Both ends of connections in one process, over loopback, and a proxy between them that holds,
//! discards or cuts single streams.
#![allow(dead_code)] // each test file uses its part

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use busbw_transport::config::Config;
use busbw_transport::{Error, Handle, Log, Receiver, Request, Sender, Transport};

pub const LIMIT: Duration = Duration::from_secs(20);
/// Position of the first listener's port in a handle.
const PORT: std::ops::Range<usize> = 24..26;
/// Bytes of a hello, and the position of the stream's number.
const HELLO: usize = 64;
const INDEX: usize = 6;

pub fn open(config: Config) -> Arc<Transport> {
    open_logging(config, Arc::new(|_, line| eprintln!("{line}")))
}

pub fn open_logging(config: Config, log: Log) -> Arc<Transport> {
    let threads = if config.threads == 0 { 2 } else { config.threads };
    Transport::with(Config { ifname: "=lo".to_owned(), speed_mbps: 1000, threads, ..config }, log)
        .unwrap()
}

pub fn pair(transport: &Arc<Transport>) -> (Box<Sender>, Box<Receiver>) {
    join(transport, transport, None)
}

/// A connection from one transport to another.
pub fn join(
    from: &Arc<Transport>,
    to: &Arc<Transport>,
    proxy: Option<&Proxy>,
) -> (Box<Sender>, Box<Receiver>) {
    let (mut listener, handle) = to.listen(0).unwrap();
    let handle = proxy.map_or(handle, |proxy| proxy.before(&handle));
    let (mut sender, mut receiver) = (None, None);
    let end = Instant::now() + LIMIT;
    while sender.is_none() || receiver.is_none() {
        assert!(Instant::now() < end, "no connection");
        if sender.is_none() {
            sender = from.connect(0, &handle).unwrap();
        }
        if receiver.is_none() {
            receiver = listener.accept().unwrap();
        }
    }
    (sender.unwrap(), receiver.unwrap())
}

/// The size; None if the request is not done in time.
pub fn within(request: NonNull<Request>, limit: Duration) -> Result<Option<usize>, Error> {
    let end = Instant::now() + limit;
    loop {
        // SAFETY: callers keep the connection until its requests are done, and test each request
        // until it is done only.
        let bytes = unsafe { Request::test(request) }?;
        if bytes.is_some() || Instant::now() > end {
            return Ok(bytes);
        }
        thread::yield_now();
    }
}

pub fn wait(request: NonNull<Request>) -> Result<usize, Error> {
    within(request, LIMIT).map(|size| size.expect("a request that does not end"))
}

/// Send as NCCL does: try again if there is no room for another message. The data must outlive the
/// request.
pub fn isend(sender: &Sender, data: &[u8]) -> NonNull<Request> {
    let end = Instant::now() + LIMIT;
    loop {
        match try_isend(sender, data) {
            Some(request) => return request,
            None => assert!(Instant::now() < end, "no room for another message"),
        }
        thread::yield_now();
    }
}

pub fn try_isend(sender: &Sender, data: &[u8]) -> Option<NonNull<Request>> {
    // SAFETY: each test declares `data` before the connection or waits for the request, so that it
    // outlives the request.
    unsafe { sender.isend(data.as_ptr(), data.len()) }.unwrap()
}

/// The buffer must outlive the request.
pub fn irecv(receiver: &Receiver, buffer: &mut [u8]) -> NonNull<Request> {
    // SAFETY: each test declares `buffer` before the connection or waits for the request, so that
    // it outlives the request.
    unsafe { receiver.irecv(buffer.as_mut_ptr(), buffer.len()) }
        .unwrap()
        .expect("room for another receive")
}

/// Bytes without a pattern, different for each seed.
pub fn data(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..size)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

pub fn pause(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}

/// A proxy in front of one listener. Stream 0 is the inline stream.
#[derive(Clone, Default)]
pub struct Proxy {
    streams: Arc<Mutex<Vec<Arc<Stream>>>>,
}

/// One stream through the proxy.
pub struct Stream {
    index: usize,
    ends: [TcpStream; 2],
    /// Hold data from the sender, or to it.
    pub holds: [AtomicBool; 2],
    /// Discard data to the sender.
    pub swallows: AtomicBool,
}

impl Stream {
    pub fn hold(&self, held: bool) {
        self.holds[0].store(held, Ordering::SeqCst);
    }
}

impl Proxy {
    /// The handle with the proxy's port.
    fn before(&self, handle: &Handle) -> Handle {
        let mut changed = *handle;
        let target = u16::from_le_bytes([handle[PORT.start], handle[PORT.start + 1]]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        changed[PORT].copy_from_slice(&listener.local_addr().unwrap().port().to_le_bytes());
        let proxy = self.clone();
        thread::spawn(move || {
            for peer in listener.incoming() {
                let (proxy, peer) = (proxy.clone(), peer.unwrap());
                thread::spawn(move || proxy.carry(peer, target));
            }
        });
        changed
    }

    fn carry(&self, mut peer: TcpStream, target: u16) {
        let mut hello = [0u8; HELLO];
        if peer.read_exact(&mut hello).is_err() {
            return;
        }
        let mut there = TcpStream::connect(("127.0.0.1", target)).unwrap();
        for end in [&peer, &there] {
            end.set_nodelay(true).unwrap();
            end.set_read_timeout(Some(Duration::from_millis(3))).unwrap();
        }
        there.write_all(&hello).unwrap();
        let index = usize::from(u16::from_le_bytes([hello[INDEX], hello[INDEX + 1]]));
        let stream = Arc::new(Stream {
            index,
            ends: [peer, there],
            holds: Default::default(),
            swallows: AtomicBool::new(false),
        });
        self.streams.lock().unwrap().push(stream.clone());
        let back = stream.clone();
        thread::spawn(move || back.pump(1));
        stream.pump(0);
    }

    pub fn stream(&self, index: usize) -> Arc<Stream> {
        self.streams
            .lock()
            .unwrap()
            .iter()
            .find(|one| one.index == index)
            .expect("such a stream")
            .clone()
    }

    /// End the stream for both.
    pub fn cut(&self, index: usize) {
        for end in &self.stream(index).ends {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Stream {
    fn pump(&self, way: usize) {
        let (mut from, mut to) = (&self.ends[way], &self.ends[1 - way]);
        let mut bytes = vec![0u8; 64 << 10];
        loop {
            while self.holds[way].load(Ordering::SeqCst) {
                pause(1);
            }
            match from.read(&mut bytes) {
                Ok(0) => return drop(to.shutdown(Shutdown::Write)),
                Ok(count) => {
                    while self.holds[way].load(Ordering::SeqCst) {
                        pause(1);
                    }
                    let swallowed = way == 1 && self.swallows.load(Ordering::SeqCst);
                    if !swallowed && to.write_all(&bytes[..count]).is_err() {
                        return;
                    }
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return drop(to.shutdown(Shutdown::Both)),
            }
        }
    }
}
