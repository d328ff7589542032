"""Rows of the table of commands: applications and tuning."""

from busbw.cli.table.row import TRAIN, Row

ROWS = (
    Row(
        "capture",
        TRAIN,
        "Record what an application sends.",
        (
            (
                "every rank of a training",
                "busbw capture -o run1 -- torchrun --nproc-per-node 8 train.py",
            ),
            (
                "with times, under mpirun",
                "busbw capture -o run1 --timed -- mpirun -n 8 python train.py",
            ),
            ("print what it sent", "busbw show run1"),
        ),
    ),
    Row(
        "replay",
        TRAIN,
        "Run what an application sends, without the application.",
        (
            ("a capture, on the GPUs of this machine", "busbw replay run1/pattern.jsonl"),
            ("on two hosts", "busbw replay run1/pattern.jsonl --hosts h1:8,h2:8"),
            ("with the result in a file", "busbw replay run1/pattern.jsonl --json replay.json"),
        ),
    ),
    Row(
        "tune",
        TRAIN,
        "Find faster algorithms, protocols and channels for NCCL, by size.",
        (
            ("on the GPUs of this machine", "busbw tune all_reduce"),
            (
                "on two hosts; the rules are added to busbw-tuner.table",
                "busbw tune all_gather --hosts h1:8,h2:8",
            ),
            (
                "measure a table against NCCL's choice again",
                "busbw tune --check busbw-tuner.table --hosts h1:8,h2:8",
            ),
        ),
    ),
)
