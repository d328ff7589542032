//! Codes floating-point numbers in fewer bytes, without loss. The format is that of
//! `busbw_accel.codecs.exponents`, which describes it and codes the same bytes in PyTorch.

mod bits;
mod block;

use block::{Block, CONTENT_MOST};

/// Elements of a block.
pub const BLOCK: usize = 256;
const HEADER: usize = 4;
const ALIGNMENT: usize = 16;

/// The bytes of an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// bf16 or fp16
    Two,
    /// fp32
    Four,
}

impl Size {
    /// In bytes.
    pub fn bytes(self) -> usize {
        if self == Size::Two { 2 } else { 4 }
    }
}

/// The room that [`encode`] needs for so many elements. It is more than the longest row.
pub fn room(count: usize) -> usize {
    count.div_ceil(BLOCK) * (HEADER + CONTENT_MOST) + ALIGNMENT
}

/// Code the elements in `row`, whose bytes are a multiple of their size. Returns the bytes written
/// to `coded`.
///
/// # Panics
/// `coded` is smaller than [`room`].
pub fn encode(row: &[u8], size: Size, coded: &mut [u8]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: this processor has AVX2.
        return unsafe { encode_with_avx2(row, size, coded) };
    }
    encode_blocks(row, size, coded)
}

/// Fill `row` by the elements of its bytes. Bytes after those of the row are ignored.
///
/// # Errors
/// These are not the bytes of a row of this length.
pub fn decode(coded: &[u8], size: Size, row: &mut [u8]) -> Result<(), String> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: this processor has AVX2.
        return unsafe { decode_with_avx2(coded, size, row) };
    }
    decode_blocks(coded, size, row)
}

/// # Safety
/// This processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn encode_with_avx2(row: &[u8], size: Size, coded: &mut [u8]) -> usize {
    encode_blocks(row, size, coded)
}

/// # Safety
/// This processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn decode_with_avx2(coded: &[u8], size: Size, row: &mut [u8]) -> Result<(), String> {
    decode_blocks(coded, size, row)
}

#[inline(always)]
fn encode_blocks(row: &[u8], size: Size, coded: &mut [u8]) -> usize {
    let block_bytes = BLOCK * size.bytes();
    let blocks = row.len().div_ceil(block_bytes);
    assert!(coded.len() >= room(row.len() / size.bytes()), "the buffer is too small");
    let mut block = Block::default();
    let mut last = [0; BLOCK * 4];
    let mut at = HEADER * blocks;
    for (number, elements) in row.chunks(block_bytes).enumerate() {
        let elements = if elements.len() == block_bytes {
            elements
        } else {
            last[..elements.len()].copy_from_slice(elements);
            &last[..block_bytes]
        };
        block.split(elements, size);
        let (header, length) = block.write(size, &mut coded[at..]);
        coded[HEADER * number..][..HEADER].copy_from_slice(&header.to_le_bytes());
        at += length;
    }
    let end = at.next_multiple_of(ALIGNMENT);
    coded[at..end].fill(0);
    end
}

#[inline(always)]
fn decode_blocks(coded: &[u8], size: Size, row: &mut [u8]) -> Result<(), String> {
    let block_bytes = BLOCK * size.bytes();
    let blocks = row.len().div_ceil(block_bytes);
    let Some((headers, mut rest)) = coded.split_at_checked(HEADER * blocks) else {
        let given = coded.len();
        return Err(format!("{given} bytes of {blocks} coded blocks, less than their headers"));
    };
    let mut block = Block::default();
    let mut last = [0; BLOCK * 4];
    for (header, elements) in headers.chunks_exact(HEADER).zip(row.chunks_mut(block_bytes)) {
        let length = block.read(u32::from_le_bytes(bits::array(header)), size, rest)?;
        rest = &rest[length..];
        if elements.len() == block_bytes {
            block.join(elements, size);
        } else {
            block.join(&mut last[..block_bytes], size);
            elements.copy_from_slice(&last[..elements.len()]);
        }
    }
    Ok(())
}
