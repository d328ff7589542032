"""`busbw capture`: record what an application sends."""

import contextlib
import os
from pathlib import Path

import click

from busbw.cli.streams import answer, talk
from busbw.cli.terminal import width
from busbw.core.env import CAPTURE
from busbw.core.errors import BusbwError, Exit, NoMeasurement, UsageError
from busbw.host import net_plugin
from busbw.launch import environment, wrap_command
from busbw.measure.record import save
from busbw.pattern import text as view
from busbw.pattern.pattern_lines import lines
from busbw.pattern.registry import load

FILE = "pattern.jsonl"
NOT_GLOO = "capture records only NCCL"
RECORDER = (
    "PyTorch's Flight Recorder records Gloo too: start with TORCH_FR_BUFFER_SIZE=20000, and give"
    " its dumps to busbw show"
)


@click.command(
    "capture",
    context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False},
)
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="folder for the record",
)
@click.option(
    "--cheap", "mode", flag_value=CAPTURE.cheap, default=True, help="calls, sizes, order  [default]"
)
@click.option(
    "--timed", "mode", flag_value=CAPTURE.timed, help="also how long each call takes on the GPU"
)
@click.argument("command_line", nargs=-1, required=True, metavar="-- COMMAND...")
def command(folder: Path, mode: str, command_line: tuple[str, ...]) -> int:
    """Run COMMAND, which uses NCCL 2.24 or newer, and record its communication: every call, its
    size, algorithm and order.

    Before a launcher it records all ranks and then prints their pattern: busbw capture -o run1 --
    mpirun -n 8 python train.py. As the ranks' program (srun busbw capture -o run1 -- python
    train.py) each rank records itself, and `busbw show run1` prints the pattern.

    Needs busbw-native. Exits with COMMAND's code, with 3 if no rank was recorded.
    """
    plugin = os.environ.get(CAPTURE.plugin)
    if plugin:
        raise UsageError(
            f"{CAPTURE.plugin}={plugin} is set, and NCCL loads only one profiler",
            f"unset {CAPTURE.plugin}",
        )
    library = net_plugin.find()
    net_plugin.check(library)
    folder = folder.absolute()
    variables = {CAPTURE.plugin: str(library), CAPTURE.folder: str(folder), CAPTURE.mode: mode}
    word = wrap_command.named(command_line)
    if word:
        talk(f"warning: {word}: {NOT_GLOO}\n\nhint: {RECORDER}\n")
    if environment.detect(os.environ) is not None:
        os.environ |= variables
        _become(command_line)
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder}: the folder is not empty", "name a new folder for each capture")
    try:
        # The plugin's files in it have the mode of the umask.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}", "name a folder that can be made") from error
    watch = wrap_command.Watch(os.getpid(), lambda: any(folder.iterdir()), _uses_gloo)
    with contextlib.nullcontext(watch) if word else watch:
        line = wrap_command.command_line(command_line, variables)
        code = wrap_command.run(line, {**os.environ, **variables})
    return _report(folder, code, by_gloo=bool(word or watch.rank))


def _uses_gloo(rank: int) -> None:
    talk(
        f"warning: process {rank} communicates with Gloo and not with NCCL: {NOT_GLOO}\n\n"
        f"hint: {RECORDER}\n"
    )


def _become(command_line: tuple[str, ...]) -> None:
    """Replace this process by the command."""
    try:
        os.execvp(command_line[0], command_line)
    except OSError as error:
        raise NoMeasurement(
            f"{command_line[0]}: {error.strerror}",
            "give the command after --, as you would start it",
        ) from error


def _report(folder: Path, code: int, *, by_gloo: bool) -> int:
    """Print and save the pattern of the ranks; returns the exit code, which is that of the command
    if it failed.
    """
    if not code:
        return _print(folder, by_gloo=by_gloo)
    talk(f"note: the command ended with {code}; what it did until then is recorded")
    try:
        _print(folder, by_gloo=by_gloo)
    except BusbwError as error:
        talk(error.render())
    return code


def _print(folder: Path, *, by_gloo: bool) -> int:
    if not any(folder.iterdir()):
        if by_gloo:
            raise NoMeasurement(
                "no rank of the command has used NCCL, but Gloo, which capture does not record",
                RECORDER,
            )
        raise NoMeasurement(
            f"no rank of the command has used NCCL with the profiler plugin: {folder} is empty",
            "NCCL_DEBUG=INFO shows what NCCL loads; the plugin needs NCCL 2.24 or newer, loaded"
            " dynamically",
        )
    pattern = load([str(folder)])
    save(b"".join(lines(pattern)), folder / FILE)
    answer(view.table(pattern, width()))
    talk(f"note: recorded in {folder / FILE}; busbw replay and busbw predict read it")
    header = pattern.header
    incomplete = header.dropped or header.skipped or len(header.ranks) < header.world
    return int(Exit.BAD if incomplete else Exit.OK)
