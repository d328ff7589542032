"""horovodrun's options that have no effect on busbw's ranks, and those that need another one: job scripts often have them."""

from collections.abc import Callable
from typing import Any

import click

from busbw.cli.streams import talk
from busbw.core.errors import UsageError

_FLAGS = (
    *("--verbose", "--disable-cache", "--tcp", "--mpi-threads-disable", "--no-mpi-threads-disable", "--stall-check"),
    *("--autotune", "--no-autotune", "--hierarchical-allgather", "--no-hierarchical-allgather", "--no-hierarchical-allreduce"),
    *("--no-timeline-mark-cycles", "--log-with-timestamp", "--log-without-timestamp", "--log-hide-timestamp", "--no-log-hide-timestamp"),
)
_VALUES = (
    *("--log-level", "--num-nccl-streams", "--thread-affinity", "--autotune-log-file", "--autotune-warmup-samples"),
    *("--autotune-steps-per-sample", "--autotune-bayes-opt-max-samples", "--autotune-gaussian-process-noise"),
)
_REASONS = {"--start-timeout": "it limits checks of hosts, which are not made"}
# What to do instead.
_REFUSED = (
    (("-p", "--ssh-port"), "set Port in ~/.ssh/config, or export OMPI_MCA_plm_rsh_args='-p 2222'"),
    (("-i", "--ssh-identity-file"), "set IdentityFile in ~/.ssh/config, or export OMPI_MCA_plm_rsh_args='-i FILE'"),
    (("--network-interface",), "--network-interfaces eth0,eth1"),
    (("--output-filename",), "--mpi-args='--output-filename FOLDER'"),
    (("-prefix-timestamp", "--prefix-output-with-timestamp"), "--mpi-args=--timestamp-output"),
    (("--binding-args",), "bind in the script, for example with os.sched_setaffinity: ranks are not bound"),
    (("--config-file",), "give its values as options, such as --fusion-threshold-mb 64"),
    (("--jsrun",), "leave it out: mpirun starts the ranks"),
)


def _noted(_context: click.Context, parameter: click.Parameter, value: object) -> None:
    if value:
        name = parameter.opts[-1]
        talk(f"note: {name} has no effect" + (f": {_REASONS[name]}" if name in _REASONS else ""))


def _refusing(hint: str) -> Callable[[click.Context, click.Parameter, object], None]:
    def refuse(_context: click.Context, parameter: click.Parameter, value: object) -> None:
        if value:
            raise UsageError(f"{parameter.opts[-1]} is not supported", hint)

    return refuse


def _option(*names: str, flag: bool, callback: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(*names, is_flag=flag, hidden=True, expose_value=False, callback=callback)


options = [
    *(_option(name, flag=True, callback=_noted) for name in _FLAGS),
    *(_option(name, flag=False, callback=_noted) for name in (*_VALUES, *_REASONS)),
    *(_option(*names, flag=names[0] in ("-prefix-timestamp", "--jsrun"), callback=_refusing(hint)) for names, hint in _REFUSED),
]
