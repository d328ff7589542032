//! Peers that send garbage, and strangers at a listener: nothing panics, no memory outside posted
//! buffers is written, everything ends, and the right peer is accepted. `native/fuzz` searches for
//! scripts that break this; here a fixed set runs.

#[path = "common/peer.rs"]
mod peer;
#[path = "common/script.rs"]
mod script;

const SCRIPTS: u64 = 200;

/// Scripts that once broke something, and how.
const FOUND: [(&str, &[u8]); 5] = [
    ("no stream was left", &[0x0a, 0xff]),
    (
        "completed by chunks of two sizes",
        &[0, 0, 0x0a, 0, 0x15, 4, 4, 0, 0, 0, 0x15, 4, 2, 5, 0, 0],
    ),
    ("a message behind a later one that waited", &[2, 0, 0x82, 0xae, 0x28, 0, 0, 0, 0, 0, 0xba]),
    (
        "the same with a full buffer",
        &[
            2, 0, 8, 0, 0xf1, 0xbf, 0xe1, 0xa2, 0xaf, 0x30, 0xbf, 0xa2, 0xfd, 1, 0xc9, 0x45, 0x45,
            0x45, 0xa5, 0x8a, 0xfd, 0xc9, 0xec, 0xf3, 0x72, 0xaf, 0x80,
        ],
    ),
    ("a chunk larger than the early-arrival buffer", &[2, 0, 0x25, 0x3a, 0x3a, 0x3d, 1, 0x32, 9]),
];

/// The same bytes on every machine: xorshift64.
fn script(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..usize::from(next())).map(|_| next()).collect()
}

#[test]
fn a_peer_that_sends_garbage_does_no_harm() {
    let transport = script::transport();
    let done: usize = (0..SCRIPTS).map(|seed| script::play(&transport, &script(seed))).sum();
    assert!(
        done > SCRIPTS as usize / 2,
        "only {done} receives got their messages: the scripts are too rarely valid"
    );
}

#[test]
fn former_failures_stay_fixed() {
    let transport = script::transport();
    for (what, script) in FOUND {
        eprintln!("{what}");
        script::play(&transport, script);
    }
}

#[test]
fn a_receiver_that_answers_garbage_does_no_harm() {
    let transport = script::transport();
    let scripts = SCRIPTS / 4;
    let sent: usize = (0..scripts).map(|seed| peer::play_sending(&transport, &script(seed))).sum();
    assert!(
        sent > scripts as usize,
        "only {sent} messages were sent: the scripts are too rarely valid"
    );
}

#[test]
fn strangers_do_not_keep_the_peer_out() {
    let transport = script::transport();
    (0..SCRIPTS / 16).for_each(|seed| peer::play_handshake(&transport, &script(seed)));
}
