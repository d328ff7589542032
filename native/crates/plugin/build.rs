//! How the plugin is linked.

fn main() {
    // NCCL closes the library with its last communicator, while the transport's threads may still run in it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
