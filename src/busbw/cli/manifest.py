"""`busbw manifest`: a job for Kubernetes or Slurm that runs busbw or another program with
collectives.
"""

import math
import shlex
from typing import Any

import click

from busbw.cli.manifests import monitoring
from busbw.cli.manifests.words import every_option, parse, parse_check, program_option
from busbw.cli.options.parameters import DAY_S, Seconds
from busbw.cli.options.shared import options
from busbw.cli.run import command as run_command
from busbw.cli.streams import print_out
from busbw.core.link_samples import METRICS_PORT
from busbw.launch.manifest import kubernetes, mpijob
from busbw.launch.manifest import plan as manifest_plan
from busbw.launch.manifest.kubernetes import CheckSteps, epilog, preflight, prolog
from busbw.launch.manifest.plan import DEFAULT, flag_given, plan

_SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group("manifest", context_settings=_SETTINGS)
def command() -> None:
    """Print a job for Kubernetes or Slurm, or what checks, watches and monitors nodes.

    COMMAND follows `--`. `busbw run` starts its ranks itself; another command, like
    all_reduce_perf, is started once per rank.
    """


_job_options = options(
    click.option("--name", default="busbw", show_default=True, help="name of the job"),
    click.option(
        "--nodes",
        "hosts",
        type=click.IntRange(1),
        default=2,
        show_default=True,
        help="number of hosts",
    ),
    click.option(
        "--gpus-per-node",
        "gpus_per_host",
        type=click.IntRange(0),
        default=8,
        show_default=True,
        help="GPUs of each host; 0 = CPUs",
    ),
    click.option(
        "--ranks",
        type=click.IntRange(1),
        help="number of ranks  [default: one per GPU, or one per host on CPUs]",
    ),
    click.argument("command", nargs=-1, metavar=f"[-- COMMAND...  (default: {' '.join(DEFAULT)})]"),
)


def _slurm_time(context: click.Context, parameter: click.Parameter, text: str) -> str:
    """The time as Slurm writes it. Slurm's own forms stay, but for a number alone, which would be
    minutes there and is seconds in all commands of busbw.
    """
    if not text[:1].isdigit() or ":" in text or "-" in text:
        return text
    seconds = Seconds(least=1, most=365 * DAY_S).convert(text, parameter, context)
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}"


_rdma_option = click.option(
    "--rdma", default="", help="RDMA resource of each pod, by the device plugin's name: rdma/hca=1"
)


@command.command(
    "mpijob", context_settings=_SETTINGS, short_help="An MPIJob of the Kubeflow MPI Operator."
)
@_job_options
@click.option(
    "--image", required=True, help="container image with busbw, Open MPI and an ssh server"
)
@click.option("--namespace", default="", help="namespace  [default: kubectl's]")
@_rdma_option
@click.option(
    "--ssh-dir",
    default="/home/busbw/.ssh",
    show_default=True,
    help="directory of the user's ssh keys in the image",
)
@click.option(
    "--ssh-port",
    type=click.IntRange(1, 65535),
    default=2222,
    show_default=True,
    help="port in the image's ssh_config",
)
def mpijob_command(
    image: str, namespace: str, rdma: str, ssh_dir: str, ssh_port: int, **job: Any
) -> int:
    """Print an MPIJob of the Kubeflow MPI Operator (kubeflow.org/v2beta1): `busbw manifest
    mpijob ... | kubectl apply -f -`.
    """
    print_out(mpijob.text(plan(**job), mpijob.Pods(image, namespace, rdma, ssh_dir, ssh_port)))
    return 0


@command.command(
    "slurm", context_settings=_SETTINGS, short_help="An sbatch script that takes whole nodes."
)
@_job_options
@click.option("--partition", default="", help="partition  [default: Slurm's]")
@click.option("--account", default="", help="account  [default: Slurm's]")
@click.option(
    "--time",
    default="30m",
    show_default=True,
    callback=_slurm_time,
    help="time limit of the job: 90m, 2h, or in the format of Slurm: 1-12:00:00",
)
def slurm_command(partition: str, account: str, time: str, **job: Any) -> int:
    """Print an sbatch script that takes whole nodes: `busbw manifest slurm ... > job.sh &&
    sbatch job.sh`.
    """
    print_out(manifest_plan.text(plan(**job), manifest_plan.Site(partition, account, time)))
    return 0


