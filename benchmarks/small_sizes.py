"""Small sizes on GPUs: busbw's loops in Python and in busbw-native, and nccl_loop.c, interleaved.

    small_sizes.py [--ranks 1,2,4] [--rounds 20] [--tools 0] [--reference TEMPLATE] [--json FILE]
        [--compat TEMPLATE] [--collectives all_reduce,...] [--loops native,python] [--largest 64K]

First in one process per GPU: the three loops alternate on the same communicator and buffers, for
every collective from 8 B to --largest, in and out of place. Then, in `--tools` rounds, whole
commands: busbw's commands of nccl-tests' names with these loops, the C program, and, if given, the
command TEMPLATE that prints nccl-tests' table (built with MPI), with {collective} and {ranks}.
--compat replaces how busbw's commands are run, `mpirun --oversubscribe --bind-to none`, with
{folder} and {largest} too; it must pass BUSBW_LOOP to the ranks. The C program runs without mpirun,
and without alltoallv.

    small_sizes.py --tools 5 --reference 'mpirun --oversubscribe --bind-to none -np {ranks}
        {collective}_perf -b8 -e64K -f2 -c0'

Prints a line for each collective and number of ranks: how many sizes and placements are not slower
than the reference (TEMPLATE, or else the C loop) by over 3 % or 0.3 us, the worst of them, and the
times at the smallest size, with those of enqueueing in parentheses. All are medians over the rounds
of means over the ranks.

Needs GPUs, busbw with its packages for them, an mpirun, gcc, CUDA's headers, and NCCL 2.28 or
newer. BUSBW_PLUGIN names busbw-native's library if it is not installed.
"""

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "src"))

from busbw.core.collectives import BY_NAME, COLLECTIVES  # noqa: E402 - found by the path above
from busbw.core.result import Result  # noqa: E402
from busbw.core.sizes import parse_size  # noqa: E402
from busbw.report.read import read  # noqa: E402

LOOPS = ("native", "python")
WITHIN, WITHIN_US = 0.03, 0.3
LIMIT_S = 300.0  # of one command
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np")
COMPAT = f"{shlex.join(MPIRUN)} {{ranks}} {{folder}}/{{collective}}_perf -b8 -e{{largest}} -f2 -c0"
# ranks, collective, size, in place -> loop -> microseconds of each round
Times = dict[tuple[int, str, int, bool], dict[str, list[float]]]


def include_folders() -> Iterator[Path]:
    """Where headers of CUDA and NCCL may be."""
    nvcc = shutil.which("nvcc")
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    homes += [str(Path(nvcc).resolve().parents[1])] if nvcc else []
    yield from (Path(home, "include") for home in homes if home)
    triton = importlib.util.find_spec("triton")
    for folder in triton.submodule_search_locations or () if triton else ():
        yield Path(folder, "backends/nvidia/include")
    yield from (folder.parent / "include" for folder in wheel_folders())


def wheel_folders() -> list[Path]:
    """The folders of libraries in NVIDIA's wheels."""
    spec = importlib.util.find_spec("nvidia")
    roots = map(Path, spec.submodule_search_locations or ()) if spec else ()
    return [folder for root in roots for folder in sorted(root.glob("*/lib"))]


def build(folder: Path) -> tuple[Path, Path]:
    """The C loop as a program and as a library."""
    includes = [f"-I{path}" for path in include_folders() if path.is_dir()]
    libraries: list[str] = []
    for name in ("libcudart.so*", "libnccl.so.2"):
        files = [file for lib in wheel_folders() for file in lib.glob(name)]
        files += list(Path("/usr/local/cuda/lib64").glob(name))
        if not files:
            sys.exit(f"no {name} in NVIDIA's wheels or in /usr/local/cuda")
        libraries += [str(files[0]), f"-Wl,-rpath,{files[0].parent}"]
    outputs = folder / "nccl_loop", folder / "nccl_loop.so"
    options = [], ["-shared", "-fPIC", "-DNCCL_LOOP_LIBRARY"]
    for output, flags in zip(outputs, options, strict=True):
        source = HERE / "nccl_loop.c"
        command = ["gcc", "-O2", *flags, *includes, source, "-o", output, *libraries]
        subprocess.run(command, check=True)
    return outputs


