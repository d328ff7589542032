//! The pool with streams that only report what happens to them.

use super::*;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};

struct Reporting {
    socket: UnixStream,
    panics: bool,
    events: Sender<&'static str>,
}

impl Task for Reporting {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn run(&mut self, _share: usize) -> Next {
        assert!(!self.panics, "on purpose");
        let _ = self.events.send("ran");
        Next::Wait
    }

    fn tick(&mut self, _now: Instant) -> Look {
        Look::Enough
    }

    fn broken(&mut self, _why: &str) {
        let _ = self.events.send("broken");
    }
}

/// Always has something to do, and reports the thread that runs it.
struct Busy {
    socket: OwnedFd,
    events: Sender<std::thread::ThreadId>,
}

impl Task for Busy {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn run(&mut self, _share: usize) -> Next {
        let _ = self.events.send(std::thread::current().id());
        std::thread::sleep(Duration::from_millis(1));
        Next::Again
    }

    fn tick(&mut self, _now: Instant) -> Look {
        Look::Enough
    }

    fn broken(&mut self, _why: &str) {}
}

fn set_tasks(pool: &Pool, panics: bool, events: Sender<&'static str>) -> (TaskRef, UnixStream) {
    let (socket, other) = UnixStream::pair().unwrap();
    let task_ref = pool.reserve(Direction::Out).unwrap();
    pool.start(&task_ref, Box::new(Reporting { socket, panics, events }));
    (task_ref, other)
}

#[test]
fn a_piece_is_a_share_unless_that_would_leave_little() {
    let (all, some) = (512 << 10, 64 << 10);
    assert_eq!(
        [piece(all, 1 << 20), piece(all, all - 24), piece(all, 256 << 10), piece(all, 0)],
        [all, all, 256 << 10, some]
    );
    assert_eq!([piece(1, 0), piece(some, 0), piece(0, 0)], [1, some, 0]);
}

#[test]
fn streams_of_a_direction_are_spread_evenly() {
    let pool = Pool::new(3, 0);
    let mut tasks: Vec<_> =
        (0..4).map(|_| (Direction::Out, pool.reserve(Direction::Out).unwrap())).collect();
    tasks.extend((0..5).map(|_| (Direction::In, pool.reserve(Direction::In).unwrap())));
    tasks.extend((0..2).map(|_| (Direction::Out, pool.reserve(Direction::Out).unwrap())));
    let streams = || {
        lock(&pool.workers)
            .iter()
            .map(|one| one.streams.each_ref().map(|count| count.load(Ordering::Relaxed)))
            .collect::<Vec<_>>()
    };
    let mut found = streams();
    found.sort_unstable();
    assert_eq!(found, [[2, 1], [2, 2], [2, 2]]);
    tasks.retain(|(direction, _)| matches!(direction, Direction::In));
    assert_eq!(
        streams().iter().map(|[out, _]| out).sum::<usize>(),
        0,
        "ended streams are not counted"
    );
}

#[test]
fn a_quarter_of_the_threads_spins_and_the_others_sleep() {
    let pool = Pool::new(8, 100_000);
    let (events, received) = channel();
    let tasks: Vec<_> = (0..8).map(|_| set_tasks(&pool, false, events.clone())).collect();
    (0..8).for_each(|_| assert_eq!(received.recv_timeout(Duration::from_secs(5)), Ok("ran")));
    let begun = Instant::now();
    let mut most = 0;
    while begun.elapsed() < Duration::from_millis(50) {
        most = most.max(pool.spinners.count());
        std::thread::yield_now();
    }
    assert_eq!(most, 2);
    while pool.spinners.count() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(5), "threads without work sleep");
        std::thread::yield_now();
    }
    drop(tasks);
}

#[test]
fn a_thread_spins_only_while_its_work_comes_soon() {
    let look = Duration::from_millis(20);
    let pool = Pool::new(1, look.as_micros() as u64);
    let (events, received) = channel();
    let (task_ref, _far) = set_tasks(&pool, false, events);
    let limit = Duration::from_secs(5);
    assert_eq!(received.recv_timeout(limit), Ok("ran"));
    // its socket is writable: another run
    while received.recv_timeout(Duration::from_millis(200)).is_ok() {}
    for _ in 0..8 {
        task_ref.kick();
        assert_eq!(received.recv_timeout(limit), Ok("ran"));
        std::thread::sleep(look * 3);
    }
    task_ref.kick();
    assert_eq!(received.recv_timeout(limit), Ok("ran"));
    let begun = Instant::now();
    while begun.elapsed() < look / 2 {
        assert_eq!(pool.spinners.count(), 0, "it sleeps at once");
        std::thread::yield_now();
    }
    while pool.spinners.count() == 0 {
        assert!(begun.elapsed() < limit, "it spins again when work comes soon");
        task_ref.kick();
        assert_eq!(received.recv_timeout(limit), Ok("ran"));
        std::thread::sleep(look / 20);
    }
}

#[test]
fn a_stream_that_waits_long_is_run_by_a_helping_caller() {
    let pool = Pool::new(1, 0);
    let (tasks, received): (Vec<_>, Vec<_>) = (0..2)
        .map(|_| {
            let (events, received) = channel();
            let (socket, far) = UnixStream::pair().unwrap();
            let task_ref = pool.reserve(Direction::Out).unwrap();
            pool.start(&task_ref, Box::new(Busy { socket: socket.into(), events }));
            (task_ref, (received, far))
        })
        .unzip();
    let (begun, limit) = (Instant::now(), Duration::from_secs(5));
    while !TaskRef::help(&tasks[..1]) {
        assert!(begun.elapsed() < limit, "its thread runs one after the other");
    }
    let here = std::thread::current().id();
    let ran: Vec<_> = received[0].0.try_iter().collect();
    assert_eq!(ran.iter().filter(|id| **id == here).count(), 1);
    for (other, _) in &received {
        let begun = other.try_iter().count();
        (0..3).for_each(|more| {
            assert_ne!(
                other.recv_timeout(limit).unwrap(),
                here,
                "its thread goes on, {begun} + {more}"
            )
        });
    }
}

#[test]
fn a_reset_reaches_the_peer_while_the_thread_is_busy() {
    let pool = Pool::new(1, 0);
    let (events, received) = channel();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let task_ref = pool.reserve(Direction::Out).unwrap();
    pool.start(&task_ref, Box::new(Busy { socket: near.into(), events }));
    received.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(task_ref.reset());
    far.set_nonblocking(true).unwrap();
    assert_eq!(far.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_stream_that_panics_ends_no_other() {
    let pool = Pool::new(1, 0);
    let (events, received) = channel();
    let limit = Duration::from_secs(5);
    let (_bad, _far) = set_tasks(&pool, true, events.clone());
    assert_eq!(received.recv_timeout(limit), Ok("broken"));
    let (good, near) = set_tasks(&pool, false, events);
    assert_eq!(received.recv_timeout(limit), Ok("ran"));
    // its socket is writable: another run
    while received.recv_timeout(Duration::from_millis(200)).is_ok() {}
    good.kick();
    assert_eq!(received.recv_timeout(limit), Ok("ran"), "a kick wakes a thread that sleeps");
    good.remove();
    good.kick();
    assert_eq!(
        near.set_nonblocking(false).and_then(|()| (&near).read(&mut [0])).ok(),
        Some(0),
        "it was dropped, and its socket closed"
    );
    assert!(received.recv_timeout(Duration::from_millis(100)).is_err(), "nothing runs after that");
}
