"""What a timed capture finds and costs with CUDA events around launches, for each NCCL.

capture_events.py --plugin libplugin.so [--nccl libnccl-2.32.3.so.xz ...] [--ranks 2]
    [--parts script,accuracy,train] [--calls 100000] [--pairs 12] [--results FILE]

script    100,000 mixed calls over three communicators: all found in order, and how many are timed
accuracy  the recorded times compared with those of events around calls in between, from 4 MiB
train     a DDP training of GPT-2, whose steps wait for the host, with a cheap and then with a timed
          capture: NCCL's events are off and on in turn, step by step; costs with 95 % intervals
jobs      the same training in processes of its own, alone, with `busbw capture` and with
          `busbw capture --timed` in turn (--pairs times; 20 s each)

Without --nccl it is the NCCL of PyTorch. A library of --nccl (plain or .xz) is preloaded.
"""

import argparse
import json
import lzma
import math
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from capture_cost import check_script

from busbw.measure import profiler_calls, profiler_file

APP = Path(__file__).with_name("capture_events_app.py")
LIMIT_S = 400
TIMED_SHARE, TRAIN_LIMITS, ACCURACY = 0.99, {"cheap": 0.5, "timed": 2.0}, 3.0  # the last in %
# Student's t for a two-sided 95 % interval, by degrees of freedom
STUDENT = {7: 2.365, 9: 2.262, 11: 2.201, 15: 2.131, 19: 2.093, 29: 2.045}


def free_port() -> int:
    """A port for the ranks to meet at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(nccl: Path | None) -> dict[str, str]:
    """Variables of a run without a capture, with this NCCL."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("BUSBW_CAPTURE", "NCCL_PROFILER"))
    } | {"NCCL_NVLS_ENABLE": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return env | ({"LD_PRELOAD": str(nccl)} if nccl else {})


def capturing(plugin: Path, folder: Path, mode: str = "timed") -> dict[str, str]:
    """Variables of a capture into a folder."""
    return {
        "NCCL_PROFILER_PLUGIN": str(plugin),
        "BUSBW_CAPTURE": str(folder),
        "BUSBW_CAPTURE_MODE": mode,
    }


def start(env: dict[str, str], ranks: int, *arguments: str) -> None:
    """The application with one process for each rank."""
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / f"rank {rank}" for rank in range(ranks)]
        processes = []
        for rank, log in enumerate(logs):
            own = env | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
            command = [sys.executable, str(APP), *arguments]
            with log.open("w") as out:
                processes.append(subprocess.Popen(command, env=own, stdout=out, stderr=out))
        try:
            codes: list[int | None] = [process.wait(LIMIT_S) for process in processes]
        except subprocess.TimeoutExpired:
            codes = [process.poll() for process in processes]
            for process in processes:
                process.kill()
        if any(code != 0 for code in codes):
            for log in logs:
                print(log.read_text(encoding="utf-8", errors="replace")[-2000:], file=sys.stderr)
            sys.exit(f"{arguments} ended with {codes}")


def script(options: argparse.Namespace, env: dict[str, str], place: Path) -> dict:
    """Whether every call was found in order, and how many have a time, by clock."""
    folder, out = place / "script", str(place / "called")
    env = env | capturing(options.plugin, folder)
    start(env, options.ranks, "script", str(options.calls), out)
    found = check_script(folder, out)
    for path in sorted(folder.glob("*.capture")):
        seen = profiler_file.read(path)
        calls = profiler_calls.read_calls(seen).calls
        row = found[f"rank {seen.rank}"]
        row["clocks"] = Counter(call.clock or "none" for call in calls)
        row["launches without a time"] = [seen.no_event, seen.captured, seen.failed]
        share = row["timed"] / max(1, row["found"])
        good = row["first difference"] is None and share >= TIMED_SHARE
        print(f"  rank {seen.rank}: {row}: {'ok' if good else 'MISSED'}", flush=True)
    return found


def accuracy(options: argparse.Namespace, env: dict[str, str], place: Path) -> dict:
    """The median of the recorded times over that of the events, by function and elements."""
    folder, out = place / "accuracy", str(place / "events")
    words = ("accuracy", out, str(options.plugin))
    start(env | capturing(options.plugin, folder), options.ranks, *words)
    own: dict[str, list[float]] = {}
    recorded: dict[str, list[float]] = {}
    for path in sorted(folder.glob("*.capture")):
        seen = profiler_file.read(path)
        for call in json.loads(Path(f"{out}.{seen.rank}.json").read_text(encoding="utf-8")):
            own.setdefault(f"{call['function']} {call['count']}", []).append(call["us"])
        for call in profiler_calls.read_calls(seen).calls:
            if call.gpu_us is not None:
                recorded.setdefault(f"{call.function} {call.count}", []).append(call.gpu_us)
    found = {}
    for name, values in own.items():
        if len(recorded.get(name, [])) != len(values):
            sys.exit(f"{name}: {len(values)} calls, {len(recorded.get(name, []))} recorded times")
        medians = statistics.median(recorded[name]), statistics.median(values)
        percent = 100 * (medians[0] / medians[1] - 1)
        found[name] = {"n": len(values), "recorded_us": medians[0], "events_us": medians[1]}
        mark = "ok" if abs(percent) <= ACCURACY else "MISSED"
        times = f"{medians[0]:.1f} us recorded, {medians[1]:.1f} between events"
        print(f"  {name:28} {percent:+.2f} % ({times}): {mark}", flush=True)
    return found


