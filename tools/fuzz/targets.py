"""Which commands of busbw are tried on which files.

In a command, `FILE` is the changed file, `SEED` one as it was.
"""

import json
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 60_000  # bytes of a file to begin with
FILE, SEED = "FILE", "SEED"


@dataclass(frozen=True)
class Target:
    """A kind of file, the real ones to begin with, and the commands that read it."""

    name: str
    seeds: tuple[str, ...]  # patterns below the checkout
    commands: tuple[str, ...]
    suffix: str = ".json"
    texts: tuple[str, ...] = ()  # more seeds

    def files(self) -> list[bytes]:
        """Contents of the seeds, without large ones."""
        found = [
            path for pattern in self.seeds for path in sorted(ROOT.glob(pattern)) if path.is_file()
        ]
        contents = [path.read_bytes() for path in found] + [text.encode() for text in self.texts]
        return [data for data in contents if 0 < len(data) <= LARGEST]


def _timed() -> tuple[str, ...]:
    """Snapshots of one host on two days."""
    text = (ROOT / "tests/hosts/h100x8-ib.jsonl").read_text()
    return tuple(
        text + json.dumps({"call": "time", "text": f"2026-11-{day}T10:00:00+00:00"}) + "\n"
        for day in (20, 25)
    )


RESULTS = (
    f"show {FILE}",
    f"show {FILE} --format csv",
    f"show {FILE} --format torch-csv",
    f"show {FILE} --format markdown",
    f"show {FILE} --format brief",
    f"show {FILE} --format json",
    f"show {FILE} --format nccl-tests",
    f"show {FILE} --format nccl-tests-json",
    f"explain {FILE} --system h100x8 --nics 8x400G",
    f"explain {FILE}",
    f"compare {FILE} {FILE}",
    f"report {FILE} --output OUT/report.html",
    f"history add {FILE} --db OUT/history.sqlite",
    f"predict all_reduce --system h100x8 --nodes 2 --nics 8x400G --calibrate {FILE}",
)
SCRIPTS = (
    (
        "#!/bin/bash\n"
        "#SBATCH -N 2\n"
        "export NCCL_DEBUG=INFO\n"
        "mpirun -np 16 -H h1:8,h2:8 -x NCCL_IB_HCA=mlx5 --bind-to none ./all_reduce_perf -b 8 -e"
        " 8G -f 2 -g 1\n"
    ),
    (
        "srun --mpi=pmix -N 2 --ntasks-per-node=8 python train.py \\\n"
        "  --lr 1e-4\n"
        "torchrun --nnodes 2 --nproc-per-node 8 t.py\n"
    ),
)
HOSTS = ("h1 slots=8\nh2 slots=8\n# rack 2\n10.0.0.3:4\n[fe80::1] slots=2 max_slots=4\n",)
MATRICES = ("0 1 2 3\n1 0 3 2\n2 3 0 1\n3 2 1 0\n",)
TARGETS: tuple[Target, ...] = (
    Target("results", ("benchmarks/*/*.json",), RESULTS),
    Target("nccl-tests JSON", ("tests/recorded/nccl_tests/*.json",), RESULTS),
    Target(
        "nccl-tests text",
        ("tests/recorded/nccl_tests/**/*.txt", "tests/recorded/nccl_tests/old/*"),
        RESULTS,
        ".txt",
    ),
    Target(
        "patterns",
        (
            "tests/recorded/patterns/*",
            "tests/recorded/pattern/*",
            "tests/recorded/nccl_model/*.log",
        ),
        (
            f"pattern {FILE}",
            f"pattern {FILE} --format json",
            f"pattern {FILE} --format pattern-csv",
            f"show {FILE}",
            f"predict --pattern {FILE} --system h100x8 --nodes 2 --nics 8x400G",
            f"replay {FILE} -np 2 --engine mpi --dry-run",
        ),
        ".txt",
    ),
    Target(
        "snapshots",
        ("tests/hosts/*.jsonl",),
        (f"check --from {FILE}", f"check --from {FILE} --brief", f"show {FILE}"),
        ".jsonl",
    ),
    Target("topologies", ("tests/recorded/nccl_model/*.xml",), (f"ideal --topo {FILE}",), ".xml"),
    Target(
        "trends",
        (),
        (f"check trend {FILE} {SEED}", f"check --from {FILE} --from {SEED}"),
        ".jsonl",
        _timed(),
    ),
    Target("scripts", (), (f"check command {FILE}",), ".sh", SCRIPTS),
    Target(
        "host files", (), (f"run all_reduce --engine mpi --hostfile {FILE} --dry-run",), "", HOSTS
    ),
    Target(
        "matrices",
        (),
        (f"run alltoallv -np 4 -e 1M --engine sim --counts {FILE}",),
        ".csv",
        MATRICES,
    ),
)
