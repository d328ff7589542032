"""How a command runs on an emulated host: in its network, under its name, on its share of the
cores and GPUs, with its /etc/hosts.

`run` starts one command on all hosts of a lab at the same time, and prints its output line by line.
"""

import codecs
import contextlib
import io
import os
import selectors
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from busbw.core.env import LAB_RATE
from busbw.host.process import die_with_parent
from busbw.lab.gpus import PIPES
from busbw.lab.processes import enter_network
from busbw.lab.types import Lab, LabHost

HOSTS_FILE, SSH_CONFIG = "/etc/hosts", "/etc/ssh/ssh_config"
# What a host's ssh reads, and which file of the lab is mounted there: ssh takes a setting from the
# first file that has it.
SSH_CONFIGS = {
    SSH_CONFIG: "ssh_config",
    str(Path("~root/.ssh/config").expanduser()): "ssh_config.user",
}
_SYS = "mount -n -t sysfs sysfs /sys"  # /sys/class/net shows the network in which it was mounted
# All hosts share this machine's cores without knowing it: ranks that wait must yield.
YIELD = {"OMPI_MCA_mpi_yield_when_idle": "1"}
# A machine may forbid Open MPI to start anything on other hosts; a lab's hosts are its own.
_DROPPED = ("OMPI_MCA_plm", "PRTE_MCA_plm", LAB_RATE)
SIGNAL_EXIT_BASE = 128  # and the number of the signal: the exit code that a shell gives
GRACE_S = 5.0  # after Ctrl-C
LAST_LINES_S = 2.0  # after a command has ended: what it left running may hold its output open
_POLL_S = 0.1
_CHUNK = 1 << 16


def enter(lab: Lab, host: LabHost, *argv: str) -> list[str]:
    """The command line that runs `argv` on a host, in the same process."""
    # The assignment replaces a HOSTNAME of the environment, which containers have, and exports
    # none.
    script = f'hostname "$0"; HOSTNAME=$0; {mounts(lab)}; exec "$@"'
    return [*inside(host), "sh", "-c", script, host.name, *argv]


def inside(host: LabHost) -> list[str]:
    """The words before a command that run it in a host's network, on its cores, with its name."""
    cores = ["taskset", "-c", ",".join(map(str, host.cores))] if host.cores else []
    return [*cores, *enter_network(host.namespace)]


def mounts(lab: Lab) -> str:
    """Shell commands that mount what differs from this machine.

    Their failure is printed, and the host is used without them.
    """
    binds = {HOSTS_FILE: lab.hosts_file}
    for path, file in SSH_CONFIGS.items():
        if Path(path).exists() and Path(lab.folder, file).exists():
            binds[path] = f"{lab.folder}/{file}"
    commands = [_SYS]
    for path, file in binds.items():
        commands.append(f"mount -n --bind {shlex.quote(file)} {shlex.quote(path)}")
    return "; ".join(commands)


