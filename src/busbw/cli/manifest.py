"""`busbw manifest`: a job for Kubernetes or Slurm that runs busbw or another program with collectives."""

from typing import Any

import click

from busbw.cli.parameters import shell_words
from busbw.cli.shared_options import options
from busbw.cli.streams import answer
from busbw.launch.manifest import mpijob, prolog, sbatch
from busbw.launch.manifest.plan import DEFAULT, plan

_SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group("manifest", context_settings=_SETTINGS)
def command() -> None:
    """Print a job for Kubernetes or Slurm, or a prolog that checks a node before each job.

    COMMAND follows `--`. `busbw run` starts its ranks itself; another command, like all_reduce_perf, is started once per rank.
    """


_job_options = options(
    click.option("--name", default="busbw", show_default=True, help="name of the job"),
    click.option("--hosts", type=click.IntRange(1), default=2, show_default=True, help="number of hosts"),
    click.option("--gpus-per-host", type=click.IntRange(0), default=8, show_default=True, help="GPUs of each host; 0 = CPUs"),
    click.option("--ranks", type=click.IntRange(1), help="total ranks  [default: one per GPU, or one per host on CPUs]"),
    click.argument("command", nargs=-1, metavar=f"[-- COMMAND...  (default: {' '.join(DEFAULT)})]"),
)


@command.command("mpijob", context_settings=_SETTINGS, short_help="An MPIJob of the Kubeflow MPI Operator.")
@_job_options
@click.option("--image", required=True, help="container image with busbw, Open MPI and an ssh server")
@click.option("--namespace", default="", help="namespace  [default: kubectl's]")
@click.option("--rdma", default="", help="RDMA resource of each worker, by the device plugin's name: rdma/hca=1")
@click.option("--ssh-dir", default="/root/.ssh", show_default=True, help="directory of the user's ssh keys in the image")
@click.option("--ssh-port", type=click.IntRange(1, 65535), default=22, show_default=True, help="port in the image's ssh_config")
def mpijob_command(image: str, namespace: str, rdma: str, ssh_dir: str, ssh_port: int, **job: Any) -> int:
    """Print an MPIJob of the Kubeflow MPI Operator (kubeflow.org/v2beta1): `busbw manifest mpijob ... | kubectl apply -f -`."""
    answer(mpijob.text(plan(**job), mpijob.Pods(image, namespace, rdma, ssh_dir, ssh_port)))
    return 0


@command.command("slurm", context_settings=_SETTINGS, short_help="An sbatch script that takes whole nodes.")
@_job_options
@click.option("--partition", default="", help="partition  [default: Slurm's]")
@click.option("--account", default="", help="account  [default: Slurm's]")
@click.option("--time", default="00:30:00", show_default=True, help="time limit of the job, in the format of Slurm")
def slurm_command(partition: str, account: str, time: str, **job: Any) -> int:
    """Print an sbatch script that takes whole nodes: `busbw manifest slurm ... > job.sh && sbatch job.sh`."""
    answer(sbatch.text(plan(**job), sbatch.Site(partition, account, time)))
    return 0


@command.command("prolog", context_settings=_SETTINGS, short_help="A prolog of Slurm that drains a node which fails a check.")
@click.option("--check", default="", help="options of busbw check: '--layer GPU --layer NIC'")
@click.option("--least", default="", help="a run that must reach a busbw: 'all_reduce -b 1G -e 1G --min-percent 80%'")
@click.option("--limit", "limit_s", type=click.IntRange(1, 3600), default=60, show_default=True, help="seconds for each step")
def prolog_command(check: str, least: str, limit_s: int) -> int:
    """Print a prolog for Slurm: `busbw manifest prolog > /etc/slurm/busbw-prolog.sh && chmod +x /etc/slurm/busbw-prolog.sh`."""
    answer(prolog.text(shell_words("--check", check), shell_words("--least", least), limit_s))
    return 0
