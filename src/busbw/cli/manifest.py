"""`busbw manifest`: what to hand to Kubernetes or Slurm, so that it runs busbw or any other program of collectives."""

from typing import Any

import click

from busbw.cli.streams import answer
from busbw.launch.manifest import mpijob, sbatch
from busbw.launch.manifest.plan import DEFAULT, plan

_SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group("manifest", context_settings=_SETTINGS)
def command() -> None:
    """Print a job for Kubernetes or Slurm.

    COMMAND comes after `--`. `busbw run` starts its ranks itself; any other command, like all_reduce_perf, becomes each rank's program.
    """


def _shape(function: Any) -> Any:
    """The options that all targets share."""
    for option in reversed(
        (
            click.option("--name", default="busbw", show_default=True, help="name of the job"),
            click.option("--hosts", type=click.IntRange(1), default=2, show_default=True, help="hosts"),
            click.option("--gpus-per-host", type=click.IntRange(0), default=8, show_default=True, help="GPUs of each host; 0 = CPUs"),
            click.option("--ranks", type=click.IntRange(1), help="ranks in all  [default: one per GPU, or one per host on CPUs]"),
            click.argument("words", nargs=-1, metavar=f"[-- COMMAND...  (default: {' '.join(DEFAULT)})]"),
        )
    ):
        function = option(function)
    return function


@command.command("mpijob", context_settings=_SETTINGS, short_help="An MPIJob of the Kubeflow MPI Operator.")
@_shape
@click.option("--image", required=True, help="container image with busbw, Open MPI and an ssh server")
@click.option("--namespace", default="", help="namespace  [default: kubectl's]")
@click.option("--rdma", default="", help="RDMA resource of each worker, as the device plugin names it: rdma/hca=1")
@click.option("--ssh-dir", default="/root/.ssh", show_default=True, help="where the image's user keeps ssh keys")
@click.option("--ssh-port", type=click.IntRange(1, 65535), default=22, show_default=True, help="port in the image's ssh_config")
def mpijob_command(
    name: str, hosts: int, gpus_per_host: int, ranks: int | None, words: tuple[str, ...],
    image: str, namespace: str, rdma: str, ssh_dir: str, ssh_port: int,
) -> int:  # fmt: skip
    """An MPIJob of the Kubeflow MPI Operator (kubeflow.org/v2beta1): `busbw manifest mpijob ... | kubectl apply -f -`."""
    made = plan(name, hosts, gpus_per_host, ranks, words)
    answer(mpijob.text(made, mpijob.Pods(image, namespace, rdma, ssh_dir, ssh_port)))
    return 0


@command.command("slurm", context_settings=_SETTINGS, short_help="An sbatch script that takes whole nodes.")
@_shape
@click.option("--partition", default="", help="partition  [default: Slurm's]")
@click.option("--account", default="", help="account  [default: Slurm's]")
@click.option("--time", default="00:30:00", show_default=True, help="time limit of the job, as Slurm writes it")
def slurm_command(
    name: str, hosts: int, gpus_per_host: int, ranks: int | None, words: tuple[str, ...], partition: str, account: str, time: str,
) -> int:  # fmt: skip
    """An sbatch script that takes whole nodes: `busbw manifest slurm ... > job.sh && sbatch job.sh`."""
    answer(sbatch.text(plan(name, hosts, gpus_per_host, ranks, words), sbatch.Site(partition, account, time)))
    return 0
