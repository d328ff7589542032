"""An sbatch script that runs the command on whole nodes: other jobs would disturb the
measurement.
"""

import re
from dataclasses import dataclass

from busbw.core.errors import UsageError
from busbw.launch.manifest.filler import fill_script
from busbw.launch.manifest.plan import Plan
from busbw.launch.slurm import TASKS

# Allowed in option values: no white space, comment or shell syntax.
_VALUE = re.compile(r"[A-Za-z0-9_.,:@%/+-]+")


@dataclass(frozen=True, slots=True)
class Site:
    """Settings of the cluster; '' leaves an option at its default."""

    partition: str = ""
    account: str = ""
    time: str = ""


def text(plan: Plan, site: Site) -> str:
    """The script. UsageError for a value that sbatch could not read."""
    options = {
        "name": plan.name,
        "partition": site.partition or None,
        "account": site.account or None,
        "time": site.time or None,
        "output": f"{plan.name}-%j.log",
    }
    for name, value in options.items():
        if value is not None and not _VALUE.fullmatch(value):
            message = f"--{name} '{value}': sbatch could not read it"
            raise UsageError(message, "use letters, digits and .,:_-")
    starter = ["srun", "--mpi=pmix", *TASKS]
    words = [*plan.command, "--slurm"] if plan.starts_itself else [*starter, *plan.command]
    values = {
        **options,
        "hosts": plan.hosts,
        "ranks_per_host": plan.ranks_per_host,
        "gpus_per_host": plan.gpus_per_host or None,
        "command": words,
    }
    return fill_script("sbatch.sh", values)
