//! Ranks in one process, over loopback. The tests write the counters that a GPU would write.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use busbw_transport::config::Config;
use busbw_transport::{Handle, Transport};

use crate::{Exchange, Job, Numbers, Part};

const PATIENCE: Duration = Duration::from_secs(10);
const CHUNK: usize = 1 << 16;

/// A rank with its data. Counters start shortly before they wrap around.
struct Rank {
    exchange: Exchange,
    sent: Vec<Vec<u8>>,
    came: Vec<Vec<u8>>,
    ready: AtomicU32,
    done: AtomicU32,
    failed: AtomicU32,
    base: u32,
    /// Whether messages begin with their length.
    sized: bool,
}

impl Rank {
    fn post(&mut self, length: usize) -> u32 {
        let chunks = u32::try_from(length.div_ceil(CHUNK)).unwrap();
        let parts: Vec<_> = (self.sent.iter().zip(&mut self.came))
            .map(|(sent, came)| Part {
                send: sent.as_ptr(),
                send_len: length,
                recv: came.as_mut_ptr(),
                recv_len: length,
            })
            .collect();
        let numbers = Numbers {
            ready: NonNull::from(&self.ready),
            done: NonNull::from(&self.done),
            failed: NonNull::from(&self.failed),
        };
        // SAFETY: `Rank` owns the buffers and counters, and each test waits for its jobs or drops
        // the exchange before the rank.
        self.exchange
            .post(unsafe { Job::new(&parts, CHUNK, chunks, numbers, self.base, self.sized) });
        chunks
    }

    /// Write the length of the messages at their begin.
    fn say(&mut self, bytes: usize) {
        self.sized = true;
        for message in &mut self.sent {
            message[..8].copy_from_slice(&bytes.to_ne_bytes());
        }
    }

    /// Exchange everything at once and wait.
    fn exchange(&mut self, length: usize) -> Result<(), String> {
        let until = self.base.wrapping_add(self.post(length));
        self.ready.store(until, Ordering::Release);
        let outcome = self.exchange.wait(&self.done, until);
        self.base = until;
        outcome
    }
}

fn byte(from: usize, to: usize, at: usize) -> u8 {
    (from * 31 + to * 7 + at * 131 + at / 251) as u8
}

/// This many ranks, connected to each other.
fn ranks(count: usize, length: usize) -> Vec<Rank> {
    let config =
        || Config { ifname: "=lo".to_owned(), speed_mbps: 1000, threads: 1, ..Config::default() };
    let opened = (0..count).map(|_| {
        Exchange::open(Transport::with(config(), Arc::new(|_, _| ())).unwrap(), count - 1).unwrap()
    });
    let (exchanges, handles): (Vec<_>, Vec<Vec<Handle>>) = opened.unzip();
    let joining = exchanges.into_iter().enumerate().map(|(own, mut exchange)| {
        let peers: Vec<usize> = (0..count).filter(|peer| *peer != own).collect();
        let theirs: Vec<Handle> =
            peers.iter().map(|&peer| handles[peer][own - usize::from(own > peer)]).collect();
        thread::spawn(move || {
            exchange.join(&theirs, PATIENCE, PATIENCE).unwrap();
            let sent =
                peers.iter().map(|&to| (0..length).map(|at| byte(own, to, at)).collect()).collect();
            let came = peers.iter().map(|_| vec![0; length]).collect();
            let base = u32::MAX - 1;
            Rank {
                exchange,
                sent,
                came,
                ready: AtomicU32::new(base),
                done: AtomicU32::new(base),
                failed: AtomicU32::new(0),
                base,
                sized: false,
            }
        })
    });
    let joining: Vec<_> = joining.collect();
    joining.into_iter().map(|one| one.join().unwrap()).collect()
}

#[test]
fn each_has_what_the_others_sent() {
    for count in [2, 4] {
        let longest = 20 * CHUNK + 17;
        let mut all = ranks(count, longest);
        for length in [1, CHUNK, CHUNK + 1, longest] {
            thread::scope(|scope| {
                all.iter_mut().for_each(|rank| drop(scope.spawn(|| rank.exchange(length).unwrap())))
            });
            for (own, rank) in all.iter_mut().enumerate() {
                for (number, from) in (0..count).filter(|from| *from != own).enumerate() {
                    assert!(
                        (0..length).all(|at| rank.came[number][at] == byte(from, own, at)),
                        "{from} to {own}, {length} bytes"
                    );
                    rank.came[number].fill(0);
                }
            }
        }
    }
}

