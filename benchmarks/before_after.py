"""Two versions of busbw, interleaved on one machine: its network plugin between two emulated hosts
(gpu_hosts.py), timed as in nccl-tests.

    before_after.py pack REVISION FOLDER/before           source and plugin of a git revision, built
        here; needs cargo
    before_after.py pack HEAD FOLDER/after
    before_after.py run FOLDER [--seconds 500] [--results FILE] [--quick]

`run` has the requirements of gpu_hosts.py, and needs PyTorch with torchvision for the training
step. It begins another round of both versions, in alternating order, if a round as long as the
longest so far would end within `--seconds`. Prints medians over the rounds with minimum and
maximum. A round in which a version gives no number is an error and the last one. `--quick` tests
the setup with one size and no training.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREES = ("before", "after")
NET = ["--net", "busbw"]
CLASSIC = ["run", "all_reduce", *NET, "--timing", "classic", "--check", "0"]
SWEEP, SMALL = (
    [*CLASSIC, "-b", "8", "-e", "1G"],
    [*CLASSIC, "-b", "8", "-e", "8", "--iters", "200", "--run-cycles", "5"],
)
QUICK = [*CLASSIC, "-b", "8", "-e", "8"]
TRAIN = [
    "train",
    "vgg16",
    "--batch-size",
    "128",
    "--compute-dtype",
    "fp32",
    "--warmup",
    "5",
    "--iters",
    "1",
    "--compare",
    "none",
    *NET,
]
LIMIT_S = 150.0  # of one command
Figures = dict[str, float]  # name: microseconds


def pack(revision: str, folder: Path) -> None:
    """Source and built plugin of a revision."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        archive = subprocess.run(
            ["git", "archive", revision, "src", "native"],
            cwd=HERE.parent,
            check=True,
            capture_output=True,
        ).stdout
        subprocess.run(["tar", "-x", "-C", place], input=archive, check=True)
        # The crate by its folder: its name differs between revisions.
        manifest = Path(place, "native", "crates", "plugin", "Cargo.toml")
        built = Path(place, "target")
        environment = {**os.environ, "CARGO_TARGET_DIR": str(built)}
        command = ["cargo", "build", "--quiet", "--release", "--manifest-path", str(manifest)]
        subprocess.run(command, check=True, env=environment)
        shutil.copy(next(built.glob("release/lib*.so")), folder / "libplugin.so")
        shutil.rmtree(folder / "src", ignore_errors=True)
        shutil.copytree(Path(place, "src"), folder / "src")


def busbw(tree: Path, words: list[str]) -> dict[str, object]:
    """The result of a busbw command of one tree over both hosts; {} if it failed, which is
    printed.
    """
    environment = {**os.environ, "BUSBW_PLUGIN": str(tree / "libplugin.so")}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(tree / "src"), os.environ.get("PYTHONPATH", "")]
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "result.json")
        command = [sys.executable, str(HERE / "gpu_hosts.py"), "0", *words, "--json", str(file)]
        try:
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"{tree.name}: {' '.join(words[:2])} took longer than {LIMIT_S:g} s", flush=True)
            return {}
        if done.returncode or not file.exists():
            print(
                f"{tree.name}: {' '.join(words)} ended with"
                f" {done.returncode}:\n"
                f"{done.stdout[-600:]}{done.stderr[-1500:]}",
                flush=True,
            )
            return {}
        return dict(json.loads(file.read_text(encoding="utf-8")))


def cells(result: dict, name: str) -> Figures:
    """The faster placement of each size, and the median over rows of one size."""
    seen: dict[str, list[float]] = {}
    for row in result.get("rows", []):
        best = min(row[placement]["time_s"] for placement in ("out_of_place", "in_place"))
        seen.setdefault(f"{name} {_short(row['size_bytes'])}", []).append(1e6 * best)
    return {size: statistics.median(times) for size, times in seen.items()}


def training(result: dict) -> Figures:
    """The median step, alone and with DDP over both hosts."""
    runs = (result.get("training") or {}).get("runs", [])
    return {
        f"VGG16 step, {run['method']}": 1e6 * statistics.median(run["steps_s"])
        for run in runs
        if run["steps_s"]
    }


def taken(tree: Path, quick: bool) -> Figures:
    """One round of a tree."""
    if quick:
        return cells(busbw(tree, QUICK), "all_reduce")
    found = cells(busbw(tree, SWEEP), "all_reduce") | cells(busbw(tree, SMALL), "200 operations of")
    return found | training(busbw(tree, TRAIN))


def run(folder: Path, seconds: float, results: Path | None, quick: bool) -> int:
    """Rounds of both trees, then the table."""
    end, longest, rounds = time.monotonic() + seconds, 0.0, 0
    seen: dict[str, list[Figures]] = {name: [] for name in TREES}
    while not rounds or time.monotonic() + longest < end:
        begun = time.monotonic()
        for name in TREES if rounds % 2 == 0 else TREES[::-1]:
            seen[name].append(taken(folder / name, quick))
            if results:
                results.write_text(json.dumps(seen), encoding="utf-8")
        longest, rounds = max(longest, time.monotonic() - begun), rounds + 1
        empty = [name for name in TREES if not seen[name][-1]]
        if quick or empty:
            break
    print(f"{rounds} rounds, the longest {longest:.0f} s; us, median (least to largest)")
    names = list(
        dict.fromkeys(name for found in (*seen["before"], *seen["after"]) for name in found)
    )
    for name in names:
        before, after = ([found[name] for found in seen[tree] if name in found] for tree in TREES)
        change = (
            f"{100 * (statistics.median(after) / statistics.median(before) - 1):+6.1f} %"
            if before and after
            else ""
        )
        print(f"{name:28} {_spread(before):36} {_spread(after):36} {change}")
    if empty:
        print(f"error: round {rounds}: no number of {' and '.join(empty)}", file=sys.stderr)
    return 1 if empty else 0


def _spread(values: list[float]) -> str:
    return (
        f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
        if values
        else "none"
    )


def _short(size: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} B"


def main() -> int:
    """Pack or run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("revision")
    packing.add_argument("folder", type=Path)
    running = commands.add_parser("run")
    running.add_argument("folder", type=Path)
    running.add_argument("--seconds", type=float, default=500.0)
    running.add_argument("--results", type=Path)
    running.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    if asked.command == "pack":
        pack(asked.revision, asked.folder)
        return 0
    return run(asked.folder.resolve(), asked.seconds, asked.results, asked.quick)


if __name__ == "__main__":
    sys.exit(main())
