//! The file of one process: header and ring as a shared mapping, then the records that have left
//! the ring.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Mutex;

use crate::ring::{AtomicU64, HEADER_WORDS, Ordering, RECORD_WORDS, Ring, header};

const MAGIC: u64 = u64::from_le_bytes(*b"BUSBWCAP");
const VERSION: u64 = 1;
/// Records that are appended with one write.
const BATCH: usize = 4096;
/// Bytes of a file, beyond which records are dropped: a reader must hold all of it, and the disk
/// may be the job's.
const MAX_BYTES: u64 = 512 << 20;
/// `f_type` of file systems on this machine, where allocated blocks stay: ext2 to 4, XFS, tmpfs,
/// and the overlays of containers.
const LOCAL: [i64; 4] = [0xEF53, 0x5846_5342, 0x0102_1994, 0x794C_7630];

/// The file, open for the life of the process.
#[derive(Debug)]
pub struct CaptureFile {
    ring: Ring<'static>,
    shared: bool,
    file: File,
    end: Mutex<u64>,
}

impl CaptureFile {
    /// Create the first of these files that does not exist, with a ring of `slots` and the `text`
    /// in its header. Containers that share the folder may have the same names at the same time:
    /// only the creation itself says which is free.
    ///
    /// On a network file system the ring is memory of this process, since an error there would end
    /// it with SIGBUS. `kill -9` then loses what came after the last `drain`. Only its owner can
    /// read it.
    ///
    /// # Errors
    /// All exist, or it cannot be created, mapped, or the disk has no room for the ring.
    pub fn create(
        paths: impl IntoIterator<Item = PathBuf>,
        slots: usize,
        text: &str,
    ) -> io::Result<(PathBuf, Self)> {
        let (path, file) = first_free(paths)?;
        let words = HEADER_WORDS + slots * RECORD_WORDS;
        let shared = is_local(&file);
        let made = if shared {
            mapped(&file, words)
        } else {
            Ok(&*Vec::leak((0..words).map(|_| AtomicU64::new(0)).collect()))
        };
        let ring = Ring::new(made.inspect_err(|_| drop(std::fs::remove_file(&path)))?);
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
        // last: a file without it is not complete
        ring.word(header::MAGIC).store(MAGIC, Ordering::Release);
        let end = if shared { words } else { HEADER_WORDS };
        let made = Self { ring, shared, file, end: Mutex::new((end * 8) as u64) };
        made.write_header()?;
        Ok((path, made))
    }

    /// Its queue.
    pub const fn ring(&self) -> &Ring<'static> {
        &self.ring
    }

    /// Write the header to the file, with no room for a ring, unless the file is mapped.
    fn write_header(&self) -> io::Result<()> {
        if self.shared {
            return Ok(());
        }
        let word = |at| {
            if at == header::CAPACITY { 0 } else { self.ring.word(at).load(Ordering::Relaxed) }
        };
        let bytes: Vec<u8> = (0..HEADER_WORDS).flat_map(|at| u64::to_le_bytes(word(at))).collect();
        self.file.write_all_at(&bytes, 0)
    }

    /// Whether the file holds the ring too.
    pub const fn is_shared(&self) -> bool {
        self.shared
    }

    /// Append what is in the ring. Records that cannot be written leave it all the same: the
    /// application must not wait.
    pub fn drain(&self) {
        // another thread does it, and may wait for the disk
        let Ok(mut end) = self.end.try_lock() else { return };
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let count = self.ring.peek(BATCH, &mut bytes);
            if count == 0 {
                return;
            }
            // Where a write fails the next one begins again, so that records stay aligned.
            let written =
                if *end > MAX_BYTES { Ok(()) } else { self.file.write_all_at(&bytes, *end) };
            if let Err(error) = written.and_then(|()| self.write_header()) {
                let errno =
                    u64::try_from(error.raw_os_error().unwrap_or_default()).unwrap_or_default();
                self.ring.word(header::ERRNO).store(errno, Ordering::Relaxed);
            } else if *end <= MAX_BYTES {
                *end += bytes.len() as u64;
            }
            self.ring.release(count);
        }
    }
}

/// The first of these files that this call creates.
fn first_free(paths: impl IntoIterator<Item = PathBuf>) -> io::Result<(PathBuf, File)> {
    for path in paths {
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (path, file)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Whether it lies on a file system of this machine that keeps what is allocated.
fn is_local(file: &File) -> bool {
    // SAFETY: all-zero bytes are a valid statfs, which consists of integers.
    let mut system: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and `system` lives during the call.
    unsafe {
        libc::fstatfs(file.as_raw_fd(), &raw mut system) == 0 && LOCAL.contains(&system.f_type)
    }
}

/// A shared mapping of the file's first `words`, which is never unmapped: other threads may record
/// until the process ends.
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
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: page-aligned, `words` long, mapped for the rest of the process's life, and used as
    // atomics only.
    Ok(unsafe { std::slice::from_raw_parts(address.cast(), words) })
}

/// A clock in ns.
pub fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a timespec that lives during the call.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or_default()
}
