"""`busbw capture`: record what an application sends."""

import os
from pathlib import Path

import click

from busbw.cli.options.parameters import COUNT, File
from busbw.cli.streams import print_err, print_out
from busbw.cli.terminal import width
from busbw.core.env import CAPTURE
from busbw.core.errors import BusbwError, Exit, NoMeasurement
from busbw.launch import environment
from busbw.pattern import capture
from busbw.pattern import text as view
from busbw.pattern.end_watch import EndWatch


@click.command(
    "capture",
    context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False},
)
@click.option(
    "--output",
    "folder",
    type=File(written=True, folder=True),
    required=True,
    help="write the record to this folder",
)
@click.option(
    "--cheap", "mode", flag_value=CAPTURE.cheap, default=True, help="calls, sizes, order  [default]"
)
@click.option(
    "--timed", "mode", flag_value=CAPTURE.timed, help="also how long each call takes on the GPU"
)
@click.option(
    "--capture-steps",
    "steps",
    type=COUNT,
    help="end a training under DistributedDataParallel after so many steps  [default: never]",
)
@click.argument("command_line", nargs=-1, required=True, metavar="-- COMMAND...")
def command(folder: Path, mode: str, steps: int | None, command_line: tuple[str, ...]) -> int:
    """Run COMMAND, and record its communication: every call of NCCL or of PyTorch's Gloo, its size
    and order, of NCCL also algorithm and protocol.

    Before a launcher it records all ranks and then prints their pattern: busbw capture --output
    run1 -- mpirun -n 8 python train.py. As the ranks' program (srun busbw capture --output run1 --
    python train.py) each rank records itself, and `busbw show run1` prints the pattern. Before
    torchrun on several hosts that share the folder, the one that starts rank 0 prints it.

    NCCL is recorded by busbw-native, from NCCL 2.24 on. PyTorch's Flight Recorder records what else
    its ranks call, and the steps of DistributedDataParallel; `busbw plan --pattern` uses both.

    Of a job that died it says which rank went first, and how; so do `busbw watch job` and `show`.

    A COMMAND that fails gives its own exit code.
    """
    folder = folder.absolute()
    values, lacking = capture.variables(folder, mode, steps or 0)
    if lacking:
        print_err(f"note: {capture.ONLY_PYTORCH}: {lacking}")
    if environment.detect(os.environ) is not None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.environ |= values
        _become(command_line)
    capture.make_folder(folder)
    with EndWatch(folder, values[CAPTURE.launch]) as watch:
        code = capture.run(command_line, values, on_signal=watch.note_order)
    if not capture.has_rank_0(folder, values):
        print_err(f"note: {capture.OTHER_HOST}")
        return code
    return _report(folder, code)


def _become(command_line: tuple[str, ...]) -> None:
    """Replace this process by the command."""
    try:
        os.execvp(command_line[0], command_line)
    except OSError as error:
        raise NoMeasurement(
            f"{command_line[0]}: {error.strerror}",
            "give the command after --, as you would start it",
        ) from error


def _report(folder: Path, code: int) -> int:
    """Print and save the ranks' pattern; the exit code, which is the command's if it failed."""
    if not code:
        return _print(folder)
    try:
        if capture.is_empty(folder):
            raise NoMeasurement(
                f"the command ended with {code} before a rank of it was recorded",
                "run it without busbw first; its output is above",
            )
        print_err(f"note: the command ended with {code}; what it did until then is recorded")
        _print(folder)
    except BusbwError as error:
        print_err(error.render())
    return code


def _print(folder: Path) -> int:
    pattern = capture.pattern(folder)
    print_out(view.table(pattern, width()))
    file = capture.keep(pattern, folder)
    print_err(f"note: recorded in {file}; busbw replay, predict and plan read it")
    header = pattern.header
    incomplete = header.dropped or header.skipped or len(header.ranks) < header.world
    return int(Exit.BAD if incomplete else Exit.OK)
