//! The file of one process: header and ring as a shared mapping, then the records that have left the ring.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ring::{HEADER_WORDS, RECORD_WORDS, Ring, header};

const MAGIC: u64 = u64::from_le_bytes(*b"BUSBWCAP");
const VERSION: u64 = 1;
/// Records that are appended with one write.
const BATCH: usize = 4096;

/// The file, open for the life of the process.
#[derive(Debug)]
pub struct CaptureFile {
    ring: Ring<'static>,
    file: File,
    end: Mutex<u64>,
}

impl CaptureFile {
    /// Create it with a ring of `slots` and the `text` in its header.
    ///
    /// # Errors
    /// It exists, cannot be created, mapped, or the disk has no room for the ring.
    pub fn create(path: &Path, slots: usize, text: &str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let words = HEADER_WORDS + slots * RECORD_WORDS;
        let ring = Ring::new(mapped(&file, words)?);
        let text = &text.as_bytes()[..text.len().min((HEADER_WORDS - header::TEXT) * 8)];
        for (at, bytes) in text.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            ring.word(header::TEXT + at).store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        ring.word(header::TEXT_BYTES).store(text.len() as u64, Ordering::Relaxed);
        ring.word(header::VERSION).store(VERSION, Ordering::Relaxed);
        ring.word(header::REALTIME).store(clock(libc::CLOCK_REALTIME), Ordering::Relaxed);
        ring.word(header::MONOTONIC).store(clock(libc::CLOCK_MONOTONIC), Ordering::Relaxed);
        ring.word(header::MAGIC).store(MAGIC, Ordering::Release); // last: a file without it is not complete
        Ok(Self { ring, file, end: Mutex::new((words * 8) as u64) })
    }

    /// Its queue.
    pub const fn ring(&self) -> &Ring<'static> {
        &self.ring
    }

    /// Append what is in the ring. Records that cannot be written leave it all the same: the application must not wait.
    pub fn drain(&self) {
        let mut end = self.end.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let count = self.ring.peek(BATCH, &mut bytes);
            if count == 0 {
                return;
            }
            // Where a write fails the next one begins again, so that records stay aligned.
            if let Err(error) = self.file.write_all_at(&bytes, *end) {
                let errno = u64::try_from(error.raw_os_error().unwrap_or_default()).unwrap_or_default();
                self.ring.word(header::ERRNO).store(errno, Ordering::Relaxed);
            } else {
                *end += bytes.len() as u64;
            }
            self.ring.release(count);
        }
    }
}

/// A shared mapping of the file's first `words`, which is never unmapped: other threads may record until the process ends.
fn mapped(file: &File, words: usize) -> io::Result<&'static [AtomicU64]> {
    let bytes = words * 8;
    let size = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    // Reserved at once: writing to a mapping of a full disk would end the application with SIGBUS.
    // SAFETY: the descriptor is open during the call.
    let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, placed by the kernel, of a file with this many bytes.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: page-aligned, `words` long, mapped for the rest of the process's life, and used as atomics only.
    Ok(unsafe { std::slice::from_raw_parts(address.cast(), words) })
}

/// A clock in ns.
pub fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a timespec that lives during the call.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or_default()
}
