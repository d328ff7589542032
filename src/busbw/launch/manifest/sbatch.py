"""An sbatch script that runs the command on whole nodes."""

import re
import shlex
from dataclasses import dataclass

from busbw.core.errors import UsageError
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
    """The script. Raises UsageError for a value that sbatch could not read."""
    options: dict[str, str | int] = {
        "job-name": plan.name,
        "nodes": plan.hosts,
        "ntasks-per-node": plan.ranks_per_host,
        "gpus-per-node": plan.gpus_per_host or "",
        "partition": site.partition,
        "account": site.account,
        "time": site.time,
        "output": f"{plan.name}-%j.log",
    }
    for name, value in options.items():
        if value != "" and not _VALUE.fullmatch(str(value)):
            raise UsageError(
                f"--{'name' if name == 'job-name' else name} '{value}': sbatch could not read it", "use letters, digits and .,:_-"
            )
    lines = [f"#SBATCH --{name}={value}" for name, value in options.items() if value != ""]
    # Other jobs on the node would disturb the measurement.
    lines += ["#SBATCH --exclusive", "#SBATCH --mem=0"]
    words = [*plan.command, "--slurm"] if plan.starts_itself else ["srun", "--mpi=pmix", *TASKS, *plan.command]
    return "\n".join(["#!/bin/bash", *lines, "", f"exec {shlex.join(words)}", ""])
