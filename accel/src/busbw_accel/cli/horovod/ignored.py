"""horovodrun's options that job scripts often give, and that busbw's ranks do not need or have."""

from typing import Any, NamedTuple

import click

from busbw.cli.streams import print_err
from busbw.core.errors import UsageError


class Option(NamedTuple):
    """An option that is ignored with a note, or refused with the hint `instead`."""

    names: str  # as in `-p --ssh-port`; messages use the last
    takes_value: bool = False
    reason: str = ""  # why it has no effect, for the note
    instead: str = ""  # the hint of the error


FLAG, VALUE = False, True
OPTIONS = (
    Option("--verbose"),
    Option("--disable-cache"),
    Option("--tcp"),
    Option("--mpi-threads-disable"),
    Option("--no-mpi-threads-disable"),
    Option("--stall-check"),
    Option("--autotune"),
    Option("--no-autotune"),
    Option("--hierarchical-allgather"),
    Option("--no-hierarchical-allgather"),
    Option("--no-hierarchical-allreduce"),
    Option("--no-timeline-mark-cycles"),
    Option("--log-with-timestamp"),
    Option("--log-without-timestamp"),
    Option("--log-hide-timestamp"),
    Option("--no-log-hide-timestamp"),
    Option("--log-level", VALUE),
    Option("--num-nccl-streams", VALUE),
    Option("--thread-affinity", VALUE),
    Option("--autotune-log-file", VALUE),
    Option("--autotune-warmup-samples", VALUE),
    Option("--autotune-steps-per-sample", VALUE),
    Option("--autotune-bayes-opt-max-samples", VALUE),
    Option("--autotune-gaussian-process-noise", VALUE),
    Option("--start-timeout", VALUE, reason="it limits checks of hosts, which are not made"),
    Option(
        "-p --ssh-port",
        VALUE,
        instead="set Port in ~/.ssh/config, or export OMPI_MCA_plm_rsh_args='-p 2222'",
    ),
    Option(
        "-i --ssh-identity-file",
        VALUE,
        instead="set IdentityFile in ~/.ssh/config, or export OMPI_MCA_plm_rsh_args='-i FILE'",
    ),
    Option("--network-interface", VALUE, instead="--network-interfaces eth0,eth1"),
    Option("--output-filename", VALUE, instead="--mpi-args='--output-filename FOLDER'"),
    Option(
        "-prefix-timestamp --prefix-output-with-timestamp",
        FLAG,
        instead="--mpi-args=--timestamp-output",
    ),
    Option(
        "--binding-args",
        VALUE,
        instead="bind in the script, for example with os.sched_setaffinity: ranks are not bound",
    ),
    Option(
        "--config-file",
        VALUE,
        instead="give its values as options, such as --fusion-threshold-mb 64",
    ),
    Option("--jsrun", FLAG, instead="leave it out: mpirun starts the ranks"),
)
_BY_NAME = {option.names.split()[-1]: option for option in OPTIONS}


def _take(_context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Note that the option has no effect, or refuse it."""
    if not value:
        return
    name = parameter.opts[-1]
    option = _BY_NAME[name]
    if option.instead:
        raise UsageError(f"{name} is not supported", option.instead)
    reason = f": {option.reason}" if option.reason else ""
    print_err(f"note: {name} has no effect{reason}")


def _click_option(option: Option) -> Any:
    return click.option(
        *option.names.split(),
        is_flag=not option.takes_value,
        hidden=True,
        expose_value=False,
        callback=_take,
    )


options = [_click_option(option) for option in OPTIONS]
