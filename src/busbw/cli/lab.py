"""`busbw lab`: hosts emulated on this machine."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click
import msgspec

from busbw.cli.options.parameters import Rate, Seconds, ShareParam, not_empty
from busbw.cli.options.shared import format_option
from busbw.cli.streams import print_err, print_out
from busbw.core.errors import Exit, NoMeasurement, UsageError
from busbw.core.rates import parse_rate
from busbw.lab import building, host_exec
from busbw.lab import types as view
from busbw.lab.types import MAX_DELAY_S, MAX_HOSTS, MIN_HOSTS, Lab, LabHost, LabSpec, Shape

HELP = {"help_option_names": ["-h", "--help"]}


class RateOfHost(click.ParamType[tuple[str, float]]):
    """A host and its rate, as `h2=300Mbit/s`."""

    name = "host=rate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        host, _, rate = str(value).partition("=")
        if not host or not rate:
            raise UsageError(f"--rate-of {value}: no HOST=RATE", "like --rate-of h2=300Mbit/s")
        return host, parse_rate(rate, "--rate-of", "300Mbit/s")


def _name_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--name", default="lab", show_default=True, callback=not_empty, help="name of the lab"
    )(function)


@click.group("lab", context_settings=HELP)
def command() -> None:
    """Emulate two to eight hosts on this machine, to try or test what runs on several.

    Each has a network and a host name of its own, sshd, and a share of the cores and GPUs. A token
    bucket limits the rate, and netem delays and drops packets. All share one kernel, memory and
    file system. It needs root and pip install 'busbw[lab]'.
    """


@command.command("up", context_settings=HELP)
@click.option(
    "--nodes",
    "hosts",
    type=click.IntRange(MIN_HOSTS, MAX_HOSTS),
    default=2,
    show_default=True,
    help="number of hosts, named h1, h2, ...",
)
@click.option(
    "--rate",
    type=Rate("25Gbit/s"),
    help="limit of what each host sends and receives, 10kbit/s to 34Gbit/s  [default: none]",
)
@click.option(
    "--rate-of",
    "rates",
    multiple=True,
    type=RateOfHost(),
    help="make this host send more slowly than the others: h2=300Mbit/s; may be repeated",
)
@click.option(
    "--delay",
    type=Seconds(zero=True, most=MAX_DELAY_S),
    default=0.0,
    help="added to each packet that a host sends, like 50us  [default: none]",
)
@click.option(
    "--loss",
    type=ShareParam(0, 1),
    help="share of packets that are dropped, like 0.01%  [default: none]",
)
@click.option("--mtu", type=int, default=9000, show_default=True, help="largest packet, in bytes")
@click.option(
    "--gpus",
    type=click.IntRange(0),
    help="GPUs of each host  [default: 1, shared through MPS if there are too few]",
)
@click.option(
    "--no-sshd",
    is_flag=True,
    help="start no sshd: Open MPI and busbw reach the other hosts through an agent of the lab",
)
@_name_option
def up(
    hosts: int,
    rate: float | None,
    rates: tuple[tuple[str, float], ...],
    delay: float,
    loss: float | None,
    mtu: int,
    gpus: int | None,
    no_sshd: bool,
    name: str,
) -> int:
    """Make a lab. It stays until busbw lab down, or until the machine is booted. An interrupted
    up leaves none.
    """
    shape = Shape(rate=rate, delay=delay, loss=loss or 0.0)
    names = [f"h{number}" for number in range(1, hosts + 1)]
    spec = LabSpec(
        name=name, names=names, shape=shape, sends=dict(rates), mtu=mtu, sshd=not no_sshd, gpus=gpus
    )
    with building.announced(spec) as lab:
        for note in lab.notes:
            print_err(f"note: {note}")
        print_out(view.usage(lab))
    return int(Exit.OK)


@command.command("exec", context_settings={**HELP, "allow_interspersed_args": False})
@_name_option
@click.option(
    "--all-hosts",
    "on_all",
    is_flag=True,
    help="on all hosts at the same time; each line begins with the host's name",
)
@click.argument("words", metavar="HOST -- COMMAND...", nargs=-1, type=click.UNPROCESSED)
def exec_(name: str, on_all: bool, words: tuple[str, ...]) -> int:
    """Run a command on a host, or on all of them.

    The exit code is the command's; with --all-hosts it is the largest. Variables of the environment
    are passed on. With --all-hosts, commands read nothing from stdin and end with this one: five
    seconds after Ctrl-C at the latest.
    """
    lab = building.find(name)
    line = words if on_all else words[1:]
    line = line[line[:1] == ("--",) :]
    if not line:
        raise UsageError(
            "exec: no command",
            f"busbw lab exec {lab.hosts[0].name} -- hostname, or for all: busbw lab exec"
            " --all-hosts -- hostname",
        )
    building.check_hosts(lab, lab.hosts if on_all else [lab.host(words[0])])
    try:
        if on_all:
            return host_exec.run(
                lab, line, os.environ, lambda text: print_out(f"{text}\n"), print_err
            )
        _become(lab, lab.host(words[0]), line)
    except OSError as error:
        raise NoMeasurement(
            f"{os.fsdecode(error.filename or 'exec')}: {error.strerror}",
            "install util-linux, which has nsenter, unshare and taskset",
        ) from error


def _become(lab: Lab, host: LabHost, line: Sequence[str]) -> NoReturn:
    """Replace this process by the command. OSError if it cannot be started."""
    argv = host_exec.enter(lab, host, *line)
    sys.stdout.flush()
    os.execvpe(argv[0], argv, host_exec.environment(lab, host, os.environ))


@command.command("status", context_settings=HELP)
@click.option("--name", default="", callback=not_empty, help="only the lab of this name")
@format_option
def status(name: str, format_name: str) -> int:
    """Show the labs of this machine."""
    labs = [building.status(lab) for lab in building.all_labs() if name in ("", lab.name)]
    if name and not labs:
        building.find(name)
    if format_name == "json":
        print_out(msgspec.json.encode(labs).decode() + "\n")
    else:
        print_out(view.status(labs))
    return int(Exit.OK if all(lab.fine for lab in labs) else Exit.BAD)


@command.command("down", context_settings=HELP)
@_name_option
def down(name: str) -> int:
    """Remove a lab with all processes in it, and whatever killed commands left behind."""
    building.down(name)
    return int(Exit.OK)
