"""Asking a host something through the launch agent that starts ranks there: ssh, or what Open MPI is told to use instead."""

import os
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from busbw.host.process import GONE, stat_fields
from busbw.launch.mpirun import launch_agent, ssh_args

MOST_AT_ONCE = 32


def command(host: str, words: Iterable[str], environ: Mapping[str, str] | None = None) -> list[str]:
    """The line that runs `words` (for a shell) on `host`."""
    environ = os.environ if environ is None else environ
    return [*shlex.split(launch_agent(environ)), *shlex.split(ssh_args(environ)), host, *words]


def states(host: str, pids: Iterable[int], limit_s: float) -> dict[int, str] | None:
    """State letters of processes on `host`, GONE for those that are not there; None when it does not answer within `limit_s` seconds."""
    wanted = tuple(pids)
    line = command(host, [f"for p in {' '.join(map(str, wanted))}; do cat /proc/$p/stat 2>/dev/null || echo $p gone; done"])
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=limit_s, stdin=subprocess.DEVNULL, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found: dict[int, str] = dict.fromkeys(wanted, GONE)
    for text in done.stdout.splitlines():
        pid, fields = text.partition(" ")[0], stat_fields(text)
        if pid.isdigit() and fields and int(pid) in found:
            found[int(pid)] = fields[0]
    return found


def all_states(pids: Mapping[str, Iterable[int]], limit_s: float) -> dict[str, dict[int, str] | None]:
    """`states` of several hosts at once, by host."""
    if not pids:
        return {}
    with ThreadPoolExecutor(min(len(pids), MOST_AT_ONCE)) as pool:
        answers = pool.map(lambda host: states(host, pids[host], limit_s), pids)
        return dict(zip(pids, answers, strict=True))
