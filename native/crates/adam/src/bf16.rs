//! bfloat16: the upper half of an f32.

/// The value of a bf16.
#[inline(always)]
pub fn widen(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bf16, ties to even. A NaN stays one.
#[inline(always)]
pub fn narrow(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    (if value.is_nan() { (bits >> 16) | 0x40 } else { rounded }) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bf16_values_survive_both_ways() {
        for bits in 0..=u16::MAX {
            let value = widen(bits);
            if value.is_nan() {
                assert!(widen(narrow(value)).is_nan());
            } else {
                assert_eq!(narrow(value), bits);
            }
        }
    }

    #[test]
    fn ties_go_to_even_and_large_values_to_infinity() {
        assert_eq!(narrow(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(narrow(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(narrow(f32::from_bits(0x3f80_8001)), 0x3f81);
        assert_eq!(widen(narrow(f32::MAX)), f32::INFINITY);
        assert!(widen(narrow(f32::from_bits(0x7f80_0001))).is_nan());
    }
}
