//! Closing connections: buffers are returned at once, messages reported as sent arrive, and the
//! peer notices.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use busbw_transport::config::Config;

mod common;
use common::*;

/// A log whose line with these texts blocks until the other end of the channel is dropped.
fn waits_at(texts: [&'static str; 2]) -> (std::sync::mpsc::Sender<()>, impl Fn(&str)) {
    let (leave, left) = channel::<()>();
    let left: Mutex<Receiver<()>> = Mutex::new(left);
    let wait = move |line: &str| {
        if line.starts_with("from ") && line.contains(texts[0]) && line.contains(texts[1]) {
            let _ = left.lock().unwrap().recv();
        }
    };
    (leave, wait)
}

#[test]
fn nothing_is_written_into_a_buffer_after_the_drop() {
    let (go_on, at_two) = waits_at(["stream 2", "has ended"]);
    let (end, at_one) = waits_at(["stream 1", "has ended"]);
    let log = Arc::new(move |_, line: &str| {
        at_two(line);
        at_one(line);
    });
    let config = || Config { streams: 3, threads: 1, ..Config::default() };
    let (proxy, to, from) = (Proxy::default(), open_logging(config(), log), open(config()));
    let (sender, receiver) = join(&from, &to, Some(&proxy));
    pause(100);
    proxy.stream(1).hold(true);
    let (sent, mut got) = (data(8 << 20, 1), vec![0u8; 8 << 20]);
    let _received = irecv(&receiver, &mut got);
    let _done = isend(&sender, &sent);
    pause(200);
    proxy.cut(3); // blocks the only I/O thread in the log
    pause(50);
    proxy.cut(2);
    pause(50);
    proxy.stream(1).hold(false); // megabytes wait for it
    pause(100);
    drop(go_on);
    pause(20);
    drop(receiver);
    got.fill(7);
    drop(end);
    pause(300);
    assert_eq!(got.iter().filter(|byte| **byte != 7).count(), 0, "bytes written after the drop");
}

#[test]
fn streams_are_reset_if_the_sender_closes_too_early() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let transport = open_logging(Config::default(), {
        let lines = lines.clone();
        Arc::new(move |_, line: &str| lines.lock().unwrap().push(line.to_owned()))
    });
    let resets = || {
        lines
            .lock()
            .unwrap()
            .iter()
            .filter(|line| line.starts_with("to ") && line.contains("4 of 4 streams reset"))
            .count()
    };
    let (sender, receiver) = pair(&transport);
    let sent = data(32 << 20, 1);
    let mut got = vec![0u8; 32 << 20];
    let done = isend(&sender, &sent);
    assert_eq!(wait(irecv(&receiver, &mut got)), Ok(32 << 20));
    assert_eq!(wait(done), Ok(32 << 20));
    drop((sender, receiver));
    assert_eq!(resets(), 0, "all was done");
    let (sender, receiver) = pair(&transport);
    let done = isend(&sender, &sent);
    assert_eq!(within(done, Duration::from_millis(200)), Ok(None), "it is not received");
    drop(sender);
    drop(sent); // the kernel may still hold pages of it, which must not be sent
    assert_eq!(resets(), 1);
    assert_eq!(
        wait(irecv(&receiver, &mut got)).expect_err("most of it was not sent").kind,
        busbw_transport::Kind::Remote
    );
}

#[test]
fn small_messages_arrive_long_after_the_sender_closed() {
    let transport = open(Config::default());
    let (sender, receiver) = pair(&transport);
    let sent = data(16384, 1);
    let mut got = vec![0u8; 16384];
    let mut requests: Vec<_> = (0..16).map(|_| isend(&sender, &sent)).collect();
    for _ in 0..16 {
        assert_eq!(wait(irecv(&receiver, &mut got)), Ok(16384));
    }
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end && requests.len() < 64 {
        requests.extend(try_isend(&sender, &sent));
    }
    let done = requests
        .iter()
        .filter(|one| within(**one, Duration::from_millis(20)) == Ok(Some(16384)))
        .count();
    assert!(done > 32, "{done}");
    let closing = thread::spawn(move || drop(sender));
    pause(400);
    // Acknowledgements that no one reads any more.
    for _ in 16..25 {
        assert_eq!(wait(irecv(&receiver, &mut got)), Ok(16384));
    }
    closing.join().unwrap();
    pause(200);
    for number in 25..done {
        got.fill(0);
        assert_eq!(wait(irecv(&receiver, &mut got)), Ok(16384), "message {number} of {done}");
        assert!(got == sent);
    }
}

#[test]
fn small_messages_survive_a_lost_stream_and_a_close() {
    for round in 0..5 {
        let proxy = Proxy::default();
        let transport =
            open_logging(Config { streams: 2, ..Config::default() }, Arc::new(|_, _| {}));
        let (sender, receiver) = join(&transport, &transport, Some(&proxy));
        pause(50);
        proxy.cut(0);
        pause(10 * round);
        let (sent, mut got) = (data(16384, 1), vec![0u8; 6 * 16384]);
        let requests: Vec<_> = (0..6).map(|_| isend(&sender, &sent)).collect();
        // Posted now, because messages sent after the loss was noticed are acknowledged by their
        // receiver alone.
        let received: Vec<_> =
            got.chunks_mut(16384).map(|buffer| irecv(&receiver, buffer)).collect();
        for done in requests {
            assert_eq!(wait(done), Ok(16384));
        }
        drop(sender);
        for (number, message) in received.into_iter().enumerate() {
            assert_eq!(wait(message), Ok(16384), "message {number}, round {round}");
        }
        assert!(got.chunks(16384).all(|message| message == sent));
    }
}

#[test]
fn closing_many_connections_shares_one_time_limit() {
    let transport = open(Config::default());
    let sent = data(16384, 1);
    let pairs: Vec<_> = (0..12).map(|_| pair(&transport)).collect();
    for (sender, _) in &pairs {
        let end = Instant::now() + Duration::from_millis(50);
        while Instant::now() < end {
            try_isend(sender, &sent);
        }
    }
    let begun = Instant::now();
    let receivers: Vec<_> = pairs.into_iter().map(|(_, receiver)| receiver).collect();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    drop(receivers);
}

#[test]
fn a_close_reaches_the_peer_though_a_child_has_the_sockets() {
    let transport = open(Config::default());
    let (sender, receiver) = pair(&transport);
    // SAFETY: the child only sleeps and exits, by functions that are safe after fork in a program
    // with threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: neither function takes a pointer.
        unsafe {
            libc::sleep(20);
            libc::_exit(0)
        }
    }
    let mut got = vec![0; 1 << 20];
    let received = irecv(&receiver, &mut got);
    drop(sender);
    let outcome = within(received, Duration::from_secs(5));
    // SAFETY: `child` is the process that this test has forked and not yet waited for.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    assert!(outcome.is_err(), "{outcome:?}");
}
