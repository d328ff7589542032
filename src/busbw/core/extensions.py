"""What other installed distributions add to busbw: objects that their entry points name.

Groups: `busbw.commands` (tuples of cli.commands.CommandRow), `busbw.runs` (measure.job.RunKind, by
the tag of the job), `busbw.results` (report.results.ResultKind), `busbw.files`
(report.file_kinds.FileKind) and `busbw.completion` (values by the name of a parameter). A start
that needs none of them does not look for distributions, which takes 20 ms.
"""

from functools import cache
from typing import Any

from busbw.core.errors import UsageError

ACCEL = "busbw-accel"
COMMANDS_OF_ACCEL = ("train", "plan", "horovodrun")
# Its files, by their schema without the version
FILES_OF_ACCEL = {
    "busbw.training": "a training",
    "busbw.losses": "a comparison of losses",
    "busbw.plan": "a plan of a gradient exchange",
    "busbw.states-plan": "a memory plan",
}
INSTALL_ACCEL = f"pip install '{ACCEL}[torch]'"


class NotInstalled(UsageError):
    """A file of a distribution that is not installed."""


@cache
def added(group: str, name: str = "") -> tuple[Any, ...]:
    """The objects of one of these groups, `group` without `busbw.`, or the one called `name`.

    UsageError for a distribution that cannot be imported.
    """
    from importlib.metadata import entry_points

    entries = entry_points(group=f"busbw.{group}")
    found = []
    for entry in entries.select(name=name) if name else entries:
        try:
            found.append(entry.load())
        except (ImportError, AttributeError) as error:
            distribution = entry.dist.name if entry.dist else entry.value
            raise UsageError(
                f"{distribution} adds {entry.value} to busbw, which cannot be imported: {error}",
                f"install both in one version: pip install -U busbw {distribution}",
            ) from error
    return tuple(found)
