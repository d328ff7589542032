"""What `busbw check` is asked for: which checks, and of which machines."""

from collections.abc import Sequence

from busbw.check.base import Check
from busbw.check.registry import CHECKS, ROWS, find_of_machine, find_row
from busbw.core.errors import UsageError
from busbw.core.finding import CheckRow


def check_rows(
    only: Sequence[str], layers: Sequence[str], skip: Sequence[str] = ()
) -> list[CheckRow]:
    """The rows of the checks that --only, --layer and --skip select; UsageError if none is."""
    ids = {find_row(name).id for name in only}
    skipped = {find_row(name).id for name in skip}
    rows = [
        row
        for row in ROWS
        if (not ids or row.id in ids)
        and (not layers or row.layer.value in layers)
        and row.id not in skipped
    ]
    if not rows:
        of_layer = f" is of layer {', '.join(layers)}" if layers else " is left"
        without = f" without {', '.join(skip)}" if skip else ""
        raise UsageError(
            f"no check of {', '.join(only) or 'all'}{of_layer}{without}",
            "busbw check --list names all",
        )
    return rows


def chosen_checks(
    only: Sequence[str], layers: Sequence[str], skip: Sequence[str] = ()
) -> tuple[Check, ...]:
    """The checks of a machine that --only, --layer and --skip select."""
    for name in only:
        find_of_machine(name)
    ids = {row.id for row in check_rows(only, layers, skip)}
    return tuple(check for check in CHECKS if check.row.id in ids)


def refuse_contradictions(
    names: Sequence[str], files: Sequence[str], *, load: bool, differences: bool, ignored: bool
) -> None:
    """UsageError for options that exclude each other; `ignored` is whether any is given that
    --differences does not read.
    """
    if load and (names or files):
        raise UsageError(
            "--load is for this machine", "use it without --hosts, --hostfile and --from"
        )
    if names and files:
        raise UsageError(
            "--hosts and --from exclude each other", "use --from with snapshots of those hosts"
        )
    if differences and ignored:
        raise UsageError(
            "--differences has no line for a monitor, and compares with no file",
            "leave out --nagios and --expect",
        )
    if differences and len(names) + len(files) < 2:
        raise UsageError(
            "--differences compares several nodes", "give --hosts h1,h2 or --from '*.jsonl'"
        )