def variables(lab: Lab, host: LabHost) -> dict[str, str]:
    """The variables that a host's processes need in addition to the user's environment."""
    values = dict(YIELD)
    if host.gpus or lab.spec.gpus == 0:
        values["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, host.gpus))
    if lab.spec.shape.rate:
        values[LAB_RATE] = f"{lab.spec.shape.rate:.0f}"
    if lab.shares_gpus:
        values[PIPES] = lab.mps
    if host.gpu_percent is not None:
        values["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(host.gpu_percent)
    if not lab.spec.sshd:
        path = f"{lab.folder}/agent"
        values |= {"PRTE_MCA_plm_ssh_agent": path, "OMPI_MCA_plm_rsh_agent": path}
    return values


def environment(lab: Lab, host: LabHost, environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` as a process on a host needs it."""
    kept = {name: value for name, value in environ.items() if name not in _DROPPED}
    return kept | variables(lab, host)


def write_hosts(lab: Lab) -> None:
    """Write what is mounted at /etc/hosts on each host."""
    lines = [
        "127.0.0.1 localhost",
        "::1 localhost",
        *(f"{host.address} {host.name}" for host in lab.hosts),
    ]
    path = Path(lab.hosts_file)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o644)  # other users read it too, whatever the umask


def write_agent(lab: Lab) -> Path:
    """Write the program that replaces ssh in a lab without sshd: AGENT [-o OPTION] HOST COMMAND.

    Like ssh it passes no environment on.
    """
    cases = []
    for host in lab.hosts:
        assignments = " ".join(f"{name}={value}" for name, value in variables(lab, host).items())
        cases.append(
            f"{host.address}|{host.name}) name={host.name} own='{assignments}'"
            f" enter='{' '.join(inside(host))}';;"
        )
    enter_host = 'exec env -i PATH="$PATH" HOME="$HOME" $own $enter'
    lines = [
        "#!/bin/sh",
        'while [ "$1" = -o ]; do shift 2; done',
        "host=${1##*@}; shift",
        "case $host in",
        *cases,
        '*) echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255;;',
        "esac",
        f'{enter_host} sh -c "hostname $name; {mounts(lab)}; $*"',
    ]
    path = Path(lab.folder, "agent")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o755)
    return path


Write = Callable[[str], None]


@dataclass(slots=True)
class _HostOutput:
    """One output of one host."""

    host: str
    write: Write
    decoder: io.IncrementalNewlineDecoder
    last_line: str = ""  # as far as it has come

    def feed(self, data: bytes) -> None:
        """Write the lines that `data` completes.

        Without data the stream has ended, and so has its last line.
        """
        text = self.last_line + self.decoder.decode(data, final=not data)
        *lines, self.last_line = text.split("\n")
        if self.last_line and not data:
            lines.append(self.last_line)
        if lines:
            self.write("\n".join(f"{self.host}: {line.rstrip()}" for line in lines))


def run(lab: Lab, line: Sequence[str], environ: Mapping[str, str], out: Write, err: Write) -> int:
    """Run `line` on every host; `out` and `err` get lines that begin with the host's name.

    Returns the largest exit code. OSError if a program that enters a host is missing. After Ctrl-C,
    which a terminal also sends to the commands, they have GRACE_S to end.
    """
    with contextlib.ExitStack() as undo, selectors.DefaultSelector() as selector:
        running = []
        for host in lab.hosts:
            command = subprocess.Popen(
                enter(lab, host, *line),
                env=environment(lab, host, environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                preexec_fn=die_with_parent,
            )
            process = undo.enter_context(command)
            undo.callback(process.kill)
            running.append(process)
            assert process.stdout and process.stderr
            for stream, write in ((process.stdout, out), (process.stderr, err)):
                selector.register(
                    stream, selectors.EVENT_READ, _HostOutput(host.name, write, _decoder())
                )
        try:
            _copy(selector, running, None)
        except KeyboardInterrupt:
            _copy(selector, running, GRACE_S)
            raise
        codes = [process.wait() for process in running]
        return max(SIGNAL_EXIT_BASE - code if code < 0 else code for code in codes)


def _decoder() -> io.IncrementalNewlineDecoder:
    utf8 = codecs.getincrementaldecoder("utf-8")("replace")
    return io.IncrementalNewlineDecoder(utf8, translate=True)


def _copy(
    selector: selectors.BaseSelector,
    running: Sequence["subprocess.Popen[bytes]"],
    limit_s: float | None,
) -> None:
    """Pass on what the commands print until they have ended, or for at most `limit_s`."""
    start, ended = time.monotonic(), None
    while selector.get_map():
        for key, _ in selector.select(_POLL_S):
            data = os.read(key.fd, _CHUNK)
            key.data.feed(data)
            if not data:
                selector.unregister(key.fileobj)
        now = time.monotonic()
        if all(process.poll() is not None for process in running):
            ended = ended or now
        if ended and now - ended > LAST_LINES_S:
            return
        if limit_s is not None and now - start > limit_s:
            return
