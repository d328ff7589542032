"""The options of `busbw horovodrun` for elastic jobs, which busbw's own launcher runs on one
host.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import click

from busbw.cli.options.parameters import not_empty
from busbw.core.errors import UsageError
from busbw.launch.hosts import LaunchHost
from busbw.launch.remote import is_local
from busbw.launch.signal_handlers import signals_ignored, terminable
from busbw_accel.horovod.elastic import launcher as discovery
from busbw_accel.horovod.elastic.launcher import Launcher, Limits
from busbw_accel.horovod.variables import LAUNCHER_VARIABLES

SCRIPT = "--host-discovery-script"
(_TIMEOUT,) = LAUNCHER_VARIABLES
options = [
    click.option(
        "--min-np",
        "--min-num-proc",
        "min_np",
        type=click.IntRange(min=1),
        help="elastic: least ranks to go on with",
    ),
    click.option(
        "--max-np",
        "--max-num-proc",
        "max_np",
        type=click.IntRange(min=1),
        help="elastic: most ranks  [default: all slots]",
    ),
    click.option(
        SCRIPT,
        "script",
        default="",
        callback=not_empty,
        help="elastic: program that prints `host:slots` lines, run every second",
    ),
    click.option(
        "--slots-per-host",
        type=click.IntRange(min=1),
        help=f"elastic: slots of a host that {SCRIPT} prints without slots",
    ),
    click.option(
        "--elastic-timeout",
        type=click.IntRange(min=1),
        help=(
            f"elastic: seconds to wait for slots or silent ranks  [default: {_TIMEOUT.name}, or"
            f" {_TIMEOUT.default}]"
        ),
    ),
    click.option(
        "--reset-limit",
        type=click.IntRange(min=0),
        help="elastic: how often ranks may change  [default: no limit]",
    ),
    click.option(
        "--blacklist-cooldown-range",
        type=(click.IntRange(min=1), click.IntRange(min=1)),
        metavar="FIRST LONGEST",
        help=(
            "elastic: seconds without use of a slot whose rank failed, doubled each time  [default:"
            " for ever]"
        ),
    ),
]


@dataclass(frozen=True, slots=True)
class Elastic:
    """The values of `options`, as given."""

    min_np: int | None
    max_np: int | None
    script: str
    slots_per_host: int | None
    elastic_timeout: int | None
    reset_limit: int | None
    blacklist_cooldown_range: tuple[int, int] | None

    @property
    def asked(self) -> bool:
        """Whether the job is elastic."""
        return bool(self.script or self.min_np)

    def check(self, ranks: int | None) -> None:
        """UsageError for options that contradict each other."""
        names = [field.name for field in fields(self)]
        given = [name for name in names if getattr(self, name) not in (None, "")]
        if given and not self.asked:
            raise UsageError(
                f"--{given[0].replace('_', '-')} is for elastic jobs",
                f"give --min-np or {SCRIPT} too",
            )
        counts = {"--min-np": self.min_np, "-np": ranks, "--max-np": self.max_np}
        ascending = {name: count for name, count in counts.items() if count}
        if list(ascending.values()) != sorted(ascending.values()):
            counts_text = ", ".join(f"{name} {count}" for name, count in ascending.items())
            raise UsageError(f"{counts_text} do not ascend", "give --min-np <= -np <= --max-np")
        first, longest = self.blacklist_cooldown_range or (0, 0)
        if first > longest:
            raise UsageError(
                f"--blacklist-cooldown-range {first} {longest} is empty",
                "give the shorter time first",
            )


def take(values: dict[str, object]) -> Elastic:
    """Remove the values of `options` from `values`, and return them."""
    taken = {option.name: values.pop(option.name) for option in fields(Elastic)}
    return Elastic(**taken)  # type: ignore[arg-type]


def run(
    elastic: Elastic,
    ranks: int | None,
    named: Sequence[LaunchHost],
    argv: Sequence[str],
    variables: Mapping[str, str],
) -> int:
    """Run an elastic job and return its exit code."""
    for host in named:
        if not is_local(host.name):
            raise UsageError(
                f"{host.name} is not this host, and the workers of an elastic job run on one host",
                "leave out --min-np, or start the script with torchrun, which restarts all ranks"
                " from the last commit",
            )
    first = ranks or elastic.min_np or 1
    timeout_s = float(str(elastic.elastic_timeout or _TIMEOUT.value(os.environ)))
    limits = Limits(
        first, elastic.min_np or first, elastic.max_np or 1 << 20, timeout_s, elastic.reset_limit
    )
    fixed = sum(host.slots or 1 for host in named) or max(first, elastic.max_np or 0)
    if not elastic.script:
        if fixed < first:
            raise UsageError(
                f"{fixed} slots are too few for {first} ranks",
                f"busbw horovodrun -np {fixed}, or give more slots: -H localhost:{first}",
            )
        slots = discovery.Slots(lambda: fixed, elastic.blacklist_cooldown_range)
        return _run(argv, variables, slots, limits)
    script = discovery.Script(elastic.script, elastic.slots_per_host or 1)
    try:
        slots = discovery.Slots(script.slots, elastic.blacklist_cooldown_range)
        return _run(argv, variables, slots, limits)
    finally:
        script.stop()


def _run(
    argv: Sequence[str], variables: Mapping[str, str], slots: discovery.Slots, limits: Limits
) -> int:
    launcher = Launcher(argv, {**os.environ, **variables}, slots, limits)
    with terminable():
        try:
            return launcher.run()
        finally:
            with signals_ignored():
                launcher.end()
