//! Receivers that compute for long, and messages of different sizes behind each other: no
//! connection fails or hangs.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use busbw_transport::config::Config;
use busbw_transport::{Handle, Kind, Listener, Receiver};

mod common;
use common::*;

#[test]
fn a_receiver_may_compute_for_longer_than_the_time_limit() {
    for (size, count) in [(16 << 20, 8), (16384, 64)] {
        let transport = open(Config { timeout_s: 1, ..Config::default() });
        let (sender, receiver) = pair(&transport);
        let (sent, mut got) = (data(size, 1), vec![0; size]);
        let done: Vec<_> = (0..count).map(|_| isend(&sender, &sent)).collect();
        pause(3500);
        assert!(within(done[count - 1], Duration::ZERO).is_ok());
        for _ in 0..count {
            assert_eq!(wait(irecv(&receiver, &mut got)), Ok(size));
            assert!(got == sent);
        }
    }
}

/// Send small messages past a stalled large one, then after it. Returns how long both took.
fn small_past_a_large_one() -> [Duration; 2] {
    let (proxy, transport) = (Proxy::default(), open(Config::default()));
    let (sender, receiver) = join(&transport, &transport, Some(&proxy));
    let (large, small) = (data(1 << 20, 1), data(64, 2));
    let (mut first, mut rest) = (vec![0u8; 1 << 20], vec![vec![0u8; 64]; 63]);
    (1..=4).for_each(|index| proxy.stream(index).hold(true));
    let received = irecv(&receiver, &mut first);
    let posted: Vec<_> = rest.iter_mut().map(|buffer| irecv(&receiver, buffer)).collect();
    let mut sends = vec![isend(&sender, &large)];
    let begun = Instant::now();
    for one in posted {
        sends.push(isend(&sender, &small));
        assert_eq!(wait(one), Ok(64));
    }
    let past = begun.elapsed();
    (1..=4).for_each(|index| proxy.stream(index).hold(false));
    assert_eq!(wait(received), Ok(1 << 20));
    for done in sends {
        assert!(wait(done).is_ok());
    }
    let begun = Instant::now();
    for _ in 0..70 {
        let (received, done) = (irecv(&receiver, &mut first), isend(&sender, &small));
        assert!(wait(received).is_ok() && wait(done).is_ok());
    }
    [past, begun.elapsed()]
}

#[test]
fn small_messages_are_acknowledged_past_a_large_one() {
    let look = Duration::from_millis(90); // less than the interval of stall checks
    // a busy machine spoils some
    let tries: Vec<_> = (0..20).map(|_| small_past_a_large_one()).collect();
    assert!(
        tries.iter().any(|[past, _]| *past < look) && tries.iter().any(|[_, after]| *after < look),
        "{tries:?}"
    );
}

/// Send bursts that are read at once, so that no read finds the stream empty. Returns how long they
/// took.
fn bursts() -> Duration {
    let transport = open(Config::default());
    let (sender, receiver) = pair(&transport);
    let (sent, mut got) = (data(64, 1), vec![[0u8; 64]; 20]);
    let begun = Instant::now();
    for _ in 0..10 {
        let sends: Vec<_> = got.iter().map(|_| isend(&sender, &sent)).collect();
        for done in sends {
            assert_eq!(wait(done), Ok(64)); // the kernel has it
        }
        pause(1);
        let posted: Vec<_> = got.iter_mut().map(|buffer| irecv(&receiver, buffer)).collect();
        for one in posted {
            assert_eq!(wait(one), Ok(64));
        }
    }
    begun.elapsed()
}

#[test]
fn small_messages_that_come_in_bursts_are_acknowledged_too() {
    let look = Duration::from_millis(90); // less than the interval of stall checks
    let tries: Vec<_> = (0..10).map(|_| bursts()).collect(); // a busy machine spoils some
    assert!(tries.iter().any(|took| *took < look), "{tries:?}");
}

