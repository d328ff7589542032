"""What busbw's profiler plugin records, and its cost: capture_app.py without it, with cheap and
with timed records, interleaved.

    capture_cost.py --compare RESULT FOLDER               part `events` of a sweep that was captured
        into FOLDER
    capture_cost.py --plugin libplugin.so [--parts script,replay,masks,events,loops] [--rounds 3]
        [--calls 100000] [--results FILE]
    capture_cost.py --plugin libplugin.so --parts rival --rival libnccl-profiler-inspector.so

script   whether every call was found, in order
replay   total time of the script compared with its replay
masks    loops with alternating event masks of NCCL, in one process
events   the plugin's durations compared with those of CUDA events
loops    PyTorch's loops and VGG16 steps, in separate processes
rival    the loops of masks in separate processes, alternating busbw's plugin and NCCL's Inspector
         (--rival)

All times with their spread.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from busbw.measure import profiler_calls, profiler_file
from busbw.pattern import pattern_lines
from busbw.pattern.registry import load

APP = Path(__file__).with_name("capture_app.py")
VARIANTS = ("none", "cheap", "timed")
INSPECTOR = "inspector "
# its dump interval: what its README sets, and 1 ms in effect
RIVALS = ("none", "cheap", "timed", f"{INSPECTOR}500", f"{INSPECTOR}999999")
LIMIT_S = 150


def environment(plugin: Path, variant: str, folder: Path) -> dict[str, str]:
    """Variables of a variant, with its records in `folder`.

    INSPECTOR + an interval is the rival.
    """
    env = {
        name: value for name, value in os.environ.items() if not name.startswith("BUSBW_CAPTURE")
    } | {"NCCL_NVLS_ENABLE": "0"}
    if variant.startswith(INSPECTOR):
        env |= {
            "NCCL_PROFILER_PLUGIN": str(plugin),
            "NCCL_INSPECTOR_ENABLE": "1",
            "NCCL_INSPECTOR_DUMP_DIR": str(folder),
        }
        env["NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS"] = variant.removeprefix(INSPECTOR)
    elif variant != "none":
        env |= {
            "NCCL_PROFILER_PLUGIN": str(plugin),
            "BUSBW_CAPTURE": str(folder),
            "BUSBW_CAPTURE_MODE": variant,
        }
    return env


def start(plugin: Path, variant: str, folder: Path, *arguments: str, ranks: int) -> None:
    """The application with a variant's records in `folder`."""
    env = environment(plugin, variant, folder)
    command = [
        "mpirun",
        "--allow-run-as-root",
        "-np",
        str(ranks),
        "--bind-to",
        "none",
        sys.executable,
        str(APP),
        *arguments,
    ]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode:
        sys.exit(
            f"{variant}: {arguments} ended with"
            f" {done.returncode}:\n"
            f"{done.stdout[-1000:]}{done.stderr[-3000:]}"
        )


def check_script(folder: Path, out: str) -> dict:
    """Compare what each rank called with what its file holds."""
    found = {}
    for path in sorted(folder.glob("*.capture")):
        seen = profiler_file.read(path)
        calls, unknown, _ = profiler_calls.read_calls(seen)
        called = json.loads(Path(f"{out}.{seen.rank}.json").read_text(encoding="utf-8"))
        comms = {number: at for at, number in enumerate(dict.fromkeys(call.comm for call in calls))}
        first = {
            number: at for at, number in enumerate(dict.fromkeys(call["comm"] for call in called))
        }
        have = [(comms[call.comm], call.function, call.count, call.dtype) for call in calls]
        want = [
            (first[call["comm"]], call["function"], call["count"], call["dtype"]) for call in called
        ]
        wrong = next(
            (at for at, (one, other) in enumerate(zip(have, want, strict=False)) if one != other),
            None,
        )
        timed = sum(call.gpu_ns is not None for call in calls)
        named = sum(call.algorithm is not None for call in calls)
        found[f"rank {seen.rank}"] = {
            "called": len(want),
            "found": len(have),
            "first difference": wrong if wrong is None else [wrong, have[wrong], want[wrong]],
            "timed": timed,
            "with algorithm": named,
            "unknown": unknown,
            "dropped": seen.dropped,
            "untimed": seen.untimed,
            "nccl": seen.nccl,
            "interface": seen.interface,
            "bytes": path.stat().st_size,
        }
    return found


