//! Rows of all kinds come back with the same bits, and wrong bytes are errors.

use busbw_exponents::{BLOCK, Size, decode, encode, room};

/// A generator of numbers that look random (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Between -1 and 1, more often near 0.
    fn value(&mut self) -> f32 {
        let uniform = (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0;
        uniform * uniform * uniform
    }
}

fn coded(row: &[u8], size: Size) -> Vec<u8> {
    let mut out = vec![0xaa; room(row.len() / size.bytes())];
    let length = encode(row, size, &mut out);
    out.truncate(length);
    out
}

fn returns(row: &[u8], size: Size) -> usize {
    let bytes = coded(row, size);
    let mut back = vec![0x55; row.len()];
    decode(&bytes, size, &mut back).expect("what encode wrote");
    assert!(back == row, "{size:?}, {} bytes", row.len());
    bytes.len()
}

fn fp32(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_le_bytes).collect()
}

#[test]
fn rows_of_any_length_come_back() {
    let mut random = Random(1);
    for count in [0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 5_003] {
        returns(&fp32((0..count).map(|_| random.value())), Size::Four);
        let half = (0..count).map(|_| (random.value().to_bits() >> 16) as u16);
        returns(&half.flat_map(u16::to_le_bytes).collect::<Vec<u8>>(), Size::Two);
    }
}

#[test]
fn any_bits_come_back_within_the_room() {
    let mut random = Random(2);
    let row: Vec<u8> = (0..4 * 3 * BLOCK).map(|_| random.next() as u8).collect();
    assert!(returns(&row, Size::Four) <= room(3 * BLOCK));
    assert!(returns(&row, Size::Two) <= room(6 * BLOCK));
    let special = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE / 2.0, -f32::MAX];
    returns(&fp32((0..1_000).map(|at| special[at * at % 6])), Size::Four);
}

#[test]
fn lower_bits_that_are_zero_and_zeros_take_no_room() {
    let mut random = Random(3);
    let narrow = (0..BLOCK).map(|_| f32::from_bits(random.value().to_bits() & 0xffff_0000));
    assert!(returns(&fp32(narrow), Size::Four) < 2 * BLOCK);
    assert_eq!(returns(&vec![0; 4 * 8 * BLOCK], Size::Four), 8 * 4, "headers alone");
}

#[test]
fn wrong_bytes_are_errors() {
    let mut random = Random(4);
    let row = fp32((0..5 * BLOCK).map(|_| random.value()));
    let bytes = coded(&row, Size::Four);
    let mut back = vec![0; row.len()];
    for end in [0, 3, 19, 20, 100, bytes.len() - 16] {
        assert!(decode(&bytes[..end], Size::Four, &mut back).is_err(), "{end} bytes");
    }
    for _ in 0..2_000 {
        let mut damaged = bytes.clone();
        damaged[random.next() as usize % bytes.len()] ^= 1 << (random.next() % 8);
        let _ = decode(&damaged, Size::Four, &mut back);
        let garbage: Vec<u8> = (0..200).map(|_| random.next() as u8).collect();
        let _ = decode(&garbage, Size::Two, &mut back);
    }
}
