//! One record: 64 bytes, of which the ring uses the first 8.

/// What a record describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A communicator begins. `count` is its number of ranks, `a` its number of hosts, `id` NCCL's
    /// id, `b` the bytes of its name.
    Comm = 1,
    /// Forty bytes of that name, in `time` to `b`.
    Text = 2,
    /// A call of a collective. `id` numbers it, `a` is the stream, `b` the group.
    CollCall = 3,
    /// A call of send or receive, likewise.
    P2pCall = 4,
    /// NCCL has enqueued a collective. `id` is that of its call or 0, `a` NCCL's sequence number,
    /// `b` that of its timing.
    Coll = 5,
    /// NCCL has enqueued a send or receive; `peer` is the other rank.
    P2p = 6,
    /// The GPU has finished. `id` is that of the timing, `a` and `b` are start and end in ns. Flags
    /// say by which clock.
    Timed = 7,
    /// A communicator ends.
    CommEnd = 8,
    /// A call without a task is timed. `id` is that of the call, `b` that of its timing.
    CallTiming = 9,
    /// A communicator launches after its calls have returned: times around its calls are not
    /// theirs.
    Deferred = 10,
}

/// Bits of `Call::flags`.
pub mod flag {
    /// A call or task: recorded into a CUDA graph.
    pub const CAPTURED: u8 = 1;
    /// A task: its send and receive buffer are the same.
    pub const IN_PLACE: u8 = 2;
    /// A task: its kernel runs over symmetric memory.
    pub const SYMMETRIC: u8 = 4;
    /// A task: copy engines run it.
    pub const COPY_ENGINE: u8 = 8;
    /// A time by CUDA events around the launch. Without this flag and the next one it is the
    /// kernel's own, by the GPU's clock.
    pub const EVENTS: u8 = 1;
    /// A time by CUDA events around the call.
    pub const AROUND_CALL: u8 = 2;
}

/// What was called, with which arguments. Codes are NCCL's numbers; 255 is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// `ncclFunc_t`.
    pub function: u8,
    /// `ncclDataType_t`.
    pub dtype: u8,
    /// Algorithm.
    pub algorithm: u8,
    /// Protocol.
    pub protocol: u8,
    /// Channels; 0: unknown.
    pub channels: u8,
    /// Bits of `flag`.
    pub flags: u8,
    /// Root or peer.
    pub peer: i32,
    /// Elements.
    pub count: u64,
}

/// A record without its ticket.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Its kind.
    pub kind: Kind,
    /// What was called.
    pub call: Call,
    /// Number of the communicator in this process.
    pub comm: u32,
    /// CLOCK_MONOTONIC in ns.
    pub time: u64,
    /// Depends on the kind.
    pub id: u64,
    /// Depends on the kind.
    pub a: u64,
    /// Depends on the kind.
    pub b: u64,
}

impl Record {
    /// The seven words after the ticket.
    pub const fn words(&self) -> [u64; 7] {
        let call = &self.call;
        let bytes = [
            self.kind as u8,
            call.function,
            call.dtype,
            call.algorithm,
            call.protocol,
            call.channels,
            call.flags,
            0,
        ];
        let [a, b, c, d] = self.comm.to_le_bytes();
        let [e, f, g, h] = call.peer.to_le_bytes();
        [
            u64::from_le_bytes(bytes),
            u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            self.time,
            call.count,
            self.id,
            self.a,
            self.b,
        ]
    }
}

/// The code of an unknown name.
const UNKNOWN: u8 = 255;

fn position(names: &[&[u8]], name: &[u8]) -> u8 {
    names
        .iter()
        .position(|known| *known == name)
        .and_then(|at| u8::try_from(at).ok())
        .unwrap_or(UNKNOWN)
}

/// The code of a function, from NCCL's name in profiler events.
pub fn function(name: &[u8]) -> u8 {
    const NAMES: [&[u8]; 11] = [
        b"Broadcast",
        b"Reduce",
        b"AllGather",
        b"ReduceScatter",
        b"AllReduce",
        b"SendRecv",
        b"Send",
        b"Recv",
        b"AlltoAll",
        b"Scatter",
        b"Gather",
    ];
    position(&NAMES, name)
}

/// The code of an element type.
pub fn dtype(name: &[u8]) -> u8 {
    const NAMES: [&[u8]; 12] = [
        b"ncclInt8",
        b"ncclUint8",
        b"ncclInt32",
        b"ncclUint32",
        b"ncclInt64",
        b"ncclUint64",
        b"ncclFloat16",
        b"ncclFloat32",
        b"ncclFloat64",
        b"ncclBfloat16",
        b"ncclFloat8e4m3",
        b"ncclFloat8e5m2",
    ];
    // NCCL 2.28 has no name for uint8 alone (ncclDatatypeToString).
    if name == b"Unknown" { 1 } else { position(&NAMES, name) }
}

/// The code of an algorithm.
pub fn algorithm(name: &[u8]) -> u8 {
    position(
        &[b"TREE", b"RING", b"COLLNET_DIRECT", b"COLLNET_CHAIN", b"NVLS", b"NVLS_TREE", b"PAT"],
        name,
    )
}

/// The code of a protocol.
pub fn protocol(name: &[u8]) -> u8 {
    position(&[b"LL", b"LL128", b"SIMPLE"], name)
}
