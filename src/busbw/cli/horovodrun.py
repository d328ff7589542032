"""`busbw horovodrun`: horovodrun's words for Open MPI's mpirun, and `import horovod.torch` finds busbw's in the scripts it starts."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from busbw.cli.parameters import File, not_empty
from busbw.cli.streams import answer, talk
from busbw.core.errors import UsageError
from busbw.launch import hosts, mpirun
from busbw.session.where import FORWARDED, PER_HOST

MODULE = "busbw.horovod"
# What follows COMMAND is its own.
_SETTINGS = {"help_option_names": ["-h", "--help"], "allow_interspersed_args": False}
# horovodrun's options with a value, the variable that each sets, and by what the value is multiplied.
VALUES = (
    ("--timeline-filename", "HOROVOD_TIMELINE", 0),
    ("--fusion-threshold-mb", "HOROVOD_FUSION_THRESHOLD", 1 << 20),
    ("--cycle-time-ms", "HOROVOD_CYCLE_TIME", 1),
    ("--cache-capacity", "HOROVOD_CACHE_CAPACITY", 1),
    ("--stall-check-warning-time-seconds", "HOROVOD_STALL_CHECK_TIME_SECONDS", 1),
    ("--stall-check-shutdown-time-seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 1),
)
FLAGS = (
    ("--timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES"),
    ("--no-stall-check", "HOROVOD_STALL_CHECK_DISABLE"),
    ("--hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE"),
    ("--torus-allreduce", "HOROVOD_TORUS_ALLREDUCE"),
)


def _tuning(command: click.Command) -> click.Command:
    for name, variable, factor in VALUES:
        kind = click.IntRange(min=0) if factor else str
        command.params.append(click.Option([name], type=kind, metavar=None if factor else "FILE", help=f"sets {variable}"))
    command.params += [click.Option([name], is_flag=True, help=f"sets {variable}") for name, variable in FLAGS]
    return command


@_tuning
@click.command("horovodrun", context_settings=_SETTINGS, short_help="Start a script of Horovod's on several ranks, as horovodrun does.")
@click.option("-np", "--num-proc", "ranks", type=click.IntRange(min=1), help="number of ranks  [default: the hosts' slots]")
@click.option("-H", "--hosts", "host_list", default="", callback=not_empty, help="hosts and ranks on each: h1:2,h2:2")
@click.option("-hostfile", "--hostfile", type=File(), help="file of hosts: `h1 slots=2` a line")
@click.option(
    "--network-interfaces",
    "ifname",
    default="",
    callback=not_empty,
    help="names, a prefix, or a network like 10.1.0.0/16, for MPI, Gloo and NCCL",
)
@click.option("--gloo", is_flag=True, help="what CPU operations use anyway")
@click.option("--mpi", is_flag=True, help="not there: CPU operations use Gloo")
@click.option("--dry-run", is_flag=True, help="print mpirun's command line and stop")
@click.argument("words", nargs=-1, required=True, metavar="COMMAND...")
def command(
    ranks: int | None,
    host_list: str,
    hostfile: Path | None,
    ifname: str,
    gloo: bool,
    mpi: bool,
    dry_run: bool,
    words: tuple[str, ...],
    **tuning: object,
) -> int:
    """Run COMMAND on each rank. Becomes mpirun, whose exit code is the answer.

    In `python train.py ...` the script's `import horovod.torch` finds busbw.horovod.torch.
    """
    places = hosts.read_hostfile(str(hostfile)) if hostfile else hosts.parse_hosts(host_list) if host_list else ()
    if not places and ranks is None:
        raise UsageError("how many ranks?", "busbw horovodrun -np 2 python train.py")
    if places:
        places = hosts.share(places, ranks)
    if mpi:
        talk("note: --mpi: operations on CPUs use Gloo, not MPI")
    prefixes = (*FORWARDED, "HOROVOD_", "LIGHT_")
    carried = {name: value for name, value in os.environ.items() if places and name.startswith(prefixes) and name not in PER_HOST}
    count = sum(place.slots for place in places) or ranks or 1
    line = mpirun.command(mpirun.find(), program(words), count, places, ifname, {**carried, **variables(tuning)})
    if dry_run:
        answer(shlex.join(line) + "\n")
    else:
        os.execv(line[0], line)
    return 0


def variables(tuning: dict[str, object]) -> dict[str, str]:
    """What the tuning options that were given set."""
    said = {f"--{name.replace('_', '-')}": value for name, value in tuning.items()}
    values = {
        variable: str(int(str(said[name])) * factor if factor else said[name])
        for name, variable, factor in VALUES
        if said[name] is not None
    }
    return values | {variable: "1" for name, variable in FLAGS if said[name]}


def program(words: Sequence[str]) -> list[str]:
    """COMMAND, where it is a Python script one for which `horovod` is busbw's."""
    if not Path(words[0]).name.startswith("python"):
        return list(words)
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c"):
        at += 2 if words[at] in ("-W", "-X") else 1
    runs_file = at < len(words) and words[at] not in ("-m", "-c")
    return [*words[:at], "-m", MODULE, *words[at:]] if runs_file else list(words)
