//! Bytes per second of both directions on one thread: `cargo run --release --example rate
//! [MILLIONS]`.

use std::time::Instant;

use busbw_exponents::{Size, decode, encode, room};

fn median(mut call: impl FnMut()) -> f64 {
    let mut seconds: Vec<f64> = (0..7)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[3]
}

fn main() {
    let given = std::env::args().nth(1).map(|text| text.parse::<usize>().expect("a number"));
    let count = given.unwrap_or(8) << 20;
    let mut state = 1_u64;
    let mut normal = || {
        // A sum of 12 uniform numbers is nearly normal.
        let sum: u64 = (0..12)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state >> 40
            })
            .sum();
        (sum as f32 / (1 << 24) as f32 - 6.0) * 1e-3
    };
    let values: Vec<f32> = (0..count).map(|_| normal()).collect();
    let wide = |mask: u32| -> Vec<u8> {
        values.iter().flat_map(|value| (value.to_bits() & mask).to_le_bytes()).collect()
    };
    let narrow: Vec<u8> =
        values.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect();
    for (name, row, size) in [
        ("fp32", wide(u32::MAX), Size::Four),
        ("fp32 of bf16", wide(0xffff_0000), Size::Four),
        ("bf16", narrow, Size::Two),
    ] {
        let mut coded = vec![0; room(count)];
        let mut length = 0;
        let coding = median(|| length = encode(&row, size, &mut coded));
        let mut back = vec![0; row.len()];
        let decoding = median(|| decode(&coded[..length], size, &mut back).expect("its bytes"));
        assert!(back == row);
        let rate = |seconds: f64| row.len() as f64 / seconds / 1e9;
        println!(
            "{name:>12}: {:.3} of its bytes, coded at {:.2} GB/s, decoded at {:.2} GB/s",
            length as f64 / row.len() as f64,
            rate(coding),
            rate(decoding)
        );
    }
}
