//! What busbw_accel calls to code gradients in fewer bytes and back.

use busbw_exponents::{Size, decode, encode, room};

use crate::entry::guarded;
use crate::error_text::ErrorText;

fn size_of(bytes: u32) -> Result<Size, String> {
    match bytes {
        2 => Ok(Size::Two),
        4 => Ok(Size::Four),
        _ => Err(format!("elements of {bytes} bytes: only 2 and 4 are coded")),
    }
}

/// The room that `busbw_exponents_encode` needs for so many elements, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn busbw_exponents_room(count: usize) -> usize {
    guarded("busbw_exponents_room", 0, || room(count))
}

/// Code `count` elements of `size` bytes. Returns the bytes written, or -1 with a message.
///
/// # Safety
/// `row` has the elements, `coded` the room of `busbw_exponents_room`, and `error` describes a
/// writable buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_exponents_encode(
    row: *const u8,
    count: usize,
    size: u32,
    coded: *mut u8,
    error: ErrorText,
) -> i64 {
    let work = || {
        let size = size_of(size)?;
        // SAFETY: the caller guarantees the elements.
        let row = unsafe { std::slice::from_raw_parts(row, count * size.bytes()) };
        // SAFETY: the caller guarantees this room.
        let coded = unsafe { std::slice::from_raw_parts_mut(coded, room(count)) };
        Ok(encode(row, size, coded) as i64)
    };
    // SAFETY: the caller guarantees the buffer that `error` describes.
    unsafe { error.or_write(work) }.unwrap_or(-1)
}

/// Fill `count` elements of `size` bytes from their code: 0, or 1 with a message.
///
/// # Safety
/// `coded` has `length` bytes, `row` room for the elements, and `error` describes a writable
/// buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busbw_exponents_decode(
    coded: *const u8,
    length: usize,
    row: *mut u8,
    count: usize,
    size: u32,
    error: ErrorText,
) -> i32 {
    let work = || {
        let size = size_of(size)?;
        // SAFETY: the caller guarantees these bytes.
        let coded = unsafe { std::slice::from_raw_parts(coded, length) };
        // SAFETY: the caller guarantees room for the elements.
        let row = unsafe { std::slice::from_raw_parts_mut(row, count * size.bytes()) };
        decode(coded, size, row)
    };
    // SAFETY: the caller guarantees the buffer that `error` describes.
    i32::from(unsafe { error.or_write(work) }.is_none())
}
