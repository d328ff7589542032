//! A block: its elements, divided into bytes, and their coded form.

use crate::bits::{
    Bytes, PLANE, Plane, all_set, array, count, for_each, gather, not_zero, scatter,
};
use crate::{BLOCK, Size};

/// The bytes below the top byte and beside the sign of an element of fp32.
const RESTS: usize = 3;
const WIDTH_MOST: usize = 7;
/// More than the longest content: each width is worse than 1, at which each element may escape.
pub const CONTENT_MOST: usize = PLANE + BLOCK * (1 + RESTS);
const ABSENT: u32 = 0;
const SPARSE: u32 = 1;
const WHOLE: u32 = 2;

/// The bytes of 256 elements.
pub struct Block {
    tops: Bytes,
    rests: [Bytes; RESTS],
}

impl Default for Block {
    fn default() -> Self {
        Self { tops: [0; BLOCK], rests: [[0; BLOCK]; RESTS] }
    }
}

impl Block {
    /// Take the elements of a whole block.
    #[inline(always)]
    pub fn split(&mut self, elements: &[u8], size: Size) {
        let [low, middle, high] = &mut self.rests;
        let into = self.tops.iter_mut().zip(low);
        match size {
            Size::Two => {
                for (word, (top, low)) in elements.chunks_exact(2).zip(into) {
                    let word = u16::from_le_bytes(array(word));
                    *top = (word >> 7) as u8;
                    *low = (word & 0x7f) as u8 | (word >> 8 & 0x80) as u8;
                }
            }
            Size::Four => {
                let into = into.zip(middle.iter_mut().zip(high));
                for (word, ((top, low), (middle, high))) in elements.chunks_exact(4).zip(into) {
                    let word = u32::from_le_bytes(array(word));
                    *top = (word >> 23) as u8;
                    *low = word as u8;
                    *middle = (word >> 8) as u8;
                    *high = (word >> 16 & 0x7f) as u8 | (word >> 24 & 0x80) as u8;
                }
            }
        }
    }

    /// The inverse of `split`.
    #[inline(always)]
    pub fn join(&self, elements: &mut [u8], size: Size) {
        let [low, middle, high] = &self.rests;
        match size {
            Size::Two => {
                for (at, out) in elements.chunks_exact_mut(2).enumerate().take(BLOCK) {
                    let (top, rest) = (u16::from(self.tops[at]), u16::from(low[at]));
                    let word = top << 7 | rest & 0x7f | (rest & 0x80) << 8;
                    out.copy_from_slice(&word.to_le_bytes());
                }
            }
            Size::Four => {
                for (at, out) in elements.chunks_exact_mut(4).enumerate().take(BLOCK) {
                    let (top, rest) = (u32::from(self.tops[at]), u32::from(high[at]));
                    let lower = u32::from(middle[at]) << 8 | u32::from(low[at]);
                    let upper = (rest & 0x80) << 24 | top << 23 | (rest & 0x7f) << 16;
                    out.copy_from_slice(&(upper | lower).to_le_bytes());
                }
            }
        }
    }

    /// Write the content of the block. Returns its header and the bytes of the content.
    #[inline(always)]
    pub fn write(&self, size: Size, out: &mut [u8]) -> (u32, usize) {
        let rests = &self.rests[..size.bytes() - 1];
        let base = self.tops.iter().fold(0, |most, top| most.max(*top));
        let mut codes = self.tops.map(|top| base - top);
        let width = best_width(&codes);
        let escape = ((1_u32 << width) - 1) as u8;
        codes = codes.map(|code| code.min(escape));
        let mut planes = [[0; PLANE]; WIDTH_MOST];
        gather(&codes, &mut planes[..width]);
        let mut out = Output { out, at: 0 };
        planes[..width].iter().for_each(|plane| out.push_all(plane));
        let mut header = u32::from(base) | (width as u32) << 8;
        let mut marks = [[0; PLANE]; RESTS];
        let mut modes = [ABSENT; RESTS];
        for (number, rest) in rests.iter().enumerate() {
            let some: u16 = rest.iter().map(|byte| u16::from(*byte != 0)).sum();
            modes[number] = match usize::from(some) {
                0 => ABSENT,
                some if some + PLANE < BLOCK => SPARSE,
                _ => WHOLE,
            };
            header |= modes[number] << (12 + 2 * number);
            if modes[number] == SPARSE {
                marks[number] = not_zero(rest);
                out.push_all(&marks[number]);
            }
        }
        for_each(&all_set(&planes[..width]), |at| out.push(self.tops[at]));
        for ((rest, mark), mode) in rests.iter().zip(&marks).zip(modes) {
            match mode {
                WHOLE => out.push_all(rest),
                SPARSE => for_each(mark, |at| out.push(rest[at])),
                _ => (),
            }
        }
        (header | (out.at as u32) << 18, out.at)
    }

