//! The update: against arithmetic in f64, and bit for bit over threads, divisions and processors.

use busbw_adam::{Change, Pool, Rule, Slab, narrow, update, widen};

const RULE: Rule = Rule {
    scale: 0.5,
    keep: 1.0 - 1e-3 * 0.1,
    first: 0.1,
    second: 0.95,
    square: 0.05,
    rate: 1e-3 / 0.271,
    root: 1.0 / 0.3776,
    epsilon: 1e-8,
};

const MAKE: Change = Change { undo: None, make: Some(RULE) };

#[derive(Clone, PartialEq, Debug)]
struct Memory {
    gradient: Vec<u16>,
    wide: Vec<f32>,
    weight: Vec<f32>,
    moment: Vec<f32>,
    square: Vec<f32>,
    copy: Vec<u16>,
}

impl Memory {
    fn new(count: usize, seed: u64) -> Self {
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        let wide: Vec<f32> = (0..count).map(|_| widen(narrow(next() * 1e-2))).collect();
        Self {
            gradient: wide.iter().map(|one| narrow(*one)).collect(),
            weight: (0..count).map(|_| next()).collect(),
            moment: (0..count).map(|_| next() * 1e-3).collect(),
            square: (0..count).map(|_| next().abs() * 1e-5).collect(),
            copy: vec![0x7fff; count],
            wide,
        }
    }

    fn slab(&mut self, wide: bool) -> Slab {
        Slab {
            count: self.weight.len(),
            gradient: if wide { self.wide.as_ptr().cast() } else { self.gradient.as_ptr().cast() },
            weight: self.weight.as_mut_ptr(),
            moment: self.moment.as_mut_ptr(),
            square: self.square.as_mut_ptr(),
            copy: self.copy.as_mut_ptr(),
            wide: u8::from(wide),
        }
    }
}

fn updated(mut memory: Memory, steps: usize) -> Memory {
    let slab = memory.slab(false);
    for _ in 0..steps {
        // SAFETY: the slab is that of `memory`, which nothing else uses.
        unsafe { update(&MAKE, &slab) };
    }
    memory
}

#[test]
fn each_element_is_that_of_f64_to_rounding() {
    let before = Memory::new(1003, 1);
    let after = updated(before.clone(), 1);
    let rule = |value: f32| f64::from(value);
    for i in 0..1003 {
        let g = rule(widen(before.gradient[i])) * rule(RULE.scale);
        let m = rule(before.moment[i]) + (g - rule(before.moment[i])) * rule(RULE.first);
        let v = rule(before.square[i]) * rule(RULE.second) + g * g * (1.0 - rule(RULE.second));
        let p = rule(before.weight[i]) * rule(RULE.keep)
            - rule(RULE.rate) * m / (v.sqrt() * rule(RULE.root) + rule(RULE.epsilon));
        for (found, expected, least) in
            [(after.moment[i], m, 1e-3), (after.square[i], v, 1e-5), (after.weight[i], p, 1.0)]
        {
            assert!(
                (rule(found) - expected).abs() <= 4e-7 * expected.abs().max(least),
                "element {i}: {found} in place of {expected}"
            );
        }
        assert_eq!(after.copy[i], narrow(after.weight[i]));
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let count = (1 << 18) + 77;
    let expected = updated(Memory::new(count, 2), 3);
    for threads in [1, 2, 3, 7, 16] {
        let pool = Pool::new(threads).expect("threads start");
        let mut memory = Memory::new(count, 2);
        let slab = memory.slab(false);
        for _ in 0..3 {
            // SAFETY: the slab is that of `memory`, which nothing else uses.
            unsafe { pool.update(&MAKE, &slab) };
        }
        assert!(memory == expected, "{threads} threads");
    }
}

#[test]
fn any_division_gives_the_same_bits() {
    let expected = updated(Memory::new(257, 3), 1);
    for cut in 0..=257 {
        let mut memory = Memory::new(257, 3);
        let slab = memory.slab(false);
        // SAFETY: both parts lie within the slab of `memory`, which nothing else uses.
        unsafe {
            update(&MAKE, &slab.part(0, cut));
            update(&MAKE, &slab.part(cut, 257 - cut));
        }
        assert!(memory == expected, "cut at {cut}");
    }
}

#[test]
fn gradients_of_both_widths_give_the_same_bits() {
    let expected = updated(Memory::new(1003, 4), 1);
    let mut memory = Memory::new(1003, 4);
    let slab = memory.slab(true);
    // SAFETY: the slab is that of `memory`, which nothing else uses.
    unsafe { update(&MAKE, &slab) };
    assert!(memory == expected);
}

#[test]
fn a_slab_without_copies_updates_the_weights_alone() {
    let expected = updated(Memory::new(100, 5), 1);
    let mut memory = Memory::new(100, 5);
    let slab = Slab { copy: std::ptr::null_mut(), ..memory.slab(false) };
    // SAFETY: the slab is that of `memory`, which nothing else uses.
    unsafe { update(&MAKE, &slab) };
    assert_eq!(memory.weight, expected.weight);
    assert_eq!(memory.copy, vec![0x7fff; 100]);
}

#[test]
fn many_small_updates_from_several_threads_all_happen() {
    let pool = Pool::new(3).expect("threads start");
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let pool = &pool;
            scope.spawn(move || {
                let count = 70_000 + seed as usize;
                let mut memory = Memory::new(count, seed);
                let slab = memory.slab(false);
                for _ in 0..20 {
                    // SAFETY: the slab is that of `memory`, which only this thread gives away.
                    unsafe { pool.update(&MAKE, &slab) };
                }
                assert!(memory == updated(Memory::new(count, seed), 20));
            });
        }
    });
}

#[test]
fn an_update_that_is_undone_leaves_what_was_there() {
    let before = Memory::new(1003, 6);
    let mut memory = before.clone();
    let slab = memory.slab(false);
    // SAFETY: the slab is that of `memory`, which nothing else uses.
    unsafe {
        update(&MAKE, &slab);
        update(&Change { undo: Some(RULE), make: None }, &slab);
    }
    for i in 0..1003 {
        for (found, expected) in [
            (memory.weight[i], before.weight[i]),
            (memory.moment[i], before.moment[i]),
            (memory.square[i], before.square[i]),
        ] {
            assert!(
                (found - expected).abs() <= 4e-7 * expected.abs().max(1e-3),
                "element {i}: {found} in place of {expected}"
            );
        }
        assert_eq!(memory.copy[i], narrow(memory.weight[i]));
    }
}

#[test]
fn an_update_that_is_replaced_equals_the_one_that_replaces_it() {
    let clipped = Rule { scale: 0.1, ..RULE };
    let (mut memory, mut expected) = (Memory::new(1003, 7), Memory::new(1003, 7));
    let (slab, plain) = (memory.slab(false), expected.slab(false));
    // SAFETY: the slabs are those of the two memories, which nothing else uses.
    unsafe {
        update(&MAKE, &slab);
        update(&Change { undo: Some(RULE), make: Some(clipped) }, &slab);
        update(&Change { undo: None, make: Some(clipped) }, &plain);
    }
    for i in 0..1003 {
        assert!(
            (memory.weight[i] - expected.weight[i]).abs()
                <= 1e-6 * expected.weight[i].abs().max(1e-3),
            "element {i}"
        );
        assert!(
            (memory.square[i] - expected.square[i]).abs() <= 1e-6 * expected.square[i].max(1e-7),
            "element {i}"
        );
    }
}
