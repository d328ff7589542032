//! The ring: what is put in comes out once and in order, and what has no room is counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use busbw_events::{HEADER_WORDS, RECORD_WORDS, Ring, header};

const SLOTS: usize = 64;

fn words() -> Vec<AtomicU64> {
    (0..HEADER_WORDS + SLOTS * RECORD_WORDS).map(|_| AtomicU64::new(0)).collect()
}

fn records(bytes: &[u8]) -> Vec<[u64; RECORD_WORDS]> {
    let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().unwrap());
    let all: Vec<u64> = bytes.chunks(8).map(word).collect();
    all.chunks(RECORD_WORDS).map(|record| record.try_into().unwrap()).collect()
}

#[test]
fn a_full_ring_drops_and_counts() {
    let words = words();
    let ring = Ring::new(&words);
    for value in 0..SLOTS as u64 {
        assert!(ring.push(&[value; RECORD_WORDS - 1]));
    }
    assert!(!ring.push(&[99; RECORD_WORDS - 1]));
    assert_eq!(ring.word(header::DROPPED).load(Ordering::Relaxed), 1);
    let mut bytes = Vec::new();
    assert_eq!(ring.peek(10, &mut bytes), 10);
    assert!(!ring.push(&[99; RECORD_WORDS - 1]), "records stay until they are released");
    ring.release(10);
    assert!(ring.push(&[64; RECORD_WORDS - 1]));
    bytes.clear();
    assert_eq!(ring.peek(SLOTS + 1, &mut bytes), SLOTS - 9);
    let seen = records(&bytes);
    assert_eq!(
        seen.iter().map(|record| record[0]).collect::<Vec<_>>(),
        (11..=65).collect::<Vec<_>>()
    );
    assert_eq!(
        seen.iter().map(|record| record[7]).collect::<Vec<_>>(),
        (10..=64).collect::<Vec<_>>()
    );
}

#[test]
fn threads_lose_nothing_and_keep_their_order() {
    const THREADS: u64 = 4;
    const EACH: u64 = 50_000;
    let words = words();
    let ring = Ring::new(&words);
    let mut seen = Vec::new();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for value in 0..EACH {
                    while !ring.push(&[thread, value, 0, 0, 0, thread, value]) {
                        thread::yield_now();
                    }
                }
            });
        }
        while (seen.len() as u64) < THREADS * EACH {
            let mut bytes = Vec::new();
            let count = ring.peek(7, &mut bytes);
            ring.release(count);
            seen.extend(records(&bytes));
        }
    });
    assert_eq!(
        seen.iter().map(|record| record[0]).collect::<Vec<_>>(),
        (1..=THREADS * EACH).collect::<Vec<_>>()
    );
    for thread in 0..THREADS {
        let values: Vec<u64> =
            seen.iter().filter(|record| record[1] == thread).map(|record| record[2]).collect();
        assert_eq!(values, (0..EACH).collect::<Vec<_>>());
    }
    assert!(
        seen.iter().all(|record| record[1] == record[6] && record[2] == record[7]),
        "a record is of one thread"
    );
}
