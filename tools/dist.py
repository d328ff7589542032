"""Builds busbw and busbw-native in dist/ and checks the files; see CONTRIBUTING.md. The same commit gives the same bytes."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import dist_checks
import dist_sbom
import versions

ROOT = versions.ROOT
DIST, NATIVE = ROOT / "dist", ROOT / "native"
TARGETS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
PLATFORM = "manylinux_2_28"
VERSION = versions.found()[versions.SOURCE]


def environment() -> dict[str, str]:
    """Variables of all builds, beside the present ones: times are those of the commit, and no path of this machine gets into a library."""
    time = os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct")
    cargo_home = os.environ.get("CARGO_HOME") or Path.home() / ".cargo"
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # where maturin looks for zig
        "SOURCE_DATE_EPOCH": time,
        "RUSTFLAGS": f"--remap-path-prefix={NATIVE}=busbw-native --remap-path-prefix={cargo_home}=cargo",
        "CARGO_PROFILE_RELEASE_STRIP": "debuginfo",  # zig's runtime library has paths there
    }


def output(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def run(*command: str | Path) -> None:
    """Runs a module of this Python, or ends with its exit code."""
    print("dist:", *command, file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, "-m", *command], cwd=NATIVE if command[0] == "maturin" else ROOT, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def installed(target: str) -> bool:
    """Whether the Rust toolchain has the standard library of a target."""
    return Path(output("rustc", "--print", "target-libdir", "--target", target)).is_dir()


def native(targets: list[str]) -> None:
    """Builds the wheels of busbw-native, each with the list of what is linked into it."""
    for target in targets:
        sbom = DIST / f"busbw_native-{VERSION}-{target.partition('-')[0]}.cdx.json"
        dist_sbom.native(sbom, VERSION, target)
        options = ("--release", "--locked", "--zig", "--compatibility", PLATFORM, "--target", target, "--sbom-include", sbom)
        run("maturin", "build", *options, "--interpreter", sys.executable, "--out", DIST)


def main() -> None:
    """Builds everything for which there is a target, then checks the files and prints their SHA-256."""
    if problem := versions.problem():
        sys.exit(problem)
    if not shutil.which("cargo"):
        sys.exit("error: cargo not found\n\nhint: install Rust from https://rustup.rs")
    if output("git", "status", "--porcelain", "--untracked-files=no"):
        print("dist: files differ from the commit; a release needs a clean checkout", file=sys.stderr)
    os.environ |= environment()
    shutil.rmtree(DIST, ignore_errors=True)
    run("build", "--no-isolation", "--outdir", DIST)
    targets = [target for target in TARGETS if installed(target)]
    native(targets)
    dist_checks.check(DIST, PLATFORM)
    with tempfile.TemporaryDirectory() as home:
        dist_sbom.python(DIST / f"busbw-{VERSION}.cdx.json", VERSION, dist_checks.install(DIST, VERSION, Path(home)))
    for path in DIST.glob("*.cdx.json"):
        dist_checks.sbom(path)
    files = sorted(DIST.iterdir())
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (DIST / "SHA256SUMS").write_text(sums, encoding="utf-8")
    print(sums, end="")
    missing = [target for target in TARGETS if target not in targets]
    for target in missing:
        print(f"\ndist: no wheel for {target}: this Rust cannot build for it\n\nhint: rustup target add {target}", file=sys.stderr)
    if missing and os.environ.get("CI"):
        sys.exit("error: CI leaves nothing out")


if __name__ == "__main__":
    main()