    /// Read the content of a block at the start of `content`. Returns its bytes.
    ///
    /// # Errors
    /// It is cut off, or its length is not that in the header.
    #[inline(always)]
    pub fn read(&mut self, header: u32, size: Size, content: &[u8]) -> Result<usize, String> {
        let (base, width) = (header as u8, (header >> 8 & 7) as usize);
        let length = (header >> 18) as usize;
        let Some(content) = content.get(..length) else {
            return Err(format!("a coded block of {length} bytes ends after {}", content.len()));
        };
        let mut input = Input { left: content, length };
        let mut planes = [[0; PLANE]; WIDTH_MOST];
        for plane in &mut planes[..width] {
            *plane = input.plane()?;
        }
        let rests = &mut self.rests[..size.bytes() - 1];
        let modes: [u32; RESTS] = std::array::from_fn(|number| header >> (12 + 2 * number) & 3);
        let mut marks = [[0; PLANE]; RESTS];
        for (number, mark) in marks.iter_mut().enumerate().take(rests.len()) {
            if modes[number] == SPARSE {
                *mark = input.plane()?;
            }
        }
        scatter(&planes[..width], &mut self.tops);
        self.tops = self.tops.map(|code| base.wrapping_sub(code));
        input.take_marked(&all_set(&planes[..width]), &mut self.tops)?;
        for ((rest, mark), mode) in rests.iter_mut().zip(&marks).zip(modes) {
            match mode {
                WHOLE => rest.copy_from_slice(input.take(BLOCK)?),
                _ => {
                    rest.fill(0);
                    input.take_marked(mark, rest)?;
                }
            }
        }
        if input.left.is_empty() { Ok(length) } else { Err(mismatch(length)) }
    }
}

/// The width of codes with the fewest bytes, of equal ones the smallest.
#[inline(always)]
fn best_width(offsets: &Bytes) -> usize {
    if offsets.iter().all(|offset| *offset == 0) {
        return 0;
    }
    let mut best = (usize::MAX, 0);
    for width in 1..=WIDTH_MOST {
        let escape = ((1_u32 << width) - 1) as u8;
        let escaped: u16 = offsets.iter().map(|offset| u16::from(*offset >= escape)).sum();
        best = best.min((PLANE * width + usize::from(escaped), width));
    }
    best.1
}

struct Output<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Output<'_> {
    #[inline(always)]
    fn push(&mut self, byte: u8) {
        self.out[self.at] = byte;
        self.at += 1;
    }

    #[inline(always)]
    fn push_all(&mut self, bytes: &[u8]) {
        self.out[self.at..][..bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

struct Input<'a> {
    left: &'a [u8],
    /// The bytes of the whole content.
    length: usize,
}

impl<'a> Input<'a> {
    #[inline(always)]
    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, left) =
            self.left.split_at_checked(length).ok_or_else(|| mismatch(self.length))?;
        self.left = left;
        Ok(taken)
    }

    #[inline(always)]
    fn plane(&mut self) -> Result<Plane, String> {
        let mut plane = [0; PLANE];
        plane.copy_from_slice(self.take(PLANE)?);
        Ok(plane)
    }

    /// Take a byte for each marked element.
    #[inline(always)]
    fn take_marked(&mut self, marked: &Plane, values: &mut Bytes) -> Result<(), String> {
        let mut taken = self.take(count(marked))?.iter();
        for_each(marked, |at| {
            if let Some(byte) = taken.next() {
                values[at] = *byte;
            }
        });
        Ok(())
    }
}

fn mismatch(length: usize) -> String {
    format!("the {length} bytes of a coded block do not match its header")
}
