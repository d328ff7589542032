"""`busbw compat DIR`: links under the names of nccl-tests' binaries."""

import shutil
import sys
from pathlib import Path

import click

from busbw.cli.streams import answer
from busbw.core.collectives import COLLECTIVES
from busbw.core.errors import UsageError


@click.command("compat", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("directory", type=click.Path(path_type=Path))
def command(directory: Path) -> int:
    """Put links named all_reduce_perf, all_reduce_perf_mpi, ... into DIRECTORY; called by such a name, busbw is nccl-tests.

    Put DIRECTORY on PATH to use them; an existing file that is not such a link is never touched.
    """
    target = program()
    names = [f"{row.name}_perf{suffix}" for row in COLLECTIVES for suffix in ("", "_mpi")]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in names:
            _link(directory / name, target)
    except OSError as error:
        raise UsageError(f"{directory}: {error.strerror}", "name a directory that you may write") from error
    answer(f'{len(names)} links in {directory}; use them with: export PATH="{directory.resolve()}:$PATH"\n')
    return 0


def program() -> Path:
    """The installed `busbw` script, which the links point to."""
    beside = Path(sys.executable).with_name("busbw")
    found = beside if beside.exists() else shutil.which("busbw")
    if not found:
        raise UsageError("the busbw script is not installed beside this Python, nor on PATH", "pip install busbw")
    return Path(found).absolute()


def _link(link: Path, target: Path) -> None:
    if link.is_symlink():
        link.unlink()
    elif link.exists():
        raise UsageError(f"{link}: exists and is not a link", "name another directory, or move that file away")
    link.symlink_to(target)
