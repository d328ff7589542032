"""Known failures of mpirun (Open MPI 4 and 5) and srun, recognized in the end of their stderr."""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from busbw.core.errors import BusbwError, NoMeasurement, StartFailed
from busbw.core.host_ranges import listed
from busbw.launch.rank_deaths import (
    MPIRUN_RANK_DEATH,
    SRUN_RANK_DEATH,
    one_line,
    or_others,
    rank_words,
)
from busbw.launch.remote_ps import SSH_FAILED
from busbw.launch.signals import signal_hint, signal_name, signal_words

TAIL_LINES = 5
_PROBE = "ssh -o BatchMode=yes -o ConnectTimeout=5 {host} true"
DRY_RUN_HINT = "run the command that `busbw run ... --dry-run` prints by hand"  # option id dry_run
SHARED_HINT = (
    "ls -l /dev/shm   (a container needs --shm-size=8g or --ipc=host; other files there may be left"
    " over)"
)
_REMOTE_HOST = re.compile(r"Remote host: (\S+)")


@dataclass(frozen=True, slots=True)
class Failure:
    """One known failure.

    `pattern` matches text with white space collapsed; its groups, and `host`, fill message and
    hint. A `transient` failure raises StartFailed, so that the run is started again. A failure that
    `kills` explains the death of a rank.
    """

    pattern: str
    message: str
    hint: str
    transient: bool = False
    kills: bool = False


