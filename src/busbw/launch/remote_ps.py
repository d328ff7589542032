"""The launch agent that runs a command on another host.

It is ssh, or the agent that Open MPI is configured to use.
"""

import os
import shlex
from collections.abc import Iterable, Mapping

from busbw.launch.mpirun import launch_agent, ssh_args

SSH_FAILED = 255  # ssh's exit code if it could not run the command


def command(host: str, words: Iterable[str], environ: Mapping[str, str] | None = None) -> list[str]:
    """The command line that runs the shell words `words` on `host`."""
    environ = os.environ if environ is None else environ
    return [*shlex.split(launch_agent(environ)), *shlex.split(ssh_args(environ)), host, *words]
