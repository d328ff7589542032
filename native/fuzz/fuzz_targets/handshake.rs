//! Bytes as the script of strangers that connect to a listener before its peer does, over loopback.
#![no_main]

use std::sync::{Arc, LazyLock};

use busbw_transport::Transport;

#[path = "../../crates/transport/tests/common/peer.rs"]
mod peer;
#[path = "../../crates/transport/tests/common/script.rs"]
#[allow(dead_code)]
mod script;

static TRANSPORT: LazyLock<Arc<Transport>> = LazyLock::new(script::transport);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peer::play_handshake(&TRANSPORT, bytes));
