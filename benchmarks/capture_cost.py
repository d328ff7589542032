"""What busbw's profiler plugin finds, and what it costs: capture_app.py without it, with cheap and with timed records, in turn.

    capture_cost.py --plugin libplugin.so [--rounds 3] [--calls 100000] [--results FILE]

Prints whether every call of the script was found in order, times of loops and of VGG16 steps by variant with their spread, and the
plugin's durations beside those of CUDA events.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from busbw.capture import process_calls, process_file

APP = Path(__file__).with_name("capture_app.py")
VARIANTS = ("none", "cheap", "timed")
LIMIT_S = 150


def start(plugin: Path, variant: str, folder: Path, *arguments: str, ranks: int) -> None:
    """The application with a variant's records in `folder`."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("BUSBW_CAPTURE")} | {"NCCL_NVLS_ENABLE": "0"}
    if variant != "none":
        env |= {"NCCL_PROFILER_PLUGIN": str(plugin), "BUSBW_CAPTURE": str(folder), "BUSBW_CAPTURE_MODE": variant}
    command = ["mpirun", "--allow-run-as-root", "-np", str(ranks), "--bind-to", "none", sys.executable, str(APP), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        sys.exit(f"{variant}: {arguments} ended with {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")


def check_script(folder: Path, out: str) -> dict:
    """Compare what each rank called with what its file holds."""
    found = {}
    for path in sorted(folder.glob("*.capture")):
        seen = process_file.read(path)
        calls, unknown = process_calls.calls(seen)
        called = json.loads(Path(f"{out}.{seen.rank}.json").read_text(encoding="utf-8"))
        comms = {number: at for at, number in enumerate(dict.fromkeys(call.comm for call in calls))}
        first = {number: at for at, number in enumerate(dict.fromkeys(call["comm"] for call in called))}
        have = [(comms[call.comm], call.function, call.count, call.dtype) for call in calls]
        want = [(first[call["comm"]], call["function"], call["count"], call["dtype"]) for call in called]
        wrong = next((at for at, (one, other) in enumerate(zip(have, want, strict=False)) if one != other), None)
        timed = sum(call.gpu_ns is not None for call in calls)
        named = sum(call.algorithm is not None for call in calls)
        found[f"rank {seen.rank}"] = {
            "called": len(want), "found": len(have), "first difference": wrong if wrong is None else [wrong, have[wrong], want[wrong]],
            "timed": timed, "with algorithm": named, "unknown": unknown, "dropped": seen.dropped, "untimed": seen.untimed,
            "nccl": seen.nccl, "interface": seen.interface, "bytes": path.stat().st_size,
        }  # fmt: skip
    return found


def plugin_times(folder: Path) -> dict[str, float]:
    """Medians of the calls that capture_app.py put between events, by bytes: of each size the last 30."""
    path = min(folder.glob("*.capture"), key=lambda path: process_file.read(path).rank or 0)
    calls, _ = process_calls.calls(process_file.read(path))
    by_size: dict[int, list[float]] = {}
    for call in calls:
        if call.function == "all_reduce" and call.dtype == "float" and call.gpu_us is not None:
            by_size.setdefault(4 * call.count, []).append(call.gpu_us)
    from capture_app import LOOPS

    return {str(size): statistics.median(by_size[size][-30:]) for size in LOOPS if size in by_size}


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    seen: dict = {"script": {}, "rounds": {name: [] for name in VARIANTS}, "plugin": []}
    with tempfile.TemporaryDirectory() as place:
        for variant in VARIANTS[1:]:
            folder = Path(place, f"script-{variant}")
            start(options.plugin, variant, folder, "script", str(options.calls), f"{folder}-called", ranks=options.ranks)
            seen["script"][variant] = check_script(folder, f"{folder}-called")
            print(variant, json.dumps(seen["script"][variant], indent=1), flush=True)
        for number in range(options.rounds):
            for variant in VARIANTS if number % 2 == 0 else VARIANTS[::-1]:
                folder = Path(place, f"{variant}-{number}")
                start(options.plugin, variant, folder, "loops", f"{place}/times.json", ranks=options.ranks)
                seen["rounds"][variant].append(json.loads(Path(place, "times.json").read_text(encoding="utf-8")))
                if variant == "timed":
                    seen["plugin"].append(plugin_times(folder))
                if options.results:
                    options.results.write_text(json.dumps(seen, indent=1), encoding="utf-8")
            table(seen)


def table(seen: dict) -> None:
    """Medians over the rounds with least and largest."""

    def spread(values: list[float]) -> str:
        return f"{statistics.median(values):9.2f} ({min(values):.2f} to {max(values):.2f})"

    rounds = seen["rounds"]
    print(f"\n{len(rounds['none'])} rounds: us a call, none | cheap | timed")
    for size in rounds["none"][0]["loops"]:
        for kind in ("host", "enqueue"):
            print(f"{size:>10} B {kind:8}", " | ".join(spread([one["loops"][size][kind] for one in rounds[name]]) for name in VARIANTS))
        events = statistics.median([one["loops"][size]["event"] for one in rounds["timed"]])
        plugin = statistics.median([one.get(size, float("nan")) for one in seen["plugin"]])
        print(f"{size:>10} B events {events:.2f}, plugin {plugin:.2f} us: {100 * (plugin / events - 1):+.1f} %")
    print("VGG16 ms a step   ", " | ".join(spread([one["vgg16_ms"] for one in rounds[name]]) for name in VARIANTS), flush=True)


if __name__ == "__main__":
    main()