#[test]
fn each_sends_as_many_bytes_as_its_message_says_when_the_first_chunk_is_ready() {
    for count in [2, 3] {
        let room = 5 * CHUNK + 7;
        let mut all = ranks(count, room);
        for lengths in [[8, 9, CHUNK], [room, 3 * CHUNK, 2 * CHUNK + 5]] {
            let posted: Vec<u32> = all
                .iter_mut()
                .map(|rank| {
                    rank.say(usize::MAX);
                    rank.base.wrapping_add(rank.post(room))
                })
                .collect();
            for ((rank, until), bytes) in all.iter_mut().zip(posted).zip(lengths) {
                rank.say(bytes);
                rank.ready.store(until, Ordering::Release);
                rank.base = until;
            }
            for (own, rank) in all.iter_mut().enumerate() {
                rank.exchange.wait(&rank.done, rank.base).unwrap();
                for (number, from) in (0..count).filter(|from| *from != own).enumerate() {
                    let (came, rest) = rank.came[number].split_at(lengths[from]);
                    assert_eq!(came[..8], lengths[from].to_ne_bytes());
                    assert!((8..came.len()).all(|at| came[at] == byte(from, own, at)));
                    assert!(rest.iter().all(|got| *got == 0), "{from} to {own}");
                    rank.came[number].fill(0);
                }
            }
        }
    }
}

#[test]
fn a_message_of_a_length_that_cannot_be_is_an_error() {
    for wrong in [0, 7, 2 * CHUNK + 1, usize::MAX] {
        let mut all = ranks(2, 2 * CHUNK);
        all[0].say(wrong);
        let error = all[0].exchange(2 * CHUNK).unwrap_err();
        assert!(error.contains(&format!("a message of {wrong} bytes in a buffer of 131072")));
    }
}

#[test]
fn a_message_that_is_longer_or_shorter_than_it_says_is_an_error() {
    for (said, sent) in [(2 * CHUNK - 1, 2 * CHUNK), (2 * CHUNK, CHUNK + 5), (2 * CHUNK, 3)] {
        let mut all = ranks(2, 2 * CHUNK);
        all[0].say(said);
        all[0].sized = false; // sends all that it has
        let until = all[0].base.wrapping_add(all[0].post(sent));
        all[0].ready.store(until, Ordering::Release);
        all[1].say(2 * CHUNK);
        let error = all[1].exchange(2 * CHUNK).unwrap_err();
        assert!(error.starts_with("from 127.0.0.1"), "{error}");
    }
}

#[test]
fn chunks_are_sent_when_they_are_ready() {
    let mut all = ranks(2, 3 * CHUNK);
    for rank in &mut all {
        rank.post(3 * CHUNK);
    }
    let begin = all[0].base;
    for ready in 1..=3u32 {
        thread::sleep(Duration::from_millis(30));
        assert!(
            all.iter()
                .all(|rank| rank.done.load(Ordering::Acquire) == begin.wrapping_add(ready - 1))
        );
        all[0].ready.store(begin.wrapping_add(ready), Ordering::Release);
        thread::sleep(Duration::from_millis(30));
        assert!(
            all.iter()
                .all(|rank| rank.done.load(Ordering::Acquire) == begin.wrapping_add(ready - 1)),
            "the other rank's chunk is not ready"
        );
        all[1].ready.store(begin.wrapping_add(ready), Ordering::Release);
        all.iter()
            .for_each(|rank| rank.exchange.wait(&rank.done, begin.wrapping_add(ready)).unwrap());
    }
}

#[test]
fn a_lost_rank_ends_all_waits_with_its_reason() {
    let mut all = ranks(3, 2 * CHUNK);
    drop(all.pop());
    let begun = Instant::now();
    for rank in &mut all {
        for _ in 0..2 {
            let error = rank.exchange(2 * CHUNK).unwrap_err();
            assert!(error.contains("127.0.0.1"), "{error}");
            assert_eq!(rank.failed.load(Ordering::Acquire), 1);
        }
        assert!(rank.exchange.error().is_some());
    }
    assert!(begun.elapsed() < PATIENCE);
}

#[test]
fn ranks_that_disagree_about_a_length_get_an_error() {
    let mut all = ranks(2, 2 * CHUNK);
    let outcomes: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = all
            .iter_mut()
            .zip([CHUNK - 1, CHUNK])
            .map(|(rank, length)| scope.spawn(move || rank.exchange(length)))
            .collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(outcomes.iter().any(Result::is_err), "{outcomes:?}");
}

#[test]
fn closing_does_not_wait_for_others() {
    let mut all = ranks(2, CHUNK);
    let mut one = all.pop().unwrap();
    one.post(CHUNK);
    one.ready.store(one.base.wrapping_add(1), Ordering::Release);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(one.done.load(Ordering::Acquire), one.base, "the other has sent nothing");
    let begun = Instant::now();
    drop(one.exchange);
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(
        one.done.load(Ordering::Acquire),
        one.base.wrapping_add(1),
        "the waiting rank continues"
    );
    assert_eq!(one.failed.load(Ordering::Acquire), 1);
}
