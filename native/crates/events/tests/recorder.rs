//! The recorder: what stands in the file, and timings whose channels report in any order.

use std::fs;
use std::path::PathBuf;

use busbw_events::{Call, HEADER_WORDS, Kind, Mode, RECORD_WORDS, Recorder, Task, header};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("busbw-events-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn words(path: &PathBuf) -> Vec<u64> {
    fs::read(path)
        .unwrap()
        .chunks_exact(8)
        .map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap()))
        .collect()
}

fn task(channels: u8) -> Task {
    Task {
        kind: Kind::Coll,
        call: Call { channels, ..Call::default() },
        api: 0,
        sequence: 7,
        launch: 0,
        kernels: true,
    }
}

/// The words once all records have left the ring.
fn drained(path: &PathBuf) -> Vec<u64> {
    for _ in 0..500 {
        let words = words(path);
        if words[header::HEAD] == words[header::TAIL] {
            return words;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("records stay in the ring");
}

/// Kind, id, a and b of the records that have left the ring.
fn appended(path: &PathBuf) -> Vec<[u64; 4]> {
    let words = drained(path);
    let capacity = usize::try_from(words[header::CAPACITY]).unwrap();
    let records = words[HEADER_WORDS + capacity * RECORD_WORDS..].chunks_exact(RECORD_WORDS);
    records.map(|record| [record[1] & 255, record[5], record[6], record[7]]).collect()
}

#[test]
fn a_timing_spans_its_channels_whatever_their_order() {
    let folder = Folder::new("order");
    let path = folder.0.join("one.capture");
    let (_, recorder) = Recorder::start([path.clone()], Mode::Timed, "host=h\n", None).unwrap();
    let comm = recorder.comm(5, "", 0, 2, 1);
    let (one, two) = (recorder.task(comm, &task(2)), recorder.task(comm, &task(1)));
    recorder.channel_started(one, 100);
    recorder.channel_started(two, 300);
    recorder.channel_ended(two, 400);
    recorder.channel_started(one, 90);
    recorder.channel_ended(one, 210);
    recorder.channel_ended(one, 200);
    recorder.channel_ended(one, 999);
    recorder.comm_end(comm);
    let timed: Vec<_> =
        appended(&path).into_iter().filter(|record| record[0] == Kind::Timed as u64).collect();
    assert_eq!(timed, [[Kind::Timed as u64, two, 300, 400], [Kind::Timed as u64, one, 90, 210]]);
}

#[test]
fn a_timing_that_never_ends_gives_way_and_is_counted() {
    let folder = Folder::new("lost");
    let path = folder.0.join("one.capture");
    let (_, recorder) = Recorder::start([path.clone()], Mode::Timed, "", None).unwrap();
    let first = recorder.task(0, &task(1));
    for _ in 0..4096 {
        recorder.task(0, &task(1));
    }
    recorder.channel_started(first, 1);
    recorder.channel_ended(first, 2);
    recorder.comm_end(0);
    assert_eq!(words(&path)[header::UNTIMED], 1);
    assert!(appended(&path).iter().all(|record| record[0] != Kind::Timed as u64));
}

#[test]
fn cheap_records_have_no_timings() {
    let folder = Folder::new("cheap");
    let path = folder.0.join("one.capture");
    let (_, recorder) = Recorder::start([path], Mode::Cheap, "", None).unwrap();
    assert_eq!(recorder.task(0, &task(3)), 0);
}

/// A link to nothing stands for a file that another process creates after this one has looked.
#[test]
fn a_name_that_is_taken_at_the_last_moment_gives_way_to_the_next() {
    let folder = Folder::new("taken");
    let paths = ["one", "two", "three"].map(|name| folder.0.join(name));
    std::os::unix::fs::symlink(folder.0.join("nothing"), &paths[0]).unwrap();
    let start = || Recorder::start(paths.clone(), Mode::Cheap, "", None).map(|(path, _)| path);
    assert_eq!(start().unwrap(), paths[1]);
    assert_eq!(start().unwrap(), paths[2]);
    assert_eq!(start().unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
}