/// A stream to a listener, with its hello.
fn stream(handle: &Handle, index: u8, attempt: u8) -> TcpStream {
    let mut stream =
        TcpStream::connect(("127.0.0.1", u16::from_le_bytes([handle[24], handle[25]]))).unwrap();
    let mut hello = [0u8; 64];
    hello[..7].copy_from_slice(&[b'b', b'B', b'w', 1, 3, 0, index]);
    hello[16..32].copy_from_slice(&handle[8..24]);
    hello[32] = attempt;
    stream.write_all(&hello).unwrap();
    stream
}

fn frame(kind: u8, chunk: u32, words: [u64; 3]) -> [u8; 32] {
    let mut bytes = [0u8; 32];
    bytes[..3].copy_from_slice(&[0xb1, 0xb5, kind]);
    bytes[4..8].copy_from_slice(&chunk.to_le_bytes());
    for (at, word) in words.iter().enumerate() {
        bytes[8 + 8 * at..16 + 8 * at].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn accepted(listener: &mut Listener) -> Box<Receiver> {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < LIMIT);
        if let Some(receiver) = listener.accept().unwrap() {
            return receiver;
        }
    }
}

#[test]
fn a_late_hello_of_an_earlier_attempt_replaces_no_stream() {
    let transport = open(Config::default());
    let (mut listener, handle) = transport.listen(0).unwrap();
    let mut inline = stream(&handle, 0, 1);
    let mut second = stream(&handle, 1, 2);
    pause(20);
    assert!(listener.accept().unwrap().is_none());
    let _late = stream(&handle, 1, 1); // it ends later still
    pause(20);
    inline.write_all(&frame(3, 0, [3, 0, 0])).unwrap();
    let receiver = accepted(&mut listener);
    let mut got = vec![0u8; 100];
    let received = irecv(&receiver, &mut got);
    second.write_all(&frame(1, 100, [0, 100, 0])).unwrap();
    second.write_all(&[7; 100]).unwrap();
    assert_eq!(within(received, Duration::from_secs(2)), Ok(Some(100)));
}

#[test]
fn a_peer_that_opens_only_some_streams_is_named() {
    let transport = open(Config { timeout_s: 1, ..Config::default() });
    let (mut listener, handle) = transport.listen(0).unwrap();
    let _peer = stream(&handle, 0, 1);
    let begun = Instant::now();
    let error = loop {
        match listener.accept() {
            Ok(none) => assert!(none.is_none() && begun.elapsed() < Duration::from_secs(5)),
            Err(error) => break error,
        }
        pause(5);
    };
    assert_eq!(error.kind, Kind::Remote);
    assert!(
        error.message.contains(
            "opened 1 streams over lo, but after 1 s it has not announced how many there are"
        ),
        "{error}"
    );
}

#[test]
fn chunks_that_contradict_each_other_are_refused() {
    let transport = open(Config::default());
    let (mut listener, handle) = transport.listen(0).unwrap();
    let mut streams = [0, 1].map(|index| stream(&handle, index, 1));
    streams[0].write_all(&frame(3, 0, [3, 0, 0])).unwrap();
    let receiver = accepted(&mut listener);
    let mut got = vec![7u8; 1 << 20];
    let received = irecv(&receiver, &mut got);
    for (offset, chunk) in [(0, 1 << 19), (4096, 4096)] {
        streams[1].write_all(&frame(1, chunk, [0, 1 << 20, offset])).unwrap();
        streams[1].write_all(&vec![1; chunk as usize]).unwrap();
    }
    let error = within(received, Duration::from_secs(5)).unwrap_err();
    assert!(error.message.contains("contradict each other"), "{error}");
}

#[test]
fn a_peer_that_pauses_after_one_welcome_is_waited_for() {
    let transport = open(Config::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_, mut handle) = transport.listen(0).unwrap();
    handle[24..26].copy_from_slice(&listener.local_addr().unwrap().port().to_le_bytes());
    let begun = Instant::now();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                if stream.read_exact(&mut [0; 64]).is_err() {
                    return;
                }
                if number > 0 {
                    thread::sleep(Duration::from_millis(4_500).saturating_sub(begun.elapsed()));
                }
                let _ = stream.write_all(b"bBw\x01\x03\0\0\0");
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    while transport.connect(0, &handle).unwrap().is_none() {
        assert!(begun.elapsed() < LIMIT);
        pause(1);
    }
}
