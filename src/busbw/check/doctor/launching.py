"""Stages: mpirun starts processes, ranks exchange messages, NCCL starts, all_reduce is right."""

import os
import subprocess
from collections.abc import Sequence

from busbw.check.doctor.launch_context import LaunchContext, failed, passed, skipped
from busbw.check.types import Stage
from busbw.core.errors import BusbwError
from busbw.core.sizes import counted
from busbw.launch import failures, mpirun, remote
from busbw.launch.hosts import Host

# Open MPI 5 waits without end for a program that ends at once, in 1 of 60 starts on a busy host:
# PRRTE's daemon misses its end.
NAMES_ITSELF = ("sh", "-c", "hostname; sleep 1")
OPEN = (
    "name the subnet that connects the hosts with --ifname CIDR; allow it in the firewall in both"
    " directions"
)


def ifname(context: LaunchContext) -> str:
    """What the user chose, else the first subnet that works."""
    return context.ifname or (str(context.networks[0]) if context.networks else "")


def start(context: LaunchContext) -> Stage:
    """mpirun with one process on each host, which prints the host's name."""
    one_each = tuple(Host(name, 1) for name in context.names)
    try:
        line = mpirun.command(mpirun.find(), NAMES_ITSELF, len(one_each), one_each, ifname(context))
    except BusbwError as error:
        return failed("mpirun", error.message, fix=error.hint)
    code, out, error_text = _run(line, context.limit_s)
    answered = sorted(out.split())
    expected = sorted(said["hostname"] for said in context.identities.values())
    if code == 0 and answered == expected:
        return passed(
            "mpirun",
            f"{mpirun.find().path} (Open MPI {mpirun.find().version}) starts a process on each"
            " host",
        )
    if code is None:
        message = (
            f"mpirun did not end within {context.limit_s:g} s: its daemons cannot connect back to"
            " this host"
        )
        return failed("mpirun", message, " ".join(line), fix=OPEN)
    found = failures.explain(code, error_text, context.names)
    return failed(
        "mpirun", found.message, error_text.strip()[-300:], " ".join(line), fix=found.hint
    )


def ring(context: LaunchContext) -> Stage:
    """Two messages around a ring of one rank on each host, by MPI."""
    return _busbw(
        context,
        "mpi",
        ["sendrecv", "--engine", "mpi", "-b", "8", "-e", "64K", "-f", "8192"],
        per_host=1,
    )


def nccl(context: LaunchContext) -> Stage:
    """NCCL's communicator over one GPU of each host."""
    if context.engine == "mpi":
        return skipped("nccl", "no GPUs were requested")
    return _busbw(
        context, "nccl", ["all_reduce", "--engine", "nccl", "-b", "8", "-e", "8"], per_host=1
    )


def all_reduce(context: LaunchContext) -> Stage:
    """A small all_reduce over all ranks, verified."""
    engine = ["--engine", context.engine] if context.engine != "auto" else []
    return _busbw(
        context,
        "all_reduce",
        ["all_reduce", *engine, "-b", "8", "-e", "1M", "-f", "131072"],
        per_host=0,
    )


def _busbw(context: LaunchContext, name: str, sweep: Sequence[str], per_host: int) -> Stage:
    hosts = ",".join(str(Host(host.name, per_host or host.slots or 1)) for host in context.hosts)
    words = [
        "run",
        *sweep,
        "--hosts",
        hosts,
        "--timing",
        "classic",
        "--iters",
        "5",
        "--brief",
        "--launch-limit",
        f"{context.limit_s:g}",
    ]
    words += [
        "--limit",
        f"{context.limit_s:g}",
        *(["--ifname", ifname(context)] if ifname(context) else []),
    ]
    code, out, error = _run(remote.busbw(*words), 2 * context.limit_s + 10)
    if code == 0:
        return passed(
            name,
            (
                out.strip().splitlines()[-1]
                if out.strip()
                else f"{counted(len(context.hosts), 'host')} exchanged data"
            ),
        )
    said, _, hint = error.partition("\nhint:")
    message = next(
        (line.removeprefix("error: ") for line in said.splitlines() if line.startswith("error: ")),
        said.strip()[-200:] or out.strip()[-200:],
    )
    if code is None:
        message = f"no end within {2 * context.limit_s + 10:g} s"
    command = f"busbw {' '.join(words)}"
    return failed(
        name, message, command, fix=" ".join(hint.split()) or f"NCCL_DEBUG=INFO {command}"
    )


def _run(line: Sequence[str], limit_s: float) -> tuple[int | None, str, str]:
    """Exit code (None: killed after the limit), stdout and stderr."""
    try:
        done = subprocess.run(
            line,
            capture_output=True,
            text=True,
            timeout=limit_s,
            stdin=subprocess.DEVNULL,
            env=os.environ,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        parts = (
            part.decode(errors="replace") if isinstance(part, bytes) else part or ""
            for part in (error.stdout, error.stderr)
        )
        out, text = parts
        return None, out, text
    except OSError as error:
        return 127, "", f"{line[0]}: {error.strerror}"
    return done.returncode, done.stdout, done.stderr
