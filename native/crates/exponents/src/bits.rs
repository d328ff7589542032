//! Planes of a block: a bit of each element.

use crate::BLOCK;

/// The bytes of a plane.
pub const PLANE: usize = BLOCK / 8;
/// A bit of each element: bit e % 8 of byte e / 8.
pub type Plane = [u8; PLANE];
/// A byte of each element.
pub type Bytes = [u8; BLOCK];

const LOWEST: u64 = 0x0101_0101_0101_0101;
/// Moves bit 0 of byte i to bit i of the last byte.
const GATHER: u64 = 0x0102_0408_1020_4080;
/// The bits of a byte, one in each byte.
static SPREAD: [u64; 256] = spread();

const fn spread() -> [u64; 256] {
    let mut table = [0; 256];
    let mut value = 0;
    while value < 256 {
        let mut bit = 0;
        while bit < 8 {
            table[value] |= (value as u64 >> bit & 1) << (8 * bit);
            bit += 1;
        }
        value += 1;
    }
    table
}

/// A slice of this length as an array.
#[inline(always)]
pub fn array<const LENGTH: usize>(bytes: &[u8]) -> [u8; LENGTH] {
    let mut made = [0; LENGTH];
    made.copy_from_slice(bytes);
    made
}

/// Bits 0 to `planes.len()` - 1 of each value.
#[inline(always)]
pub fn gather(values: &Bytes, planes: &mut [Plane]) {
    for (group, eight) in values.chunks_exact(8).enumerate() {
        let eight = u64::from_le_bytes(array(eight));
        for (bit, plane) in planes.iter_mut().enumerate() {
            plane[group] = ((eight >> bit & LOWEST).wrapping_mul(GATHER) >> 56) as u8;
        }
    }
}

/// The values whose bits are in these planes.
#[inline(always)]
pub fn scatter(planes: &[Plane], values: &mut Bytes) {
    for (group, eight) in values.chunks_exact_mut(8).enumerate() {
        let mut all = 0;
        for (bit, plane) in planes.iter().enumerate() {
            all |= SPREAD[usize::from(plane[group])] << bit;
        }
        eight.copy_from_slice(&u64::to_le_bytes(all));
    }
}

/// The elements whose bit is set in all planes; none without planes.
#[inline(always)]
pub fn all_set(planes: &[Plane]) -> Plane {
    let mut all = [if planes.is_empty() { 0 } else { 255 }; PLANE];
    for plane in planes {
        for (byte, other) in all.iter_mut().zip(plane) {
            *byte &= other;
        }
    }
    all
}

/// The elements that are not 0.
#[inline(always)]
pub fn not_zero(values: &Bytes) -> Plane {
    let mut marked = [0; BLOCK];
    for (mark, value) in marked.iter_mut().zip(values) {
        *mark = u8::from(*value != 0);
    }
    let mut plane = [[0; PLANE]];
    gather(&marked, &mut plane);
    plane[0]
}

/// The number of set bits.
#[inline(always)]
pub fn count(plane: &Plane) -> usize {
    plane.iter().map(|byte| byte.count_ones() as usize).sum()
}

/// Call `each` with the number of each element whose bit is set, in order.
#[inline(always)]
pub fn for_each(plane: &Plane, mut each: impl FnMut(usize)) {
    for (group, eight) in plane.chunks_exact(8).enumerate() {
        let mut left = u64::from_le_bytes(array(eight));
        while left != 0 {
            each(64 * group + left.trailing_zeros() as usize);
            left &= left - 1;
        }
    }
}
