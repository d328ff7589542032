//! Steps as the caller writes them, and as they are run: with a function of the right type in place
//! of an address.

use std::ffi::{c_int, c_void};
use std::mem::transmute;

/// In place of an operator: the one that the last `CREATE_OPERATOR` created.
pub const CREATED: c_int = -1;

/// Values of `Step::kind`. The arguments are those of the C function, in its order.
pub mod kind {
    /// The end of an iteration. No function.
    pub const END: u32 = 0;
    /// Note the time. No function.
    pub const CLOCK: u32 = 1;
    /// `ncclGroupStart()`.
    pub const GROUP_START: u32 = 2;
    /// `ncclGroupEnd()`.
    pub const GROUP_END: u32 = 3;
    /// `ncclAllGather(source, target, count, dtype, comm, stream)` and others with neither operator
    /// nor root.
    pub const PLAIN: u32 = 4;
    /// `ncclAllReduce(source, target, count, dtype, operator, comm, stream)` and ncclReduceScatter.
    pub const REDUCING: u32 = 5;
    /// `ncclBroadcast(source, target, count, dtype, peer, comm, stream)` and others with a root.
    pub const ROOTED: u32 = 6;
    /// `ncclReduce(source, target, count, dtype, operator, peer, comm, stream)`.
    pub const REDUCING_TO_ROOT: u32 = 7;
    /// `ncclSend(target, count, dtype, peer, comm, stream)` and ncclRecv.
    pub const PEER: u32 = 8;
    /// `ncclRedOpCreatePreMulSum(&operator, source, dtype, peer, comm)`, where `peer` is the
    /// residence of the scalar.
    pub const CREATE_OPERATOR: u32 = 9;
    /// `ncclRedOpDestroy(operator, comm)`.
    pub const DESTROY_OPERATOR: u32 = 10;
    /// `cuCtxSetCurrent(handle)`.
    pub const SET_CONTEXT: u32 = 11;
    /// `cuMemcpyDtoDAsync_v2(target, source, count, stream)`.
    pub const COPY: u32 = 12;
    /// `cuEventRecord(handle, stream)` and cuGraphLaunch.
    pub const ENQUEUE: u32 = 13;
    /// `cuStreamQuery(stream)`, again and again until the stream is idle.
    pub const IDLE: u32 = 14;
}

/// One step as the caller writes it. Fields that its kind does not use are ignored.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// One of `kind`.
    pub kind: u32,
    /// `ncclDataType_t`.
    pub dtype: c_int,
    /// `ncclRedOp_t`, or CREATED.
    pub operator: c_int,
    /// The root or the peer.
    pub peer: c_int,
    /// The address of the function.
    pub function: *const c_void,
    /// The send buffer, or the source of a copy.
    pub source: *const c_void,
    /// The receive buffer, the buffer of a send, or the target of a copy.
    pub target: *mut c_void,
    /// Elements; of a copy bytes.
    pub count: usize,
    /// The communicator, context, event or graph.
    pub handle: *mut c_void,
    /// The stream; NULL is CUDA's NULL stream.
    pub stream: *mut c_void,
}

type Source = *const c_void;
type Handle = *mut c_void;

pub type Group = unsafe extern "C" fn() -> c_int;
pub type Plain = unsafe extern "C" fn(Source, Handle, usize, c_int, Handle, Handle) -> c_int;
pub type OneNumber =
    unsafe extern "C" fn(Source, Handle, usize, c_int, c_int, Handle, Handle) -> c_int;
pub type TwoNumbers =
    unsafe extern "C" fn(Source, Handle, usize, c_int, c_int, c_int, Handle, Handle) -> c_int;
pub type Peer = unsafe extern "C" fn(Handle, usize, c_int, c_int, Handle, Handle) -> c_int;
pub type Create = unsafe extern "C" fn(*mut c_int, Source, c_int, c_int, Handle) -> c_int;
pub type Destroy = unsafe extern "C" fn(c_int, Handle) -> c_int;
pub type Copy = unsafe extern "C" fn(Handle, Source, usize, Handle) -> c_int;
pub type OneHandle = unsafe extern "C" fn(Handle) -> c_int;
pub type TwoHandles = unsafe extern "C" fn(Handle, Handle) -> c_int;

/// A step that can be run.
#[derive(Clone, Copy)]
pub enum Call {
    End,
    /// With its place among the times.
    Clock(usize),
    GroupStart(Group),
    GroupEnd(Group),
    Plain(Plain),
    Reducing(OneNumber),
    Rooted(OneNumber),
    ReducingToRoot(TwoNumbers),
    Peer(Peer),
    CreateOperator(Create),
    DestroyOperator(Destroy),
    SetContext(OneHandle),
    Copy(Copy),
    Enqueue(TwoHandles),
    Idle(OneHandle),
}

impl Call {
    /// The call of a step, or what is wrong with the step.
    ///
    /// # Safety
    /// If the step's function is not NULL, it has the type that `kind` gives for the step's kind.
    pub unsafe fn of(step: &Step) -> Result<Self, &'static str> {
        match step.kind {
            kind::END => return Ok(Self::End),
            kind::CLOCK => return Ok(Self::Clock(0)),
            kind::GROUP_START..=kind::IDLE => {}
            _ => return Err("its kind is unknown"),
        }
        if step.function.is_null() {
            return Err("its function is NULL");
        }
        let needs_handle =
            !matches!(step.kind, kind::GROUP_START | kind::GROUP_END | kind::COPY | kind::IDLE);
        if needs_handle && step.handle.is_null() {
            return Err("its communicator, context, event or graph is NULL");
        }
        // SAFETY: the address is not NULL, and the caller guarantees that it has the type of its
        // kind.
        unsafe { Ok(Self::typed(step)) }
    }

    /// # Safety
    /// As for `of`, and the function is not NULL.
    unsafe fn typed(step: &Step) -> Self {
        let address = step.function;
        // SAFETY: the caller guarantees the function's type.
        unsafe {
            match step.kind {
                kind::GROUP_START => Self::GroupStart(transmute::<Source, Group>(address)),
                kind::GROUP_END => Self::GroupEnd(transmute::<Source, Group>(address)),
                kind::PLAIN => Self::Plain(transmute::<Source, Plain>(address)),
                kind::REDUCING => Self::Reducing(transmute::<Source, OneNumber>(address)),
                kind::ROOTED => Self::Rooted(transmute::<Source, OneNumber>(address)),
                kind::REDUCING_TO_ROOT => {
                    Self::ReducingToRoot(transmute::<Source, TwoNumbers>(address))
                }
                kind::PEER => Self::Peer(transmute::<Source, Peer>(address)),
                kind::CREATE_OPERATOR => Self::CreateOperator(transmute::<Source, Create>(address)),
                kind::DESTROY_OPERATOR => {
                    Self::DestroyOperator(transmute::<Source, Destroy>(address))
                }
                kind::SET_CONTEXT => Self::SetContext(transmute::<Source, OneHandle>(address)),
                kind::COPY => Self::Copy(transmute::<Source, Copy>(address)),
                kind::ENQUEUE => Self::Enqueue(transmute::<Source, TwoHandles>(address)),
                _ => Self::Idle(transmute::<Source, OneHandle>(address)),
            }
        }
    }
}
