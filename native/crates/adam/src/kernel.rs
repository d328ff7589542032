//! The update of a range of elements.

use crate::bf16::{narrow, widen};

/// Elements that are computed together; their bf16 weights fill one 32-byte store.
const LANES: usize = 16;

/// The numbers of one step (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", algorithm 2).
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Rule {
    /// Multiplies every gradient first: 1 over the loss scale, the clipping factor, or both.
    pub scale: f32,
    /// 1 - learning rate x weight decay.
    pub keep: f32,
    /// The share of the gradient in its average: 1 - beta1.
    pub first: f32,
    /// beta2.
    pub second: f32,
    /// Learning rate / (1 - beta1^t).
    pub rate: f32,
    /// 1 / sqrt(1 - beta2^t).
    pub root: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
}

/// A range of elements of one or several parameters that follow the same rule. All pointers are to `count` elements.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Slab {
    /// Number of elements.
    pub count: usize,
    /// Gradients: bf16, or fp32 if `wide` is not 0.
    pub gradient: *const u8,
    /// Weights, updated.
    pub weight: *mut f32,
    /// First moment, updated.
    pub moment: *mut f32,
    /// Second moment, updated.
    pub square: *mut f32,
    /// The weights in bf16, or NULL if they are not wanted.
    pub copy: *mut u16,
    /// Whether gradients are fp32.
    pub wide: u8,
}

// SAFETY: whoever makes a Slab guarantees that nothing else uses its memory during an update.
unsafe impl Send for Slab {}
// SAFETY: as above; parts of it that do not overlap are updated by several threads.
unsafe impl Sync for Slab {}

impl Slab {
    /// The part of `count` elements from `first` on.
    ///
    /// # Safety
    /// The part lies within the slab.
    #[must_use]
    pub unsafe fn part(&self, first: usize, count: usize) -> Self {
        let width = if self.wide == 0 { 2 } else { 4 };
        // SAFETY: the caller guarantees that the part lies within the memory of each pointer.
        unsafe {
            Self {
                count,
                gradient: self.gradient.add(first * width),
                weight: self.weight.add(first),
                moment: self.moment.add(first),
                square: self.square.add(first),
                copy: if self.copy.is_null() { self.copy } else { self.copy.add(first) },
                wide: self.wide,
            }
        }
    }
}

/// Update all elements of a slab.
///
/// # Safety
/// The slab's pointers are valid for `count` elements, aligned for their types, and nothing else uses that memory meanwhile.
pub unsafe fn update(rule: &Rule, slab: &Slab) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2; the caller guarantees the rest.
        return unsafe { with_avx2(rule, slab) };
    }
    // SAFETY: the caller guarantees what `run` requires.
    unsafe { run::<false>(rule, slab) }
}

/// # Safety
/// As for `update`, and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn with_avx2(rule: &Rule, slab: &Slab) {
    // SAFETY: the caller guarantees what `run` requires.
    unsafe { run::<true>(rule, slab) }
}

/// # Safety
/// As for `update`; `STREAM` needs AVX2.
#[inline(always)]
unsafe fn run<const STREAM: bool>(rule: &Rule, slab: &Slab) {
    // SAFETY: the caller guarantees `count` elements behind each pointer, which nothing else uses.
    let (weights, moments, squares) = unsafe {
        (
            std::slice::from_raw_parts_mut(slab.weight, slab.count),
            std::slice::from_raw_parts_mut(slab.moment, slab.count),
            std::slice::from_raw_parts_mut(slab.square, slab.count),
        )
    };
    for first in (0..slab.count).step_by(LANES) {
        let count = LANES.min(slab.count - first);
        let gradients = if slab.wide == 0 {
            // SAFETY: `count` elements from `first` on are within the slab.
            let narrowed = unsafe { std::slice::from_raw_parts(slab.gradient.cast::<u16>().add(first), count) };
            gathered(narrowed, widen)
        } else {
            // SAFETY: as above.
            let wide = unsafe { std::slice::from_raw_parts(slab.gradient.cast::<f32>().add(first), count) };
            gathered(wide, |value| value)
        };
        let (p, m, v) = (&mut weights[first..][..count], &mut moments[first..][..count], &mut squares[first..][..count]);
        if let (Ok(p), Ok(m), Ok(v)) =
            (<&mut [f32; LANES]>::try_from(&mut *p), <&mut [f32; LANES]>::try_from(&mut *m), <&mut [f32; LANES]>::try_from(&mut *v))
        {
            for lane in 0..LANES {
                element(rule, gradients[lane], &mut p[lane], &mut m[lane], &mut v[lane]);
            }
        } else {
            for lane in 0..count {
                element(rule, gradients[lane], &mut p[lane], &mut m[lane], &mut v[lane]);
            }
        }
        if !slab.copy.is_null() {
            let mut copied = [0; LANES];
            for (to, from) in copied.iter_mut().zip(&*p) {
                *to = narrow(*from);
            }
            // SAFETY: `count` elements from `first` on are within the slab, and STREAM is as the caller guarantees.
            unsafe { store::<STREAM>(&copied, slab.copy.add(first), count) };
        }
    }
    #[cfg(target_arch = "x86_64")]
    if STREAM {
        // SAFETY: SSE is part of every x86-64. Streaming stores become visible before the thread reports its end.
        unsafe { std::arch::x86_64::_mm_sfence() };
    }
}

#[inline(always)]
fn gathered<T: Copy>(from: &[T], widened: impl Fn(T) -> f32) -> [f32; LANES] {
    let mut to = [0.0; LANES];
    for (to, from) in to.iter_mut().zip(from) {
        *to = widened(*from);
    }
    to
}

#[inline(always)]
fn element(rule: &Rule, gradient: f32, p: &mut f32, m: &mut f32, v: &mut f32) {
    let g = gradient * rule.scale;
    *m += (g - *m) * rule.first;
    *v = *v * rule.second + (g * g) * (1.0 - rule.second);
    *p = *p * rule.keep - rule.rate * (*m / (v.sqrt() * rule.root + rule.epsilon));
}

/// Write `count` of the weights. Whole aligned blocks bypass the cache, which would read the memory first.
///
/// # Safety
/// `to` is valid for writing `count` elements; `STREAM` needs AVX2.
#[inline(always)]
unsafe fn store<const STREAM: bool>(from: &[u16; LANES], to: *mut u16, count: usize) {
    #[cfg(target_arch = "x86_64")]
    if STREAM && count == LANES && to.addr() % 32 == 0 {
        use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_stream_si256};
        // SAFETY: both are 32 bytes, `to` is aligned to 32, and the caller guarantees AVX2.
        return unsafe { _mm256_stream_si256(to.cast::<__m256i>(), _mm256_loadu_si256(from.as_ptr().cast())) };
    }
    // SAFETY: `count` is at most LANES, and the caller guarantees `to`.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, count) };
}
