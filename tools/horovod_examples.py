"""Horovod's own PyTorch examples, run as they are on two CPU ranks: `python
tools/horovod_examples.py --path CLONE [NAME...]`.

CLONE is a checkout of Horovod. Its scripts are read from there, nothing of it is built. Data are
made: MNIST files and a few images. Each elastic example also runs with a rank killed (SIGKILL)
during the training, which goes on with the other. Prints a line per run; exit code 0 if all ran to
their end. The examples import torchvision, tensorboard, tqdm and filelock.
"""

import argparse
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LIMIT_S = 300.0
_RESNET = (
    "--model",
    "resnet18",
    "--batch-size",
    "2",
    "--num-warmup-batches",
    "1",
    "--num-batches-per-iter",
    "1",
    "--num-iters",
)
_IMAGES = (
    "--batch-size",
    "2",
    "--val-batch-size",
    "2",
    "--train-dir",
    "images/train",
    "--val-dir",
    "images/val",
    "--epochs",
)


@dataclass(frozen=True, slots=True)
class Example:
    """A script of Horovod's with arguments that make it short."""

    folder: str
    name: str
    arguments: tuple[str, ...]
    started: str = ""  # elastic: what its output has once it trains

    @property
    def elastic(self) -> bool:
        """Whether ranks may be lost."""
        return bool(self.started)


EXAMPLES = (
    Example("examples/pytorch", "pytorch_mnist", ("--epochs", "1", "--data-dir", "mnist")),
    Example("examples/pytorch", "pytorch_synthetic_benchmark", (*_RESNET, "2")),
    Example("examples/pytorch", "pytorch_imagenet_resnet50", (*_IMAGES, "1")),
    Example(
        "examples/elastic/pytorch",
        "pytorch_mnist_elastic",
        ("--epochs", "30", "--data-dir", "mnist"),
        "Train Epoch: 2",
    ),
    Example(
        "examples/elastic/pytorch",
        "pytorch_synthetic_benchmark_elastic",
        (*_RESNET, "8"),
        "Iter #1",
    ),
    Example(
        "examples/elastic/pytorch",
        "pytorch_imagenet_resnet50_elastic",
        (*_IMAGES, "2", "--batches-per-commit", "1"),
        "50%",
    ),
)


def make_data(folder: Path) -> None:
    """MNIST files with a bar whose height is the digit, and images of noise in two classes."""
    from PIL import Image

    random = np.random.default_rng(0)
    raw = folder / "mnist" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, count in (("train", 640), ("t10k", 200)):
        digits = random.integers(0, 10, count)
        images = np.zeros((count, 28, 28), np.uint8)
        for image, digit in zip(images, digits, strict=True):
            image[2 + 2 * digit : 6 + 2 * digit, 4:24] = 200
        for kind, data in (("images-idx3", images), ("labels-idx1", digits.astype(np.uint8))):
            head = struct.pack(f">HBB{data.ndim}I", 0, 8, data.ndim, *data.shape)
            (raw / f"{part}-{kind}-ubyte").write_bytes(head + data.tobytes())
    for number in range(16):
        place = folder / "images" / ("train", "val")[number % 2] / str(number % 4 // 2)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(
            place / f"{number}.png"
        )


def command(example: Example, clone: Path) -> list[str]:
    """The command line."""
    elastic = ["--min-np", "1"] if example.elastic else []
    script = str(clone / example.folder / f"{example.name}.py")
    return [
        sys.executable,
        "-m",
        "busbw",
        "horovodrun",
        "-np",
        "2",
        *elastic,
        sys.executable,
        "-u",
        script,
        "--no-cuda",
        *example.arguments,
    ]


def run(line: Sequence[str], folder: Path, kill_at: str) -> tuple[int, str]:
    """Run it in the folder.

    With `kill_at`, kill the rank that started last when the output has that text. Exit code and
    output.
    """
    for old in folder.glob("checkpoint-*"):
        old.unlink()
    log, end_s = folder / "output", time.monotonic() + LIMIT_S
    with log.open("wb") as output:
        process = subprocess.Popen(
            line,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    while process.poll() is None:
        if kill_at and kill_at in log.read_text(errors="replace"):
            kill_at = ""
            ranks = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(ranks[-1]), signal.SIGKILL)
        if time.monotonic() > end_s:
            process.terminate()
            end_s += LIMIT_S
        time.sleep(0.05)
    return process.returncode, log.read_text(errors="replace")


def main() -> int:
    """Run all and print what came of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--path", type=Path, required=True, metavar="CLONE", help="a checkout of Horovod"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="examples to run (default: all)")
    asked = parser.parse_args()
    clone, bad = asked.path.resolve(), 0
    with tempfile.TemporaryDirectory() as name:
        make_data(Path(name))
        for example in EXAMPLES:
            if asked.names and example.name not in asked.names:
                continue
            for kill_at in ("", example.started) if example.elastic else ("",):
                begin_s = time.monotonic()
                code, output = run(command(example, clone), Path(name), kill_at)
                lost = "was killed by signal 9" in output and "world 2: 1 rank" in output
                well = code == 0 and lost == bool(kill_at)
                bad += not well
                how = "one rank killed" if kill_at else "two ranks"
                print(
                    f"{'ok' if well else 'FAILED'} {example.name}, {how}: exit code {code},"
                    f" {time.monotonic() - begin_s:.0f} s",
                    flush=True,
                )
                if not well:
                    print(output[-3000:], flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
