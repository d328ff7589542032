//! What `busbw run` calls to time operations without Python between them. See `busbw_loop`.

use std::ptr;
use std::slice;
use std::sync::atomic::AtomicU64;

use busbw_loop::{Limits, Outcome, Program, Step};

use crate::entry::guarded;
use crate::error_text::ErrorText;

/// The size of a step in bytes, by which the caller knows that it writes steps of this form.
#[unsafe(no_mangle)]
pub extern "C" fn busbw_loop_step_bytes() -> usize {
    size_of::<Step>()
}

/// A program of these steps, or NULL with a message.
///
/// # Safety
/// `steps` has `count` steps as `Program::new` requires them, and `error` describes a writable
/// buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_loop_open(
    steps: *const Step,
    count: usize,
    error: ErrorText,
) -> *mut Program {
    let open = || {
        if steps.is_null() {
            return Err("the steps are NULL".to_owned());
        }
        // SAFETY: the caller guarantees `count` steps, and what `new` requires of them.
        let program = unsafe { Program::new(slice::from_raw_parts(steps, count)) }?;
        Ok(Box::into_raw(Box::new(program)))
    };
    // SAFETY: the caller guarantees the buffer that `error` describes.
    unsafe { error.or_write(open) }.unwrap_or(ptr::null_mut())
}

/// Run a program: 0 with the outcome, or 1 with a message. That a call of the program failed is
/// part of the outcome. `times` has room for `count` times, one for each `CLOCK` step.
///
/// # Safety
/// `program` came from `open`, is not closed, and no other thread runs it; what `Program::run`
/// requires holds. The other pointers are NULL or valid, `done` as long as this runs, and `error`
/// describes a writable buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_loop_run(
    program: *mut Program,
    limits: Limits,
    done: *const AtomicU64,
    times: *mut f64,
    count: usize,
    outcome: *mut Outcome,
    error: ErrorText,
) -> i32 {
    let run = || {
        // SAFETY: the caller guarantees that they are NULL or valid.
        let (program, done, outcome) =
            unsafe { (program.as_mut(), done.as_ref(), outcome.as_mut()) };
        let (Some(program), Some(done), Some(outcome)) = (program, done, outcome) else {
            return Err("the program, the counter or the outcome is NULL".to_owned());
        };
        if count < program.clocks() || (times.is_null() && count > 0) {
            return Err(format!(
                "room for {count} times, and the program notes {}",
                program.clocks()
            ));
        }
        let times = match count {
            0 => &mut [],
            // SAFETY: the caller guarantees room for `count` times.
            _ => unsafe { slice::from_raw_parts_mut(times, count) },
        };
        // SAFETY: the caller guarantees what `run` requires.
        *outcome = unsafe { program.run(limits, done, times) };
        Ok(())
    };
    // SAFETY: the caller guarantees the buffer that `error` describes.
    i32::from(unsafe { error.or_write(run) }.is_none())
}

/// Free a program; NULL is ignored.
///
/// # Safety
/// `program` is NULL, or came from `open` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_loop_close(program: *mut Program) {
    if !program.is_null() {
        // SAFETY: `open` made it with Box::into_raw, and the caller guarantees that this is its
        // last use.
        guarded("busbw_loop_close", (), || drop(unsafe { Box::from_raw(program) }));
    }
}
