//! Streams that die, stall or lose data: messages still arrive, and if they cannot, both ends get
//! an error.

use std::panic::resume_unwind;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use busbw_transport::config::Config;
use busbw_transport::{Kind, Receiver, Request, Sender};

mod common;
use common::*;

const SOON: Duration = Duration::from_secs(5);

fn two_streams() -> Config {
    Config { streams: 2, chunk: 65536, ..Config::default() }
}

#[test]
fn an_acknowledgement_lost_with_its_stream_is_repeated() {
    let (proxy, transport) = (Proxy::default(), open(two_streams()));
    let (sender, receiver) = join(&transport, &transport, Some(&proxy));
    pause(100); // until all streams are idle: then the first of them takes the chunk
    for index in [1, 2] {
        proxy.stream(index).swallows.store(true, Ordering::SeqCst);
    }
    let (sent, mut got) = (data(65536, 1), vec![0; 65536]);
    let (received, done) = (irecv(&receiver, &mut got), isend(&sender, &sent));
    assert_eq!(wait(received), Ok(65536));
    pause(50);
    proxy.stream(2).swallows.store(false, Ordering::SeqCst);
    proxy.cut(1);
    assert_eq!(within(done, SOON), Ok(Some(65536)));
}

/// A receive that waits for data held on stream 2, while stream 1 waits before a message without a
/// receive.
fn held_up(
    proxy: &Proxy,
    sender: &Sender,
    receiver: &Receiver,
    sent: &[u8],
    got: &mut [u8],
) -> NonNull<Request> {
    for _ in 0..20 {
        pause(100); // until all streams are idle: then each takes its part
        proxy.stream(2).hold(true);
        let received = irecv(receiver, got);
        let both = [isend(sender, sent), isend(sender, sent)];
        if within(received, Duration::from_secs(1)) == Ok(None) {
            return received;
        }
        proxy.stream(2).hold(false); // stream 1 was so much faster that it took everything
        let _ = (wait(irecv(receiver, got)).unwrap(), both.map(|one| wait(one).unwrap()));
    }
    panic!("stream 2 never took a part");
}

#[test]
fn a_dead_peer_is_noticed_behind_an_early_chunk() {
    let (proxy, transport) = (Proxy::default(), open(two_streams()));
    let (sent, mut got) = (data(4 << 20, 1), vec![0; 4 << 20]);
    let (sender, receiver) = join(&transport, &transport, Some(&proxy));
    let received = held_up(&proxy, &sender, &receiver, &sent, &mut got);
    (0..=2).for_each(|index| proxy.cut(index));
    assert_eq!(within(received, SOON).map_err(|error| error.kind), Err(Kind::Remote));
}

#[test]
fn resent_chunks_arrive_past_an_early_chunk() {
    let (proxy, transport) = (Proxy::default(), open(two_streams()));
    let (sent, mut got) = (data(1 << 20, 1), vec![0; 1 << 20]);
    let (sender, receiver) = join(&transport, &transport, Some(&proxy));
    let received = held_up(&proxy, &sender, &receiver, &sent, &mut got);
    proxy.cut(2);
    assert_eq!(within(received, SOON), Ok(Some(1 << 20)));
    assert!(got == sent);
}

#[test]
fn memory_for_early_chunks_comes_back_when_their_streams_die() {
    let (proxy, transport) = (
        Proxy::default(),
        open(Config { streams: 32, chunk: 8 << 20, stall_ms: 50, ..Config::default() }),
    );
    let (sent, mut got) = (data(160 << 20, 1), vec![0u8; 160 << 20]);
    let (sender, receiver) = join(&transport, &transport, Some(&proxy));
    pause(100); // until all streams are idle: then each takes its part
    let _ = (isend(&sender, &sent), isend(&sender, &sent[..16 << 20]));
    (1..=30).for_each(|index| proxy.stream(index).hold(true));
    pause(400);
    (1..=20).for_each(|index| proxy.cut(index));
    (21..=30).for_each(|index| proxy.stream(index).hold(false));
    pause(300);
    assert_eq!(within(irecv(&receiver, &mut got), LIMIT), Ok(Some(160 << 20)));
    assert!(got == sent);
}

