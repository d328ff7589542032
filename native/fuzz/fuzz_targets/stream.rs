//! Bytes as the script of a peer that knows the token, over loopback.
#![no_main]

use std::sync::{Arc, LazyLock};

use busbw_transport::Transport;

#[path = "../../crates/transport/tests/common/script.rs"]
mod script;

static TRANSPORT: LazyLock<Arc<Transport>> = LazyLock::new(script::transport);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    script::play(&TRANSPORT, bytes);
});
