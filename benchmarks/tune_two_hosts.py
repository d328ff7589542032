"""Tunes NCCL between two emulated hosts (gpu_hosts.py) at 25 Gbit/s, with the built-in Socket
transport, in at most 8 minutes.

    tune_two_hosts.py FOLDER             all_reduce, then all_gather and reduce_scatter while time
                                         is left
    tune_two_hosts.py FOLDER settings    all_reduce alone, also with more channels and socket
        threads
    tune_two_hosts.py FOLDER sim         the first on simulated ranks, to try this program

Needs root, pyroute2, busbw[cuda13] and busbw-native (or BUSBW_PLUGIN). FOLDER gets the table, and
for each collective its result in JSON and what busbw said. The goal is at least 10 % less time at
five sizes or more, else the figures that NCCL's choice is best.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from busbw.core import json_codec
from busbw.tune import text as tune_text
from busbw.tune.types import TunedSize, Tuning

GBIT = 25
WITHIN_S = 460.0  # leaves time to stop the last command
LEAST_S = 200.0  # for another collective: a search of a minute, and eight runs
END_S = 15.0  # for an interrupted command to end its ranks
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
SIZES = ("-b", "1K", "-e", "64M", "-f", "4", "--max-time", "3")
GOAL, GOAL_SIZES = 0.10, 5
HOSTS = (sys.executable, str(Path(__file__).with_name("gpu_hosts.py")), str(GBIT))
SIMULATED = (sys.executable, "-m", "busbw")


def command(collective: str, folder: Path, kind: str) -> list[str]:
    """The command for one collective."""
    words = [
        *(SIMULATED if kind == "sim" else HOSTS),
        "tune",
        collective,
        *SIZES,
        "--output",
        str(folder / "table"),
        "--format",
        "json",
    ]
    words += (
        ["--engine", "sim", "--sim", "ll=2,channel_us=0.3", "-e", "1M"]
        if kind == "sim"
        else ["--net", "socket"]
    )
    return words if kind == "settings" else [*words, "--no-settings"]


def run(collective: str, folder: Path, left_s: float, kind: str) -> Tuning | None:
    """The outcome; None if it failed or was stopped after `left_s`."""
    with (folder / f"{collective}.log").open("w", encoding="utf-8") as log:
        words = command(collective, folder, kind)
        started = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
        try:
            out, _ = started.communicate(timeout=left_s)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGINT)
            try:
                out, _ = started.communicate(timeout=END_S)
            except subprocess.TimeoutExpired:
                os.killpg(started.pid, signal.SIGKILL)
                out, _ = started.communicate()
    if started.returncode:
        tail = (folder / f"{collective}.log").read_text(encoding="utf-8").splitlines()[-12:]
        sys.stdout.write("\n".join([f"{collective}: ended with {started.returncode}", *tail, ""]))
        if (folder / "table").exists():
            sys.stdout.write(
                "so far, not checked with new"
                f" ranks:\n"
                f"{(folder / 'table').read_text(encoding='utf-8')}"
            )
        return None
    (folder / f"{collective}.json").write_text(out, encoding="utf-8")
    return json_codec.decode(out, Tuning)


def gained(size: TunedSize) -> float:
    """The share of the time that is saved, in the check with new ranks; 0 where NCCL's choice
    stays.
    """
    return 1 - size.check.ratio if size.check and (size.kept or size.gain == size.check) else 0.0


def main(words: list[str]) -> int:
    """Tune and print."""
    kind = "".join(words[1:])
    if not words or kind not in ("", "settings", "sim"):
        sys.exit((__doc__ or "").strip())
    folder, end = Path(words[0]), time.monotonic() + WITHIN_S
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table").unlink(missing_ok=True)
    summary = {}
    for collective in COLLECTIVES[:1] if kind == "settings" else COLLECTIVES:
        left_s = end - time.monotonic()
        if left_s < LEAST_S:
            sys.stdout.write(f"{collective}: no time left\n")
            continue
        found = run(collective, folder, left_s, kind)
        if found is None:
            continue
        sizes = [gained(size) for size in found.sizes]
        enough = sum(share >= GOAL for share in sizes)
        reached = "reached" if enough >= GOAL_SIZES else "not reached"
        took_s = left_s - (end - time.monotonic())
        summary[collective] = {
            "sizes": len(sizes),
            "sizes_10_percent": enough,
            "most": max(sizes, default=0.0),
            "seconds": round(took_s, 1),
        }
        sys.stdout.write(tune_text.text(found, {}))
        sys.stdout.write(
            f"{enough} of {len(sizes)} sizes gain {GOAL:.0%} or more with new ranks, in"
            f" {took_s:.0f} s; the goal of "
        )
        sys.stdout.write(f"{GOAL_SIZES} is {reached}\n\n")
        sys.stdout.flush()
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return 0 if summary else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
