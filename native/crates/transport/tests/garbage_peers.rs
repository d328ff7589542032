//! Peers that answer a sender with garbage, and strangers at a listener: nothing panics, everything ends, and the right peer is accepted.
//! `native/fuzz` searches for scripts that break this; here a fixed set runs.

#[path = "common/peer.rs"]
mod peer;
#[path = "common/script.rs"]
#[allow(dead_code)]
mod script;

const SCRIPTS: u64 = 60;

/// The same bytes on every machine: xorshift64.
fn bytes(seed: u64) -> Vec<u8> {
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
fn a_receiver_that_answers_garbage_does_no_harm() {
    let transport = script::transport();
    let sent: usize = (0..SCRIPTS).map(|seed| peer::play_sending(&transport, &bytes(seed))).sum();
    assert!(sent > SCRIPTS as usize, "only {sent} messages were sent: the scripts are too rarely valid");
}

#[test]
fn strangers_do_not_keep_the_peer_out() {
    let transport = script::transport();
    (0..SCRIPTS / 4).for_each(|seed| peer::play_handshake(&transport, &bytes(seed)));
}