_check_options = options(
    click.option(
        "--check-options",
        "check",
        default="",
        help="options of busbw check: '--layer GPU --layer NIC'",
    ),
    click.option(
        "--limit",
        "limit_s",
        type=Seconds(least=1, most=3600, whole=True),
        default=60,
        show_default=True,
        help="give up after this time on a step",
    ),
    click.option(
        "--strict",
        is_flag=True,
        help="also refuse a node that could not be judged (exit code 2, 3 or 4 of a step)",
    ),
)
_step_options = options(
    _check_options,
    click.option(
        "--least",
        default="",
        help="a run that must reach a busbw: 'all_reduce -b 1G -e 1G --min-percent 80%'",
    ),
)


def _steps(
    check: str, limit_s: int, *, strict: bool, least: str = "", program: str = "busbw"
) -> CheckSteps:
    run = parse("--least", run_command, least)
    checks = parse_check(check)
    if flag_given(checks, "--expect"):
        # An entry of the file that has ended is no reason to drain a node.
        checks = [*checks, "--skip", "mute-ended"]
    return CheckSteps(checks, run, limit_s, strict, program)


@command.command(
    "prolog",
    context_settings=_SETTINGS,
    short_help="A Slurm prolog that drains a node that fails a check.",
)
@_step_options
@program_option
def prolog_command(**steps: Any) -> int:
    """Print a prolog for Slurm: `busbw manifest prolog > /etc/slurm/busbw-prolog.sh && chmod +x
    /etc/slurm/busbw-prolog.sh`.

    `sinfo -R` names the check that failed.
    """
    print_out(prolog(_steps(**steps)))
    return 0


@command.command(
    "epilog",
    context_settings=_SETTINGS,
    short_help="A Slurm epilog that drains a node that fails a check after a job.",
)
@_check_options
@program_option
def epilog_command(**steps: Any) -> int:
    """Print an epilog for Slurm: `busbw manifest epilog > /etc/slurm/busbw-epilog.sh && chmod +x
    /etc/slurm/busbw-epilog.sh`.

    It runs no collective, as another job may use the node.
    """
    print_out(epilog(_steps(**steps)))
    return 0


@command.command(
    "preflight",
    context_settings=_SETTINGS,
    short_help="An init container that stops a pod on a node that fails a check.",
)
@click.option("--image", required=True, help="container image with busbw")
@click.option(
    "--gpus-per-node",
    "gpus_per_host",
    type=click.IntRange(0),
    default=8,
    show_default=True,
    help="GPUs of the pod; 0 = CPUs",
)
@_rdma_option
@_step_options
def preflight_command(image: str, gpus_per_host: int, rdma: str, **steps: Any) -> int:
    """Print a patch that adds an init container with the steps of `busbw manifest prolog` to the
    pods of a job.

    `kubectl patch --local -f job.yaml --patch-file preflight.json -o yaml | kubectl create -f -`
    """
    print_out(preflight(image, kubernetes.resources(gpus_per_host, rdma), _steps(**steps)))
    return 0


@command.command(
    "daemonset",
    context_settings=_SETTINGS,
    short_help="A DaemonSet that checks and watches each GPU node.",
)
@click.option("--image", required=True, help="container image with busbw")
@click.option("--name", default="busbw-watch", show_default=True, help="name of the DaemonSet")
@click.option("--namespace", default="", help="namespace  [default: kubectl's]")
@click.option(
    "--token-secret",
    "secret",
    default="busbw-watch",
    show_default=True,
    help="Secret whose key `token` scrapers must send",
)
@click.option(
    "--metrics-port",
    "port",
    type=click.IntRange(1, 65535),
    default=METRICS_PORT,
    show_default=True,
    help="port of the metrics on the node's address",
)
@every_option
@click.option(
    "--runtime-class",
    default="nvidia",
    show_default=True,
    help="RuntimeClass that shows GPUs; '' = the default",
)
@click.option(
    "--node-selector",
    "selector",
    default="nvidia.com/gpu.present=true",
    show_default=True,
    help="label of the nodes; '' = all",
)
@click.option(
    "--check-options",
    "check",
    default=shlex.join(kubernetes.CHECK),
    show_default=True,
    help="options of busbw check",
)
def daemonset_command(check: str, **node: Any) -> int:
    """Print a DaemonSet: `busbw manifest daemonset ... | kubectl apply -f -`.

    Each pod serves the counters of `busbw watch` on the node's address. It is ready while `busbw
    check` finds no fault.
    """
    print_out(kubernetes.text(kubernetes.PodSettings(check=tuple(parse_check(check)), **node)))
    return 0


for _subcommand in monitoring.COMMANDS:
    command.add_command(_subcommand)
