//! The update of a range of elements.

use crate::bf16::{narrow, widen};

/// Elements that are computed together; their bf16 weights fill one 32-byte store.
const LANES: usize = 16;

/// The numbers of one step (Loshchilov and Hutter, "Decoupled Weight Decay Regularization",
/// algorithm 2).
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
    /// The share of the gradient's square in its average: 1 - beta2, which would lose digits if it
    /// were computed from `second`.
    pub square: f32,
    /// Learning rate / (1 - beta1^t).
    pub rate: f32,
    /// 1 / sqrt(1 - beta2^t).
    pub root: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
}

/// A range of elements of one or several parameters that follow the same rule. All pointers are to
/// `count` elements.
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

/// What is done to a slab by its gradients: first an earlier update of the slab is undone, then
/// another one is made. Both are optional.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// The update by the same gradients that was the last one; weights and moments come back to
    /// within fp32 rounding of them.
    pub undo: Option<Rule>,
    /// The update to make.
    pub make: Option<Rule>,
}

/// Change all elements of a slab.
///
/// # Safety
/// The slab's pointers are valid for `count` elements, aligned for their types, and nothing else
/// uses that memory meanwhile.
pub unsafe fn update(change: &Change, slab: &Slab) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2; the caller guarantees the rest.
        return unsafe { with_avx2(change, slab) };
    }
    // SAFETY: the caller guarantees what `run` requires.
    unsafe { run::<false>(change, slab) }
}

/// # Safety
/// As for `update`, and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn with_avx2(change: &Change, slab: &Slab) {
    // SAFETY: the caller guarantees what `run` requires.
    unsafe { run::<true>(change, slab) }
}

type Lanes = [f32; LANES];

/// # Safety
/// As for `update`; `STREAM` needs AVX2.
#[inline(always)]
unsafe fn run<const STREAM: bool>(change: &Change, slab: &Slab) {
    let whole = slab.count - slab.count % LANES;
    for first in (0..whole).step_by(LANES) {
        // SAFETY: LANES elements from `first` on are within the slab; the caller guarantees the
        // rest.
        unsafe { block::<STREAM>(change, &slab.part(first, LANES)) };
    }
    if whole < slab.count {
        // SAFETY: as above, with the elements that are left.
        unsafe { rest(change, &slab.part(whole, slab.count - whole)) };
    }
    #[cfg(target_arch = "x86_64")]
    if STREAM {
        // SAFETY: SSE is part of every x86-64. Streaming stores become visible before the thread
        // reports its end.
        unsafe { std::arch::x86_64::_mm_sfence() };
    }
}

/// Update LANES elements.
///
/// # Safety
/// As for `update`, with `count` = LANES; `STREAM` needs AVX2.
#[inline(always)]
unsafe fn block<const STREAM: bool>(change: &Change, slab: &Slab) {
    // SAFETY: the caller guarantees LANES elements behind each pointer.
    unsafe {
        let gradient = if slab.wide == 0 {
            slab.gradient.cast::<[u16; LANES]>().read().map(widen)
        } else {
            slab.gradient.cast::<Lanes>().read_unaligned()
        };
        let (weights, moments, squares) =
            (slab.weight.cast::<Lanes>(), slab.moment.cast::<Lanes>(), slab.square.cast::<Lanes>());
        let (mut p, mut m, mut v) = (weights.read(), moments.read(), squares.read());
        if let Some(undo) = &change.undo {
            undone(undo, &gradient, &mut p, &mut m, &mut v);
        }
        if let Some(make) = &change.make {
            elements(make, &gradient, &mut p, &mut m, &mut v);
        }
        weights.write(p);
        moments.write(m);
        squares.write(v);
        if !slab.copy.is_null() {
            let mut narrowed = [0; LANES];
            for lane in 0..LANES {
                narrowed[lane] = narrow(p[lane]); // not `map`, which is a call that leaves AVX2
            }
            store::<STREAM>(&narrowed, slab.copy);
        }
    }
}

