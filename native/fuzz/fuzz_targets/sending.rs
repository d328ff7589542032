//! Bytes as the script of a receiver that a sender connects to, over loopback.
#![no_main]

use std::sync::{Arc, LazyLock};

use busbw_transport::Transport;

#[path = "../../crates/transport/tests/common/peer.rs"]
mod peer;
#[path = "../../crates/transport/tests/common/script.rs"]
#[allow(dead_code)]
mod script;

static TRANSPORT: LazyLock<Arc<Transport>> = LazyLock::new(script::transport);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    peer::play_sending(&TRANSPORT, bytes);
});