# The first match wins: ssh's own messages are closer to the cause than what mpirun concludes from
# them.
FAILURES: tuple[Failure, ...] = (
    Failure(
        r"can not load PMIx library",
        "Slurm's PMIx plugin found no PMIx library on this machine",
        "install it on every node (Debian: apt-get install libpmix-dev); srun --mpi=pmix -N 1"
        " hostname shows that it loads",
    ),
    Failure(
        r"srun: error: Unable to allocate resources: (?P<why>.+?) (?:srun:|$)",
        "Slurm allocated no resources: {why}",
        "sinfo   (partition, account and time go to --slurm-args '-p gpu -A team -t 10')",
    ),
    Failure(
        r"srun: error: Invalid generic resource \(gres\) specification",
        "Slurm does not have the requested GPUs",
        "sinfo -o '%N %G'   (lists the GPUs of each node)",
    ),
    Failure(
        r"slurmstepd(?:-(?P<host>\S+))?: error: execve\(\): (?P<program>\S+): (?P<why>.+?)"
        r" (?:srun:|slurmstepd|$)",
        "host {host}: {program} cannot be run ({why})",
        "install busbw at the same path on every node, or on a shared file system: srun -w {host}"
        " ls -l {program}",
    ),
    Failure(
        r"srun: error: tasks? (?P<rank>[\d,-]+) launch failed: (?P<why>.+?) (?:srun:|slurmstepd|$)",
        "Slurm could not start rank {rank}: {why}",
        "read slurmd's log on that node (scontrol show config | grep SlurmdLogFile): PMIx or the"
        " temporary directory failed",
    ),
    Failure(
        r"CANCELLED AT \S+ DUE TO TIME LIMIT",
        "Slurm's time limit ended the job",
        "request more time: --slurm-args '-t 30'",
    ),
    Failure(
        r"(?:Node failure on (?P<host>[^\s,]+)|CANCELLED AT \S+ DUE TO NODE FAILURE)",
        "host {host} was lost in the middle of the run",
        "scontrol show node {host}   (state and reason)",
    ),
    Failure(
        r"Segmentation fault.*?mca_pml_ob1_recv_frag_callback_match.*?ompi_mpi_init",
        "a rank crashed in MPI_Init: a known race of Open MPI 5 (open-mpi/ompi#12495)",
        "run it again",
        transient=True,
    ),
    Failure(
        SRUN_RANK_DEATH,
        "{ranks} on host {host} died ({why}){or_others}",
        "Killed: sacct -j JOB -o State,MaxRSS (OUT_OF_MEMORY?); Bus error: srun -w {host} df -h"
        " /dev/shm",
    ),
    Failure(
        r"(?P<why>Could not establish a configuration source|Unable to contact slurm"
        r" controller|cannot stat file \S+slurm\.conf)",
        "Slurm does not respond: {why}",
        "scontrol ping   (is slurm.conf present, and slurmctld running?)",
    ),
    Failure(
        r"Could not resolve hostname (?P<host>\S+?):? ",
        "host {host}: the name does not resolve",
        "getent hosts {host}   (add it to /etc/hosts or use its address)",
    ),
    Failure(
        r"connect to host (?P<host>\S+) port (?P<port>\d+): (?P<why>No route to host|Network is"
        r" unreachable)",
        "host {host}: {why}",
        "ip route get {host}",
    ),
    Failure(
        r"connect to host (?P<host>\S+) port (?P<port>\d+): (?P<why>[A-Z][a-z]+(?: [a-z]+){0,3})",
        "host {host} does not answer on port {port} ({why})",
        _PROBE + "   (another port: export OMPI_MCA_plm_rsh_args='-p 22222')",
    ),
    Failure(  # Open MPI 4 reports it
        r"from (?P<here>\S+) to: (?P<host>\S+) Unable to connect to the peer (?P<address>\S+) on"
        r" port \d+: "
        r"(?P<why>[A-Z][a-z]+(?: [a-z]+){0,3})",
        "host {here} cannot connect to {address} of host {host} ({why})",
        "ssh {here} ip route get {address}   (or leave that network out: --ifname 10.1.0.0/16)",
    ),
    Failure(
        # the brackets list the remaining login methods
        r"(?:(?P<host>\S+): )?Permission denied \([a-z-]+(?:,[a-z-]+)*\)",
        "host {host}: ssh cannot log in without a password (permission denied)",
        "ssh-copy-id {host}   (then " + _PROBE + ")",
    ),
    Failure(
        r"Host key verification failed",
        "host {host}: the host key is unknown to ssh",
        "ssh-keyscan {host} >> ~/.ssh/known_hosts   (after comparing the key)",
    ),
    Failure(
        r"error while loading shared libraries: (?P<library>\S+?):",
        "host {host}: {library} not found",
        "ssh {host} 'echo $LD_LIBRARY_PATH'   (a non-interactive login must find Open MPI)",
    ),
    Failure(
        r"(?:orted|prted): (?:command not found|No such file|not found)|Daemon exit status: 127",
        "host {host}: Open MPI's daemon (orted or prted) not found",
        "install the same Open MPI at the same path on every host, as busbw's own is:"
        " ssh {host} 'command -v prted orted'",
    ),
    Failure(
        r"PMIx detected a call to mkdir was unable to create the desired directory: Directory:"
        r" (?P<path>.+?) Error: (?P<why>.+?) Please",
        # daemons of other hosts do not print it
        "Open MPI cannot create its directory {path} on this host ({why})",
        "TMPDIR=/tmp busbw run ...   (or another writable directory: test with mktemp -d)",
    ),
    Failure(
        r"call to mkdir was unable to create the desired directory: Directory: (?P<path>.+?) Error:"
        r" (?P<why>.+?) Please"
        r"(?:.*?\[(?P<host>\S+):\d+\] \S+ ORTE_ERROR_LOG: Error in file \S+session_dir)?",
        "host {host}: Open MPI cannot create its directory {path} ({why})",
        "ssh {host} mktemp -d   (if it fails, set TMPDIR on that host to a writable directory)",
    ),
    Failure(
        r"not enough space for (?P<path>\S+) \(the shared-memory backing file\).*?"
        r"Local host: (?P<host>\S+) Space Requested: (?P<asked>\d+) B Space Available:"
        r" (?P<free>\d+) B",
        "host {host}: /dev/shm is full: Open MPI needs {asked} bytes for {path}, and {free} are"
        " free",
        "ssh {host} df -h /dev/shm; " + SHARED_HINT,
        kills=True,
    ),
    Failure(
        r"No network interfaces were found for out-of-band",
        "host {host}: no interface of that name for MPI's daemons",
        "give the network instead of a name: --ifname 10.1.0.0/16   (ip -brief address)",
    ),
    Failure(
        r"Daemon exit status: 213",  # Open MPI 5 prints the same for both
        "host {host}: no interface of that name, or none with a link, for MPI's daemons, or no"
        " writable temporary directory",
        "ssh {host} 'ip -brief address; mktemp -d'   (an interface is DOWN: cable, switch port; a"
        " name that the host lacks: --ifname 10.1.0.0/16; no directory: set TMPDIR there)",
    ),
    Failure(
        r"not enough slots available .*?satisfy the (?P<asked>\d+)",
        "{asked} ranks were requested, but the hosts have fewer slots",
        "give slots: --hosts h1:8,h2:8   (a comma separates hosts; a colon precedes the number of"
        " slots)",
    ),
    Failure(  # Open MPI 4
        r"pass environment variables to Open MPI with both the \"-x\" method",
        "Open MPI takes no -x, which busbw uses, beside its parameter mca_base_env_list",
        "unset OMPI_MCA_mca_base_env_list, and remove it from ~/.openmpi/mca-params.conf",
    ),
    Failure(
        r"attempt to run as root",
        "mpirun refuses to run as root",
        "add --allow-run-as-root, or run as another user",
    ),
    Failure(
        r"not access (?:or execute )?an executable:? Executable: (?P<program>\S+) Node:"
        r" (?P<host>\S+)",
        "host {host}: {program} does not exist or is not executable",
        "install busbw at the same path on every host: ssh {host} ls -l {program}",
    ),
    Failure(
        r"can't open file '(?P<path>[^']+)': \[Errno 2\]",
        "{path} is not on every host",
        "copy it to the same path on each; for busbw itself: busbw deploy --hosts h1,h2",
    ),
    Failure(
        r"Too many open files|PMIX_ERR_SYS_LIMITS_PIPES|PMIX_ERR_SYS_LIMITS_FILES",
        "the launcher got no more open files (Too many open files)",
        "ulimit -n 1024   (on every host; ulimit -Hn is the most that a user may ask for)",
    ),
    Failure(
        r"(?:[Tt]hread|fork)\S*(?: \S+){0,3} Resource temporarily unavailable",
        "a program of the job got no thread or process (Resource temporarily unavailable)",
        "ulimit -u; ulimit -v   (limits of processes and of memory; in a container pids.max, too)",
    ),
    Failure(
        MPIRUN_RANK_DEATH,
        "rank {rank} on host {host} died of signal {signal} ({signal_name})",
        "{signal_hint}",
    ),
    Failure(
        r"(?P<path>/\S+): Permission denied",
        "host {host}: no access to {path} (permission denied)",
        "ssh {host} ls -l {path}   (it must be executable, on a file system mounted without"
        " noexec)",
    ),
    Failure(
        r"lost communication with a remote daemon.*?Remote daemon: \S+ on node (?P<host>[^\s,]+)",
        "host {host} was lost in the middle of the run",
        _PROBE + "   (then its kernel log: ssh {host} dmesg | tail)",
    ),
    Failure(
        r"daemon failed to report back.*?Remote host: (?P<host>\S+) Daemon exit status:"
        r" (?P<code>\d+)",
        "host {host} could not be started: its launch agent exited with {code}",
        _PROBE,
    ),
    Failure(
        r"daemon failed to report back|unable to reliably start one or more daemons|unable to"
        r" complete a TCP connection",
        "a host's daemon did not start or did not connect back ({host})",
        _PROBE + "   (a firewall or a wrong interface: --ifname 10.1.0.0/16)",
    ),
)


