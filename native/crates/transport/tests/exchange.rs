//! Both ends of connections in one process, over loopback: messages of any size arrive complete and
//! in order.

use busbw_transport::config::Config;
use busbw_transport::{Kind, Receiver, Sender};

mod common;
use common::{data, open, pair, wait};

/// Send all messages, at most eight at a time in each direction, and check every byte.
fn exchange(sender: &Sender, receiver: &Receiver, sizes: &[usize]) {
    let sent: Vec<_> =
        sizes.iter().enumerate().map(|(number, size)| data(*size, number as u64 + 1)).collect();
    let mut got: Vec<_> = sizes.iter().map(|size| vec![0u8; size + 100]).collect();
    for first in (0..sizes.len()).step_by(8) {
        let last = (first + 8).min(sizes.len());
        let mut requests = Vec::new();
        for number in first..last {
            // SAFETY: the buffers are parameters and locals of this function, which waits for all
            // requests.
            unsafe {
                requests.push(
                    receiver.irecv(got[number].as_mut_ptr(), got[number].len()).unwrap().unwrap(),
                );
                requests.push(
                    sender.isend(sent[number].as_ptr(), sent[number].len()).unwrap().unwrap(),
                );
            }
        }
        for (number, pair) in (first..last).zip(requests.chunks(2)) {
            assert_eq!(wait(pair[0]), Ok(sizes[number]), "message {number}");
            assert_eq!(wait(pair[1]).map(|_| ()), Ok(()));
        }
    }
    for (number, size) in sizes.iter().enumerate() {
        assert!(
            got[number][..*size] == sent[number][..],
            "message {number} of {size} bytes is not what was sent"
        );
        assert!(got[number][*size..].iter().all(|byte| *byte == 0), "bytes after message {number}");
    }
}

#[test]
fn every_size_arrives_whole_and_in_order() {
    let transport = open(Config::default());
    let (sender, receiver) = pair(&transport);
    let mut sizes = vec![
        0,
        1,
        31,
        32,
        33,
        16383,
        16384,
        16385,
        65536,
        65537,
        1 << 20,
        (1 << 20) + 1,
        0,
        7 << 20,
        3,
    ];
    let mut state = 7u64;
    for _ in 0..200 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        sizes.push((state >> 33) as usize % (1 << (4 + (state >> 20) % 18)));
    }
    exchange(&sender, &receiver, &sizes);
}

#[test]
fn one_stream_and_tiny_chunks_work() {
    let transport =
        open(Config { streams: 1, chunk: 4096, inline: 0, inline_idle: 0, ..Config::default() });
    let (sender, receiver) = pair(&transport);
    exchange(&sender, &receiver, &[0, 1, 4096, 4097, 1 << 20, 5]);
}

#[test]
fn a_message_larger_than_its_buffer_is_an_error() {
    for (size, room) in [(100, 50), (300_000, 200_000)] {
        let transport = open(Config::default());
        let (sent, mut got) = (data(size, 1), vec![7u8; size]);
        let (sender, receiver) = pair(&transport);
        // SAFETY: the buffers are declared before the connection, so they outlive it.
        let request = unsafe { receiver.irecv(got.as_mut_ptr(), room) }.unwrap().unwrap();
        // SAFETY: the data are declared before the connection, so they outlive it.
        unsafe { sender.isend(sent.as_ptr(), size) }.unwrap().unwrap();
        let error = wait(request).unwrap_err();
        assert_eq!(error.kind, Kind::Usage);
        assert!(
            error.message.contains(&format!("{size} bytes, but {room} were posted")),
            "{error}"
        );
        assert!(got[room..].iter().all(|byte| *byte == 7));
    }
}

#[test]
fn a_peer_that_is_gone_is_an_error() {
    let transport = open(Config::default());
    let mut got = vec![0u8; 1 << 20];
    let (sender, receiver) = pair(&transport);
    // SAFETY: the buffer is declared before the connection, so it outlives it.
    let request = unsafe { receiver.irecv(got.as_mut_ptr(), got.len()) }.unwrap().unwrap();
    drop(sender);
    assert_eq!(wait(request).unwrap_err().kind, Kind::Remote);
}

#[test]
fn small_messages_can_be_received_after_the_sender_closed() {
    let transport = open(Config::default());
    let (sender, receiver) = pair(&transport);
    let sent = data(1000, 1);
    for _ in 0..20 {
        // SAFETY: the buffer is declared before the connection, so it outlives it.
        let request = unsafe { sender.isend(sent.as_ptr(), sent.len()) }.unwrap().unwrap();
        wait(request).unwrap();
    }
    drop(sender);
    for number in 0..20 {
        let mut got = vec![0u8; 1000];
        // SAFETY: `got` outlives the request, which the next line waits for.
        let request = unsafe { receiver.irecv(got.as_mut_ptr(), got.len()) }.unwrap().unwrap();
        assert_eq!(wait(request), Ok(1000), "message {number}");
        assert!(got == sent);
    }
}
