"""Records what a machine with several GPUs shows: collectives, loops, an application, tuning, and
emulated hosts with a part of the GPUs each. node_steps.py lists the commands.

    record_node.py FOLDER [--gpus 8] [--parts net,train] [--within 560] [--reference COMMAND]

Each command's output goes to FOLDER/PART/NAME.txt, behind the command itself, and its results
beside it. A command has a limit; then, or if it fails, the next one runs. FOLDER/steps.jsonl has
the exit code and the seconds of each. Called again with the same FOLDER, it runs what has not
succeeded, so that a record can be made by several calls of --within seconds. A command of a result
counts as failed too if it did not write its file. Exit code 1 if a command failed, 3 if some are
left for another call.

COMMAND starts one of nccl-tests' programs, built with MPI: '/opt/nccl-tests/{collective}_perf'.

Needs root, pyroute2, busbw[cuda13,torch], busbw-native (or BUSBW_PLUGIN), an mpirun, gcc and CUDA's
headers.
"""

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from types import FrameType

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "src"))

from node_steps import PARTS, Machine, Step, layouts, steps  # noqa: E402 - imports from the path above

from busbw.lab.gpus import visible_gpus  # noqa: E402

PROGRAMS = {
    "python3": (sys.executable,),
    "busbw": (sys.executable, "-m", "busbw"),
    "torchrun": (sys.executable, "-m", "torch.distributed.run"),
}
END_S = 15.0  # for an interrupted command to end its ranks
TIMED_OUT, NOT_STARTED = 124, 127  # as shells have them
LEAST_S = 5.0  # of the time that is left, to start another command


def expanded(command: str) -> list[str]:
    """The words of a step's command, with interpreters and paths."""
    words: list[str] = []
    for word in shlex.split(command):
        starts_command = not words or words[-1] == "--"
        path = HERE / word
        if starts_command and word in PROGRAMS:
            words += PROGRAMS[word]
        elif word.endswith(".py") and path.is_file():
            words += [sys.executable, str(path)] if starts_command else [str(path)]
        else:
            words.append(word)
    return words


def environment() -> dict[str, str]:
    """With this checkout's modules."""
    paths = [str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "BUSBW_HISTORY": "false",
        "COLUMNS": "140",
    }


def ended(started: subprocess.Popen[bytes], limit_s: float) -> int:
    """The exit code; TIMED_OUT if it had to be stopped. None of its processes is left."""
    try:
        return started.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(timeout=END_S)
        return TIMED_OUT
    finally:  # also if this program is interrupted
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def is_good(step: Step, code: int, folder: Path, begin_ns: int) -> bool:
    """Whether a step has a result: its exit code says so, and it has written its file. An
    exception of Python ends with 1 too.
    """
    words = shlex.split(step.command)
    files = [folder / word for before, word in pairwise(words) if before == "--json"]
    written = all(file.exists() and file.stat().st_mtime_ns >= begin_ns for file in files)
    return code in step.good and written


def run(step: Step, folder: Path, limit_s: float) -> tuple[int, float]:
    """The exit code and the seconds of a step, whose output goes to its file."""
    file = folder / step.part / f"{step.name}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    for before, word in pairwise(shlex.split(step.command)):
        if word.startswith(f"{step.part}/"):
            (folder / word).parent.mkdir(parents=True, exist_ok=True)
        if before == "--output":  # the folder of an attempt that failed, which capture would refuse
            shutil.rmtree(folder / word, ignore_errors=True)
    begin = time.monotonic()
    with file.open("wb") as output:
        output.write(f"$ {step.command}\n".encode())
        output.flush()
        try:
            started = subprocess.Popen(
                expanded(step.command),
                cwd=folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            output.write(f"{error}\n".encode())
            code = NOT_STARTED
        else:
            code = ended(started, limit_s)
    return code, time.monotonic() - begin


def earlier(record: Path) -> dict[tuple[str, str], bool]:
    """The steps of earlier calls, and whether they succeeded."""
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["part"], row["name"]): row["good"] for row in rows}


def to_run(every: Iterable[Step], done: dict[tuple[str, str], bool]) -> list[Step]:
    """What has not succeeded, and what summarizes it; what has failed before comes last."""
    wanted = [step for step in every if step.summarizes or not done.get((step.part, step.name))]
    return sorted(wanted, key=lambda step: (step.part, step.name) in done)


def run_all(wanted: Iterable[Step], folder: Path, within_s: float) -> int:
    """Run what has not succeeded, and print a line for each."""
    end, record = time.monotonic() + within_s, folder / "steps.jsonl"
    failed, left = 0, 0
    for step in to_run(wanted, earlier(record)):
        left_s = end - time.monotonic()
        if left_s < LEAST_S + END_S:
            left += 1
            continue
        begin_ns = time.time_ns()
        code, took_s = run(step, folder, min(step.limit_s, left_s - END_S))
        good = is_good(step, code, folder, begin_ns)
        cut_off = code == TIMED_OUT and took_s < step.limit_s
        failed, left = failed + (not good and not cut_off), left + cut_off
        row = {"part": step.part, "name": step.name, "code": code, "good": good}
        with record.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({**row, "seconds": round(took_s, 1)}) + "\n")
        outcome = "" if good or cut_off else ", failed"
        print(f"{step.part}/{step.name}: exit code {code}, {took_s:.1f} s{outcome}", flush=True)
    print(f"{failed} failed, {left} left for another call")
    return 1 if failed else 3 * bool(left)


def pairs(text: str) -> list[tuple[int, int]]:
    """The numbers of 2x4,4x2."""
    found = []
    for word in text.split(","):
        hosts, _, own = word.partition("x")
        found.append((int(hosts), int(own)))
    return found


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM ends the running command as Ctrl-C does."""
    raise KeyboardInterrupt


def main() -> int:
    """Record."""
    signal.signal(signal.SIGTERM, interrupt)
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="\n".join(["parts:", *(f"  {name:12} {text}" for name, text in PARTS.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpus", type=int, help="default: all")
    parser.add_argument(
        "--layouts", type=pairs, help="emulated hosts and GPUs of each, like 2x4,4x2"
    )
    parser.add_argument("--parts", default=",".join(PARTS), help="some of those below")
    parser.add_argument("--within", type=float, default=560.0, metavar="SECONDS")
    parser.add_argument("--reference", default="", metavar="COMMAND")
    parser.add_argument("--list", action="store_true", help="print the commands, and run none")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if unknown := sorted(set(parts) - set(PARTS)):
        parser.error(f"--parts {','.join(unknown)}: the parts are {', '.join(PARTS)}")
    gpus = options.gpus or len(visible_gpus())
    if gpus < 1:
        parser.error("no GPU here: give --gpus with --list to see the commands")
    machine = Machine(gpus, os.cpu_count() or 1, options.layouts or layouts(gpus))
    every = steps(machine, options.reference)
    wanted = [step for step in every if step.part in parts]
    if options.list:
        print("\n".join(f"{step.part}/{step.name}: {step.command}" for step in wanted))
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    return run_all(wanted, options.folder.resolve(), options.within)


if __name__ == "__main__":
    sys.exit(main())
