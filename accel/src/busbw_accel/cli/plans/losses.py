"""`busbw plan --losses N -- COMMAND`: the loss of the user's training with and without methods."""

from pathlib import Path
from typing import Any

import click
import msgspec

from busbw.cli.options import groups
from busbw.cli.options.parameters import COUNT, ShareParam, given_options, is_given
from busbw.cli.options.shared import options
from busbw.cli.streams import print_err, print_out
from busbw.cli.terminal import width
from busbw.core import json_codec
from busbw.core.errors import UsageError
from busbw.core.finding import exit_of
from busbw.pattern import capture
from busbw_accel.cli.plans.recorded import UserTraining, short
from busbw_accel.train.losses.runs import FILE, LossRuns
from busbw_accel.train.losses.verdicts import report, text
from busbw_accel.train.methods import NONE, Method, parse_all

# Options that say something about the runs of a comparison.
OWN = {"losses", "tolerance", "compare", "rounds", "capture_limit_s", "folder", "format_name"}
losses_options = options(
    click.option(
        "--losses",
        type=COUNT,
        help="of COMMAND: train it for so many steps by plain DDP and by each method of --compare,"
        " in every round with other seeds, and compare the losses",
    ),
    click.option(
        "--tolerance",
        type=ShareParam(0.0, 10.0),
        default="1%",
        show_default=True,
        help="with --losses: largest difference treated as equal, of a higher loss",
    ),
)


def check_alone() -> None:
    """UsageError for options of a plan that do not belong to --losses."""
    listed = {name for _, names in groups.PLAN for name in names}
    if options := given_options(listed - OWN):
        raise UsageError(
            f"{', '.join(options)} does not go with --losses, which only trains",
            f"leave it out; the losses of all steps are in {FILE} of --output FOLDER",
        )


def run(
    training: UserTraining,
    steps: int,
    tolerance: float,
    compare: str,
    rounds: int,
    format_name: str,
) -> int:
    """Make all runs and print the comparison; the exit code is that of its verdicts."""
    methods = [method.name for method in _parse(compare, steps)] if compare else []
    methods = [name for name in methods if name != NONE]
    if not methods:
        raise UsageError(
            f"--losses {steps} compares methods, and none is named",
            "name them: --compare int8,powersgd",
        )
    folder: Path | None = None
    if training.folder is not None:
        capture.make_folder(training.folder)
        folder = training.folder.absolute()
    runs = LossRuns(
        training.command,
        methods,
        steps,
        rounds,
        training.limit_s,
        short(training.command),
        print_err,
        folder,
    )
    runs.run()
    compared = report(runs, tolerance)
    if format_name == "json":
        print_out(msgspec.json.format(json_codec.encode(compared), indent=1).decode() + "\n")
    else:
        print_out(text(compared, width()))
    return int(exit_of(row.verdict for row in compared.methods))


def _parse(compare: str, steps: int) -> list[Method]:
    """The methods; UsageError for local steps, whose optimizer is not known here."""
    methods = parse_all(compare)
    for method in methods:
        if method.every > 1:
            raise UsageError(
                f"--losses {steps} cannot train with '{method.name}': attach needs the optimizer",
                f"put it into the training: {method.code}",
            )
    return methods


def take(fields: dict[str, Any]) -> tuple[int, float]:
    """Remove these options from a command's `fields`: the steps, 0 without --losses."""
    steps, tolerance = fields.pop("losses"), fields.pop("tolerance")
    if steps:
        check_alone()
    elif is_given("tolerance"):
        raise UsageError("--tolerance is for --losses", "add --losses 200, or leave it out")
    return steps or 0, tolerance
