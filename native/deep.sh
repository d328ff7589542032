#!/usr/bin/env bash
# Checks that need nightly Rust and some minutes: loom, AddressSanitizer, fuzzing. `deep.sh [SECONDS]` fuzzes for this long in total (60).
# Failures are kept in fuzz/artifacts, the corpus in fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-60}
host=$(rustc -vV | sed -n 's/^host: //p')
export RUST_BACKTRACE=0

need() { # hint, command
    "${@:2}" --version >/dev/null 2>&1 || { printf 'deep: "%s" does not run\n\nhint: %s\n' "${*:2}" "$1" >&2; exit 2; }
}
need 'rustup toolchain install nightly' cargo +nightly
need 'cargo install cargo-fuzz' cargo fuzz

say() { printf '\n== %s\n' "$1"; }

say 'loom: an I/O thread that sleeps, a task and its helper, and the ring of events'
RUSTFLAGS='--cfg loom' cargo test --quiet --target-dir target/loom -p busbw-transport -p busbw-events --lib -- doorbell turn ring

say 'AddressSanitizer: all tests'
RUSTFLAGS=-Zsanitizer=address cargo +nightly test --quiet --target-dir target/asan --target "$host" --workspace

python3 fuzz/seeds.py fuzz/corpus
fuzz() { # target, tenths of the time, longest input
    say "fuzzing: $1"
    cargo +nightly fuzz run --target "$host" "$1" -- -max_total_time=$((seconds * $2 / 10)) -max_len="$3" \
        -timeout=20 -rss_limit_mb=1024 -verbosity=0 -print_final_stats=1
}
cargo +nightly fuzz build --target "$host"
fuzz frames 1 64
fuzz handle 1 128
fuzz tuner_table 1 400
fuzz handshake 1 200
fuzz sending 3 200
fuzz stream 3 300
