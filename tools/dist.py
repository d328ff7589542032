"""Builds busbw, busbw-accel and busbw-native in dist/ and checks the files; see CONTRIBUTING.md.

The same commit gives the same bytes.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import dist_checks
import dist_file
import dist_sbom
import versions
from dist_checks import output

ROOT = versions.ROOT
VERSION = versions.found()[versions.SOURCE]
WORK = ROOT / "build" / "dist"
FILES = WORK / "files"  # become dist/ once all are checked
WHEELS = WORK / "wheels"  # of which the single file is made
SOURCES = WORK / f"busbw_native-{VERSION}"  # the unpacked sdist
TARGETS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
PLATFORM = "manylinux_2_28"


def problem() -> str:
    """Why nothing can be built, as an error with its hint; empty if there is no reason."""
    for program, hint in {
        "git": "install git",
        "cargo": "install Rust from https://rustup.rs",
        "rustc": "install Rust with rustup",
    }.items():
        if not shutil.which(program):
            return f"error: {program} not found\n\nhint: {hint}"
    for tag in output("git", "tag", "--points-at", "HEAD", "v*").split():
        if tag != f"v{VERSION}":
            hint = f"git tag -d {tag}, or set the version as in CONTRIBUTING.md"
            return (
                f"error: the commit is tagged {tag}, but {versions.SOURCE} has {VERSION}\n\n"
                f"hint:"
                f" {hint}"
            )
    return versions.problem()


def environment() -> dict[str, str]:
    """Variables of all builds, beside the present ones: times are those of the commit, and no
    path of this machine gets into a library.
    """
    names = {SOURCES: "busbw-native"} | dict.fromkeys(dist_sbom.folders(TARGETS[0]), "crates")
    return {
        # where maturin looks for zig
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SOURCE_DATE_EPOCH": (
            os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct")
        ),
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(
            f"--remap-path-prefix={folder}={name}" for folder, name in names.items()
        ),
        "CARGO_PROFILE_RELEASE_STRIP": "debuginfo",  # zig's runtime library has paths there
    }


def run(*command: str | Path, folder: Path = ROOT) -> None:
    """Runs a module of this Python, or ends with its exit code."""
    print("dist:", *command, file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, "-m", *command], cwd=folder, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def installed(target: str) -> bool:
    """Whether the Rust toolchain has the standard library of a target."""
    return Path(output("rustc", "--print", "target-libdir", "--target", target)).is_dir()


def native(targets: list[str]) -> None:
    """Builds the sdist of busbw-native, and from it the wheels, each with the list of what is
    linked into it.
    """
    run("maturin", "sdist", "--out", FILES, folder=ROOT / "native")
    shutil.unpack_archive(FILES / f"{SOURCES.name}.tar.gz", WORK, filter="data")
    for target in targets:
        sbom = FILES / f"{SOURCES.name}-{target.partition('-')[0]}.cdx.json"
        dist_sbom.native(sbom, VERSION, target)
        options = (
            "--release",
            "--locked",
            "--zig",
            "--compatibility",
            PLATFORM,
            "--target",
            target,
            "--sbom-include",
            sbom,
        )
        run(
            "maturin",
            "build",
            *options,
            "--interpreter",
            sys.executable,
            "--out",
            FILES,
            folder=SOURCES,
        )


def single_file() -> str:
    """Builds the single file with its SBOM; what it lacks, as a note, empty if nothing."""
    [wheel] = FILES.glob("busbw-*.whl")
    missing = dist_file.fetch(wheel, WHEELS)
    if missing == list(dist_file.PYTHONS):
        sys.exit(
            "error: pip fetched no wheels for the single file\n\nhint: see pip's message above"
        )
    path = FILES / dist_file.name(VERSION)
    dist_file.write(path, VERSION, WHEELS)
    dist_sbom.single_file(path, VERSION, WHEELS)
    if not missing:
        return ""
    return f"the single file does not run with Python {', '.join(missing)}: pip fetched no wheels"


def check() -> None:
    """Checks all files, and writes the SBOM of each Python distribution once it is installed."""
    dist_checks.check(FILES, PLATFORM)
    dist_checks.single_file(FILES / dist_file.name(VERSION), VERSION, WORK / "cache")
    interpreter = dist_checks.install(FILES, VERSION, WORK / "environment")
    dist_sbom.python(FILES / f"busbw-{VERSION}.cdx.json", ROOT, VERSION, interpreter)
    dist_checks.add_accel(FILES, interpreter)
    dist_sbom.python(
        FILES / f"busbw_accel-{VERSION}.cdx.json", ROOT / "accel", VERSION, interpreter
    )
    for path in FILES.glob("*.cdx.json"):
        dist_checks.sbom(path)


def omissions() -> str:
    """Why what is built is not a whole release; empty if it is."""
    notes = [
        f"no wheel for {each}: this Rust cannot build for it\n\nhint: rustup target add {each}"
        for each in TARGETS
        if not installed(each)
    ]
    if changed := output("git", "status", "--porcelain"):
        notes.append(
            f"not a release: files differ from the commit\n"
            f"{changed}\n\n"
            f"hint: run make dist in a"
            " new clone"
        )
    return "\n\n".join(notes)


def main() -> None:
    """Builds everything for which there is a target, checks it, puts it in dist/ and prints the
    SHA-256 of each file.
    """
    if found := problem():
        sys.exit(found)
    omitted = omissions()
    if omitted and os.environ.get("CI"):
        sys.exit(f"error: {omitted}")
    os.environ |= environment()
    shutil.rmtree(WORK, ignore_errors=True)
    for folder in (ROOT, ROOT / "accel"):
        run("build", "--no-isolation", "--outdir", FILES, folder=folder)
    native([target for target in TARGETS if installed(target)])
    if lacking := single_file():
        omitted = "\n\n".join(filter(None, (omitted, lacking)))
        if os.environ.get("CI"):
            sys.exit(f"error: {lacking}")
    check()
    sums = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(FILES.iterdir())
    )
    (FILES / "SHA256SUMS").write_text(sums, encoding="utf-8")
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    FILES.rename(ROOT / "dist")
    shutil.rmtree(WORK)
    print(sums, end="")
    if omitted:
        print(f"\ndist: {omitted}", file=sys.stderr)


if __name__ == "__main__":
    main()