/// Update fewer than LANES elements: the same arithmetic on a copy of them.
///
/// # Safety
/// As for `update`, with `count` < LANES.
unsafe fn rest(change: &Change, slab: &Slab) {
    let (mut gradient, mut narrowed, mut copy) = ([0_f32; LANES], [0_u16; LANES], [0_u16; LANES]);
    let (mut weight, mut moment, mut square) = ([0_f32; LANES], [0_f32; LANES], [0_f32; LANES]);
    // SAFETY: `count` elements fit into each array, and the caller guarantees as many behind each
    // pointer.
    unsafe {
        if slab.wide == 0 {
            std::ptr::copy_nonoverlapping(
                slab.gradient.cast::<u16>(),
                narrowed.as_mut_ptr(),
                slab.count,
            );
        } else {
            std::ptr::copy_nonoverlapping(
                slab.gradient.cast::<f32>(),
                gradient.as_mut_ptr(),
                slab.count,
            );
        }
        std::ptr::copy_nonoverlapping(slab.weight, weight.as_mut_ptr(), slab.count);
        std::ptr::copy_nonoverlapping(slab.moment, moment.as_mut_ptr(), slab.count);
        std::ptr::copy_nonoverlapping(slab.square, square.as_mut_ptr(), slab.count);
        let whole = Slab {
            count: LANES,
            gradient: if slab.wide == 0 {
                narrowed.as_ptr().cast()
            } else {
                gradient.as_ptr().cast()
            },
            weight: weight.as_mut_ptr(),
            moment: moment.as_mut_ptr(),
            square: square.as_mut_ptr(),
            copy: copy.as_mut_ptr(),
            wide: slab.wide,
        };
        block::<false>(change, &whole);
        std::ptr::copy_nonoverlapping(weight.as_ptr(), slab.weight, slab.count);
        std::ptr::copy_nonoverlapping(moment.as_ptr(), slab.moment, slab.count);
        std::ptr::copy_nonoverlapping(square.as_ptr(), slab.square, slab.count);
        if !slab.copy.is_null() {
            std::ptr::copy_nonoverlapping(copy.as_ptr(), slab.copy, slab.count);
        }
    }
}

#[inline(always)]
fn elements(rule: &Rule, gradient: &Lanes, p: &mut Lanes, m: &mut Lanes, v: &mut Lanes) {
    for lane in 0..LANES {
        let g = gradient[lane] * rule.scale;
        m[lane] += (g - m[lane]) * rule.first;
        v[lane] = v[lane] * rule.second + (g * g) * rule.square;
        p[lane] = p[lane] * rule.keep
            - rule.rate * (m[lane] / (v[lane].sqrt() * rule.root + rule.epsilon));
    }
}

/// The inverse of `elements`, in fp64, so that it adds no errors to those of the update. A second
/// moment of 0 means that all gradients before were 0, and so was the first moment: what rounding
/// has left of it would be divided by epsilon alone. Moments that the update did not keep (beta =
/// 0) have no effect on a later one, and become 0.
#[inline(always)]
fn undone(rule: &Rule, gradient: &Lanes, p: &mut Lanes, m: &mut Lanes, v: &mut Lanes) {
    let (first, square, second) =
        (f64::from(rule.first), f64::from(rule.square), f64::from(rule.second));
    let (rate, root, epsilon) =
        (f64::from(rule.rate), f64::from(rule.root), f64::from(rule.epsilon));
    for lane in 0..LANES {
        let g = f64::from(gradient[lane] * rule.scale);
        let (m1, v1) = (f64::from(m[lane]), f64::from(v[lane]));
        p[lane] = ((f64::from(p[lane]) + rate * (m1 / (v1.sqrt() * root + epsilon)))
            / f64::from(rule.keep)) as f32;
        v[lane] = if second > 0.0 { ((v1 - g * g * square) / second).max(0.0) as f32 } else { 0.0 };
        let kept = first < 1.0 && (v[lane] > 0.0 || second == 0.0);
        m[lane] = if kept { ((m1 - g * first) / (1.0 - first)) as f32 } else { 0.0 };
    }
}

/// Write LANES weights. If they are aligned they bypass the cache, which would read the memory
/// first.
///
/// # Safety
/// `to` is valid for writing LANES elements; `STREAM` needs AVX2.
#[inline(always)]
unsafe fn store<const STREAM: bool>(from: &[u16; LANES], to: *mut u16) {
    #[cfg(target_arch = "x86_64")]
    if STREAM && to.addr() % 32 == 0 {
        use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_stream_si256};
        // SAFETY: both are 32 bytes, `to` is aligned to 32, and the caller guarantees AVX2.
        return unsafe {
            _mm256_stream_si256(to.cast::<__m256i>(), _mm256_loadu_si256(from.as_ptr().cast()))
        };
    }
    // SAFETY: the caller guarantees LANES elements, aligned as u16 is.
    unsafe { to.cast::<[u16; LANES]>().write(*from) };
}
