"""`busbw horovodrun`: a launcher with horovodrun's options. In the programs that it starts, `import
horovod.torch` imports busbw_accel.horovod.torch.

Open MPI's mpirun starts the ranks; busbw's own launcher starts those of elastic jobs.
"""

import contextlib
import os
import shlex
from pathlib import Path

import click

from busbw.cli.options import groups
from busbw.cli.options.grouped import GroupedCommand
from busbw.cli.options.parameters import File, not_empty
from busbw.cli.options.shared import options
from busbw.cli.streams import print_err, print_out
from busbw.core.errors import UsageError
from busbw.core.version import __version__
from busbw.launch import hosts, mpirun
from busbw.launch.cleanup import MARKER, Cleanup, Guard, new_mark
from busbw.measure.target import FORWARDED, LaunchTarget, forwarded
from busbw_accel.cli.horovod import build, elastic, ignored
from busbw_accel.horovod import __version__ as API_VERSION
from busbw_accel.horovod import shim

# With PATH `python` is that of the same environment on every host.
PASSED_ON = (*FORWARDED, "HOROVOD_", "LIGHT_", "PATH")
# Arguments after COMMAND belong to it.
_SETTINGS = {"help_option_names": ["-h", "--help"], "allow_interspersed_args": False}
# horovodrun's options with a value, the variable that each sets, and the factor of the value. With
# 0 the value is a text, with an int a whole number; with a float it may have decimals.
VALUES = (
    ("--timeline-filename", "HOROVOD_TIMELINE", 0),
    ("--fusion-threshold-mb", "HOROVOD_FUSION_THRESHOLD", 1 << 20),
    ("--cycle-time-ms", "HOROVOD_CYCLE_TIME", 1.0),
    ("--cache-capacity", "HOROVOD_CACHE_CAPACITY", 1),
    ("--stall-check-warning-time-seconds", "HOROVOD_STALL_CHECK_TIME_SECONDS", 1),
    ("--stall-check-shutdown-time-seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 1),
    ("--gloo-timeout-seconds", "HOROVOD_GLOO_TIMEOUT_SECONDS", 1),
)
FLAGS = (
    ("--timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES"),
    ("--no-stall-check", "HOROVOD_STALL_CHECK_DISABLE"),
    ("--hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE"),
    ("--torus-allreduce", "HOROVOD_TORUS_ALLREDUCE"),
)


def _words(_context: click.Context, _parameter: click.Parameter, text: str | None) -> list[str]:
    try:
        return shlex.split(text or "")
    except ValueError as error:
        raise UsageError(f"--mpi-args {text}: {error}", "write words as in a shell") from error


_TYPES = {int: click.IntRange(0), float: click.FloatRange(0)}
_value_options = [
    click.option(
        name,
        type=_TYPES[type(factor)] if factor else str,
        metavar=None if factor else "FILE",
        help=f"sets {variable}",
    )
    for name, variable, factor in VALUES
]
_flag_options = [
    click.option(name, is_flag=True, help=f"sets {variable}") for name, variable in FLAGS
]


@click.command(
    "horovodrun",
    cls=GroupedCommand,
    groups=groups.HOROVODRUN,
    context_settings=_SETTINGS,
    short_help="Start a Horovod script on several ranks, like horovodrun.",
)
@click.option(
    "-np",
    "--num-proc",
    "ranks",
    type=click.IntRange(min=1),
    help="number of ranks  [default: the hosts' slots]",
)
@click.option(
    "-H",
    "--hosts",
    "host_list",
    default="",
    callback=not_empty,
    help="hosts and ranks on each: h1:2,h2:2",
)
@click.option(
    "-hostfile", "--hostfile", type=File(), help="file with one host per line: `h1 slots=2`"
)
@click.option(
    "--network-interfaces",
    "ifname",
    default="",
    callback=not_empty,
    help="names, a prefix, or a network like 10.1.0.0/16",
)
@click.option(
    "--gloo", is_flag=True, expose_value=False, help="ignored: CPU operations always use Gloo"
)
@click.option("--mpi", is_flag=True, help="not supported: CPU operations use Gloo")
@click.option(
    "--mpi-args", callback=_words, help="more arguments of mpirun: --mpi-args='--timestamp-output'"
)
@click.option("--dry-run", is_flag=True, help="print mpirun's command line and stop")
@click.version_option(
    __version__,
    "-v",
    "--version",
    message=f"busbw %(version)s, with the API of Horovod {API_VERSION}",
)
@click.option(
    "-cb",
    "--check-build",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=build.show,
    help="print what is available",
)
@options(*_value_options, *_flag_options, *elastic.options, *ignored.options)
@click.argument("args", nargs=-1, required=True, metavar="COMMAND...")
def command(
    ranks: int | None,
    host_list: str,
    hostfile: Path | None,
    ifname: str,
    mpi: bool,
    mpi_args: list[str],
    dry_run: bool,
    args: tuple[str, ...],
    **tuning: object,
) -> int:
    """Run COMMAND on each rank, through mpirun, and exit with its code.

    In Python programs that COMMAND runs, `import horovod.torch` imports busbw_accel.horovod.torch.

    With --min-np or --host-discovery-script the job is elastic: if ranks are lost, the others go on
    from the last commit, and ranks join and leave as slots of this host come and go.
    """
    job = elastic.take(tuning)
    job.check(ranks)
    named = LaunchTarget(hosts=host_list, hostfile=hostfile).named()
    if job.asked:
        if dry_run or mpi_args:
            option = "--dry-run" if dry_run else "--mpi-args"
            raise UsageError(
                f"{option} is for mpirun, which an elastic job does not use", f"leave out {option}"
            )
        if ifname:
            print_err(
                "note: --network-interfaces has no effect: the ranks of an elastic job use the"
                " loopback interface"
            )
        return elastic.run(job, ranks, named or [], args, variables(tuning))
    if not named and ranks is None:
        raise UsageError("no number of ranks is given", "busbw horovodrun -np 2 python train.py")
    if named:
        named = hosts.share(named, ranks)
    if mpi:
        print_err("note: --mpi: operations on CPUs use Gloo, not MPI")
    environment = forwarded(PASSED_ON) if named else {}
    environment |= variables(tuning)
    count = sum(host.slots for host in named) or ranks or 1
    line = mpirun.command(mpirun.find(), args, count, named, ifname, environment)
    line[1:1] = mpi_args
    if dry_run:
        print_out(shlex.join(line) + "\n")
    else:
        _become(line)
    return 0


def _become(line: list[str]) -> None:
    """Replace this process by mpirun. If that is killed (SIGKILL), a child of it ends its ranks on
    this host, and removes their files.
    """
    job = Cleanup(new_mark(), os.getpid())
    os.environ[MARKER] = job.marker
    with contextlib.suppress(OSError):  # no process is left: the job can do without
        Guard(job).survive_exec()
    os.execv(line[0], line)


def variables(tuning: dict[str, object]) -> dict[str, str]:
    """The environment variables for the given tuning options, and for `import horovod`."""
    texts = {
        f"--{name.replace('_', '-')}": str(value)
        for name, value in tuning.items()
        if value is not None and value is not False
    }
    values = shim.environ()
    for name, variable, factor in VALUES:
        if name in texts:
            text = texts[name]
            values[variable] = str(type(factor)(text) * factor) if factor else text
    return values | {variable: "1" for name, variable in FLAGS if name in texts}
