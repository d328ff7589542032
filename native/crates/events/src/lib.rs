//! What NCCL's profiler interface tells of an application, recorded with little cost. Knows nothing
//! of NCCL's structures.
//!
//! Each process writes one file: a header, a ring of records, and the records that have left the
//! ring. Header and ring are a shared mapping, so after `kill -9` the file still holds every
//! complete record. busbw reads it (src/busbw/measure/profiler_file.py).

mod cuda;
mod file;
mod gpu_clock;
mod launches;
mod record;
mod recorder;
mod ring;
mod timing;

pub use cuda::{Driver, Handle, NOT_READY, SUCCESS};
pub use file::CaptureFile;
pub use gpu_clock::{Begun, GpuClock, PAIRS, Span, Untimed};
pub use launches::Launches;
pub use record::{Call, Kind, Record, algorithm, dtype, flag, function, protocol};
pub use recorder::{Mode, Recorder, Task};
pub use ring::{HEADER_WORDS, RECORD_WORDS, Ring, header};
