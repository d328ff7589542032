//! Elements per second of updates by number of threads: `cargo run --release --example rate
//! [MILLIONS [THREADS...]]`.

use std::time::Instant;

use busbw_adam::{Change, Pool, Rule, Slab};

fn main() {
    let mut given = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("a number"));
    let count = given.next().unwrap_or(256) << 20;
    let mut threads: Vec<usize> = given.collect();
    if threads.is_empty() {
        threads = vec![1, 2, 4, 8, 16];
    }
    let rule = Rule {
        scale: 1.0,
        keep: 0.9999,
        first: 0.1,
        second: 0.95,
        square: 0.05,
        rate: 1e-3,
        root: 1.0,
        epsilon: 1e-8,
    };
    let change = Change { undo: None, make: Some(rule) };
    let (gradient, mut copy) = (vec![0x3c00_u16; count], vec![0_u16; count]);
    let (mut weight, mut moment, mut square) =
        (vec![1.0_f32; count], vec![1e-3_f32; count], vec![1e-6_f32; count]);
    let slab = Slab {
        count,
        gradient: gradient.as_ptr().cast(),
        weight: weight.as_mut_ptr(),
        moment: moment.as_mut_ptr(),
        square: square.as_mut_ptr(),
        copy: copy.as_mut_ptr(),
        wide: 0,
    };
    for number in threads {
        let pool = Pool::new(number).expect("threads start");
        let mut seconds: Vec<f64> = (0..6)
            .map(|_| {
                let start = Instant::now();
                // SAFETY: the slab is that of the vectors above, which nothing else uses.
                unsafe { pool.update(&change, &slab) };
                start.elapsed().as_secs_f64()
            })
            .collect();
        seconds.sort_by(f64::total_cmp);
        let rate = count as f64 / seconds[2];
        println!(
            "{number:>3} threads: {:6.3} G elements/s, {:6.1} GB/s of 28 B each",
            rate / 1e9,
            28.0 * rate / 1e9
        );
    }
}