def run(command: Sequence[object], **variables: str) -> str:
    """The stdout of a command, which must succeed."""
    words = [str(word) for word in command]
    path = os.pathsep.join(filter(None, [str(HERE.parent / "src"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    done = subprocess.run(
        words, env=environment, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode:
        sys.exit(f"{shlex.join(words)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def measure_loops(ranks: int, options: argparse.Namespace, library: Path, folder: Path) -> Times:
    """All loops in one process per GPU."""
    answer = folder / "loops.json"
    program = [sys.executable, HERE / "small_sizes_rank.py", library]
    run([*MPIRUN, ranks, *program, options.largest, options.rounds, answer])
    rows = json.loads(answer.read_text(encoding="ascii"))
    return {(ranks, name, size, in_place): loops for name, size, in_place, loops in rows}


def of_result(result: Result, ranks: int, loop: str, times: Times) -> None:
    """Add the rows of a result."""
    name = result.spec.collective
    for row in result.rows:
        for in_place, cell in ((False, row.out_of_place), (True, row.in_place)):
            if cell is not None and row.count:
                cell_times = times[ranks, name, row.size_bytes, in_place]
                cell_times.setdefault(loop, []).append(1e6 * cell.time_s)


def measure_tools(
    ranks: int, number: int, program: Path, options: argparse.Namespace, folder: Path, times: Times
) -> None:
    """One round of whole commands, in another order each time."""
    names, loops = options.collectives.split(","), options.loops.split(",")
    if ranks & ranks - 1:
        names = [name for name in names if not BY_NAME[name].ranks_power_of_two]
    for line in run([program, options.largest, ranks, "all"]).splitlines():
        name, size, *micros = line.split()
        if name not in names:
            continue
        for in_place, micro in zip((False, True), micros, strict=True):
            times[ranks, name, int(size), in_place].setdefault("C", []).append(float(micro))
    templates = [(options.compat, loop) for loop in loops]
    templates += [(options.reference, "reference")] if options.reference else []
    for name in names[number % len(names) :] + names[: number % len(names)]:
        for template, loop in templates if number % 2 else templates[::-1]:
            command = template.format(
                collective=name, ranks=ranks, folder=folder, largest=options.largest
            )
            text = run(shlex.split(command), BUSBW_LOOP="" if loop == "reference" else loop)
            result = read(text.encode(), f"{name} of {loop}")
            assert isinstance(result, Result)
            of_result(result, ranks, loop, times)


def excess(micro: float, reference: float) -> float:
    """How far a time is above the reference, in units of what is allowed."""
    return (micro - reference) / max(WITHIN * reference, WITHIN_US)


def smallest(loop: str, micros: dict[str, float]) -> str:
    """The time of a loop, and in parentheses that of enqueueing."""
    enqueue = micros.get(f"{loop} enqueue")
    return f"{loop} {micros[loop]:.2f}" + ("" if enqueue is None else f" ({enqueue:.2f})")


def line(name: str, ranks: int, times: Times) -> str:
    """The line of one collective and number of ranks."""
    medians = {
        (size, in_place): {loop: statistics.median(micros) for loop, micros in loops.items()}
        for (cell_ranks, cell_name, size, in_place), loops in sorted(times.items())
        if (cell_ranks, cell_name) == (ranks, name)
    }
    words = [f"{name:14} {ranks}"]
    for loop in LOOPS:
        cells = {}
        for cell, micros in medians.items():
            reference = micros.get("reference", micros.get("C"))
            if reference and loop in micros:
                cells[cell] = (micros[loop], reference)
        if not cells:
            words.append(f"{loop} -")
            continue
        within = sum(excess(*pair) <= 1 for pair in cells.values())
        (size, in_place), (micro, reference) = max(cells.items(), key=lambda row: excess(*row[1]))
        place = "in" if in_place else "out"
        worst = f"{size} {place} {micro:.2f}/{reference:.2f}"
        words.append(f"{loop} {within:2}/{len(cells)} worst {worst:24}")
    if medians:
        least, loops = next(iter(medians.items()))
        shown = [smallest(loop, loops) for loop in ("C", *LOOPS, "reference") if loop in loops]
        words.append(f"{least[0]} B: {', '.join(shown)}")
    return " | ".join(words)


def show(title: str, times: Times) -> None:
    """Print a line for each collective and number of ranks."""
    print(f"# {title}; us; n/m not slower by over {100 * WITHIN:g} % or {WITHIN_US} us", flush=True)
    for ranks in sorted({key[0] for key in times}):
        for row in COLLECTIVES:
            if any(key[:2] == (ranks, row.name) for key in times):
                print(line(row.name, ranks, times), flush=True)


def keep(file: Path | None, loops: Times, tools: Times) -> None:
    """Write all rounds until now."""
    if file:
        parts = {"loops": list(loops.items()), "tools": list(tools.items())}
        file.write_text(json.dumps(parts), encoding="ascii")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tools", type=int, default=0)
    parser.add_argument("--reference", default="")
    parser.add_argument("--compat", default=COMPAT)
    parser.add_argument("--collectives", default=",".join(BY_NAME))
    parser.add_argument("--loops", default=",".join(LOOPS))
    parser.add_argument("--largest", type=parse_size, default="64K")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    counts = [int(word) for word in options.ranks.split(",")]
    loops: Times = {}
    tools: Times = defaultdict(dict)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, library = build(folder)
        if options.rounds:
            for ranks in counts:
                loops |= measure_loops(ranks, options, library, folder)
            show("loops that alternate in one process per GPU", loops)
            keep(options.json, loops, tools)
        if options.tools:
            run([sys.executable, "-m", "busbw", "compat", folder])
        for number in range(options.tools):
            for ranks in counts:
                measure_tools(ranks, number, program, options, folder, tools)
            show(f"whole commands, {number + 1} rounds", tools)
            keep(options.json, loops, tools)


if __name__ == "__main__":
    main()
