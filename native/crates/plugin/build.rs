//! Link arguments of the plugin.

fn main() {
    // NCCL unloads the library with its last communicator, but the transport's threads may still
    // run.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
