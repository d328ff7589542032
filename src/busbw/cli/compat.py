"""`busbw compat DIR`: commands named like the binaries of nccl-tests.

Each is a file of its own, not a link to `busbw`: launchers and wrappers that resolve a link would
start `busbw` without the name.
"""

import shlex
import sys
from pathlib import Path

import click

from busbw.cli.streams import print_out
from busbw.core.collectives import COLLECTIVES
from busbw.core.errors import UsageError
from busbw.core.program import single_file

MARK = "Written by `busbw compat`"
LONGEST_FIRST_LINE = 127  # bytes that every kernel reads of `#!`; newer ones read 255
_SCRIPT = """\
{start}
# {name} of nccl-tests, by busbw. {mark}, which replaces it.
import sys
{single_file}
from busbw.cli.main import entry

sys.argv[0] = "{name}"
entry()
"""
_FROM_FILE = """
sys.path.insert(0, {file!r})
from busbw_file import prepare

prepare({file!r})
"""
_THROUGH_SHELL = """\
#!/bin/sh
''':' # the shell runs this line's successor, and for Python both are a string
exec {python} -P "$0" "$@"
'''"""


@click.command("compat", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("directory", type=click.Path(path_type=Path))
def command(directory: Path) -> int:
    """Write commands named all_reduce_perf, all_reduce_perf_mpi, ... into DIRECTORY. Under such a
    name busbw behaves like nccl-tests.

    Add DIRECTORY to PATH to use them. They run busbw of this Python, under any path that leads to
    them. Files of other programs are never replaced.
    """
    names = [f"{row.name}_perf{suffix}" for row in COLLECTIVES for suffix in ("", "_mpi")]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in names:
            _check_free(directory / name)
        for name in names:
            _write(directory / name, script(sys.executable, name))
    except OSError as error:
        raise UsageError(
            f"{directory}: {error.strerror}", "name a directory that you can write to"
        ) from error
    print_out(
        f"{len(names)} commands in {directory}; use them with: export"
        f' PATH="{directory.resolve()}:$PATH"\n'
        f"over several hosts: mpirun -x PATH --host h1:8,h2:8 {names[0]}_mpi ...\n"
    )
    return 0


def script(python: str, name: str) -> str:
    """A program that is busbw under the name of a binary of nccl-tests. -P keeps Python from
    importing files in the program's directory.
    """
    start = f"#!{python} -P"
    has_space = any(character.isspace() for character in python)
    if has_space or len(start.encode()) > LONGEST_FIRST_LINE:
        start = _THROUGH_SHELL.format(python=shlex.quote(python))
    file = single_file()
    lines = _FROM_FILE.format(file=file) if file else ""
    return _SCRIPT.format(start=start, name=name, mark=MARK, single_file=lines)


def _check_free(path: Path) -> None:
    """UsageError if there is something that busbw did not put there."""
    if (path.exists() or path.is_symlink()) and not _is_own(path):
        raise UsageError(
            f"{path}: exists and is not busbw's", "name another directory, or move that file away"
        )


def _is_own(path: Path) -> bool:
    """Whether busbw wrote this file. Earlier versions made links to the script `busbw`."""
    if path.is_symlink():
        return path.readlink().name == "busbw"
    if not path.is_file():
        return False
    with path.open("rb") as opened:
        return MARK.encode() in opened.read(1000)


def _write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
