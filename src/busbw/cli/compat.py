"""`busbw compat DIR`: links named like the binaries of nccl-tests."""

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
    """Create links named all_reduce_perf, all_reduce_perf_mpi, ... in DIRECTORY. Under such a name busbw behaves like nccl-tests.

    Add DIRECTORY to PATH to use them. Existing files that are not links are never replaced.
    """
    target = program()
    names = [f"{row.name}_perf{suffix}" for row in COLLECTIVES for suffix in ("", "_mpi")]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in names:
            _link(directory / name, target)
    except OSError as error:
        raise UsageError(f"{directory}: {error.strerror}", "name a directory that you can write to") from error
    answer(f'{len(names)} links in {directory}; use them with: export PATH="{directory.resolve()}:$PATH"\n')
    return 0


def program() -> Path:
    """The installed `busbw` script, the target of the links."""
    sibling = Path(sys.executable).with_name("busbw")
    found = sibling if sibling.exists() else shutil.which("busbw")
    if not found:
        raise UsageError("the busbw script is neither in the directory of this Python nor on PATH", "pip install busbw")
    return Path(found).absolute()


def _link(link: Path, target: Path) -> None:
    if link.is_symlink():
        link.unlink()
    elif link.exists():
        raise UsageError(f"{link}: exists and is not a link", "name another directory, or move that file away")
    link.symlink_to(target)
