"""`busbw plan --pattern FILE` and `busbw plan -- COMMAND`: a plan for a training of the user's."""

import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from busbw.cli.options.grouped import GroupedCommand
from busbw.cli.options.parameters import COUNT, File, Seconds, is_given, not_empty, option_of
from busbw.cli.options.shared import options
from busbw.cli.streams import print_err
from busbw.core.env import CAPTURE
from busbw.core.errors import NoMeasurement, TimedOut, UsageError
from busbw.core.pattern import Pattern
from busbw.measure.target import LaunchTarget
from busbw.pattern import capture
from busbw.pattern.registry import load
from busbw.pattern.training.finder import recorded_step
from busbw.pattern.training.recorded_step import RecordedStep
from busbw_accel.train.types import TrainSpec

MODEL = "recorded"
MAX_SOURCE = 60  # characters of a command line in the plan's first line
# Options of trainings that busbw runs itself.
OWN_TRAINING = ("batch_size", "sequence", "precision", "bucket_mb", "warmup", "steps", "check")
OF_COMMAND = {
    "capture_steps": "--capture-steps",
    "capture_limit_s": "--capture-limit",
    "folder": "--output",
    "losses": "--losses",
}
recorded_options = options(
    click.option(
        "--pattern",
        "pattern_file",
        default="",
        callback=not_empty,
        help="plan for the training in this record, or folder of a capture",
    ),
    click.option(
        "--capture-steps",
        type=COUNT,
        default=30,
        show_default=True,
        help="of COMMAND: steps to record; it is ended then",
    ),
    click.option(
        "--capture-limit",
        "capture_limit_s",
        type=Seconds(),
        default=900.0,
        show_default=True,
        help="of COMMAND: seconds until its steps must be recorded",
    ),
    click.option(
        "--output",
        "folder",
        type=File(written=True, folder=True),
        help="of COMMAND: write the record to this folder  [default: not kept]",
    ),
)


class PlanCommand(GroupedCommand):
    """A command whose words after `--` are another command, in `context.meta[MODEL]`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the words after `--` away."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[MODEL], args = tuple(args[at + 1 :]), args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The three ways to say what to plan for."""
        return ["[OPTIONS]", "MODEL | --pattern FILE | -- COMMAND..."]


@dataclass(frozen=True, slots=True)
class UserTraining:
    """The training of the user to plan for: a record in a file, or a command."""

    file: str
    command: tuple[str, ...]
    steps: int
    limit_s: float
    folder: Path | None

    def step(self) -> RecordedStep | None:
        """Its recorded step. A command is run and recorded; None if another host started rank 0."""
        if self.file:
            return recorded_step(load([self.file]), self.file)
        with _folder(self.folder) as folder:
            pattern = self._capture(folder)
            return recorded_step(pattern, short(self.command)) if pattern else None

    def _capture(self, folder: Path) -> Pattern | None:
        """Run the training for some steps. Its output goes to stderr.

        NoMeasurement if it fails, takes too long, or no rank was recorded.
        """
        values, lacking = capture.variables(folder, CAPTURE.timed, self.steps)
        if lacking:
            print_err(f"note: {capture.ONLY_PYTORCH}: {lacking}")
        try:
            code = capture.run(
                self.command, values, sys.stderr.fileno(), self.limit_s, is_part=True
            )
        except TimedOut as error:
            raise TimedOut(
                f"{error.message}: {short(self.command)} has not made {self.steps} steps of a"
                " DistributedDataParallel model",
                "give more time: --capture-limit, or fewer steps: --capture-steps; a training"
                " without DistributedDataParallel: busbw capture",
            ) from error
        if code:
            raise NoMeasurement(
                f"{short(self.command)} ended with {code}",
                "run it without busbw first; its output is above",
            )
        if not capture.has_rank_0(folder, values):
            print_err(f"note: {capture.OTHER_HOST}")
            return None
        pattern = capture.pattern(folder)
        capture.keep(pattern, folder)
        return pattern


def take_request(model_name: str | None, fields: dict[str, Any]) -> UserTraining | None:
    """Remove these options from a command's `fields`; returns what to plan for, None for a MODEL.

    UsageError unless there is just one of MODEL, --pattern and COMMAND.
    """
    command: tuple[str, ...] = click.get_current_context().meta.get(MODEL, ())
    file, steps, limit_s, folder = (
        fields.pop(name) for name in ("pattern_file", "capture_steps", "capture_limit_s", "folder")
    )
    if [bool(model_name), bool(file), bool(command)].count(True) != 1:
        raise UsageError(
            "a plan is for one of: a model, --pattern FILE, or -- COMMAND",
            "busbw plan vgg16; or busbw plan --pattern run1; or busbw plan -- torchrun train.py",
        )
    for name, option in OF_COMMAND.items():
        if is_given(name) and not command:
            raise UsageError(f"{option} is for a training that plan starts", "add -- COMMAND")
    if model_name:
        return None
    for name in OWN_TRAINING:
        if is_given(name):
            raise UsageError(
                f"{option_of(name)} is for busbw's own models, not for a training of yours",
                "leave it out",
            )
    return UserTraining(file, command, steps, limit_s, folder)


@contextmanager
def _folder(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        capture.make_folder(folder)
        yield folder.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="busbw-plan-") as name:
        yield Path(name)


def short(command: Sequence[str]) -> str:
    """The command line for a sentence."""
    text = shlex.join(command)
    return text if len(text) <= MAX_SOURCE else f"{text[: MAX_SOURCE - 3]}..."


def launch_target(recorded: RecordedStep, where: LaunchTarget) -> LaunchTarget:
    """Where to measure: as the user asked, else where the ranks ran.

    UsageError if that is unknown.
    """
    if where.ranks or where.hosts or where.hostfile or where.step:
        return where
    if not recorded.hosts:
        return LaunchTarget(ranks=recorded.ranks, ifname=where.ifname)
    if len(recorded.hosts) < recorded.ranks:
        raise UsageError(
            f"{len(recorded.hosts)} of {recorded.ranks} ranks were recorded, so that their hosts"
            " are unknown",
            "name all: --hosts h1:1,h2:1; --output needs a folder that the hosts share",
        )
    if len(set(recorded.hosts)) == 1:
        return LaunchTarget(ranks=recorded.ranks, ifname=where.ifname)
    return LaunchTarget(hosts=recorded.hosts_text(), ifname=where.ifname)


def spec(recorded: RecordedStep, methods: tuple[str, ...], rounds: int) -> TrainSpec:
    """The fields of a training that a plan uses."""
    largest_mb = max(bucket.nbytes for bucket in recorded.buckets) / 2**20
    return TrainSpec(
        model="a recorded training",
        # The record is compared with plain DDP, which is measured first.
        methods=("none", *(name for name in methods if name != "none")),
        rounds=rounds,
        bucket_mb=recorded.bucket_mb or largest_mb,
    )