def busbw(plugin: Path, variant: str, folder: Path, *arguments: str, file: Path) -> dict:
    """The result of a busbw command."""
    command = [sys.executable, "-m", "busbw", *arguments, "--json", str(file), "--force"]
    done = subprocess.run(
        command,
        env=environment(plugin, variant, folder),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode not in (0, 1):
        sys.exit(
            f"{variant}: {arguments} ended with"
            f" {done.returncode}:\n"
            f"{done.stdout[-1000:]}{done.stderr[-3000:]}"
        )
    return json.loads(file.read_text(encoding="utf-8"))


def masks(options: argparse.Namespace, place: Path) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Microseconds of all_reduce in loops with alternating event masks of NCCL, in one process
    for each mode.
    """
    found = {}
    for variant in VARIANTS[1:]:
        file = place / "masks.json"
        start(
            options.plugin,
            variant,
            place / f"masks-{variant}",
            "masks",
            str(file),
            str(options.plugin),
            ranks=options.ranks,
        )
        found[variant] = json.loads(file.read_text(encoding="utf-8"))
        for size, by_mask in found[variant].items():
            usual = statistics.median(by_mask["none"])
            for name, values in by_mask.items():
                more = statistics.median(values) - usual
                print(
                    f"{size:>10} B, {variant}, events: {name:5} {spread(values)} us a call,"
                    f" {more:+.2f} ({100 * more / usual:+.1f} %)",
                    flush=True,
                )
    return found


def events(options: argparse.Namespace, place: Path) -> dict[str, dict[str, float]]:
    """As `compared`, of a sweep over local ranks."""
    folder = place / "events"
    words = (
        "run",
        "all_reduce",
        "-np",
        str(options.ranks),
        "-b",
        "1M",
        "-e",
        "1G",
        "-f",
        "4",
        "--check",
        "0",
        "--precision",
        "1%",
    )
    return compared(
        busbw(options.plugin, "timed", folder, *words, file=place / "events.json"), folder
    )


def compared(result: dict, folder: Path) -> dict[str, dict[str, float]]:
    """The medians of the plugin and of CUDA events for each size; precise timing puts the events
    around the same calls.
    """
    files = [profiler_file.read(path) for path in sorted(folder.glob("*.capture"))]
    seen: list[dict[int, list[float]]] = [{} for _ in files]
    for by_size, file in zip(seen, files, strict=True):
        for call in profiler_calls.read_calls(file).calls:
            if call.function == "all_reduce" and call.gpu_us is not None:
                by_size.setdefault(4 * call.count, []).append(call.gpu_us)
    found = {}
    for row in result["rows"]:
        size, cell = row["size_bytes"], row["out_of_place"]
        shortest = [
            min(one) for one in zip(*(by_size.get(size, []) for by_size in seen), strict=False)
        ]
        plugin, by_events = (
            statistics.median(shortest or [float("nan")]),
            1e6 * (cell["op_s"] or cell["time_s"]),
        )
        found[str(size)] = {
            "events_us": by_events,
            "plugin_us": plugin,
            "time_us": 1e6 * cell["time_s"],
        }
        print(
            f"{size:>10} B events {by_events:9.2f}, plugin {plugin:9.2f} us:"
            f" {100 * (plugin / by_events - 1):+.1f} %",
            flush=True,
        )
    return found


def replayed(options: argparse.Namespace, place: Path) -> dict[str, float]:
    """Total communication times of a captured script and of its replay, both by the plugin."""
    pattern = load([str(place / "script-timed")])
    file = place / "pattern.jsonl"
    file.write_bytes(b"".join(pattern_lines.lines(pattern)))
    words = ("replay", str(file), "-np", str(options.ranks), "--repeats", "3", "--engine", "nccl")
    os.environ["BUSBW_PLUGIN"] = str(options.plugin)
    result = busbw(options.plugin, "none", place / "replay", *words, file=place / "replay.json")
    rows = result["replay"]["rows"]
    both = [row for row in rows if row.get("times") and row["row"].get("gpu_us")]
    then = sum(
        row["row"]["calls"] * row["row"]["gpu_us"]["total"] / row["row"]["gpu_us"]["n"]
        for row in both
    )
    now = sum(row["row"]["calls"] * row["times"]["total"] / row["times"]["n"] for row in both)
    change = 100 * (now / then - 1) if then else float("nan")
    print(
        f"replay: {len(both)} of {len(rows)} rows by {both[0]['kind'] if both else 'nothing'}",
        flush=True,
    )
    print(
        f"  recorded {then / 1e3:.1f} ms, replayed {now / 1e3:.1f} ms: {change:+.1f} %; wall"
        f" {result['replay']['wall_s']}",
        flush=True,
    )
    return {"rows": len(both), "recorded_ms": then / 1e3, "replayed_ms": now / 1e3}


def rival(options: argparse.Namespace, place: Path) -> dict[str, dict[str, list[float]]]:
    """Medians of the loops in each process, by variant and bytes; and lines that the Inspector
    wrote.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(options.rounds):
        for variant in RIVALS if number % 2 == 0 else RIVALS[::-1]:
            file, folder = place / "rival.json", place / f"{variant}-{number}"
            plugin = options.rival if variant.startswith(INSPECTOR) else options.plugin
            start(plugin, variant, folder, "masks", str(file), "-", ranks=options.ranks)
            by_size = found.setdefault(variant, {})
            for size, by_mask in json.loads(file.read_text(encoding="utf-8")).items():
                by_size.setdefault(size, []).append(statistics.median(by_mask["own"]))
            if variant.startswith(INSPECTOR):
                lines = sum(
                    path.read_text(encoding="utf-8").count("\n") for path in folder.glob("*.log")
                )
                by_size.setdefault("records", []).append(lines)
    for variant, by_size in found.items():
        for size, values in by_size.items():
            more = 100 * (
                statistics.median(values) / statistics.median(found["none"].get(size, values)) - 1
            )
            print(f"{size:>10} {variant:16} {spread(values)} {more:+.1f} %", flush=True)
    return found


PARTS = ("script", "replay", "masks", "events", "loops")


def options_given() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", type=Path)
    parser.add_argument("--rival", type=Path)
    parser.add_argument("--compare", type=Path, nargs=2)
    parser.add_argument("--rounds", type=int, default=3, help="of the loops")
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--results", type=Path)
    return parser.parse_args()


def scripts(options: argparse.Namespace, place: Path) -> dict:
    """Both modes' records of the script."""
    found = {}
    for variant in VARIANTS[1:]:
        folder = place / f"script-{variant}"
        start(
            options.plugin,
            variant,
            folder,
            "script",
            str(options.calls),
            f"{folder}-called",
            ranks=options.ranks,
        )
        found[variant] = check_script(folder, f"{folder}-called")
        print(variant, json.dumps(found[variant]), flush=True)
    return found


def loops(options: argparse.Namespace, place: Path) -> dict[str, list[dict]]:
    """Measurements of each process, by variant."""
    rounds: dict[str, list[dict]] = {name: [] for name in VARIANTS}
    for number in range(options.rounds):
        for variant in VARIANTS if number % 2 == 0 else VARIANTS[::-1]:
            start(
                options.plugin,
                variant,
                place / f"{variant}-{number}",
                "loops",
                str(place / "times.json"),
                ranks=options.ranks,
            )
            rounds[variant].append(json.loads((place / "times.json").read_text(encoding="utf-8")))
    table(rounds)
    return rounds


WORK = {
    "script": scripts,
    "replay": replayed,
    "masks": masks,
    "events": events,
    "loops": loops,
    "rival": rival,
}


def main() -> None:
    """All of it."""
    options = options_given()
    if options.compare:
        compared(json.loads(options.compare[0].read_text(encoding="utf-8")), options.compare[1])
        return
    seen = {}
    with tempfile.TemporaryDirectory() as made:
        for part in options.parts.split(","):
            seen[part] = WORK[part](options, Path(made))
            if options.results:
                options.results.write_text(json.dumps(seen, indent=1), encoding="utf-8")


def spread(values: list[float]) -> str:
    """Median, least and largest."""
    return f"{statistics.median(values):9.2f} ({min(values):.2f} to {max(values):.2f})"


def table(rounds: dict[str, list[dict]]) -> None:
    """Medians over the rounds with least and largest."""

    print(f"\n{len(rounds['none'])} rounds: us a call, none | cheap | timed")
    for size in rounds["none"][0]["loops"]:
        for kind in ("host", "enqueue"):
            print(
                f"{size:>10} B {kind:8}",
                " | ".join(
                    spread([one["loops"][size][kind] for one in rounds[name]]) for name in VARIANTS
                ),
            )
    print(
        "VGG16 ms a step   ",
        " | ".join(spread([one["vgg16_ms"] for one in rounds[name]]) for name in VARIANTS),
        flush=True,
    )


if __name__ == "__main__":
    main()