#[test]
fn a_stream_takes_over_from_one_that_was_woken_and_ended() {
    let (entered, come) = channel();
    let (leave, left) = channel::<()>();
    let left = Mutex::new(left);
    let log = Arc::new(move |_, line: &str| {
        if line.starts_with("to ") && line.contains("stream 2 has ended") {
            entered.send(()).unwrap();
            let _ = left.lock().unwrap().recv(); // blocks the only I/O thread in the log
        }
    });
    let config = || Config { streams: 3, threads: 1, ..Config::default() };
    let (proxy, from, to) = (Proxy::default(), open_logging(config(), log), open(config()));
    let (sender, receiver) = join(&from, &to, Some(&proxy));
    pause(200);
    proxy.cut(3);
    come.recv_timeout(SOON).unwrap();
    proxy.cut(1);
    pause(50);
    let (sent, mut got) = (data(65536, 1), vec![0; 65536]);
    let (received, _done) = (irecv(&receiver, &mut got), isend(&sender, &sent));
    drop(leave);
    assert_eq!(within(received, SOON), Ok(Some(65536)));
}

#[test]
fn small_messages_survive_their_stream_and_the_first_of_the_others() {
    for lost in [vec![0], vec![1, 0]] {
        let (proxy, transport) =
            (Proxy::default(), open(Config { streams: 3, ..Config::default() }));
        let (sender, receiver) = join(&transport, &transport, Some(&proxy));
        for index in lost {
            pause(150);
            proxy.cut(index);
        }
        pause(150);
        let (sent, mut got) = (data(100, 1), vec![0; 100]);
        let (received, _done) = (irecv(&receiver, &mut got), isend(&sender, &sent));
        assert_eq!(within(received, SOON), Ok(Some(100)));
    }
}

#[test]
fn a_small_message_wakes_a_thread_that_is_falling_asleep() {
    for spin_us in [0, 300_000] {
        for round in 0..6 {
            let log = Arc::new(|_, _: &str| {});
            let (proxy, transport) = (
                Proxy::default(),
                open_logging(
                    Config { streams: 2, spin_us: Some(spin_us), ..Config::default() },
                    log,
                ),
            );
            let (sender, receiver) = join(&transport, &transport, Some(&proxy));
            pause(50);
            proxy.cut(0);
            pause(150);
            let (sent, mut got) = (data(65536, 1), vec![0; 65536]);
            // wakes the thread
            let (received, done) = (irecv(&receiver, &mut got), isend(&sender, &sent));
            assert!(wait(received).is_ok() && wait(done).is_ok());
            pause(90 + 20 * round);
            let (received, _done) = (irecv(&receiver, &mut got), isend(&sender, &sent[..100]));
            assert_eq!(within(received, SOON), Ok(Some(100)), "spin {spin_us}, round {round}");
        }
    }
}

#[test]
fn a_panic_on_an_io_thread_ends_only_its_stream() {
    let (entered, come) = channel();
    let log = Arc::new(move |_, line: &str| {
        if line.contains("stream 0 has ended") {
            entered.send(()).unwrap();
            // a panic without the time that a backtrace takes
            resume_unwind(Box::new("on purpose"));
        }
    });
    let config = || Config { streams: 3, threads: 1, ..Config::default() };
    let (proxy, from, to) = (Proxy::default(), open_logging(config(), log), open(config()));
    let (sender, receiver) = join(&from, &to, Some(&proxy));
    pause(50);
    proxy.cut(1);
    come.recv_timeout(SOON).unwrap();
    pause(300);
    let (sent, mut got) = (data(1 << 20, 1), vec![0; 1 << 20]);
    let received = irecv(&receiver, &mut got);
    // SAFETY: `sent` is declared before the connection is dropped, and lives to the end of this
    // test.
    let outcome = unsafe { sender.isend(sent.as_ptr(), sent.len()) }
        .and_then(|done| within(done.unwrap(), SOON));
    assert_eq!(
        outcome.map_err(|error| error.kind),
        Err(Kind::Internal),
        "the sender gets an error and does not wait"
    );
    drop(sender);
    assert_eq!(within(received, SOON).map_err(|error| error.kind), Err(Kind::Remote));
}