def cost(values: list[float], usual: list[float]) -> tuple[float, float]:
    """The mean of the paired differences in percent, and half of its 95 % interval."""
    differences = [100 * (one / other - 1) for one, other in zip(values, usual, strict=True)]
    freedom = max(known for known in STUDENT if known <= max(min(STUDENT), len(values) - 1))
    half = STUDENT[freedom] * statistics.stdev(differences) / math.sqrt(len(differences))
    return statistics.mean(differences), half


def report(name: str, on: list[float], off: list[float]) -> dict:
    """Print and return the cost of a kind of capture."""
    mean, half = cost(on, off)
    limit = TRAIN_LIMITS[name]
    mark = "ok" if mean <= limit else "MISSED"
    print(f"  {name:6} {mean:+.2f} % (+-{half:.2f}), limit {limit} %: {mark}", flush=True)
    print(f"         of a step of {statistics.median(off):.2f} ms", flush=True)
    return {"percent": mean, "half": half, "on_ms": on, "off_ms": off}


def train(options: argparse.Namespace, env: dict[str, str], place: Path) -> dict:
    """Costs of a step in one process for each kind of capture, by what NCCL reports."""
    found = {}
    for mode in TRAIN_LIMITS:
        file = place / f"train_{mode}.json"
        words = ("train", str(file), str(options.plugin), str(options.pairs))
        start(env | capturing(options.plugin, place / mode, mode), options.ranks, *words)
        taken = json.loads(file.read_text(encoding="utf-8"))
        found[mode] = report(mode, taken["on"], taken["off"])
    return found


def jobs(options: argparse.Namespace, env: dict[str, str], place: Path) -> dict:
    """Costs of a step by jobs that take turns."""
    file = place / "steps.json"
    torchrun = ["torchrun", "--nproc-per-node", str(options.ranks), str(APP), "steps", str(file)]
    taken: dict[str, list[float]] = {"off": [], "cheap": [], "timed": []}
    for number in range(options.pairs):
        for name in list(taken)[:: 1 if number % 2 == 0 else -1]:
            capture = [
                sys.executable,
                "-m",
                "busbw",
                "capture",
                "--output",
                str(place / f"{number}{name}"),
            ]
            before = {"off": [], "cheap": [*capture, "--"], "timed": [*capture, "--timed", "--"]}
            variables = env | {"BUSBW_PLUGIN": str(options.plugin)}
            subprocess.run(
                [*before[name], *torchrun],
                env=variables,
                check=True,
                timeout=LIMIT_S,
                stdout=subprocess.DEVNULL,
            )
            taken[name].append(json.loads(file.read_text(encoding="utf-8")))
    return {name: report(name, taken[name], taken["off"]) for name in TRAIN_LIMITS}


def unpacked(library: Path, place: Path) -> Path:
    """The library, decompressed if its name ends in .xz."""
    if library.suffix != ".xz":
        return library.resolve()
    plain = place / library.stem
    with lzma.open(library) as packed, plain.open("wb") as out:
        shutil.copyfileobj(packed, out)
    return plain


PARTS = {"script": script, "accuracy": accuracy, "train": train, "jobs": jobs}


def main() -> None:
    """Run the parts with each NCCL."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plugin", type=Path, required=True)
    parser.add_argument("--nccl", type=Path, nargs="*", default=[])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--parts", default="script,accuracy,train")
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--pairs", type=int, default=12, help="8 or more")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    options.plugin = options.plugin.resolve()
    parts = options.parts.split(",")
    if options.pairs < 8 or not set(parts) <= set(PARTS):
        parser.error(f"8 pairs or more, and parts of {', '.join(PARTS)}")
    results: dict[str, dict] = {}
    for library in options.nccl or [None]:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            env = environment(unpacked(library, place) if library else None)
            name = library.name if library else "PyTorch's"
            results[name] = {}
            for part in parts:
                print(f"{name}, {part}", flush=True)
                results[name][part] = PARTS[part](options, env, place)
                if options.results:
                    text = json.dumps(results, indent=1)
                    options.results.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
