//! File descriptors that the process has open. Alone in its file, so that no other test opens any.

use busbw_transport::config::Config;

mod common;
use common::*;

#[test]
fn an_abandoned_connect_leaves_no_sockets() {
    let transport = open(Config { timeout_s: 1, ..Config::default() });
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    for _ in 0..20 {
        let (listener, handle) = transport.listen(0).unwrap();
        for _ in 0..3 {
            assert!(transport.connect(0, &handle).unwrap().is_none());
        }
        drop(listener);
    }
    assert!(descriptors() > before + 50, "they are open");
    pause(3200);
    let (_listener, handle) = transport.listen(0).unwrap();
    let _ = transport.connect(0, &handle);
    assert!(descriptors() < before + 20, "{} more than before", descriptors() - before);
}