def launcher_error(
    status: int, stderr_tail: str, hosts: Sequence[str] = (), cause: str = ""
) -> BusbwError:
    """The error for a launcher that exited with `status` (-N if signal N killed it).

    `stderr_tail` is the end of its stderr, `hosts` are those that it used. `cause` is what is known
    to have ended it, such as the exit of a rank.
    """
    error = known_error(stderr_tail, hosts)
    if error:
        return error
    stripped = [line.strip() for line in stderr_tail.replace("\0", "").splitlines()]
    lines = [line for line in stripped if line.strip("-")]
    ending = f"died of {signal_words(-status)}" if status < 0 else f"exited with {status}"
    if status - 128 in list(signal.Signals):
        ending += f", as after a rank died of {signal_words(status - 128)}"
    quoted = ", without an error message"
    if lines:
        quoted = "; last lines: " + " / ".join(lines[-TAIL_LINES:])
    where = f" on {listed(hosts)}" if hosts else ""
    message = f"{cause or f'the launcher{where} {ending}'}{quoted}"
    if status == -signal.SIGKILL:
        hint = "dmesg | tail   (out of memory, or killed by a user or the scheduler)"
        return NoMeasurement(message, hint)
    if status == 1 and not lines and not cause:
        hint = f"look for who sent SIGTERM to mpirun, which ends it like this; or {DRY_RUN_HINT}"
        return NoMeasurement(message, hint, options=["dry_run"])
    return NoMeasurement(message, DRY_RUN_HINT, options=["dry_run"])


def known_error(
    stderr_tail: str, hosts: Sequence[str] = (), *, kills: bool = False
) -> BusbwError | None:
    """The error for a known failure in the launcher's stderr; None if there is none.

    With `kills` only failures that explain a death count.
    """
    text = f"{one_line(stderr_tail)} "
    for failure in FAILURES:
        if kills and not failure.kills:
            continue
        match = re.search(failure.pattern, text)
        if match:
            words = _words(match, text, hosts)
            hint = failure.hint.format_map(words)
            if not hosts:  # all ranks ran on this machine
                hint = hint.replace(f"ssh {words['host']} ", "")
            kind = StartFailed if failure.transient else NoMeasurement
            return kind(failure.message.format_map(words), hint)
    return None


def daemon_failed(stderr: str) -> bool:
    """Whether a daemon of Open MPI 5 ran on another host and ended with an error or was killed,
    according to the launcher. 127 is a shell's code where there is no such program.
    """
    text = one_line(stderr)
    codes = re.findall(r"Daemon exit status: (\d+)", text)
    failed = any(int(code) not in (127, SSH_FAILED) for code in codes)
    return failed or "lost communication with a remote daemon" in text


def _words(match: re.Match[str], text: str, hosts: Sequence[str]) -> dict[str, str]:
    """The words that fill a failure's message and hint, by placeholder."""
    groups = {name: value for name, value in match.groupdict().items() if value is not None}
    remote = _REMOTE_HOST.search(text)
    named = groups.get("host", remote.group(1) if remote else "")
    bare = named.rpartition("@")[2].strip("[]:'\"")
    words = groups | {"host": bare or named or listed(hosts) or "this one"}
    words |= {"ranks": rank_words(groups.get("rank", "")), "or_others": or_others(match, text)}
    if "signal" in words:
        number = int(words["signal"])
        words["signal_name"] = signal_name(number)
        words["signal_hint"] = signal_hint(number, words["host"])
    return words
